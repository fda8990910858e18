//! Inverted indexes: when they are read, that they find what is there, and that they are kept up to date.

use crate::database::{Database, run, session};
use kv_client::{ScanOptions, TxnOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sql::table::codec::storage_span;
use sql_types::SqlState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a query's plan says of the scan.
async fn plan_of(db: &mut Database, query: &str) -> String {
    db.rows(&format!("EXPLAIN (COSTS OFF) {query}")).await.join("\n")
}

#[tokio::test]
async fn indexes_are_read_where_they_help() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, j jsonb, p jsonb, n int[], s varchar(9)[], live bool);
         CREATE INDEX t_j ON t USING gin (j); CREATE INDEX t_p ON t USING gin (p jsonb_path_ops);
         CREATE INDEX t_n ON t USING gin (n) WHERE live; CREATE INDEX t_s ON t USING gin (s array_ops);
         CREATE INDEX t_tags ON t USING gin ((p -> 'tags'))",
    )
    .await;
    for (condition, index, shown) in [
        ("j @> '{\"a\": 1}'", "t_j", "Index Cond: (j @> '{\"a\": 1}'::jsonb)"),
        ("'{\"a\": 1}' <@ j", "t_j", "Index Cond: (j @> '{\"a\": 1}'::jsonb)"),
        ("j ? 'a'", "t_j", "Index Cond: (j ? 'a'::text)"),
        ("j ?| '{a,b}'", "t_j", "Index Cond: (j ?| "),
        ("j ?& '{a,b}' AND id > 3", "t_j", "Index Cond: (j ?& "),
        ("p @> '{\"a\": 1}' AND p @> '[2]'", "t_p", "Index Cond: ((p @> "),
        ("p ? 'a'", "", "Filter: "),
        ("j <@ '{\"a\": 1}'", "", "Filter: "),
        ("j @> '{}'", "", "Filter: "),
        ("j @? '$.a'", "", "Filter: "),
        ("j @> p", "", "Filter: "),
        ("p -> 'tags' ? 'x'", "t_tags", "Index Cond: "),
        ("n @> '{1}' AND live", "t_n", "Index Cond: (n @> "),
        ("n && '{1,2}' AND live", "t_n", "Index Cond: (n && "),
        ("4 = ANY (n) AND live", "t_n", "Index Cond: (4 = ANY (n))"),
        ("n @> '{1}'", "", "Filter: "),
        ("s @> '{x}'", "t_s", "Index Cond: "),
        ("s = '{x}'", "t_s", "Index Cond: "),
        ("'x' = ANY (s)", "t_s", "Index Cond: "),
    ] {
        let plan = plan_of(&mut db, &format!("SELECT id FROM t WHERE {condition}")).await;
        let scan = if index.is_empty() { "Seq Scan on t".to_string() } else { format!("using {index} on t") };
        assert!(plan.contains(&scan) && plan.contains(shown), "{condition}: {plan}");
        // Rows are looked at in any case.
        assert!(plan.contains("Filter: "), "{condition}: {plan}");
    }
    let plan = plan_of(&mut db, "SELECT count(*) FROM t").await;
    assert!(plan.contains("Seq Scan"), "{plan}");
    let plan = plan_of(&mut db, "SELECT * FROM t a JOIN t b ON b.j @> a.p WHERE a.id = 1").await;
    assert!(plan.contains("using t_j on t"), "{plan}");
}

