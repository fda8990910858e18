//! A driver that sends and reads every value in binary, through TLS, the proxy and SCRAM.

use crate::client::{config, connect, tls};
use crate::cluster::Cluster;
use crate::raw::Raw;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

/// Stores values, and a null, in a column of a type through prepared statements, and reads them back.
async fn round_trip<T>(client: &Client, name: &str, oid: Type, values: &[T])
where
    T: ToSql + FromSqlOwned + PartialEq + Debug + Sync,
{
    let create = format!(r#"CREATE TABLE "{name}" (id int PRIMARY KEY, v {name})"#);
    client.batch_execute(&create).await.unwrap();
    let insert = client.prepare(&format!(r#"INSERT INTO "{name}" VALUES ($1, $2)"#)).await.unwrap();
    assert_eq!(insert.params(), [Type::INT4, oid.clone()], "{name}");
    let select = client.prepare(&format!(r#"SELECT v FROM "{name}" WHERE id = $1"#)).await.unwrap();
    assert_eq!(*select.columns()[0].type_(), oid, "{name}");
    for (id, value) in (0_i32..).zip(values.iter().map(Some).chain([None])) {
        assert_eq!(client.execute(&insert, &[&id, &value]).await.unwrap(), 1, "{name}");
        let row = client.query_one(&select, &[&id]).await.unwrap();
        assert_eq!(row.get::<_, Option<T>>(0).as_ref(), value, "{name}");
    }
}

/// Values of a column as text, in the order in which they were stored.
async fn texts(client: &Client, name: &str) -> Vec<String> {
    let query = format!(r#"SELECT v::text FROM "{name}" WHERE v IS NOT NULL ORDER BY id"#);
    let rows = client.query(&query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Values written as chrono writes them.
fn parsed<T: FromStr<Err: Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn numerics() -> Vec<Raw> {
    vec![
        Raw::numeric(&[], 0, 0, 0),
        Raw::numeric(&[1, 2345, 6789], 1, 0, 6),
        Raw::numeric(&[1], -1, Raw::NEGATIVE, 4),
        Raw::numeric(&[1], 5, 0, 0),
        Raw::numeric(&[], 0, Raw::NAN, 0),
    ]
}

fn intervals() -> Vec<Raw> {
    let time = ((4 * 60 + 5) * 60 + 6) * 1_000_000 + 789_000;
    vec![Raw::interval(0, 0, 0), Raw::interval(time, 3, 14), Raw::interval(-1, 1, -1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn values_of_every_type_come_back_in_binary() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let url = cluster.create("app");
    let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
    numbers(&client).await;
    characters_and_bytes(&client).await;
    dates_and_times(&client).await;
    documents(&client).await;
    arrays(&client).await;
    drop(client);
    cluster.stop();
}

async fn numbers(client: &Client) {
    round_trip(client, "bool", Type::BOOL, &[true, false]).await;
    round_trip(client, "int2", Type::INT2, &[0, i16::MIN, i16::MAX]).await;
    round_trip(client, "int4", Type::INT4, &[0, i32::MIN, i32::MAX]).await;
    round_trip(client, "int8", Type::INT8, &[0, i64::MIN, i64::MAX]).await;
    round_trip(client, "float4", Type::FLOAT4, &[0.1_f32, f32::MIN, f32::INFINITY]).await;
    round_trip(client, "float8", Type::FLOAT8, &[0.1, f64::MIN_POSITIVE, f64::NEG_INFINITY]).await;
    round_trip(client, "numeric", Type::NUMERIC, &numerics()).await;
    let expected = ["0", "12345.678900", "-0.0001", "100000000000000000000", "NaN"];
    assert_eq!(texts(client, "numeric").await, expected);
}

async fn characters_and_bytes(client: &Client) {
    round_trip(client, "text", Type::TEXT, &strings(&["", "a'\\\"\n", "žluťoučký 🐁"])).await;
    round_trip(client, "varchar(10)", Type::VARCHAR, &strings(&["", "žluťoučký "])).await;
    round_trip(client, "char(5)", Type::BPCHAR, &strings(&["     ", "kůň  ", "abcde"])).await;
    round_trip(client, "bytea", Type::BYTEA, &[vec![], (0..=u8::MAX).collect()]).await;
}

async fn dates_and_times(client: &Client) {
    let dates: Vec<NaiveDate> = parsed(&["2000-01-01", "1999-12-31", "2024-02-29", "0001-01-01"]);
    round_trip(client, "date", Type::DATE, &dates).await;
    let times: Vec<NaiveTime> = parsed(&["00:00:00", "23:59:59.999999"]);
    round_trip(client, "time", Type::TIME, &times).await;
    let moments: Vec<NaiveDateTime> = parsed(&["2000-01-01T00:00:00", "1969-07-20T20:17:40.000001"]);
    round_trip(client, "timestamp", Type::TIMESTAMP, &moments).await;
    let moments: Vec<DateTime<Utc>> = parsed(&["2000-01-01T00:00:00Z", "2024-02-29T12:34:56.789-08:00"]);
    round_trip(client, "timestamptz", Type::TIMESTAMPTZ, &moments).await;
    round_trip(client, "interval", Type::INTERVAL, &intervals()).await;
    let expected = ["00:00:00", "1 year 2 mons 3 days 04:05:06.789", "-1 mons +1 day -00:00:00.000001"];
    assert_eq!(texts(client, "interval").await, expected);
}

async fn documents(client: &Client) {
    round_trip(client, "uuid", Type::UUID, &[Uuid::nil(), Uuid::max(), Uuid::new_v4()]).await;
    let values = [json!({"b": [1, 2.5, null, {}], "a": "ž\n\""}), json!([]), json!("text"), Value::Null];
    round_trip(client, "json", Type::JSON, &values).await;
    round_trip(client, "jsonb", Type::JSONB, &values).await;
}

async fn arrays(client: &Client) {
    round_trip(client, "bool[]", Type::BOOL_ARRAY, &[vec![], vec![true, false]]).await;
    round_trip(client, "int2[]", Type::INT2_ARRAY, &[vec![i16::MIN, 0]]).await;
    let with_null = [vec![], vec![Some(1), None, Some(i32::MIN)], vec![None]];
    round_trip(client, "int4[]", Type::INT4_ARRAY, &with_null).await;
    round_trip(client, "int8[]", Type::INT8_ARRAY, &[vec![i64::MAX, 0]]).await;
    round_trip(client, "float8[]", Type::FLOAT8_ARRAY, &[vec![0.1, f64::INFINITY]]).await;
    round_trip(client, "numeric[]", Type::NUMERIC_ARRAY, &[numerics()]).await;
    let with_null = [vec![], vec![Some("NULL".to_owned()), None, Some("{\"a,b\"}".to_owned())]];
    round_trip(client, "text[]", Type::TEXT_ARRAY, &with_null).await;
    round_trip(client, "varchar(10)[]", Type::VARCHAR_ARRAY, &[strings(&["a", ""])]).await;
    round_trip(client, "bytea[]", Type::BYTEA_ARRAY, &[vec![vec![], vec![0_u8, 255]]]).await;
    let dates: Vec<NaiveDate> = parsed(&["2000-01-01", "1582-10-15"]);
    round_trip(client, "date[]", Type::DATE_ARRAY, &[dates]).await;
    let moments: Vec<DateTime<Utc>> = parsed(&["2000-01-01T00:00:00Z"]);
    round_trip(client, "timestamptz[]", Type::TIMESTAMPTZ_ARRAY, &[moments]).await;
    round_trip(client, "interval[]", Type::INTERVAL_ARRAY, &[intervals()]).await;
    round_trip(client, "uuid[]", Type::UUID_ARRAY, &[vec![Uuid::new_v4(), Uuid::nil()]]).await;
    round_trip(client, "jsonb[]", Type::JSONB_ARRAY, &[vec![json!({"a": 1}), json!([])]]).await;
}

/// The error a server must have sent.
fn code<T: Debug>(result: Result<T, Error>) -> SqlState {
    let error = result.unwrap_err();
    error.code().unwrap_or_else(|| panic!("no SQLSTATE: {error:?}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn errors_arrive_with_what_programs_look_at() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let mut config = config(&cluster, &cluster.create("app"));
    let client = connect(&cluster, &config).await.unwrap();

    let create = "CREATE TABLE people (id int PRIMARY KEY, email text CONSTRAINT one_account UNIQUE)";
    client.batch_execute(create).await.unwrap();
    let insert = client.prepare("INSERT INTO people VALUES ($1, $2)").await.unwrap();
    client.execute(&insert, &[&1, &"a@example.org"]).await.unwrap();
    for (id, email, constraint) in [(2, "a@example.org", "one_account"), (1, "b@example.org", "people_pkey")]
    {
        let error = client.execute(&insert, &[&id, &email]).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(*error.code(), SqlState::UNIQUE_VIOLATION, "{error:?}");
        assert_eq!((error.table(), error.constraint()), (Some("people"), Some(constraint)));
    }
    assert_eq!(code(client.query("SELECT * FROM nobody", &[]).await), SqlState::UNDEFINED_TABLE);
    assert_eq!(code(client.query("SELECT 1 / $1::int", &[&0]).await), SqlState::DIVISION_BY_ZERO);
    assert_eq!(client.execute(&insert, &[&2, &"b@example.org"]).await.unwrap(), 1, "the session goes on");

    config.password("wrong");
    assert_eq!(code(connect(&cluster, &config).await.map(drop)), SqlState::INVALID_PASSWORD);
    drop(client);
    cluster.stop();
}

/// Cancels a query that runs for longer than this takes; what became of it.
async fn cancelled(cluster: &Cluster, client: &Client) -> Result<Row, Error> {
    let mut asleep = std::pin::pin!(client.query_one("SELECT pg_sleep(30)", &[]));
    // A request that comes before the query has begun cancels nothing, so it is repeated.
    loop {
        tokio::select! {
            ended = &mut asleep => return ended,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                client.cancel_token().cancel_query(tls(cluster)).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_running_query_is_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let client = connect(&cluster, &config(&cluster, &cluster.create("app"))).await.unwrap();
    assert_eq!(code(cancelled(&cluster, &client).await), SqlState::QUERY_CANCELED);
    // A late request may hit this one.
    let again = client.query_one("SELECT 1", &[]).await;
    assert!(again.is_ok() || code(again) == SqlState::QUERY_CANCELED, "the session goes on");
    drop(client);
    cluster.stop();
}
