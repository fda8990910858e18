//! Apply: subqueries and sequence functions, computed per row and appended to it.

use super::eval::{eval, eval_bool};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build, drain};
use super::scope::Scope;
use super::{ExecContext, Reservation, kv_error};
use crate::plan::{Expr, Plan, SubPlan};
use async_trait::async_trait;
use sql_types::functions::Function;
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState, Type, text};

/// What is kept of a sub-plan that is the same for all rows.
enum Once {
    Value(Datum),
    Rows(Vec<Row>),
}

pub(crate) struct Apply<'p> {
    input: BoxOperator<'p>,
    subplans: &'p [(SubPlan, bool)],
    once: Vec<Option<Once>>,
    /// The input is read to its end before the first function is called that could change what is read.
    whole: bool,
    kept: Option<std::vec::IntoIter<Row>>,
    scope: Scope<'p>,
    memory: Reservation,
}

impl<'p> Apply<'p> {
    pub fn new(input: BoxOperator<'p>, subplans: &'p [(SubPlan, bool)], scope: &Scope<'p>) -> Self {
        let once = subplans.iter().map(|_| None).collect();
        let changes =
            |subplan: &SubPlan| matches!(subplan, SubPlan::Routine(routine, _) if !routine.is_stable());
        let whole = subplans.iter().any(|(subplan, _)| changes(subplan));
        Apply {
            input,
            subplans,
            once,
            whole,
            kept: None,
            scope: scope.clone(),
            memory: Reservation::default(),
        }
    }

    /// The value of the sub-plan at `index` for a row.
    async fn compute(&mut self, index: usize, row: &Row, cx: &ExecContext<'_>) -> SqlResult<Datum> {
        let (subplan, once) = &self.subplans[index];
        if let SubPlan::Quantified { plan, test, any } = subplan {
            if !*once {
                let mut input = build(plan, &self.scope.with_row(row.clone()))?;
                return quantified_stream(&mut input, test, *any, row, &self.scope, cx).await;
            }
            if self.once[index].is_none() {
                let mut input = build(plan, &self.scope.with_row(row.clone()))?;
                self.once[index] = Some(Once::Rows(drain(&mut input, cx, &mut self.memory).await?));
            }
            let Some(Once::Rows(rows)) = &self.once[index] else { return Ok(Datum::Null) };
            let mut fold = Fold::new(*any);
            let mut pair = Row::new();
            for (count, inner) in rows.iter().enumerate() {
                if count % BATCH_ROWS == BATCH_ROWS - 1 {
                    cx.pause().await?;
                }
                if fold.add(test, row, inner, &mut pair, &self.scope, cx)? {
                    break;
                }
            }
            return Ok(fold.result());
        }
        if let Some(Once::Value(value)) = &self.once[index] {
            return Ok(value.clone());
        }
        let value = match subplan {
            SubPlan::Scalar(plan) => scalar(plan, self.inner(row), cx).await?,
            SubPlan::Exists(plan) => {
                let found = build(plan, &self.inner(row))?.next(cx, 1).await?;
                Datum::Bool(found.is_some())
            }
            SubPlan::Array(plan) => array(plan, self.inner(row), cx).await?,
            SubPlan::NextVal(sequence) => {
                let sequence = eval(sequence, row, &self.scope.env(cx))?;
                match oid(&sequence)? {
                    Some(oid) => Datum::Int8(cx.host.next_value(oid).await?),
                    None => Datum::Null,
                }
            }
            SubPlan::SetVal(sequence, value, is_called) => {
                set_value([sequence, value, is_called], row, &self.scope, cx).await?
            }
            SubPlan::Call(function, args) => {
                let args = args
                    .iter()
                    .map(|arg| eval(arg, row, &self.scope.env(cx)))
                    .collect::<SqlResult<Vec<_>>>()?;
                call(function, &args, cx).await?
            }
            SubPlan::Routine(routine, args) => {
                let args = args
                    .iter()
                    .map(|arg| eval(arg, row, &self.scope.env(cx)))
                    .collect::<SqlResult<Vec<_>>>()?;
                if routine.strict && args.iter().any(Datum::is_null) {
                    Datum::Null
                } else {
                    cx.host.call_routine(routine, args, cx).await?
                }
            }
            SubPlan::Quantified { .. } => Datum::Null,
        };
        if *once {
            self.once[index] = Some(Once::Value(value.clone()));
        }
        Ok(value)
    }

    /// The next rows of the input.
    async fn input(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if !self.whole {
            return self.input.next(cx, want).await;
        }
        if self.kept.is_none() {
            self.kept = Some(drain(&mut self.input, cx, &mut self.memory).await?.into_iter());
        }
        let batch: Batch = self.kept.iter_mut().flatten().take(want.clamp(1, BATCH_ROWS)).collect();
        Ok((!batch.is_empty()).then_some(batch))
    }

