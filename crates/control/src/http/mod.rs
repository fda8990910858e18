//! The HTTP API under `/api/v1`, metrics, and a status page.
//!
//! Everything under `/api/v1` wants `Authorization: Bearer <token>`; the token is compared in constant
//! time. `/healthz`, `/metrics` and the page itself (which holds no data: it asks the API with a token
//! that its user enters) do not. Errors are `{"error": {"code", "message", "hint"}}` with a fitting
//! status.

mod error;
mod nodes;
mod ranges;
mod tenants;

use crate::kv_nodes::KvNodes;
use crate::ranges::Ranges;
use crate::service::Control;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use error::ApiError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Longest body of a request, in bytes.
const MAX_BODY: usize = 64 << 10;
/// Most time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// What the handlers share.
pub(crate) struct Api {
    pub control: Arc<Control>,
    pub token: String,
    /// `addresses.json`; read when an address is needed, since the proxy starts after control.
    pub addresses_file: PathBuf,
    pub kv_nodes: KvNodes,
    pub ranges: Ranges,
}

type Shared = State<Arc<Api>>;

/// All routes.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let v1 = Router::new()
        .route("/", get(overview))
        .merge(tenants::routes())
        .merge(nodes::routes())
        .merge(ranges::routes())
        .fallback(async || ApiError::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .layer(middleware::from_fn_with_state(Arc::clone(&api), authenticate));
    Router::new()
        .nest("/api/v1", v1)
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), count))
        .with_state(api)
}

async fn authenticate(State(api): Shared, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = given.and_then(|value| value.strip_prefix(b"Bearer "));
    match token {
        Some(token) if bool::from(token.ct_eq(api.token.as_bytes())) => match with_body(request).await {
            Ok(request) => next.run(request).await,
            Err(error) => error.into_response(),
        },
        _ => ApiError::unauthorized().into_response(),
    }
}

/// The request with its whole body, so that no handler waits for a client.
async fn with_body(request: Request) -> Result<Request, ApiError> {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, Body::from(body))),
        Ok(Err(_)) => {
            Err(ApiError::bad_request(format!("the body is cut off, or longer than {MAX_BODY} bytes")))
        }
        Err(_) => Err(ApiError::too_slow()),
    }
}

/// A body as JSON.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("the body: {error}")))
}

async fn count(State(api): Shared, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    api.control.metrics.http.with_label_values(&[response.status().as_str()]).inc();
    response
}

async fn metrics(State(api): Shared) -> String {
    api.control.refresh_gauges();
    process::metrics::render()
}

/// What the API offers.
async fn overview() -> Json<Value> {
    let settings =
        "idle_timeout_ms: 0 is never, null the default; max_connections: null is no limit of its own";
    let placement = "replicas: 1 to 7; gc_ttl_s: seconds, one minute to 30 days; null is the default; \
                     constraints, lease_preferences: all KEY=VALUE pairs, [] is none";
    Json(json!({
        "GET /api/v1/tenants": "a page of tenants; query: after (a name), limit",
        "POST /api/v1/tenants": format!("create; body: name, and optionally {settings}"),
        "GET /api/v1/tenants/{name}": "one tenant",
        "PATCH /api/v1/tenants/{name}": format!("change settings; body: {settings}; {placement}"),
        "DELETE /api/v1/tenants/{name}": "drop, with all data",
        "POST /api/v1/tenants/{name}/suspend": "put to sleep; body: optionally force: true disconnects clients",
        "POST /api/v1/tenants/{name}/resume": "wake",
        "GET /api/v1/nodes": "KV nodes",
        "POST /api/v1/nodes/{id}/drain": "take lease and replicas from a KV node; body: optionally undo: true",
        "GET /api/v1/ranges": "a page of ranges; query: after (a start key), tenant (a name), limit",
        "POST /api/v1/ranges/{id}/check":
            "compare the replicas of a range; body: optionally start (its start key, to find it at once)",
        "POST /api/v1/ranges/{id}/merge": "have a range absorb its right neighbour",
        "POST /api/v1/ranges/split": "split the range that holds a key; body: key, in hexadecimal digits",
        "GET /api/v1/sql-nodes": "SQL nodes",
        "GET /api/v1/status": "the whole in few numbers",
    }))
}

async fn page() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(include_str!("page.html")))
}
