//! The share of rows that satisfy a condition.
//!
//! With statistics, equalities are estimated from the most common values and the number of distinct ones, ranges
//! from the histogram, and any other condition over one column by trying it on all values the statistics have.
//! Without, conditions keep the shares that PostgreSQL assumes in that case. Values that are not known when the plan
//! is made (parameters) count as average ones. Conditions over several columns are taken to be independent,
//! except for two bounds of one column.

use super::origin::{Columns, Origin};
use super::pushdown;
use crate::exec::eval::{EvalEnv, eval, eval_bool};
use crate::plan::Expr;
use crate::statistics::UNSEEN;
use sql_types::cast::cast;
use sql_types::functions::{EvalContext, Volatility};
use sql_types::{Datum, Row, Type, compare};

/// Share of rows with a given value, for what is no column.
pub const EQUALITY: f64 = 0.005;
/// Share of rows on one side of an unknown bound.
pub const RANGE: f64 = 1.0 / 3.0;
/// Share of rows between two unknown bounds, as in PostgreSQL.
pub const BETWEEN: f64 = 0.005;
/// Share of rows that match an unknown pattern.
const PATTERN: f64 = 0.05;
/// Share of rows with something in them, as PostgreSQL guesses it.
const CONTAINS: f64 = 0.01;
/// Share of rows for any other condition.
const OTHER: f64 = 0.25;
/// Alternatives in an array that is not known.
pub const UNKNOWN_ALTERNATIVES: f64 = 10.0;
/// Longer lists of alternatives are estimated by their length.
const MOST_ALTERNATIVES: usize = 200;

/// The share of rows that satisfy a condition.
pub fn selectivity(expr: &Expr, columns: Columns<'_>) -> f64 {
    share(expr, columns).clamp(0.0, 1.0)
}

/// The share of rows that satisfy all of some conditions.
pub fn of_all<'e>(conjuncts: impl IntoIterator<Item = &'e Expr>, columns: Columns<'_>) -> f64 {
    let mut product = 1.0;
    // By position of the column: the bounds of it.
    let mut ranges: Vec<(usize, Range)> = Vec::new();
    for conjunct in conjuncts {
        let Some(bound) = Bound::of(conjunct, columns) else {
            product *= selectivity(conjunct, columns);
            continue;
        };
        match ranges.iter_mut().find(|(index, _)| *index == bound.index) {
            Some((_, range)) => range.narrow(&bound),
            None => {
                let mut range = Range::default();
                range.narrow(&bound);
                ranges.push((bound.index, range));
            }
        }
    }
    for (index, range) in ranges {
        product *= columns.origin(index).map_or(RANGE, |origin| range.share(origin));
    }
    product.clamp(0.0, 1.0)
}

/// The share of joined rows that satisfy all of some conditions, where what alternatives ask of either side by itself has kept
/// rows out of that side already: those are not counted twice. As in PostgreSQL's `extract_restriction_or_clauses`.
pub fn of_joined<'e>(
    conjuncts: impl IntoIterator<Item = &'e Expr> + Clone,
    columns: Columns<'_>,
    sides: &[&dyn Fn(&Expr) -> bool],
) -> f64 {
    let mut tested = 1.0;
    for conjunct in conjuncts.clone() {
        for is_of in sides {
            tested *= pushdown::asked_of(conjunct, is_of).map_or(1.0, |asked| selectivity(&asked, columns));
        }
    }
    let all = of_all(conjuncts, columns);
    if tested > 0.0 { (all / tested).min(1.0) } else { all }
}

fn share(expr: &Expr, columns: Columns<'_>) -> f64 {
    match expr {
        Expr::And(parts) => of_all(parts, columns),
        Expr::Or(parts) => 1.0 - parts.iter().map(|part| 1.0 - selectivity(part, columns)).product::<f64>(),
        Expr::Not(inner) => 1.0 - selectivity(inner, columns) - unknown(inner, columns),
        Expr::Const(Datum::Bool(true), _) => 1.0,
        Expr::Const(..) => 0.0,
        Expr::Column(..) => match columns.origin_of(expr) {
            Some(origin) => equality(origin, Some(&Datum::Bool(true))),
            None => 0.5,
        },
        Expr::IsNull(inner, negated) => {
            let nulls = match columns.origin_of(inner) {
                Some(origin) => origin.null_fraction(),
                None => tried(expr, columns).unwrap_or(EQUALITY),
            };
            if *negated { 1.0 - nulls } else { nulls }
        }
        Expr::InList(value, list, negated) => {
            let share = alternatives(value, list, columns).unwrap_or_else(|| match tried(expr, columns) {
                Some(share) if *negated => 1.0 - share,
                Some(share) => share,
                None => (EQUALITY * list.len() as f64).min(0.5),
            });
            if *negated { 1.0 - share - unknown(value, columns) } else { share }
        }
        Expr::AnyArray { expr: value, function, array, any: true } if function.name == "=" => {
            let one = columns.origin_of(value).map_or(EQUALITY, |origin| equality(origin, None));
            match array.as_ref() {
                Expr::Const(Datum::Array(array), _) => {
                    let values: Vec<Expr> =
                        array.values.iter().map(|value| Expr::Const(value.clone(), array.element)).collect();
                    alternatives(value, &values, columns).unwrap_or(one * values.len() as f64)
                }
                _ => one * UNKNOWN_ALTERNATIVES,
            }
        }
        Expr::Call { function, args, .. } if args.len() == 2 => call(expr, function.name, args, columns),
        _ => tried(expr, columns).unwrap_or(OTHER),
    }
}

