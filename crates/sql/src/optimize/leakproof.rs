//! Which conditions can tell nothing of the rows for which they are evaluated, other than by letting them through: those
//! that cannot fail. Only they pass the fence around a table with policies ([`crate::plan::policy`]).

use crate::plan::Expr;
use sql_types::Type;

/// Whether evaluating a condition over any row neither fails nor has effects. Short of that it says no.
pub fn is_leakproof(expr: &Expr) -> bool {
    match expr {
        Expr::Column(..) | Expr::Const(..) | Expr::Param(..) | Expr::Outer { .. } => true,
        Expr::And(parts) | Expr::Or(parts) => parts.iter().all(is_leakproof),
        Expr::Not(inner) | Expr::IsNull(inner, _) => is_leakproof(inner),
        Expr::Call { function, args, .. } => match &args[..] {
            [a, b] => is_comparison(function.name) && comparable(a, b),
            _ => false,
        },
        Expr::InList(value, list, _) => list.iter().all(|item| comparable(value, item)),
        Expr::AnyArray { expr, function, array, .. } => {
            is_comparison(function.name)
                && array.ty().element() == Some(expr.ty())
                && is_plain(expr.ty())
                && is_leakproof(expr)
                && matches!(**array, Expr::Const(..) | Expr::Param(..))
        }
        Expr::Cast { expr, to, .. } => to.typmod == -1 && widens(expr.ty(), to.ty) && is_leakproof(expr),
        _ => false,
    }
}

/// Whether every value of a type is one of another type as well.
fn widens(from: Type, to: Type) -> bool {
    matches!(
        (from, to),
        (Type::VARCHAR, Type::TEXT)
            | (Type::INT2, Type::INT4 | Type::INT8)
            | (Type::INT4, Type::INT8)
            | (Type::FLOAT4, Type::FLOAT8)
    )
}

fn is_comparison(name: &str) -> bool {
    matches!(name, "=" | "<>" | "<" | "<=" | ">" | ">=")
}

/// Whether two leakproof values are of types whose comparison cannot fail.
fn comparable(a: &Expr, b: &Expr) -> bool {
    let integer = |ty: Type| matches!(ty, Type::INT2 | Type::INT4 | Type::INT8);
    let same = a.ty() == b.ty() || (integer(a.ty()) && integer(b.ty()));
    same && is_plain(a.ty()) && is_leakproof(a) && is_leakproof(b)
}

fn is_plain(ty: Type) -> bool {
    matches!(
        ty,
        Type::BOOL
            | Type::INT2
            | Type::INT4
            | Type::INT8
            | Type::OID
            | Type::FLOAT4
            | Type::FLOAT8
            | Type::NUMERIC
            | Type::TEXT
            | Type::VARCHAR
            | Type::NAME
            | Type::BYTEA
            | Type::UUID
            | Type::DATE
            | Type::TIME
            | Type::TIMESTAMP
            | Type::TIMESTAMPTZ
            | Type::INTERVAL
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql_types::functions::resolve_operator;
    use sql_types::{ColumnType, Datum};

    fn column(ty: Type) -> Expr {
        Expr::Column(0, ty)
    }

    fn number(value: i32) -> Expr {
        Expr::Const(Datum::Int4(value), Type::INT4)
    }

    fn call(name: &str, a: Expr, b: Expr) -> Expr {
        let function = resolve_operator(name, Some(a.ty()), b.ty()).expect("an operator").function;
        Expr::Call { function, ty: function.returns, args: vec![a, b] }
    }

    fn cast(from: Type, to: ColumnType) -> Expr {
        Expr::Cast { expr: Box::new(column(from)), to, explicit: true }
    }

    #[test]
    fn what_cannot_fail_is_leakproof() {
        let quotient = || call("/", number(1), column(Type::INT4));
        let equal = |a: Expr| call("=", a, number(1));
        let limited = ColumnType { ty: Type::TEXT, typmod: 7 };
        let cases = [
            (equal(column(Type::INT4)), true),
            (equal(column(Type::INT8)), true),
            (call("<", column(Type::TEXT), column(Type::TEXT)), true),
            (
                Expr::Or(vec![equal(column(Type::INT4)), Expr::IsNull(Box::new(column(Type::TEXT)), true)]),
                true,
            ),
            (Expr::InList(Box::new(column(Type::INT4)), vec![number(1), number(2)], false), true),
            (call("=", cast(Type::VARCHAR, Type::TEXT.into()), column(Type::TEXT)), true),
            (equal(quotient()), false),
            (Expr::And(vec![equal(column(Type::INT4)), equal(quotient())]), false),
            (Expr::Not(Box::new(equal(quotient()))), false),
            (Expr::IsNull(Box::new(quotient()), true), false),
            (Expr::InList(Box::new(column(Type::INT4)), vec![quotient()], false), false),
            (equal(cast(Type::TEXT, Type::INT4.into())), false),
            (equal(cast(Type::INT8, Type::INT4.into())), false),
            (call("=", cast(Type::VARCHAR, limited), column(Type::TEXT)), false),
            (call("~~", column(Type::TEXT), column(Type::TEXT)), false),
            (call("=", column(Type::JSONB), column(Type::JSONB)), false),
        ];
        for (expr, leakproof) in cases {
            assert_eq!(is_leakproof(&expr), leakproof, "{expr:?}");
        }
    }
}
