//! Row security: nothing that a user writes tells of rows that policies hide.

use crate::database::{Database, run, session};

/// A table with rows of two tenants in turns. The visible ones have neither balance 7 nor a note that is no number.
async fn accounts() -> Database {
    let mut db = Database::open().await;
    db.execute(
        "create role app; create role other;
         create table accounts (id int primary key, tenant text, balance int, note text);
         create index on accounts (balance);
         create table members (tenant text primary key, member text);
         create table others (id int primary key, x int)",
    )
    .await;
    db.execute(
        "insert into accounts select n, case n % 2 when 0 then 'app' else 'other' end,
            case n % 2 when 0 then n + 100 else 7 end, case n % 2 when 0 then n::text else 'none' end
         from generate_series(1, 3000) n",
    )
    .await;
    db.execute("insert into members values ('app', 'app'), ('other', 'other')").await;
    db.execute("insert into others select n, n from generate_series(1, 50) n").await;
    db.execute("grant all on accounts, members, others to app, other").await;
    db.execute("analyze accounts; analyze others; alter table accounts enable row level security").await;
    db
}

/// Policies that let through the same rows: by a comparison, by a function, by a subquery, and by alternatives.
const POLICIES: &[&str] = &[
    "tenant = current_user",
    "lower(tenant) = current_setting('shop.tenant', true)",
    "exists (select 1 from members m where m.tenant = accounts.tenant and m.member = current_user)",
    "tenant in (select m.tenant from members m where m.member = current_user) or balance < 0",
    "tenant = (select m.tenant from members m where m.member = current_user)",
];

/// Queries that fail for a hidden row, and for no visible one.
const LEAKY: &[&str] = &[
    "select count(*) from accounts where 1 / (balance - 7) = 5",
    "select sum(balance) from accounts where 1 / (balance - 7) = 0 and id > 0",
    "select count(*) from accounts where note::int > 5",
    "select id, note::int from accounts where id < 20 and note::int > 5",
    "select tenant, sum(1 / (balance - 7)) from accounts group by tenant",
    "select count(*) filter (where 1 / (balance - 7) = 0) from accounts",
    "select max(100 / (balance - 7)) from accounts where balance between 0 and 5000",
    "select id from accounts where id = 1 and 1 / (balance - 7) = 0",
    "select id from accounts where balance = 7 and 1 / (balance - 7) = 0",
    "select id from accounts where id in (1, 2, 3) and note::int > 0",
    "select count(*) from accounts where case when balance = 7 then 1 / (balance - 7) else 1 end = 1",
    "select count(*) from others o join accounts a on a.id = o.id and 1 / (a.balance - 7) = 0",
    "select count(*) from others o join accounts a on a.id = o.id where a.note::int = o.x",
    "select count(*) from others o left join accounts a on a.id = o.id and 1 / (a.balance - 7) = 0",
    "select count(*) from others o join accounts a on a.note::int = o.x",
    "select count(*) from others o where exists (select 1 from accounts a where a.id = o.id and a.note::int = o.x)",
    "select count(*) from others o, lateral (select * from accounts a where a.id = o.id and a.note::int > 0) l",
    "select o.x, (select a.note::int from accounts a where a.id = o.id) from others o",
    "select count(*) from (select * from accounts where id > 0) s where note::int > 0",
    "with s as (select * from accounts) select count(*) from s where note::int > 0",
    "select id from accounts order by note::int limit 3",
    "select id from accounts where note::int > 0 order by balance limit 3",
    "select id from accounts where note::int > 0 order by id for update",
    "select distinct note::int from accounts where id < 10",
    "select count(*) from seen where note::int > 0",
    "update accounts set balance = balance where note::int > 0",
    "update accounts set balance = balance + 1 / (balance - 7)",
    "delete from accounts where 1 / (balance - 7) = 5",
    "merge into accounts a using others o on a.id = o.id and a.note::int > 0 when matched then do nothing",
];

#[tokio::test]
async fn a_condition_that_fails_does_not_tell_of_hidden_rows() {
    for policy in POLICIES {
        let mut db = accounts().await;
        db.execute("create view seen as select * from accounts; alter view seen owner to app").await;
        db.execute(&format!("create policy p on accounts using ({policy})")).await;
        db.execute("set shop.tenant = 'app'").await;
        for engine in ["row", "analytic", "auto"] {
            db.execute(&format!("set engine = '{engine}'")).await;
            for query in LEAKY {
                // Without the policy, they fail.
                if engine == "row" {
                    let code = db.error(&query.replace("seen", "accounts")).await.code;
                    assert!(["22012", "22P02"].contains(&code.as_str()), "{query}: {code:?}");
                }
                db.execute("set role app").await;
                let explained = Some(format!("explain analyze {query}"));
                let explained = explained.filter(|_| !query.starts_with("merge"));
                for text in [query.to_string()].into_iter().chain(explained) {
                    let output = db.run(&text).await;
                    let output =
                        output.unwrap_or_else(|error| panic!("{engine}, {policy}: {text}: {error:?}"));
                    let counted = ["Rows Removed", "KV Requests", "KV Bytes"];
                    let told = output.rows.iter().find(|line| counted.iter().any(|word| line.contains(word)));
                    assert_eq!(told, None, "{policy}: {text}");
                }
                db.execute("reset role").await;
            }
        }
        db.execute("set role app").await;
        assert_eq!(db.rows("select count(*), min(id % 2), max(id % 2) from accounts").await, ["1500|0|0"]);
        // What fails for a visible row does fail.
        assert_eq!(db.error("select 1 / (balance - 102) from accounts").await.code.as_str(), "22012");
    }
}

