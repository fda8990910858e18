//! Whether conditions imply another one: whether a partial index has all rows that a query asks for.
//!
//! A condition is implied by an equal one, by one of the parts of an OR, by a comparison of the same expression
//! with a constant that leaves less room, and `x IS NOT NULL` by any condition that is not true of NULL. That is
//! what PostgreSQL's `predtest.c` proves too, of which the refutations and the classes of operators are missing.

use crate::plan::Expr;
use sql_types::{Datum, Type, compare};
use std::cmp::Ordering;

/// An expression in a form that expressions of the same value share: without casts between text and varchar,
/// with plain casts not told apart by how they were written, and `x = true` as `x`.
pub fn normal(expr: &Expr) -> Expr {
    let mut normal = expr.clone();
    normalize(&mut normal);
    normal
}

fn normalize(expr: &mut Expr) {
    expr.for_each_child_mut(&mut normalize);
    let replacement = match expr {
        Expr::Cast { expr: inner, to, explicit } if to.typmod < 0 => {
            *explicit = false;
            let text = |ty| matches!(ty, Type::TEXT | Type::VARCHAR);
            (inner.ty() == to.ty || text(inner.ty()) && text(to.ty)).then(|| inner.as_ref().clone())
        }
        Expr::Call { function, args, .. } if function.name == "=" => match &args[..] {
            [other, Expr::Const(Datum::Bool(value), _)] | [Expr::Const(Datum::Bool(value), _), other] => {
                Some(if *value { other.clone() } else { Expr::Not(Box::new(other.clone())) })
            }
            _ => None,
        },
        Expr::Const(_, ty) if *ty == Type::VARCHAR => {
            *ty = Type::TEXT;
            None
        }
        _ => None,
    };
    if let Some(replacement) = replacement {
        *expr = replacement;
    }
}

/// Whether a condition (in normal form) is true of every row of which the given ones (in normal form) are.
pub fn implied(condition: &Expr, given: &[Expr]) -> bool {
    match condition {
        Expr::And(parts) => return parts.iter().all(|part| implied(part, given)),
        Expr::Const(Datum::Bool(true), _) => return true,
        Expr::Or(parts) if parts.iter().any(|part| implied(part, given)) => return true,
        _ => {}
    }
    given.iter().any(|given| implies(given, condition))
}

fn implies(given: &Expr, condition: &Expr) -> bool {
    if given.same(condition) {
        return true;
    }
    match given {
        Expr::And(parts) => return parts.iter().any(|part| implies(part, condition)),
        Expr::Or(parts) => {
            return parts.iter().all(|part| implied(condition, std::slice::from_ref(part)));
        }
        _ => {}
    }
    match condition {
        Expr::IsNull(value, true) => is_strict_in(given, value),
        Expr::InList(value, list, false) => constants_of(given, value)
            .is_some_and(|given| given.iter().all(|one| list.iter().any(|known| known.same(one)))),
        Expr::Call { .. } => {
            let Some((operator, value, limit)) = comparison(condition) else { return false };
            if let Some(given) = constants_of(given, value) {
                return given.iter().all(|one| holds(order(one, limit), operator));
            }
            let Some((given, own, bound)) = comparison(given) else { return false };
            own.same(value) && narrower(given, operator, order(bound, limit))
        }
        _ => false,
    }
}

/// The constants one of which a value equals if a condition is true.
fn constants_of<'e>(condition: &'e Expr, value: &Expr) -> Option<Vec<&'e Expr>> {
    match condition {
        Expr::InList(own, list, false) if own.same(value) => {
            list.iter().all(|item| matches!(item, Expr::Const(..))).then(|| list.iter().collect())
        }
        _ => match comparison(condition)? {
            ("=", own, constant) if own.same(value) => Some(vec![constant]),
            _ => None,
        },
    }
}

/// A comparison with a constant, which is then on the right.
fn comparison(expr: &Expr) -> Option<(&'static str, &Expr, &Expr)> {
    let Expr::Call { function, args, .. } = expr else { return None };
    let [left, right] = &args[..] else { return None };
    let flipped = match function.name {
        "=" => "=",
        "<>" => "<>",
        "<" => ">",
        ">" => "<",
        "<=" => ">=",
        ">=" => "<=",
        _ => return None,
    };
    match (left, right) {
        (Expr::Const(..), Expr::Const(..)) => None,
        (_, Expr::Const(..)) => Some((function.name, left, right)),
        (Expr::Const(..), _) => Some((flipped, right, left)),
        _ => None,
    }
}

