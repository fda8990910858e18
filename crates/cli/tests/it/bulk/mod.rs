//! `dormouse import` and `dormouse export`.

mod failures;
mod objects;
mod storage;

use crate::client::{config, connect};
use crate::cluster::Cluster;
use crate::differential::postgresql::PostgreSql;
use futures::TryStreamExt;
use serde_json::Value;
use std::fs;
use tempfile::TempDir;
use tokio_postgres::Client;

/// A system with a tenant, and a directory for files.
struct Place {
    cluster: Cluster,
    url: String,
    client: Client,
    files: TempDir,
    _data: TempDir,
}

impl Place {
    async fn new() -> Place {
        let data = tempfile::tempdir().unwrap();
        let cluster = Cluster::start(data.path());
        let url = cluster.create("app");
        let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
        Place { cluster, url, client, files: tempfile::tempdir().unwrap(), _data: data }
    }

    fn path(&self, name: &str) -> String {
        self.files.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        fs::write(self.files.path().join(name), text).unwrap();
        self.path(name)
    }

    fn run(&self, arguments: &[&str]) -> Value {
        self.cluster.json(&[arguments, &["--url", &self.url]].concat())
    }

    fn failure(&self, arguments: &[&str]) -> String {
        self.cluster.failure(&[arguments, &["--url", &self.url]].concat())
    }

