//! The tests of predicates.

use super::Comparison;
use super::item::Item;
use super::parse::regex_flags;
use crate::functions::compile_regex;
use crate::json;
use serde_json::Value;
use std::cmp::Ordering;

/// What a predicate comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub(super) fn of(value: bool) -> Truth {
        if value { Truth::True } else { Truth::False }
    }
}

fn holds(operator: Comparison, order: Ordering) -> Truth {
    Truth::of(match operator {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    })
}

/// Compares two items. Null differs from everything else, other types cannot be compared with each other, and arrays and
/// objects with nothing.
pub(super) fn compare(operator: Comparison, left: &Item<'_>, right: &Item<'_>) -> Truth {
    if let (Item::Moment(left), Item::Moment(right)) = (left, right) {
        return left.compare(right).map_or(Truth::Unknown, |order| holds(operator, order));
    }
    match (left.json(), right.json()) {
        (Some(Value::Null), Some(Value::Null)) => holds(operator, Ordering::Equal),
        (Some(Value::Null), _) | (_, Some(Value::Null)) => Truth::of(operator == Comparison::NotEqual),
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => holds(operator, left.cmp(right)),
        (Some(Value::String(left)), Some(Value::String(right))) => {
            holds(operator, left.as_bytes().cmp(right.as_bytes()))
        }
        (Some(left @ Value::Number(_)), Some(right @ Value::Number(_))) => {
            holds(operator, json::compare(left, right))
        }
        _ => Truth::Unknown,
    }
}

pub(super) fn starts_with(value: &Item<'_>, start: &Item<'_>) -> Truth {
    match (value.json(), start.json()) {
        (Some(Value::String(value)), Some(Value::String(start))) => {
            Truth::of(value.starts_with(start.as_str()))
        }
        _ => Truth::Unknown,
    }
}

pub(super) fn like_regex(value: &Item<'_>, pattern: &str, flags: &str) -> Truth {
    let Some(Value::String(text)) = value.json() else { return Truth::Unknown };
    compile_regex(pattern, &regex_flags(flags))
        .map_or(Truth::Unknown, |regex| Truth::of(regex.is_match(text)))
}
