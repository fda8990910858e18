//! Tenants: create, list, show, change, suspend, resume, drop.

use super::error::ApiError;
use super::{Api, Shared, parse};
use crate::fleet::TenantStatus;
use crate::record::{SettingsChange, TenantRecord, TenantSettings};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tenants of one page, unless asked for fewer, and at most.
const PAGE: usize = 1000;

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/tenants", get(list).post(create))
        .route("/tenants/{name}", get(show).patch(set).delete(drop_tenant))
        .route("/tenants/{name}/suspend", post(suspend))
        .route("/tenants/{name}/resume", post(resume))
}

/// A tenant as the API shows it.
#[derive(Serialize)]
struct TenantView {
    id: u64,
    name: String,
    /// `suspended`, `waking` or `running`.
    state: &'static str,
    connections: u64,
    /// The SQL node, while there is one.
    node: Option<String>,
    /// Seconds since 1970.
    created: u64,
    catalog_version: u32,
    owner: String,
    idle_timeout_ms: Option<u64>,
    max_connections: Option<u32>,
    /// Replicas its ranges are to have; null is the default.
    replicas: Option<u32>,
    constraints: Vec<String>,
    lease_preferences: Vec<String>,
    /// How long replaced versions are kept, in seconds; null is the default.
    gc_ttl_s: Option<u64>,
    /// Only from `create`: it holds the only copy of the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

fn view(api: &Api, record: &TenantRecord) -> TenantView {
    let status = api.control.status(record.id);
    let (node, connections) = match &status {
        TenantStatus::Running { node, connections } => (Some(node.to_string()), *connections),
        _ => (None, 0),
    };
    let placement = record.settings.placement.clone();
    TenantView {
        id: record.id,
        name: record.name.clone(),
        state: status.word(),
        connections,
        node,
        created: record.created_unix_s,
        catalog_version: record.catalog_version,
        owner: record.owner_role.clone(),
        idle_timeout_ms: record.settings.idle_timeout_ms,
        max_connections: record.settings.max_connections,
        replicas: placement.replicas,
        constraints: placement.constraints,
        lease_preferences: placement.lease_preferences,
        gc_ttl_s: placement.gc_ttl_s,
        url: None,
    }
}

#[derive(Deserialize)]
struct PageQuery {
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Page {
    tenants: Vec<TenantView>,
    /// `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

async fn list(State(api): Shared, Query(page): Query<PageQuery>) -> Result<Json<Page>, ApiError> {
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let mut records = api.control.directory().list(&page.after, limit + 1).await?;
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| more).map(|record| record.name.clone());
    Ok(Json(Page { tenants: records.iter().map(|record| view(&api, record)).collect(), next }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateRequest {
    name: String,
    idle_timeout_ms: Option<u64>,
    max_connections: Option<u32>,
}

async fn create(State(api): Shared, body: Bytes) -> Result<impl IntoResponse, ApiError> {
    let CreateRequest { name, idle_timeout_ms, max_connections } = parse(&body)?;
    let settings = TenantSettings { idle_timeout_ms, max_connections, ..TenantSettings::default() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let created = api.control.create(&name, settings, now.as_secs()).await?;
    let url = url(&api.sql_address(), &created.record, &created.password);
    let view = TenantView { url: Some(url), ..view(&api, &created.record) };
    Ok((StatusCode::CREATED, Json(view)))
}

/// What a client connects with. None of its parts needs escaping.
fn url(address: &str, record: &TenantRecord, password: &str) -> String {
    let (role, name) = (&record.owner_role, &record.name);
    format!("postgresql://{role}:{password}@{address}/{name}.postgres?sslmode=require")
}

async fn show(State(api): Shared, Path(name): Path<String>) -> Result<Json<TenantView>, ApiError> {
    Ok(Json(view(&api, &*api.control.directory().get(&name).await?)))
}

async fn set(
    State(api): Shared,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<TenantView>, ApiError> {
    let changes: serde_json::Map<String, Value> = parse(&body)?;
    let mut change = SettingsChange::default();
    for (field, value) in changes {
        match field.as_str() {
            "idle_timeout_ms" => change.idle_timeout_ms = Some(setting(&field, value)?),
            "max_connections" => change.max_connections = Some(setting(&field, value)?),
            "replicas" => change.replicas = Some(setting(&field, value)?),
            "constraints" => change.constraints = Some(setting(&field, value)?),
            "lease_preferences" => change.lease_preferences = Some(setting(&field, value)?),
            "gc_ttl_s" => change.gc_ttl_s = Some(setting(&field, value)?),
            _ => return Err(ApiError::bad_request(format!("there is no setting \"{field}\""))),
        }
    }
    Ok(Json(view(&api, &*api.control.set(&name, change).await?)))
}

/// A setting's new value; where it is an option, null returns it to the cluster's default.
fn setting<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, ApiError> {
    serde_json::from_value(value).map_err(|error| ApiError::bad_request(format!("{field}: {error}")))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct SuspendRequest {
    #[serde(default)]
    force: bool,
}

async fn suspend(
    State(api): Shared,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<TenantView>, ApiError> {
    let request: SuspendRequest = if body.is_empty() { SuspendRequest::default() } else { parse(&body)? };
    Ok(Json(view(&api, &*api.control.suspend(&name, request.force).await?)))
}

async fn resume(State(api): Shared, Path(name): Path<String>) -> Result<Json<TenantView>, ApiError> {
    api.control.resolve(&name).await?;
    show(State(api), Path(name)).await
}

async fn drop_tenant(State(api): Shared, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    api.control.drop_tenant(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