    async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// The rows of a table as text.
    async fn rows(&self, table: &str) -> Vec<String> {
        let rows = self
            .client
            .query(&format!("SELECT whole::text FROM {table} whole ORDER BY id"), &[])
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.files.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A column of every type that tables have, and what is hard to write down.
const EVERY_TYPE: &str = r#"
CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE things (
    id bigint PRIMARY KEY, b boolean, i2 smallint, i4 integer, f4 real, f8 double precision,
    n numeric, n2 numeric(10,2), n18 numeric(18,6), n38 numeric(38,10), n60 numeric(60,5),
    t text, v varchar(20), c char(5), nm name, ba bytea, d date, tm time, ts timestamp, ts3 timestamp(3), tz timestamptz,
    iv interval, u uuid, j json, jb jsonb, ia integer[], ta text[], tza timestamptz[], m mood, ma mood[], p positive,
    o oid, "Odd, ""name" text, gen int GENERATED ALWAYS AS (i2 + 1) STORED
);
INSERT INTO things (id, b, i2, i4, f4, f8, n, n2, n18, n38, n60, t, v, c, nm, ba, d, tm, ts, ts3, tz, iv, u, j, jb, ia, ta, tza, m, ma, p, o, "Odd, ""name") VALUES
(1, true, -32768, 2147483647, 1.5, 0.1, 123456789012345678901234567890.123456789, -0.05, 999999999999.999999,
 1234567890123456789012345678.0123456789, 1234567890123456789012345678901234567890123456789012345.12345,
 'plain', 'v', 'ab', 'nm', '\x00ff5c0a', '2024-02-29', '23:59:59.999999', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789012+05:30',
 '1 year 2 mons -3 days 04:05:06.7', '123e4567-e89b-12d3-a456-426614174000', '{"a" : 1}', '{"b": [1, null]}',
 '{1,NULL,3}', '{"a,b","c\"d",NULL,"NULL",""}', '{2024-01-01 00:00:00+00}', 'sad', '{sad}', 5, 4294967295, 'odd'),
(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
 NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(3, false, 0, -2147483648, 'NaN', '-Infinity', 'NaN', 0, -0.000001, -1234567890123456789012345678.0123456789, 0,
 E'line\nbreak\r\n"quoted", tab\t back\\slash \\N \\.', '', '', '', '', '0044-03-15 BC', '00:00', '0001-01-01 00:00:00 BC', '1999-12-31 23:59:59.9996', '294246-12-31 23:59:59+00',
 '-1 day', '00000000-0000-0000-0000-000000000000', '[]', '"\u00fc \" \\"', '{}', '{}', '{}', E'it\'s "ok"', E'{"it\'s \\"ok\\"",NULL}', 1, 0, E'\\.'),
(4, true, 1, 1, 1e-30, 1.7976931348623157e308, 1e-20, 12345678.90, 1, 1, 1, '\.', 'ü€😀', 'x', 'n', '\x', '5874897-12-31', '12:00', '1970-01-01', '1970-01-01', '1970-01-01 00:00:00+00',
 '1 mon', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'null', 'null', '{{1,2},{3,4}}', '{" "}', NULL, 'sad', '{}', 7, 1, '');
"#;

/// The types of a table's columns, but for the generated one.
const TYPES: &str = "SELECT string_agg(format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute \
                     WHERE attrelid = $1::text::regclass AND attnum > 0 AND attgenerated = ''";

#[tokio::test]
async fn what_was_exported_can_be_imported() {
    let place = Place::new().await;
    place.client.batch_execute(EVERY_TYPE).await.unwrap();
    let wanted = place.rows("things").await;
    let types: String = place.client.query_one(TYPES, &[&"things"]).await.unwrap().get(0);
    for file in ["a.csv", "a.tsv", "a.parquet"] {
        let path = place.path(file);
        let summary = place.run(&["export", "things", &path]);
        assert_eq!((&summary["rows"], &summary["files"][0]["rows"]), (&4.into(), &4.into()));
        place
            .client
            .batch_execute("DROP TABLE IF EXISTS copy; CREATE TABLE copy (LIKE things INCLUDING GENERATED)")
            .await
            .unwrap();
        assert_eq!(place.run(&["import", "copy", &path])["rows"], 4, "{file}");
        assert_eq!(place.rows("copy").await, wanted, "{file}");
    }
    // The file knows of what types its columns were.
    let summary = place.run(&["import", "made", &place.path("a.parquet"), "--create", "--primary-key", "id"]);
    assert!(summary["created"].as_str().unwrap().contains("PRIMARY KEY (\"id\")"), "{summary}");
    let made: String = place.client.query_one(TYPES, &[&"made"]).await.unwrap().get(0);
    // A domain is its type where a result is described.
    assert_eq!(made, types.replace("positive", "integer"));
    let columns = "id, b, n38, t, d, tz, iv, jb, ia, ta, m, \"Odd, \"\"name\"";
    for compression in ["none", "snappy", "zstd"] {
        let path = place.path(&format!("{compression}.parquet"));
        let query = format!("SELECT {columns} FROM made ORDER BY id;");
        place.run(&["export", "--query", &query, &path, "--compression", compression]);
        let table = format!("by_{compression}");
        place.run(&["import", &table, &path, "--create"]);
        let differences = format!(
            "SELECT count(*) FROM (SELECT ROW({columns})::text FROM things EXCEPT SELECT whole::text FROM {table} whole) d"
        );
        assert_eq!(place.number(&differences).await, 0, "{compression}");
    }
    place.cluster.stop();
}

#[tokio::test]
async fn what_parquet_cannot_say_is_refused() {
    let place = Place::new().await;
    for (value, what) in [
        ("'infinity'::date", "infinite dates"),
        ("'294276-12-31'::timestamp", "timestamp so late"),
        ("'-infinity'::timestamptz", "infinite timestamps"),
        ("'NaN'::numeric(5,2)", "NaN"),
        ("'24:00'::time", "24:00"),
        ("1 AS a, 2 AS a", "two columns are called a"),
    ] {
        let path = place.path("x.parquet");
        let said = place.failure(&["export", "--query", &format!("SELECT {value}"), &path]);
        assert!(said.contains(what) && said.contains("hint: "), "{said}");
    }
    assert_eq!(place.names(), [""; 0], "nothing is left of an export that failed");
    place.cluster.stop();
}

#[tokio::test]
async fn postgresql_writes_and_reads_the_same_csv() {
    let place = Place::new().await;
    let postgresql = PostgreSql::start();
    let other = postgresql.connect().await;
    let table =
        "CREATE TABLE t (id int PRIMARY KEY, a text, b numeric(8,3), c timestamptz, d jsonb, e text[])";
    let rows = "INSERT INTO t VALUES (1, 'a', 1.5, '2024-01-01 00:00:00+00', '{\"k\": \"v\"}', '{a,\"b c\"}'), \
                (2, NULL, NULL, NULL, NULL, NULL), (3, '', 0, 'epoch', '[]', '{}'), (4, E'\\\\.', 1, 'epoch', '1', '{}'), \
                (5, E'x\n\"y\",\\\\', -1, '0001-01-01 00:00:00+00 BC', 'null', '{NULL}')";
    for client in [&place.client, &other] {
        client.batch_execute(&format!("{table}; {rows}")).await.unwrap();
        client.batch_execute("CREATE TABLE back (LIKE t)").await.unwrap();
    }
    let socket = postgresql.socket().to_str().unwrap().replace('/', "%2F");
    let url = format!("postgresql://dormouse@{socket}/postgres?sslmode=disable");
    let (ours, theirs) = (place.path("ours.csv"), place.path("theirs.csv"));
    let query = "SELECT * FROM t ORDER BY id";
    place.run(&["export", "--query", query, &ours]);
    place.cluster.json(&["export", "--query", query, &theirs, "--url", &url]);
    assert_eq!(fs::read_to_string(&ours).unwrap(), fs::read_to_string(&theirs).unwrap());
    let copied = other.copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT CSV HEADER").await.unwrap();
    let copied: Vec<bytes::Bytes> = copied.try_collect().await.unwrap();
    assert_eq!(fs::read(&theirs).unwrap(), copied.concat());
    place.cluster.json(&["import", "back", &ours, "--url", &url]);
    place.run(&["import", "back", &theirs]);
    for client in [&place.client, &other] {
        let count = "SELECT count(*) FROM (SELECT whole::text FROM t whole EXCEPT SELECT other::text FROM back other) d";
        assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 0);
    }
    place.cluster.stop();
}

#[tokio::test]
async fn files_of_bounded_size_are_one_snapshot() {
    let place = Place::new().await;
    place.client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t SELECT i, repeat(md5(i::text), 3) FROM generate_series(1, 20000) i").await.unwrap();
    for (extension, most) in [("csv", 300_000u64), ("parquet", 600_000)] {
        let path = place.path(&format!("t.{extension}"));
        let size = most.to_string();
        let summary = place.run(&["export", "t", &path, "--max-file-bytes", &size, "--compression", "none"]);
        let files = summary["files"].as_array().unwrap();
        assert!(files.len() > 2, "{summary}");
        for file in files {
            let length = fs::metadata(file["file"].as_str().unwrap()).unwrap().len();
            assert!(length <= most && file["bytes"] == length, "{file}");
        }
        place.client.batch_execute("DROP TABLE IF EXISTS copy").await.unwrap();
        let pattern = place.path(&format!("t-*.{extension}"));
        let summary = place.run(&[
            "import",
            "copy",
            &pattern,
            "--create",
            "--primary-key",
            "id",
            "--batch-rows",
            "700",
        ]);
        assert_eq!(
            (&summary["rows"], summary["files"].as_array().unwrap().len()),
            (&20_000.into(), files.len())
        );
        assert_eq!(place.rows("copy").await, place.rows("t").await);
        assert!(place.failure(&["export", "t", &path, "--max-file-bytes", &size]).contains("exists"));
        place.run(&["export", "t", &path, "--max-file-bytes", "1GiB", "--overwrite"]);
        let left = place.names().into_iter().filter(|name| name.ends_with(extension)).collect::<Vec<_>>();
        assert_eq!(left, [format!("t-00001.{extension}")]);
    }
    // The past, and a table without rows.
    let then: String = place.client.query_one("SELECT now()::text", &[]).await.unwrap().get(0);
    place.client.batch_execute("DELETE FROM t").await.unwrap();
    assert_eq!(place.run(&["export", "t", &place.path("then.csv"), "--as-of", &then])["rows"], 20_000);
    assert_eq!(place.run(&["export", "t", &place.path("now.csv")])["rows"], 0);
    assert_eq!(fs::read_to_string(place.path("now.csv")).unwrap(), "id,a\n");
    assert_eq!(place.run(&["export", "t", &place.path("now.parquet")])["rows"], 0);
    assert_eq!(place.run(&["import", "t", &place.path("now.csv"), &place.path("now.parquet")])["rows"], 0);
    place.cluster.stop();
}

#[tokio::test]
async fn tables_are_made_of_what_files_have() {
    let place = Place::new().await;
    let people = place.write(
        "people.csv",
        "\u{feff}id,name,zip,height,born,\"Last seen\",ok\r\n1,\"Ann \"\"A\"\"\",01234,1.70,2000-02-29,2024-01-01 12:00:00,t\r\n2,,99999,,,,f\r\n",
    );
    let summary = place.run(&["import", "people", &people, "--create"]);
    assert_eq!(
        summary["created"],
        "CREATE TABLE \"people\" (\"id\" bigint, \"name\" text, \"zip\" text, \"height\" numeric, \"born\" date, \"Last seen\" timestamp, \"ok\" boolean)"
    );
    let row = "(1,\"Ann \"\"A\"\"\",01234,1.70,2000-02-29,\"2024-01-01 12:00:00\",t)";
    assert_eq!(place.rows("people").await, [row, "(2,,99999,,,,f)"]);
    // Another dialect, in the order of the file, into some of the columns.
    let other = place.write("other.txt", "x;NULL;7\ny;'NULL';8\n");
    let dialect = ["--format", "csv", "--delimiter", ";", "--quote", "'", "--null", "NULL", "--no-header"];
    let columns = ["--columns", "zip,name,id"];
    place.run(&[&["import", "people", &other][..], &dialect, &columns].concat());
    let added = place.client.query("SELECT name FROM people WHERE id > 6 ORDER BY id", &[]).await.unwrap();
    assert_eq!(
        added.iter().map(|row| row.get(0)).collect::<Vec<Option<String>>>(),
        [None, Some("NULL".into())]
    );
    let summary = place.run(&[
        "import",
        "public.bare",
        &other,
        "--create",
        "--format",
        "csv",
        "--no-header",
        "--types",
        "text",
    ]);
    assert_eq!(summary["created"], "CREATE TABLE \"public\".\"bare\" (\"column1\" text)");
    let said = place.failure(&["import", "nowhere", &people]);
    assert!(said.contains("does not exist") && said.contains("--create"), "{said}");
    place.cluster.stop();
}

#[test]
fn help_has_examples() {
    for command in ["import", "export"] {
        let output = crate::cluster::dormouse().args([command, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("Examples:") && text.contains("s3://"), "{text}");
    }
}
