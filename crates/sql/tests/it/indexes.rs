//! Partial and expression indexes: what they hold, when they are read, what they refuse.

use crate::database::Database;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sql_types::SqlState;

/// The index a query reads, by its plan.
async fn index_of(db: &mut Database, query: &str) -> String {
    let plan = db.rows(&format!("EXPLAIN (COSTS OFF) {query}")).await;
    let line = plan.iter().find(|line| line.contains("Scan")).expect("a scan").clone();
    match line.split_once(" using ") {
        Some((_, rest)) => rest.split(' ').next().unwrap_or_default().to_string(),
        None => "-".to_string(),
    }
}

#[tokio::test]
async fn indexes_are_read_where_they_have_what_is_asked_for() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text, v varchar(20), a int, b int, live bool, at timestamptz);
         INSERT INTO t SELECT n, 'Name' || n, 'V' || n, n % 50, n % 7, n % 3 = 0, NULL FROM generate_series(1, 300) n;
         CREATE INDEX t_lower ON t (lower(name)); CREATE INDEX t_v ON t (upper(v) DESC);
         CREATE INDEX t_sum ON t ((a + b), id); CREATE INDEX t_a ON t (a) WHERE b > 3;
         CREATE INDEX t_null ON t (b) WHERE at IS NOT NULL; CREATE INDEX t_live ON t (name) WHERE live",
    )
    .await;
    for (query, index, rows) in [
        ("SELECT id FROM t WHERE lower(name) = 'name7'", "t_lower", 1),
        ("SELECT id FROM t WHERE 'name7' = lower(name) AND a > 0", "t_lower", 1),
        ("SELECT id FROM t WHERE lower(name) IN ('name7', 'name8')", "t_lower", 2),
        ("SELECT id FROM t WHERE lower(name) LIKE 'name29%'", "t_lower", 11),
        ("SELECT id FROM t WHERE lower(name) >= 'name9' AND lower(name) < 'name91'", "t_lower", 2),
        ("SELECT id FROM t WHERE upper(v) = 'V7'", "t_v", 1),
        ("SELECT id FROM t WHERE upper(name) = 'NAME7'", "-", 1),
        ("SELECT id FROM t WHERE a + b = 3 ORDER BY id LIMIT 2", "t_sum", 2),
        ("SELECT id FROM t WHERE b + a = 3", "-", 3),
        ("SELECT id FROM t WHERE a = 3 AND b > 3", "t_a", 3),
        ("SELECT id FROM t WHERE a = 3 AND b >= 4", "t_a", 3),
        ("SELECT id FROM t WHERE a = 3 AND b = 5", "t_a", 1),
        ("SELECT id FROM t WHERE a = 3 AND b IN (5, 6)", "t_a", 2),
        ("SELECT id FROM t WHERE a = 3 AND b > 2", "-", 4),
        ("SELECT id FROM t WHERE a = 3", "-", 6),
        ("SELECT id FROM t WHERE b = 3 AND at > '2020-01-01'", "t_null", 0),
        ("SELECT id FROM t WHERE name = 'Name9' AND live", "t_live", 1),
        ("SELECT id FROM t WHERE name = 'Name9' AND live = true", "t_live", 1),
        ("SELECT id FROM t WHERE name = 'Name9' AND NOT live", "-", 0),
    ] {
        assert_eq!(db.rows(query).await.len(), rows, "{query}");
        // A predicate counts for nothing where the planner may think reading all is cheaper.
        assert_eq!(index_of(&mut db, query).await, index, "{query}");
    }
    assert_eq!(index_of(&mut db, "SELECT name FROM t ORDER BY lower(name) LIMIT 3").await, "t_lower");
    assert_eq!(
        db.rows("SELECT name FROM t ORDER BY lower(name) LIMIT 3").await,
        ["Name1", "Name10", "Name100"]
    );
    assert_eq!(db.rows("SELECT v FROM t ORDER BY upper(v) DESC LIMIT 2").await, ["V99", "V98"]);
    assert_eq!(
        db.rows("SELECT l.id FROM t l JOIN t r ON lower(r.name) = lower(l.name) WHERE l.id = 7").await,
        ["7"]
    );
}

