//! Expressions as text.

use crate::plan::expr::SubscriptRange;
use crate::plan::{AggregateCall, Expr, PlanColumn, SortKey};
use sql_types::functions::TextContext;
use sql_types::{Datum, Type, text};
use std::fmt::Write;

/// An expression over a row with these columns, as SQL.
pub fn expr_text(expr: &Expr, columns: &[PlanColumn]) -> String {
    let mut out = String::new();
    write_expr(expr, columns, &mut out);
    out
}

fn list(exprs: &[Expr], columns: &[PlanColumn]) -> String {
    exprs.iter().map(|expr| expr_text(expr, columns)).collect::<Vec<_>>().join(", ")
}

fn write_expr(expr: &Expr, columns: &[PlanColumn], out: &mut String) {
    let sub = |expr: &Expr| expr_text(expr, columns);
    // Writing to a string cannot fail.
    let _ = match expr {
        Expr::Const(value, ty) => write!(out, "{}", constant(value, *ty)),
        Expr::Param(index, _) => write!(out, "${}", index + 1),
        Expr::Column(index, _) => match columns.get(*index) {
            Some(column) => write!(out, "{}", column.name),
            None => write!(out, "#{index}"),
        },
        Expr::Outer { depth, index, .. } => write!(out, "outer{}.{index}", "+".repeat(*depth)),
        Expr::Call { function, args, .. } => match &args[..] {
            [left, right] if function.is_operator() => write!(out, "({} {} {})", sub(left), function.name, sub(right)),
            [operand] if function.is_operator() => write!(out, "({} {})", function.name, sub(operand)),
            args => write!(out, "{}({})", function.name, list(args, columns)),
        },
        Expr::Cast { expr, to, .. } => write!(out, "({})::{}", sub(expr), to.ty),
        Expr::And(parts) => write!(out, "({})", joined(parts, " AND ", columns)),
        Expr::Or(parts) => write!(out, "({})", joined(parts, " OR ", columns)),
        Expr::Not(inner) => write!(out, "(NOT {})", sub(inner)),
        Expr::IsNull(inner, negated) => write!(out, "({} IS {}NULL)", sub(inner), not(*negated)),
        Expr::IsDistinct(left, right, negated) => {
            write!(out, "({} IS {}DISTINCT FROM {})", sub(left), not(*negated), sub(right))
        }
        Expr::Case { branches, otherwise, .. } => {
            out.push_str("CASE");
            for (condition, result) in branches {
                let _ = write!(out, " WHEN {} THEN {}", sub(condition), sub(result));
            }
            if let Some(otherwise) = otherwise {
                let _ = write!(out, " ELSE {}", sub(otherwise));
            }
            write!(out, " END")
        }
        Expr::Coalesce(args, _) => write!(out, "COALESCE({})", list(args, columns)),
        Expr::InList(value, items, negated) => {
            write!(out, "({} {}IN ({}))", sub(value), not(*negated), list(items, columns))
        }
        Expr::AnyArray { expr, function, array, any } => {
            let quantifier = if *any { "ANY" } else { "ALL" };
            write!(out, "({} {} {quantifier} ({}))", sub(expr), function.name, sub(array))
        }
        Expr::Array(items, _) => write!(out, "ARRAY[{}]", list(items, columns)),
        Expr::Record(items, _) => write!(out, "ROW({})", list(items, columns)),
        Expr::Field(record, position, _) => write!(out, "({}).f{}", sub(record), position + 1),
        Expr::Subscript(array, subscripts, _) => {
            let _ = write!(out, "{}", sub(array));
            for subscript in subscripts {
                let _ = match subscript {
                    SubscriptRange::Index(index) => write!(out, "[{}]", sub(index)),
                    SubscriptRange::Slice(from, to) => {
                        let end = |bound: &Option<Expr>| bound.as_ref().map(sub).unwrap_or_default();
                        write!(out, "[{}:{}]", end(from), end(to))
                    }
                };
            }
            Ok(())
        }
    };
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn joined(parts: &[Expr], separator: &str, columns: &[PlanColumn]) -> String {
    parts.iter().map(|part| expr_text(part, columns)).collect::<Vec<_>>().join(separator)
}

fn constant(value: &Datum, ty: Type) -> String {
    match value {
        Datum::Null => format!("NULL::{ty}"),
        Datum::Bool(value) => value.to_string(),
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) | Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) => {
            let text = text::to_string(value, ty, &TextContext::plain());
            if text.starts_with('-') { format!("'{text}'::{ty}") } else { text }
        }
        _ => format!("'{}'::{ty}", text::to_string(value, ty, &TextContext::plain()).replace('\'', "''")),
    }
}

/// Sort keys as text.
pub(super) fn keys_text(keys: &[SortKey], columns: &[PlanColumn]) -> String {
    let one = |key: &SortKey| {
        let mut text = expr_text(&key.expr, columns);
        if key.descending {
            text.push_str(" DESC");
        }
        if key.nulls_first != key.descending {
            text.push_str(if key.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
        }
        text
    };
    keys.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// An aggregate call as text.
pub(super) fn aggregate_text(call: &AggregateCall, columns: &[PlanColumn]) -> String {
    let args = if call.args.is_empty() { "*".to_string() } else { list(&call.args, columns) };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    format!("{}({distinct}{args})", call.function.name)
}
