//! What statements and expressions of a body give, and where it goes.

use super::ast::{Into, Target};
use super::conditions::{NO_DATA_FOUND, TOO_MANY_ROWS};
use super::frame::{Fields, Holder, Place, fields_of, record};
use super::machine::{Gives, Machine};
use crate::parse::{self, StatementKind};
use crate::routine::stack::planning;
use crate::routine::statements::{Answer, Sql, without_position};
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

impl Machine<'_> {
    /// FOUND and ROW_COUNT after a statement.
    pub(super) fn note(&mut self, answer: &Answer) {
        self.row_count = answer.affected;
        self.set_found(answer.affected > 0);
    }

    pub(super) fn set_found(&mut self, found: bool) {
        if let Some(slot) = self.frame.slot_mut(self.found) {
            slot.holder = Holder::Value(ColumnType::plain(Type::BOOL), Datum::Bool(found));
        }
    }

    pub(super) fn put(&mut self, place: &Place, value: Datum, ty: Type) -> SqlResult<()> {
        let statements = &*self.statements;
        self.frame.assign(place, value, ty, &|value, from, to| statements.convert(value, from, to))?;
        self.account()
    }

    /// Counts what the variables hold now.
    pub(super) fn account(&mut self) -> SqlResult<()> {
        self.held.resize(self.statements.memory(), self.frame.bytes())
    }

    pub(super) async fn answer(&mut self, sql: &Sql, most: usize) -> SqlResult<Answer> {
        let variables = self.frame.variables();
        let values = self.frame.values();
        self.statements.run(&sql.statement, &variables, values, most).await
    }

    /// The value of an expression, and its type.
    pub(super) async fn value(&mut self, sql: &Sql) -> SqlResult<(Datum, Type)> {
        if let Some(slot) = sql.name.as_deref().and_then(|name| self.frame.named(name)) {
            match self.frame.holder(slot) {
                Some(Holder::Value(ty, value)) => return Ok((value.clone(), ty.ty)),
                Some(Holder::Row { fields, values, .. }) if values.len() == fields.len() => {
                    return Ok((record(fields, values), Type::RECORD));
                }
                Some(Holder::Row { .. }) => return Ok((Datum::Null, Type::RECORD)),
                _ => {}
            }
        }
        let answer = self.answer(sql, 2).await?;
        let columns = answer.columns.as_deref().unwrap_or_default();
        if columns.len() != 1 {
            let message = format!("query returned {} columns", columns.len());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        if answer.rows.len() > 1 {
            let message = "query returned more than one row";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message));
        }
        let ty = columns.first().map_or(Type::TEXT, |column| column.ty.ty);
        let value = answer.rows.into_iter().next().and_then(|row| row.into_iter().next());
        Ok((value.unwrap_or_default(), ty))
    }

    pub(super) async fn holds(&mut self, sql: &Sql) -> SqlResult<bool> {
        let (value, ty) = self.value(sql).await?;
        let value = self.statements.convert(value, ty, ColumnType::plain(Type::BOOL))?;
        Ok(matches!(value, Datum::Bool(true)))
    }

    /// The value of an expression as text; `None` for NULL.
    pub(super) async fn text(&mut self, sql: &Sql) -> SqlResult<Option<String>> {
        let (value, ty) = self.value(sql).await?;
        Ok((!value.is_null()).then(|| self.statements.show(&value, ty)))
    }

    pub(super) async fn execute(&mut self, query: &Sql, using: &[Sql], most: usize) -> SqlResult<Answer> {
        let Some(text) = self.text(query).await? else {
            let message = "query string argument of EXECUTE is null";
            return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
        };
        let mut variables = crate::bind::Variables::default();
        let mut values = Vec::with_capacity(using.len());
        for value in using {
            let (value, ty) = self.value(value).await?;
            values.push(value);
            variables.types.push(ty);
        }
        let mut statements = planning(|| parse::parse(&text)).map_err(without_position)?;
        let Some(last) = statements.pop() else {
            return Ok(Answer::nothing(StatementKind::Query));
        };
        let variables = Arc::new(variables);
        for statement in statements {
            self.statements.run(&Arc::new(statement), &variables, values.clone(), 0).await?;
        }
        self.statements.run(&Arc::new(last), &variables, values, most).await
    }

    /// Puts the row of a statement where INTO says.
    pub(super) fn into(&mut self, into: &Into, answer: Answer) -> SqlResult<()> {
        let Some(columns) = &answer.columns else {
            let message = "INTO used with a command that cannot return data";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        let change = answer.kind != StatementKind::Query;
        if answer.rows.len() > 1 && (into.strict || change) {
            let error = SqlError::new(TOO_MANY_ROWS, "query returned more than one row");
            return Err(error.with_hint("Make sure the query returns a single row, or use LIMIT 1."));
        }
        let fields = fields_of(columns);
        match answer.rows.into_iter().next() {
            None if into.strict => Err(SqlError::new(NO_DATA_FOUND, "query returned no rows")),
            None => self.distribute(&into.targets, &fields, vec![Datum::Null; fields.len()]),
            Some(row) => self.distribute(&into.targets, &fields, row),
        }
    }

    /// A row to one record, or column by column.
    pub(super) fn distribute(&mut self, targets: &[Target], fields: &Fields, row: Row) -> SqlResult<()> {
        if let [target] = targets {
            let place = self.frame.place(target)?;
            let is_record = !matches!(self.frame.holder(place.slot), Some(Holder::Value(..)));
            if place.field.is_none() && is_record {
                let statements = &*self.statements;
                let convert = |value, from, to| statements.convert(value, from, to);
                self.frame.assign_row(place.slot, fields, row, &convert)?;
                return self.account();
            }
        }
        let mut row = row.into_iter();
        for (position, target) in targets.iter().enumerate() {
            let place = self.frame.place(target)?;
            let ty = fields.get(position).map_or(Type::TEXT, |(_, ty)| ty.ty);
            self.put(&place, row.next().unwrap_or_default(), ty)?;
        }
        Ok(())
    }

    pub(super) async fn result(&mut self, value: Option<&Sql>) -> SqlResult<Option<Datum>> {
        match (self.gives.clone(), value) {
            (Gives::Nothing, None) => Ok(None),
            (Gives::Nothing, Some(_)) => {
                let message = "RETURN cannot have a parameter in function returning void";
                Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
            }
            (Gives::Rows(_), None) => Ok(None),
            (Gives::Rows(shape), Some(_)) => Err(shape.no_value()),
            (_, None) => Err(SqlError::new(SqlState::SYNTAX_ERROR, "missing expression at or near \";\"")),
            (Gives::Value(to), Some(value)) => {
                let (value, ty) = self.value(value).await?;
                self.statements.convert(value, ty, ColumnType::plain(to)).map(Some)
            }
            (Gives::Row, Some(value)) => match self.value(value).await? {
                (value @ (Datum::Null | Datum::Record(_)), _) => Ok(Some(value)),
                _ => {
                    let message = "cannot return non-composite value from function returning composite type";
                    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
                }
            },
        }
    }
}