fn call(expr: &Expr, operator: &str, args: &[Expr], columns: Columns<'_>) -> f64 {
    let [left, right] = args else { return OTHER };
    match operator {
        "=" | "<>" => {
            let equal = match (columns.origin_of(left), columns.origin_of(right)) {
                (Some(left), Some(right)) => 1.0 / left.distinct().max(right.distinct()),
                (Some(origin), None) if right.is_column_free() => equality(origin, constant(right)),
                (None, Some(origin)) if left.is_column_free() => equality(origin, constant(left)),
                _ => match tried(expr, columns) {
                    Some(share) if operator == "<>" => 1.0 - share,
                    Some(share) => share,
                    None => EQUALITY,
                },
            };
            if operator == "=" { equal } else { 1.0 - equal - unknown(expr, columns) }
        }
        "<" | "<=" | ">" | ">=" => match Bound::of(expr, columns) {
            Some(bound) => {
                let mut range = Range::default();
                range.narrow(&bound);
                columns.origin(bound.index).map_or(RANGE, |origin| range.share(origin))
            }
            None => tried(expr, columns).unwrap_or(RANGE),
        },
        "~~" => match prefix_share(left, right, columns) {
            // Where values lie between two bounds of a histogram is a guess; bounds that match are none.
            Some(share) => share.max(matching_bounds(expr, columns)),
            None => tried(expr, columns).unwrap_or(PATTERN),
        },
        "~~*" | "~" | "~*" => tried(expr, columns).unwrap_or(PATTERN),
        "!~~" | "!~~*" | "!~" | "!~*" => tried(expr, columns).unwrap_or(1.0 - PATTERN),
        "@>" | "<@" | "&&" | "?" | "?|" | "?&" | "@?" | "@@" => tried(expr, columns).unwrap_or(CONTAINS),
        _ => tried(expr, columns).unwrap_or(OTHER),
    }
}

/// The share of rows for which a condition is NULL, because a column that it depends on is.
fn unknown(expr: &Expr, columns: Columns<'_>) -> f64 {
    let mut nulls = 0.0;
    expr.columns(&mut |index| {
        let origin = columns.origin(index);
        nulls = origin.map_or(0.0, |origin| origin.null_fraction()).max(nulls);
    });
    nulls
}

fn constant(expr: &Expr) -> Option<&Datum> {
    match expr {
        Expr::Const(value, _) => Some(value),
        _ => None,
    }
}

/// The share of a table's rows that have a value in a column; `None` for a value that is not known yet.
pub fn equality(origin: Origin<'_>, value: Option<&Datum>) -> f64 {
    if value.is_some_and(Datum::is_null) {
        return 0.0;
    }
    let average = (1.0 - origin.null_fraction()) / origin.distinct();
    let Some(statistics) = origin.statistics() else { return average };
    let (Some(column), Some(value)) = (origin.column(&statistics), value) else { return average };
    let value = as_kept(value, column.ty);
    if let Some((_, share)) = column.most_common.iter().find(|(common, _)| compare::equal(common, &value)) {
        return *share;
    }
    let others = (origin.distinct() - column.most_common.len() as f64).max(1.0);
    let share = column.rest_share() / others;
    // It is less common than the least of the most common ones, and if those were all, there may yet be a row.
    let least = column.most_common.last().map_or(1.0, |(_, share)| *share);
    share.min(least).max(0.1 / statistics.rows.max(1.0))
}

