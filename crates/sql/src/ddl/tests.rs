use super::parse::parse;
use super::statement::{AlterAction, ConstraintKind, Ddl, GrantTarget};
use sql_types::SqlResult;

fn read(text: &str) -> SqlResult<Ddl> {
    parse(&crate::parse::parse_one(text)?)
}

#[test]
fn create_table_reads_columns_and_constraints() {
    let text = "CREATE TABLE IF NOT EXISTS s.t (
        id bigserial PRIMARY KEY, a varchar(10) NOT NULL DEFAULT 'x' CONSTRAINT long CHECK (length(a) > 1),
        b int REFERENCES other (id) ON DELETE SET NULL ON UPDATE CASCADE,
        n numeric(10, 2)[] NULL, UNIQUE (a, b), FOREIGN KEY (b) REFERENCES o) WITH (fillfactor = 70)";
    let Ddl::CreateTable(table) = read(text).unwrap() else { panic!("not a table") };
    assert!(table.if_not_exists);
    assert_eq!(table.columns.len(), 4);
    assert_eq!(table.columns[0].serial, Some(8));
    assert_eq!(table.columns[1].default.as_deref(), Some("'x'"));
    assert_eq!(table.columns[1].nullable, Some(false));
    assert_eq!(table.constraints.len(), 5);
    assert!(matches!(&table.constraints[1].kind, ConstraintKind::Check(text) if text == "length(a) > 1"));
    assert!(
        matches!(&table.constraints[2].kind, ConstraintKind::Foreign(_, key) if key.on_delete == 'n' && key.on_update == 'c')
    );
}

#[test]
fn a_column_may_be_called_like_a_constraint() {
    let Ddl::CreateTable(table) = read("CREATE TABLE t (\"unique\" int, name text)").unwrap() else {
        panic!("no table")
    };
    assert_eq!(table.columns[0].name, "unique");
}

#[test]
fn create_table_as_keeps_the_query() {
    let Ddl::CreateTableAs { columns, query, with_data, .. } =
        read("CREATE TABLE t (x, y) AS SELECT 1, 2 WITH NO DATA").unwrap()
    else {
        panic!("not CREATE TABLE AS")
    };
    assert_eq!((columns.len(), &*query.text, with_data), (2, "SELECT 1, 2", false));
}

#[test]
fn alter_table_reads_several_actions() {
    let text = "ALTER TABLE ONLY t ADD COLUMN c int DEFAULT 1 + 2 NOT NULL, DROP d CASCADE, ALTER e TYPE text USING e || 'x', \
                ADD CONSTRAINT k UNIQUE (c), ALTER COLUMN f SET DEFAULT now(), OWNER TO me";
    let Ddl::AlterTable { actions, .. } = read(text).unwrap() else { panic!("not ALTER TABLE") };
    assert_eq!(actions.len(), 6);
    assert!(
        matches!(&actions[0], AlterAction::AddColumn { column, .. } if column.default.as_deref() == Some("1 + 2") && column.nullable == Some(false))
    );
    assert!(matches!(&actions[2], AlterAction::SetType { using: Some(text), .. } if text == "e || 'x'"));
    assert!(matches!(&actions[4], AlterAction::SetDefault(_, Some(text)) if text == "now()"));
}

#[test]
fn what_is_missing_is_named() {
    for (text, what) in [
        ("CREATE INDEX ON t USING gist (a)", "index method \"gist\""),
        ("ALTER TABLE t INHERIT u", "ALTER TABLE … INHERIT"),
    ] {
        let Ddl::Unsupported(named) = read(text).unwrap() else { panic!("{text} is supported") };
        assert_eq!(named, what);
    }
}

#[test]
fn syntax_errors_have_a_position() {
    for (text, position) in [("CREATE TABLE t (a int,)", 23), ("DROP TABLE", 11), ("ALTER TABLE t FROB", 15)]
    {
        let error = read(text).unwrap_err();
        assert_eq!(error.code, sql_types::SqlState::SYNTAX_ERROR, "{text}");
        assert_eq!(error.extra().and_then(|extra| extra.position), Some(position), "{text}: {error:?}");
    }
}

#[test]
fn grants_are_read() {
    let Ddl::Grant { grant, privileges, target, roles } =
        read("GRANT SELECT, INSERT ON TABLE a, s.b TO x, public WITH GRANT OPTION").unwrap()
    else {
        panic!("not GRANT")
    };
    assert!(grant && matches!(target, GrantTarget::Tables(names) if names.len() == 2));
    assert_eq!((privileges.unwrap().len(), roles.len()), (2, 2));
    let all = read("GRANT ALL PRIVILEGES ON ALL TABLES IN SCHEMA public TO x").unwrap();
    assert!(matches!(all, Ddl::Grant { target: GrantTarget::AllIn { .. }, .. }));
    assert!(matches!(read("REVOKE admin FROM x").unwrap(), Ddl::Grant { target: GrantTarget::Roles(_), .. }));
}
