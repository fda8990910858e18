//! TPC-H and TPC-C, small.

use crate::client::{config, connect};
use crate::cluster::Cluster;
use tokio_postgres::Client;
use workload::tpcc::consistency::CONDITIONS;
use workload::tpch::answers::Answer;
use workload::tpch::queries::QUERIES;

/// A tenant with the tables of a workload.
async fn loaded(cluster: &Cluster, workload: &str, flags: &[&str]) -> (String, Client) {
    let url = cluster.create("app");
    cluster.json(&[&["workload", "init", workload, "--url", &url], flags].concat());
    let client = connect(cluster, &config(cluster, &url)).await.unwrap();
    (url, client)
}

/// The answers that PostgreSQL 15 gives at scale 0.01: names of columns, then rows, with tabs between values.
macro_rules! answers {
    ($($name:literal)*) => { [$(include_str!(concat!("tpch/", $name, ".tsv"))),*] };
}

const ANSWERS: [&str; 22] = answers![
    "q01" "q02" "q03" "q04" "q05" "q06" "q07" "q08" "q09" "q10" "q11"
    "q12" "q13" "q14" "q15" "q16" "q17" "q18" "q19" "q20" "q21" "q22"
];

fn answer(text: &str) -> Answer {
    let value = |value: &str| (value != "\\N").then(|| value.to_owned());
    let mut lines = text.lines().map(|line| line.split('\t'));
    let columns = lines.next().unwrap().map(str::to_owned).collect();
    Answer { columns, rows: lines.map(|line| line.map(value).collect()).collect() }
}

#[tokio::test]
async fn both_engines_answer_tpch_as_postgresql_does() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let (url, client) = loaded(&cluster, "tpch", &["--scale", "0.01"]).await;
    let scale = "0.01".parse().unwrap();
    for engine in ["auto", "row", "analytic"] {
        client.batch_execute(&format!("SET engine = {engine}")).await.unwrap();
        for (query, wanted) in QUERIES.iter().zip(ANSWERS) {
            let found = Answer::of(&client, &query.text(scale)).await.unwrap();
            let difference = found.difference(&answer(wanted), query.ordered_by);
            assert_eq!(difference, None, "{} by engine {engine}", query.name);
        }
    }
    // What a server answers, it answers again.
    let report =
        cluster.json(&["workload", "check", "tpch", "--scale", "0.01", "--url", &url, "--against", &url]);
    assert_eq!((&report["ok"], &report["lineitem"]), (&true.into(), &60_175.into()));
    cluster.stop();
}

/// For each condition, what breaks it.
const DAMAGES: [&str; 12] = [
    "UPDATE warehouse SET w_ytd = w_ytd + 1",
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 4",
    "DELETE FROM new_order WHERE no_d_id = 4 AND no_o_id = (SELECT max(no_o_id) - 1 FROM new_order WHERE no_d_id = 4)",
    "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_d_id = 4 AND o_id = 7",
    "UPDATE orders SET o_carrier_id = NULL WHERE o_d_id = 4 AND o_id = 7",
    "DELETE FROM order_line WHERE ol_d_id = 4 AND ol_o_id = 7 AND ol_number = 1",
    "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_d_id = 4 AND ol_o_id = 7 AND ol_number = 1",
    "UPDATE history SET h_amount = h_amount + 1 WHERE h_c_d_id = 4 AND h_c_id = 7",
    "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 4",
    "UPDATE customer SET c_balance = c_balance + 1 WHERE c_d_id = 4 AND c_id = 7",
    "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_d_id = 4 AND c_id = 7",
    "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_d_id = 4 AND c_id = 7",
];

#[tokio::test]
async fn tpcc_keeps_its_conditions_and_each_can_be_broken() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let (url, client) = loaded(&cluster, "tpcc", &[]).await;
    let run = cluster.json(&["workload", "run", "tpcc", "--url", &url, "--duration", "3s", "--quiet"]);
    assert!(run["operations"].as_u64().unwrap() > 0, "{run}");
    assert_eq!(cluster.json(&["workload", "check", "tpcc", "--url", &url])["ok"], true);
    for (condition, damage) in CONDITIONS.iter().zip(DAMAGES) {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute(damage).await.unwrap();
        let broken = condition.broken_by(&client).await.unwrap();
        assert!(!broken.is_empty(), "condition {} holds after {damage}", condition.name);
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(condition.broken_by(&client).await.unwrap(), [""; 0], "{}", condition.name);
    }
    assert!(
        cluster
            .failure(&["workload", "check", "tpcc", "--url", &url, "--warehouses", "2"])
            .contains("failed")
    );
    cluster.stop();
}
