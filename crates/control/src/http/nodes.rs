//! Nodes, and the state of the whole.

use super::error::ApiError;
use super::{Api, Shared};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long the KV node may take to accept a connection.
const KV_PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/nodes", get(kv_nodes))
        .route("/sql-nodes", get(sql_nodes))
        .route("/status", get(status))
}

/// A KV node as the API shows it.
#[derive(Serialize)]
struct KvNodeView {
    id: u64,
    address: String,
    locality: String,
    /// `live` or `dead`.
    state: &'static str,
    /// Its process, if it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// What a KV node of this machine wrote about itself.
#[derive(Deserialize)]
struct KvAddress {
    pid: Option<u32>,
}

async fn kv_nodes(State(api): Shared) -> Json<Value> {
    Json(json!({ "nodes": [kv_node(&api).await] }))
}

/// The one KV node there is today.
async fn kv_node(api: &Api) -> KvNodeView {
    let connected = tokio::time::timeout(KV_PATIENCE, TcpStream::connect(&api.kv_address)).await;
    let state = if matches!(connected, Ok(Ok(_))) { "live" } else { "dead" };
    let written = api.kv_address_file.as_ref().and_then(|path| std::fs::read(path).ok());
    let written = written.and_then(|bytes| serde_json::from_slice::<KvAddress>(&bytes).ok());
    let pid = written.and_then(|kv| kv.pid).filter(|_| state == "live");
    KvNodeView { id: 1, address: api.kv_address.clone(), locality: "machine=local".into(), state, pid }
}

async fn sql_nodes(State(api): Shared) -> Json<Value> {
    let nodes = api.control.sql_nodes();
    let views: Vec<Value> = nodes
        .iter()
        .map(|node| {
            json!({
                "name": &*node.name,
                "pid": node.pid,
                "state": node.state,
                "tenant_id": node.tenant_id,
                "connections": node.connections,
            })
        })
        .collect();
    Json(json!({ "nodes": views }))
}

async fn status(State(api): Shared) -> Result<Json<Value>, ApiError> {
    let (waking, running) = api.control.awake();
    let nodes = api.control.sql_nodes();
    let warm = nodes.iter().filter(|node| node.state == "warm").count();
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "sql_address": api.sql_address(),
        "kv": kv_node(&api).await,
        "tenants": { "waking": waking, "running": running },
        "sql_nodes": { "total": nodes.len(), "warm": warm },
    })))
}

/// The part of `addresses.json` that is of interest here.
#[derive(Deserialize)]
struct WrittenAddresses {
    sql: String,
}

impl Api {
    /// The address clients are told. A proxy that listens everywhere is reached through the loopback.
    pub(super) fn sql_address(&self) -> String {
        let written = std::fs::read(&self.addresses_file).ok();
        let written = written.and_then(|bytes| serde_json::from_slice::<WrittenAddresses>(&bytes).ok());
        let Some(WrittenAddresses { sql }) = written else { return "127.0.0.1:26257".into() };
        match sql.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
            _ => sql,
        }
    }
}
