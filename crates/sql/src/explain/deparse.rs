//! Expressions as text.

use crate::plan::expr::SubscriptRange;
use crate::plan::{AggregateCall, Expr, PlanColumn, SortKey};
use sql_types::functions::TextContext;
use sql_types::{Datum, Type, text};
use std::fmt::Write;

/// Columns by which an expression is written: of its own row, and of the rows around, outermost first.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// Columns of the row.
    pub columns: &'a [PlanColumn],
    /// Columns of the rows around.
    pub outer: &'a [Vec<PlanColumn>],
}

/// An expression as SQL.
pub fn expr_text(expr: &Expr, names: Names<'_>) -> String {
    let mut out = String::new();
    write_expr(expr, names, &mut out);
    out
}

fn outer_name(names: Names<'_>, depth: usize, index: usize) -> String {
    let row = names.outer.len().checked_sub(depth + 1).and_then(|position| names.outer.get(position));
    match row.and_then(|row| row.get(index)) {
        Some(column) => format!("outer.{}", column.name),
        None => format!("outer.{index}"),
    }
}

fn list(exprs: &[Expr], names: Names<'_>) -> String {
    exprs.iter().map(|expr| expr_text(expr, names)).collect::<Vec<_>>().join(", ")
}

fn write_expr(expr: &Expr, names: Names<'_>, out: &mut String) {
    let sub = |expr: &Expr| expr_text(expr, names);
    // Writing to a string cannot fail.
    let _ = match expr {
        Expr::Const(value, ty) => write!(out, "{}", constant(value, *ty)),
        Expr::Param(index, _) => write!(out, "${}", index + 1),
        Expr::Column(index, _) => match names.columns.get(*index) {
            Some(column) => write!(out, "{}", column.name),
            None => write!(out, "#{index}"),
        },
        Expr::Outer { depth, index, .. } => write!(out, "{}", outer_name(names, *depth, *index)),
        Expr::Call { function, args, .. } => match &args[..] {
            [left, right] if function.is_operator() => {
                write!(out, "({} {} {})", sub(left), function.name, sub(right))
            }
            [operand] if function.is_operator() => write!(out, "({} {})", function.name, sub(operand)),
            args => write!(out, "{}({})", function.name, list(args, names)),
        },
        Expr::Cast { expr, to, .. } => write!(out, "({})::{}", sub(expr), to.ty),
        Expr::And(parts) => write!(out, "({})", joined(parts, " AND ", names)),
        Expr::Or(parts) => write!(out, "({})", joined(parts, " OR ", names)),
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
        Expr::Coalesce(args, _) => write!(out, "COALESCE({})", list(args, names)),
        Expr::InList(value, items, negated) => {
            write!(out, "({} {}IN ({}))", sub(value), not(*negated), list(items, names))
        }
        Expr::AnyArray { expr, function, array, any } => {
            let quantifier = if *any { "ANY" } else { "ALL" };
            write!(out, "({} {} {quantifier} ({}))", sub(expr), function.name, sub(array))
        }
        Expr::Array(items, _) => write!(out, "ARRAY[{}]", list(items, names)),
        Expr::Record(items, _) => write!(out, "ROW({})", list(items, names)),
        Expr::Field(record, position, _) => write!(out, "({}).f{}", sub(record), position + 1),
        Expr::Domain(inner, checks) => {
            let domain = checks.first().and_then(|check| check.domain.as_ref());
            write!(out, "({})::{}", sub(inner), domain.map_or("domain", |rule| &*rule.domain))
        }
        Expr::Subscript(array, ranges, _) => write!(out, "{}{}", sub(array), subscripts(ranges, names)),
        Expr::SubscriptAssign(container, ranges, value, _) => {
            write!(out, "{}{} = {}", sub(container), subscripts(ranges, names), sub(value))
        }
    };
}

fn subscripts(ranges: &[SubscriptRange], names: Names<'_>) -> String {
    let end = |bound: &Option<Expr>| bound.as_ref().map(|bound| expr_text(bound, names)).unwrap_or_default();
    let text = |range: &SubscriptRange| match range {
        SubscriptRange::Index(index) => format!("[{}]", expr_text(index, names)),
        SubscriptRange::Slice(from, to) => format!("[{}:{}]", end(from), end(to)),
    };
    ranges.iter().map(text).collect()
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn joined(parts: &[Expr], separator: &str, names: Names<'_>) -> String {
    parts.iter().map(|part| expr_text(part, names)).collect::<Vec<_>>().join(separator)
}

fn constant(value: &Datum, ty: Type) -> String {
    match value {
        Datum::Null => format!("NULL::{ty}"),
        Datum::Bool(value) => value.to_string(),
        Datum::Int2(_)
        | Datum::Int4(_)
        | Datum::Int8(_)
        | Datum::Float4(_)
        | Datum::Float8(_)
        | Datum::Numeric(_) => {
            let text = text::to_string(value, ty, &TextContext::plain());
            if text.starts_with('-') { format!("'{text}'::{ty}") } else { text }
        }
        _ => format!("'{}'::{ty}", text::to_string(value, ty, &TextContext::plain()).replace('\'', "''")),
    }
}

/// Sort keys as text.
pub(super) fn keys_text(keys: &[SortKey], names: Names<'_>) -> String {
    let one = |key: &SortKey| {
        let mut text = expr_text(&key.expr, names);
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
pub(super) fn aggregate_text(call: &AggregateCall, names: Names<'_>) -> String {
    let args = if call.args.is_empty() { "*".to_string() } else { list(&call.args, names) };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    format!("{}({distinct}{args})", call.function.name)
}
