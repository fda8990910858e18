//! COPY: rows to bytes and bytes to rows, in PostgreSQL's text, csv and binary formats.
//!
//! [`CopyDecoder`] takes chunks split anywhere and yields rows; [`CopyEncoder`] is its inverse. Both
//! hold no more than one unfinished line. Neither knows the transaction: the session feeds decoded
//! rows to the plan of the COPY through [`crate::exec::execute_over`].

mod binary;
mod decode;
mod encode;
mod options;
mod text;

pub use decode::CopyDecoder;
pub use encode::CopyEncoder;
pub use options::{CopyFormat, CopyHeader, CopyOptions, ForceColumns, OptionValue};

use sql_types::ColumnType;
use std::sync::Arc;

/// A column of a COPY.
#[derive(Clone, Debug)]
pub struct CopyColumn {
    /// Its name.
    pub name: Arc<str>,
    /// Its type; the decoder applies the modifier.
    pub ty: ColumnType,
}

#[cfg(test)]
mod tests;
