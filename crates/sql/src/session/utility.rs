//! Statements the session runs itself.

use super::api::{Notice, RowSink, RunOptions, RunOutcome};
use super::as_of::Past;
use super::command::{Command, Discard, IsolationLevel, Modes};
use super::host::guarded;
use super::locks::LockKey;
use super::portal::{Portal, Progress};
use super::prepared::{self, Prepared};
use super::transaction::Open;
use super::{Description, Session, definitions, text_column};
use crate::bind;
use crate::catalog::Relation;
use crate::ddl::tokens::Name;
use crate::exec::eval::{EvalEnv, eval};
use crate::plan::PlanColumn;
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;
use tokio::time::Instant;

impl Session {
    /// What is known of a command's parameters and columns before it runs.
    pub(super) fn describe(&mut self, command: &Command, params: &[Type]) -> SqlResult<Description> {
        let plain = |columns| Ok((Vec::new(), columns));
        match command {
            Command::Show(name) => {
                let spelt = definitions::find(name).map_or(name.as_str(), |definition| definition.name);
                plain(text_column(spelt))
            }
            Command::ShowAll => {
                let column = |name| PlanColumn::new(name, ColumnType::plain(Type::TEXT));
                plain(Some(vec![column("name"), column("setting"), column("description")].into()))
            }
            Command::Explain { flags, statement } => {
                let param_types = match &*prepared::command_of(statement)? {
                    Command::Planned => {
                        prepared::plan(&self.view, statement, params, false)?.param_types.clone()
                    }
                    _ => Vec::new(),
                };
                let ty = if flags.json { Type::JSON } else { Type::TEXT };
                Ok((param_types, Some(vec![PlanColumn::new("QUERY PLAN", ColumnType::plain(ty))].into())))
            }
            Command::Declare { statement, .. } => {
                let plan = prepared::plan(&self.view, statement, params, false)?;
                Ok((plan.param_types.clone(), None))
            }
            Command::Execute { name, .. } => plain(self.prepared(name)?.columns.clone()),
            Command::Fetch { cursor, is_move: false, .. } => plain(Some(self.cursor_columns(cursor)?)),
            _ => plain(None),
        }
    }

