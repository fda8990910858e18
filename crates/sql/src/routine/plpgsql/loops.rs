//! Loops with a variable: over numbers, rows and elements of arrays.

use super::ast::{Stmt, Target};
use super::frame::{Holder, fields_of};
use super::machine::{Flow, Machine};
use crate::routine::statements::{Answer, Sql};
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};

impl Machine<'_> {
    async fn bound(&mut self, sql: &Sql, what: &str) -> SqlResult<i64> {
        let (value, ty) = self.value(sql).await?;
        match self.statements.convert(value, ty, ColumnType::plain(Type::INT4))? {
            Datum::Int4(bound) => Ok(i64::from(bound)),
            _ => {
                let message = format!("{what} of FOR loop cannot be null");
                Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message))
            }
        }
    }

    pub(super) async fn count(
        &mut self,
        label: Option<&str>,
        variable: &str,
        [from, to, by]: [Option<&Sql>; 3],
        reverse: bool,
        body: &[Stmt],
    ) -> SqlResult<Flow> {
        let missing = || SqlError::internal("a range without bounds");
        let from = self.bound(from.ok_or_else(missing)?, "lower bound").await?;
        let to = self.bound(to.ok_or_else(missing)?, "upper bound").await?;
        let by = match by {
            Some(by) => self.bound(by, "BY value").await?,
            None => 1,
        };
        if by <= 0 {
            let message = "BY value of FOR loop must be greater than zero";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
        }
        let depth = self.frame.depth();
        let ty = ColumnType::plain(Type::INT4);
        let slot = self.frame.add(label, variable, Holder::Value(ty, Datum::Null));
        let mut next = from;
        let mut ran = false;
        while if reverse { next >= to } else { next <= to } {
            ran = true;
            self.step().await?;
            let Ok(number) = i32::try_from(next) else { break };
            if let Some(slot) = self.frame.slot_mut(slot) {
                slot.holder = Holder::Value(ty, Datum::Int4(number));
            }
            let flow = self.list(body).await?;
            if let Some(flow) = after(flow, label) {
                self.frame.leave(depth);
                self.set_found(true);
                return Ok(flow);
            }
            next = if reverse { next - by } else { next + by };
        }
        self.frame.leave(depth);
        self.set_found(ran);
        Ok(Flow::Next)
    }

    pub(super) async fn each_row(
        &mut self,
        label: Option<&str>,
        targets: &[Target],
        answer: Answer,
        body: &[Stmt],
    ) -> SqlResult<Flow> {
        let Some(columns) = &answer.columns else {
            let message = "cannot open a statement that returns no rows as cursor";
            return Err(SqlError::new(SqlState("42P11"), message));
        };
        let fields = fields_of(columns);
        // Counted until the last of them was seen.
        let _memory = answer.memory;
        let ran = !answer.rows.is_empty();
        if !ran {
            self.distribute(targets, &fields, vec![Datum::Null; fields.len()])?;
        }
        for row in answer.rows {
            self.step().await?;
            self.distribute(targets, &fields, row)?;
            let flow = self.list(body).await?;
            if let Some(flow) = after(flow, label) {
                self.set_found(true);
                return Ok(flow);
            }
        }
        self.set_found(ran);
        Ok(Flow::Next)
    }

    pub(super) async fn each(
        &mut self,
        label: Option<&str>,
        target: &Target,
        array: &Sql,
        body: &[Stmt],
    ) -> SqlResult<Flow> {
        let array = match self.value(array).await?.0 {
            Datum::Array(array) => array,
            Datum::Null => {
                let message = "FOREACH expression must not be null";
                return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
            }
            _ => {
                let message = "FOREACH expression must yield an array";
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
            }
        };
        for value in &array.values {
            self.step().await?;
            let place = self.frame.place(target)?;
            self.put(&place, value.clone(), array.element)?;
            let flow = self.list(body).await?;
            if let Some(flow) = after(flow, label) {
                self.set_found(true);
                return Ok(flow);
            }
        }
        self.set_found(!array.values.is_empty());
        Ok(Flow::Next)
    }
}

/// How a loop goes on after its body: `None` for another round.
pub(super) fn after(flow: Flow, label: Option<&str>) -> Option<Flow> {
    match flow {
        Flow::Next | Flow::Continue(None) => None,
        Flow::Continue(Some(to)) if Some(to.as_str()) == label => None,
        Flow::Exit(None) => Some(Flow::Next),
        Flow::Exit(Some(to)) if Some(to.as_str()) == label => Some(Flow::Next),
        flow => Some(flow),
    }
}
