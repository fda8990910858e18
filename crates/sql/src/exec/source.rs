//! Operators without input: literal rows, computed tables, functions, common table expressions.

use super::eval::{EvalEnv, eval};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build, drain};
use super::relation::batch_bytes;
use super::scope::{Cte, Scope, SharedRows};
use super::{COPY_INPUT, ExecContext, Reservation};
use crate::plan::{Expr, Plan, PlanKind, SetInvocation};
use async_trait::async_trait;
use smallvec::SmallVec;
use sql_types::functions::{SetCall, SetRows};
use sql_types::{Datum, Row, SqlError, SqlResult, Type};
use std::sync::Arc;

/// `VALUES`.
pub(crate) struct Values<'p> {
    rows: std::slice::Iter<'p, Vec<Expr>>,
    scope: Scope<'p>,
}

impl<'p> Values<'p> {
    pub fn new(rows: &'p [Vec<Expr>], scope: &Scope<'p>) -> Self {
        Values { rows: rows.iter(), scope: scope.clone() }
    }
}

#[async_trait]
impl Operator for Values<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let env = self.scope.env(cx);
        let mut batch = Vec::with_capacity(self.rows.len().min(want));
        for exprs in self.rows.by_ref().take(want.clamp(1, BATCH_ROWS)) {
            batch.push(exprs.iter().map(|expr| eval(expr, &[], &env)).collect::<SqlResult<Row>>()?);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// Rows that exist already, handed out in batches.
fn take(rows: &mut std::vec::IntoIter<Row>, want: usize) -> Option<Batch> {
    let batch: Batch = rows.by_ref().take(want.clamp(1, BATCH_ROWS)).collect();
    (!batch.is_empty()).then_some(batch)
}

/// A computed catalog table.
pub(crate) struct SystemScan {
    name: &'static str,
    rows: Option<std::vec::IntoIter<Row>>,
    memory: Reservation,
}

impl SystemScan {
    pub fn new(name: &'static str) -> Self {
        SystemScan { name, rows: None, memory: Reservation::default() }
    }
}

#[async_trait]
impl Operator for SystemScan {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let rows = match &mut self.rows {
            Some(rows) => rows,
            None => {
                let rows = cx.host.system_rows(self.name).await?;
                self.memory.grow(cx.memory, batch_bytes(&rows))?;
                self.rows.insert(rows.into_iter())
            }
        };
        Ok(take(rows, want))
    }
}

/// Set-returning functions in FROM.
pub(crate) struct FunctionScan<'p> {
    functions: &'p [SetInvocation],
    ordinality: bool,
    scope: Scope<'p>,
    running: Option<Vec<SetRows>>,
    number: i64,
}

impl<'p> FunctionScan<'p> {
    pub fn new(functions: &'p [SetInvocation], ordinality: bool, scope: &Scope<'p>) -> Self {
        FunctionScan { functions, ordinality, scope: scope.clone(), running: None, number: 0 }
    }

    fn start(&self, cx: &ExecContext<'_>) -> SqlResult<Vec<SetRows>> {
        let env = self.scope.env(cx);
        self.functions.iter().map(|call| call_set(call, &[], &env)).collect()
    }

    /// One row of all functions side by side; `None` once all have ended.
    fn row(&mut self, running: &mut [SetRows]) -> SqlResult<Option<Row>> {
        let mut row = Row::new();
        let mut any = false;
        for (source, call) in running.iter_mut().zip(self.functions) {
            match source.next().transpose()? {
                Some(values) => {
                    any = true;
                    if row.is_empty() {
                        row = values;
                    } else {
                        row.extend(values);
                    }
                }
                None => row.extend(std::iter::repeat_n(Datum::Null, call.columns.len().max(1))),
            }
        }
        if any && self.ordinality {
            self.number += 1;
            row.push(Datum::Int8(self.number));
        }
        Ok(any.then_some(row))
    }
}

