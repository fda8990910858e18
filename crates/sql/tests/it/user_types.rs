//! Enum types and domains.

use crate::database::{self, Database, run};
use sql_types::SqlState;

async fn colors() -> Database {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TYPE color AS ENUM ('red', 'green', 'blue');
         CREATE TABLE t (c color PRIMARY KEY, d color DEFAULT 'green', l color[]);
         INSERT INTO t VALUES ('blue', DEFAULT, '{red,blue}'), ('red', NULL, NULL), ('green', 'red', '{}')",
    )
    .await;
    db
}

#[tokio::test]
async fn values_compare_in_the_declared_order() {
    let mut db = colors().await;
    assert_eq!(
        db.rows("SELECT c, d, l FROM t ORDER BY c").await,
        ["red|NULL|NULL", "green|red|{}", "blue|green|{red,blue}"]
    );
    assert_eq!(db.rows("SELECT c FROM t ORDER BY c DESC").await, ["blue", "green", "red"]);
    assert_eq!(db.rows("SELECT min(c), max(c), count(DISTINCT c) FROM t").await, ["red|blue|3"]);
    assert_eq!(db.rows("SELECT c FROM t WHERE c > 'red' ORDER BY c").await, ["green", "blue"]);
    assert_eq!(db.rows("SELECT c FROM t WHERE c IN ('blue', 'red') ORDER BY 1").await, ["red", "blue"]);
    assert_eq!(
        db.rows("SELECT d, count(*) FROM t GROUP BY d ORDER BY d").await,
        ["red|1", "green|1", "NULL|1"]
    );
    assert_eq!(db.rows("SELECT c::text || '!', c::varchar(2) FROM t WHERE c = 'blue'").await, ["blue!|bl"]);
    assert_eq!(db.rows("SELECT 'red'::text::color < 'blue'").await, ["t"]);
    assert_eq!(db.rows("SELECT l[2], l::text[] FROM t WHERE 'blue' = ANY (l)").await, ["blue|{red,blue}"]);
    assert_eq!(
        db.rows("SELECT array_agg(c ORDER BY c DESC), ARRAY['red'::color] FROM t").await,
        ["{blue,green,red}|{red}"]
    );
    assert_eq!(
        db.rows("SELECT to_json(c), jsonb_build_object('c', c), concat(c, 1) FROM t WHERE c = 'red'").await,
        ["\"red\"|{\"c\": \"red\"}|red1"]
    );
    assert_eq!(
        db.rows("SELECT coalesce(d, 'blue'), CASE WHEN c = 'red' THEN c END FROM t ORDER BY c").await,
        ["blue|red", "red|NULL", "green|NULL"]
    );
    assert_eq!(
        db.rows(
            "SELECT enum_first(NULL::color), enum_last('red'::color), enum_range(NULL::color), \
             enum_range('green', NULL::color), enum_range(NULL, 'green'::color)"
        )
        .await,
        ["red|blue|{red,green,blue}|{green,blue}|{red,green}"]
    );
    assert_eq!(db.rows("SELECT pg_typeof(c), pg_typeof(l) FROM t LIMIT 1").await, ["color|color[]"]);
    assert_eq!(db.rows("SELECT a.c FROM t a JOIN t b ON a.c = b.d ORDER BY 1").await, ["red", "green"]);
}

#[tokio::test]
async fn what_is_no_label_is_refused() {
    let mut db = colors().await;
    let told = |error: sql_types::SqlError| (error.code, error.message);
    let bad = (SqlState::INVALID_TEXT, "invalid input value for enum color: \"pink\"".to_string());
    assert_eq!(told(db.error("INSERT INTO t VALUES ('pink')").await), bad);
    assert_eq!(told(db.error("SELECT * FROM t WHERE c = 'pink'").await), bad);
    assert_eq!(told(db.error("SELECT 'pink'::text::color").await), bad);
    let error = db.error("SELECT c = 1 FROM t").await;
    assert_eq!(
        told(error),
        (SqlState::UNDEFINED_FUNCTION, "operator does not exist: color = integer".into())
    );
    let error = db.error("INSERT INTO t (c) SELECT 'red'::text").await;
    let expected = "column \"c\" is of type color but expression is of type text";
    assert_eq!(told(error), (SqlState::DATATYPE_MISMATCH, expected.into()));
    let error = db.error("INSERT INTO t VALUES ('red')").await;
    assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.extra().unwrap().detail.as_deref(), Some("Key (c)=(red) already exists."));
    db.execute("CREATE TYPE mood AS ENUM ('red')").await;
    let error = db.error("SELECT c = 'red'::mood FROM t").await;
    assert_eq!(told(error), (SqlState::UNDEFINED_FUNCTION, "operator does not exist: color = mood".into()));
    let error = db.error("SELECT 'red'::nothing").await;
    assert_eq!(told(error), (SqlState::UNDEFINED_OBJECT, "type \"nothing\" does not exist".into()));
}

