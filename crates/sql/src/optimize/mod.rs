//! Makes plans fast without changing what they return.
//!
//! The rules run in this order, each over the whole plan, sub-plans included:
//!
//! 1. [`fold`]: constants are computed, conditions simplified.
//! 2. [`cte`]: common table expressions read once are put where they are read.
//! 3. [`semi`]: IN and EXISTS in WHERE become semi-joins, NOT EXISTS and, without NULLs, NOT IN anti-joins.
//! 4. [`scalar`]: scalar subqueries that aggregate what is equal to the outer row become groups joined with the
//!    outer rows. The rules from here on are applied with and without this one, and the cheaper plan is taken.
//! 5. [`pushdown`]: conditions move towards the tables; only [`leakproof`] ones to tables whose policies hide rows.
//! 6. [`extreme`]: `max` and `min` of an indexed column read one row.
//! 7. [`prune`]: columns nobody reads are not read.
//! 8. Of a plan with joins [`memo`]: order and methods of joins, accesses to tables and orders of rows are chosen together,
//!    also by equalities that follow from others ([`implied`]).
//! 9. Of other plans, and of those below joins, [`access`]: each scan gets the index and the part of it to read
//!    ([`inverted`] for indexes of jsonb and arrays), sorts that an index makes superfluous go.
//! 10. [`order`]: limits reach the sorts and scans.
//! 11. [`prune`] again: joins in another order pass on other columns.
//! 12. [`estimate`]: rows and cost, for EXPLAIN and for the choice of the engine.
//!
//! The others are always right; rules 4, 8 and 9 compare costs ([`cost`]), for which [`estimate`] estimates rows from
//! [`crate::statistics`] by [`selectivity`] and [`cardinality`].
//!
//! # What is missing
//!
//! Groups and distinct values by order; outer and semi-joins in another place than they are written; NOT IN as an
//! anti-join where there may be NULLs; unnesting of other scalar subqueries, some of them without others.

pub mod access;
pub mod cardinality;
pub mod cost;
pub mod cte;
#[cfg(test)]
mod equivalence;
pub mod estimate;
#[cfg(test)]
mod estimates;
pub mod extreme;
pub mod fold;
pub mod implied;
pub mod implies;
pub mod inverted;
pub mod join_method;
pub mod leakproof;
pub mod memo;
pub mod nullable;
pub mod order;
pub mod origin;
pub mod prune;
pub mod pushdown;
#[cfg(test)]
mod reference;
pub mod scalar;
pub mod selectivity;
pub mod semi;
#[cfg(test)]
mod tests;

pub use memo::{Options, Rule};

use crate::plan::{Expr, Plan, PlanKind, SubPlan};
use crate::statistics::StatisticsCell;
use sql_types::Oid;

/// Applies all rules.
pub fn optimize(mut plan: Plan, options: Options) -> Plan {
    fold::fold(&mut plan);
    cte::inline(&mut plan);
    semi::unnest(&mut plan);
    if !may_be_unnested(&plan) {
        return finish(plan, options);
    }
    let mut unnested = plan.clone();
    if !options.has(Rule::Unnest) || !scalar::unnest(&mut unnested) {
        return finish(plan, options);
    }
    let (nested, unnested) = (finish(plan, options), finish(unnested, options));
    if unnested.cost < nested.cost { unnested } else { nested }
}

/// Whether there is a subquery that is computed for each row.
fn may_be_unnested(plan: &Plan) -> bool {
    let mut found = match &plan.kind {
        PlanKind::Apply { subplans, .. } => matches!(subplans[..], [(SubPlan::Scalar(_), false)]),
        _ => false,
    };
    plan.for_each_child(&mut |child, _| found = found || may_be_unnested(child));
    found
}

/// The rules from the moving of conditions on.
fn finish(plan: Plan, options: Options) -> Plan {
    let mut plan = pushdown::push_down(plan);
    fold::fold(&mut plan);
    extreme::read_ends(&mut plan);
    // Which columns are read decides which indexes have all of them.
    let mut plan = prune::prune(plan);
    if has_join(&plan) {
        plan = memo::implement(plan, options);
    } else {
        access::choose(&mut plan);
    }
    order::push_limits(&mut plan);
    let mut plan = prune::prune(plan);
    estimate::estimate(&mut plan, true);
    plan
}

/// The statistics of the tables that a plan reads, with their revisions: with others it might be another.
pub fn statistics(plan: &Plan) -> Vec<(StatisticsCell, u64)> {
    fn collect(plan: &Plan, seen: &mut Vec<Oid>, found: &mut Vec<(StatisticsCell, u64)>) {
        if let PlanKind::Scan { table, .. } = &plan.kind
            && !seen.contains(&table.oid)
        {
            seen.push(table.oid);
            found.push((table.statistics.clone(), table.statistics.revision()));
        }
        plan.for_each_child(&mut |child, _| collect(child, seen, found));
    }
    let mut found = Vec::new();
    collect(plan, &mut Vec::new(), &mut found);
    found
}

/// Whether a plan reads tables by whole unique keys only, given by constants and parameters: no statistics would make
/// it another.
pub fn is_by_keys(plan: &Plan) -> bool {
    let own = match &plan.kind {
        PlanKind::Scan { table, index, access, .. } => {
            access::is_unique(table, *index, access)
                && access.in_list.is_empty()
                && access.prefix.iter().all(Expr::is_run_constant)
        }
        _ => true,
    };
    let mut all = own;
    plan.for_each_child(&mut |child, _| all = all && is_by_keys(child));
    all
}

fn has_join(plan: &Plan) -> bool {
    let mut found = matches!(plan.kind, PlanKind::Join { .. });
    plan.for_each_child(&mut |child, _| found = found || has_join(child));
    found
}
