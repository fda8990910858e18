//! Which conditions an inverted index ([`crate::inverted`]) helps with, and what reading it costs.
//!
//! The conditions stay in the filter: tokens only narrow down which rows may satisfy them. How common a token is, nothing
//! tells; a scan is taken to read, for each token it looks for, as many entries as there are rows that satisfy the
//! conditions, and some more.

use super::access::{Choice, Key, Offered, Wanted as Order, indexed_share, is_key_value};
use super::cost;
use super::estimate::{operations, row_bytes, table_rows};
use super::origin::Columns;
use super::selectivity::of_all;
use crate::inverted::condition::{Wanted, comparable, wanted};
use crate::inverted::{InvertedCondition, OperatorClass, Strategy};
use crate::plan::{Expr, IndexAccess};
use sql_types::Type;

/// Entries of a token for each row that satisfies the condition.
const SURPLUS: f64 = 1.5;
/// Tokens of a condition whose value is not known yet.
const UNKNOWN_TOKENS: f64 = 2.0;

/// What an inverted index offers; `None` if no condition asks for a token.
pub(super) fn offer(
    offered: &Offered<'_>,
    class: OperatorClass,
    rows: f64,
    order: Option<&Order>,
) -> Option<Choice> {
    let Offered { table, index, keys, columns, conjuncts } = *offered;
    let key = keys.columns.first()?;
    let mut tokens = 0.0;
    let mut found: Vec<InvertedCondition> = Vec::new();
    let mut used: Vec<&Expr> = Vec::new();
    for conjunct in conjuncts {
        let Some(condition) = condition(class, key, conjunct) else { continue };
        let Some(asked) = asked_for(class, &condition) else { continue };
        tokens += asked;
        found.push(condition);
        used.push(conjunct);
    }
    if found.is_empty() {
        return None;
    }
    let share = of_all(used, Columns::Table(table, columns));
    let candidates = (table_rows(table) * indexed_share(table, index) * share * SURPLUS).max(rows);
    let filter = conjuncts.iter().map(operations).sum::<f64>();
    let mut cost = reading(tokens, candidates, row_bytes(table), filter);
    if let Some(order) = order {
        cost += cost::sort(rows, order.limit.unwrap_or(rows));
    }
    let access = IndexAccess { inverted: found, ..IndexAccess::default() };
    let rest = conjuncts.to_vec();
    Some(Choice { index: index.id, access, rest, rows, entries: candidates, cost, ordered: None })
}

/// What it costs to read the entries of so many tokens, fetch the rows that may do, and look at them.
fn reading(tokens: f64, candidates: f64, row_bytes: f64, filter: f64) -> f64 {
    const ENTRY_BYTES: f64 = 40.0;
    // The entries come with the first request and perhaps another. Left rows of a join are looked up one by one.
    let entries = cost::REQUEST + tokens * cost::SPAN + cost::scan(tokens * candidates, ENTRY_BYTES);
    entries + cost::fetch(candidates, row_bytes) + candidates * (cost::ROW + filter)
}

/// How many tokens a condition asks for; `None` if it says nothing about them.
fn asked_for(class: OperatorClass, condition: &InvertedCondition) -> Option<f64> {
    let Expr::Const(value, _) = &condition.value else { return Some(UNKNOWN_TOKENS) };
    match wanted(class, condition.strategy, value).ok()? {
        Wanted::Anything => None,
        Wanted::Nothing => Some(0.0),
        Wanted::Clauses(clauses) => Some(clauses.iter().map(Vec::len).sum::<usize>() as f64),
    }
}

/// The condition on an indexed column or expression that a conjunct is.
fn condition(class: OperatorClass, key: &Key, conjunct: &Expr) -> Option<InvertedCondition> {
    let (strategy, value, column) = match conjunct {
        Expr::Call { function, args, .. } => {
            let [left, right] = &args[..] else { return None };
            let (operator, column, value) = match (is_key_value(left), is_key_value(right)) {
                (false, true) => (function.name, left, right),
                (true, false) => (flipped(function.name)?, right, left),
                _ => return None,
            };
            (Strategy::of(class, operator)?, value, column)
        }
        Expr::AnyArray { expr, function, array, any: true }
            if function.name == "=" && class == OperatorClass::ArrayOps && is_key_value(expr) =>
        {
            (Strategy::HasElement, &**expr, &**array)
        }
        _ => return None,
    };
    let own = key.ty()?;
    // A cast between kinds of text leaves the elements as they are.
    let text = |ty: Type| matches!(ty.element(), Some(Type::TEXT | Type::VARCHAR));
    let seen = match key.is(column)? {
        None => own,
        Some(to) if text(own) && text(to) => to,
        Some(_) => return None,
    };
    let fits = comparable(class, strategy, seen, value.ty());
    fits.then(|| InvertedCondition { strategy, value: value.clone() })
}

/// The operator with its sides exchanged, where it is one of ours then.
fn flipped(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "<@" => "@>",
        "&&" => "&&",
        "=" => "=",
        _ => return None,
    })
}
