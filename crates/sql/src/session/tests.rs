use super::command::{Command, Direction, IsolationLevel, read};
use sql_types::SqlResult;

fn command(text: &str) -> SqlResult<Command> {
    read(&crate::parse::parse_one(text)?)
}

#[test]
fn transaction_commands_are_read() {
    let Command::Begin(modes, None) = command("BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY").unwrap()
    else {
        panic!("not BEGIN")
    };
    assert_eq!((modes.isolation, modes.read_only), (Some(IsolationLevel::ReadCommitted), Some(true)));
    assert!(matches!(command("START TRANSACTION").unwrap(), Command::Begin(..)));
    assert!(matches!(command("END").unwrap(), Command::Commit { chain: false }));
    assert!(matches!(command("ABORT").unwrap(), Command::Rollback { .. }));
    assert!(matches!(command("ROLLBACK TO SAVEPOINT a").unwrap(), Command::RollbackTo(name) if name == "a"));
    assert!(matches!(command("RELEASE b").unwrap(), Command::Release(name) if name == "b"));
}

#[test]
fn set_reads_every_spelling() {
    for (text, wanted, value) in [
        ("SET search_path TO a, \"B c\", public", "search_path", Some("a, \"B c\", public")),
        ("SET SESSION statement_timeout = 100", "statement_timeout", Some("100")),
        ("SET extra_float_digits = -3", "extra_float_digits", Some("-3")),
        ("SET TIME ZONE 'UTC'", "timezone", Some("UTC")),
        ("SET TIME ZONE LOCAL", "timezone", None),
        ("SET NAMES 'utf8'", "client_encoding", Some("utf8")),
        ("SET my.var = on", "my.var", Some("on")),
        ("SET ROLE NONE", "role", None),
        ("SET work_mem = DEFAULT", "work_mem", None),
    ] {
        let Command::Set { name, value: found, local } = command(text).unwrap() else { panic!("{text}") };
        assert_eq!((name.as_str(), found.as_deref(), local), (wanted, value, false), "{text}");
    }
    assert!(matches!(command("SET LOCAL jit = off").unwrap(), Command::Set { local: true, .. }));
    assert!(matches!(
        command("SET TRANSACTION READ ONLY").unwrap(),
        Command::SetTransaction { session: false, .. }
    ));
}

#[test]
fn cursor_commands_are_read() {
    for (text, wanted) in [
        ("FETCH c", Direction::Forward(1)),
        ("FETCH 5 FROM c", Direction::Forward(5)),
        ("FETCH -2 IN c", Direction::Backward(2)),
        ("FETCH ALL FROM c", Direction::ForwardAll),
        ("FETCH FORWARD 3 FROM c", Direction::Forward(3)),
        ("FETCH BACKWARD ALL FROM c", Direction::BackwardAll),
        ("FETCH LAST FROM c", Direction::Absolute(-1)),
        ("FETCH RELATIVE -1 FROM c", Direction::Relative(-1)),
    ] {
        let Command::Fetch { direction, cursor, .. } = command(text).unwrap() else { panic!("{text}") };
        assert_eq!((direction, cursor.as_str()), (wanted, "c"), "{text}");
    }
    let declared = command("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT 1").unwrap();
    assert!(matches!(declared, Command::Declare { scroll: Some(false), hold: true, .. }));
}

#[test]
fn other_commands_are_read() {
    assert!(
        matches!(command("PREPARE p (int, text) AS SELECT $1, $2").unwrap(), Command::Prepare { types, .. } if types.len() == 2)
    );
    assert!(
        matches!(&command("EXECUTE p (1 + 2, 'x')").unwrap(), Command::Execute { args, .. } if args.iter().map(ToString::to_string).eq(["1 + 2", "'x'"]))
    );
    assert!(matches!(
        command("LOCK TABLE a, b IN SHARE ROW EXCLUSIVE MODE NOWAIT").unwrap(),
        Command::Lock { mode: 5, nowait: true, .. }
    ));
    assert!(matches!(command("LOCK TABLE a IN SHARE MODE").unwrap(), Command::Lock { mode: 4, .. }));
    assert!(matches!(command("LOCK a").unwrap(), Command::Lock { mode: 7, .. }));
    assert!(matches!(command("NOTIFY ch, 'x'").unwrap(), Command::Notify { payload, .. } if payload == "x"));
    assert!(matches!(command("SELECT 1 INTO t").unwrap(), Command::Ddl(_)));
    assert!(matches!(command("DO $$ BEGIN END $$").unwrap(), Command::Do { language: None, .. }));
    assert!(matches!(command("VACUUM FULL t").unwrap(), Command::Nothing("VACUUM")));
    assert!(matches!(
        command("VACUUM (FREEZE, ANALYZE) t (a, b), u").unwrap(),
        Command::Analyze { tag: "VACUUM", .. }
    ));
    assert!(matches!(command("ANALYZE (VERBOSE) t").unwrap(), Command::Analyze { tag: "ANALYZE", .. }));
    assert!(command("ANALYZE t ()").is_err());
    assert!(command("FETCH").is_err());
}
