//! The extended query protocol: Parse, Bind, Describe, Execute, Close, Sync.

use super::io::ConnectionError;
use super::rows::{self, WireSink};
use super::{Connection, MOST_PORTALS, utf8};
use crate::metrics::METRICS;
use crate::protocol::backend;
use crate::protocol::frontend::{Frontend, Target};
use bytes::Bytes;
use sql::session::{Portal, Prepared, RunOptions, RunOutcome};
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type, binary, text};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// A portal with the formats its client wants.
pub(super) struct PortalSlot {
    portal: Portal,
    formats: Vec<i16>,
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// Handles one message; after an error everything up to Sync is skipped.
    pub(super) async fn extended(&mut self, message: Frontend) -> Result<(), ConnectionError> {
        let result = match message {
            Frontend::Parse { name, query, param_types } => {
                Box::pin(self.parse(name, &query, &param_types)).await
            }
            Frontend::Bind { portal, statement, param_formats, params, result_formats } => {
                self.bind(portal, &statement, &param_formats, params, result_formats).await
            }
            Frontend::Describe(target) => self.describe(&target),
            Frontend::Execute { portal, max_rows } => self.execute(&portal, max_rows).await?,
            Frontend::Close(target) => {
                match &target {
                    Target::Statement(name) if name.is_empty() => self.unnamed = None,
                    Target::Statement(name) => self.session.close_statement(name),
                    Target::Portal(name) => drop(self.portals.remove(name)),
                }
                backend::close_complete(&mut self.output.buffer);
                Ok(())
            }
            other => Err(SqlError::internal(format!("not an extended message: {other:?}"))),
        };
        if let Err(error) = result {
            self.fail(error);
            self.skipping = true;
        }
        Ok(())
    }

    /// Ends a series: commits or rolls back the implicit transaction.
    pub(super) async fn sync(&mut self) -> Result<(), ConnectionError> {
        let success = !std::mem::take(&mut self.skipping);
        if let Err(error) = self.session.end_implicit(success).await {
            self.fail(error);
        }
        if self.session.transaction_status() == b'I' {
            self.portals.clear();
        }
        self.ready();
        Ok(())
    }

    async fn parse(&mut self, name: String, query: &[u8], param_types: &[u32]) -> SqlResult<()> {
        let prepared = self.session.prepare_text(utf8(query)?, param_types).await?;
        if name.is_empty() {
            self.unnamed = Some(prepared);
        } else {
            self.session.name_statement(&name, prepared)?;
        }
        backend::parse_complete(&mut self.output.buffer);
        Ok(())
    }

    fn statement(&self, name: &str) -> SqlResult<Arc<Prepared>> {
        let found = if name.is_empty() { self.unnamed.clone() } else { self.session.statement(name) };
        found.ok_or_else(|| no_statement(name))
    }