#[tokio::test]
async fn what_is_no_inverted_index_is_refused() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (id int PRIMARY KEY, j jsonb, x json, n int[], jj jsonb[])").await;
    for (text, code, message) in [
        ("UNIQUE INDEX ON t USING gin (j)", "0A000", "access method \"gin\" does not support unique indexes"),
        ("INDEX ON t USING gin (j DESC)", "0A000", "access method \"gin\" does not support ASC/DESC options"),
        (
            "INDEX ON t USING gin (j NULLS FIRST)",
            "0A000",
            "access method \"gin\" does not support NULLS FIRST/LAST options",
        ),
        (
            "INDEX ON t USING gin (j) INCLUDE (id)",
            "0A000",
            "access method \"gin\" does not support included columns",
        ),
        (
            "INDEX ON t USING gin (id)",
            "42704",
            "data type integer has no default operator class for access method \"gin\"",
        ),
        (
            "INDEX ON t USING gin (x)",
            "42704",
            "data type json has no default operator class for access method \"gin\"",
        ),
        (
            "INDEX ON t USING gin (j nonsense_ops)",
            "42704",
            "operator class \"nonsense_ops\" does not exist for access method \"gin\"",
        ),
        (
            "INDEX ON t USING gin (n jsonb_path_ops)",
            "42804",
            "operator class \"jsonb_path_ops\" does not accept data type integer[]",
        ),
        ("INDEX ON t USING nonsense (j)", "42704", "access method \"nonsense\" does not exist"),
        ("INDEX ON t USING gin (j, n)", "0A000", "a gin index over several columns is not supported"),
        ("INDEX ON t USING gin (jj)", "0A000", "an index over arrays of type jsonb is not supported"),
        ("INDEX ON t USING gist (j)", "0A000", "index method \"gist\" is not supported"),
        ("INDEX ON t USING gin (nope)", "42703", "column \"nope\" does not exist"),
    ] {
        let error = db.error(&format!("CREATE {text}")).await;
        assert_eq!((error.code.as_str(), error.message.as_str()), (code, message), "{text}");
    }
    db.execute("CREATE INDEX i ON t USING gin (j)").await;
    let error = db.error("ALTER TABLE t ALTER j TYPE text").await;
    assert_eq!(error.code, SqlState::UNDEFINED_OBJECT, "{error:?}");
    assert_eq!(db.error("ALTER TABLE t ADD UNIQUE USING INDEX i").await.code, SqlState::WRONG_OBJECT_TYPE);
}

#[tokio::test]
async fn definitions_are_shown_and_follow_the_table() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, j jsonb, n int[]);
         CREATE INDEX IF NOT EXISTS i1 ON t USING gin (j) WITH (fastupdate = off);
         CREATE INDEX i2 ON t USING gin (j pg_catalog.jsonb_path_ops) WHERE id > 3;
         CREATE INDEX ON t USING gin ((j -> 'tags')); CREATE INDEX ON t USING gin (n)",
    )
    .await;
    let shown = "SELECT indexdef FROM pg_indexes WHERE tablename = 't' ORDER BY indexname";
    assert_eq!(
        db.rows(shown).await,
        [
            "CREATE INDEX i1 ON public.t USING gin (j)",
            "CREATE INDEX i2 ON public.t USING gin (j jsonb_path_ops) WHERE (id > 3)",
            "CREATE INDEX t_expr_idx ON public.t USING gin (((j -> 'tags'::text)))",
            "CREATE INDEX t_n_idx ON public.t USING gin (n)",
            "CREATE UNIQUE INDEX t_pkey ON public.t USING btree (id)",
        ]
    );
    let catalog = "SELECT i.relname, am.amname, o.opcname, f.opfname, a.atttypid::regtype FROM pg_index x
        JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am am ON am.oid = i.relam
        JOIN pg_opclass o ON o.oid = x.indclass[0] AND o.opcmethod = am.oid JOIN pg_opfamily f ON f.oid = o.opcfamily
        JOIN pg_attribute a ON a.attrelid = i.oid WHERE x.indrelid = 't'::regclass AND am.amname = 'gin' ORDER BY 1";
    assert_eq!(
        db.rows(catalog).await,
        [
            "i1|gin|jsonb_ops|jsonb_ops|text",
            "i2|gin|jsonb_path_ops|jsonb_path_ops|integer",
            "t_expr_idx|gin|jsonb_ops|jsonb_ops|text",
            "t_n_idx|gin|array_ops|array_ops|integer",
        ]
    );
    db.execute(
        "INSERT INTO t SELECT n, jsonb_build_object('k', n % 100, 'tags', jsonb_build_array('t' || n)), ARRAY[n, n + 1]
         FROM generate_series(1, 500) n",
    )
    .await;
    db.execute("ALTER TABLE t RENAME COLUMN j TO \"J\"; ALTER INDEX i1 RENAME TO i0; ALTER TABLE t ALTER n TYPE bigint[]")
        .await;
    db.execute("CREATE TABLE l (LIKE t INCLUDING ALL); INSERT INTO l SELECT * FROM t").await;
    for table in ["t", "l"] {
        for (condition, count) in
            [("\"J\" @> '{\"k\": 7}'", "5"), ("n @> ARRAY[7::bigint]", "2"), ("\"J\" -> 'tags' ? 't9'", "1")]
        {
            let query = format!("SELECT count(*) FROM {table} WHERE {condition}");
            assert_eq!(db.rows(&query).await, [count], "{query}");
            let plan = plan_of(&mut db, &query).await;
            assert!(plan.contains(" using "), "{plan}");
        }
    }
    db.execute("DROP INDEX i0; TRUNCATE t; ALTER TABLE t DROP COLUMN n").await;
    assert_eq!(
        db.rows("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1").await,
        ["i2", "t_expr_idx", "t_pkey"]
    );
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE \"J\" @> '{\"k\": 7}' AND id > 3").await, ["0"]);
    db.execute("ALTER TABLE t DROP COLUMN \"J\"").await;
    assert_eq!(db.rows("SELECT indexname FROM pg_indexes WHERE tablename = 't'").await, ["t_pkey"]);
}