/// A value as the statistics of a column keep it: char(n) without padding.
fn as_kept(value: &Datum, ty: Type) -> Datum {
    match value {
        Datum::Text(text) if ty == Type::BPCHAR => Datum::text(text.trim_end_matches(' ')),
        other => other.clone(),
    }
}

/// The share of rows that have one of several values in a column.
fn alternatives(value: &Expr, list: &[Expr], columns: Columns<'_>) -> Option<f64> {
    let origin = columns.origin_of(value)?;
    let known = list.len() <= MOST_ALTERNATIVES;
    if !known {
        return Some((equality(origin, None) * list.len() as f64).min(1.0));
    }
    Some(list.iter().map(|item| equality(origin, constant(item))).sum::<f64>().min(1.0))
}

/// A comparison of a column with something that is the same for all rows.
struct Bound {
    /// Position of the column.
    index: usize,
    /// Whether the column lies above.
    above: bool,
    end: End,
}

/// An end of a range: the value, if it is known, and whether it belongs to the range.
struct End {
    value: Option<Datum>,
    inclusive: bool,
}

impl Bound {
    fn of(expr: &Expr, columns: Columns<'_>) -> Option<Bound> {
        let Expr::Call { function, args, .. } = expr else { return None };
        let [left, right] = &args[..] else { return None };
        let (above, inclusive) = match function.name {
            "<" => (false, false),
            "<=" => (false, true),
            ">" => (true, false),
            ">=" => (true, true),
            _ => return None,
        };
        let (column, value, above) = match (columns.origin_of(left), columns.origin_of(right)) {
            (Some(_), None) if right.is_column_free() => (left, right, above),
            (None, Some(_)) if left.is_column_free() => (right, left, !above),
            _ => return None,
        };
        let ty = columns.origin_of(column)?.ty()?;
        let value = constant(value).and_then(|value| converted(value, constant_type(args)?, ty));
        Some(Bound { index: position(column)?, above, end: End { value, inclusive } })
    }
}

fn position(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(index, _) => Some(*index),
        Expr::Cast { expr, .. } => position(expr),
        _ => None,
    }
}

fn constant_type(args: &[Expr]) -> Option<Type> {
    args.iter().find_map(|arg| match arg {
        Expr::Const(_, ty) => Some(*ty),
        _ => None,
    })
}

/// A constant in the type of the column it is compared with, rounded if need be.
fn converted(value: &Datum, from: Type, to: Type) -> Option<Datum> {
    let value = if from == to {
        value.clone()
    } else {
        cast(value, from, to.into(), true, &EvalContext::plain()).ok()?
    };
    Some(as_kept(&value, to)).filter(|value| !value.is_null())
}

/// What lies between two ends, as far as they are given.
#[derive(Default)]
struct Range {
    low: Option<End>,
    high: Option<End>,
}

impl Range {
    /// Of two bounds at one end a known one counts.
    fn narrow(&mut self, bound: &Bound) {
        let end = End { value: bound.end.value.clone(), inclusive: bound.end.inclusive };
        let place = if bound.above { &mut self.low } else { &mut self.high };
        if place.as_ref().is_none_or(|end| end.value.is_none()) {
            *place = Some(end);
        }
    }

    /// The share of a table's rows whose value in a column lies in the range.
    fn share(&self, origin: Origin<'_>) -> f64 {
        let present = 1.0 - origin.null_fraction();
        let statistics = origin.statistics();
        let column = statistics.as_ref().and_then(|statistics| origin.column(statistics));
        let below = |end: &End, inclusive: bool| column?.below(end.value.as_ref()?, inclusive);
        let low = self.low.as_ref().map(|end| below(end, !end.inclusive));
        let high = self.high.as_ref().map(|end| below(end, end.inclusive));
        let share = match (low, high) {
            (None, None) => present,
            (Some(Some(low)), Some(Some(high))) => high - low,
            (Some(Some(low)), None) => present - low,
            (None, Some(Some(high))) => high,
            (Some(None), Some(None)) => present * BETWEEN,
            (Some(Some(low)), Some(None)) => (present - low) * RANGE,
            (Some(None), Some(Some(high))) => high * RANGE,
            (Some(None), None) | (None, Some(None)) => present * RANGE,
        };
        share.max(0.1 / super::estimate::table_rows(origin.table))
    }
}

