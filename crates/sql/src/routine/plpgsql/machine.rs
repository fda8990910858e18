//! [`Machine`]: runs a PL/pgSQL body.

use super::ast::{Block, Handler, Source, Stmt};
use super::conditions::{self, ASSERT_FAILURE, CASE_NOT_FOUND, NO_RETURN};
use super::frame::{Frame, Holder};
use super::loops::after;
use super::rows::Shape;
use crate::exec::Reservation;
use crate::parse::StatementKind;
use crate::routine::stack::Deep;
use crate::routine::statements::{Sql, Statements};
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// Where a statement leaves its list.
#[derive(Debug)]
pub(super) enum Flow {
    Next,
    /// EXIT and CONTINUE, with their labels.
    Exit(Option<String>),
    Continue(Option<String>),
    Return,
}

/// What a body is to give.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Gives {
    /// A value of a type.
    Value(Type),
    /// Nothing: DO, and functions returning void.
    Nothing,
    /// A row, or NULL: triggers.
    Row,
    /// A set, or what is assigned to OUT arguments.
    Rows(Arc<Shape>),
}

/// A running body.
pub(crate) struct Machine<'s> {
    pub(super) statements: &'s mut dyn Statements,
    pub(crate) frame: Frame,
    pub(super) found: usize,
    pub(super) row_count: u64,
    pub(super) gives: Gives,
    returned: Option<Datum>,
    /// The errors being handled, the innermost last.
    pub(super) handled: Vec<SqlError>,
    steps: u32,
    /// What the variables take.
    pub(super) held: Reservation,
    /// What RETURN NEXT and RETURN QUERY gave, and what it takes.
    pub(super) rows: Vec<Datum>,
    pub(super) rows_held: Reservation,
}

/// Steps between looks at whether the statement was cancelled.
const STEPS: u32 = 64;

