//! Schema changes: transactional, checked, undone.

use crate::database::{Database, run, session};
use sql_types::SqlState;

#[tokio::test]
async fn tables_with_every_constraint_refuse_what_breaks_them() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE p (id serial PRIMARY KEY, code text NOT NULL UNIQUE, n int DEFAULT 7 CHECK (n > 0));
         CREATE TABLE c (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE,
                         note varchar(5), UNIQUE (p, note))",
    )
    .await;
    db.execute("INSERT INTO p (code) VALUES ('a'), ('b')").await;
    db.execute("INSERT INTO c (p, note) VALUES (1, 'x'), (2, 'y')").await;
    assert_eq!(db.rows("SELECT * FROM p ORDER BY id").await, ["1|a|7", "2|b|7"]);
    for (text, code) in [
        ("INSERT INTO p (code) VALUES ('a')", SqlState::UNIQUE_VIOLATION),
        ("INSERT INTO p (code) VALUES (NULL)", SqlState::NOT_NULL_VIOLATION),
        ("INSERT INTO p (code, n) VALUES ('z', 0)", SqlState::CHECK_VIOLATION),
        ("INSERT INTO c (p) VALUES (99)", SqlState::FOREIGN_KEY_VIOLATION),
        ("INSERT INTO c (note) VALUES ('toolong')", SqlState::STRING_TRUNCATION),
        ("CREATE TABLE p (x int)", SqlState::DUPLICATE_TABLE),
        ("CREATE TABLE q (x int, x int)", SqlState::DUPLICATE_COLUMN),
        ("CREATE TABLE q (x nosuchtype)", SqlState::UNDEFINED_OBJECT),
        ("CREATE TABLE q (x int PRIMARY KEY, y int PRIMARY KEY)", SqlState::INVALID_TABLE_DEFINITION),
        ("CREATE TABLE q (x int REFERENCES p (n))", SqlState::INVALID_FOREIGN_KEY),
        ("CREATE TABLE q (x int DEFAULT 'a')", SqlState::INVALID_TEXT),
        ("CREATE TABLE q (x int CHECK (y > 1))", SqlState::UNDEFINED_COLUMN),
        ("CREATE TABLE nowhere.q (x int)", SqlState::INVALID_SCHEMA),
        ("CREATE TEMP TABLE public.q (x int)", SqlState::INVALID_TABLE_DEFINITION),
        ("CREATE INDEX ON p (lower(code || now()))", SqlState::INVALID_OBJECT_DEFINITION),
        ("DROP TABLE p", SqlState::DEPENDENT_OBJECTS),
        ("DROP TABLE nope", SqlState::UNDEFINED_TABLE),
        ("DROP VIEW p", SqlState::WRONG_OBJECT_TYPE),
        ("TRUNCATE p", SqlState::FEATURE_NOT_SUPPORTED),
    ] {
        assert_eq!(db.error(text).await.code, code, "{text}");
    }
    db.execute("DELETE FROM p WHERE id = 1").await;
    assert_eq!(db.rows("SELECT p, note FROM c").await, ["2|y"]);
    db.execute("DROP TABLE p CASCADE").await;
    db.execute("INSERT INTO c (p) VALUES (99)").await;
    db.execute("DROP TABLE IF EXISTS p").await;
}

#[tokio::test]
async fn a_schema_change_is_seen_by_others_when_it_commits_and_never_if_not() {
    let mut db = Database::open().await;
    let mut other = session(&db.engine).await;
    db.execute("BEGIN").await;
    db.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)").await;
    assert_eq!(db.rows("SELECT * FROM t").await, ["1"]);
    let unseen = run(&mut other, "SELECT * FROM t", &[]).await.unwrap_err();
    assert_eq!(unseen.code, SqlState::UNDEFINED_TABLE);
    db.execute("COMMIT").await;
    assert_eq!(run(&mut other, "SELECT * FROM t", &[]).await.unwrap().rows, ["1"]);

    db.execute("BEGIN; ALTER TABLE t ADD COLUMN b int DEFAULT 5; DROP TABLE IF EXISTS u").await;
    assert_eq!(db.rows("SELECT * FROM t").await, ["1|5"]);
    db.execute("ROLLBACK").await;
    assert_eq!(db.rows("SELECT * FROM t").await, ["1"]);

    db.execute("BEGIN; CREATE TABLE kept (a int); SAVEPOINT s; CREATE TABLE lost (a int); DROP TABLE t")
        .await;
    db.execute("ROLLBACK TO s; INSERT INTO kept VALUES (3); COMMIT").await;
    assert_eq!(db.rows("SELECT * FROM kept").await, ["3"]);
    assert_eq!(db.rows("SELECT * FROM t").await, ["1"]);
    assert_eq!(db.error("SELECT * FROM lost").await.code, SqlState::UNDEFINED_TABLE);
}