    fn inner(&self, row: &Row) -> Scope<'p> {
        self.scope.with_row(row.clone())
    }
}

async fn set_value(
    exprs: [&Expr; 3],
    row: &Row,
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<Datum> {
    let [sequence, value, is_called] = exprs.map(|expr| eval(expr, row, &scope.env(cx)));
    match (oid(&sequence?)?, value?, is_called?) {
        (Some(oid), Datum::Int8(value), Datum::Bool(is_called)) => {
            Ok(Datum::Int8(cx.host.set_value(oid, value, is_called).await?))
        }
        (None, ..) | (_, Datum::Null, _) | (.., Datum::Null) => Ok(Datum::Null),
        _ => Err(SqlError::internal("setval over values of other types")),
    }
}

async fn call(function: &Function, args: &[Datum], cx: &ExecContext<'_>) -> SqlResult<Datum> {
    if function.strict && args.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    if function.name == "cluster_logical_timestamp" {
        let snapshot = cx.txn.settle_snapshot().await.map_err(kv_error)?;
        return text::parse(Type::NUMERIC.into(), &crate::session::as_of::decimal(snapshot), &cx.eval.text);
    }
    cx.host.call_external(function, args, cx.eval).await
}

fn oid(value: &Datum) -> SqlResult<Option<u32>> {
    match value {
        Datum::Oid(oid) => Ok(Some(*oid)),
        Datum::Null => Ok(None),
        _ => Err(SqlError::internal("a sequence is not given by its OID")),
    }
}

async fn scalar<'p>(plan: &'p Plan, scope: Scope<'p>, cx: &ExecContext<'_>) -> SqlResult<Datum> {
    let mut input = build(plan, &scope)?;
    let Some(mut batch) = input.next(cx, 2).await? else { return Ok(Datum::Null) };
    if batch.len() > 1 || input.next(cx, 1).await?.is_some() {
        return Err(SqlError::new(
            SqlState::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        ));
    }
    Ok(batch.pop().and_then(first).unwrap_or_default())
}

fn first(row: Row) -> Option<Datum> {
    row.into_iter().next()
}

async fn array<'p>(plan: &'p Plan, scope: Scope<'p>, cx: &ExecContext<'_>) -> SqlResult<Datum> {
    let mut memory = Reservation::default();
    let rows = drain(&mut build(plan, &scope)?, cx, &mut memory).await?;
    let element = plan.columns.first().map_or(Type::TEXT, |column| column.ty.ty);
    Ok(Datum::array(element, rows.into_iter().filter_map(first).collect()))
}

/// Three-valued OR (`any`) or AND of a test over rows.
struct Fold {
    any: bool,
    decided: bool,
    unknown: bool,
}

impl Fold {
    fn new(any: bool) -> Self {
        Fold { any, decided: false, unknown: false }
    }

    /// Adds one row; true once the result is known.
    fn add(
        &mut self,
        test: &Expr,
        outer: &Row,
        inner: &Row,
        pair: &mut Row,
        scope: &Scope<'_>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<bool> {
        pair.clear();
        pair.extend_from_slice(outer);
        pair.extend_from_slice(inner);
        match eval_bool(test, pair, &scope.env(cx))? {
            Some(truth) => self.decided |= truth == self.any,
            None => self.unknown = true,
        }
        Ok(self.decided)
    }

    fn result(&self) -> Datum {
        match (self.decided, self.unknown) {
            (true, _) => Datum::Bool(self.any),
            (false, true) => Datum::Null,
            (false, false) => Datum::Bool(!self.any),
        }
    }
}

async fn quantified_stream(
    input: &mut BoxOperator<'_>,
    test: &Expr,
    any: bool,
    row: &Row,
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<Datum> {
    let mut fold = Fold::new(any);
    let mut pair = Row::new();
    while let Some(batch) = input.next(cx, BATCH_ROWS).await? {
        for inner in &batch {
            if fold.add(test, row, inner, &mut pair, scope, cx)? {
                return Ok(fold.result());
            }
        }
        cx.cancel.check()?;
    }
    Ok(fold.result())
}

#[async_trait]
impl Operator for Apply<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let Some(mut batch) = self.input(cx, want).await? else { return Ok(None) };
        for (count, row) in batch.iter_mut().enumerate() {
            // Sub-plans see the input row alone, not what earlier ones appended to it.
            let mut values = Vec::with_capacity(self.subplans.len());
            for index in 0..self.subplans.len() {
                values.push(self.compute(index, row, cx).await?);
            }
            row.extend(values);
            if count % 64 == 63 {
                cx.pause().await?;
            }
        }
        Ok(Some(batch))
    }
}