fn random_json(random: &mut StdRng, depth: usize) -> String {
    let scalars =
        ["0", "1", "1.0", "true", "null", "\"a\"", "\"b\"", "\"a string longer than any token may be\""];
    let count = random.random_range(0..4);
    match if depth < 3 { random.random_range(0..3) } else { 2 } {
        0 => {
            let values: Vec<String> = (0..count).map(|_| random_json(random, depth + 1)).collect();
            format!("[{}]", values.join(", "))
        }
        1 => {
            let member = |_| {
                let key = ["a", "b", "c", "a key longer than any token may be"][random.random_range(0..4)];
                format!("\"{key}\": {}", random_json(random, depth + 1))
            };
            let members: Vec<String> = (0..count).map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
        _ => scalars[random.random_range(0..scalars.len())].to_string(),
    }
}

fn random_array(random: &mut StdRng) -> String {
    let count = random.random_range(0..4);
    let value = |_| ["1", "2", "3", "4", "NULL"][random.random_range(0..5)];
    format!("{{{}}}", (0..count).map(value).collect::<Vec<_>>().join(","))
}

/// A random condition on `j` or `n`.
fn random_condition(random: &mut StdRng) -> String {
    let keys = ["{}", "{a}", "{a,b}", "{NULL}", "{c,NULL,zz}"][random.random_range(0..5)];
    match random.random_range(0..8) {
        0..=2 => format!("j @> '{}'", random_json(random, 1)),
        3 => format!("j ? '{}'", ["a", "b", "zz"][random.random_range(0..3)]),
        4 => format!("j {} '{keys}'", ["?|", "?&"][random.random_range(0..2)]),
        5 => format!("n {} '{}'", ["@>", "&&", "="][random.random_range(0..3)], random_array(random)),
        6 => format!("{} = ANY (n)", ["1", "4", "NULL"][random.random_range(0..3)]),
        _ => format!("j @> '{}' AND n && '{}'", random_json(random, 2), random_array(random)),
    }
}

/// How many keys a table has, those of its indexes included.
async fn stored(db: &mut Database, table: &str) -> usize {
    let oid: u64 = db.rows(&format!("SELECT '{table}'::regclass::oid")).await[0].parse().unwrap();
    let txn = db.engine.kv().begin(TxnOptions::default());
    let page = txn.scan(&storage_span(oid), ScanOptions::default()).await.unwrap();
    assert!(page.resume.is_none());
    page.rows.len()
}

/// After random changes, a table with inverted indexes answers as one without them.
#[tokio::test]
async fn an_index_finds_what_the_table_holds_after_random_changes() {
    let indexes = [
        "CREATE INDEX ON t USING gin (j); CREATE INDEX ON t USING gin (n)",
        "CREATE INDEX ON t USING gin (j jsonb_path_ops); CREATE INDEX ON t USING gin (n) WHERE id < 30",
    ];
    let mut by_index = 0;
    for seed in 0..6u64 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut db = Database::open().await;
        db.execute(
            "CREATE TABLE t (id int PRIMARY KEY, j jsonb, n int[]); CREATE TABLE u (LIKE t INCLUDING ALL)",
        )
        .await;
        let create = indexes[seed as usize % 2];
        if seed < 4 {
            db.execute(create).await;
        }
        for step in 0..60 {
            let (id, j, n) =
                (random.random_range(0..40), random_json(&mut random, 0), random_array(&mut random));
            let change = match random.random_range(0..7) {
                0..=2 => format!(
                    "INSERT INTO t VALUES ({id}, '{j}', '{n}') ON CONFLICT (id) DO UPDATE SET j = excluded.j"
                ),
                3 => format!("UPDATE t SET j = '{j}' WHERE id % 5 = {}", id % 5),
                4 => format!("UPDATE t SET n = '{n}', id = id + 40 WHERE id = {id}"),
                5 => format!(
                    "MERGE INTO t USING (SELECT {id} AS id) s ON t.id = s.id WHEN MATCHED AND t.n && '{{1}}' THEN DELETE
                     WHEN MATCHED THEN UPDATE SET j = NULL WHEN NOT MATCHED THEN INSERT VALUES (s.id, '{j}', '{n}')"
                ),
                _ => format!("DELETE FROM t WHERE {}", random_condition(&mut random)),
            };
            // The same to both tables. Violations are as good as anything else.
            let one = db.run(&change).await.map(|output| output.tag).map_err(|error| error.code);
            let change = change.replace("INTO t ", "INTO u ").replace(" t.", " u.");
            let change = change.replace("UPDATE t ", "UPDATE u ").replace("FROM t ", "FROM u ");
            let other = db.run(&change).await.map(|output| output.tag).map_err(|error| error.code);
            assert_eq!(one, other, "seed {seed}, step {step}: {change}");
            if seed >= 4 && step == 30 {
                db.execute(create).await;
            }
            for _ in 0..4 {
                let condition = random_condition(&mut random);
                let condition =
                    if random.random_ratio(1, 3) { format!("{condition} AND id < 30") } else { condition };
                let query = |table: &str| format!("SELECT id FROM {table} WHERE {condition} ORDER BY id");
                let (found, expected) = (db.rows(&query("t")).await, db.rows(&query("u")).await);
                assert_eq!(found, expected, "seed {seed}, step {step}: {condition}");
                by_index += usize::from(plan_of(&mut db, &query("t")).await.contains("Index Cond: (j @>"));
            }
        }
        // Nothing is left of what was there before.
        db.execute("CREATE TABLE w (LIKE t INCLUDING ALL); INSERT INTO w SELECT * FROM t").await;
        assert_eq!(stored(&mut db, "t").await, stored(&mut db, "w").await, "seed {seed}");
    }
    assert!(by_index > 100, "{by_index} queries were answered by an index");
}