/// The share of rows that match a pattern that only fixes how a text begins, or all of it.
fn prefix_share(value: &Expr, pattern: &Expr, columns: Columns<'_>) -> Option<f64> {
    let origin = columns.origin_of(value)?;
    let Datum::Text(pattern) = constant(pattern)? else { return None };
    let fixed = pattern.find(['%', '_', '\\']).unwrap_or(pattern.len());
    let (prefix, wild) = pattern.split_at(fixed);
    if wild.is_empty() {
        return Some(equality(origin, Some(&Datum::Text(pattern.clone()))));
    }
    origin.column(&*origin.statistics()?)?;
    if wild != "%" || prefix.is_empty() {
        return None;
    }
    let end = |text: String, inclusive| Some(End { value: Some(Datum::text(text)), inclusive });
    let high = super::access::next_prefix(prefix).and_then(|next| end(next, false));
    Some(Range { low: end(prefix.to_string(), true), high }.share(origin))
}

/// The share of rows that lie around bounds of a histogram which satisfy a condition over one column.
fn matching_bounds(expr: &Expr, columns: Columns<'_>) -> f64 {
    let share = || {
        let mut tried = Tried::of(expr, columns)?;
        let statistics = tried.origin.statistics()?;
        let column = tried.origin.column(&statistics)?;
        // The bounds at both ends stand for half as many values.
        let inner = column.histogram.get(1..column.histogram.len().checked_sub(1)?)?;
        let matching = inner.iter().filter(|value| tried.holds(value)).count() as f64;
        Some(column.rest_share() * matching / (inner.len() + 1) as f64)
    };
    share().unwrap_or(0.0)
}

/// Tries a condition over one column on the values that the statistics have of it.
fn tried(expr: &Expr, columns: Columns<'_>) -> Option<f64> {
    let mut tried = Tried::of(expr, columns)?;
    let statistics = tried.origin.statistics()?;
    let column = tried.origin.column(&statistics)?;
    let rest = column.rest_share();
    if column.histogram.is_empty() && rest > UNSEEN {
        return None;
    }
    let mut share = if tried.holds(&Datum::Null) { column.null_fraction } else { 0.0 };
    for (value, common) in &column.most_common {
        if tried.holds(value) {
            share += common;
        }
    }
    if !column.histogram.is_empty() {
        let bounds = column.histogram.len() as f64;
        let matching = column.histogram.iter().filter(|value| tried.holds(value)).count() as f64;
        // That none of the bounds does not mean that no value does.
        share += rest * matching.max(0.5) / bounds;
    }
    Some(share)
}

/// An expression of one column and of nothing else.
pub struct Tried<'a> {
    expr: &'a Expr,
    index: usize,
    /// The column.
    pub origin: Origin<'a>,
    context: EvalContext<'static>,
    row: Row,
}

impl<'a> Tried<'a> {
    /// An expression if it depends on one column whose origin is known, and on nothing else.
    pub fn of(expr: &'a Expr, columns: Columns<'a>) -> Option<Self> {
        let mut index = None;
        let mut one = true;
        expr.columns(&mut |column| one &= *index.get_or_insert(column) == column);
        let index = index.filter(|_| one)?;
        let variable = |part: &Expr| matches!(part, Expr::Param(..) | Expr::Outer { .. } | Expr::Domain(..));
        if expr.volatility() != Volatility::Immutable || expr.any(&mut |part| variable(part)) {
            return None;
        }
        let origin = columns.origin(index)?;
        Some(Tried { expr, index, origin, context: EvalContext::plain(), row: vec![Datum::Null; index + 1] })
    }

    fn with<T>(&mut self, value: &Datum, get: impl FnOnce(&Expr, &Row, &EvalEnv<'_>) -> T) -> T {
        if let Some(place) = self.row.get_mut(self.index) {
            *place = value.clone();
        }
        get(self.expr, &self.row, &EvalEnv { eval: &self.context, params: &[], outer: None })
    }

    /// Whether the condition is true for a value of the column.
    fn holds(&mut self, value: &Datum) -> bool {
        self.with(value, |expr, row, env| eval_bool(expr, row, env).is_ok_and(|truth| truth == Some(true)))
    }

    /// What the expression is for a value of the column; `None` if it fails.
    pub fn value(&mut self, value: &Datum) -> Option<Datum> {
        self.with(value, |expr, row, env| eval(expr, row, env).ok())
    }
}

/// The share of a table's rows whose value in a column lies between two ends: values in the column's type, and whether
/// they belong to the range.
pub fn between(origin: Origin<'_>, low: Option<(Expr, bool)>, high: Option<(Expr, bool)>) -> f64 {
    let end = |(value, inclusive): (Expr, bool)| {
        let known = constant(&value).zip(origin.ty());
        End { value: known.and_then(|(known, ty)| converted(known, value.ty(), ty)), inclusive }
    };
    Range { low: low.map(end), high: high.map(end) }.share(origin)
}
