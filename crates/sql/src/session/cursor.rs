//! SQL cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor WITH HOLD, or with SCROLL, reads its query to the end when it is opened and keeps the
//! rows; any other reads on as it is fetched from, and only forward.

use super::command::Direction;
use super::portal::{Portal, Progress};
use super::prepared::{self, Prepared};
use super::run::Environment;
use super::view::{Times, now_micros};
use super::{MOST_NAMED, Session, Statement};
use crate::exec::{MemoryBudget, execute};
use crate::plan::PlanColumn;
use parking_lot::Mutex;
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState};
use std::sync::Arc;

enum Content {
    /// Rows come as they are asked for; how many came.
    Streaming(Box<Portal>, i64),
    /// All rows, and where the cursor stands: 0 before the first.
    Rows(Vec<Row>, i64),
}

/// A cursor.
pub(super) struct Cursor {
    content: Content,
    columns: Arc<[PlanColumn]>,
    hold: bool,
    /// Made by a transaction that has committed: it is there for good.
    kept: bool,
    /// Order of creation.
    pub number: u64,
    text: Arc<str>,
    created: i64,
}

impl Cursor {
    /// Whether the cursor lives on when its transaction ends.
    pub(super) fn survives(&mut self, committed: bool) -> bool {
        self.kept |= self.hold && committed;
        self.kept
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

impl Session {
    /// DECLARE
    pub(super) async fn declare(
        &mut self,
        name: &str,
        scroll: Option<bool>,
        hold: bool,
        statement: &Arc<Statement>,
        portal: &Portal,
    ) -> SqlResult<()> {
        if !hold && !self.in_block() {
            return Err(SqlError::new(
                SqlState::NO_ACTIVE_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        if self.cursors.contains_key(name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        if self.cursors.len() >= MOST_NAMED {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "too many cursors in one session"));
        }
        self.enter(statement.as_of.as_ref()).await?;
        let command = prepared::command_of(statement)?;
        let plan = prepared::plan(&self.view, statement, &portal.prepared.param_types, false)?;
        let Some(columns) = plan.columns.clone().filter(|_| plan.kind == crate::parse::StatementKind::Query)
        else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a cursor must be declared for a query"));
        };
        let prepared = Prepared {
            statement: Some(statement.clone()),
            command,
            param_types: plan.param_types.clone(),
            columns: Some(columns.clone()),
            plan: Mutex::new(Some(plan.clone())),
            statistics: Default::default(),
        };
        let mut inner =
            Box::new(Portal::new(Arc::new(prepared), portal.params.clone(), self.statement_memory()));
        self.lock_as_planned(&plan).await?;
        self.admit(&plan).await?;
        inner.plan = Some(plan);
        let whole = hold || scroll == Some(true);
        let content = if whole {
            let rows = self.pull(&mut inner, 0).await?;
            Content::Rows(rows, 0)
        } else {
            self.pull_nothing(&mut inner)?;
            Content::Streaming(inner, 0)
        };
        let number = self.next_cursor;
        self.next_cursor += 1;
        let text = statement.text.clone();
        let cursor = Cursor { content, columns, hold, kept: false, number, text, created: now_micros() };
        self.cursors.insert(name.to_string(), cursor);
        self.name_cursors();
        Ok(())
    }

    /// Makes the cursors known to `pg_cursors`.
    pub(super) fn name_cursors(&self) {
        let list = self.cursors.iter();
        let list = list.map(|(name, c)| (name.clone(), c.text.clone(), c.created, c.hold)).collect();
        self.shared.named.lock().cursors = list;
    }

    fn pull_nothing(&mut self, portal: &mut Portal) -> SqlResult<()> {
        let view = self.view.clone();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::internal("no transaction"));
        };
        let environment = environment(&view, open.started, portal);
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        let plan = portal.plan.as_ref().ok_or_else(|| SqlError::internal("no plan"))?;
        let stream = execute(&plan.plan, &cx)?;
        portal.progress = Progress::Running(Box::new(stream));
        open.used = true;
        Ok(())
    }

    /// At most `count` further rows of a portal; all for 0.
    async fn pull(&mut self, portal: &mut Portal, count: usize) -> SqlResult<Vec<Row>> {
        if matches!(portal.progress, Progress::Ready) {
            self.pull_nothing(portal)?;
        }
        let view = self.view.clone();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::internal("no transaction"));
        };
        let Portal { progress, params, memory, .. } = portal;
        let Progress::Running(stream) = progress else { return Ok(Vec::new()) };
        let environment = Environment {
            view: &view,
            times: Times { transaction: open.started, statement: now_micros() },
            params,
            memory,
            implicit_commit: false,
            stats: None,
        };
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        let mut rows: Vec<Row> = Vec::new();
        let mut reserved = crate::exec::Reservation::default();
        while count == 0 || rows.len() < count {
            let want = if count == 0 { 0 } else { count - rows.len() };
            let Some(batch) = stream.next_batch(&cx, want).await? else { break };
            reserved.grow(cx.memory, crate::exec::relation::batch_bytes(&batch))?;
            rows.extend(batch);
        }
        Ok(rows)
    }

    /// The columns FETCH returns from a cursor, which a client may describe like a portal.
    ///
    /// # Errors
    /// 34000 if there is no such cursor.
    pub fn cursor_columns(&self, name: &str) -> SqlResult<Arc<[PlanColumn]>> {
        self.cursors.get(name).map(|cursor| cursor.columns.clone()).ok_or_else(|| unknown(name))
    }

    /// FETCH and MOVE: the rows passed over.
    pub(super) async fn fetch(&mut self, name: &str, direction: Direction) -> SqlResult<Vec<Row>> {
        let mut cursor = self.cursors.remove(name).ok_or_else(|| unknown(name))?;
        let result = match &mut cursor.content {
            Content::Rows(rows, at) => Ok(scroll(rows, at, direction)),
            Content::Streaming(portal, at) => match forward(direction, *at) {
                None => Err(SqlError::new(SqlState::OBJECT_STATE, "cursor can only scan forward")
                    .with_hint("Declare it with SCROLL option to enable backward scan.")),
                Some(Some(0)) => Ok(Vec::new()),
                Some(count) => {
                    let limit = count.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX));
                    self.pull(portal, limit).await.map(|mut rows| {
                        *at += rows.len() as i64;
                        if let Direction::Absolute(_) | Direction::Relative(_) = direction {
                            rows = rows.split_off(if rows.len() == limit { limit - 1 } else { rows.len() });
                        }
                        rows
                    })
                }
            },
        };
        self.cursors.insert(name.to_string(), cursor);
        result
    }

    /// CLOSE
    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> SqlResult<()> {
        match name {
            None => self.cursors.clear(),
            Some(name) => drop(self.cursors.remove(name).ok_or_else(|| unknown(name))?),
        }
        self.name_cursors();
        Ok(())
    }
}