#[tokio::test]
async fn a_new_engine_reads_what_was_written() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE SCHEMA s; CREATE TABLE s.t (a int PRIMARY KEY, b text DEFAULT 'x'); CREATE INDEX i ON s.t (b DESC);
         CREATE VIEW v AS SELECT a FROM s.t; CREATE SEQUENCE q START 10; INSERT INTO s.t VALUES (1)",
    )
    .await;
    assert_eq!(db.rows("SELECT nextval('q')").await, ["10"]);
    let tenant = db.engine.tenant().clone();
    let again = sql::engine::Engine::open(db.engine.kv().clone(), tenant).await.unwrap();
    let mut fresh = session(&again).await;
    assert_eq!(run(&mut fresh, "SELECT * FROM v", &[]).await.unwrap().rows, ["1"]);
    assert_eq!(run(&mut fresh, "SELECT b FROM s.t WHERE b = 'x'", &[]).await.unwrap().rows, ["x"]);
    assert_eq!(run(&mut fresh, "SELECT nextval('q')", &[]).await.unwrap().rows, ["11"]);
}

#[tokio::test]
async fn indexes_and_keys_are_built_over_existing_rows() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int, b int)").await;
    db.execute("INSERT INTO t SELECT n, n % 100 FROM generate_series(1, 5000) AS n").await;
    db.execute("CREATE INDEX t_b ON t (b)").await;
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE b = 7").await, ["50"]);
    let error = db.error("CREATE UNIQUE INDEX u ON t (b)").await;
    assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
    db.execute("ALTER TABLE t ADD PRIMARY KEY (a)").await;
    assert_eq!(db.rows("SELECT b FROM t WHERE a = 4321").await, ["21"]);
    assert_eq!(db.error("INSERT INTO t VALUES (1, 1)").await.code, SqlState::UNIQUE_VIOLATION);
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE b = 7").await, ["50"]);
    db.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 1)").await;
    assert_eq!(db.error("ALTER TABLE t ADD PRIMARY KEY (a)").await.code, SqlState::UNIQUE_VIOLATION);
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["5001"]);
}

#[tokio::test]
async fn alter_table_changes_columns_and_constraints() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, '10'), (2, NULL)").await;
    assert_eq!(db.error("ALTER TABLE t ADD c int NOT NULL").await.code, SqlState::NOT_NULL_VIOLATION);
    db.execute("ALTER TABLE t ADD c int NOT NULL DEFAULT 3, ADD d serial, ADD e text DEFAULT 'it''s'").await;
    assert_eq!(db.rows("SELECT * FROM t ORDER BY a").await, ["1|10|3|1|it's", "2|NULL|3|2|it's"]);
    assert_eq!(db.error("ALTER TABLE t ALTER b SET NOT NULL").await.code, SqlState::NOT_NULL_VIOLATION);
    assert_eq!(db.error("ALTER TABLE t ALTER b TYPE int").await.code, SqlState::DATATYPE_MISMATCH);
    db.execute("ALTER TABLE t ALTER b TYPE int USING b::int").await;
    assert_eq!(db.rows("SELECT b + 1 FROM t WHERE a = 1").await, ["11"]);
    db.execute("ALTER TABLE t RENAME c TO cc").await;
    db.execute("ALTER TABLE t DROP COLUMN d, ALTER cc DROP DEFAULT, ALTER cc DROP NOT NULL").await;
    db.execute("INSERT INTO t (a) VALUES (3)").await;
    assert_eq!(db.rows("SELECT * FROM t WHERE a = 3").await, ["3|NULL|NULL|it's"]);
    assert_eq!(db.error("ALTER TABLE t ADD CHECK (a < 3)").await.code, SqlState::CHECK_VIOLATION);
    db.execute("ALTER TABLE t ADD CONSTRAINT small CHECK (a < 9), RENAME TO tt").await;
    assert_eq!(db.error("INSERT INTO tt (a) VALUES (9)").await.code, SqlState::CHECK_VIOLATION);
    db.execute("ALTER TABLE tt DROP CONSTRAINT small; INSERT INTO tt (a) VALUES (9)").await;
    db.execute("CREATE TABLE r (a int); INSERT INTO r VALUES (77)").await;
    let refused = db.error("ALTER TABLE r ADD FOREIGN KEY (a) REFERENCES tt").await;
    assert_eq!(refused.code, SqlState::FOREIGN_KEY_VIOLATION);
}