#[tokio::test]
async fn labels_are_added_and_renamed() {
    let mut db = colors().await;
    db.execute(
        "CREATE INDEX ON t (d); CREATE VIEW v AS SELECT c FROM t WHERE c <> 'red' OR d = 'red'::color",
    )
    .await;
    db.execute("ALTER TABLE t ADD CHECK (d <> 'blue')").await;
    db.execute("ALTER TYPE color ADD VALUE 'orange' BEFORE 'green'; ALTER TYPE color ADD VALUE 'violet'")
        .await;
    db.execute(
        "ALTER TYPE color ADD VALUE 'black' BEFORE 'red'; ALTER TYPE color ADD VALUE 'teal' AFTER 'green'",
    )
    .await;
    db.execute(
        "INSERT INTO t VALUES ('violet'), ('teal'), ('black'); INSERT INTO t VALUES ('orange', 'orange')",
    )
    .await;
    let ordered = ["black", "red", "orange", "green", "teal", "blue", "violet"];
    assert_eq!(db.rows("SELECT c FROM t ORDER BY c").await, ordered);
    assert_eq!(db.rows("SELECT unnest(enum_range(NULL::color))").await, ordered);
    assert_eq!(db.rows("SELECT c FROM t WHERE d >= 'orange' AND d < 'green'").await, ["orange"]);
    let error = db.error("ALTER TYPE color ADD VALUE 'red'").await;
    assert_eq!(
        (error.code, &*error.message),
        (SqlState::DUPLICATE_OBJECT, "enum label \"red\" already exists")
    );
    db.execute("ALTER TYPE color ADD VALUE IF NOT EXISTS 'red'").await;
    let error = db.error("ALTER TYPE color ADD VALUE 'x' AFTER 'y'").await;
    assert_eq!(
        (error.code, &*error.message),
        (SqlState::INVALID_PARAMETER, "\"y\" is not an existing enum label")
    );

    db.execute(
        "ALTER TYPE color RENAME VALUE 'red' TO 'crimson'; ALTER TYPE color RENAME VALUE 'green' TO 'it''s'",
    )
    .await;
    db.execute("DELETE FROM t WHERE c = 'blue'").await;
    db.execute("INSERT INTO t (c) VALUES ('blue')").await;
    assert_eq!(
        db.rows("SELECT c, d FROM t WHERE c IN ('crimson', 'blue') ORDER BY c").await,
        ["crimson|NULL", "blue|it's"]
    );
    assert_eq!(db.rows("SELECT count(*) FROM v WHERE c = 'crimson'").await, ["0"]);
    let error = db.error("ALTER TYPE color RENAME VALUE 'red' TO 'x'").await;
    assert_eq!(
        (error.code, &*error.message),
        (SqlState::INVALID_PARAMETER, "\"red\" is not an existing enum label")
    );
}

