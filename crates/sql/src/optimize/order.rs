//! Limits reach the sorts and scans below them.

use crate::plan::{Expr, Plan, PlanKind};
use sql_types::functions::resolve_operator;
use sql_types::{Datum, Type};

/// Tells sorts and scans how many rows will be asked for.
pub fn push_limits(plan: &mut Plan) {
    if let PlanKind::Limit { input, limit: Some(limit), offset } = &mut plan.kind
        && let Some(count) = total(limit, offset.as_ref())
    {
        hint(input, &count);
    }
    plan.for_each_child_mut(&mut |child, _| push_limits(child));
}

/// LIMIT plus OFFSET; `None` if that is not known before the rows are.
fn total(limit: &Expr, offset: Option<&Expr>) -> Option<Expr> {
    if !limit.is_run_constant() || !offset.is_none_or(Expr::is_run_constant) {
        return None;
    }
    match (limit, offset) {
        (limit, None) => Some(limit.clone()),
        (Expr::Const(Datum::Int8(limit), ty), Some(Expr::Const(Datum::Int8(offset), _))) => {
            Some(Expr::Const(Datum::Int8(limit.saturating_add((*offset).max(0))), *ty))
        }
        (Expr::Const(Datum::Null, _), _) | (_, Some(Expr::Const(Datum::Null, _))) => None,
        (limit, Some(offset)) => {
            let resolved = resolve_operator("+", Some(Type::INT8), Type::INT8).ok()?;
            Some(Expr::Call {
                function: resolved.function,
                args: vec![limit.clone(), Expr::Coalesce(vec![offset.clone(), zero()], Type::INT8)],
                ty: Type::INT8,
            })
        }
    }
}

fn zero() -> Expr {
    Expr::Const(Datum::Int8(0), Type::INT8)
}

fn hint(plan: &mut Plan, count: &Expr) {
    match &mut plan.kind {
        PlanKind::Project { input, .. } => hint(input, count),
        PlanKind::Sort { limit, .. } | PlanKind::Scan { limit, .. } => *limit = Some(count.clone()),
        PlanKind::Apply { input, subplans }
            if subplans.iter().all(|(subplan, _)| subplan.plan().is_some()) =>
        {
            hint(input, count);
        }
        _ => {}
    }
}
