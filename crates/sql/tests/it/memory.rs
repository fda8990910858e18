//! Statements that do not fit into their memory, and large scans by the row engine.

use crate::database::Database;
use sql::exec::NodeBudget;
use sql::exec::spill::Spill;
use std::sync::Arc;

/// A database whose statements can spill into a directory.
async fn spilling(directory: &tempfile::TempDir, bytes: u64) -> Database {
    let mut db = Database::open_within(budget(directory, bytes)).await;
    fill(&mut db).await;
    db
}

fn budget(directory: &tempfile::TempDir, bytes: u64) -> Arc<NodeBudget> {
    let spill = Spill::open(&directory.path().join("spill"), bytes).unwrap();
    NodeBudget::new(NodeBudget::DEFAULT_BYTES, Some(spill))
}

async fn fill(db: &mut Database) {
    db.execute(
        "create table sales (id int primary key, shop int, note text, price numeric(10,2), day date, code char(8));
         insert into sales select n, n % 700, 'note ' || (n * 7919) % 10007, (n % 977)::numeric / 4,
            date '2020-01-01' + n % 365, 'c' || n % 90 from generate_series(1, 12000) n;
         insert into sales values (0, null, null, null, null, null), (20000, null, null, null, null, null);
         analyze sales",
    )
    .await;
}

#[tokio::test]
async fn sorts_spill() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = spilling(&directory, 1 << 30).await;
    for order in
        ["note desc, id", "price, shop desc nulls last, id", "shop", "code, day desc, price nulls first, id"]
    {
        // Where keys are equal the order is that of the table.
        let query = format!("select id, note, price, code from sales order by {order}");
        db.execute("set statement_memory = '256MB'").await;
        let wanted = db.rows(&query).await;
        assert_eq!(wanted.len(), 12_002);
        db.execute("set statement_memory = '1MB'").await;
        assert!(db.rows(&query).await == wanted, "{order}");
        db.execute("set statement_memory = '256MB'").await;
    }
    // Its files have no names, and what it wrote is free again.
    assert_eq!(
        std::fs::read_dir(directory.path().join("spill")).unwrap().count(),
        1,
        "DataFusion's own directory"
    );
}

#[tokio::test]
async fn joins_and_aggregates_of_the_analytical_engine_spill() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = spilling(&directory, 1 << 30).await;
    db.execute("set engine = 'analytic'").await;
    let queries = [
        "select count(*), sum(a.price), min(b.note) from sales a join sales b on a.id = b.id where a.note <> b.code",
        "select count(*), sum(b.price) from sales a left join sales b on a.id = b.id + 6000 and a.shop < b.shop",
        "select count(*), max(note) from sales a where exists (select from sales b where a.id = b.id + 1)",
        "select count(*), max(note) from sales a where not exists (select from sales b where a.id = b.id + 1)",
    ];
    for query in queries {
        db.execute("set statement_memory = '256MB'").await;
        let wanted = db.rows(query).await;
        db.execute("set statement_memory = '2MB'").await;
        let before = db.engine.analytic_parts();
        assert_eq!(db.rows(query).await, wanted, "{query}");
        assert!(db.engine.analytic_parts() > before, "{query}");
    }
}

#[tokio::test]
async fn merge_joins_keep_the_rows_of_one_key() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = spilling(&directory, 1 << 30).await;
    db.execute("set engine = 'row'; set enable_hashjoin = off; set enable_nestloop = off").await;
    let query = "select count(*), sum(b.id) from sales a join sales b on a.note = b.note and a.id < b.id";
    let plan = db.rows(&format!("explain {query}")).await;
    assert!(plan.iter().any(|line| line.contains("Merge Join")), "{plan:#?}");
    let wanted = db.rows(query).await;
    db.execute("set statement_memory = '1MB'").await;
    assert_eq!(db.rows(query).await, wanted);
    let one_key = "select count(*) from sales a join sales b on a.shop * 0 = b.shop * 0";
    assert_eq!(db.error(one_key).await.code.as_str(), "53200");
    // Where a row only has to be there, one is kept.
    let exists =
        "select count(*) from sales a where exists (select from sales b where a.shop * 0 = b.shop * 0)";
    assert_eq!(db.rows(exists).await, ["12000"]);
}

#[tokio::test]
async fn what_cannot_fit_fails_and_the_session_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    // Without room for files.
    let mut db = spilling(&directory, 1 << 10).await;
    db.execute("set statement_memory = '1MB'").await;
    let sort = "select id, note from sales order by note";
    assert_eq!(db.error(sort).await.code.as_str(), "53100");
    for engine in ["row", "analytic"] {
        db.execute(&format!("set engine = '{engine}'")).await;
        let wide = "select repeat(note, 1000) || id, count(*) from sales group by 1";
        assert_eq!(db.error(wide).await.code.as_str(), "53100", "{engine}");
    }
    assert_eq!(db.rows("select count(*) from sales").await, ["12002"]);
    // Without a directory.
    let mut db = Database::open().await;
    fill(&mut db).await;
    db.execute("set statement_memory = '1MB'").await;
    assert_eq!(db.error(sort).await.code.as_str(), "53200");
    assert_eq!(db.rows("select count(*) from sales").await, ["12002"]);
}

