//! PostgreSQL's binary wire format of every type.

use crate::datum::Datum;
use crate::error::{SqlError, SqlResult};
use crate::types::Type;
use bytes::BytesMut;

/// Reads a value of a type from its binary form.
pub fn decode(ty: Type, bytes: &[u8]) -> SqlResult<Datum> {
    let _ = bytes;
    Err(SqlError::unsupported(format_args!("binary input of type {ty}")))
}

/// Appends the binary form of a value that is not NULL.
pub fn encode(value: &Datum, ty: Type, out: &mut BytesMut) -> SqlResult<()> {
    let _ = (value, out);
    Err(SqlError::unsupported(format_args!("binary output of type {ty}")))
}
