//! Statements taken apart and classified; errors with positions.

use super::*;

fn kinds(text: &str) -> Vec<StatementKind> {
    parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error:?}"))
        .iter()
        .map(|statement| statement.kind)
        .collect()
}

#[track_caller]
fn fails(text: &str, message: &str, position: Option<u32>) {
    let error = parse(text).unwrap_err();
    assert_eq!(error.message, message, "{text}");
    assert_eq!(error.extra().and_then(|extra| extra.position), position, "{text}");
}

#[test]
fn statements_are_split_at_semicolons() {
    let statements = parse(" SELECT 1; ; select ';' AS \"a;b\" -- no; \n; /* ; */ COMMIT ;").unwrap();
    let texts: Vec<&str> = statements.iter().map(|statement| &*statement.text).collect();
    assert_eq!(texts, ["SELECT 1", "select ';' AS \"a;b\"", "COMMIT"]);
    assert!(parse("  -- nothing\n ; ").unwrap().is_empty());
    assert_eq!(parse("SELECT $2 + $11").unwrap()[0].parameters, 11);
}

#[test]
fn kinds_of_statements() {
    use StatementKind as Kind;
    for (text, kind) in [
        ("SELECT 1", Kind::Query),
        ("(SELECT 1) UNION SELECT 2", Kind::Query),
        ("WITH a AS (SELECT 1) SELECT * FROM a", Kind::Query),
        ("VALUES (1)", Kind::Query),
        ("TABLE t", Kind::Query),
        ("INSERT INTO t VALUES (1)", Kind::Insert),
        ("BEGIN", Kind::Begin),
        ("begin transaction isolation level repeatable read, read only, not deferrable", Kind::Begin),
        ("START TRANSACTION READ WRITE", Kind::Begin),
        ("END", Kind::Commit),
        ("ABORT", Kind::Rollback),
        ("ROLLBACK TO SAVEPOINT a", Kind::Rollback),
        ("SET search_path TO a, b", Kind::Set),
        ("SHOW transaction isolation level", Kind::Show),
        ("SHOW tables", Kind::Show),
        ("RESET ALL", Kind::Reset),
        ("DISCARD ALL", Kind::Discard),
        ("COPY t (a) FROM STDIN WITH (FORMAT csv)", Kind::Copy),
        ("copy pgbench_accounts from stdin with (freeze on)", Kind::Copy),
        ("EXPLAIN (ANALYZE, COSTS off) SELECT 1", Kind::Explain),
        ("PREPARE p (int) AS SELECT $1", Kind::Prepare),
        ("EXECUTE p(1)", Kind::Execute),
        ("DEALLOCATE ALL", Kind::Deallocate),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Kind::Declare),
        ("FETCH FORWARD 5 FROM c", Kind::Fetch),
        ("MOVE 5 IN c", Kind::Move),
        ("CLOSE ALL", Kind::Close),
        ("LISTEN x", Kind::Listen),
        ("NOTIFY x, 'y'", Kind::Notify),
        ("UNLISTEN *", Kind::Unlisten),
        ("LOCK TABLE t IN ACCESS SHARE MODE", Kind::Lock),
        ("VACUUM ANALYZE t", Kind::Vacuum),
        ("ANALYZE", Kind::Analyze),
        ("DO $$ BEGIN END $$", Kind::Do),
        ("CREATE TABLE t (a int)", Kind::Ddl),
        ("ALTER DATABASE x SET a TO b", Kind::Ddl),
        ("GRANT SELECT ON t TO x", Kind::Ddl),
        ("CHECKPOINT", Kind::Utility),
    ] {
        assert_eq!(kinds(text), [kind], "{text}");
    }
}

#[test]
fn syntax_errors_say_where() {
    fails("SELEC 1", "syntax error at or near \"SELEC\"", Some(1));
    fails("SELECT 1 FRM t x y", "syntax error at or near \"t\"", Some(14));
    fails("SELECT 1;\n  SELECT )", "syntax error at or near \")\"", Some(20));
    fails("SELECT 'é' || (", "syntax error at end of input", Some(16));
    fails("SELECT 'abc", "unterminated quoted string at or near \"'abc\"", Some(8));
    fails("USE x", "syntax error at or near \"USE\"", Some(1));
    fails("PRAGMA x", "syntax error at or near \"PRAGMA\"", Some(1));
    fails("SELECT \0", "invalid byte sequence for encoding \"UTF8\": 0x00", None);
}

