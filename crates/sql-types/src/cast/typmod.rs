//! Type modifiers: `varchar(n)`, `char(n)`, `numeric(p,s)`, `timestamp(p)`.

use crate::datum::Datum;
use crate::error::SqlResult;
use crate::types::ColumnType;

/// Fits a value, already of the type, to the type's modifier.
pub fn apply_typmod(value: Datum, to: ColumnType, explicit: bool) -> SqlResult<Datum> {
    let _ = (to, explicit);
    Ok(value)
}