#[tokio::test]
async fn a_type_gets_another_name_and_schema() {
    let mut db = colors().await;
    db.execute("CREATE VIEW v AS SELECT 'red'::color AS c, CAST('blue' AS color) AS color").await;
    db.execute("CREATE TABLE u (c text DEFAULT ('red'::color)::text, CHECK (c::color <> 'blue'))").await;
    db.execute("CREATE SCHEMA s; ALTER TYPE color RENAME TO paint; ALTER TYPE paint SET SCHEMA s").await;
    assert_eq!(db.rows("SELECT * FROM v").await, ["red|blue"]);
    db.execute("INSERT INTO t (c) SELECT 'red'::s.paint WHERE false; INSERT INTO u DEFAULT VALUES").await;
    assert_eq!(db.error("INSERT INTO u VALUES ('blue')").await.code, SqlState::CHECK_VIOLATION);
    assert_eq!(
        db.rows("SELECT column_default FROM information_schema.columns WHERE table_name = 't' AND column_name = 'd'").await,
        ["'green'::s.paint"]
    );
    assert_eq!(
        db.rows("SELECT pg_get_viewdef('v'::regclass)").await,
        [" SELECT 'red'::s.paint AS c, CAST('blue' AS s.paint) AS color;"]
    );
    assert_eq!(db.rows("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum").await, [
        "s.paint", "s.paint", "s.paint[]"
    ]);
    assert_eq!(db.error("SELECT 'red'::color").await.code, SqlState::UNDEFINED_OBJECT);
    db.execute("SET search_path = s, public").await;
    assert_eq!(
        db.rows("SELECT 'red'::paint, 's.paint[]'::regtype, to_regtype('paint'), to_regtype('color')").await,
        ["red|paint[]|paint|NULL"]
    );
}

#[tokio::test]
async fn a_type_in_use_is_dropped_only_with_what_uses_it() {
    let mut db = colors().await;
    db.execute("CREATE TABLE u (id int PRIMARY KEY, c text DEFAULT ('red'::color)::text)").await;
    let error = db.error("DROP TYPE color").await;
    assert_eq!(
        (error.code, &*error.message),
        (SqlState::DEPENDENT_OBJECTS, "cannot drop type color because other objects depend on it")
    );
    let detail = error.extra().unwrap().detail.clone().unwrap();
    assert!(detail.contains("column c of table t depends on type color"), "{detail}");
    assert!(detail.contains("default value for column c of table u depends on type color"), "{detail}");
    db.execute("BEGIN; DROP TYPE color CASCADE").await;
    assert_eq!(db.error("SELECT c FROM t").await.code, SqlState::UNDEFINED_COLUMN);
    db.execute("ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE c = 'red'").await, ["1"]);
    db.execute("DROP TYPE color CASCADE; INSERT INTO u VALUES (1)").await;
    assert_eq!(db.rows("SELECT * FROM u").await, ["1|NULL"]);
    assert_eq!(db.rows("SELECT count(*) FROM pg_type WHERE typname = 'color'").await, ["0"]);
    assert_eq!(db.error("DROP TYPE color").await.message, "type \"color\" does not exist");
    db.execute("DROP TYPE IF EXISTS color").await;
    db.execute("CREATE SCHEMA s; CREATE TYPE s.a AS ENUM ('x'); CREATE TABLE w (id int, a s.a)").await;
    assert_eq!(db.error("DROP SCHEMA s").await.code, SqlState::DEPENDENT_OBJECTS);
    db.execute("DROP SCHEMA s CASCADE").await;
    assert_eq!(
        db.rows("SELECT column_name FROM information_schema.columns WHERE table_name = 'w'").await,
        ["id"]
    );
}

#[tokio::test]
async fn a_change_of_a_type_is_part_of_its_transaction() {
    let mut db = colors().await;
    db.execute(
        "BEGIN; CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE m (v mood); INSERT INTO m VALUES ('ok')",
    )
    .await;
    assert_eq!(db.rows("SELECT v FROM m").await, ["ok"]);
    db.execute("ALTER TYPE color ADD VALUE 'new'; INSERT INTO t VALUES ('new')").await;
    assert_eq!(db.rows("SELECT max(c) FROM t").await, ["new"]);
    let mut other = database::session(&db.engine).await;
    let error = run(&mut other, "SELECT 'new'::color", &[]).await.unwrap_err();
    assert_eq!(error.code, SqlState::INVALID_TEXT);
    db.execute("ROLLBACK").await;
    assert_eq!(db.error("SELECT 'new'::color").await.code, SqlState::INVALID_TEXT);
    assert_eq!(db.error("SELECT NULL::mood").await.code, SqlState::UNDEFINED_OBJECT);
    // A plan that was kept knows nothing of a later label: it must be made anew.
    let query = "SELECT count(*) FROM t WHERE c = 'extra'";
    for _ in 0..3 {
        assert_eq!(run(&mut other, query, &[]).await.unwrap_err().code, SqlState::INVALID_TEXT);
    }
    db.execute("ALTER TYPE color ADD VALUE 'extra'; INSERT INTO t VALUES ('extra')").await;
    assert_eq!(run(&mut other, query, &[]).await.unwrap().rows, ["1"]);
}

