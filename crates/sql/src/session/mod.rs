//! Sessions: settings, transactions, prepared statements, portals, cursors.
//!
//! # How a statement goes through
//!
//! [`Session::prepare`] reads the statement once ([`command`]): what the session runs itself, a schema
//! change, or a statement for the engines, of which it gets a plan from the node's cache
//! ([`plan_cache`]) or makes one. [`Session::bind`] adds parameters and makes a [`Portal`].
//! [`Session::run`] takes the table locks the plan needs ([`locks`]), starts the implicit transaction if
//! there is none ([`transaction`]; [`as_of`] if it reads the past), pulls rows and hands them to the [`RowSink`] ([`run`]).
//!
//! # Rules
//!
//! * Nothing that fails leaves the session unusable. After an error the caller calls
//!   [`Session::fail`].
//! * No lock of the process is held across an await.
//! * A statement that loses against another transaction is run again, a bounded number of times, if
//!   it is the first of its transaction and no row of it has left the session.
//! * Bounded: named prepared statements and cursors ([`MOST_NAMED`]), notices, notifications,
//!   savepoints, sizes of settings.
//!
//! # What is missing
//!
//! Cursors without SCROLL see changes made after they were opened, and run forward only. Two-phase commit.

pub(crate) mod activity;
pub(crate) mod analyze;
mod api;
pub(crate) mod as_of;
pub(crate) mod command;
mod constraints;
mod copy;
mod cursor;
pub(crate) mod definitions;
mod explain;
mod host;
pub(crate) use host::Host;
pub(crate) mod locks;
pub(crate) mod notify;
mod online;
pub(crate) mod plan_cache;
mod portal;
pub(crate) mod prepared;
pub(crate) mod privileges;
mod routine;
mod run;
mod schema;
pub(crate) mod sequences;
pub(crate) mod settings;
pub(crate) mod statement_statistics;
pub(crate) mod statements;
mod temporary;
#[cfg(test)]
mod tests;
pub(crate) mod transaction;
mod utility;
pub(crate) use utility::{notify as notify_later, set_checked};
pub(crate) mod view;

pub(crate) use api::CancelState;
pub use api::{
    CancelHandle, Notice, Notification, RowSink, RunOptions, RunOutcome, SessionParams, Statement,
};
pub use copy::CopyIn;
pub use portal::Portal;
pub use prepared::Prepared;
pub use view::TextSettings;

use crate::catalog::temporary::Temporary;
use crate::engine::Engine;
use crate::plan::PlanColumn;
use activity::Activity;
use command::Command;
use cursor::Cursor;
use parking_lot::Mutex;
use prepared::command_of;
use settings::{REPORTED, Settings};
use sql_types::{ColumnType, Datum, Oid, SqlError, SqlResult, SqlState, Type};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use transaction::Open;
use view::{SessionView, Shared, now_micros};

/// Named prepared statements and cursors a session may hold, each.
const MOST_NAMED: usize = 10_000;

/// One client's session.
pub struct Session {
    shared: Arc<Shared>,
    view: Arc<SessionView>,
    transaction: Option<Box<Open>>,
    cursors: HashMap<String, Cursor>,
    next_cursor: u64,
    /// Temporary tables, views and sequences, as of the last commit.
    temporary: Option<Arc<Temporary>>,
    /// Rows of the running statement have left the session: it cannot be run again.
    sent: bool,
}

