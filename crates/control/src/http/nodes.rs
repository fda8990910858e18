//! Nodes, and the state of the whole.

use super::error::ApiError;
use super::{Api, Shared, parse};
use crate::kv_nodes::KvNodeView;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/nodes", get(kv_nodes))
        .route("/nodes/{id}/drain", post(drain))
        .route("/sql-nodes", get(sql_nodes))
        .route("/status", get(status))
}

async fn kv_nodes(State(api): Shared) -> Json<Value> {
    Json(json!({ "nodes": api.kv_nodes.list().await }))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    #[serde(default)]
    undo: bool,
}

async fn drain(
    State(api): Shared,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<KvNodeView>, ApiError> {
    let id = id.parse().map_err(|_| ApiError::bad_request(format!("\"{id}\" is no number of a node")))?;
    let request: DrainRequest = if body.is_empty() { DrainRequest::default() } else { parse(&body)? };
    api.kv_nodes.drain(id, request.undo).await?;
    let node = api.kv_nodes.list().await.into_iter().find(|node| node.id == Some(id));
    node.map(Json).ok_or_else(|| ApiError::unknown_node(id))
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
    let kv_nodes = api.kv_nodes.list().await;
    let live = kv_nodes.iter().filter(|node| node.state != "dead").count();
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "sql_address": api.sql_address(),
        "kv_nodes": { "total": kv_nodes.len(), "live": live },
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
