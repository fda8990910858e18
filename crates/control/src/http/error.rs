//! Errors of the API.

use crate::directory::DirectoryError;
use crate::fleet::WakeError;
use crate::service::ControlError;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kv_api::{KvError, KvErrorKind};
use serde_json::json;

/// An error as a caller of the API sees it.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: &'static str,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { status, code, message: message.into(), hint }
    }

    pub fn unauthorized() -> Self {
        let hint =
            "Send \"Authorization: Bearer TOKEN\" with the token in admin.token of the data directory.";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "a valid bearer token is needed", hint)
    }

    pub fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message, "GET /api/v1/ lists the paths there are.")
    }

    pub fn method_not_allowed() -> Self {
        let hint = "GET /api/v1/ lists the methods of each path.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path has no such method", hint)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        let hint = "GET /api/v1/ lists the fields of each request.";
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
    }
}

impl ApiError {
    pub fn too_slow() -> Self {
        let hint = "Send the whole body at once.";
        Self::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time", hint)
    }

    pub fn unknown_node(id: u64) -> Self {
        let message = format!("there is no KV node {id}");
        let hint = "\"dormouse node list\" shows which there are.";
        Self::new(StatusCode::NOT_FOUND, "unknown_node", message, hint)
    }

    pub fn unknown_range(id: u64) -> Self {
        let message = format!("there is no range {id}");
        let hint = "\"dormouse debug ranges\" shows which there are.";
        Self::new(StatusCode::NOT_FOUND, "unknown_range", message, hint)
    }
}

/// An error of a request about KV nodes or ranges.
impl From<KvError> for ApiError {
    fn from(error: KvError) -> Self {
        let (status, code, hint) = match error.kind() {
            KvErrorKind::InvalidRequest => {
                (StatusCode::CONFLICT, "refused", "\"dormouse node list\" shows which nodes there are.")
            }
            KvErrorKind::Unavailable
            | KvErrorKind::Overloaded
            | KvErrorKind::Retry
            | KvErrorKind::SnapshotBehind
            | KvErrorKind::NotLeaseholder
            | KvErrorKind::RangeNotFound => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "Are most of the KV nodes running? Try again in a moment.",
            ),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "failed", "The logs of the KV nodes say more."),
        };
        Self::new(status, code, error.message, hint)
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let message = error.to_string();
        let (status, code, hint) = match error {
            ControlError::Directory(error) => return error.into(),
            ControlError::Busy { .. } => (
                StatusCode::CONFLICT,
                "busy",
                "Close the connections, or suspend with force to disconnect them.",
            ),
            ControlError::Ending => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Try again in a moment.")
            }
            ControlError::Wake(WakeError::Dropped) => {
                (StatusCode::NOT_FOUND, "unknown_tenant", "It was dropped while you waited.")
            }
            ControlError::Wake(WakeError::Overloaded(_)) => {
                (StatusCode::TOO_MANY_REQUESTS, "overloaded", "Try again in a moment.")
            }
            ControlError::Wake(WakeError::Unavailable(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Try again in a moment.")
            }
            ControlError::Wake(WakeError::StartFailed(_)) => {
                (StatusCode::BAD_GATEWAY, "start_failed", "The logs of control and of the SQL nodes say why.")
            }
        };
        Self::new(status, code, message, hint)
    }
}

impl From<DirectoryError> for ApiError {
    fn from(error: DirectoryError) -> Self {
        let message = error.to_string();
        let (status, code, hint) = match error {
            DirectoryError::Name(_) => (
                StatusCode::BAD_REQUEST,
                "bad_name",
                "Names have 1 to 63 of a-z, 0-9 and -, and begin with a letter.",
            ),
            DirectoryError::Placement(_) => (
                StatusCode::BAD_REQUEST,
                "bad_placement",
                "GET /api/v1/ lists what can be set, and how it is written.",
            ),
            DirectoryError::Refused(_) => (
                StatusCode::CONFLICT,
                "refused",
                "\"dormouse node list\" shows which nodes there are, and where they stand.",
            ),
            DirectoryError::Exists(_) => (
                StatusCode::CONFLICT,
                "already_exists",
                "Choose another name, or drop the tenant that has it.",
            ),
            DirectoryError::Unknown(_) => {
                (StatusCode::NOT_FOUND, "unknown_tenant", "\"dormouse tenant list\" shows which there are.")
            }
            DirectoryError::Unavailable(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "Is the KV node running? Try again in a moment.",
            ),
            DirectoryError::Full(_) => (
                StatusCode::INSUFFICIENT_STORAGE,
                "disk_full",
                "Make room on the disk of the data directory.",
            ),
            DirectoryError::Failed(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "failed", "The log of the KV node says more.")
            }
        };
        Self::new(status, code, message, hint)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message, "hint": self.hint}});
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