impl Session {
    /// Opens a session for an authenticated role.
    ///
    /// # Errors
    /// 3D000 for an unknown database, 28000 for an unknown role, 53300 beyond its connection limit,
    /// 22023 and the like for settings that do not exist.
    pub async fn open(engine: Arc<Engine>, params: SessionParams) -> SqlResult<Session> {
        let catalog = engine.catalog().await?;
        let Some(database) = catalog.database(&params.database).cloned() else {
            let message = format!("database \"{}\" does not exist", params.database);
            return Err(SqlError::new(SqlState::INVALID_CATALOG, message));
        };
        let Some(role) = catalog.role(&params.user).cloned() else {
            let message = format!("role \"{}\" does not exist", params.user);
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        };
        let limit = usize::try_from(role.connection_limit).unwrap_or(usize::MAX);
        if !role.superuser && engine.sessions.count_user(role.oid) >= limit {
            let message = format!("too many connections for role \"{}\"", role.name);
            return Err(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, message));
        }
        let cancel = CancelHandle(Arc::new(CancelState::default()));
        let mut settings = Settings::new();
        settings.force("session_authorization", &role.name);
        settings.force("is_superuser", if role.superuser { "on" } else { "off" });
        for (name, value) in database.settings.iter().chain(&role.settings).chain(&params.settings) {
            settings.begin(name, value)?;
        }
        settings.begun();
        let activity = Arc::new(Activity::new(
            engine.next_session(),
            params.process_id,
            database.oid,
            role.oid,
            params.client_address,
            now_micros(),
            cancel.clone(),
        ));
        *activity.application.lock() = settings.get("application_name").unwrap_or_default().into();
        engine.sessions.add(activity.clone());
        let shared = Arc::new(Shared {
            session: activity.session,
            process_id: params.process_id,
            database: database.oid,
            database_name: database.name.as_str().into(),
            login: role.oid,
            settings: Mutex::new(settings),
            notices: Mutex::default(),
            sequences: Mutex::default(),
            random: Default::default(),
            cancel,
            inbox: Arc::default(),
            activity,
            held: Mutex::default(),
            outgoing: Mutex::default(),
            named: Mutex::default(),
            calls: Default::default(),
            called: Default::default(),
            changes: Default::default(),
            engine,
        });
        let view = Arc::new(SessionView::new(shared.clone(), catalog)?);
        Ok(Session {
            shared,
            view,
            transaction: None,
            cursors: HashMap::new(),
            next_cursor: 1,
            temporary: None,
            sent: false,
        })
    }

    /// Makes the view show what the next statement is to see.
    async fn refresh_view(&mut self) -> SqlResult<()> {
        self.follow_lease().await?;
        let open = self.transaction.as_ref();
        let own =
            open.and_then(|open| open.overlay.as_ref().or(open.past.as_ref().map(|past| &past.catalog)));
        let snapshot = match own.cloned().or_else(|| self.shared.engine.cached_catalog()) {
            Some(snapshot) => snapshot,
            None => self.shared.engine.catalog().await?,
        };
        let generation = self.shared.settings.lock().generation;
        let temporary = self.temporary().filter(|_| !self.is_past());
        if snapshot.id() != self.view.base.id()
            || generation != self.view.generation
            || temporary.map(Arc::as_ptr) != self.view.temporary.as_ref().map(Arc::as_ptr)
        {
            let temporary = temporary.cloned();
            self.view = Arc::new(SessionView::with_temporary(self.shared.clone(), snapshot, temporary)?);
            let name = self.shared.settings.lock().get("application_name").unwrap_or_default();
            *self.shared.activity.application.lock() = name.into();
        }
        Ok(())
    }

    /// The statements of a query string; none for blanks and comments.
    ///
    /// # Errors
    /// 42601 with a position.
    pub fn parse(&mut self, text: &str) -> SqlResult<Vec<Arc<Statement>>> {
        let plans = &self.shared.engine.plans;
        if let Some(statement) = plans.statement(text) {
            return Ok(vec![statement]);
        }
        let statements: Vec<_> = crate::parse::parse(text)?.into_iter().map(Arc::new).collect();
        if let [statement] = &statements[..] {
            plans.put_statement(text, statement);
        }
        Ok(statements)
    }

    /// Prepares a parsed statement.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn prepare(
        &mut self,
        statement: Arc<Statement>,
        param_types: &[Oid],
    ) -> SqlResult<Arc<Prepared>> {
        let command = command_of(&statement)?;
        if !matches!(
            *command,
            Command::Commit { .. } | Command::Rollback { .. } | Command::RollbackTo(_) | Command::Begin(..)
        ) {
            self.check_not_failed()?;
        }
        self.refresh_view().await?;
        if let Some(clause) = &statement.as_of {
            Box::pin(self.preview(clause)).await?;
        }
        self.prepare_command(statement, command, &host::types_of(param_types))
            .map_err(|error| self.view.with_named_types(error))
    }

    fn prepare_command(
        &mut self,
        statement: Arc<Statement>,
        command: Arc<Command>,
        params: &[Type],
    ) -> SqlResult<Arc<Prepared>> {
        let mut plan = None;
        let (mut param_types, mut columns) = (Vec::new(), None);
        match &*command {
            Command::Planned => plan = Some(prepared::plan(&self.view, &statement, params, true)?),
            other => {
                (param_types, columns) = self.describe(other, params)?;
            }
        }
        if let Some(plan) = &plan {
            param_types = plan.param_types.clone();
            columns = plan.columns.clone();
        }
        Ok(Arc::new(Prepared {
            statement: Some(statement),
            command,
            param_types,
            columns,
            plan: Mutex::new(plan),
            statistics: Default::default(),
        }))
    }

    /// Prepares the text of a Parse message: one statement or none.
    ///
    /// # Errors
    /// 42601 for several statements; what is wrong with the statement.
    pub async fn prepare_text(&mut self, text: &str, param_types: &[Oid]) -> SqlResult<Arc<Prepared>> {
        let mut statements = self.parse(text)?;
        if statements.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        match statements.pop() {
            None => Ok(Arc::new(Prepared::empty())),
            Some(statement) => self.prepare(statement, param_types).await,
        }
    }

    /// Binds values to a prepared statement.
    ///
    /// # Errors
    /// 25P02 in a failed transaction.
    pub async fn bind(&mut self, prepared: &Arc<Prepared>, params: Vec<Datum>) -> SqlResult<Portal> {
        if !matches!(
            *prepared.command,
            Command::Commit { .. } | Command::Rollback { .. } | Command::RollbackTo(_)
        ) {
            self.check_not_failed()?;
        }
        self.refresh_view().await?;
        Ok(Portal::new(prepared.clone(), params, self.statement_memory()))
    }

    /// The memory of a statement.
    pub(crate) fn statement_memory(&self) -> crate::exec::MemoryBudget {
        let bytes = self.shared.settings.lock().derived().statement_memory;
        self.shared.engine.statement_memory(bytes)
    }

    /// Ends the implicit transaction, if there is one: at Sync, or at the end of a simple query.
    ///
    /// # Errors
    /// Why it could not be committed.
    pub async fn end_implicit(&mut self, success: bool) -> SqlResult<()> {
        if self.in_block() {
            return Ok(());
        }
        let result = if success {
            self.commit().await
        } else {
            self.abort();
            Ok(())
        };
        self.shared.activity.waiting(self.transaction_status(), now_micros());
        result
    }

    /// A statement failed: an explicit transaction is failed, an implicit one is undone.
    pub fn fail(&mut self) {
        match &mut self.transaction {
            Some(open) if open.explicit => {
                open.failed = true;
                if open.savepoints.is_empty() {
                    // Nothing can be saved any more: others need not wait for its locks.
                    let left = std::mem::take(&mut open.schema.clear_at_end);
                    self.restart();
                    self.shared.engine.clear_storage(left);
                }
            }
            _ => self.abort(),
        }
        self.shared.activity.waiting(self.transaction_status(), now_micros());
    }

    /// `I` when idle, `T` in a transaction block, `E` in a failed one.
    pub fn transaction_status(&self) -> u8 {
        match &self.transaction {
            Some(open) if open.explicit && open.failed => b'E',
            Some(open) if open.explicit => b'T',
            _ => b'I',
        }
    }

    /// Notices since the last call that the client wants to see.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let notices = std::mem::take(&mut *self.shared.notices.lock());
        if notices.is_empty() {
            return notices;
        }
        let rank = |level: &str| {
            let order =
                ["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];
            order.iter().position(|known| *known == level).unwrap_or(6)
        };
        let least = rank(&self.shared.settings.lock().raw("client_min_messages").unwrap_or_default());
        let wanted = |notice: &Notice| {
            notice.severity == "INFO" || rank(&notice.severity.to_ascii_lowercase()) >= least
        };
        notices.into_iter().filter(wanted).collect()
    }

    /// Reported settings that changed since the last call.
    pub fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        self.shared.settings.lock().take_changes()
    }

    /// Notifications that arrived.
    pub fn take_notifications(&mut self) -> Vec<Notification> {
        self.shared.inbox.take()
    }

    /// Resolves when a notification has arrived; never within a transaction block, at the end of which
    /// notifications are delivered.
    pub fn notified(&self) -> impl Future<Output = ()> + Send + use<> {
        let inbox = (!self.in_block()).then(|| self.shared.inbox.clone());
        async move {
            let Some(inbox) = inbox else { return std::future::pending().await };
            while inbox.is_empty() {
                inbox.wake.notified().await;
            }
        }
    }

    /// The settings that are reported at connect.
    pub fn parameter_statuses(&self) -> Vec<(String, String)> {
        let settings = self.shared.settings.lock();
        REPORTED.iter().map(|name| (name.to_string(), settings.get(name).unwrap_or_default())).collect()
    }

    /// Ends what the session is doing.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.shared.cancel.clone()
    }

    /// What text input and output depend on.
    pub fn text_settings(&self) -> TextSettings {
        let transaction_micros = self.transaction.as_ref().map_or_else(now_micros, |open| open.started);
        TextSettings { view: self.view.clone(), transaction_micros }
    }

    /// How long the session may now be idle: `idle_in_transaction_session_timeout` in a transaction.
    pub fn idle_timeout(&self) -> Option<Duration> {
        if self.in_block() { self.shared.settings.lock().derived().idle_in_transaction } else { None }
    }

    /// Ends the session: what is open is undone.
    pub async fn close(mut self) {
        self.abort();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.abort();
        self.end_temporary();
        self.shared.release_session_locks();
        self.shared.engine.notify.unlisten(self.shared.session, None);
        self.shared.engine.sessions.remove(self.shared.session);
    }
}

/// One text column, as SHOW and EXPLAIN return.
fn text_column(name: &str) -> Option<Arc<[PlanColumn]>> {
    Some(vec![PlanColumn::new(name, ColumnType::plain(Type::TEXT))].into())
}

/// Parameters' types and columns of a statement.
type Description = (Vec<Type>, Option<Arc<[PlanColumn]>>);