    async fn bind(
        &mut self,
        name: String,
        statement: &str,
        param_formats: &[i16],
        params: Vec<Option<Bytes>>,
        formats: Vec<i16>,
    ) -> SqlResult<()> {
        let prepared = self.statement(statement)?;
        if !name.is_empty() {
            if self.portals.contains_key(&name) {
                let message = format!("cursor \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
            }
            bounded(self.portals.len())?;
        }
        let params = self.decode_params(&prepared, statement, param_formats, params)?;
        let portal = self.session.bind(&prepared, params).await?;
        if formats.len() > 1 {
            let columns = portal.columns().map_or(0, <[_]>::len);
            if formats.len() != columns {
                let given = formats.len();
                let message =
                    format!("bind message has {given} result formats but query has {columns} columns");
                return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
            }
        }
        self.portals.insert(name, PortalSlot { portal, formats });
        backend::bind_complete(&mut self.output.buffer);
        Ok(())
    }

    fn decode_params(
        &self,
        prepared: &Prepared,
        statement: &str,
        formats: &[i16],
        params: Vec<Option<Bytes>>,
    ) -> SqlResult<Vec<Datum>> {
        let types = prepared.param_types();
        if params.len() != types.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                params.len(),
                types.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        if formats.len() > 1 && formats.len() != params.len() {
            let message = format!(
                "bind message has {} parameter formats but {} parameters",
                formats.len(),
                params.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let settings = self.session.text_settings();
        params
            .iter()
            .zip(types)
            .enumerate()
            .map(|(index, (value, ty))| {
                let Some(value) = value else { return Ok(Datum::Null) };
                let as_binary = match formats {
                    [] => false,
                    [one] => *one == 1,
                    many => many[index] == 1,
                };
                decode_param(value, *ty, as_binary, &settings)
            })
            .collect()
    }

    fn describe(&mut self, target: &Target) -> SqlResult<()> {
        match target {
            Target::Statement(name) => {
                let prepared = self.statement(name)?;
                let out = &mut self.output.buffer;
                backend::parameter_description(out, prepared.param_types().iter().map(|ty| ty.0));
                match prepared.columns() {
                    Some(columns) => rows::describe(out, columns, &[]),
                    None => backend::no_data(out),
                }
            }
            Target::Portal(name) => {
                let out = &mut self.output.buffer;
                let Some(slot) = self.portals.get(name) else {
                    // A cursor that SQL declared is a portal too.
                    let columns = self.session.cursor_columns(name).map_err(|_| no_portal(name))?;
                    rows::describe(out, &columns, &[]);
                    return Ok(());
                };
                match slot.portal.columns() {
                    Some(columns) => rows::describe(out, columns, &slot.formats),
                    None => backend::no_data(out),
                }
            }
        }
        Ok(())
    }

    async fn execute(&mut self, name: &str, max_rows: i32) -> Result<SqlResult<()>, ConnectionError> {
        let _timer = METRICS.statement_seconds.start_timer();
        METRICS.statements.inc();
        // Taken out while it runs: the session must not see it change.
        let Some(mut slot) = self.portals.remove(name) else { return Ok(Err(no_portal(name))) };
        let options = RunOptions { commit_after: self.input.sync_follows() };
        let text = self.session.text_settings();
        let limit = usize::try_from(max_rows).unwrap_or(0);
        let outcome = {
            let mut sink = WireSink::new(&mut self.output, slot.portal.columns(), &slot.formats, text);
            // Pinned where it is made: it is large, and moving it costs more than a point read.
            let run = std::pin::pin!(self.session.run(&mut slot.portal, limit, options, &mut sink));
            Self::watching(&mut self.input, run).await?
        };
        let result = match outcome {
            Ok(RunOutcome::Complete { tag }) => {
                self.complete(&tag);
                Ok(())
            }
            Ok(RunOutcome::Suspended) => {
                backend::portal_suspended(&mut self.output.buffer);
                Ok(())
            }
            Ok(RunOutcome::Empty) => {
                backend::empty_query(&mut self.output.buffer);
                Ok(())
            }
            Ok(RunOutcome::CopyIn { columns, binary }) => {
                Box::pin(self.copy_in(&mut slot.portal, columns, binary)).await?
            }
            Err(error) => Err(error),
        };
        if result.is_ok() {
            self.portals.insert(name.to_string(), slot);
        }
        Ok(result)
    }
}

fn decode_param(
    value: &Bytes,
    ty: Type,
    as_binary: bool,
    settings: &sql::session::TextSettings,
) -> SqlResult<Datum> {
    if as_binary {
        binary::decode(ty, value, &settings.context())
    } else {
        text::parse(ColumnType::plain(ty), utf8(value)?, &settings.context())
    }
}

fn bounded(portals: usize) -> SqlResult<()> {
    if portals < MOST_PORTALS {
        return Ok(());
    }
    Err(SqlError::new(SqlState::PROGRAM_LIMIT, format!("a session may hold at most {MOST_PORTALS} portals"))
        .with_hint("Close those that are no longer needed."))
}

fn no_statement(name: &str) -> SqlError {
    if name.is_empty() {
        return SqlError::new(SqlState::INVALID_STATEMENT_NAME, "unnamed prepared statement does not exist");
    }
    SqlError::new(SqlState::INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
