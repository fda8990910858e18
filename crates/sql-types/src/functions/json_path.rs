//! Steps into json and jsonb values: by key, by index, along a path.

use crate::datum::{ArrayValue, Datum};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::json;
use serde_json::Value;
use std::sync::Arc;

/// One step.
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(i64),
}

/// Position of an index that counts from the end if negative.
pub(super) fn position(length: usize, index: i64) -> Option<usize> {
    let at = if index < 0 { index + length as i64 } else { index };
    usize::try_from(at).ok().filter(|at| *at < length)
}

pub(super) fn field<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.as_object()?.get(key)
}

/// An element of an array; a scalar counts as an array of itself, as it is stored in PostgreSQL.
pub(super) fn element(value: &Value, index: i64) -> Option<&Value> {
    match value {
        Value::Array(values) => values.get(position(values.len(), index)?),
        Value::Object(_) => None,
        scalar => position(1, index).map(|_| scalar),
    }
}

fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key),
        Value::Array(_) => element(value, key.trim().parse().ok()?),
        _ => None,
    }
}

/// Follows a path of keys and indexes; a NULL in it leads nowhere.
pub(super) fn walk<'a>(value: &'a Value, path: &ArrayValue) -> Option<&'a Value> {
    path.values.iter().try_fold(value, |value, key| match key {
        Datum::Text(key) => step(value, key),
        _ => None,
    })
}

pub(super) fn jsonb_or_null(value: Option<&Value>) -> Datum {
    value.map_or(Datum::Null, |value| Datum::Jsonb(Arc::new(value.clone())))
}

/// A value as text: strings without their quotes, null as NULL.
pub(super) fn text_or_null(value: Option<&Value>) -> Datum {
    match value {
        None | Some(Value::Null) => Datum::Null,
        Some(Value::String(text)) => Datum::text(text.as_str()),
        Some(value) => {
            let mut out = String::new();
            json::format(value, &mut out);
            Datum::text(out)
        }
    }
}

/// The part of json text that is a value, as it was written.
pub(super) struct Slices<'a> {
    text: &'a str,
}

