//! From an index access to the keys it reads.

use super::eval::{EvalEnv, eval};
use crate::plan::{Expr, IndexAccess};
use crate::table::IndexCodec;
use bytes::{Bytes, BytesMut};
use kv_api::Span;
use kv_api::key::prefix_end;
use sql_types::{Datum, SqlError, SqlResult, encoding};

/// The keys an access reads, in index order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// These keys, at most one row each.
    Points(Vec<Bytes>),
    /// Everything in these spans.
    Spans(Vec<Span>),
}

/// Appends the values of leading columns; false if one is NULL.
fn prefix(index: &IndexCodec, exprs: &[Expr], env: &EvalEnv<'_>, key: &mut BytesMut) -> SqlResult<bool> {
    for (expr, column) in exprs.iter().zip(&index.columns) {
        let value = super::eval::value(expr, &[], env)?;
        if value.is_null() {
            return Ok(false);
        }
        encoding::encode_key(&value, column.descending, key)?;
    }
    Ok(true)
}

/// The keys of an access.
pub(crate) fn keys(index: &IndexCodec, access: &IndexAccess, env: &EvalEnv<'_>) -> SqlResult<Keys> {
    let given = access.prefix.len() + usize::from(!access.in_list.is_empty());
    if given > index.columns.len() {
        return Err(SqlError::internal("the plan gives an index more values than it has columns"));
    }
    let prefixes = prefixes(index, access, env)?;
    if index.unique && given == index.columns.len() {
        return Ok(Keys::Points(prefixes.into_iter().map(BytesMut::freeze).collect()));
    }
    let mut spans = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        spans.extend(span(index, access, given, prefix, env)?);
    }
    Ok(Keys::Spans(spans))
}

/// The prefix values, encoded, with each of the alternatives for the column after them, in index order
/// and without duplicates.
fn prefixes(index: &IndexCodec, access: &IndexAccess, env: &EvalEnv<'_>) -> SqlResult<Vec<BytesMut>> {
    let mut key = BytesMut::with_capacity(index.prefix.len() + 12 * index.columns.len());
    key.extend_from_slice(&index.prefix);
    if !prefix(index, &access.prefix, env, &mut key)? {
        return Ok(Vec::new());
    }
    if access.in_list.is_empty() {
        return Ok(vec![key]);
    }
    let column = &index.columns[access.prefix.len()];
    let mut all = Vec::new();
    let mut add = |value: &Datum| -> SqlResult<()> {
        if !value.is_null() {
            let mut key = key.clone();
            encoding::encode_key(value, column.descending, &mut key)?;
            all.push(key);
        }
        Ok(())
    };
    for expr in &access.in_list {
        let is_array = expr.ty().element().is_some() && column.ty.element().is_none();
        match eval(expr, &[], env)? {
            Datum::Array(array) if is_array => array.values.iter().try_for_each(&mut add)?,
            value => add(&value)?,
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The span of keys with a prefix and the bounds on the next column.
fn span(
    index: &IndexCodec,
    access: &IndexAccess,
    given: usize,
    prefix: BytesMut,
    env: &EvalEnv<'_>,
) -> SqlResult<Option<Span>> {
    let whole = Span::new(Bytes::copy_from_slice(&prefix), prefix_end(&prefix).unwrap_or_default());
    if access.lower.is_none() && access.upper.is_none() {
        return Ok(Some(whole));
    }
    let Some(column) = index.columns.get(given) else {
        return Err(SqlError::internal("the plan bounds a column that the index does not have"));
    };
    let with = |value: &Datum| -> SqlResult<BytesMut> {
        let mut key = prefix.clone();
        encoding::encode_key(value, column.descending, &mut key)?;
        Ok(key)
    };
    let after = |key: BytesMut| prefix_end(&key).unwrap_or_default();
    let start = match &access.lower {
        Some(bound) => match eval(&bound.value, &[], env)? {
            Datum::Null => return Ok(None),
            value if bound.inclusive => with(&value)?.freeze(),
            value => after(with(&value)?),
        },
        // NULL fulfils no comparison; in descending order NULLs come first.
        None if column.descending => after(with(&Datum::Null)?),
        None => whole.start,
    };
    let end = match &access.upper {
        Some(bound) => match eval(&bound.value, &[], env)? {
            Datum::Null => return Ok(None),
            value if bound.inclusive => after(with(&value)?),
            value => with(&value)?.freeze(),
        },
        None if !column.descending => with(&Datum::Null)?.freeze(),
        None => whole.end,
    };
    Ok((start < end).then(|| Span::new(start, end)))
}
