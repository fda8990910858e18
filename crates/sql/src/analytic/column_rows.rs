//! [`ColumnRows`]: a scan for the row engine that lets KV nodes filter and decode, where many rows are read.

use super::column_scan::ColumnScan;
use super::columns;
use crate::exec::ExecContext;
use crate::exec::eval::EvalEnv;
use crate::exec::operator::{BATCH_ROWS, Batch};
use crate::exec::sought::Sought;
use crate::plan::{Expr, Plan};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use kv_api::Span;
use sql_types::{ColumnType, Row, SqlError, SqlResult};
use std::sync::Arc;

/// Estimated rows read from which on columns are worth while.
const WORTHWHILE_ROWS: f64 = 500.0;

/// Rows that come as columns, in the order of their keys.
pub(crate) struct ColumnRows {
    scan: ColumnScan,
    types: Vec<ColumnType>,
    schema: SchemaRef,
    /// What programs cannot say of the filter.
    left: Option<Arc<Expr>>,
    /// Rows that are here, and how many of them were returned.
    here: Option<(RecordBatch, usize)>,
}

/// What a scan returns next.
pub(crate) enum Next {
    Rows(Batch),
    End,
    /// The rest has to be read as rows.
    Rest(Vec<Span>),
}

impl ColumnRows {
    /// The scan that a plan is, if it is a large one that can be one.
    pub fn of(plan: &Plan, cx: &ExecContext<'_>, env: &EvalEnv<'_>) -> SqlResult<Option<Self>> {
        if plan.entries < WORTHWHILE_ROWS {
            return Ok(None);
        }
        let Some((scan, left)) =
            ColumnScan::of(plan, cx.codecs, env)?.filter(|(scan, _)| scan.has_all_columns())
        else {
            return Ok(None);
        };
        let left = Expr::conjunction(left.into_iter().cloned().collect()).map(Arc::new);
        let types: Vec<ColumnType> = plan.columns.iter().map(|column| column.ty).collect();
        let schema = columns::schema(types.iter().copied());
        Ok(Some(ColumnRows { scan, types, schema, left, here: None }))
    }

    /// What the rows that it returns still have to satisfy.
    pub fn filter(&self) -> Option<Arc<Expr>> {
        self.left.clone()
    }

    /// Leaves out rows whose value in a column is not looked for.
    pub fn narrow(&mut self, column: usize, sought: &Sought) {
        self.scan.narrow(column, sought);
    }

    /// Further rows.
    pub async fn next(&mut self, cx: &ExecContext<'_>, plan: &Plan) -> SqlResult<Next> {
        loop {
            if let Some((batch, returned)) = &mut self.here {
                let end = batch.num_rows().min(*returned + BATCH_ROWS);
                let row = |index| {
                    let values = batch.columns().iter().zip(&self.types);
                    values.map(|(array, ty)| columns::value(array, index, *ty)).collect::<Option<Row>>()
                };
                let Some(rows) = (*returned..end).map(row).collect::<Option<Batch>>() else {
                    return Err(SqlError::internal("columns of other types than the plan's"));
                };
                *returned = end;
                if !rows.is_empty() {
                    return Ok(Next::Rows(rows));
                }
                self.here = None;
            }
            self.scan.restart();
            let Some(read) = self.scan.read(cx) else { return Ok(Next::End) };
            let (number, page) = read.await;
            let page = page?;
            if let Some(stats) = cx.stats {
                let removed = page.columns.seen.saturating_sub(page.columns.rows);
                stats.update(plan, |stats| stats.removed += removed);
            }
            match self.scan.take(number, page, &self.schema) {
                Ok(batch) => self.here = Some((batch, 0)),
                Err(columns::Misfit) => return Ok(Next::Rest(self.scan.spans())),
            }
            cx.pause().await?;
        }
    }
}