#[tokio::test]
async fn truncate_drops_rows_and_restarts_sequences() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a serial, b int); INSERT INTO t (b) VALUES (1), (2)").await;
    db.execute("BEGIN; TRUNCATE t; INSERT INTO t (b) VALUES (3)").await;
    assert_eq!(db.rows("SELECT * FROM t").await, ["3|3"]);
    db.execute("ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["2"]);
    db.execute("TRUNCATE t RESTART IDENTITY; INSERT INTO t (b) VALUES (9)").await;
    assert_eq!(db.rows("SELECT * FROM t").await, ["1|9"]);
}

#[tokio::test]
async fn sequences_step_end_and_cycle() {
    let mut db = Database::open().await;
    assert_eq!(db.error("SELECT lastval()").await.code, SqlState::OBJECT_STATE);
    db.execute("CREATE SEQUENCE s INCREMENT 5 MINVALUE 1 MAXVALUE 12 START 2").await;
    assert_eq!(db.error("SELECT currval('s')").await.code, SqlState::OBJECT_STATE);
    for expected in ["2", "7", "12"] {
        assert_eq!(db.rows("SELECT nextval('s')").await, [expected]);
    }
    assert_eq!(db.error("SELECT nextval('s')").await.code, SqlState::SEQUENCE_LIMIT);
    db.execute("ALTER SEQUENCE s CYCLE").await;
    assert_eq!(db.rows("SELECT nextval('s'), currval('s'), lastval()").await, ["1|1|1"]);
    assert_eq!(db.rows("SELECT setval('s', 3, false)").await, ["3"]);
    assert_eq!(db.rows("SELECT nextval('s')").await, ["3"]);
    db.execute("ALTER SEQUENCE s INCREMENT 1").await;
    assert_eq!(db.rows("SELECT nextval('s')").await, ["4"]);
    assert_eq!(db.error("CREATE SEQUENCE z INCREMENT 0").await.code, SqlState::INVALID_PARAMETER);
}

#[tokio::test]
async fn views_are_expanded_and_depended_on() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2), (3, 4)").await;
    db.execute("CREATE VIEW v (x) AS SELECT a + b FROM t; CREATE VIEW w AS SELECT x * 10 AS y FROM v").await;
    assert_eq!(db.rows("SELECT y FROM w ORDER BY y").await, ["30", "70"]);
    assert_eq!(db.error("DROP TABLE t").await.code, SqlState::DEPENDENT_OBJECTS);
    db.execute("CREATE OR REPLACE VIEW v (x) AS SELECT a - b FROM t").await;
    assert_eq!(db.rows("SELECT y FROM w ORDER BY y").await, ["-10", "-10"]);
    let error = db.error("CREATE OR REPLACE VIEW v AS SELECT 'a' AS x").await;
    assert_eq!(error.code, SqlState::INVALID_TABLE_DEFINITION);
    db.execute("DROP TABLE t CASCADE").await;
    assert_eq!(db.error("SELECT * FROM w").await.code, SqlState::UNDEFINED_TABLE);
}

