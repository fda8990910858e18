//! DELETE.

use super::began::Began;
use super::referential::Referential;
use super::trigger::Triggers;
use super::{Changing, Outcome, Source, meets_functions, write};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::TriggerEvent;
use crate::exec::eval::eval;
use crate::exec::operator::build;
use crate::exec::scope::Scope;
use crate::exec::{ExecContext, Reservation};
use crate::plan::{Expr, Plan, PlanKind};
use hashbrown::HashSet;
use sql_types::{Row, SqlError, SqlResult};
use std::sync::Arc;

/// A running DELETE.
pub(crate) struct Delete<'p> {
    table: &'p Arc<TableDescriptor>,
    /// Rows may stream: what is deleted is never met again, and a row given twice by USING is
    /// remembered. Not so if triggers may write others.
    source: Source<'p>,
    triggers: Triggers,
    joined: bool,
    returning: Option<&'p [Expr]>,
    scope: Scope<'p>,
    outcome: Outcome,
}

impl<'p> Delete<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let PlanKind::Delete { table, input, returning } = &plan.kind else {
            return Err(SqlError::internal("a delete of something else"));
        };
        let triggers = Triggers::new(table, TriggerEvent::Delete, &[]);
        Ok(Delete {
            table,
            source: if meets_functions(input, &triggers) {
                Source::Whole(build(input, scope)?)
            } else {
                Source::Streaming(build(input, scope)?)
            },
            triggers,
            joined: input.columns.len() > table.columns.len(),
            returning: returning.as_deref(),
            scope: scope.clone(),
            outcome: Outcome::default(),
        })
    }
}

impl Changing for Delete<'_> {
    fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    async fn run(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        let codec = cx.codecs.get(self.table)?;
        let width = self.table.columns.len();
        let mut referential = Referential::new(&codec, cx);
        let mut memory = Reservation::default();
        let mut seen = HashSet::new();
        self.triggers.before_statement(cx).await?;
        let began = Began::now(cx);
        while let Some(batch) = self.source.next(cx, &mut memory).await? {
            let count = batch.len();
            let mut returned = Vec::new();
            for row in batch {
                let old = row.get(..width).unwrap_or(&row);
                let key = codec.row_key(old)?;
                if self.joined {
                    if !seen.insert(key.clone()) {
                        continue;
                    }
                    memory.grow(cx.memory, 64)?;
                }
                if !self.triggers.before_delete(old, cx).await? {
                    continue;
                }
                began.check("deleted", &codec, &[(&key, old)], cx).await?;
                write::delete_row(cx, &codec, old, key).await?;
                referential.add(old, None, cx)?;
                if !self.triggers.is_empty() {
                    self.triggers.note(Some(&old.to_vec()), None, cx)?;
                }
                self.outcome.affected += 1;
                if let Some(returning) = self.returning {
                    returned.push(project(&row, returning, &self.scope, cx)?);
                }
            }
            self.outcome.keep(returned, cx)?;
            if count > 64 {
                cx.pause().await?;
            }
        }
        referential.enforce(cx).await?;
        self.triggers.finish(cx).await
    }
}

fn project(row: &Row, exprs: &[Expr], scope: &Scope<'_>, cx: &ExecContext<'_>) -> SqlResult<Row> {
    let env = scope.env(cx);
    exprs.iter().map(|expr| eval(expr, row, &env)).collect()
}
