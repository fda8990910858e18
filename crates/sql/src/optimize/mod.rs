//! Makes plans fast without changing what they return.
//!
//! The rules run in this order, each over the whole plan, sub-plans included:
//!
//! 1. [`fold`]: constants are computed, conditions simplified.
//! 2. [`cte`]: common table expressions read once are put where they are read.
//! 3. [`semi`]: IN and EXISTS in WHERE become semi-joins, NOT EXISTS an anti-join.
//! 4. [`pushdown`]: conditions move towards the tables; only [`leakproof`] ones to tables whose policies hide rows.
//! 5. [`extreme`]: `max` and `min` of an indexed column read one row.
//! 6. [`prune`]: columns nobody reads are not read.
//! 7. [`join_order`]: inner joins are put in the cheapest order ([`join_search`]), also by equalities that follow from
//!    others ([`implied`]).
//! 8. [`access`]: each scan gets the index and the part of it to read ([`inverted`] for indexes of jsonb and arrays),
//!    sorts that an index makes superfluous go; each join gets its method ([`join_method`]).
//! 9. [`order`]: limits reach the sorts and scans.
//! 10. [`prune`] again: joins in another order pass on other columns.
//! 11. [`estimate`]: rows and cost, for EXPLAIN and for the choice of the engine.
//!
//! Rules 1 to 6, 9 and 10 are always right; 7 and 8 compare costs ([`cost`]), for which [`estimate`] estimates rows from
//! [`crate::statistics`] by [`selectivity`] and [`cardinality`].
//!
//! # What is missing
//!
//! A memo of alternatives, so that the order of joins and what is above and below them are chosen together; merge joins;
//! orders across outer and semi-joins; NOT IN as an anti-join; unnesting of scalar subqueries.

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
pub mod join_order;
pub mod join_search;
pub mod leakproof;
pub mod order;
pub mod origin;
pub mod prune;
pub mod pushdown;
#[cfg(test)]
mod reference;
pub mod selectivity;
pub mod semi;
#[cfg(test)]
mod tests;

use crate::plan::{Expr, Plan, PlanKind};
use crate::statistics::StatisticsCell;
use sql_types::Oid;

/// Applies all rules.
pub fn optimize(mut plan: Plan) -> Plan {
    fold::fold(&mut plan);
    cte::inline(&mut plan);
    semi::unnest(&mut plan);
    let mut plan = pushdown::push_down(plan);
    fold::fold(&mut plan);
    extreme::read_ends(&mut plan);
    // Which columns are read decides which indexes have all of them.
    let mut plan = prune::prune(plan);
    if has_join(&plan) {
        estimate::estimate(&mut plan, false);
        join_order::reorder(&mut plan);
    }
    access::choose(&mut plan);
    order::push_limits(&mut plan);
    let mut plan = prune::prune(plan);
    estimate::estimate(&mut plan, true);
    plan
}

/// The statistics of the tables that a plan reads, with their versions: with others it might be another.
pub fn statistics(plan: &Plan) -> Vec<(StatisticsCell, u64)> {
    fn collect(plan: &Plan, seen: &mut Vec<Oid>, found: &mut Vec<(StatisticsCell, u64)>) {
        if let PlanKind::Scan { table, .. } = &plan.kind
            && !seen.contains(&table.oid)
        {
            seen.push(table.oid);
            found.push((table.statistics.clone(), table.statistics.version()));
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
