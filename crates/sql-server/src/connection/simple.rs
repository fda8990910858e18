//! The simple query protocol: one message of SQL text, any number of statements.

use super::io::ConnectionError;
use super::rows::{self, WireSink};
use super::{Connection, utf8};
use crate::metrics::METRICS;
use crate::protocol::backend;
use sql::session::{RunOptions, RunOutcome, Statement};
use sql_types::{SqlError, SqlResult};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// Runs all statements of a Query message as one implicit transaction (unless they say otherwise).
    pub(super) async fn simple_query(&mut self, text: &[u8]) -> Result<(), ConnectionError> {
        // A simple query replaces the unnamed statement and portal.
        self.unnamed = None;
        self.portals.remove("");
        let statements = match utf8(text).and_then(|text| self.session.parse(text)) {
            Ok(statements) => statements,
            Err(error) => return self.end_simple_query(Err(error)).await,
        };
        if statements.is_empty() {
            backend::empty_query(&mut self.output.buffer);
        }
        let last = statements.len();
        for (index, statement) in statements.into_iter().enumerate() {
            match self.simple_statement(statement, index + 1 == last).await? {
                Ok(()) => {}
                Err(error) => return self.end_simple_query(Err(error)).await,
            }
        }
        self.end_simple_query(Ok(())).await
    }

    async fn end_simple_query(&mut self, result: SqlResult<()>) -> Result<(), ConnectionError> {
        let success = result.is_ok();
        if let Err(error) = result {
            self.fail(error);
        }
        if let Err(error) = self.session.end_implicit(success).await {
            self.fail(error);
        }
        self.ready();
        Ok(())
    }

    async fn simple_statement(
        &mut self,
        statement: Arc<Statement>,
        last: bool,
    ) -> Result<Result<(), SqlError>, ConnectionError> {
        let _timer = METRICS.statement_seconds.start_timer();
        METRICS.statements.inc();
        let prepared = match self.session.prepare(statement, &[]).await {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(error)),
        };
        let mut portal = match self.session.bind(&prepared, Vec::new()).await {
            Ok(portal) => portal,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(columns) = portal.columns() {
            rows::describe(&mut self.output.buffer, columns, &[]);
        }
        let text = self.session.text_settings();
        let options = RunOptions { commit_after: last };
        let outcome = {
            let mut sink = WireSink::new(&mut self.output, portal.columns(), &[], text);
            // Pinned where it is made: it is large, and moving it costs more than a point read.
            let run = std::pin::pin!(self.session.run(&mut portal, 0, options, &mut sink));
            Self::watching(&mut self.input, run).await?
        };
        match outcome {
            Ok(RunOutcome::Complete { tag }) => {
                self.complete(&tag);
                Ok(Ok(()))
            }
            Ok(RunOutcome::Empty) => {
                backend::empty_query(&mut self.output.buffer);
                Ok(Ok(()))
            }
            // Only a row limit suspends, and there was none.
            Ok(RunOutcome::Suspended) => Ok(Err(SqlError::internal("statement suspended without limit"))),
            Ok(RunOutcome::CopyIn { columns, binary }) => self.copy_in(&mut portal, columns, binary).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// CommandComplete, after the notices and parameter changes the statement caused.
    pub(super) fn complete(&mut self, tag: &str) {
        self.pass_on_notices();
        for (name, value) in self.session.take_parameter_changes() {
            backend::parameter_status(&mut self.output.buffer, &name, &value);
        }
        backend::command_complete(&mut self.output.buffer, tag);
    }
}
