//! Imports from and exports to object storage.

use super::Place;
use super::storage::{KEY_ID, Storage};
use crate::cluster::dormouse;
use std::process::Output;

impl Place {
    fn with(&self, storage: &Storage, arguments: &[&str]) -> Output {
        let mut command = dormouse();
        command.args(arguments).args(["--url", &self.url, "--output", "json"]);
        command.env("AWS_ENDPOINT_URL", storage.url()).env("AWS_REGION", "test-region");
        command
            .env("AWS_ACCESS_KEY_ID", KEY_ID)
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env_remove("AWS_SESSION_TOKEN");
        command.output().unwrap()
    }
}

fn assert_well(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn objects_are_written_listed_and_read() {
    let place = Place::new().await;
    let storage = Storage::start();
    place
        .client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 5000) i")
        .await
        .unwrap();
    for format in ["csv", "parquet"] {
        let name = format!("s3://bucket/folder/my file.{format}");
        // One write is refused for a while, and reads break off.
        storage.trouble(2, 1);
        assert_well(&place.with(&storage, &["export", "t", &name]));
        assert!(storage.names().contains(&format!("bucket/folder/my file.{format}")));
        place.client.batch_execute("DROP TABLE IF EXISTS back").await.unwrap();
        assert_well(&place.with(&storage, &["import", "back", &name, "--create"]));
        assert_eq!(place.rows("back").await, place.rows("t").await, "{format}");
        let said = place.with(&storage, &["export", "t", &name]);
        assert!(String::from_utf8_lossy(&said.stderr).contains("exists"));
    }
    storage.trouble(0, 0);
    assert_well(&place.with(&storage, &["export", "t", "s3://bucket/t.csv", "--max-file-bytes", "40KB"]));
    place.client.batch_execute("TRUNCATE back").await.unwrap();
    assert_well(&place.with(&storage, &["import", "back", "s3://bucket/t-*.csv"]));
    assert_eq!(place.rows("back").await, place.rows("t").await);
    place.cluster.stop();
}

#[tokio::test]
async fn what_object_storage_refuses_is_said() {
    let place = Place::new().await;
    let storage = Storage::start();
    place.client.batch_execute("CREATE TABLE t (id int)").await.unwrap();
    let said = place.with(&storage, &["import", "t", "s3://bucket/none.csv"]);
    assert!(
        String::from_utf8_lossy(&said.stderr).contains("s3://bucket/none.csv does not exist"),
        "{said:?}"
    );
    let said = place.with(&storage, &["export", "t", "s3://bucket/a.csv", "--region", "elsewhere"]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("403"), "{said:?}");
    // An export that fails leaves nothing: not even the objects that were complete.
    let query =
        "SELECT CASE WHEN i < 5000 THEN i ELSE 1 / (5000 - i) END AS id FROM generate_series(1, 5000) i";
    let export = ["export", "--query", query, "s3://bucket/t.csv", "--max-file-bytes", "2000"];
    let said = place.with(&storage, &export);
    assert!(String::from_utf8_lossy(&said.stderr).contains("SQLSTATE 22012"), "{said:?}");
    assert_eq!(storage.names(), [""; 0]);
    let was_sent = storage.requests().iter().any(|request| request.starts_with("PUT"));
    assert_eq!(was_sent, storage.requests().iter().any(|request| request.starts_with("DELETE")));
    place.cluster.stop();
}