    /// The statement an EXECUTE names and the values it gives it.
    pub(super) fn execute_params(
        &mut self,
        name: &str,
        args: &[ast::Expr],
    ) -> SqlResult<(Arc<Prepared>, Vec<Datum>)> {
        let prepared = self.prepared(name)?;
        if args.len() != prepared.param_types.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail =
                format!("Expected {} parameters but got {}.", prepared.param_types.len(), args.len());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).with_detail(detail));
        }
        let view = self.view.clone();
        let session = view.eval(self.times());
        let context = view.bind_context(&session, &[]);
        let env = EvalEnv { eval: &session, params: &[], outer: None };
        let values = args.iter().zip(&prepared.param_types).map(|(arg, ty)| {
            let bound = bind::bind_argument(arg, *ty, &context)?;
            eval(&bound, &[], &env)
        });
        let values = values.collect::<SqlResult<Vec<_>>>()?;
        Ok((prepared, values))
    }

    /// Runs a command.
    pub(super) async fn run_command(
        &mut self,
        command: &Command,
        portal: &mut Portal,
        max_rows: usize,
        options: RunOptions,
        sink: &mut dyn RowSink,
        deadline: Option<Instant>,
    ) -> SqlResult<RunOutcome> {
        if !matches!(command, Command::Commit { .. } | Command::Rollback { .. } | Command::RollbackTo(_)) {
            self.check_not_failed()?;
        }
        self.refresh_view().await?;
        let cancel = self.shared.cancel.clone();
        match command {
            Command::Copy => return self.copy(portal, sink, deadline).await,
            Command::Execute { name, args } => {
                let (prepared, params) = self.execute_params(name, args)?;
                let mut inner = Box::new(Portal::new(prepared, params, self.statement_memory()));
                let outcome = Box::pin(self.run_inner(&mut inner, max_rows, options, sink, deadline)).await?;
                portal.progress = match outcome {
                    RunOutcome::Suspended => Progress::Inner(inner),
                    RunOutcome::CopyIn { .. } => return Err(SqlError::unsupported("COPY by EXECUTE")),
                    _ => Progress::Done,
                };
                return Ok(outcome);
            }
            Command::Explain { flags, statement } => {
                let rows = guarded(&cancel, deadline, self.explain(*flags, statement, portal)).await?;
                self.finish_command(options).await?;
                return self.give_all(portal, rows, "EXPLAIN".into(), max_rows, sink).await;
            }
            Command::Show(name) => {
                let value = self.show(name)?;
                return self
                    .give_all(portal, vec![vec![Datum::text(value)]], "SHOW".into(), max_rows, sink)
                    .await;
            }
            Command::ShowAll => {
                let rows = self.show_all();
                return self.give_all(portal, rows, "SHOW".into(), max_rows, sink).await;
            }
            Command::Fetch { cursor, direction, is_move } => {
                let rows = guarded(&cancel, deadline, self.fetch(cursor, *direction)).await?;
                let count = rows.len();
                if *is_move {
                    portal.progress = Progress::Done;
                    return Ok(RunOutcome::Complete { tag: format!("MOVE {count}") });
                }
                return self.give_all(portal, rows, format!("FETCH {count}"), max_rows, sink).await;
            }
            _ => {}
        }
        let tag = match command {
            Command::Ddl(ddl) => match Box::pin(self.run_in_steps(ddl, portal, options, deadline)).await? {
                Some(tag) => tag,
                None => {
                    let tag = self.run_schema_change(ddl, portal, deadline).await?;
                    self.finish_command(options).await?;
                    tag
                }
            },
            Command::Analyze { targets, tag } => {
                self.analyze(targets, deadline).await?;
                self.finish_command(options).await?;
                (*tag).into()
            }
            Command::Do { language, body } => {
                Box::pin(self.run_block(language.as_deref(), body, portal, deadline)).await?;
                self.finish_command(options).await?;
                "DO".into()
            }
            Command::Declare { name, scroll, hold, statement } => {
                let declaring = self.declare(name, *scroll, *hold, statement, portal);
                guarded(&cancel, deadline, declaring).await?;
                "DECLARE CURSOR".into()
            }
            Command::Lock { tables, mode, nowait } => {
                guarded(&cancel, deadline, self.lock_table(tables, *mode, *nowait)).await?;
                "LOCK TABLE".into()
            }
            Command::Commit { chain } => self.commit_command(*chain).await?,
            Command::SetConstraints { names, deferred } => {
                let setting = self.set_constraints(names.as_deref(), *deferred);
                guarded(&cancel, deadline, setting).await?;
                "SET CONSTRAINTS".into()
            }
            other => {
                let past = guarded(&cancel, deadline, self.past_of(other)).await?;
                let tag = self.run_quick(other, past)?;
                if matches!(other, Command::Listen(_)) {
                    // What other SQL nodes send comes here once they know of this one.
                    let engine = self.shared.engine.clone();
                    guarded(&cancel, deadline, engine.meet_others()).await?;
                }
                tag
            }
        };
        portal.progress = Progress::Done;
        Ok(RunOutcome::Complete { tag })
    }

    async fn run_inner(
        &mut self,
        inner: &mut Portal,
        max_rows: usize,
        options: RunOptions,
        sink: &mut dyn RowSink,
        deadline: Option<Instant>,
    ) -> SqlResult<RunOutcome> {
        let command = inner.prepared.command.clone();
        match &*command {
            Command::Planned => self.run_planned(inner, max_rows, options, sink, deadline).await,
            other => Box::pin(self.run_command(other, inner, max_rows, options, sink, deadline)).await,
        }
    }

    /// Commits a command that was a transaction of its own.
    async fn finish_command(&mut self, options: RunOptions) -> SqlResult<()> {
        if (options.commit_after || self.is_past()) && !self.in_block() {
            self.commit().await
        } else {
            Ok(())
        }
    }

    async fn commit_command(&mut self, chain: bool) -> SqlResult<String> {
        let Some(open) = self.transaction.as_ref().filter(|open| open.explicit) else {
            if chain {
                return Err(SqlError::new(
                    SqlState::NO_ACTIVE_TRANSACTION,
                    "COMMIT AND CHAIN can only be used in transaction blocks",
                ));
            }
            self.no_transaction();
            self.end_implicit(true).await?;
            return Ok("COMMIT".into());
        };
        let (modes, past) = characteristics(open);
        let tag = if open.failed {
            self.abort();
            "ROLLBACK"
        } else {
            self.commit().await?;
            "COMMIT"
        };
        if chain {
            self.start(true, modes, past);
        }
        Ok(tag.into())
    }

    fn no_transaction(&self) {
        self.shared
            .notice(Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, "there is no transaction in progress"));
    }

    /// Where the transaction that a command begins or changes is to read, if the command says so.
    async fn past_of(&mut self, command: &Command) -> SqlResult<Option<Past>> {
        match command {
            Command::Begin(_, Some(clause)) | Command::SetTransaction { as_of: Some(clause), .. } => {
                self.look_back(clause).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Commands that need not wait.
    fn run_quick(&mut self, command: &Command, past: Option<Past>) -> SqlResult<String> {
        let tag = match command {
            Command::Begin(modes, _) => {
                self.begin(*modes, past)?;
                "BEGIN"
            }
            Command::Rollback { chain } => {
                let ended = self.transaction.as_deref().filter(|open| open.explicit).map(characteristics);
                if ended.is_none() {
                    self.no_transaction();
                }
                self.abort();
                if let (true, Some((modes, past))) = (*chain, ended) {
                    self.start(true, modes, past);
                }
                "ROLLBACK"
            }
            Command::Savepoint(name) => {
                self.savepoint(name)?;
                "SAVEPOINT"
            }
            Command::Release(name) => {
                self.release_savepoint(name)?;
                "RELEASE"
            }
            Command::RollbackTo(name) => {
                self.rollback_to_savepoint(name)?;
                "ROLLBACK"
            }
            Command::Set { local, name, value } => {
                self.set(name, value.as_deref(), *local)?;
                "SET"
            }
            Command::SetTransaction { modes, session, .. } => {
                self.set_transaction(*modes, past, *session)?;
                "SET"
            }
            Command::Reset(name) => {
                self.set(name, None, false)?;
                "RESET"
            }
            Command::ResetAll => {
                self.shared.settings.lock().reset_all(true);
                "RESET"
            }
            Command::Prepare { name, types, statement } => {
                self.prepare_named(name, types, statement)?;
                "PREPARE"
            }
            Command::Deallocate(Some(name)) => {
                self.prepared(name)?;
                self.close_statement(name);
                "DEALLOCATE"
            }
            Command::Deallocate(None) => {
                self.close_statements();
                "DEALLOCATE ALL"
            }
            Command::Close(name) => {
                self.close_cursor(name.as_deref())?;
                if name.is_some() { "CLOSE CURSOR" } else { "CLOSE CURSOR ALL" }
            }
            Command::Listen(channel) => {
                let shared = &self.shared;
                shared.engine.notify.listen(shared.database, channel, shared.session, &shared.inbox);
                "LISTEN"
            }
            Command::Unlisten(channel) => {
                self.shared.engine.notify.unlisten(self.shared.session, channel.as_deref());
                "UNLISTEN"
            }
            Command::Notify { channel, payload } => {
                notify(&self.shared, channel, payload)?;
                self.ensure_transaction();
                "NOTIFY"
            }
            Command::Discard(what) => self.discard(*what)?,
            Command::Nothing(tag) => tag,
            Command::Unsupported(what) => return Err(SqlError::unsupported(what)),
            _ => return Err(SqlError::internal("a command without a body")),
        };
        Ok(tag.to_string())
    }

    fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> SqlResult<()> {
        if local && !self.in_block() {
            self.shared.notice(Notice::warning(
                SqlState::NO_ACTIVE_TRANSACTION,
                "SET LOCAL can only be used in transaction blocks",
            ));
        }
        set_checked(&self.view, name, value, local)?;
        let modes = match name.to_ascii_lowercase().as_str() {
            "transaction_isolation" => {
                Modes { isolation: value.and_then(IsolationLevel::by_name), ..Modes::default() }
            }
            "transaction_read_only" => {
                Modes { read_only: value.and_then(definitions::parse_bool), ..Modes::default() }
            }
            _ => return Ok(()),
        };
        self.set_modes(modes, None)
    }

    fn set_transaction(&mut self, modes: Modes, past: Option<Past>, session: bool) -> SqlResult<()> {
        if !session {
            if !self.in_block() {
                self.shared.notice(Notice::warning(
                    SqlState::NO_ACTIVE_TRANSACTION,
                    "SET TRANSACTION can only be used in transaction blocks",
                ));
                return Ok(());
            }
            return self.set_modes(modes, past);
        }
        let mut settings = self.shared.settings.lock();
        let on_off = |on| Some(if on { "on" } else { "off" });
        if let Some(isolation) = modes.isolation {
            settings.set("default_transaction_isolation", Some(isolation.name()), false, true)?;
        }
        if let Some(read_only) = modes.read_only {
            settings.set("default_transaction_read_only", on_off(read_only), false, true)?;
        }
        if let Some(deferrable) = modes.deferrable {
            settings.set("default_transaction_deferrable", on_off(deferrable), false, true)?;
        }
        Ok(())
    }

    fn show(&self, name: &str) -> SqlResult<String> {
        let open = self.transaction.as_ref();
        let settings = self.shared.settings.lock();
        match name.to_ascii_lowercase().as_str() {
            "transaction_isolation" => {
                return Ok(open.map_or(settings.derived().isolation, |open| open.isolation).name().into());
            }
            "transaction_read_only" => {
                let read_only = open.map_or(settings.derived().read_only, |open| open.read_only);
                return Ok(if read_only { "on" } else { "off" }.into());
            }
            _ => {}
        }
        settings.get(name).ok_or_else(|| definitions::unrecognized(name))
    }

    fn show_all(&self) -> Vec<Row> {
        let settings = self.shared.settings.lock();
        let row = |definition: &definitions::Definition| {
            let value = settings.get(definition.name).unwrap_or_default();
            vec![Datum::text(definition.name), Datum::text(value), Datum::text(definition.description)]
        };
        definitions::all().iter().map(row).collect()
    }

    fn discard(&mut self, what: Discard) -> SqlResult<&'static str> {
        match what {
            Discard::All => {
                if self.in_block() {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
                }
                self.close_cursor(None)?;
                let mut settings = self.shared.settings.lock();
                settings.set("session_authorization", None, false, false)?;
                settings.set("role", None, false, false)?;
                settings.reset_all(false);
                drop(settings);
                self.close_statements();
                self.shared.engine.notify.unlisten(self.shared.session, None);
                self.shared.release_session_locks();
                self.shared.sequences.lock().clear();
                self.discard_temporary();
                Ok("DISCARD ALL")
            }
            Discard::Plans => Ok("DISCARD PLANS"),
            Discard::Sequences => {
                self.shared.sequences.lock().clear();
                Ok("DISCARD SEQUENCES")
            }
            Discard::Temporary => {
                self.discard_temporary();
                Ok("DISCARD TEMP")
            }
        }
    }

    async fn lock_table(&mut self, tables: &[Name], mode: u8, nowait: bool) -> SqlResult<()> {
        if !self.in_block() {
            return Err(SqlError::new(
                SqlState::NO_ACTIVE_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        for name in tables {
            let found = self.view.catalog.find(name.schema.as_deref(), &name.name, &self.view.path);
            let oid = match found {
                Some(Relation::Table(oid) | Relation::View(oid)) => oid,
                Some(_) => {
                    let message = format!("\"{}\" is not a table or view", name.name);
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
                // Catalogs need no lock.
                None if crate::system::reference("pg_catalog", &name.name).is_some() => continue,
                None => {
                    let message = format!("relation \"{}\" does not exist", name.written());
                    return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
                }
            };
            let key = LockKey::Table(oid);
            if nowait && !self.shared.lock_now(key, mode).await? {
                let message = format!("could not obtain lock on relation \"{}\"", name.name);
                return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
            }
            self.shared.lock(key, mode).await?;
        }
        self.refresh_view().await?;
        self.follow_catalog(None).await
    }
}

/// What a transaction that is chained to another has from it.
fn characteristics(open: &Open) -> (Modes, Option<Past>) {
    // One that reads the past is read-only for that reason.
    let modes = Modes { isolation: Some(open.isolation), read_only: Some(open.read_only), deferrable: None };
    (modes, open.past.clone())
}

/// Sets a setting after checking what only the session can: roles must exist and be allowed.
pub(crate) fn set_checked(
    view: &super::view::SessionView,
    name: &str,
    value: Option<&str>,
    local: bool,
) -> SqlResult<()> {
    let lower = name.to_ascii_lowercase();
    let snapshot = view.snapshot();
    let mut value = value;
    if lower == "role" || lower == "session_authorization" {
        if view.of_function {
            let message = format!("cannot set parameter \"{lower}\" within security-definer function");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        match value.filter(|value| *value != "none") {
            None if lower == "role" => value = Some("none"),
            None => {}
            Some(wanted) => {
                let Some(role) = snapshot.role(wanted) else {
                    let message = format!("role \"{wanted}\" does not exist");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
                };
                let login = view.shared.login;
                if !snapshot.is_superuser(login) && !snapshot.is_member(login, role.oid) {
                    let message =
                        format!("permission denied to set {} \"{wanted}\"", lower.replace('_', " "));
                    return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
                }
            }
        }
    }
    if lower == "session_authorization" {
        let mut settings = view.shared.settings.lock();
        return settings.set("session_authorization", value, local, true);
    }
    let definition = definitions::find(name);
    if definition.is_some_and(|definition| definition.context == "superuser") && !view.is_superuser() {
        let message = format!("permission denied to set parameter \"{name}\"");
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    view.shared.settings.lock().set(name, value, local, true)
}

/// Remembers a notification to be sent at commit.
pub(crate) fn notify(shared: &super::view::Shared, channel: &str, payload: &str) -> SqlResult<()> {
    if channel.is_empty() || channel.len() > 63 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, "channel name must have 1 to 63 characters"));
    }
    if payload.len() >= 8000 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, "payload string too long"));
    }
    let mut outgoing = shared.outgoing.lock();
    let entry = (Arc::from(channel), Arc::from(payload));
    if outgoing.contains(&entry) {
        return Ok(());
    }
    if outgoing.len() >= 10_000 {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "too many notifications in one transaction"));
    }
    outgoing.push(entry);
    Ok(())
}