#[tokio::test]
async fn a_view_means_what_it_meant_when_it_was_created() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE SCHEMA s; CREATE TABLE s.a (id int, n text); CREATE TABLE b (id int, \"Big One\" int)",
    )
    .await;
    db.execute("INSERT INTO s.a VALUES (1, 'one'); INSERT INTO b VALUES (1, 10)").await;
    db.execute("SET search_path = public, s").await;
    db.execute("CREATE VIEW v AS SELECT * FROM a JOIN b USING (id)").await;
    db.execute(
        "CREATE VIEW w (x, y) AS WITH a AS (SELECT 5 id) SELECT a.id, q.* FROM a, (SELECT n FROM s.a) q",
    )
    .await;
    db.execute("CREATE VIEW u AS SELECT b.*, EXISTS (SELECT * FROM a WHERE a.id = b.id) FROM b").await;
    let definition = |name| format!("SELECT pg_get_viewdef('{name}'::regclass)");
    assert_eq!(
        db.rows(&definition("v")).await,
        [" SELECT id, a.n, b.\"Big One\" FROM s.a JOIN public.b USING (id);"]
    );
    assert_eq!(
        db.rows(&definition("w")).await,
        [
            " SELECT * FROM (WITH a AS (SELECT 5 id) SELECT a.id, q.n FROM a, (SELECT n FROM s.a) q) AS w(x, y);"
        ]
    );
    assert_eq!(
        db.rows(&definition("u")).await,
        [" SELECT b.id, b.\"Big One\", EXISTS (SELECT a.id, a.n FROM s.a WHERE a.id = b.id) FROM public.b;"]
    );
    db.execute("CREATE TABLE public.a (id int, other int)").await;
    db.execute("ALTER TABLE s.a ADD COLUMN more int DEFAULT 3; ALTER TABLE b ADD COLUMN more int").await;
    assert_eq!(db.rows("SELECT * FROM v").await, ["1|one|10"]);
    assert_eq!(db.rows("SELECT * FROM w").await, ["5|one"]);
    assert_eq!(db.rows("SELECT * FROM u").await, ["1|10|t"]);
    // What is shown makes the same view again, wherever names are looked up.
    let shown = db.rows(&definition("u")).await;
    db.execute(&format!("SET search_path = ''; CREATE VIEW public.again AS {}", shown[0])).await;
    assert_eq!(db.rows("SELECT * FROM public.again").await, ["1|10|t"]);
}

#[tokio::test]
async fn a_check_is_shown_alike_however_often_it_is_written_down_and_read() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int CHECK (((a > 1))), CONSTRAINT two CHECK ((a < 5) OR (a > 9)))").await;
    let shown = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' ORDER BY conname";
    assert_eq!(db.rows(shown).await, ["CHECK ((a > 1))", "CHECK (((a < 5) OR (a > 9)))"]);
}

#[tokio::test]
async fn create_table_as_and_select_into_keep_rows() {
    let mut db = Database::open().await;
    let made =
        db.execute("CREATE TABLE t AS SELECT n AS a, n::text AS b FROM generate_series(1, 3) AS n").await;
    assert_eq!(made.tag, "SELECT 3");
    db.execute("SELECT a * 2 AS d INTO u FROM t").await;
    assert_eq!(db.rows("SELECT d FROM u ORDER BY d").await, ["2", "4", "6"]);
    db.execute("CREATE TABLE n AS SELECT * FROM t WITH NO DATA").await;
    assert_eq!(db.rows("SELECT count(*) FROM n").await, ["0"]);
    db.execute("CREATE TABLE l (LIKE t INCLUDING ALL, extra int)").await;
    db.execute("INSERT INTO l VALUES (1, 'x', 2)").await;
    assert_eq!(db.rows("SELECT * FROM l").await, ["1|x|2"]);
}

#[tokio::test]
async fn roles_may_do_what_they_were_granted() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int); CREATE ROLE app LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA public TO app").await;
    let login = db.engine.role_login("app").await.unwrap().unwrap();
    assert!(login.can_login && !login.superuser);
    assert!(login.verifier.unwrap().starts_with("SCRAM-SHA-256$4096:"));
    db.execute("SET ROLE app").await;
    for text in
        ["SELECT * FROM t", "DROP TABLE t", "CREATE TABLE u (a int)", "CREATE ROLE x", "CREATE DATABASE d"]
    {
        assert_eq!(db.error(text).await.code, SqlState::INSUFFICIENT_PRIVILEGE, "{text}");
    }
    db.execute("RESET ROLE; GRANT SELECT, INSERT ON t TO app; SET ROLE app").await;
    db.execute("INSERT INTO t VALUES (1)").await;
    assert_eq!(db.rows("SELECT * FROM t").await, ["1"]);
    assert_eq!(db.error("DELETE FROM t").await.code, SqlState::INSUFFICIENT_PRIVILEGE);
    db.execute("RESET ROLE").await;
    assert_eq!(db.error("DROP ROLE app").await.code, SqlState::DEPENDENT_OBJECTS);
    db.execute("REVOKE ALL ON t FROM app; REVOKE ALL ON SCHEMA public FROM app; DROP ROLE app").await;
}