#[tokio::test]
async fn rows_are_changed_copied_and_altered() {
    let mut db = colors().await;
    db.execute(
        "ALTER TABLE t ADD COLUMN e color NOT NULL DEFAULT 'blue', ADD COLUMN f color[] DEFAULT '{red}'",
    )
    .await;
    assert_eq!(db.rows("SELECT e, f FROM t WHERE c = 'red'").await, ["blue|{red}"]);
    db.execute(
        "UPDATE t SET e = 'red', d = c WHERE c = 'green'; ALTER TYPE color RENAME VALUE 'blue' TO 'navy'",
    )
    .await;
    assert_eq!(db.rows("SELECT c, e FROM t ORDER BY c").await, ["red|navy", "green|red", "navy|navy"]);
    let copied = db.copy("COPY t (c, d) FROM STDIN", b"", 7).await.unwrap();
    assert_eq!(copied, "COPY 0");
    db.execute("DELETE FROM t WHERE c <> 'red'").await;
    db.copy("COPY t (c, d, l) FROM STDIN", b"green\t\\N\t{red,green}\nnavy\tred\t\\N\n", 7).await.unwrap();
    let error = db.copy("COPY t (c) FROM STDIN", b"pink\n", 7).await.unwrap_err();
    assert_eq!(error.message, "invalid input value for enum color: \"pink\"");
    let out = db.execute("COPY (SELECT c, l FROM t ORDER BY c) TO STDOUT").await.copied;
    assert_eq!(String::from_utf8(out).unwrap(), "red\t\\N\ngreen\t{red,green}\nnavy\t\\N\n");
    let binary = db.execute("COPY (SELECT c FROM t ORDER BY c) TO STDOUT (FORMAT binary)").await.copied;
    db.execute("CREATE TABLE b (c color)").await;
    db.copy("COPY b FROM STDIN (FORMAT binary)", &binary, 5).await.unwrap();
    assert_eq!(db.rows("SELECT * FROM b").await, ["red", "green", "navy"]);
    db.execute("ALTER TABLE b ALTER c TYPE text; UPDATE b SET c = 'green'; ALTER TABLE b ALTER c TYPE color USING c::color").await;
    assert_eq!(db.rows("SELECT DISTINCT c FROM b").await, ["green"]);
    db.execute(
        "CREATE TABLE child (c color REFERENCES t ON UPDATE CASCADE); INSERT INTO child VALUES ('navy')",
    )
    .await;
    assert_eq!(
        db.error("INSERT INTO child VALUES (NULL), ('red'), (enum_last(NULL::color)); DELETE FROM t")
            .await
            .code,
        SqlState::FOREIGN_KEY_VIOLATION
    );
    db.execute("INSERT INTO t (c) VALUES ('red') ON CONFLICT (c) DO UPDATE SET d = excluded.c").await;
    assert_eq!(db.rows("SELECT d FROM t WHERE c = 'red'").await, ["red"]);
}

