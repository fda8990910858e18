//! sqlx: migrations up, down and up again, what its macros ask of a server when they check a query, types in binary,
//! bulk insert, transactions and savepoints, errors, LISTEN, COPY, many connections.
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolCopyExt, PgPoolOptions, PgSslMode};
use sqlx::types::chrono::{DateTime, NaiveDate, Utc};
use sqlx::types::{BigDecimal, Json, Uuid};
use sqlx::{Acquire, Column, Either, Executor, Row, TypeInfo};
use std::collections::BTreeMap;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Copy, PartialEq, sqlx::Type)]
#[sqlx(type_name = "role", rename_all = "lowercase")]
enum Role {
    Reader,
    Writer,
}

#[derive(Debug, sqlx::FromRow)]
struct User {
    id: i64,
    name: String,
    role: Role,
    balance: BigDecimal,
    settings: Json<BTreeMap<String, i32>>,
    labels: Vec<String>,
    created: DateTime<Utc>,
}

fn code<T>(result: sqlx::Result<T>) -> String {
    match result {
        Err(sqlx::Error::Database(error)) => error.code().unwrap_or_default().into_owned(),
        Err(error) => error.to_string(),
        Ok(_) => "nothing".into(),
    }
}

async fn migrate(pool: &PgPool) -> Result<()> {
    let migrator = Migrator::new(Path::new("migrations")).await?;
    migrator.run(pool).await?;
    migrator.run(pool).await?;
    migrator.undo(pool, 1).await?;
    let undone: Option<String> = sqlx::query_scalar("SELECT to_regclass('writers')::text").fetch_one(pool).await?;
    assert_eq!(undone, None);
    // Every SQL node and every instance of an application may start at once.
    let (first, second) = tokio::join!(migrator.run(pool), migrator.run(pool));
    first?;
    second?;
    let applied: Vec<(i64, bool)> = sqlx::query_as("SELECT version, success FROM _sqlx_migrations ORDER BY 1").fetch_all(pool).await?;
    assert_eq!(applied, [(1, true), (2, true)]);
    Ok(())
}

/// What `query!` asks for at compile time: parameters, columns, and which of them can be NULL.
async fn describe(pool: &PgPool) -> Result<()> {
    let mut connection = pool.acquire().await?;
    let query = "SELECT u.id, u.name, p.title, p.published FROM users u LEFT JOIN posts p ON p.author = u.id \
                 WHERE u.balance > $1 AND u.role = $2 AND u.labels @> $3";
    let described = connection.describe(query).await?;
    let columns: Vec<_> = described.columns().iter().map(|column| (column.name(), column.type_info().name().to_string())).collect();
    assert_eq!(
        columns,
        [("id", "INT8"), ("name", "TEXT"), ("title", "VARCHAR"), ("published", "DATE")]
            .map(|(name, kind)| (name, kind.to_string()))
    );
    // Of `title`, sqlx knows only if the plan of the outer join has it on the inner side.
    let nullable = [0, 1, 3].map(|column| described.nullable(column));
    assert_eq!(nullable, [Some(false), Some(false), Some(true)]);
    let Some(Either::Left(parameters)) = described.parameters() else { panic!("types of parameters") };
    let parameters: Vec<_> = parameters.iter().map(|kind| kind.name()).collect();
    assert_eq!(parameters, ["NUMERIC", "role", "TEXT[]"]);
    Ok(())
}

async fn use_it(pool: &PgPool) -> Result<()> {
    for number in 0..10i32 {
        let settings = BTreeMap::from([("n".to_string(), number)]);
        let role = if number % 2 == 0 { Role::Reader } else { Role::Writer };
        sqlx::query("INSERT INTO users (name, role, balance, settings, labels) VALUES ($1, $2, $3, $4, $5)")
            .bind(format!("user {number}")).bind(role).bind(BigDecimal::from(number) / 4).bind(Json(settings))
            .bind(vec!["x".to_string(), format!("t{number}")]).execute(pool).await?;
    }
    let authors: Vec<i64> = (0..200).map(|row| row % 10 + 1).collect();
    let titles: Vec<String> = (0..200).map(|row| format!("post {row}")).collect();
    let days: Vec<Option<NaiveDate>> = (0..200).map(|row| NaiveDate::from_ymd_opt(2024, 2, row % 31)).collect();
    let inserted = sqlx::query(
        "INSERT INTO posts (author, title, published, picture, score) \
         SELECT a, t, d, '\\x00ff'::bytea, 0.5 FROM unnest($1::bigint[], $2::text[], $3::date[]) AS new (a, t, d)",
    ).bind(&authors).bind(&titles).bind(&days).execute(pool).await?;
    assert_eq!(inserted.rows_affected(), 200);
    let user: User = sqlx::query_as("SELECT * FROM users WHERE name = $1").bind("user 7").fetch_one(pool).await?;
    assert_eq!((user.role, user.settings.0["n"], user.labels[1].as_str()), (Role::Writer, 7, "t7"));
    assert_eq!((user.name.as_str(), user.balance), ("user 7", BigDecimal::from(7) / 4));
    assert!(user.id == 8 && user.created <= Utc::now() + std::time::Duration::from_secs(60));
    let row = sqlx::query("SELECT id, picture, score, published FROM posts WHERE title = 'post 29'").fetch_one(pool).await?;
    assert_eq!(row.try_get::<Vec<u8>, _>("picture")?, [0, 255]);
    assert_eq!(row.try_get::<Option<f64>, _>("score")?, Some(0.5));
    assert_eq!(row.try_get::<Option<NaiveDate>, _>("published")?, NaiveDate::from_ymd_opt(2024, 2, 29));
    assert_eq!(row.try_get::<Uuid, _>("id")?.get_version_num(), 4);
    let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM writers WHERE id = ANY($1) ORDER BY id").bind(&[1i64, 2, 3, 4][..]).fetch_all(pool).await?;
    assert_eq!(ids, [2, 4]);
    let upserted: (i64, Role) = sqlx::query_as(
        "INSERT INTO users (name, role) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET role = excluded.role RETURNING id, role",
    ).bind("user 0").bind(Role::Writer).fetch_one(pool).await?;
    assert_eq!(upserted, (1, Role::Writer));
    let gone = sqlx::query("DELETE FROM users WHERE id = $1").bind(10i64).execute(pool).await?;
    assert_eq!(gone.rows_affected(), 1);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM posts").fetch_one(pool).await?;
    assert_eq!(left, 180);
    let mut copy = pool.copy_in_raw("COPY posts (author, title) FROM STDIN (FORMAT csv)").await?;
    copy.send(&b"1,\"from, COPY\"\n2,another\n"[..]).await?;
    assert_eq!(copy.finish().await?, 2);
    Ok(())
}