#[test]
fn what_the_parser_lacks_is_rewritten() {
    let one = |text: &str| parse_one(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!(one("INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (1)").marks.overriding, Some(true));
    assert_eq!(one("INSERT INTO t OVERRIDING USER VALUE SELECT 1").marks.overriding, Some(false));
    assert!(one("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE").marks.deferrable);
    for text in [
        "SELECT * FROM t FOR NO KEY UPDATE",
        "SELECT * FROM t FOR KEY SHARE",
        "SELECT a BETWEEN SYMMETRIC (b + 1) AND c FROM t",
        "SELECT * FROM ROWS FROM (f(1), g(2)) AS x",
        "SELECT f(a, VARIADIC b) FROM t",
        "SELECT a<-1, b>+2 FROM t",
    ] {
        one(text);
    }
}

#[test]
fn nesting_is_bounded() {
    for text in [
        format!("SELECT {}", "(".repeat(100_000)),
        format!("SELECT {}1", "- ".repeat(100_000)),
        format!("SELECT {}1", "CASE WHEN ".repeat(100_000)),
        format!("SELECT 1 {}", "+ 1 ".repeat(100_000)),
        format!("SELECT a{}", "[1]".repeat(100_000)),
        format!("SELECT 1 {}", "UNION SELECT 1 ".repeat(100_000)),
        format!("SELECT * FROM a {}", "JOIN a ON true ".repeat(100_000)),
        format!("SELECT a{}", "::int".repeat(100_000)),
        format!("SELECT a{}", " IS NULL".repeat(100_000)),
    ] {
        let start: String = text.chars().take(30).collect();
        assert_eq!(parse(&text).unwrap_err().code, SqlState::TOO_COMPLEX, "{start}");
    }
    let list = format!("SELECT * FROM t WHERE id IN (1{})", ", 2".repeat(50_000));
    parse(&list).unwrap();
    let rows = format!("INSERT INTO t VALUES (1, 'x'){}", ", (2, -5)".repeat(20_000));
    parse(&rows).unwrap();
}

#[test]
fn as_of_is_taken_out_wherever_it_stands() {
    let clause = |text: &str| {
        let mut statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let found = statements.remove(0);
        (found.as_of.map(|clause| (clause.expr.to_string(), clause.position)), found.ast)
    };
    for text in [
        "SELECT a FROM t x AS OF SYSTEM TIME '-10s' WHERE a = 1 ORDER BY a",
        "SELECT a FROM t x WHERE a = 1 as of system time '-10s' ORDER BY a",
        "SELECT a FROM t x WHERE a = 1 ORDER BY a AS OF SYSTEM TIME '-10s'",
    ] {
        let (found, ast) = clause(text);
        let position = text.find('\'').and_then(|at| u32::try_from(at + 1).ok());
        assert_eq!(found, Some(("'-10s'".to_string(), position)), "{text}");
        let Ast::Sql(ast) = ast else { panic!("{text}") };
        assert_eq!(ast.to_string(), "SELECT a FROM t x WHERE a = 1 ORDER BY a");
    }
    assert_eq!(clause("SELECT 1 AS of, system FROM time").0, None);
    assert_eq!(
        clause("(SELECT a FROM t AS OF SYSTEM TIME 5.1) UNION SELECT 1").0,
        Some(("5.1".into(), Some(36)))
    );
    assert_eq!(clause("EXPLAIN SELECT a FROM t AS OF SYSTEM TIME 5").0, None, "the statement inside has it");
    fails("SELECT a FROM t AS OF SYSTEM TIME", "syntax error at end of input", Some(34));
    fails("SELECT a FROM t AS OF SYSTEM TIME $1", "AS OF SYSTEM TIME cannot be a parameter", Some(35));
    let inside = "AS OF SYSTEM TIME must be provided on a top-level statement";
    fails("SELECT 1 FROM (SELECT a FROM t AS OF SYSTEM TIME 5) x", inside, Some(50));
    let many = format!("SELECT a FROM t{}", " AS OF SYSTEM TIME 5".repeat(101));
    assert_eq!(parse(&many).unwrap_err().code, SqlState::TOO_COMPLEX);
}

#[test]
fn joins_within_joins_get_their_parentheses() {
    for (text, meant) in [
        ("SELECT * FROM a JOIN b JOIN c ON x ON y", "SELECT * FROM a JOIN (b JOIN c ON x) ON y"),
        (
            "SELECT * FROM a LEFT JOIN b JOIN c JOIN d ON x ON y ON z WHERE w",
            "SELECT * FROM a LEFT JOIN (b JOIN (c JOIN d ON x) ON y) ON z WHERE w",
        ),
        (
            "SELECT * FROM a JOIN b JOIN c ON x JOIN d USING (e) ON y JOIN f ON g",
            "SELECT * FROM a JOIN (b JOIN c ON x JOIN d USING(e)) ON y JOIN f ON g",
        ),
        ("SELECT * FROM a JOIN b CROSS JOIN c ON x", "SELECT * FROM a JOIN (b CROSS JOIN c) ON x"),
        (
            "SELECT * FROM a JOIN b NATURAL LEFT JOIN c ON x",
            "SELECT * FROM a JOIN (b NATURAL LEFT JOIN c) ON x",
        ),
        (
            "SELECT * FROM a JOIN b ON x JOIN c ON y, d JOIN e ON z",
            "SELECT * FROM a JOIN b ON x JOIN c ON y, d JOIN e ON z",
        ),
        ("SELECT * FROM a NATURAL JOIN b JOIN c ON y", "SELECT * FROM a NATURAL JOIN b JOIN c ON y"),
        (
            "SELECT * FROM a JOIN (SELECT DISTINCT ON (p) * FROM b JOIN c JOIN d ON x ON y) q ON z",
            "SELECT * FROM a JOIN (SELECT DISTINCT ON (p) * FROM b JOIN (c JOIN d ON x) ON y) q ON z",
        ),
    ] {
        assert_eq!(parse_one(text).unwrap().sql().unwrap().to_string(), meant, "{text}");
    }
    assert_eq!(
        parse_one("SELECT * FROM a JOIN b JOIN c ON x ON y ON z").unwrap_err().code,
        SqlState::SYNTAX_ERROR
    );
    let deep = format!("SELECT 1 FROM a {} {}", "JOIN a ".repeat(5_000), "ON true ".repeat(5_000));
    assert_eq!(parse_one(&deep).unwrap_err().code, SqlState::TOO_COMPLEX);
}

#[test]
fn markers_cannot_be_written() {
    for text in ["select \"\0like all\"(1)", "select 1 as \"\0one row\"", "select '\0'"] {
        assert_eq!(parse(text).unwrap_err().code, SqlState::CHARACTER_NOT_IN_REPERTOIRE, "{text:?}");
    }
}

#[test]
fn elements_are_targets_of_assignments() {
    let targets = |text: &str| -> Vec<(String, usize)> {
        let Ast::Sql(statement) = parse_one(text).unwrap().ast else { panic!("{text}") };
        let names: Vec<ast::ObjectName> = match *statement {
            ast::Statement::Update(update) => update
                .assignments
                .into_iter()
                .flat_map(|assignment| match assignment.target {
                    ast::AssignmentTarget::ColumnName(name) => vec![name],
                    ast::AssignmentTarget::Tuple(names) => names,
                })
                .collect(),
            ast::Statement::Insert(insert) => insert.columns,
            other => panic!("{other}"),
        };
        let parts = |name: &ast::ObjectName| match subscripted(name) {
            Some((name, subscripts)) => (name.to_string(), subscripts.len()),
            None => (name.to_string(), 0),
        };
        names.iter().map(parts).collect()
    };
    let named = |names: &[(&str, usize)]| -> Vec<(String, usize)> {
        names.iter().map(|(name, count)| (name.to_string(), *count)).collect()
    };
    assert_eq!(
        targets(
            "UPDATE t SET a[1][f(b[2], 3):4] = b[1], c = (SELECT x[1] = 2), (d[i], e) = (1, 2) WHERE a[1] = 3"
        ),
        named(&[("a", 2), ("c", 0), ("d", 1), ("e", 0)])
    );
    assert_eq!(
        targets("INSERT INTO s.t AS u (a[1], \"B\"[2:], c) SELECT a[1], b[2], 3 FROM u"),
        named(&[("a", 1), ("\"B\"", 1), ("c", 0)])
    );
    assert_eq!(targets("INSERT INTO t (SELECT a[1] FROM u)"), named(&[]));
}
