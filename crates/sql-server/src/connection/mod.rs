//! One client connection, from its first byte to its last.
//!
//! ```text
//!            SSLRequest → 'S' + TLS, or 'N'
//!   accept ──────────────┐
//!     │ ◄────────────────┘
//!     │ CancelRequest ───────────────────────────► cancel, close
//!     ▼ StartupMessage
//!   authenticating (SCRAM-SHA-256) ── failure ───► FATAL, close
//!     ▼
//!   ready ◄──────────────────────────── ReadyForQuery ──┐
//!     ├─ Query ─► running ─► (COPY: copying) ───────────┤
//!     ├─ Parse/Bind/Describe/Execute/Close ─► extended ─┤ Sync
//!     │                        └─ error ─► skipping ────┘ Sync
//!     ▼ Terminate, end of input, protocol violation, shutdown
//!   closed: portals dropped, open transaction rolled back
//! ```
//!
//! While a statement runs, input is read ahead: a client that goes away ends its statement. What is
//! read ahead, what is buffered for output and how long startup may take are bounded ([`io`]).

mod copy;
mod extended;
pub mod io;
mod rows;
mod simple;
pub mod startup;

use crate::metrics::METRICS;
use crate::protocol::backend::{self, Severity};
use crate::protocol::frontend::Frontend;
use extended::PortalSlot;
use io::{ConnectionError, Input, Output};
use sql::session::{Prepared, Session};
use sql_types::{SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Portals a session may hold; beyond it 54000.
const MOST_PORTALS: usize = 10_000;

/// A connection past authentication.
pub struct Connection<R, W> {
    input: Input<R>,
    output: Output<W>,
    session: Session,
    /// The unnamed prepared statement; those with names are the session's.
    unnamed: Option<Arc<Prepared>>,
    portals: HashMap<String, PortalSlot>,
    /// An extended message failed: everything up to the next Sync is skipped.
    skipping: bool,
}

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Close,
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// A connection whose client has just been told that it is authenticated.
    pub fn new(input: Input<R>, output: Output<W>, session: Session) -> Self {
        Connection { input, output, session, unnamed: None, portals: HashMap::new(), skipping: false }
    }

    /// Serves the client until it leaves or `shutdown` resolves; then closes the session.
    pub async fn serve(mut self, shutdown: impl Future<Output = ()>) {
        let end = tokio::select! {
            biased;
            end = self.serve_messages() => end,
            () = shutdown => {
                let error = SqlError::new(
                    SqlState::ADMIN_SHUTDOWN,
                    "terminating connection due to administrator command",
                );
                backend::error(&mut self.output.buffer, Severity::Fatal, &error);
                Ok(())
            }
        };
        if let Err(ConnectionError::Protocol(error)) = &end {
            tracing::warn!(%error, "protocol violation");
            let error = SqlError::new(SqlState::PROTOCOL_VIOLATION, error.0.clone());
            backend::error(&mut self.output.buffer, Severity::Fatal, &error);
        }
        let _ = self.output.flush().await;
        self.portals.clear();
        self.session.close().await;
    }

    async fn serve_messages(&mut self) -> Result<(), ConnectionError> {
        self.ready();
        loop {
            let message = match self.input.buffered()? {
                Some(message) => message,
                None => {
                    self.output.flush().await?;
                    match self.wait_for_message().await? {
                        Some(message) => message,
                        None => return Ok(()),
                    }
                }
            };
            if self.handle(message).await? == Next::Close {
                return Ok(());
            }
            self.output.flush_if_full().await?;
        }
    }

    /// The next message; `None` if the session ended because it idled in a transaction too long.
    /// Notifications that arrive meanwhile are passed on.
    async fn wait_for_message(&mut self) -> Result<Option<Frontend>, ConnectionError> {
        loop {
            let idle_timeout = self.session.idle_timeout();
            let timeout = async {
                match idle_timeout {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                message = self.input.message() => return message.map(Some),
                () = self.session.notified() => {
                    self.pass_on_notifications();
                    self.output.flush().await?;
                }
                () = timeout => {
                    let error = SqlError::new(
                        SqlState::IDLE_IN_TRANSACTION_TIMEOUT,
                        "terminating connection due to idle-in-transaction timeout",
                    );
                    backend::error(&mut self.output.buffer, Severity::Fatal, &error);
                    return Ok(None);
                }
            }
        }
    }

    async fn handle(&mut self, message: Frontend) -> Result<Next, ConnectionError> {
        match message {
            Frontend::Terminate => return Ok(Next::Close),
            Frontend::Sync => self.sync().await?,
            _ if self.skipping => {}
            Frontend::Query(text) => Box::pin(self.simple_query(&text)).await?,
            Frontend::Flush => self.output.flush().await?,
            // Left over from a COPY that failed on our side: PostgreSQL ignores them too.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => {}
            Frontend::FunctionCall => {
                let error = SqlError::unsupported("the function call message");
                self.fail(error);
                self.session.end_implicit(false).await.ok();
                self.ready();
            }
            Frontend::Authentication(_) => {
                return Err(crate::protocol::ProtocolError::new("unexpected password message").into());
            }
            extended => self.extended(extended).await?,
        }
        Ok(Next::Continue)
    }

    /// Runs a future of the session while watching the client: if it goes away first, so does the
    /// future.
    async fn watching<T>(
        input: &mut Input<R>,
        running: impl Future<Output = T>,
    ) -> Result<T, ConnectionError> {
        tokio::select! {
            biased;
            value = running => Ok(value),
            error = input.until_gone() => Err(error.into()),
        }
    }

    /// Reports an error of a statement and takes note of it in the transaction.
    fn fail(&mut self, error: SqlError) {
        METRICS.errors.with_label_values(&[error.code.as_str().get(..2).unwrap_or("XX")]).inc();
        if error.code == SqlState::INTERNAL || error.code == SqlState::DATA_CORRUPTED {
            tracing::error!(code = %error.code, message = %error.message, "statement failed");
        }
        self.session.fail();
        self.pass_on_notices();
        backend::error(&mut self.output.buffer, Severity::Error, &error);
    }

    /// ReadyForQuery with everything that goes before it.
    fn ready(&mut self) {
        self.pass_on_notices();
        for (name, value) in self.session.take_parameter_changes() {
            backend::parameter_status(&mut self.output.buffer, &name, &value);
        }
        self.pass_on_notifications();
        backend::ready_for_query(&mut self.output.buffer, self.session.transaction_status());
    }

    fn pass_on_notices(&mut self) {
        for notice in self.session.take_notices() {
            backend::notice(&mut self.output.buffer, notice.severity, &notice.error);
        }
    }

    fn pass_on_notifications(&mut self) {
        if self.session.transaction_status() != b'I' {
            return;
        }
        for event in self.session.take_notifications() {
            let (process_id, channel, payload) = (event.process_id, &event.channel, &event.payload);
            backend::notification(&mut self.output.buffer, process_id, channel, payload);
        }
    }
}

/// SQL text from the wire.
///
/// # Errors
/// 22021 if it is not UTF-8.
fn utf8(text: &[u8]) -> SqlResult<&str> {
    std::str::from_utf8(text).map_err(|error| {
        let at = error.valid_up_to();
        let bytes: Vec<String> = text[at..].iter().take(4).map(|byte| format!("0x{byte:02x}")).collect();
        SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", bytes.join(" ")),
        )
    })
}
