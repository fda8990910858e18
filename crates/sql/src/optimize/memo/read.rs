//! Implementation rule: a plan without joins as [`access`] reads it, in an order if an index gives it.

use super::order::{ANY, Orders, Required};
use crate::optimize::access::{self, Wanted};
use crate::optimize::{cost, estimate};
use crate::plan::{Expr, Plan, PlanKind};

/// What is asked of a leaf, in the words of [`access`].
pub fn wanted(required: Required, rows: f64, orders: &Orders) -> (Option<Wanted>, Option<f64>) {
    let limit = (required.share < 1.0).then_some(rows * required.share);
    let keys = orders.keys(required.order).iter();
    let keys: Vec<_> = keys.map(|key| (key.expr.clone(), key.descending, key.nulls_first)).collect();
    ((required.order != ANY).then_some(Wanted { keys, limit }), limit)
}

/// What it costs to read the share of rows that is asked for; `None` if they do not come in the order.
pub fn cost(plan: &Plan, required: Required, orders: &Orders, ctes: &[(usize, f64)]) -> Option<f64> {
    let (wanted, limit) = wanted(required, plan.rows, orders);
    let part = |startup: f64, all: f64| {
        // A request is made, however few rows are read.
        let first = startup.max(cost::REQUEST).min(all);
        first + (all - first) * required.share
    };
    if let PlanKind::Scan { table, columns, filter, access, .. } = &plan.kind
        && access.is_full()
    {
        let conjuncts = filter.clone().map_or_else(Vec::new, Expr::into_conjuncts);
        let choice = access::best(table, columns, conjuncts, wanted.as_ref());
        return match wanted {
            None => Some(part(0.0, choice.cost)),
            Some(_) => choice.ordered.map(|_| choice.cost),
        };
    }
    if !is_over_scan(plan) {
        return wanted.is_none().then(|| part(plan.startup, plan.cost));
    }
    let mut chosen = plan.clone();
    let ordered = access::choose_ordered(&mut chosen, wanted.clone(), limit);
    if wanted.is_some() && !ordered {
        return None;
    }
    estimate::estimate_within(&mut chosen, true, ctes.to_vec());
    Some(part(chosen.startup, chosen.cost))
}

/// Whether a plan hands on the rows of a scan as they come.
fn is_over_scan(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Project { input, .. }
        | PlanKind::Filter { input, .. }
        | PlanKind::Limit { input, .. }
        | PlanKind::Sort { input, .. } => is_over_scan(input),
        PlanKind::Scan { .. } => true,
        _ => false,
    }
}
