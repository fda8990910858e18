//! How many rows joins, groups and distinct values are.
//!
//! Columns are taken to be independent unless a unique key or the statistics of several columns
//! ([`crate::statistics::TableStatistics::group`]) say otherwise, and the values of the side of an equality that has
//! fewer of them to be among those of the other side.

use super::estimate::table_rows;
use super::origin::{Columns, Origin, UNKNOWN_DISTINCT};
use super::selectivity::Tried;
use crate::catalog::descriptor::ColumnId;
use crate::plan::{Expr, Plan};
use sql_types::{Datum, compare};
use std::sync::Arc;

/// Conditions beside equalities tell some rows from others, however many pairs of rows satisfy them: a row may be its only
/// partner, and be asked for another one.
const MOST_SATISFIED: f64 = 0.9;

/// How many distinct combinations of values some expressions have in `rows` rows.
pub fn distinct<'e>(exprs: impl IntoIterator<Item = &'e Expr>, columns: Columns<'_>, rows: f64) -> f64 {
    let mut product = 1.0;
    let mut plain: Vec<Origin<'_>> = Vec::new();
    for expr in exprs {
        match (expr, columns.origin_of(expr)) {
            (_, Some(origin)) => plain.push(origin),
            (Expr::Const(..) | Expr::Param(..) | Expr::Outer { .. }, _) => {}
            _ => product *= computed(expr, columns).unwrap_or(UNKNOWN_DISTINCT),
        }
    }
    while let Some(first) = plain.first().copied() {
        let (own, others): (Vec<_>, Vec<_>) =
            plain.into_iter().partition(|origin| Arc::ptr_eq(origin.table, first.table));
        plain = others;
        let all = table_rows(first.table);
        product *= among(combinations(&own).distinct, all, rows);
    }
    product.clamp(1.0, rows.max(1.0))
}

/// How many of `distinct` values, spread evenly over `all` rows, are in some of the rows.
fn among(distinct: f64, all: f64, rows: f64) -> f64 {
    if rows >= all {
        return distinct;
    }
    let each = all / distinct.max(1.0);
    distinct * (1.0 - (1.0 - rows / all).powf(each))
}

/// How many values an expression of one column has, if they are few: those it has for the values that the statistics
/// have of the column.
fn computed(expr: &Expr, columns: Columns<'_>) -> Option<f64> {
    let mut tried = Tried::of(expr, columns)?;
    let statistics = tried.origin.statistics()?;
    let column = tried.origin.column(&statistics)?;
    let known = column.most_common.iter().map(|(value, _)| value).chain(&column.histogram);
    let mut values: Vec<Datum> = known.filter_map(|value| tried.value(value)).collect();
    let tries = values.len();
    values.sort_by(compare::compare);
    values.dedup_by(|a, b| compare::equal(a, b));
    let few = values.len() * 2 <= tries || tries as f64 >= column.distinct;
    Some(if few { values.len() as f64 } else { column.distinct }).filter(|distinct| *distinct >= 1.0)
}

/// How many combinations of values some columns of one table have.
struct Combinations {
    distinct: f64,
    /// Whether that is known and not a guess.
    known: bool,
}

fn combinations(columns: &[Origin<'_>]) -> Combinations {
    let Some(first) = columns.first() else { return Combinations { distinct: 1.0, known: true } };
    let rows = table_rows(first.table);
    let mut ids: Vec<ColumnId> = columns.iter().map(|origin| origin.column).collect();
    ids.sort_unstable();
    ids.dedup();
    if let [_] = ids[..] {
        return Combinations { distinct: first.distinct(), known: true };
    }
    let has_key = first
        .table
        .indexes
        .iter()
        .any(|index| index.is_key() && index.columns.iter().all(|(id, _)| ids.contains(id)));
    if has_key {
        return Combinations { distinct: rows, known: true };
    }
    if let Some(distinct) = first.statistics().and_then(|statistics| statistics.group(&ids)) {
        return Combinations { distinct: distinct.max(1.0), known: true };
    }
    let product: f64 = ids.iter().map(|id| Origin { column: *id, ..*first }.distinct()).product();
    Combinations { distinct: product.min(rows), known: false }
}

/// The share of the pairs of rows of two plans that are equal in all of some pairs of expressions, each over the row
/// of its own side.
pub fn equal_share(keys: &[(Expr, Expr)], left: &Plan, right: &Plan) -> f64 {
    let mut product = 1.0;
    let mut plain: Vec<(Origin<'_>, Origin<'_>)> = Vec::new();
    for (on_left, on_right) in keys {
        let (of_left, of_right) = (Columns::Plan(left), Columns::Plan(right));
        match (of_left.origin_of(on_left), of_right.origin_of(on_right)) {
            (Some(left), Some(right)) => plain.push((left, right)),
            (Some(known), None) | (None, Some(known)) => product /= known.distinct(),
            (None, None) => product /= left.rows.max(right.rows).clamp(1.0, UNKNOWN_DISTINCT),
        }
    }
    // Between two tables with the most pairs first: what else equals one of their columns follows from those as a rule, for
    // where a column equals two of the other side these are equal already.
    let mut groups: Vec<Vec<(Origin<'_>, Origin<'_>)>> = Vec::new();
    for pair in plain {
        let same = |(a, b): &(Origin<'_>, Origin<'_>)| {
            Arc::ptr_eq(a.table, pair.0.table) && Arc::ptr_eq(b.table, pair.1.table)
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(same)) {
            Some(group) => group.push(pair),
            None => groups.push(vec![pair]),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let (mut lefts, mut rights): (Vec<Origin<'_>>, Vec<Origin<'_>>) = (Vec::new(), Vec::new());
    let is_in = |known: &[Origin<'_>], one: &Origin<'_>| {
        known.iter().any(|known| Arc::ptr_eq(known.table, one.table) && known.column == one.column)
    };
    for mut group in groups {
        group.retain(|(left, right)| !is_in(&lefts, left) && !is_in(&rights, right));
        product *= equal_columns(&group);
        lefts.extend(group.iter().map(|pair| pair.0));
        rights.extend(group.iter().map(|pair| pair.1));
    }
    product.clamp(0.0, 1.0)
}

/// The same for columns of one table on either side.
fn equal_columns(pairs: &[(Origin<'_>, Origin<'_>)]) -> f64 {
    let (left, right): (Vec<Origin<'_>>, Vec<Origin<'_>>) = pairs.iter().copied().unzip();
    let present: f64 = left.iter().chain(&right).map(|origin| 1.0 - origin.null_fraction()).product();
    let (left, right) = (combinations(&left), combinations(&right));
    let distinct = match (left.known, right.known) {
        (true, false) => left.distinct,
        (false, true) => right.distinct,
        _ => left.distinct.max(right.distinct),
    };
    present / distinct.max(1.0)
}

/// The share of rows with so many partners each of which one at least satisfies further conditions that keep a share of the
/// pairs.
pub fn some_satisfies(share: f64, partners: f64) -> f64 {
    if share >= 1.0 { 1.0 } else { (1.0 - (1.0 - share).powf(partners.max(1.0))).min(MOST_SATISFIED) }
}

/// The share of the rows of `left` that are equal to some row of `right`.
pub fn matched_share(keys: &[(Expr, Expr)], left: &Plan, right: &Plan) -> f64 {
    let there = distinct(keys.iter().map(|(_, key)| key), Columns::Plan(right), right.rows);
    let here = distinct(keys.iter().map(|(key, _)| key), Columns::Plan(left), f64::MAX);
    (there / here.max(1.0)).min(1.0)
}
