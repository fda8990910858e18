//! Who waits for whom, seen through real processes.

use crate::client::{config, connect};
use crate::cluster::Cluster;
use tokio_postgres::Client;

/// The rows of a query as text, once it has some.
async fn rows(client: &Client, text: &str) -> Vec<Vec<String>> {
    loop {
        let messages = client.simple_query(text).await.unwrap();
        let rows: Vec<Vec<String>> = messages
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            })
            .map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect())
            .collect();
        if !rows.is_empty() {
            return rows;
        }
        tokio::task::yield_now().await;
    }
}

async fn pid(client: &Client) -> String {
    rows(client, "SELECT pg_backend_pid()").await[0][0].clone()
}

#[tokio::test]
async fn a_third_session_sees_who_waits_for_whom_and_then_who_did() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let app = cluster.json(&["tenant", "create", "app"]);
    let config = config(&cluster, app["url"].as_str().unwrap());
    let holder = connect(&cluster, &config).await.unwrap();
    let waiter = connect(&cluster, &config).await.unwrap();
    let onlooker = connect(&cluster, &config).await.unwrap();
    let table = "CREATE TABLE t (a int PRIMARY KEY, n int); INSERT INTO t VALUES (7, 0)";
    holder.batch_execute(table).await.unwrap();
    let (blocking, blocked) = (pid(&holder).await, pid(&waiter).await);
    holder.batch_execute("BEGIN; UPDATE t SET n = n + 1 WHERE a = 7").await.unwrap();
    let waiting = tokio::spawn(async move {
        waiter.batch_execute("UPDATE t SET n = n + 1 WHERE a = 7").await.unwrap();
    });
    let who = "SELECT l.pid, l.table_name, l.key, a.pid, a.state FROM pg_dormouse.locks l, \
               unnest(l.blocking_pids) b JOIN pg_stat_activity a ON a.pid = b WHERE NOT l.granted";
    let seen = rows(&onlooker, who).await;
    assert_eq!(seen, [[&blocked, "t", "(a)=(7)", &blocking, "idle in transaction"]]);
    let pids = rows(&onlooker, &format!("SELECT pg_blocking_pids({blocked})")).await;
    assert_eq!(pids, [[format!("{{{blocking}}}")]]);
    assert_eq!(rows(&onlooker, "SHOW LOCKS").await.len(), 2);

    holder.batch_execute("COMMIT").await.unwrap();
    waiting.await.unwrap();
    let most = "SELECT table_name, key, count(*), sum(duration) > '0'::interval \
                FROM pg_dormouse.contention_events GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10";
    assert_eq!(rows(&onlooker, most).await, [["t", "(a)=(7)", "1", "t"]]);
    cluster.stop();
}
