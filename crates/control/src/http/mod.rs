//! The HTTP API under `/api/v1`, metrics, and a status page.
//!
//! Everything under `/api/v1` wants `Authorization: Bearer <token>`; the token is compared in constant
//! time. `/healthz`, `/metrics` and the page itself (which holds no data: it asks the API with a token
//! that its user enters) do not. Errors are `{"error": {"code", "message", "hint"}}` with a fitting
//! status.

mod error;
mod nodes;
mod tenants;

use crate::service::Control;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use error::ApiError;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Longest body of a request, in bytes.
const MAX_BODY: usize = 64 << 10;

/// What the handlers share.
pub(crate) struct Api {
    pub control: Arc<Control>,
    pub token: String,
    /// `addresses.json`; read when an address is needed, since the proxy starts after control.
    pub addresses_file: PathBuf,
    pub kv_address: String,
    pub kv_address_file: Option<PathBuf>,
}

type Shared = State<Arc<Api>>;

/// All routes.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let v1 = Router::new()
        .route("/", get(overview))
        .merge(tenants::routes())
        .merge(nodes::routes())
        .fallback(async || ApiError::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .layer(middleware::from_fn_with_state(Arc::clone(&api), authenticate));
    Router::new()
        .nest("/api/v1", v1)
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), count))
        .with_state(api)
}

async fn authenticate(State(api): Shared, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = given.and_then(|value| value.strip_prefix(b"Bearer "));
    match token {
        Some(token) if bool::from(token.ct_eq(api.token.as_bytes())) => next.run(request).await,
        _ => ApiError::unauthorized().into_response(),
    }
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
    Json(json!({
        "GET /api/v1/tenants": "a page of tenants; query: after (a name), limit",
        "POST /api/v1/tenants": format!("create; body: name, and optionally {settings}"),
        "GET /api/v1/tenants/{name}": "one tenant",
        "PATCH /api/v1/tenants/{name}": format!("change settings; body: {settings}"),
        "DELETE /api/v1/tenants/{name}": "drop, with all data",
        "POST /api/v1/tenants/{name}/suspend": "put to sleep; body: optionally force: true disconnects clients",
        "POST /api/v1/tenants/{name}/resume": "wake",
        "GET /api/v1/nodes": "KV nodes",
        "GET /api/v1/sql-nodes": "SQL nodes",
        "GET /api/v1/status": "the whole in few numbers",
    }))
}

async fn page() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(include_str!("page.html")))
}
