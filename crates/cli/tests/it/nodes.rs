//! Several KV nodes under one supervisor.

use crate::cluster::{Cluster, dormouse, is_alive, send, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Addresses of the KV nodes listed, in the order of their numbers.
fn addresses(nodes: &Value) -> Vec<String> {
    nodes.as_array().unwrap().iter().map(|node| node["address"].as_str().unwrap().to_owned()).collect()
}

/// Process numbers of the KV nodes.
fn kv_processes(cluster: &Cluster) -> BTreeSet<u32> {
    cluster.processes().into_iter().filter(|(role, _)| role == "kv").map(|(_, pid)| pid).collect()
}

/// What a start on a directory that must fail says.
fn refused_start(data_dir: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = dormouse();
    command.args(["start", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir"]);
    let output = command.arg(data_dir).args(flags).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn three_nodes_are_listed_keep_their_addresses_and_are_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(directory.path(), &["--nodes", "3"]);
    cluster.create("app");
    let all_live = |cluster: &Cluster| {
        let nodes = cluster.json(&["node", "list"]);
        let nodes = nodes.as_array().unwrap();
        nodes.len() == 3 && nodes.iter().all(|node| node["state"] == "live")
    };
    wait_until("three nodes are live", || all_live(&cluster));
    let nodes = cluster.json(&["node", "list"]);
    let ids: Vec<_> = nodes.as_array().unwrap().iter().map(|node| node["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3]);
    let listening = cluster.addresses()["kv_nodes"].clone();
    assert_eq!(serde_json::json!(addresses(&nodes)), listening);
    let pids: BTreeSet<u32> = nodes
        .as_array()
        .unwrap()
        .iter()
        .map(|node| u32::try_from(node["pid"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(pids, kv_processes(&cluster));
    let holders = nodes.as_array().unwrap().iter().filter(|node| node["leaseholder"] == true).count();
    assert_eq!(holders, 1);

    for pid in pids {
        send(pid, "KILL");
        wait_until("the node is started again", || !is_alive(pid) && kv_processes(&cluster).len() == 3);
        wait_until("three nodes are live", || all_live(&cluster));
        assert_eq!(cluster.json(&["tenant", "resume", "app"])["state"], "running");
        cluster.json(&["tenant", "suspend", "app"]);
    }
    cluster.stop();

    let (code, said) = refused_start(directory.path(), &["--nodes", "2"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("has 3 KV nodes") && said.contains("hint: "), "{said}");
    let cluster = Cluster::start(directory.path());
    wait_until("three nodes are live", || all_live(&cluster));
    assert_eq!(cluster.addresses()["kv_nodes"], listening);
    assert_eq!(cluster.json(&["tenant", "resume", "app"])["state"], "running");
    cluster.stop();
}

#[test]
fn a_cluster_of_one_grows() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.create("app");
    cluster.stop();
    let cluster = Cluster::start_with(directory.path(), &["--nodes", "3"]);
    wait_until("three nodes are listed", || cluster.json(&["node", "list"]).as_array().unwrap().len() == 3);
    assert_eq!(cluster.json(&["tenant", "resume", "app"])["state"], "running");
    cluster.stop();
}

#[test]
fn a_number_of_nodes_that_makes_no_sense_is_wrong_usage() {
    let directory = tempfile::tempdir().unwrap();
    for count in ["0", "10", "x"] {
        let (code, said) = refused_start(directory.path(), &["--nodes", count]);
        assert_eq!(code, Some(2), "{said}");
    }
}

#[test]
fn a_node_that_cannot_be_spared_is_not_drained() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    for id in ["1", "7"] {
        let said = cluster.failure(&["node", "drain", id]);
        assert!(said.contains("error: ") && said.contains("hint: "), "{said}");
    }
    assert_eq!(cluster.json(&["node", "list"])[0]["state"], "live");
    cluster.stop();
}
