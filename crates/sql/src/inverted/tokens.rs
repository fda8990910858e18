//! The tokens of a value.

use super::OperatorClass;
use bytes::{BufMut, BytesMut};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use sql_types::{ArrayValue, Datum, SqlError, SqlResult, encoding, json};

/// What an inverted index has entries of: see [`super`].
pub type Token = Vec<u8>;

/// Bytes of a token at most; longer ones are hashed.
pub const LONGEST_TOKEN: usize = 32;

/// Bytes of a hash that are kept.
const HASH_BYTES: usize = 16;

/// First byte of a token that is a hash.
const HASHED: u8 = 0;
/// First byte of a key of an object or a string in an array.
const KEY: u8 = 1;
/// First byte of a scalar.
const SCALAR: u8 = 2;
/// First byte of a scalar with the keys that lead to it.
const PATH: u8 = 3;
/// First byte of an element of an array.
const ELEMENT: u8 = 4;

/// First byte of each kind of scalar.
mod kind {
    pub const NULL: u8 = 0;
    pub const FALSE: u8 = 1;
    pub const TRUE: u8 = 2;
    pub const NUMBER: u8 = 3;
    pub const STRING: u8 = 4;
    /// A key that leads to what follows.
    pub const STEP: u8 = 5;
}

/// The tokens of a value of an indexed column, in ascending order, each once. NULL has none.
///
/// # Errors
/// XX000 for a value of a type that the class is not for.
pub fn tokens(class: OperatorClass, value: &Datum) -> SqlResult<Vec<Token>> {
    let mut found = Vec::new();
    match (class, value) {
        (_, Datum::Null) => {}
        (OperatorClass::JsonbOps, Datum::Jsonb(value)) => parts(value, Place::Element, &mut found)?,
        (OperatorClass::JsonbPathOps, Datum::Jsonb(value)) => {
            paths(value, &mut BytesMut::from(&[PATH][..]), &mut found)?;
        }
        (OperatorClass::ArrayOps, Datum::Array(array)) => found = elements(array)?,
        _ => {
            return Err(SqlError::internal("a value of an inverted index is of another type than the index"));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The token of a key, as `?` looks for it.
pub fn key(text: &str) -> Token {
    let mut token = Vec::with_capacity(1 + text.len());
    token.push(KEY);
    token.extend_from_slice(text.as_bytes());
    bounded(token)
}

/// Whether a token is one of a key. Keys are mostly more common than values.
pub fn is_key(token: &[u8]) -> bool {
    token.first() == Some(&KEY)
}

/// The token of an element of an array that is not NULL.
///
/// # Errors
/// Those of [`encoding::encode_key`].
pub fn element(value: &Datum) -> SqlResult<Token> {
    let mut token = BytesMut::from(&[ELEMENT][..]);
    encoding::encode_key(value, false, &mut token)?;
    Ok(bounded(token.to_vec()))
}

fn elements(array: &ArrayValue) -> SqlResult<Vec<Token>> {
    array.values.iter().filter(|value| !value.is_null()).map(element).collect()
}

/// A token as it is stored.
fn bounded(token: Vec<u8>) -> Token {
    if token.len() <= LONGEST_TOKEN {
        return token;
    }
    let hash = digest(&SHA256, &token);
    std::iter::once(HASHED).chain(hash.as_ref().iter().copied().take(HASH_BYTES)).collect()
}

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In an array, or alone.
    Element,
    /// Under a key.
    Member,
}

/// The tokens of `jsonb_ops`.
fn parts(value: &Value, place: Place, found: &mut Vec<Token>) -> SqlResult<()> {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                found.push(key(name));
                parts(member, Place::Member, found)?;
            }
        }
        Value::Array(values) => {
            for value in values {
                parts(value, Place::Element, found)?;
            }
        }
        Value::String(text) if place == Place::Element => found.push(key(text)),
        _ => {
            let mut token = BytesMut::from(&[SCALAR][..]);
            put_scalar(value, &mut token)?;
            found.push(bounded(token.to_vec()));
        }
    }
    Ok(())
}

/// The tokens of `jsonb_path_ops`. `path` begins with the keys that lead to the value.
fn paths(value: &Value, path: &mut BytesMut, found: &mut Vec<Token>) -> SqlResult<()> {
    let length = path.len();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                path.put_u8(kind::STEP);
                kv_api::encoding::encode_bytes(name.as_bytes(), path);
                paths(member, path, found)?;
                path.truncate(length);
            }
        }
        Value::Array(values) => {
            for value in values {
                paths(value, path, found)?;
            }
        }
        _ => {
            put_scalar(value, path)?;
            found.push(bounded(path.to_vec()));
            path.truncate(length);
        }
    }
    Ok(())
}

/// Appends what tells a scalar from others.
fn put_scalar(value: &Value, out: &mut BytesMut) -> SqlResult<()> {
    match value {
        Value::Bool(false) => out.put_u8(kind::FALSE),
        Value::Bool(true) => out.put_u8(kind::TRUE),
        Value::Number(_) => {
            out.put_u8(kind::NUMBER);
            let number =
                json::as_numeric(value).ok_or_else(|| SqlError::internal("a number in jsonb is none"))?;
            encoding::encode_key(&Datum::Numeric(number), false, out)?;
        }
        Value::String(text) => {
            out.put_u8(kind::STRING);
            out.put_slice(text.as_bytes());
        }
        Value::Null | Value::Array(_) | Value::Object(_) => out.put_u8(kind::NULL),
    }
    Ok(())
}
