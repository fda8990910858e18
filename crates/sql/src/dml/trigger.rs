//! Triggers around the writing of rows.
//!
//! BEFORE ROW triggers run when a row is about to be written, AFTER ROW triggers at the end of the statement, behind the
//! checks and actions of foreign keys. A statement over a table with triggers reads its input to the end first:
//! what their functions write, it does not meet.

use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::catalog::routine::{TriggerDescriptor, TriggerEvent};
use crate::exec::relation::row_bytes;
use crate::exec::{ExecContext, Reservation};
use crate::plan::Expr;
use crate::routine::trigger::TriggerCall;
use sql_types::{Datum, Row, SqlResult};
use std::sync::{Arc, OnceLock};

/// The triggers of a table for one event of a statement, and the rows that AFTER triggers wait for.
pub(super) struct Triggers {
    table: Arc<TableDescriptor>,
    event: TriggerEvent,
    /// Positions in the table's list.
    chosen: Vec<usize>,
    queue: Vec<(Option<Row>, Option<Row>)>,
    memory: Reservation,
    /// The conditions of those chosen, bound when the first of them is wanted.
    conditions: OnceLock<Vec<Option<Expr>>>,
}

impl Triggers {
    /// The triggers for an event. `assigned` are the columns that an UPDATE assigns.
    pub fn new(table: &Arc<TableDescriptor>, event: TriggerEvent, assigned: &[ColumnId]) -> Triggers {
        let runs = |trigger: &TriggerDescriptor| {
            let concerned = event != TriggerEvent::Update
                || trigger.columns.is_empty()
                || trigger.columns.iter().any(|column| assigned.contains(column));
            !trigger.disabled && trigger.is_for(event) && concerned
        };
        let all = table.triggers.iter().enumerate();
        let chosen = all.filter(|(_, trigger)| runs(trigger)).map(|(position, _)| position).collect();
        Triggers {
            table: table.clone(),
            event,
            chosen,
            queue: Vec::new(),
            memory: Reservation::default(),
            conditions: OnceLock::new(),
        }
    }

    /// The same without any.
    pub fn none(self) -> Triggers {
        Triggers { chosen: Vec::new(), ..self }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Whether a row may be changed before it is written.
    pub fn changes_rows(&self) -> bool {
        self.event != TriggerEvent::Delete && self.any(true, true)
    }

    /// Those for a time, each with its place among those chosen.
    fn of(&self, before: bool, for_row: bool) -> impl Iterator<Item = (usize, &TriggerDescriptor)> {
        let all = self.chosen.iter().map(|position| self.table.triggers.get(*position));
        let all = all.enumerate().filter_map(|(place, trigger)| Some((place, trigger?)));
        all.filter(move |(_, trigger)| trigger.before == before && trigger.for_row == for_row)
    }

    fn condition(&self, place: usize, cx: &ExecContext<'_>) -> SqlResult<Option<&Expr>> {
        if self.conditions.get().is_none() {
            let chosen = self.chosen.iter().map(|position| match self.table.triggers.get(*position) {
                Some(trigger) => cx.host.trigger_condition(&self.table, trigger),
                None => Ok(None),
            });
            // Nobody else sets it meanwhile.
            let _ = self.conditions.set(chosen.collect::<SqlResult<_>>()?);
        }
        Ok(self.conditions.get().and_then(|conditions| conditions.get(place)?.as_ref()))
    }

    fn any(&self, before: bool, for_row: bool) -> bool {
        self.of(before, for_row).next().is_some()
    }

    /// Calls the function of a trigger if its condition holds. The row to go on with; `None` for none.
    async fn call(
        &self,
        (place, trigger): (usize, &TriggerDescriptor),
        old: Option<&[Datum]>,
        new: Option<&[Datum]>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Option<Row>> {
        let call = TriggerCall { table: &self.table, trigger, event: self.event, old, new };
        if let Some(condition) = self.condition(place, cx)?
            && !call.meets(condition, cx)?
        {
            return Ok(Some(new.or(old).unwrap_or_default().to_vec()));
        }
        cx.host.call_trigger(&call, cx).await
    }

    /// Before the first row.
    pub async fn before_statement(&self, cx: &ExecContext<'_>) -> SqlResult<()> {
        for trigger in self.of(true, false) {
            self.call(trigger, None, None, cx).await?;
        }
        Ok(())
    }

    /// Before a row is written: the row as it is to be written, `None` if it is not to be.
    pub async fn before(
        &self,
        old: Option<&[Datum]>,
        new: Row,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Option<Row>> {
        let mut row = new;
        for trigger in self.of(true, true) {
            match self.call(trigger, old, Some(&row), cx).await? {
                Some(changed) => row = changed,
                None => return Ok(None),
            }
        }
        Ok(Some(row))
    }

    /// Before a row is deleted: whether it is to be.
    pub async fn before_delete(&self, old: &[Datum], cx: &ExecContext<'_>) -> SqlResult<bool> {
        for trigger in self.of(true, true) {
            if self.call(trigger, Some(old), None, cx).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes note of a row that was written.
    pub fn note(&mut self, old: Option<&Row>, new: Option<&Row>, cx: &ExecContext<'_>) -> SqlResult<()> {
        if !self.any(false, true) {
            return Ok(());
        }
        let bytes = |row: Option<&Row>| row.map_or(0, |row| row_bytes(row));
        self.memory.grow(cx.memory, bytes(old) + bytes(new))?;
        self.queue.push((old.cloned(), new.cloned()));
        Ok(())
    }

    /// Behind the last row.
    pub async fn finish(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.after_rows(cx).await?;
        self.after_statement(cx).await
    }

    /// The AFTER triggers of the statement.
    pub async fn after_statement(&self, cx: &ExecContext<'_>) -> SqlResult<()> {
        for trigger in self.of(false, false) {
            self.call(trigger, None, None, cx).await?;
        }
        Ok(())
    }

    /// The AFTER triggers of the rows noted.
    pub async fn after_rows(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        for (count, (old, new)) in std::mem::take(&mut self.queue).into_iter().enumerate() {
            for trigger in self.of(false, true) {
                self.call(trigger, old.as_deref(), new.as_deref(), cx).await?;
            }
            if count % 64 == 63 {
                cx.pause().await?;
            }
        }
        Ok(())
    }
}