#[tokio::test]
async fn tokens_are_computed_when_a_statement_runs() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, j jsonb, n int[]); CREATE INDEX ON t USING gin (j); CREATE INDEX ON t USING gin (n);
         INSERT INTO t SELECT n, jsonb_build_object('k', n % 100), ARRAY[n % 50] FROM generate_series(1, 2000) n;
         INSERT INTO t VALUES (3000, '{}'), (3001, NULL), (3002, '[1]')",
    )
    .await;
    db.execute(
        "PREPARE a (jsonb) AS SELECT count(*) FROM t WHERE j @> $1; PREPARE b (int) AS SELECT count(*) FROM t WHERE $1 = ANY (n);
         PREPARE c (text[]) AS SELECT count(*) FROM t WHERE j ?| $1",
    )
    .await;
    let plan = plan_of(&mut db, "EXECUTE a('1')").await;
    assert!(plan.contains("Index Cond: (j @> $1)"), "{plan}");
    let many: Vec<String> = (0..1000).map(|n| format!("x{n}")).chain(["k".to_string()]).collect();
    for (execute, count) in [
        ("a('{\"k\": 7}')".to_string(), "20"),
        ("a('{\"k\": 700}')".to_string(), "0"),
        ("a('{}')".to_string(), "2001"),
        ("a('[]')".to_string(), "1"),
        ("a(NULL)".to_string(), "0"),
        ("a('1')".to_string(), "1"),
        ("b(7)".to_string(), "40"),
        ("b(NULL)".to_string(), "0"),
        ("c('{a,k}')".to_string(), "2000"),
        ("c('{}')".to_string(), "0"),
        (format!("c('{{{}}}')", many.join(",")), "2000"),
    ] {
        assert_eq!(db.rows(&format!("EXECUTE {execute}")).await, [count], "{execute}");
    }
    let joined = "SELECT a.id, count(b.id) FROM (VALUES (1, '{\"k\": 5}'::jsonb), (2, '{\"z\": 5}'), (3, NULL)) a (id, v)
        LEFT JOIN t b ON b.j @> a.v GROUP BY a.id ORDER BY a.id";
    assert_eq!(db.rows(joined).await, ["1|20", "2|0", "3|0"]);
    let locked = "SELECT id FROM t WHERE j @> '{\"k\": 7}' AND id < 200 ORDER BY id FOR UPDATE SKIP LOCKED";
    assert_eq!(db.rows(locked).await, ["7", "107"]);
    assert_eq!(db.execute("UPDATE t SET j = '{\"k\": 7}' WHERE j @> '{\"k\": 8}'").await.tag, "UPDATE 20");
    assert_eq!(db.rows("EXECUTE a('{\"k\": 7}')").await, ["40"]);
}