/// How two constants of one type compare.
fn order(a: &Expr, b: &Expr) -> Option<Ordering> {
    match (a, b) {
        (Expr::Const(a, one), Expr::Const(b, other))
            if one == other && !a.is_null() && !b.is_null() && *one != Type::BPCHAR =>
        {
            Some(compare::compare(a, b))
        }
        _ => None,
    }
}

fn holds(order: Option<Ordering>, operator: &str) -> bool {
    let Some(order) = order else { return false };
    match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        _ => false,
    }
}

/// Whether `x given a` implies `x wanted b`, where `a` compares to `b` as `order` says.
fn narrower(given: &str, wanted: &str, order: Option<Ordering>) -> bool {
    let Some(order) = order else { return false };
    match (given, wanted) {
        (">", ">" | ">=" | "<>") | (">=", ">=") => order.is_ge(),
        (">=", ">" | "<>") => order.is_gt(),
        ("<", "<" | "<=" | "<>") | ("<=", "<=") => order.is_le(),
        ("<=", "<" | "<>") => order.is_lt(),
        _ => false,
    }
}

/// Whether a condition is never true if a value is NULL.
fn is_strict_in(condition: &Expr, value: &Expr) -> bool {
    match condition {
        Expr::IsNull(own, true) => null_in(own, value),
        Expr::InList(own, _, _) => null_in(own, value),
        Expr::AnyArray { expr, function, any: true, .. } => function.strict && null_in(expr, value),
        other => null_in(other, value),
    }
}

/// Whether an expression is NULL if a value is.
fn null_in(expr: &Expr, value: &Expr) -> bool {
    if expr.same(value) {
        return true;
    }
    match expr {
        Expr::Call { function, args, .. } => function.strict && args.iter().any(|arg| null_in(arg, value)),
        Expr::Cast { expr, .. } | Expr::Not(expr) => null_in(expr, value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, left: Expr, right: Expr) -> Expr {
        let resolved =
            sql_types::functions::resolve_operator(name, Some(left.ty()), right.ty()).expect("an operator");
        Expr::Call { function: resolved.function, args: vec![left, right], ty: resolved.returns }
    }

    fn x() -> Expr {
        Expr::Column(0, Type::INT4)
    }

    fn int(value: i32) -> Expr {
        Expr::Const(Datum::Int4(value), Type::INT4)
    }

    #[test]
    fn what_leaves_less_room_implies() {
        let operators = ["=", "<>", "<", "<=", ">", ">="];
        let truth = |operator: &str, left: i32, right: i32| match operator {
            "=" => left == right,
            "<>" => left != right,
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            _ => left >= right,
        };
        let mut proved = 0;
        for (given, wanted) in operators.iter().flat_map(|a| operators.iter().map(move |b| (a, b))) {
            for (a, b) in (0..5).flat_map(|a| (0..5).map(move |b| (a, b))) {
                let found = implied(&call(wanted, x(), int(b)), &[call(given, x(), int(a))]);
                let holds = (-9..15).all(|x| !truth(given, x, a) || truth(wanted, x, b));
                assert!(!found || holds, "x {given} {a} does not imply x {wanted} {b}");
                proved += u32::from(found);
            }
        }
        assert!(proved > 150, "only {proved} proofs");
    }

    #[test]
    fn nulls_lists_and_alternatives() {
        let not_null = Expr::IsNull(Box::new(x()), true);
        let is = |value| call("=", x(), int(value));
        let list =
            |values: &[i32]| Expr::InList(Box::new(x()), values.iter().map(|v| int(*v)).collect(), false);
        assert!(implied(&not_null, &[is(1)]));
        assert!(implied(&not_null, &[call(">", call("+", x(), int(1)), int(3))]));
        assert!(!implied(&not_null, &[Expr::IsNull(Box::new(x()), false)]));
        assert!(!implied(&not_null, &[Expr::Coalesce(vec![x(), int(1)], Type::INT4)]));
        assert!(implied(&list(&[1, 2, 3]), &[list(&[3, 1])]) && !implied(&list(&[1, 2]), &[list(&[3, 1])]));
        assert!(implied(&list(&[1, 2]), &[Expr::Or(vec![is(1), is(2)])]));
        assert!(implied(&call(">", x(), int(0)), &[list(&[3, 1])]));
        assert!(!implied(&is(1), &[]) && !implied(&is(1), &[Expr::Or(vec![is(1), is(2)])]));
        assert!(implied(&Expr::Or(vec![is(1), is(2)]), &[is(2)]));
    }
}