fn environment<'a>(view: &'a super::view::SessionView, started: i64, portal: &'a Portal) -> Environment<'a> {
    Environment {
        view,
        times: Times { transaction: started, statement: now_micros() },
        params: &portal.params as &[Datum],
        memory: &portal.memory as &MemoryBudget,
        implicit_commit: false,
        stats: None,
    }
}

/// How many rows a direction goes forward, `Some(None)` for all; `None` if it goes back.
fn forward(direction: Direction, at: i64) -> Option<Option<i64>> {
    match direction {
        Direction::ForwardAll => Some(None),
        Direction::Forward(n) if n >= 0 => Some(Some(n)),
        Direction::Relative(n) if n > 0 => Some(Some(n)),
        Direction::Absolute(n) if n > at => Some(Some(n - at)),
        Direction::Backward(n) if n <= 0 => Some(Some(n.saturating_neg())),
        _ => None,
    }
}

/// Moves over rows that are all there. `at` is the number of the current row, from 1.
fn scroll(rows: &[Row], at: &mut i64, direction: Direction) -> Vec<Row> {
    let len = rows.len() as i64;
    let row = |n: i64| usize::try_from(n - 1).ok().and_then(|index| rows.get(index)).cloned();
    let one = |target: i64, at: &mut i64| {
        *at = target.clamp(0, len + 1);
        row(*at).into_iter().collect()
    };
    let (step, count) = match direction {
        Direction::Absolute(n) => return one(if n < 0 { len + 1 + n } else { n }, at),
        Direction::Relative(n) => return one(at.saturating_add(n), at),
        Direction::Forward(0) | Direction::Backward(0) => return row(*at).into_iter().collect(),
        Direction::Forward(n) => (n.signum(), n.saturating_abs()),
        Direction::Backward(n) => (-n.signum(), n.saturating_abs()),
        Direction::ForwardAll => (1, i64::MAX),
        Direction::BackwardAll => (-1, i64::MAX),
    };
    let mut passed = Vec::new();
    for _ in 0..count {
        *at = at.saturating_add(step).clamp(0, len + 1);
        match row(*at) {
            Some(row) => passed.push(row),
            None => break,
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scroll_cursor_goes_both_ways() {
        let rows: Vec<Row> = (1..=5).map(|n| vec![Datum::Int4(n)]).collect();
        let mut at = 0;
        let mut fetch = |direction| {
            let rows = scroll(&rows, &mut at, direction);
            rows.iter().map(|row| if let Datum::Int4(n) = row[0] { n } else { 0 }).collect::<Vec<_>>()
        };
        assert_eq!(fetch(Direction::Forward(2)), [1, 2]);
        assert_eq!(fetch(Direction::Backward(1)), [1]);
        assert_eq!(fetch(Direction::Absolute(-1)), [5]);
        assert_eq!(fetch(Direction::Forward(1)), [] as [i32; 0]);
        assert_eq!(fetch(Direction::BackwardAll), [5, 4, 3, 2, 1]);
        assert_eq!(fetch(Direction::Relative(3)), [3]);
        assert_eq!(fetch(Direction::Forward(0)), [3]);
        assert_eq!(fetch(Direction::ForwardAll), [4, 5]);
    }
}
