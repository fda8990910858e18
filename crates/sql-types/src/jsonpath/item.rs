//! Items, and why an evaluation ends early.

use super::methods::Moment;
use crate::error::{SqlError, SqlState};
use crate::json;
use crate::numeric::Numeric;
use serde_json::Value;

/// An item of a sequence.
#[derive(Clone)]
pub(super) enum Item<'v> {
    Ref(&'v Value),
    Own(Value),
    /// A date or time, which JSON has not.
    Moment(Moment),
}

impl Item<'_> {
    /// As a JSON value; `None` for a date or time.
    pub(super) fn json(&self) -> Option<&Value> {
        match self {
            Item::Ref(value) => Some(value),
            Item::Own(value) => Some(value),
            Item::Moment(_) => None,
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Item::Ref(value) => value.clone(),
            Item::Own(value) => value,
            Item::Moment(moment) => Value::String(moment.text()),
        }
    }

    pub(super) fn number(&self) -> Option<Numeric> {
        self.json().and_then(json::as_numeric)
    }
}

/// Why an evaluation ended early.
pub(super) enum Fail {
    /// What `silent` and predicates hide.
    Soft(SqlError),
    /// What is an error in any case.
    Hard(SqlError),
}

impl Fail {
    pub(super) fn into_error(self) -> SqlError {
        match self {
            Fail::Soft(error) | Fail::Hard(error) => error,
        }
    }
}

/// An error that `silent` hides.
pub(super) fn soft(code: &'static str, message: impl Into<String>) -> Fail {
    Fail::Soft(SqlError::new(SqlState(code), message.into()))
}

/// An error of arithmetic.
pub(super) fn softly(error: SqlError) -> Fail {
    Fail::Soft(error)
}

/// The result of a part of an expression.
pub(super) type Eval<T> = Result<T, Fail>;

/// The elements of an array.
pub(super) fn elements<'v>(item: &Item<'v>) -> Option<Vec<Item<'v>>> {
    match item {
        Item::Ref(Value::Array(values)) => Some(values.iter().map(Item::Ref).collect()),
        Item::Own(Value::Array(values)) => Some(values.iter().cloned().map(Item::Own).collect()),
        _ => None,
    }
}

/// The values of an object.
pub(super) fn members<'v>(item: &Item<'v>) -> Option<Vec<Item<'v>>> {
    match item {
        Item::Ref(Value::Object(map)) => Some(map.values().map(Item::Ref).collect()),
        Item::Own(Value::Object(map)) => Some(map.values().cloned().map(Item::Own).collect()),
        _ => None,
    }
}

pub(super) fn member<'v>(item: &Item<'v>, key: &str) -> Option<Item<'v>> {
    match item {
        Item::Ref(value) => value.get(key).map(Item::Ref),
        Item::Own(value) => value.get(key).cloned().map(Item::Own),
        Item::Moment(_) => None,
    }
}