/// Containment may fail or tell of rows: where policies hide some, only theirs may choose the index.
#[tokio::test]
async fn conditions_wait_for_the_policies_of_a_table() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, who text, j jsonb); CREATE INDEX t_j ON t USING gin (j);
         INSERT INTO t SELECT n, CASE n % 2 WHEN 0 THEN 'app' ELSE 'other' END, jsonb_build_object('k', n % 10, 'open', n > 90)
         FROM generate_series(1, 100) n;
         CREATE ROLE app; GRANT USAGE ON SCHEMA public TO app; GRANT SELECT ON t TO app; ALTER TABLE t ENABLE ROW LEVEL SECURITY;
         CREATE POLICY mine ON t USING (who = current_user)",
    )
    .await;
    let query = "SELECT id FROM t WHERE j @> '{\"k\": 4}' ORDER BY id";
    assert!(plan_of(&mut db, query).await.contains("Index Cond"));
    db.execute("SET ROLE app").await;
    let plan = plan_of(&mut db, query).await;
    assert!(!plan.contains("Index Cond"), "{plan}");
    assert_eq!(db.rows(query).await.len(), 10);
    assert_eq!(db.rows("SELECT id FROM t WHERE j @> '{\"k\": 5}'").await.len(), 0);
    db.execute("RESET ROLE; DROP POLICY mine ON t; CREATE POLICY open ON t USING (j @> '{\"open\": true}'); SET ROLE app")
        .await;
    let plan = plan_of(&mut db, query).await;
    assert!(plan.contains("Index Cond: (j @> '{\"open\": true}'::jsonb)"), "{plan}");
    assert_eq!(db.rows(query).await, ["94"]);
}

/// Common and rare tokens, more of them than fit a page.
#[tokio::test]
async fn tokens_of_many_rows_are_intersected() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int[]); CREATE INDEX ON t USING gin (n);
         INSERT INTO t SELECT i, ARRAY[-1, -2 - i % 2, i % 3, 10 + i % 5, 100 + i / 1000] FROM generate_series(0, 9999) i",
    )
    .await;
    for (condition, count) in [
        ("n @> '{-1,100}'", 1000),
        ("n @> '{-2,0,10}'", 334),
        ("n @> '{-1,-3}'", 5000),
        ("n @> '{-2,-3}'", 0),
        ("n && '{-2,0}'", 6667),
        ("n && '{100,104}' AND n @> '{-1}'", 2000),
        ("n && '{100,104}' AND n && '{-2,12}' AND n @> '{1}'", 400),
        ("n @> '{-1,999}'", 0),
    ] {
        let query = format!("SELECT count(*), count(DISTINCT id) FROM t WHERE {condition}");
        let plain =
            format!("SELECT count(*) FROM t WHERE coalesce(n, NULL) IS NOT NULL AND ({condition}) IS TRUE");
        assert_eq!(db.rows(&plain).await, [count.to_string()], "{condition}");
        assert_eq!(db.rows(&query).await, [format!("{count}|{count}")], "{condition}");
    }
    let plan = plan_of(&mut db, "SELECT id FROM t WHERE n @> '{-2,0,10}'").await;
    assert!(plan.contains("Index Cond: (n @> "), "{plan}");
    // Without statistics the index is taken for all of them.
    db.execute("CREATE TABLE w (LIKE t INCLUDING ALL)").await;
    assert!(plan_of(&mut db, "SELECT id FROM w WHERE n && '{1}'").await.contains("Index Cond"));
}

