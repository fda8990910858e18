//! Tenants from the command line and over HTTP.

use crate::cluster::{Cluster, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn a_tenants_life() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let app = cluster.json(&["tenant", "create", "app", "--idle-timeout", "never"]);
    assert_eq!((app["id"].as_u64(), app["name"].as_str()), (Some(2), Some("app")));
    let url = app["url"].as_str().unwrap();
    let sql = cluster.addresses()["sql"].as_str().unwrap().to_owned();
    assert!(url.starts_with("postgresql://dormouse:") && url.ends_with("/app.postgres?sslmode=require"));
    assert!(url.contains(&format!("@{sql}/")), "{url} names the proxy");
    assert_eq!(cluster.state("app"), "suspended");

    assert_eq!(cluster.json(&["tenant", "resume", "app"])["state"], "running");
    assert_eq!(cluster.json(&["tenant", "suspend", "app"])["state"], "suspended");
    let changed = cluster.json(&["tenant", "set", "app", "--max-connections", "5", "--idle-timeout", "90s"]);
    assert_eq!((&changed["max_connections"], &changed["idle_timeout_ms"]), (&5.into(), &90_000.into()));
    let changed = cluster.json(&["tenant", "set", "app", "--max-connections", "default"]);
    assert_eq!((&changed["max_connections"], &changed["idle_timeout_ms"]), (&Value::Null, &90_000.into()));

    cluster.json(&["tenant", "create", "other"]);
    let list = cluster.json(&["tenant", "list"]);
    let names: Vec<_> =
        list.as_array().unwrap().iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["app", "other"]);
    assert!(
        list.as_array().unwrap().iter().all(|tenant| tenant.get("url").is_none()),
        "a password is told once"
    );

    cluster.json(&["tenant", "drop", "app"]);
    assert!(cluster.failure(&["tenant", "show", "app"]).contains("tenant \"app\" does not exist\nhint: "));
    let again = cluster.json(&["tenant", "create", "app"]);
    assert_eq!(again["id"], 4, "numbers are not used again");
    cluster.stop();
}

#[test]
fn what_cannot_be_done_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.json(&["tenant", "create", "app"]);
    assert!(
        cluster
            .failure(&["tenant", "create", "app"])
            .starts_with("error: tenant \"app\" already exists\nhint: ")
    );
    for bad in ["App", "9a", "a_b", "a.b", "", &"x".repeat(64), "../x"] {
        assert!(
            cluster.failure(&["tenant", "create", bad]).starts_with("error: a tenant's name "),
            "{bad:?}"
        );
    }
    for command in ["show", "suspend", "resume", "drop"] {
        assert!(cluster.failure(&["tenant", command, "nobody"]).contains("does not exist"), "{command}");
    }
    assert_eq!(cluster.run(&["tenant", "set", "app"]).status.code(), Some(2));
    assert_eq!(cluster.run(&["tenant", "set", "app", "--idle-timeout", "5"]).status.code(), Some(2));
    cluster.stop();
}

#[test]
fn an_idle_tenant_is_suspended_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(directory.path(), &["--idle-timeout", "200ms"]);
    cluster.json(&["tenant", "create", "app"]);
    cluster.json(&["tenant", "resume", "app"]);
    wait_until("the tenant is suspended", || cluster.state("app") == "suspended");
    cluster.stop();
}

#[test]
fn tenants_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let id = cluster.json(&["tenant", "create", "app"])["id"].clone();
    cluster.stop();
    let cluster = Cluster::start(directory.path());
    assert_eq!(cluster.json(&["tenant", "show", "app"])["id"], id);
    // Not in order, this time.
    cluster.kill();
    let cluster = Cluster::start(directory.path());
    assert_eq!(cluster.json(&["tenant", "resume", "app"])["state"], "running");
    cluster.stop();
}

/// A request as anybody could send it; the status and the body.
fn http(cluster: &Cluster, path: &str, token: Option<&str>) -> (u16, String) {
    let address = cluster.addresses()["http"].as_str().unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    let authorization = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_api_wants_its_token_and_the_rest_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("admin.token")).unwrap();
    for wrong in [None, Some(""), Some("x"), Some(&token[1..])] {
        for path in ["/api/v1/tenants", "/api/v1/nodes", "/api/v1/nothing"] {
            let (status, body) = http(&cluster, path, wrong);
            assert_eq!(status, 401);
            assert!(body.contains("\"code\":\"unauthorized\""), "{body}");
        }
    }
    let (status, body) = http(&cluster, "/api/v1/status", Some(&token));
    assert_eq!(status, 200, "{body}");
    assert_eq!(http(&cluster, "/api/v1/nothing", Some(&token)).0, 404);
    assert_eq!(http(&cluster, "/healthz", None), (200, "ok\n".to_owned()));
    let (status, metrics) = http(&cluster, "/metrics", None);
    assert!(status == 200 && metrics.contains("dormouse_control_nodes{state=\"warm\"}"), "{metrics}");
    let (status, page) = http(&cluster, "/", None);
    assert!(status == 200 && page.contains("<title>Dormouse</title>") && !page.contains(&token));
    cluster.stop();
}
