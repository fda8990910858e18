//! RETURN NEXT, RETURN QUERY and OUT arguments.

use super::ast::Source;
use super::frame::Holder;
use super::machine::{Gives, Machine};
use crate::catalog::routine::RoutineDescriptor;
use crate::exec::relation::row_bytes;
use crate::plan::PlanColumn;
use crate::routine::rows;
use crate::routine::statements::Sql;
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// What a body gives by name, or as a set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    columns: Vec<Type>,
    /// The variables that are its OUT arguments.
    slots: Vec<usize>,
    set: bool,
}

impl Shape {
    /// That of a function, whose arguments are the first variables in the order of their declaration.
    pub(crate) fn of(routine: &RoutineDescriptor) -> Shape {
        let declared = routine.declared();
        let slots = (0..).zip(&declared).filter(|(_, argument)| argument.output.is_some());
        Shape {
            columns: routine.columns().into_iter().map(|(_, ty)| ty).collect(),
            slots: slots.map(|(slot, _)| slot).collect(),
            set: routine.set,
        }
    }

    /// 42804 for RETURN with a value.
    pub(super) fn no_value(&self) -> SqlError {
        if self.set {
            let message = "RETURN cannot have a parameter in function returning set";
            return SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("Use RETURN NEXT or RETURN QUERY.");
        }
        let message = "RETURN cannot have a parameter in function with OUT parameters";
        SqlError::new(SqlState::DATATYPE_MISMATCH, message)
    }

    /// Fails with 42804 if columns are not those of the set.
    fn check(&self, columns: &[PlanColumn]) -> SqlResult<()> {
        let wrong = |detail: String| {
            let message = "structure of query does not match function result type";
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_detail(detail))
        };
        if columns.len() != self.columns.len() {
            let (given, wanted) = (columns.len(), self.columns.len());
            return wrong(format!(
                "Number of returned columns ({given}) does not match expected column count ({wanted})."
            ));
        }
        for (number, (column, wanted)) in columns.iter().zip(&self.columns).enumerate() {
            let (given, number) = (column.ty.ty, number + 1);
            if given != *wanted {
                return wrong(format!(
                    "Returned type {given} does not match expected type {wanted} in column {number}."
                ));
            }
        }
        Ok(())
    }
}

impl Machine<'_> {
    fn set(&self, statement: &str) -> SqlResult<Arc<Shape>> {
        match &self.gives {
            Gives::Rows(shape) if shape.set => Ok(shape.clone()),
            _ => {
                let message = format!("cannot use {statement} in a non-SETOF function");
                Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
            }
        }
    }

    /// What the OUT arguments hold.
    fn outputs(&self, shape: &Shape) -> Row {
        let value = |slot: &usize| match self.frame.holder(*slot) {
            Some(Holder::Value(_, value)) => value.clone(),
            _ => Datum::Null,
        };
        shape.slots.iter().map(value).collect()
    }

    fn give(&mut self, row: Row) -> SqlResult<()> {
        self.rows_held.grow(self.statements.memory(), row_bytes(&row))?;
        self.rows.push(rows::row(row));
        Ok(())
    }

    pub(super) async fn return_next(&mut self, value: Option<&Sql>) -> SqlResult<()> {
        let shape = self.set("RETURN NEXT")?;
        let row = match (value, shape.slots.is_empty()) {
            (None, false) => self.outputs(&shape),
            (None, true) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "RETURN NEXT must have a parameter"));
            }
            (Some(_), false) => {
                let message = "RETURN NEXT cannot have a parameter in function with OUT parameters";
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
            }
            (Some(value), true) => {
                let (value, ty) = self.value(value).await?;
                let to = shape.columns.first().copied().unwrap_or(Type::TEXT);
                vec![self.statements.convert(value, ty, ColumnType::plain(to))?]
            }
        };
        self.give(row)
    }

    pub(super) async fn return_query(&mut self, source: &Source) -> SqlResult<()> {
        let shape = self.set("RETURN QUERY")?;
        let answer = match source {
            Source::Query(query) => self.answer(query, 0).await?,
            Source::Execute(query, using) => self.execute(query, using, 0).await?,
        };
        let Some(columns) = &answer.columns else {
            let message = "cannot open a statement that returns no rows as cursor";
            return Err(SqlError::new(SqlState("42P11"), message));
        };
        shape.check(columns)?;
        self.note(&answer);
        for row in answer.rows {
            self.give(row)?;
        }
        Ok(())
    }

    /// What the body has given when it ends.
    pub(super) fn given(&mut self) -> Datum {
        let Gives::Rows(shape) = &self.gives else { return Datum::Null };
        if shape.set {
            return rows::value(std::mem::take(&mut self.rows));
        }
        let mut row = self.outputs(shape);
        if row.len() == 1 { row.pop().unwrap_or_default() } else { rows::value(vec![rows::row(row)]) }
    }
}
