//! The words a session and the SQL node speak with each other.

use crate::exec::CancelFlag;
use async_trait::async_trait;
use sql_types::{Datum, SqlError, SqlResult, SqlState};
use std::sync::Arc;
use tokio::sync::Notify;

/// A parsed statement.
pub type Statement = crate::parse::Statement;

/// Who connects, and how.
#[derive(Clone, Debug, Default)]
pub struct SessionParams {
    /// Role, already authenticated.
    pub user: String,
    /// Database asked for.
    pub database: String,
    /// Settings from the startup packet, in order.
    pub settings: Vec<(String, String)>,
    /// Shown as `pg_backend_pid()` and sent with notifications.
    pub process_id: i32,
    /// Shown in `pg_stat_activity`.
    pub client_address: Option<String>,
}

/// How a portal is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Commit the implicit transaction before the statement is reported complete.
    pub commit_after: bool,
}

/// How far a portal got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// To the end.
    Complete {
        /// The command tag.
        tag: String,
    },
    /// To the row limit.
    Suspended,
    /// The client is to send the data of a COPY: see [`super::Session::copy_in`].
    CopyIn {
        /// How many columns.
        columns: usize,
        /// Whether the format is binary.
        binary: bool,
    },
    /// The statement was empty.
    Empty,
}

/// Takes the rows of a statement.
#[async_trait]
pub trait RowSink: Send {
    /// One row.
    fn row(&mut self, row: &[Datum]) -> SqlResult<()>;
    /// Whether [`RowSink::flush`] is due.
    fn is_full(&self) -> bool;
    /// COPY TO STDOUT begins.
    fn copy_out_start(&mut self, columns: usize, binary: bool);
    /// Data of a COPY.
    fn copy_data(&mut self, data: &[u8]);
    /// COPY TO STDOUT ends.
    fn copy_out_done(&mut self);
    /// Sends what was taken so far.
    async fn flush(&mut self) -> SqlResult<()>;
}

/// A NOTICE or WARNING.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE`, `WARNING`, `INFO`, `LOG` or `DEBUG`.
    pub severity: &'static str,
    /// Its fields.
    pub error: SqlError,
}

impl Notice {
    /// A NOTICE.
    pub fn plain(message: impl Into<String>) -> Self {
        Notice { severity: "NOTICE", error: SqlError::new(SqlState::SUCCESS, message) }
    }

    /// A WARNING with its SQLSTATE.
    pub fn warning(code: SqlState, message: impl Into<String>) -> Self {
        Notice { severity: "WARNING", error: SqlError::new(code, message) }
    }
}

/// A notification of NOTIFY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Session that sent it.
    pub process_id: i32,
    /// Channel.
    pub channel: Arc<str>,
    /// Payload, possibly empty.
    pub payload: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct CancelState {
    pub flag: CancelFlag,
    pub wake: Notify,
}

/// Ends what a session is doing. A session that does nothing ignores it.
#[derive(Clone, Debug)]
pub struct CancelHandle(pub(crate) Arc<CancelState>);

impl CancelHandle {
    /// The running statement ends with 57014.
    pub fn cancel(&self) {
        self.0.flag.cancel();
        self.0.wake.notify_waiters();
    }

    /// The running statement ends with 57P01 (`pg_terminate_backend`, shutdown).
    pub fn shut_down(&self) {
        self.0.flag.shut_down();
        self.0.wake.notify_waiters();
    }
}