#[tokio::test]
async fn clients_find_types_in_the_catalogs() {
    let mut db = colors().await;
    db.execute(
        "CREATE DOMAIN positive AS int DEFAULT 7 NOT NULL CHECK (VALUE > 0); CREATE TABLE u (p positive)",
    )
    .await;
    db.execute("COMMENT ON TYPE color IS 'paint'").await;
    // SQLAlchemy's get_enums.
    let enums = "SELECT t.typname, pg_type_is_visible(t.oid), n.nspname, l.labels \
        FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
        LEFT JOIN (SELECT e.enumtypid, array_agg(CAST(e.enumlabel AS text) ORDER BY e.enumsortorder) AS labels \
            FROM pg_catalog.pg_enum e GROUP BY e.enumtypid) l ON t.oid = l.enumtypid \
        WHERE t.typtype = 'e' ORDER BY n.nspname, t.typname";
    assert_eq!(db.rows(enums).await, ["color|t|public|{red,green,blue}"]);
    // psycopg's and sqlx's questions.
    let one = "SELECT t.typname, t.oid = 'color'::regtype, a.typname, a.typelem = t.oid, t.typcategory, a.typcategory, \
        t.typinput FROM pg_type t JOIN pg_type a ON a.oid = t.typarray WHERE t.oid = to_regtype('color')";
    assert_eq!(db.rows(one).await, ["color|t|_color|t|E|A|enum_in"]);
    let columns = "SELECT column_name, data_type, udt_schema, udt_name, domain_name, column_default \
        FROM information_schema.columns WHERE table_name IN ('t', 'u') ORDER BY 1";
    assert_eq!(
        db.rows(columns).await,
        [
            "c|USER-DEFINED|public|color|NULL|NULL",
            "d|USER-DEFINED|public|color|NULL|'green'::color",
            "l|ARRAY|public|_color|NULL|NULL",
            "p|integer|pg_catalog|int4|positive|NULL",
        ]
    );
    let domains = "SELECT domain_name, data_type, domain_default FROM information_schema.domains";
    assert_eq!(db.rows(domains).await, ["positive|integer|7"]);
    let attributes = "SELECT attname, atttypid::regtype, format_type(atttypid, atttypmod) FROM pg_attribute \
        WHERE attrelid IN ('t'::regclass, 'u'::regclass) AND attnum > 0 ORDER BY 1";
    assert_eq!(
        db.rows(attributes).await,
        ["c|color|color", "d|color|color", "l|color[]|color[]", "p|positive|positive"]
    );
    let checks =
        "SELECT conname, pg_get_constraintdef(oid), contypid::regtype FROM pg_constraint WHERE contypid <> 0";
    assert_eq!(db.rows(checks).await, ["positive_check|CHECK ((VALUE > 0))|positive"]);
    assert_eq!(db.rows("SELECT obj_description('color'::regtype, 'pg_type')").await, ["paint"]);
    // psql's \dT
    let list = "SELECT n.nspname, pg_catalog.format_type(t.oid, NULL), pg_catalog.obj_description(t.oid, 'pg_type') \
        FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
        WHERE (t.typrelid = 0 OR (SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid)) \
          AND NOT EXISTS(SELECT 1 FROM pg_catalog.pg_type el WHERE el.oid = t.typelem AND el.typarray = t.oid) \
          AND n.nspname <> 'pg_catalog' AND n.nspname <> 'information_schema' \
          AND pg_catalog.pg_type_is_visible(t.oid) ORDER BY 1, 2";
    assert_eq!(db.rows(list).await, ["public|color|paint", "public|positive|NULL"]);
}