#[tokio::test]
async fn large_scans_return_the_same_as_columns_and_as_rows() {
    let mut db = Database::open().await;
    fill(&mut db).await;
    let conditions = [
        "true",
        "shop = 5",
        "shop is null or price > 200",
        "note like 'note 1%' and day between '2020-02-01' and '2020-02-20'",
        "(shop = 3 and price < 100) or (shop in (4, 5) and note like '%7') or code = 'c17'",
        "code in ('c1', 'c2') and not (price = 1.25)",
        "price * 2 > 480 and day > '2020-06-01'",
    ];
    db.execute("set engine = 'row'").await;
    for nan in [false, true] {
        for condition in conditions {
            let query = format!("select * from sales where {condition} order by id");
            // What is locked is read as rows.
            let rows = db.rows(&format!("{query} for share")).await;
            assert!(!rows.is_empty(), "{condition}");
            assert_eq!(db.rows(&query).await, rows, "{condition}, {nan}");
        }
        // A value that programs cannot read, in the middle.
        db.execute("update sales set price = 'nan' where id = 6000").await;
    }
}

#[tokio::test]
async fn sums_of_values_with_unlike_decimals_have_those_that_were_added() {
    let mut db = Database::open().await;
    fill(&mut db).await;
    for condition in ["shop = 3", "shop = -1", "shop is null", "true", "id = 20000"] {
        let query = format!(
            "select sum(case when {condition} then price else 0 end), sum(case when {condition} then price end),
                sum(case when {condition} then price * 1.5 when id < 5 then 7 else 0.1 end), count(*)
             from sales where id > 10"
        );
        db.execute("set engine = 'row'").await;
        let wanted = db.rows(&query).await;
        db.execute("set engine = 'analytic'").await;
        assert_eq!(db.rows(&query).await, wanted, "{condition}");
    }
}

#[tokio::test]
async fn joins_aggregates_and_duplicates_of_the_row_engine_spill() {
    let directory = tempfile::tempdir().unwrap();
    let memory = budget(&directory, 1 << 30);
    let mut db = Database::open_within(memory.clone()).await;
    fill(&mut db).await;
    db.execute("set engine = 'row'").await;
    let join = |kind: &str| {
        format!(
            "select count(*), count(a.id), count(b.id), sum(a.id), sum(b.id), min(a.note), max(b.note), sum(a.id * b.shop)
             from (select * from sales where id % 3 <> 0 or id in (0, 20000)) a
             {kind} join (select * from sales where id % 4 <> 0 or id in (0, 20000)) b on a.note = b.note and a.price <= b.price"
        )
    };
    let queries = [
        join("inner"),
        join("left"),
        join("right"),
        join("full"),
        // A key of which there are many rows, and NULLs.
        "select count(*), sum(a.id), sum(b.id) from sales a full join sales b on a.shop = b.shop and a.id = b.id + 1".into(),
        "select count(*), sum(id) from sales a where exists
            (select from sales b where a.note = b.note and a.id <> b.id)".into(),
        "select count(*), sum(id) from sales a where not exists
            (select from sales b where a.note = b.note and a.id <> b.id)".into(),
        "select * from (select note, day, count(*), sum(price), avg(id), min(code), count(distinct shop)
            from sales group by note, day) g order by note, day".into(),
        "select * from (select note, shop, count(*), sum(price), grouping(note, shop) g from sales
            group by grouping sets ((note), (shop), (note, shop), ())) g order by 1, 2, 5".into(),
        "select * from (select distinct note, price, day from sales) d order by 1, 2, 3".into(),
        "select * from (select note, id % 5 from sales union select note, id % 7 from sales) u order by 1, 2".into(),
    ];
    for query in queries {
        db.execute("set statement_memory = '256MB'").await;
        let wanted = db.rows(&query).await;
        let files = memory.spilled_files();
        db.execute("set statement_memory = '512kB'").await;
        assert!(db.rows(&query).await == wanted, "{query}");
        assert!(memory.spilled_files() > files, "{query}");
    }
}

#[tokio::test]
async fn what_is_of_one_key_and_does_not_fit_fails() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = spilling(&directory, 1 << 30).await;
    db.execute("set engine = 'row'; set statement_memory = '512kB'").await;
    let one_key =
        "select count(*) from sales a join sales b on a.shop * 0 = b.shop * 0 and a.note || b.note = 'none'";
    assert_eq!(db.error(one_key).await.code.as_str(), "53200");
    let one_group = "select length(string_agg(note || id, ',' order by code)) from sales";
    assert_eq!(db.error(one_group).await.code.as_str(), "53200");
    assert_eq!(db.rows("select count(*) from sales").await, ["12002"]);
}