#[tokio::test]
async fn unique_indexes_refuse_what_they_hold() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE u (id int PRIMARY KEY, mail text, gone bool NOT NULL DEFAULT false, n int);
         CREATE UNIQUE INDEX u_mail ON u (lower(mail)) WHERE NOT gone;
         INSERT INTO u VALUES (1, 'A@x', false, 1), (2, 'a@X', true, 2), (3, NULL, false, 3), (4, NULL, false, 4)",
    )
    .await;
    let error = db.error("INSERT INTO u VALUES (5, 'a@x', false, 5)").await;
    assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
    assert_eq!(
        error.extra().and_then(|extra| extra.detail.clone()).as_deref(),
        Some("Key (lower(mail))=(a@x) already exists.")
    );
    assert_eq!(db.error("UPDATE u SET gone = false WHERE id = 2").await.code, SqlState::UNIQUE_VIOLATION);
    db.execute("UPDATE u SET gone = NOT gone WHERE id < 3").await;
    db.execute("INSERT INTO u VALUES (5, 'B@x', false, 5)").await;
    for (text, rows) in [
        (
            "INSERT INTO u VALUES (6, 'A@X', false, 9) ON CONFLICT (lower(mail)) WHERE NOT gone DO UPDATE SET n = excluded.n RETURNING id, n",
            "2|9",
        ),
        (
            "INSERT INTO u VALUES (7, 'b@x', false, 8) ON CONFLICT (LOWER(mail)) WHERE NOT gone AND n > 0 DO UPDATE SET mail = 'it''s' || u.mail RETURNING mail",
            "it'sB@x",
        ),
        (
            "INSERT INTO u VALUES (8, 'b@x', true, 8) ON CONFLICT (lower(mail)) WHERE (gone = false) DO NOTHING RETURNING id",
            "8",
        ),
        ("INSERT INTO u VALUES (9, 'it''SB@X', false, 8) ON CONFLICT DO NOTHING RETURNING id", ""),
    ] {
        assert_eq!(db.rows(text).await.join(" "), rows, "{text}");
    }
    for (text, code) in [
        (
            "INSERT INTO u VALUES (6, 'x') ON CONFLICT (lower(mail)) DO NOTHING",
            SqlState::INVALID_COLUMN_REFERENCE,
        ),
        ("INSERT INTO u VALUES (6, 'x') ON CONFLICT (mail) DO NOTHING", SqlState::INVALID_COLUMN_REFERENCE),
        (
            "INSERT INTO u VALUES (6, 'x') ON CONFLICT (lower(mail)) WHERE gone DO NOTHING",
            SqlState::INVALID_COLUMN_REFERENCE,
        ),
        (
            "INSERT INTO u VALUES (6, 'x') ON CONFLICT ON CONSTRAINT u_mail DO NOTHING",
            SqlState::UNDEFINED_OBJECT,
        ),
        ("CREATE UNIQUE INDEX ON u ((n % 4))", SqlState::UNIQUE_VIOLATION),
        ("CREATE INDEX ON u (lower(mail || now()))", SqlState::INVALID_OBJECT_DEFINITION),
        ("CREATE INDEX ON u (id) WHERE now() > '2020-01-01'", SqlState::INVALID_OBJECT_DEFINITION),
        ("CREATE INDEX ON u (random())", SqlState::INVALID_OBJECT_DEFINITION),
        ("CREATE INDEX ON u (lower(nope))", SqlState::UNDEFINED_COLUMN),
        ("CREATE INDEX ON u (nope)", SqlState::UNDEFINED_COLUMN),
        ("CREATE INDEX ON u (id) WHERE mail", SqlState::DATATYPE_MISMATCH),
        ("CREATE INDEX ON u (count(id))", SqlState::GROUPING_ERROR),
        ("ALTER TABLE u ADD UNIQUE USING INDEX u_mail", SqlState::WRONG_OBJECT_TYPE),
        ("CREATE TABLE r (m text REFERENCES u (mail))", SqlState::INVALID_FOREIGN_KEY),
        ("INSERT INTO u VALUES (50, 'x', false, 2147483647)", SqlState::OUT_OF_RANGE),
    ] {
        if text.contains("2147483647") {
            db.execute("CREATE INDEX u_n ON u ((n + 1))").await;
        }
        assert_eq!(db.error(text).await.code, code, "{text}");
    }
}

