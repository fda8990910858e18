//! Keys whose bytes order as the values do, and compact, versioned row values.

use crate::datum::Datum;
use crate::error::{SqlError, SqlResult};
use crate::types::Type;
use bytes::BytesMut;

/// Whether a key of this type holds the value wholly, so that [`decode_key`] gives it back as it was:
/// false where equal values can look different (numeric `1.0` and `1.00`, `-0.0`, intervals).
pub fn key_is_exact(ty: Type) -> bool {
    let _ = ty;
    true
}

/// Appends a key column. Bytes order as the values do; NULLs last ascending, first descending.
pub fn encode_key(value: &Datum, descending: bool, out: &mut BytesMut) -> SqlResult<()> {
    let _ = (value, descending, out);
    Err(SqlError::unsupported("key"))
}

/// Takes a key column off the front of `input`.
pub fn decode_key(ty: Type, descending: bool, input: &mut &[u8]) -> SqlResult<Datum> {
    let _ = (ty, descending, input);
    Err(SqlError::unsupported("key"))
}

/// Steps over a key column.
pub fn skip_key(ty: Type, descending: bool, input: &mut &[u8]) -> SqlResult<()> {
    decode_key(ty, descending, input).map(drop)
}

/// Appends a tagged value. Values are self-delimiting.
pub fn encode_value(value: &Datum, out: &mut BytesMut) -> SqlResult<()> {
    let _ = (value, out);
    Err(SqlError::unsupported("value"))
}

/// Takes a tagged value of a type off the front of `input`.
pub fn decode_value(ty: Type, input: &mut &[u8]) -> SqlResult<Datum> {
    let _ = (ty, input);
    Err(SqlError::unsupported("value"))
}

/// Steps over a tagged value.
pub fn skip_value(input: &mut &[u8]) -> SqlResult<()> {
    let _ = input;
    Err(SqlError::unsupported("value"))
}

/// Appends a row: pairs of column id (stable, ascending) and value. NULLs take no space: a column
/// that is not there is NULL, or has the default it was added with.
pub fn encode_row<'a>(
    columns: impl IntoIterator<Item = (u32, &'a Datum)>,
    out: &mut BytesMut,
) -> SqlResult<()> {
    let _ = (columns.into_iter(), out);
    Ok(())
}

/// Reads the columns of a row one by one, decoding only what is asked for.
pub struct RowReader<'a> {
    rest: &'a [u8],
}

impl<'a> RowReader<'a> {
    /// Starts reading; fails if the row is of an unknown version.
    pub fn new(row: &'a [u8]) -> SqlResult<Self> {
        Ok(RowReader { rest: row })
    }

    /// The next column's id and its tagged value, still encoded.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> SqlResult<Option<(u32, &'a [u8])>> {
        let _ = self.rest;
        Ok(None)
    }
}
