//! DO: a PL/pgSQL block run by the session, which may change the schema as well.

use super::Session;
use super::command::Command;
use super::host::guarded;
use super::portal::Portal;
use super::prepared;
use super::run::{Environment, is_transient};
use super::view::{Times, now_micros};
use crate::bind::Variables;
use crate::catalog::routine::Language;
use crate::exec::MemoryBudget;
use crate::parse::{Statement, StatementKind};
use crate::routine::nested::{Nested, not_here};
use crate::routine::plpgsql::machine::{Gives, Machine};
use crate::routine::statements::{Answer, Columns, Mark, SessionMark, Statements};
use crate::routine::{Compiled, compile};
use async_trait::async_trait;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, Type};
use sqlparser::ast::DataType;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a block that lost against another transaction is run again.
const MOST_ATTEMPTS: u32 = 20;

/// The statements of a DO block.
struct OfSession<'a> {
    session: &'a mut Session,
    memory: &'a MemoryBudget,
    deadline: Option<Instant>,
}

impl Session {
    /// DO
    pub(super) async fn run_block(
        &mut self,
        language: Option<&str>,
        body: &str,
        portal: &Portal,
        deadline: Option<Instant>,
    ) -> SqlResult<()> {
        match language {
            None | Some("plpgsql") => {}
            Some("sql") => {
                let message = "language \"sql\" does not support inline code execution";
                return Err(SqlError::new(sql_types::SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            Some(other) => {
                let message = format!("language \"{other}\" does not exist");
                return Err(SqlError::new(sql_types::SqlState::UNDEFINED_OBJECT, message));
            }
        }
        if self.is_past() {
            return Err(SqlError::unsupported("DO in a read of the past"));
        }
        let Compiled::PlPgSql(block) = compile(Language::PlPgSql, body)? else {
            return Err(SqlError::internal("not PL/pgSQL"));
        };
        let cancel = self.shared.cancel.clone();
        let first = self.transaction.as_ref().is_none_or(|open| !open.used);
        let mut attempt = 0;
        loop {
            self.ensure_transaction();
            let result = {
                let mut statements = OfSession { session: self, memory: &portal.memory, deadline };
                let running = Machine::new(&mut statements, Gives::Nothing).run(&block);
                guarded(&cancel, deadline, Box::pin(running)).await
            };
            match result {
                Err(error) if first && attempt < MOST_ATTEMPTS && is_transient(&error) => {
                    attempt += 1;
                    self.restart();
                    let pause = Duration::from_millis(1 << attempt.min(6)).mul_f64(rand::random::<f64>());
                    tokio::time::sleep(pause).await;
                }
                result => return result.map(|_| ()),
            }
        }
    }
}

impl OfSession<'_> {
    /// Does something with the statements of the open transaction.
    fn with_nested<T>(&self, f: impl FnOnce(&Nested<'_>) -> SqlResult<T>) -> SqlResult<T> {
        let view = self.session.view.clone();
        let Some(open) = self.session.transaction.as_deref() else {
            return Err(SqlError::internal("no transaction"));
        };
        let environment = self.environment(&view, open.started);
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        f(&Nested { cx, view: &view, volatile: true })
    }

    fn environment<'v>(&'v self, view: &'v super::view::SessionView, started: i64) -> Environment<'v> {
        Environment {
            view,
            times: Times { transaction: started, statement: now_micros() },
            params: &[],
            memory: self.memory,
            implicit_commit: false,
            stats: None,
        }
    }

    /// Runs a query or a change of rows.
    async fn planned(
        &mut self,
        statement: &Arc<Statement>,
        variables: &Arc<Variables>,
        values: Vec<Datum>,
        most: usize,
    ) -> SqlResult<Answer> {
        self.session.refresh_view().await?;
        self.session.follow_catalog(None).await?;
        let view = self.session.view.clone();
        let Some(open) = self.session.transaction.as_deref() else {
            return Err(SqlError::internal("no transaction"));
        };
        open.txn.begin_statement();
        let answer = {
            let environment = self.environment(&view, open.started);
            let parts = environment.parts();
            let cx = environment.context(open, &parts);
            let mut nested = Nested { cx, view: &view, volatile: true };
            nested.run(statement, variables, values, most).await
        };
        if let Some(open) = self.session.transaction.as_deref_mut() {
            open.used = true;
        }
        answer
    }
}

#[async_trait]
impl Statements for OfSession<'_> {
    async fn run(
        &mut self,
        statement: &Arc<Statement>,
        variables: &Arc<Variables>,
        values: Vec<Datum>,
        most: usize,
    ) -> SqlResult<Answer> {
        let command = prepared::command_of(statement)?;
        match &*command {
            Command::Planned => self.planned(statement, variables, values, most).await,
            Command::Ddl(ddl) => {
                let memory = self.memory.clone();
                let portal = Portal::new(Arc::new(prepared::Prepared::empty()), values, memory);
                self.session.run_schema_change(ddl, &portal, self.deadline).await?;
                self.session.refresh_view().await?;
                Ok(Answer::nothing(StatementKind::Ddl))
            }
            _ => Err(not_here(statement)),
        }
    }

    fn convert(&self, value: Datum, from: Type, to: ColumnType) -> SqlResult<Datum> {
        self.with_nested(|nested| nested.convert(value, from, to))
    }

    fn show(&self, value: &Datum, ty: Type) -> String {
        self.with_nested(|nested| Ok(nested.show(value, ty))).unwrap_or_default()
    }

    fn named_type(&self, ty: &DataType) -> SqlResult<ColumnType> {
        self.with_nested(|nested| nested.named_type(ty))
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> SqlResult<Option<Columns>> {
        self.with_nested(|nested| nested.relation(schema, name))
    }

    fn notice(&self, notice: super::Notice) {
        self.session.shared.notice(notice);
    }

    fn memory(&self) -> &MemoryBudget {
        self.memory
    }

    fn mark(&mut self) -> SqlResult<Mark> {
        let Some(open) = self.session.transaction.as_deref() else {
            return Err(SqlError::internal("no transaction"));
        };
        Ok(Mark {
            kv: open.txn.savepoint(),
            deferred: open.deferred.mark(),
            session: Some(SessionMark {
                overlay: open.overlay.clone(),
                temporary: open.temporary.clone(),
                statistics: open.statistics.len(),
                to_clear: (open.schema.clear_on_commit.len(), open.schema.clear_on_abort.len()),
            }),
        })
    }

    fn back_to(&mut self, mark: &Mark) {
        let (Some(open), Some(session)) = (self.session.transaction.as_deref_mut(), &mark.session) else {
            return;
        };
        open.go_back(&mark.kv, &mark.deferred, session);
    }

    async fn pause(&self) -> SqlResult<()> {
        self.session.shared.cancel.0.flag.check()?;
        tokio::task::yield_now().await;
        self.session.shared.cancel.0.flag.check()
    }
}