#[tokio::test]
async fn definitions_are_shown_as_postgresql_shows_them() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text, v varchar(9), a int, \"B\" int, at timestamptz);
         CREATE INDEX i1 ON t (lower(name), a DESC) INCLUDE (\"B\") WHERE a > 3 AND at IS NOT NULL;
         CREATE UNIQUE INDEX i2 ON t ((a + \"B\") DESC, coalesce(v, 'x')); CREATE INDEX ON t (lower(v), (a * 2), (a * 3));
         CREATE INDEX IF NOT EXISTS i3 ON t USING btree (name) WHERE name = 'x' OR a IN (1, 2);
         SET TIME ZONE 'Europe/Berlin'; CREATE INDEX i4 ON t (id) WHERE at > '2024-01-01'; RESET TIME ZONE",
    )
    .await;
    assert_eq!(
        db.rows("SELECT indexdef FROM pg_indexes WHERE tablename = 't' ORDER BY indexname").await,
        [
            "CREATE INDEX i1 ON public.t USING btree (lower(name), a DESC) INCLUDE (\"B\") WHERE ((a > 3) AND (at IS NOT NULL))",
            "CREATE UNIQUE INDEX i2 ON public.t USING btree (((a + \"B\")) DESC, COALESCE(v, 'x'::character varying))",
            "CREATE INDEX i3 ON public.t USING btree (name) WHERE ((name = 'x'::text) OR (a IN (1, 2)))",
            "CREATE INDEX i4 ON public.t USING btree (id) WHERE (at > '2023-12-31 23:00:00+00'::timestamp with time zone)",
            "CREATE INDEX t_lower_expr_expr1_idx ON public.t USING btree (lower((v)::text), ((a * 2)), ((a * 3)))",
            "CREATE UNIQUE INDEX t_pkey ON public.t USING btree (id)",
        ]
    );
    assert_eq!(
        db.rows(
            "SELECT indnatts, indnkeyatts, indkey, indexprs, pg_get_expr(indpred, indrelid), pg_get_indexdef(indexrelid, 1, true),
                    pg_get_indexdef(indexrelid, 3, true)
             FROM pg_index WHERE indexrelid = 'i1'::regclass"
        )
        .await,
        ["3|2|0 4 5|lower(name)|((a > 3) AND (at IS NOT NULL))|lower(name)|\"B\""]
    );
    let plain_and_pretty =
        "SELECT pg_get_indexdef(oid, 1, false), pg_get_indexdef(oid, 1, true) FROM pg_class
        WHERE relname = 't_lower_expr_expr1_idx'";
    assert_eq!(db.rows(plain_and_pretty).await, ["lower((v)::text)|lower(v::text)"]);
    assert_eq!(
        db.rows("SELECT attname FROM pg_attribute WHERE attrelid = 'i1'::regclass ORDER BY attnum").await,
        ["lower", "a", "B"]
    );
    // Schema changes take the indexes along.
    db.execute("ALTER TABLE t RENAME COLUMN a TO \"A b\"; ALTER TABLE t ALTER COLUMN v TYPE text; CREATE TABLE l (LIKE t INCLUDING ALL)")
        .await;
    let shown = "SELECT indexdef FROM pg_indexes WHERE indexname IN ('i1', 'i2', 'l_lower_A b_B_idx') ORDER BY indexname";
    assert_eq!(
        db.rows(shown).await,
        [
            "CREATE INDEX i1 ON public.t USING btree (lower(name), \"A b\" DESC) INCLUDE (\"B\") WHERE ((\"A b\" > 3) AND (at IS NOT NULL))",
            "CREATE UNIQUE INDEX i2 ON public.t USING btree (((\"A b\" + \"B\")) DESC, COALESCE(v, 'x'::text))",
            "CREATE INDEX \"l_lower_A b_B_idx\" ON public.l USING btree (lower(name), \"A b\" DESC) INCLUDE (\"B\") WHERE ((\"A b\" > 3) AND (at IS NOT NULL))",
        ]
    );
    db.execute("ALTER TABLE t DROP COLUMN at").await;
    assert_eq!(
        db.rows("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1").await,
        ["i2", "i3", "t_lower_expr_expr1_idx", "t_pkey"]
    );
}

/// After random changes a query by an index finds what a query without it finds.
#[tokio::test]
async fn indexes_hold_what_the_table_holds_after_random_changes() {
    for seed in 0..4u64 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut db = Database::open().await;
        db.execute("CREATE TABLE t (id int PRIMARY KEY, a int, s text); CREATE TABLE p (a int PRIMARY KEY)")
            .await;
        db.execute("INSERT INTO p SELECT generate_series(0, 9)").await;
        db.execute("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p ON DELETE SET NULL ON UPDATE CASCADE")
            .await;
        let create = "CREATE INDEX t_part ON t (a) WHERE a > 4; CREATE INDEX t_expr ON t (lower(s), (a + 1));
                      CREATE UNIQUE INDEX t_both ON t ((id * 2)) WHERE s <> 'x'";
        if seed % 2 == 0 {
            db.execute(create).await;
        }
        for step in 0..60 {
            let (id, a) = (random.random_range(0..20), random.random_range(0..10));
            let s = ["x", "Y", "y", "Zz"][random.random_range(0..4)];
            let text = match random.random_range(0..8) {
                0..=2 => format!(
                    "INSERT INTO t VALUES ({id}, {a}, '{s}') ON CONFLICT (id) DO UPDATE SET s = excluded.s"
                ),
                3 => format!(
                    "INSERT INTO t VALUES ({id}, NULL, '{s}') ON CONFLICT (((id * 2))) WHERE s <> 'x' DO UPDATE SET a = {a}"
                ),
                4 => format!("UPDATE t SET a = {a} WHERE id % 3 = {}", id % 3),
                5 => format!("UPDATE t SET s = '{s}', id = id + 20 WHERE id = {id}"),
                6 => format!("DELETE FROM t WHERE a > 4 AND a < {a}"),
                _ => format!(
                    "UPDATE p SET a = {a} + 100 WHERE a = {a}; UPDATE p SET a = {a} WHERE a = {a} + 100"
                ),
            };
            // Violations are as good as anything else.
            let _ = db.run(&text).await;
            if seed % 2 == 1 && step == 30 {
                db.execute(create).await;
            }
            if step % 10 != 9 || (seed % 2 == 1 && step < 30) {
                continue;
            }
            for (by_index, index, by_scan) in [
                ("SELECT id FROM t WHERE a > 4 AND a = 7", "t_part", "SELECT id FROM t WHERE a + 0 = 7"),
                (
                    "SELECT id FROM t WHERE lower(s) = 'y'",
                    "t_expr",
                    "SELECT id FROM t WHERE s || '' IN ('y', 'Y')",
                ),
                (
                    "SELECT id FROM t WHERE lower(s) = 'y' AND a + 1 = 8",
                    "t_expr",
                    "SELECT id FROM t WHERE s || '' IN ('y', 'Y') AND a = 7",
                ),
                (
                    "SELECT id FROM t WHERE id * 2 = 12 AND s <> 'x'",
                    "t_both",
                    "SELECT id FROM t WHERE id + 0 = 6 AND s || '' <> 'x'",
                ),
                (
                    "SELECT id FROM t WHERE id * 2 > 0 AND s <> 'x'",
                    "",
                    "SELECT id FROM t WHERE id > 0 AND s || '' <> 'x'",
                ),
            ] {
                if !index.is_empty() {
                    assert_eq!(index_of(&mut db, by_index).await, index, "{by_index}");
                }
                let mut found = db.rows(by_index).await;
                let mut expected = db.rows(by_scan).await;
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "seed {seed}, step {step}: {by_index}");
            }
        }
    }
}