#[tokio::test]
async fn domains_are_enforced() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0);
         CREATE DOMAIN small AS positive CONSTRAINT tiny CHECK (VALUE < 10) DEFAULT 5;
         CREATE DOMAIN name AS varchar(5) NOT NULL;
         CREATE TABLE t (id int PRIMARY KEY, p positive, s small, n public.name DEFAULT 'x');
         INSERT INTO t (id, p) VALUES (1, 3), (2, NULL)",
    )
    .await;
    assert_eq!(db.rows("SELECT * FROM t ORDER BY id").await, ["1|3|5|x", "2|NULL|5|x"]);
    let told = |error: sql_types::SqlError| (error.code, error.message);
    let negative = "value for domain positive violates check constraint \"positive_check\"";
    for change in [
        "INSERT INTO t (id, p) VALUES (3, -1)",
        "UPDATE t SET p = p - 5",
        "INSERT INTO t (id, s) VALUES (3, 0)",
        "SELECT (-1)::positive",
        "SELECT CAST(id - 1 AS small) FROM t",
        "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET p = -1",
    ] {
        let expected = (SqlState::CHECK_VIOLATION, negative.to_string());
        let found = told(db.error(change).await);
        let small = found.1.replace("domain small", "domain positive");
        assert_eq!((found.0, small), expected, "{change}");
    }
    let error = told(db.error("INSERT INTO t (id, s) VALUES (3, 10)").await);
    assert_eq!(
        error,
        (SqlState::CHECK_VIOLATION, "value for domain small violates check constraint \"tiny\"".into())
    );
    let error = told(db.error("INSERT INTO t (id, n) VALUES (3, NULL)").await);
    assert_eq!(error, (SqlState::NOT_NULL_VIOLATION, "domain public.name does not allow null values".into()));
    assert_eq!(
        db.error("INSERT INTO t (id, n) VALUES (3, 'too long')").await.code,
        SqlState::STRING_TRUNCATION
    );
    assert_eq!(
        db.copy("COPY t (id, p) FROM STDIN", b"3\t-1\n", 3).await.unwrap_err().code,
        SqlState::CHECK_VIOLATION
    );
    assert_eq!(db.rows("SELECT '7'::small + 1, NULL::positive").await, ["8|NULL"]);

    let error = told(db.error("ALTER DOMAIN positive ADD CONSTRAINT big CHECK (VALUE > 5)").await);
    assert_eq!(error.0, SqlState::CHECK_VIOLATION);
    db.execute("ALTER DOMAIN positive DROP CONSTRAINT positive_check; INSERT INTO t (id, p) VALUES (4, -4)")
        .await;
    assert_eq!(db.error("ALTER DOMAIN positive SET NOT NULL").await.code, SqlState::NOT_NULL_VIOLATION);
    assert_eq!(db.error("DROP DOMAIN positive").await.code, SqlState::DEPENDENT_OBJECTS);
    db.execute("DROP DOMAIN positive CASCADE").await;
    assert_eq!(
        db.rows("SELECT column_name FROM information_schema.columns WHERE table_name = 't' ORDER BY 1").await,
        ["id", "n"]
    );
}

#[tokio::test]
async fn conditions_of_indexes_follow_renamed_labels() {
    let mut db = colors().await;
    db.execute(
        "CREATE TABLE u (id int, c color); CREATE UNIQUE INDEX p ON u (id) WHERE c = 'red';
         CREATE INDEX q ON u ((CASE WHEN id > 1 THEN 'blue'::color END));
         INSERT INTO u VALUES (1, 'red'), (1, 'green'), (2, 'green')",
    )
    .await;
    let shown = "SELECT indexdef FROM pg_indexes WHERE indexname = 'p'";
    let expected = "CREATE UNIQUE INDEX p ON public.u USING btree (id) WHERE (c = 'red'::color)";
    assert_eq!(db.rows(shown).await, [expected]);
    assert_eq!(db.error("INSERT INTO u VALUES (1, 'red')").await.code, SqlState::UNIQUE_VIOLATION);
    db.execute("ALTER TYPE color RENAME VALUE 'red' TO 'crimson'; ALTER TYPE color RENAME TO hue").await;
    db.execute("ALTER TYPE hue ADD VALUE 'black' BEFORE 'crimson'").await;
    let expected = "CREATE UNIQUE INDEX p ON public.u USING btree (id) WHERE (c = 'crimson'::hue)";
    assert_eq!(db.rows(shown).await, [expected]);
    assert_eq!(db.error("INSERT INTO u VALUES (1, 'crimson')").await.code, SqlState::UNIQUE_VIOLATION);
    let text = "INSERT INTO u VALUES (1, 'crimson') ON CONFLICT (id) WHERE c = 'crimson' DO NOTHING";
    assert_eq!(db.execute(text).await.tag, "INSERT 0 0");
    assert_eq!(db.execute("INSERT INTO u VALUES (1, 'black')").await.tag, "INSERT 0 1");
    // Labels can be renamed, so what they are as text is not immutable.
    let error = db.error("CREATE INDEX ON u ((c::text))").await;
    assert_eq!(error.code, SqlState::INVALID_OBJECT_DEFINITION);
    assert_eq!(db.error("DROP TYPE hue").await.code, SqlState::DEPENDENT_OBJECTS);
    db.execute("DROP TYPE hue CASCADE").await;
    assert_eq!(db.rows("SELECT indexname FROM pg_indexes WHERE tablename = 'u'").await, [""; 0]);
}