#[tokio::test]
async fn plans_are_not_shared_by_users_for_whom_policies_differ() {
    let mut db = accounts().await;
    db.execute("create policy a on accounts to app using (tenant = 'app')").await;
    db.execute("create policy b on accounts to other using (tenant = 'other')").await;
    let query = "select count(*), min(tenant), max(tenant) from accounts";
    let mut second = session(&db.engine).await;
    for _ in 0..3 {
        for (role, rows) in
            [("app", "1500|app|app"), ("other", "1500|other|other"), ("none", "3000|app|other")]
        {
            db.execute(&format!("set role {role}")).await;
            assert_eq!(db.rows(query).await, [rows], "{role}");
            run(&mut second, &format!("set role {role}"), &[]).await.expect("a role");
            assert_eq!(run(&mut second, query, &[]).await.expect("rows").rows, [rows], "{role}");
        }
    }
    // A statement that was prepared for another role.
    db.execute(&format!("reset role; prepare p as {query}")).await;
    assert_eq!(db.rows("execute p").await, ["3000|app|other"]);
    db.execute("set role app").await;
    assert_eq!(db.rows("execute p").await, ["1500|app|app"]);
    db.execute("set row_security = off").await;
    assert_eq!(db.error("execute p").await.code.as_str(), "42501");
    db.execute("reset row_security; set role other").await;
    assert_eq!(db.rows("execute p").await, ["1500|other|other"]);
}

#[tokio::test]
async fn errors_show_no_values_of_tables_with_hidden_rows() {
    let mut db = accounts().await;
    db.execute(
        "alter table accounts add check (balance > 0);
         create policy p on accounts using (tenant = current_user);
         create table parts (id int primary key, account int references accounts);
         grant all on parts to app; alter table parts enable row level security;
         create policy p on parts using (true)",
    )
    .await;
    let detail = |error: &sql_types::SqlError| error.extra().and_then(|extra| extra.detail.clone());
    let statements = [
        ("insert into accounts values (1, 'app', 1, '')", "23505", None),
        ("insert into accounts values (9000, 'app', -1, '')", "23514", None),
        ("insert into accounts values (null, 'app', 1, '')", "23502", None),
        ("insert into parts values (1, 9000)", "23503", Some("Key is not present in table \"accounts\".")),
    ];
    for (statement, code, shown) in statements {
        db.execute("set role app").await;
        let error = db.error(statement).await;
        assert_eq!((error.code.as_str(), detail(&error).as_deref()), (code, shown), "{statement}");
        db.execute("reset role").await;
        let error = db.error(statement).await;
        assert!(detail(&error).is_some_and(|detail| detail.contains(['(', ')'])), "{statement}: {error:?}");
    }
    db.execute("set role app").await;
    let error = db.error("insert into accounts values (9000, 'other', 1, '')").await;
    assert_eq!(error.message, "new row violates row-level security policy for table \"accounts\"");
    // Statistics tell of values.
    assert_eq!(db.rows("select count(*) from pg_stats where tablename = 'accounts'").await, ["0"]);
    db.execute("reset role").await;
    assert_ne!(db.rows("select count(*) from pg_stats where tablename = 'accounts'").await, ["0"]);
}

#[tokio::test]
async fn policies_are_served_by_indexes() {
    let mut db = accounts().await;
    db.execute("create index on accounts (tenant, balance); analyze accounts").await;
    db.execute("create policy p on accounts using (tenant = current_user)").await;
    db.execute("set role app").await;
    let plan = db.rows("explain select * from accounts where balance = 200").await.join("\n");
    assert!(plan.contains("accounts_tenant_balance_idx") || plan.contains("accounts_balance_idx"), "{plan}");
    let plan = db.rows("explain select * from accounts where id = 200").await.join("\n");
    assert!(plan.contains("accounts_pkey"), "{plan}");
    let plan = db.rows("explain select * from accounts where id = 200 and note::int > 0").await.join("\n");
    assert!(plan.contains("accounts_pkey"), "{plan}");
}
