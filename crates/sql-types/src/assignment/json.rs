//! `jsonb[path] = value`.

use crate::{SqlError, SqlResult, SqlState};
use serde_json::{Map, Value};

/// Most nulls that an assignment behind the end of an array puts between.
pub const MAX_GAP: usize = 1 << 20;

/// One subscript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An integer.
    Index(i32),
    /// Text, which in an array must be an integer.
    Key(String),
}

impl Step {
    fn text(&self) -> String {
        match self {
            Step::Index(index) => index.to_string(),
            Step::Key(key) => key.clone(),
        }
    }

    /// As a subscript of an array.
    fn index(&self) -> Option<i32> {
        match self {
            Step::Index(index) => Some(*index),
            Step::Key(key) => key.trim_start().parse().ok(),
        }
    }
}

/// A value with another one at a path, of which what is missing is created: objects, and arrays where the path has
/// integers, with nulls before the element. Without a value there was an array if the path begins with an integer, else an
/// object.
///
/// # Errors
/// 22023 where the path leads through a scalar or before the first element of an array, 22P02 for text as a subscript of
/// an array, 54000 where more than [`MAX_GAP`] nulls would be added.
pub fn json(old: Option<Value>, path: &[Step], new: Value) -> SqlResult<Value> {
    let mut value = old.unwrap_or_else(|| match path.first() {
        Some(Step::Index(_)) => Value::Array(Vec::new()),
        _ => Value::Object(Map::new()),
    });
    put(&mut value, path, 0, new)?;
    Ok(value)
}

fn put(value: &mut Value, path: &[Step], level: usize, new: Value) -> SqlResult<()> {
    let Some(step) = path.get(level) else {
        *value = new;
        return Ok(());
    };
    match value {
        Value::Object(map) => {
            let key = step.text();
            if let Some(inner) = map.get_mut(&key) {
                return put(inner, path, level + 1, new);
            }
            let made = chain(path, level + 1, new)?;
            let mut pairs: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
            pairs.push((key, made));
            *value = crate::json::object(pairs);
            Ok(())
        }
        Value::Array(values) => {
            let at = place(step, level, values.len())?;
            if let Some(inner) = values.get_mut(at) {
                return put(inner, path, level + 1, new);
            }
            let made = chain(path, level + 1, new)?;
            pad(values, at)?;
            values.push(made);
            Ok(())
        }
        _ => Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot replace existing key")
            .with_detail("The path assumes key is a composite object, but it is a scalar value.")),
    }
}

/// Where in an array of a length a subscript points; negative ones count from the end.
fn place(step: &Step, level: usize, length: usize) -> SqlResult<usize> {
    let index = step.index().ok_or_else(|| {
        SqlError::new(
            SqlState::INVALID_TEXT,
            format!("path element at position {} is not an integer: \"{}\"", level + 1, step.text()),
        )
    })?;
    let from_end = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    match usize::try_from(index) {
        Ok(index) => Ok(index),
        Err(_) if from_end <= length => Ok(length - from_end),
        Err(_) => Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("path element at position {} is out of range: {index}", level + 1),
        )),
    }
}

/// What a path makes where there is nothing: arrays for integers, objects for other keys.
fn chain(path: &[Step], level: usize, new: Value) -> SqlResult<Value> {
    let mut made = new;
    for step in path.get(level..).unwrap_or_default().iter().rev() {
        made = match step.index() {
            Some(index) => {
                let mut values = Vec::new();
                pad(&mut values, usize::try_from(index).unwrap_or(0))?;
                values.push(made);
                Value::Array(values)
            }
            None => crate::json::object(vec![(step.text(), made)]),
        };
    }
    Ok(made)
}

fn pad(values: &mut Vec<Value>, length: usize) -> SqlResult<()> {
    if length.saturating_sub(values.len()) > MAX_GAP {
        return Err(SqlError::new(
            SqlState::PROGRAM_LIMIT,
            format!("an assignment adds no more than {MAX_GAP} nulls to a jsonb array"),
        ));
    }
    values.resize(length.max(values.len()), Value::Null);
    Ok(())
}