/// Starts a set-returning call over a row.
pub(crate) fn call_set(call: &SetInvocation, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<SetRows> {
    let values = call.args.iter().map(|arg| eval(arg, row, env)).collect::<SqlResult<Row>>()?;
    let arg_types: SmallVec<[Type; 4]> = call.args.iter().map(Expr::ty).collect();
    call.function.call(env.eval, SetCall { arg_types: &arg_types, columns: &call.columns }, &values)
}

#[async_trait]
impl Operator for FunctionScan<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        cx.cancel.check()?;
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start(cx)?,
        };
        let mut batch = Vec::new();
        while batch.len() < want.clamp(1, BATCH_ROWS)
            && let Some(row) = self.row(&mut running)?
        {
            batch.push(row);
        }
        self.running = Some(running);
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// Reads a common table expression, computing it first if nobody has.
pub(crate) struct CteScan<'p> {
    cte: Arc<Cte<'p>>,
    rows: Option<Arc<SharedRows>>,
    position: usize,
}

impl<'p> CteScan<'p> {
    pub fn new(number: usize, scope: &Scope<'p>) -> SqlResult<Self> {
        let cte = scope.cte(number).ok_or_else(|| {
            SqlError::internal(format!(
                "the plan refers to common table expression {number}, which is not in scope"
            ))
        })?;
        Ok(CteScan { cte, rows: None, position: 0 })
    }
}

/// The rows of a common table expression.
async fn cte_rows<'p>(cte: &Cte<'p>, cx: &ExecContext<'_>) -> SqlResult<Arc<SharedRows>> {
    if let Some(rows) = cte.rows.lock().clone() {
        return Ok(rows);
    }
    let Some(plan) = cte.plan else { return Ok(Arc::default()) };
    let mut memory = Reservation::default();
    let rows = drain(&mut build(plan, &cte.scope)?, cx, &mut memory).await?;
    let rows = Arc::new(SharedRows::new(rows, memory));
    *cte.rows.lock() = Some(rows.clone());
    Ok(rows)
}

#[async_trait]
impl Operator for CteScan<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let rows = match &self.rows {
            Some(rows) => rows,
            None => self.rows.insert(cte_rows(&self.cte, cx).await?),
        };
        let rest = rows.rows.get(self.position..).unwrap_or_default();
        let batch: Batch = rest.iter().take(want.clamp(1, BATCH_ROWS)).cloned().collect();
        self.position += batch.len();
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// Rows from outside, given away as they are: [`COPY_INPUT`] is read once.
pub(crate) struct GivenRows {
    rows: std::vec::IntoIter<Row>,
}

impl GivenRows {
    pub fn new(scope: &Scope<'_>) -> Self {
        let given = scope.cte(COPY_INPUT).and_then(|cte| cte.rows.lock().take());
        let rows = given.and_then(Arc::into_inner).map(|shared| shared.rows).unwrap_or_default();
        GivenRows { rows: rows.into_iter() }
    }
}

#[async_trait]
impl Operator for GivenRows {
    async fn next(&mut self, _: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let batch: Batch = self.rows.by_ref().take(want.clamp(1, BATCH_ROWS)).collect();
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// `WITH`: puts common table expressions in scope, and in the end runs the modifying ones that nobody
/// read.
pub(crate) struct With<'p> {
    body: BoxOperator<'p>,
    modifying: Vec<Arc<Cte<'p>>>,
}

impl<'p> With<'p> {
    pub fn new(ctes: &'p [(usize, Plan)], body: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let mut scope = scope.clone();
        let mut modifying = Vec::new();
        for (number, plan) in ctes {
            scope = scope.with_cte(*number, Some(plan), None);
            if is_modifying(plan) {
                modifying.extend(scope.cte(*number));
            }
        }
        Ok(With { body: build(body, &scope)?, modifying })
    }
}

fn is_modifying(plan: &Plan) -> bool {
    match &plan.kind {
        kind if kind.changed_table().is_some() => true,
        PlanKind::With { ctes, body } => {
            is_modifying(body) || ctes.iter().any(|(_, plan)| is_modifying(plan))
        }
        PlanKind::Project { input, .. } => is_modifying(input),
        _ => false,
    }
}

#[async_trait]
impl Operator for With<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if let Some(batch) = self.body.next(cx, want).await? {
            return Ok(Some(batch));
        }
        for cte in std::mem::take(&mut self.modifying) {
            cte_rows(&cte, cx).await?;
        }
        Ok(None)
    }

    fn affected(&self) -> Option<u64> {
        self.body.affected()
    }
}
