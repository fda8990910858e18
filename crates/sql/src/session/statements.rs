//! Prepared statements by name: those of SQL's PREPARE and those of the protocol's Parse, which share their names.

use super::prepared::{self, Prepared};
use super::view::now_micros;
use super::{MOST_NAMED, Session, Statement};
use crate::bind;
use crate::session::command::Command;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// A prepared statement that has a name.
pub(crate) struct NamedStatement {
    pub prepared: Arc<Prepared>,
    /// Microseconds since 2000-01-01 UTC.
    pub prepared_at: i64,
    /// Prepared by SQL, and not by a message of the protocol.
    pub from_sql: bool,
}

impl Session {
    /// The prepared statement of this name.
    pub fn statement(&self, name: &str) -> Option<Arc<Prepared>> {
        self.shared.named.lock().statements.get(name).map(|named| named.prepared.clone())
    }

    /// Gives a statement that a Parse message prepared its name.
    ///
    /// # Errors
    /// 42P05 if there is one of this name, 54000 if there are too many.
    pub fn name_statement(&mut self, name: &str, prepared: Arc<Prepared>) -> SqlResult<()> {
        self.keep_statement(name, prepared, false)
    }

    /// Forgets a prepared statement; nothing happens if there is none of this name.
    pub fn close_statement(&mut self, name: &str) {
        self.shared.named.lock().statements.remove(name);
    }

    pub(super) fn close_statements(&mut self) {
        self.shared.named.lock().statements.clear();
    }

    /// The prepared statement of this name, or PostgreSQL's error.
    pub(super) fn prepared(&self, name: &str) -> SqlResult<Arc<Prepared>> {
        self.statement(name).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            )
        })
    }

    fn keep_statement(&mut self, name: &str, prepared: Arc<Prepared>, from_sql: bool) -> SqlResult<()> {
        let statements = &mut self.shared.named.lock().statements;
        if statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_STATEMENT, message));
        }
        if statements.len() >= MOST_NAMED {
            let message = format!("a session may hold at most {MOST_NAMED} prepared statements");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, message)
                .with_hint("Close those that are no longer needed."));
        }
        let named = NamedStatement { prepared, prepared_at: now_micros(), from_sql };
        statements.insert(name.to_string(), named);
        Ok(())
    }

    /// SQL's PREPARE.
    pub(super) fn prepare_named(
        &mut self,
        name: &str,
        types: &[sqlparser::ast::DataType],
        statement: &Arc<Statement>,
    ) -> SqlResult<()> {
        let view = self.view.clone();
        let session = view.eval(self.times());
        let context = view.bind_context(&session, &[]);
        let types = types.iter().map(|ty| bind::column_type(ty, &context).map(|ty| ty.ty));
        let types = types.collect::<SqlResult<Vec<_>>>()?;
        let command = prepared::command_of(statement)?;
        if !matches!(*command, Command::Planned) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "only queries and statements that change rows can be prepared",
            ));
        }
        let prepared = self.prepare_command(statement.clone(), command, &types)?;
        self.keep_statement(name, prepared, true)
    }
}