async fn errors(pool: &PgPool) -> Result<()> {
    let insert = "INSERT INTO users (name, balance) VALUES ($1, $2)";
    let twice = sqlx::query(insert).bind("user 1").bind(BigDecimal::from(1)).execute(pool).await.unwrap_err();
    let twice = twice.as_database_error().expect("an answer of the server");
    assert!(twice.is_unique_violation() && twice.constraint() == Some("users_name_unique") && twice.table() == Some("users"));
    assert_eq!(code(sqlx::query(insert).bind("poor").bind(BigDecimal::from(-1)).execute(pool).await), "23514");
    assert_eq!(code(sqlx::query("INSERT INTO posts (author, title) VALUES (999, 'x')").execute(pool).await), "23503");
    assert_eq!(code(sqlx::query("INSERT INTO posts (author) VALUES (1)").execute(pool).await), "23502");
    assert_eq!(code(sqlx::query("INSERT INTO posts (author, title) VALUES (1, repeat('x', 61))").execute(pool).await), "22001");
    assert_eq!(code(sqlx::query("SELECT * FROM nowhere").fetch_all(pool).await), "42P01");
    assert_eq!(code(sqlx::query("SELECT 'odd'::role").fetch_all(pool).await), "22P02");
    Ok(())
}

async fn transactions(pool: &PgPool) -> Result<()> {
    let mut outer = pool.begin().await?;
    sqlx::query("UPDATE users SET balance = 5 WHERE id = 1").execute(&mut *outer).await?;
    let mut inner = outer.begin().await?;
    assert_eq!(code(sqlx::query("UPDATE users SET balance = -5 WHERE id = 2").execute(&mut *inner).await), "23514");
    inner.rollback().await?;
    sqlx::query("UPDATE users SET balance = balance + 1 WHERE id = 1").execute(&mut *outer).await?;
    outer.commit().await?;
    drop(pool.begin().await?);
    let workers = (0..4).map(|_| async {
        for _ in 0..10 {
            let mut work = pool.begin().await?;
            let balance: BigDecimal = sqlx::query_scalar("SELECT balance FROM users WHERE id = 1 FOR UPDATE").fetch_one(&mut *work).await?;
            sqlx::query("UPDATE users SET balance = $1 WHERE id = 1").bind(balance + 1).execute(&mut *work).await?;
            work.commit().await?;
        }
        Ok::<(), sqlx::Error>(())
    });
    let mut workers: Vec<_> = workers.map(Box::pin).collect();
    let [a, b, c, d] = &mut workers[..] else { unreachable!() };
    tokio::try_join!(a, b, c, d)?;
    let balance: BigDecimal = sqlx::query_scalar("SELECT balance FROM users WHERE id = 1").fetch_one(pool).await?;
    assert_eq!(balance, BigDecimal::from(46));
    Ok(())
}

async fn notifications(pool: &PgPool) -> Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("news").await?;
    sqlx::query("SELECT pg_notify('news', 'hazel')").execute(pool).await?;
    let news = listener.recv().await?;
    assert_eq!((news.channel(), news.payload()), ("news", "hazel"));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mode = if std::env::var("DRIVER_PLAIN").is_ok() { PgSslMode::Prefer } else { PgSslMode::Require };
    let options = std::env::var("DRIVER_URL")?.parse::<PgConnectOptions>()?.ssl_mode(mode);
    let pool = PgPoolOptions::new().max_connections(5).connect_with(options).await?;
    migrate(&pool).await?;
    describe(&pool).await?;
    use_it(&pool).await?;
    errors(&pool).await?;
    transactions(&pool).await?;
    notifications(&pool).await?;
    println!("sqlx: migrations, checked queries, types, bulk insert, COPY, transactions, errors, LISTEN");
    Ok(())
}