impl<'a> Slices<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Slices { text: text.trim_matches(|c: char| " \t\n\r".contains(c)) }
    }

    /// End of the value that starts the text. The text is valid JSON.
    fn value_end(text: &str) -> usize {
        let bytes = text.as_bytes();
        let (mut depth, mut at, mut in_string) = (0usize, 0, false);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\\' if in_string => at += 1,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return at,
                b'}' | b']' => depth -= 1,
                b',' | b':' if depth == 0 => return at,
                _ => {}
            }
            at += 1;
        }
        bytes.len()
    }

    /// Key (for objects) and text of each member.
    pub(super) fn members(&self) -> Vec<(Option<String>, &'a str)> {
        let Some(open) = self.text.chars().next().filter(|c| matches!(c, '{' | '[')) else {
            return Vec::new();
        };
        let mut rest = &self.text[1..];
        let mut members = Vec::new();
        loop {
            rest = rest.trim_start();
            if rest.is_empty() || rest.starts_with(['}', ']']) {
                return members;
            }
            let mut key = None;
            if open == '{' {
                let end = Self::value_end(rest);
                key = serde_json::from_str(rest[..end].trim_end()).ok().or(Some(String::new()));
                rest = rest.get(end + 1..).unwrap_or("").trim_start();
            }
            let end = Self::value_end(rest);
            members.push((key, rest[..end].trim_end()));
            rest = rest.get(end..).unwrap_or("");
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
    }

    fn step(&self, step: &Step<'_>) -> Option<&'a str> {
        let members = self.members();
        match step {
            // Of equal keys the last one counts.
            Step::Key(wanted) if self.text.starts_with('{') => {
                members.iter().rev().find(|(key, _)| key.as_deref() == Some(wanted)).map(|(_, text)| *text)
            }
            Step::Index(index) if self.text.starts_with('[') => {
                members.get(position(members.len(), *index)?).map(|(_, text)| *text)
            }
            _ => None,
        }
    }
}

/// A slice of json text as json, or as text.
pub(super) fn json_result(slice: Option<&str>, as_text: bool) -> SqlResult<Datum> {
    Ok(match slice {
        None => Datum::Null,
        Some(slice) if !as_text => Datum::Json(slice.into()),
        Some("null") => Datum::Null,
        Some(slice) if slice.starts_with('"') => match json::parse(slice)? {
            Value::String(text) => Datum::text(text),
            _ => Datum::text(slice),
        },
        Some(slice) => Datum::text(slice),
    })
}

pub(super) fn json_field(text: &str, step: &Step<'_>, as_text: bool) -> SqlResult<Datum> {
    json_result(Slices::new(text).step(step), as_text)
}

pub(super) fn json_walk(text: &str, path: &ArrayValue, as_text: bool) -> SqlResult<Datum> {
    let mut slice = Slices::new(text).text;
    for key in &path.values {
        let Datum::Text(key) = key else { return Ok(Datum::Null) };
        let inside = Slices::new(slice);
        let next = if slice.starts_with('[') {
            key.trim().parse().ok().and_then(|index| inside.step(&Step::Index(index)))
        } else {
            inside.step(&Step::Key(key))
        };
        match next {
            Some(next) => slice = next,
            None => return Ok(Datum::Null),
        }
    }
    json_result(Some(slice), as_text)
}

fn path_index(key: &str, at: usize) -> SqlResult<i64> {
    key.trim().parse::<i32>().map(i64::from).map_err(|_| {
        SqlError::new(
            SqlState::INVALID_TEXT,
            format!("path element at position {} is not an integer: \"{key}\"", at + 1),
        )
    })
}

/// `#-`: without what the path leads to.
pub(super) fn delete(value: &Value, path: &ArrayValue) -> SqlResult<Value> {
    if !value.is_object() && !value.is_array() {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot delete path in scalar"));
    }
    let mut copy = value.clone();
    let keys: Vec<&str> = text_keys(path)?;
    delete_at(&mut copy, &keys, 0)?;
    Ok(copy)
}

fn text_keys(path: &ArrayValue) -> SqlResult<Vec<&str>> {
    path.values
        .iter()
        .enumerate()
        .map(|(at, key)| match key {
            Datum::Text(key) => Ok(&**key),
            _ => Err(SqlError::new(
                SqlState::NULL_NOT_ALLOWED,
                format!("path element at position {} is null", at + 1),
            )),
        })
        .collect()
}

fn delete_at(value: &mut Value, keys: &[&str], at: usize) -> SqlResult<()> {
    let Some(key) = keys.get(at) else { return Ok(()) };
    let last = at + 1 == keys.len();
    match value {
        Value::Object(map) if last => {
            map.shift_remove(*key);
        }
        Value::Object(map) => {
            if let Some(inner) = map.get_mut(*key) {
                delete_at(inner, keys, at + 1)?;
            }
        }
        Value::Array(values) if at == 0 && values.is_empty() => {}
        Value::Array(values) => {
            let index = path_index(key, at)?;
            if let Some(found) = position(values.len(), index) {
                if last {
                    values.remove(found);
                } else {
                    delete_at(&mut values[found], keys, at + 1)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// What `jsonb_set` and `jsonb_insert` do at the end of the path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// Replace, or create if allowed.
    Set { create: bool },
    /// Insert, before or after the element of an array.
    Insert { after: bool },
}

/// A copy with a new value at the end of a path.
pub(super) fn put(value: &Value, path: &ArrayValue, new: &Value, how: Put) -> SqlResult<Value> {
    if !value.is_object() && !value.is_array() {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot set path in scalar"));
    }
    let mut copy = value.clone();
    put_at(&mut copy, &text_keys(path)?, 0, new, how)?;
    Ok(copy)
}

fn put_at(value: &mut Value, keys: &[&str], at: usize, new: &Value, how: Put) -> SqlResult<()> {
    let Some(key) = keys.get(at) else { return Ok(()) };
    let last = at + 1 == keys.len();
    match value {
        Value::Object(map) => {
            if !last {
                return match map.get_mut(*key) {
                    Some(inner) => put_at(inner, keys, at + 1, new, how),
                    None => Ok(()),
                };
            }
            match (map.get_mut(*key), how) {
                (Some(_), Put::Insert { .. }) => {
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
                (Some(slot), Put::Set { .. }) => *slot = new.clone(),
                (None, Put::Set { create: false }) => {}
                (None, _) => {
                    let mut pairs: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
                    pairs.push((key.to_string(), new.clone()));
                    *value = json::object(pairs);
                }
            }
        }
        Value::Array(values) if at == 0 && values.is_empty() && how == (Put::Set { create: false }) => {}
        Value::Array(values) => {
            let index = path_index(key, at)?;
            match (position(values.len(), index), how) {
                (Some(found), _) if !last => put_at(&mut values[found], keys, at + 1, new, how)?,
                (None, _) if !last => {}
                (Some(found), Put::Set { .. }) => values[found] = new.clone(),
                (Some(found), Put::Insert { after }) => {
                    values.insert(found + usize::from(after), new.clone())
                }
                (None, Put::Set { create: false }) => {}
                (None, _) if index < 0 => values.insert(0, new.clone()),
                (None, _) => values.push(new.clone()),
            }
        }
        _ => {}
    }
    Ok(())
}