/// Of two transactions that each insert what the other found missing one is undone.
#[tokio::test]
async fn a_row_that_comes_into_a_span_that_was_read_is_noticed() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, j jsonb); CREATE INDEX ON t USING gin (j);
         INSERT INTO t SELECT n, jsonb_build_object('a', n) FROM generate_series(1, 500) n",
    )
    .await;
    let count = "SELECT count(*) FROM t WHERE j @> '{\"a\": 7, \"b\": 1}'";
    assert!(plan_of(&mut db, count).await.contains("Index Cond"));
    let mut other = session(&db.engine).await;
    db.execute("BEGIN").await;
    run(&mut other, "BEGIN", &[]).await.unwrap();
    assert_eq!(db.rows(count).await, ["0"]);
    assert_eq!(run(&mut other, count, &[]).await.unwrap().rows, ["0"]);
    let mut failed = 0;
    failed += usize::from(db.run("UPDATE t SET j = '{\"a\": 7, \"b\": 1}' WHERE id = 3").await.is_err());
    let text = "INSERT INTO t VALUES (1000, '{\"b\": 1, \"a\": 7}')";
    failed += usize::from(run(&mut other, text, &[]).await.is_err());
    failed += usize::from(db.run("COMMIT").await.map_or(true, |output| output.tag != "COMMIT"));
    failed += usize::from(run(&mut other, "COMMIT", &[]).await.map_or(true, |output| output.tag != "COMMIT"));
    assert!(failed > 0, "both transactions committed");
    assert!(db.rows(count).await == ["1"]);
}

/// Indexes come and go while rows change; in the end they have what the table has.
#[tokio::test]
async fn an_index_is_made_while_others_write() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, j jsonb);
         INSERT INTO t SELECT n, jsonb_build_object('k', n % 10, 'v', n) FROM generate_series(1, 5000) n",
    )
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for task in 0..3u64 {
        let (mut mine, stop) = (session(&db.engine).await, stop.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(task);
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let (id, k) = (random.random_range(0..6000), random.random_range(0..10));
                let text = match random.random_range(0..3) {
                    0 => format!("DELETE FROM t WHERE id = {id}"),
                    1 => format!("UPDATE t SET j = jsonb_build_object('k', {k}) WHERE id BETWEEN {id} AND {id} + 3"),
                    _ => format!(
                        "INSERT INTO t VALUES ({id}, '[{k}, \"x\"]') ON CONFLICT (id) DO UPDATE SET j = excluded.j"
                    ),
                };
                run(&mut mine, &text, &[]).await.unwrap();
                written += 1;
                tokio::task::yield_now().await;
            }
            written
        }));
    }
    for class in ["jsonb_ops", "jsonb_path_ops", "jsonb_ops"] {
        db.execute("DROP INDEX IF EXISTS i").await;
        db.execute(&format!("CREATE INDEX i ON t USING gin (j {class})")).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.unwrap() > 0, "nothing was written meanwhile");
    }
    for k in 0..10 {
        for wanted in [format!("{{\"k\": {k}}}"), format!("[{k}]"), format!("{{\"k\": {k}, \"v\": {k}}}")] {
            let by_index = format!("SELECT id FROM t WHERE j @> '{wanted}' ORDER BY id");
            let by_scan = format!("SELECT id FROM t WHERE (j @> '{wanted}') IS TRUE ORDER BY id");
            assert_eq!(db.rows(&by_index).await, db.rows(&by_scan).await, "{wanted}");
        }
    }
    db.execute("CREATE TABLE seen AS SELECT * FROM t; TRUNCATE t; INSERT INTO t SELECT * FROM seen").await;
    assert_eq!(
        db.rows("SELECT count(*) FROM t WHERE j @> '{\"k\": 3}'").await,
        db.rows("SELECT count(*) FROM seen WHERE j @> '{\"k\": 3}'").await
    );
}
