//! The analytical engine: aggregates and joins over many rows, vectorized by DataFusion.
//!
//! # How it fits in
//!
//! A plan is run by the row engine's operators. Where an operator is an aggregate over enough rows,
//! [`wrap`] puts an [`run::Analytic`] in its place, which translates the aggregate and what lies
//! below it (projections, filters, equi-joins, which are done by hash though the plan says that they merge) to
//! DataFusion's physical operators. What cannot be
//! translated below that stays with the row engine and becomes a *leaf*: rows are pulled from it in
//! batches and turned into Arrow arrays as DataFusion asks for them. Everything runs inside the
//! statement's own task; there are no threads, no channels and no state between statements.
//!
//! # Columns from the KV nodes
//!
//! A scan of a table, or of an index that has all columns, carries a program ([`kv_api::columns`]): KV nodes decode the
//! columns that are wanted, apply what programs can say of the filter, and return arrays but for their headers. The next
//! page is on its way while the engine works on one. A row that a program cannot read (a numeric of another scale) makes
//! the row engine take over, as everything does that fails.
//!
//! Where an aggregate is directly over such a scan, KV nodes do part of it, whichever engine would run it ([`partial`]).
//!
//! Once a hash join has its table, the scan that it probes with is told which keys there are, and KV nodes leave out rows
//! with others ([`tap`], [`crate::exec::sought`]).
//!
//! # Same meaning
//!
//! Only what means exactly the same in both engines is translated:
//!
//! * types: bool, integers, text (bytewise order), `character(n)` (without its spaces, which come back by its length),
//!   dates and times (as the integers they are), and numeric columns with a declared scale, as 128-bit decimals. No
//!   floats: -0 and NaN compare otherwise, and vectorized sums add in another order.
//! * arithmetic: `+ - *` of integers and decimals with overflow checks. No division.
//! * other immutable functions whose arguments and result have such types are called for one row after the other, by the
//!   row engine's own code.
//! * `sum(bigint)` and `avg` are computed as decimals and finished with our own numeric.
//!
//! If DataFusion fails before a row was returned (an overflow, a value that does not fit), the row
//! engine runs the same part again and has the last word: it gives PostgreSQL's result or error.
//!
//! # Memory
//!
//! DataFusion takes what it needs from the statement's budget. Aggregates that do not fit spill. Where a hash join does
//! not fit the part starts again with joins that merge what was sorted, which spill.
//!
//! # What is missing
//!
//! Sorts and windows stay with the row engine.

mod ahead;
mod column_rows;
mod column_scan;
mod columns;
mod expr;
mod memory;
mod partial;
mod row_call;
mod run;
mod source;
mod tap;
mod translate;

pub(crate) use column_rows::{ColumnRows, Next};
pub(crate) use column_scan::may_be_said;
pub use partial::PartialAggregates;
pub(crate) use partial::applies as partial_aggregate_applies;

use crate::exec::operator::{BoxOperator, build_plain};
use crate::exec::scope::Scope;
use crate::plan::{Plan, PlanKind};
use sql_types::SqlResult;

/// Which engine runs what (setting `engine`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// By the estimated number of rows.
    #[default]
    Auto,
    /// The row engine runs everything.
    Row,
    /// The analytical engine runs all it can.
    Analytic,
}

impl EngineChoice {
    /// A value of the setting.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(EngineChoice::Auto),
            "row" => Some(EngineChoice::Row),
            "analytic" => Some(EngineChoice::Analytic),
            _ => None,
        }
    }
}

/// Estimated rows from which on the analytical engine is worth its start.
const WORTHWHILE_ROWS: f64 = 20_000.0;

/// The operator for a plan node if others than the row engine may run it: KV nodes aggregate for it, or it runs
/// analytically. Whether it can be translated shows when it starts, as that depends on parameters.
pub(crate) fn wrap<'p>(plan: &'p Plan, scope: &Scope<'p>) -> Option<BoxOperator<'p>> {
    partial::wrap(plan, scope).or_else(|| vectorized(plan, scope))
}

/// The engine's operator for a plan node for which KV nodes do not aggregate.
fn build<'p>(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<BoxOperator<'p>> {
    vectorized(plan, scope).map_or_else(|| build_plain(plan, scope), Ok)
}

/// The operator that may run a plan node analytically, if the choice and the estimate say so.
fn vectorized<'p>(plan: &'p Plan, scope: &Scope<'p>) -> Option<BoxOperator<'p>> {
    let PlanKind::Aggregate { input, sets, .. } = &plan.kind else { return None };
    let wanted = match scope.engine {
        EngineChoice::Row => false,
        EngineChoice::Analytic => true,
        EngineChoice::Auto => rows_read(input) >= WORTHWHILE_ROWS,
    };
    // What fails here runs again with the row engine, and functions may have changed something meanwhile.
    let wanted = wanted && !plan.calls_routines();
    (wanted && sets.len() == 1 && !scope.instrument).then(|| Box::new(run::Analytic::new(plan, scope)) as _)
}

/// The largest estimate of rows that a part of a plan works on; of a scan it is those that it reads, not those that its
/// filter lets through.
fn rows_read(plan: &Plan) -> f64 {
    let mut rows = match plan.kind {
        PlanKind::Scan { .. } => plan.entries,
        _ => plan.rows,
    };
    plan.for_each_child(&mut |child, _| rows = rows.max(rows_read(child)));
    rows
}
