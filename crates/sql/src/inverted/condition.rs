//! What conditions ask of the tokens of a row.

use super::OperatorClass;
use super::tokens::{Token, element, is_key, key, tokens};
use crate::plan::Expr;
use sql_types::{Datum, SqlResult, Type};

/// Tokens that are looked for together at most; a row is asked for the others once it is there.
pub const MOST_CLAUSES: usize = 16;
/// Tokens of one clause at most. A condition with more alternatives is left to the filter.
pub const MOST_ALTERNATIVES: usize = 256;

/// What a condition says of the indexed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// `column @> value`
    Contains,
    /// `column && value`
    Overlaps,
    /// `column = value`
    Equals,
    /// `value = ANY (column)`
    HasElement,
    /// `column ? value`
    HasKey,
    /// `column ?| value`
    HasAnyKey,
    /// `column ?& value`
    HasAllKeys,
}

impl Strategy {
    /// The strategy of an operator with a column of the class on its left.
    pub fn of(class: OperatorClass, operator: &str) -> Option<Self> {
        use OperatorClass::{ArrayOps, JsonbOps};
        Some(match (class, operator) {
            (_, "@>") => Strategy::Contains,
            (ArrayOps, "&&") => Strategy::Overlaps,
            (ArrayOps, "=") => Strategy::Equals,
            (JsonbOps, "?") => Strategy::HasKey,
            (JsonbOps, "?|") => Strategy::HasAnyKey,
            (JsonbOps, "?&") => Strategy::HasAllKeys,
            _ => return None,
        })
    }

    /// The condition as SQL text.
    pub fn text(self, column: &str, value: &str) -> String {
        let operator = match self {
            Strategy::HasElement => return format!("({value} = ANY ({column}))"),
            Strategy::Contains => "@>",
            Strategy::Overlaps => "&&",
            Strategy::Equals => "=",
            Strategy::HasKey => "?",
            Strategy::HasAnyKey => "?|",
            Strategy::HasAllKeys => "?&",
        };
        format!("({column} {operator} {value})")
    }
}

/// A condition on the value of an inverted index.
#[derive(Clone, Debug)]
pub struct InvertedCondition {
    /// What it says.
    pub strategy: Strategy,
    /// The value it compares with; evaluated once per execution, may refer to parameters and outer rows only.
    pub value: Expr,
}

/// What rows must have to satisfy a condition, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No row does.
    Nothing,
    /// Any row may: its tokens say nothing.
    Anything,
    /// Of each of these, one token. There is at least one clause, none is empty.
    Clauses(Vec<Vec<Token>>),
}

/// What rows with all of some tokens have.
fn all(tokens: Vec<Token>) -> Wanted {
    if tokens.is_empty() {
        return Wanted::Anything;
    }
    Wanted::Clauses(tokens.into_iter().map(|token| vec![token]).collect())
}

/// What rows with any of some tokens have.
fn any(mut tokens: Vec<Token>) -> Wanted {
    tokens.sort_unstable();
    tokens.dedup();
    match tokens.len() {
        0 => Wanted::Nothing,
        1..=MOST_ALTERNATIVES => Wanted::Clauses(vec![tokens]),
        _ => Wanted::Anything,
    }
}

/// What rows must have to satisfy a condition with this value.
///
/// # Errors
/// XX000 for a value of another type than the class is for.
pub fn wanted(class: OperatorClass, strategy: Strategy, value: &Datum) -> SqlResult<Wanted> {
    if value.is_null() {
        return Ok(Wanted::Nothing);
    }
    let keys = || match value {
        Datum::Array(array) => array.values.iter().filter_map(text).map(key).collect(),
        other => text(other).map(key).into_iter().collect::<Vec<Token>>(),
    };
    Ok(match strategy {
        // NULL is in no array.
        Strategy::Contains if has_null(value) => Wanted::Nothing,
        Strategy::Contains | Strategy::Equals => all(tokens(class, value)?),
        Strategy::Overlaps => any(tokens(class, value)?),
        Strategy::HasElement => all(vec![element(value)?]),
        Strategy::HasKey | Strategy::HasAllKeys => all(keys()),
        Strategy::HasAnyKey => any(keys()),
    })
}

fn text(value: &Datum) -> Option<&str> {
    match value {
        Datum::Text(text) => Some(text),
        _ => None,
    }
}

fn has_null(value: &Datum) -> bool {
    matches!(value, Datum::Array(array) if array.values.iter().any(Datum::is_null))
}

/// What rows must have to satisfy all of some conditions. Clauses of which little is expected are left out if there are
/// many; those that are likely to be rare come first.
pub fn together(conditions: impl IntoIterator<Item = Wanted>) -> Wanted {
    let mut clauses: Vec<Vec<Token>> = Vec::new();
    for wanted in conditions {
        match wanted {
            Wanted::Nothing => return Wanted::Nothing,
            Wanted::Anything => {}
            Wanted::Clauses(more) => clauses.extend(more),
        }
    }
    if clauses.is_empty() {
        return Wanted::Anything;
    }
    clauses.sort_by_key(|clause| (clause.len(), clause.iter().any(|token| is_key(token))));
    clauses.dedup();
    clauses.truncate(MOST_CLAUSES);
    Wanted::Clauses(clauses)
}

/// Whether the class of an index over a type can look for values of another.
pub fn comparable(class: OperatorClass, strategy: Strategy, column: Type, value: Type) -> bool {
    let text = |ty: Type| matches!(ty, Type::TEXT | Type::VARCHAR);
    let same = |a: Type, b: Type| a == b || text(a) && text(b);
    match (class, strategy) {
        (OperatorClass::ArrayOps, Strategy::HasElement) => {
            // char(n) is compared without the blanks at its end.
            column.element().is_some_and(|element| same(element, value) && element != Type::BPCHAR)
        }
        (OperatorClass::ArrayOps, _) => match (column.element(), value.element()) {
            (Some(column), Some(value)) => same(column, value),
            _ => false,
        },
        (_, Strategy::HasKey) => text(value),
        (_, Strategy::HasAnyKey | Strategy::HasAllKeys) => value.element().is_some_and(text),
        _ => value == Type::JSONB,
    }
}
