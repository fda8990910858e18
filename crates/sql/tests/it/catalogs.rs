//! pg_catalog and information_schema, as clients ask for them.

use crate::database::Database;

async fn with_objects() -> Database {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE p (id serial PRIMARY KEY, name varchar(20) NOT NULL, price numeric(10,2) DEFAULT 1.5);
         CREATE TABLE c (id int PRIMARY KEY, p_id int REFERENCES p ON DELETE CASCADE, CHECK (id > 0));
         CREATE INDEX c_p ON c (p_id DESC); CREATE VIEW v AS SELECT id FROM p; COMMENT ON TABLE p IS 'products'",
    )
    .await;
    db
}

#[tokio::test]
async fn psql_lists_and_describes() {
    let mut db = with_objects().await;
    let list = "SELECT n.nspname, c.relname, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' END, \
                pg_catalog.pg_get_userbyid(c.relowner) \
                FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam \
                WHERE c.relkind IN ('r','p','v','m','S','f','') AND n.nspname <> 'pg_catalog' \
                AND n.nspname !~ '^pg_toast' AND n.nspname <> 'information_schema' \
                AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2";
    assert_eq!(
        db.rows(list).await,
        [
            "public|c|table|dormouse",
            "public|p|table|dormouse",
            "public|p_id_seq|sequence|dormouse",
            "public|v|view|dormouse"
        ]
    );
    let columns = "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
                   (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
                    WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull \
                   FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'p'::regclass AND a.attnum > 0 AND NOT a.attisdropped \
                   ORDER BY a.attnum";
    assert_eq!(
        db.rows(columns).await,
        [
            "id|integer|nextval('p_id_seq'::regclass)|t",
            "name|character varying(20)|NULL|t",
            "price|numeric(10,2)|1.5|f"
        ]
    );
    let indexes = "SELECT c2.relname, i.indisprimary, i.indisunique, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), \
                   pg_catalog.pg_get_constraintdef(con.oid, true) \
                   FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i \
                   LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p','u','x')) \
                   WHERE c.oid = 'c'::regclass AND c.oid = i.indrelid AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname";
    assert_eq!(
        db.rows(indexes).await,
        [
            "c_pkey|t|t|CREATE UNIQUE INDEX c_pkey ON public.c USING btree (id)|PRIMARY KEY (id)",
            "c_p|f|f|CREATE INDEX c_p ON public.c USING btree (p_id DESC)|NULL"
        ]
    );
    let keys = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'c'::regclass AND contype IN ('f', 'c') ORDER BY 1";
    assert_eq!(
        db.rows(keys).await,
        ["c_id_check|CHECK ((id > 0))", "c_p_id_fkey|FOREIGN KEY (p_id) REFERENCES p(id) ON DELETE CASCADE"]
    );
    assert_eq!(db.rows("SELECT obj_description('p'::regclass, 'pg_class')").await, ["products"]);
    assert_eq!(db.rows("SELECT pg_get_serial_sequence('p', 'id')").await, ["public.p_id_seq"]);
    assert_eq!(db.rows("SELECT 'public.p'::regclass::text, 'p'::regclass::oid::int > 16383").await, ["p|t"]);
}

#[tokio::test]
async fn information_schema_describes_tables() {
    let mut db = with_objects().await;
    let columns = "SELECT column_name, data_type, is_nullable, character_maximum_length, numeric_precision \
                   FROM information_schema.columns WHERE table_name = 'p' ORDER BY ordinal_position";
    assert_eq!(
        db.rows(columns).await,
        ["id|integer|NO|NULL|32", "name|character varying|NO|20|NULL", "price|numeric|YES|NULL|10"]
    );
    let tables = "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1";
    assert_eq!(db.rows(tables).await, ["c|BASE TABLE", "p|BASE TABLE", "v|VIEW"]);
    let keys = "SELECT tc.constraint_name, kcu.column_name, ccu.table_name FROM information_schema.table_constraints tc \
                JOIN information_schema.key_column_usage kcu USING (constraint_schema, constraint_name) \
                JOIN information_schema.constraint_column_usage ccu USING (constraint_schema, constraint_name) \
                WHERE tc.constraint_type = 'FOREIGN KEY'";
    assert_eq!(db.rows(keys).await, ["c_p_id_fkey|p_id|p"]);
}

#[tokio::test]
async fn drivers_find_types_roles_and_settings() {
    let mut db = Database::open().await;
    let types = "SELECT t.typname, t.typtype, t.typelem, r.rngsubtype, t.typbasetype, n.nspname, t.typrelid \
                 FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid \
                 INNER JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1007";
    assert_eq!(db.rows(types).await, ["_int4|b|23|NULL|0|pg_catalog|0"]);
    assert_eq!(db.rows("SELECT rolname, rolsuper FROM pg_roles").await, ["dormouse|t"]);
    assert_eq!(db.rows("SELECT datname FROM pg_database").await, ["postgres"]);
    assert_eq!(db.rows("SELECT setting FROM pg_settings WHERE name = 'server_encoding'").await, ["UTF8"]);
    assert_eq!(db.rows("SELECT count(*) > 400 FROM pg_get_keywords()").await, ["t"]);
    assert_eq!(db.rows("SELECT state FROM pg_stat_activity").await, ["active"]);
    for table in ["pg_trigger", "pg_policy", "pg_publication", "pg_inherits", "pg_enum", "pg_statistic_ext"] {
        assert_eq!(db.rows(&format!("SELECT count(*) FROM {table}")).await, ["0"], "{table}");
    }
}

/// Every computed table can be read, and its rows have the columns it says.
#[tokio::test]
async fn every_catalog_table_can_be_read() {
    let mut db = with_objects().await;
    let names = db.rows("SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN ('pg_catalog', 'information_schema') UNION ALL SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema IN ('pg_catalog', 'information_schema')").await;
    assert!(names.len() > 150);
    for name in names {
        db.rows(&format!("SELECT * FROM {name}")).await;
    }
}
