//! Processes that die, and the end of a system.

use crate::cluster::{Cluster, is_alive, send, wait_until};
use serde_json::Value;

/// Sends SIGKILL to the process of a role and waits until there is another.
fn kill_and_wait_for_the_next(cluster: &Cluster, role: &str) {
    let pid = cluster.process(role);
    send(pid, "KILL");
    wait_until(&format!("{role} is started again"), || {
        !is_alive(pid) && cluster.processes().iter().any(|(name, now)| name == role && *now != pid)
    });
}

#[test]
fn whatever_dies_is_started_again_on_the_same_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let before = cluster.addresses();
    cluster.json(&["tenant", "create", "app"]);
    for role in ["kv", "proxy", "control"] {
        kill_and_wait_for_the_next(&cluster, role);
        wait_until("control answers", || cluster.run(&["tenant", "show", "app"]).status.success());
        assert_eq!(cluster.json(&["tenant", "resume", "app"])["state"], "running", "after the end of {role}");
        cluster.json(&["tenant", "suspend", "app"]);
    }
    assert_eq!(cluster.addresses(), before);
    cluster.stop();
}

#[test]
fn a_sql_node_outlives_control_and_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.json(&["tenant", "create", "app"]);
    let node = cluster.json(&["tenant", "resume", "app"])["node"].clone();
    let pid = node_process(&cluster, &node);
    kill_and_wait_for_the_next(&cluster, "control");
    wait_until("control answers", || cluster.run(&["tenant", "show", "app"]).status.success());
    assert_eq!(cluster.json(&["tenant", "resume", "app"])["node"], node);
    assert_eq!(node_process(&cluster, &node), pid);
    cluster.stop();
}

#[test]
fn a_sql_node_that_dies_is_replaced_when_it_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.json(&["tenant", "create", "app"]);
    let node = cluster.json(&["tenant", "resume", "app"])["node"].clone();
    send(node_process(&cluster, &node), "KILL");
    wait_until("its end is noticed", || cluster.state("app") == "suspended");
    let resumed = cluster.json(&["tenant", "resume", "app"]);
    assert_eq!(resumed["state"], "running");
    assert_ne!(resumed["node"], node);
    cluster.stop();
}

fn node_process(cluster: &Cluster, node: &Value) -> u32 {
    let nodes = cluster.json(&["node", "list", "--sql"]);
    let found = nodes.as_array().unwrap().iter().find(|listed| listed["name"] == *node);
    u32::try_from(found.expect("the node is listed")["pid"].as_u64().unwrap()).unwrap()
}

#[test]
fn the_kv_node_is_listed_with_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let nodes = cluster.json(&["node", "list"]);
    let node = &nodes[0];
    assert_eq!((node["id"].as_u64(), node["state"].as_str()), (Some(1), Some("live")));
    assert_eq!(node["address"], cluster.addresses()["kv"]);
    assert_eq!(node["pid"].as_u64(), Some(u64::from(cluster.process("kv"))));
    assert!(node["locality"].is_string());
    cluster.stop();
}

#[test]
fn nothing_is_left_when_the_supervisor_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.json(&["tenant", "create", "app"]);
    cluster.json(&["tenant", "resume", "app"]);
    cluster.kill();
}

#[test]
fn nothing_is_left_when_control_died_first() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.json(&["tenant", "create", "app"]);
    cluster.json(&["tenant", "resume", "app"]);
    // SQL nodes are the supervisor's from here on.
    kill_and_wait_for_the_next(&cluster, "control");
    cluster.stop();
}