#[tokio::test]
async fn databases_are_apart() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int)").await;
    db.execute("CREATE DATABASE other").await;
    let params = sql::session::SessionParams {
        user: "dormouse".into(),
        database: "other".into(),
        ..Default::default()
    };
    let mut there = sql::session::Session::open(db.engine.clone(), params).await.unwrap();
    let missing = run(&mut there, "SELECT * FROM t", &[]).await.unwrap_err();
    assert_eq!(missing.code, SqlState::UNDEFINED_TABLE);
    run(&mut there, "CREATE TABLE t (b text); INSERT INTO t VALUES ('there')", &[]).await.unwrap();
    assert_eq!(run(&mut there, "SELECT * FROM t", &[]).await.unwrap().rows, ["there"]);
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["0"]);
    assert_eq!(db.error("DROP DATABASE other").await.code, SqlState::OBJECT_IN_USE);
    there.close().await;
    db.execute("DROP DATABASE other").await;
    assert_eq!(db.error("DROP DATABASE other").await.code, SqlState::INVALID_CATALOG);
}

#[tokio::test]
async fn columns_beside_a_key_change_their_type_and_arrays_are_written_in_words() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (id int PRIMARY KEY, n int, tags text array NOT NULL DEFAULT '{}')").await;
    db.execute("CREATE TABLE u (t int REFERENCES t); INSERT INTO t VALUES (1, 2); INSERT INTO u VALUES (1)")
        .await;
    db.execute("ALTER TABLE t ALTER COLUMN n TYPE text").await;
    assert_eq!(db.rows("SELECT id, n || '!', tags FROM t").await, ["1|2!|{}"]);
    assert_eq!(db.error("INSERT INTO u VALUES (2)").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(db.error("DELETE FROM t").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    let error = db.error("ALTER TABLE t ALTER COLUMN id TYPE bigint").await;
    assert_eq!(error.code, SqlState::FEATURE_NOT_SUPPORTED);
}

#[tokio::test]
async fn conditions_of_left_joins_may_have_subqueries_of_the_left_side() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int); CREATE TABLE u (b int, c int); CREATE TABLE w (d int, e int)").await;
    db.execute("INSERT INTO t VALUES (1), (2), (3); INSERT INTO u VALUES (1, 10), (2, 20); INSERT INTO w VALUES (1, 10), (2, 30)").await;
    let text = "SELECT a, b, c FROM t LEFT JOIN u ON c = (SELECT e FROM w WHERE d = a) AND b = a ORDER BY a";
    assert_eq!(db.rows(text).await, ["1|1|10", "2|NULL|NULL", "3|NULL|NULL"]);
    let text = "SELECT * FROM t LEFT JOIN u ON EXISTS (SELECT FROM w WHERE d = a) AND b < a ORDER BY a, b";
    assert_eq!(db.rows(text).await, ["1|NULL|NULL", "2|1|10", "3|NULL|NULL"]);
    let error = db.error("SELECT a FROM t LEFT JOIN u ON a = (SELECT e FROM w WHERE d = b)").await;
    assert_eq!(error.code, SqlState::FEATURE_NOT_SUPPORTED);
}

#[tokio::test]
async fn sequences_are_owned_by_columns_of_tables_in_any_schema() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE SCHEMA s; CREATE TABLE s.t (a int); CREATE SEQUENCE s.q; ALTER SEQUENCE s.q OWNED BY s.t.a",
    )
    .await;
    db.execute("CREATE SEQUENCE s.r OWNED BY s.t.a").await;
    assert_eq!(db.error("ALTER SEQUENCE s.q OWNED BY t.a").await.code, SqlState::UNDEFINED_TABLE);
    db.execute("DROP TABLE s.t").await;
    assert_eq!(db.rows("SELECT relname FROM pg_class WHERE relkind = 'S'").await, [""; 0]);
}