impl<'s> Machine<'s> {
    /// A machine; arguments are to be added to its frame.
    pub(crate) fn new(statements: &'s mut dyn Statements, gives: Gives) -> Machine<'s> {
        Machine {
            statements,
            frame: Frame::default(),
            found: 0,
            row_count: 0,
            gives,
            returned: None,
            handled: Vec::new(),
            steps: 0,
            held: Reservation::default(),
            rows: Vec::new(),
            rows_held: Reservation::default(),
        }
    }

    /// Runs the body. The value it returns.
    pub(crate) async fn run(mut self, block: &Block) -> SqlResult<Datum> {
        let no = Holder::Value(ColumnType::plain(Type::BOOL), Datum::Bool(false));
        self.found = self.frame.add(None, "found", no);
        self.account()?;
        match self.block(block).await? {
            Flow::Return | Flow::Next if matches!(self.gives, Gives::Rows(_)) => Ok(self.given()),
            Flow::Return => Ok(self.returned.unwrap_or_default()),
            Flow::Next if self.gives == Gives::Nothing => Ok(Datum::Null),
            Flow::Next => {
                let what = if self.gives == Gives::Row { "trigger procedure" } else { "function" };
                let message = format!("control reached end of {what} without RETURN");
                Err(SqlError::new(NO_RETURN, message))
            }
            Flow::Exit(_) => Err(misplaced("EXIT")),
            Flow::Continue(_) => Err(misplaced("CONTINUE")),
        }
    }

    pub(super) async fn step(&mut self) -> SqlResult<()> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS) {
            self.statements.pause().await?;
        }
        Ok(())
    }

    fn block<'a>(&'a mut self, block: &'a Block) -> Deep<'a, SqlResult<Flow>> {
        Deep::new(async move {
            let depth = self.frame.depth();
            self.declare(block).await?;
            let flow = if block.handlers.is_empty() {
                self.list(&block.body).await
            } else {
                self.guarded(block).await
            };
            self.frame.leave(depth);
            match flow? {
                Flow::Exit(Some(label)) if block.label.as_ref() == Some(&label) => Ok(Flow::Next),
                flow => Ok(flow),
            }
        })
    }

    /// A block with EXCEPTION: what fails in it is undone and handled.
    async fn guarded(&mut self, block: &Block) -> SqlResult<Flow> {
        let mark = self.statements.mark()?;
        let depth = self.frame.depth();
        let error = match self.list(&block.body).await {
            Err(error) => error,
            done => return done,
        };
        let Some(handler) = block.handlers.iter().find(|handler| catches(handler, &error)) else {
            return Err(error);
        };
        self.statements.back_to(&mark);
        self.frame.leave(depth);
        let text = |value: &str| Holder::Value(ColumnType::plain(Type::TEXT), Datum::text(value));
        self.frame.add(None, "sqlstate", text(error.code.0));
        self.frame.add(None, "sqlerrm", text(&error.message));
        self.handled.push(error);
        let flow = self.list(&handler.body).await;
        self.handled.pop();
        self.frame.leave(depth);
        flow
    }

    pub(super) fn list<'a>(&'a mut self, list: &'a [Stmt]) -> Deep<'a, SqlResult<Flow>> {
        Deep::new(async move {
            for statement in list {
                match self.statement(statement).await? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        })
    }

    async fn statement(&mut self, statement: &Stmt) -> SqlResult<Flow> {
        self.step().await?;
        match statement {
            Stmt::Null => {}
            Stmt::Block(block) => return self.block(block).await,
            Stmt::Assign(target, value) => {
                let (value, ty) = self.value(value).await?;
                let place = self.frame.place(target)?;
                self.put(&place, value, ty)?;
            }
            Stmt::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.holds(condition).await? {
                        return self.list(body).await;
                    }
                }
                return self.list(otherwise).await;
            }
            Stmt::Case { operand, branches, otherwise } => {
                return self.case(operand.as_ref(), branches, otherwise.as_deref()).await;
            }
            Stmt::Loop(label, body) => loop {
                self.step().await?;
                let flow = self.list(body).await?;
                if let Some(flow) = after(flow, label.as_deref()) {
                    return Ok(flow);
                }
            },
            Stmt::While(label, condition, body) => {
                while self.holds(condition).await? {
                    self.step().await?;
                    let flow = self.list(body).await?;
                    if let Some(flow) = after(flow, label.as_deref()) {
                        return Ok(flow);
                    }
                }
            }
            Stmt::ForInteger { label, variable, from, to, by, reverse, body } => {
                let range = [Some(from), Some(to), by.as_ref()];
                return self.count(label.as_deref(), variable, range, *reverse, body).await;
            }
            Stmt::ForRows { label, targets, source, body } => {
                let answer = match source {
                    Source::Query(query) => self.answer(query, 0).await?,
                    Source::Execute(query, using) => self.execute(query, using, 0).await?,
                };
                return self.each_row(label.as_deref(), targets, answer, body).await;
            }
            Stmt::ForEach { label, target, array, body } => {
                return self.each(label.as_deref(), target, array, body).await;
            }
            Stmt::Leave { exit, label, when } => {
                if let Some(when) = when
                    && !self.holds(when).await?
                {
                    return Ok(Flow::Next);
                }
                let label = label.clone();
                return Ok(if *exit { Flow::Exit(label) } else { Flow::Continue(label) });
            }
            Stmt::Return(value) => {
                self.returned = self.result(value.as_ref()).await?;
                return Ok(Flow::Return);
            }
            Stmt::ReturnNext(value) => self.return_next(value.as_ref()).await?,
            Stmt::ReturnQuery(source) => self.return_query(source).await?,
            Stmt::Raise(raise) => self.raise(raise).await?,
            Stmt::RaiseAgain => {
                return Err(self.handled.last().cloned().unwrap_or_else(|| {
                    let message = "RAISE without parameters cannot be used outside an exception handler";
                    SqlError::new(SqlState("0Z002"), message)
                }));
            }
            Stmt::Assert(condition, message) => {
                if !self.holds(condition).await? {
                    let text = match message {
                        Some(message) => self.text(message).await?,
                        None => None,
                    };
                    let text = text.unwrap_or_else(|| "assertion failed".into());
                    return Err(SqlError::new(ASSERT_FAILURE, text));
                }
            }
            Stmt::Sql(sql, into) => {
                let most = match into {
                    // One more than wanted, to know of it.
                    Some(into) => 1 + usize::from(into.strict),
                    None => 0,
                };
                let answer = self.answer(sql, most).await?;
                let rows_wanted = into.is_some();
                if answer.columns.is_some() && !rows_wanted && answer.kind == StatementKind::Query {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "query has no destination for result data",
                    )
                    .with_hint("If you want to discard the results of a SELECT, use PERFORM instead."));
                }
                self.note(&answer);
                if let Some(into) = into {
                    self.into(into, answer)?;
                }
            }
            Stmt::Perform(sql) => {
                let answer = self.answer(sql, 0).await?;
                self.note(&answer);
            }
            Stmt::Execute { query, into, using } => {
                let most = into.as_ref().map_or(0, |into| 1 + usize::from(into.strict));
                let answer = self.execute(query, using, most).await?;
                self.row_count = answer.affected;
                if let Some(into) = into {
                    self.into(into, answer)?;
                }
            }
            Stmt::Diagnostics(items) => {
                for (target, item) in items {
                    let value = self.diagnostic(item);
                    let ty = if item == "row_count" { Type::INT8 } else { Type::TEXT };
                    let place = self.frame.place(target)?;
                    self.put(&place, value, ty)?;
                }
            }
        }
        Ok(Flow::Next)
    }

    async fn case(
        &mut self,
        operand: Option<&Sql>,
        branches: &[(Vec<Sql>, Vec<Stmt>)],
        otherwise: Option<&[Stmt]>,
    ) -> SqlResult<Flow> {
        let operand = match operand {
            Some(operand) => Some(self.value(operand).await?),
            None => None,
        };
        for (tests, body) in branches {
            for test in tests {
                let holds = match &operand {
                    None => self.holds(test).await?,
                    Some((value, ty)) => {
                        let (other, other_ty) = self.value(test).await?;
                        self.equal((value.clone(), *ty), (other, other_ty)).await?
                    }
                };
                if holds {
                    return self.list(body).await;
                }
            }
        }
        match otherwise {
            Some(body) => self.list(body).await,
            None => Err(SqlError::new(CASE_NOT_FOUND, "case not found")
                .with_hint("CASE statement is missing ELSE part.")),
        }
    }

    async fn equal(&mut self, left: (Datum, Type), right: (Datum, Type)) -> SqlResult<bool> {
        let variables = crate::bind::Variables { types: vec![left.1, right.1], ..Default::default() };
        let test = Sql::expression("$1 = $2")?;
        let values = vec![left.0, right.0];
        let answer = self.statements.run(&test.statement, &Arc::new(variables), values, 1).await?;
        Ok(matches!(answer.rows.first().and_then(|row| row.first()), Some(Datum::Bool(true))))
    }
}

fn misplaced(what: &str) -> SqlError {
    let message = format!("{what} cannot be used outside a loop, unless it has a label");
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

/// Whether a handler is for an error. What ended the transaction, or is to end the statement, none is for.
fn catches(handler: &Handler, error: &SqlError) -> bool {
    let ends = [
        SqlState::SERIALIZATION_FAILURE,
        SqlState::DEADLOCK,
        SqlState::COMPLETION_UNKNOWN,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::QUERY_CANCELED,
    ];
    if ends.contains(&error.code) {
        return false;
    }
    handler.conditions.iter().any(|condition| match condition {
        None => error.code != ASSERT_FAILURE,
        Some(condition) => conditions::matches(*condition, error.code),
    })
}
