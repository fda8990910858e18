//! Constant folding and simplification of conditions.
//!
//! A call of an immutable function over constants is replaced by its value. What fails stays: it is
//! an error only if it is ever evaluated (`CASE WHEN … THEN 1/0`).

use crate::plan::{Expr, Plan, PlanKind};
use sql_types::functions::{EvalContext, Volatility};
use sql_types::{Datum, Type};

/// Folds every expression of a plan.
pub fn fold(plan: &mut Plan) {
    plan.for_each_expr_mut(&mut fold_expr);
    plan.for_each_child_mut(&mut |child, _| fold(child));
    if let PlanKind::Filter { predicate: Expr::Const(Datum::Bool(true), _), input } = &mut plan.kind {
        let columns = std::mem::take(&mut plan.columns);
        let inner = std::mem::replace(input.as_mut(), Plan::one_row());
        *plan = inner;
        plan.columns = columns;
    }
}

/// Folds one expression.
pub fn fold_expr(expr: &mut Expr) {
    expr.for_each_child_mut(&mut fold_expr);
    if let Some(folded) = folded(expr) {
        *expr = folded;
    }
}

fn folded(expr: &mut Expr) -> Option<Expr> {
    match expr {
        Expr::Call { function, args, ty } => {
            if function.volatility != Volatility::Immutable || function.external || *ty == Type::RECORD {
                return None;
            }
            let (values, types): (Vec<Datum>, Vec<Type>) = args
                .iter()
                .map(|arg| match arg {
                    Expr::Const(value, ty) => Some((value.clone(), *ty)),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .unzip();
            let value = function.call(&EvalContext::plain(), &types, &values).ok()?;
            Some(Expr::Const(value, *ty))
        }
        Expr::And(parts) => Some(logical(std::mem::take(parts), false)),
        Expr::Or(parts) => Some(logical(std::mem::take(parts), true)),
        Expr::Not(inner) => match inner.as_mut() {
            Expr::Const(Datum::Bool(value), _) => Some(boolean(!*value)),
            Expr::Const(Datum::Null, _) => Some(Expr::Const(Datum::Null, Type::BOOL)),
            Expr::Not(inner) => Some(std::mem::replace(inner.as_mut(), boolean(true))),
            Expr::IsNull(inner, negated) => {
                let negated = !*negated;
                let inner = std::mem::replace(inner.as_mut(), boolean(true));
                Some(Expr::IsNull(Box::new(inner), negated))
            }
            Expr::InList(value, list, negated) => {
                let negated = !*negated;
                let value = std::mem::replace(value.as_mut(), boolean(true));
                Some(Expr::InList(Box::new(value), std::mem::take(list), negated))
            }
            _ => None,
        },
        Expr::IsNull(inner, negated) => match inner.as_ref() {
            Expr::Const(value, _) => Some(boolean(value.is_null() != *negated)),
            _ => None,
        },
        Expr::Coalesce(args, ty) => {
            let ty = *ty;
            let mut kept: Vec<Expr> = Vec::with_capacity(args.len());
            for arg in std::mem::take(args) {
                match &arg {
                    Expr::Const(Datum::Null, _) => {}
                    Expr::Const(..) => {
                        kept.push(arg);
                        break;
                    }
                    _ => kept.push(arg),
                }
            }
            Some(match kept.len() {
                0 => Expr::Const(Datum::Null, ty),
                1 => kept.pop()?,
                _ => Expr::Coalesce(kept, ty),
            })
        }
        Expr::Case { branches, otherwise, ty } => fold_case(branches, otherwise, *ty),
        _ => None,
    }
}

/// Leaves out branches whose condition is constant and not true, and everything after one that is.
fn fold_case(branches: &mut Vec<(Expr, Expr)>, otherwise: &mut Option<Box<Expr>>, ty: Type) -> Option<Expr> {
    let constant = branches.iter().any(|(condition, _)| matches!(condition, Expr::Const(..)));
    if !constant {
        return None;
    }
    let mut kept = Vec::with_capacity(branches.len());
    for (condition, result) in std::mem::take(branches) {
        match condition {
            Expr::Const(Datum::Bool(true), _) => {
                *otherwise = Some(Box::new(result));
                break;
            }
            Expr::Const(..) => {}
            condition => kept.push((condition, result)),
        }
    }
    if kept.is_empty() {
        return Some(otherwise.take().map_or(Expr::Const(Datum::Null, ty), |otherwise| *otherwise));
    }
    *branches = kept;
    None
}

/// AND (or OR): flattened; a part that decides decides; parts that do not matter go.
fn logical(parts: Vec<Expr>, or: bool) -> Expr {
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Expr::Const(Datum::Bool(value), _) if value == or => return boolean(or),
            Expr::Const(Datum::Bool(_), _) => {}
            Expr::And(inner) if !or => kept.extend(inner),
            Expr::Or(inner) if or => kept.extend(inner),
            part => kept.push(part),
        }
    }
    match kept.len() {
        0 => boolean(!or),
        1 => kept.pop().unwrap_or_else(|| boolean(!or)),
        _ if or => factored(kept),
        _ => Expr::And(kept),
    }
}

/// An OR, with the conditions that all its branches share in front of it: `a AND b OR a AND c` is `a AND (b OR c)`, so that
/// `a` can be pushed down, or become the key of a join.
fn factored(branches: Vec<Expr>) -> Expr {
    let mut branches: Vec<Vec<Expr>> = branches.into_iter().map(Expr::into_conjuncts).collect();
    let Some((first, others)) = branches.split_first() else { return boolean(false) };
    let is_shared = |part: &&Expr| {
        part.volatility() != Volatility::Volatile
            && others.iter().all(|branch| branch.iter().any(|other| other.same(part)))
    };
    let mut shared: Vec<Expr> = first.iter().filter(is_shared).cloned().collect();
    for branch in &mut branches {
        branch.retain(|part| !shared.iter().any(|known| known.same(part)));
    }
    // A branch that is nothing but what is shared decides.
    if branches.iter().all(|branch| !branch.is_empty()) {
        let branches = branches.into_iter().filter_map(Expr::conjunction).collect();
        shared.push(Expr::Or(branches));
    }
    Expr::conjunction(shared).unwrap_or_else(|| boolean(true))
}

fn boolean(value: bool) -> Expr {
    Expr::Const(Datum::Bool(value), Type::BOOL)
}
