//! Scans that return columns instead of rows.
//!
//! A scan may carry a [`Program`]: which columns of the rows are wanted, as what, and which conditions the rows must
//! satisfy. Whoever runs it ([`Reader`]) decodes just these columns and returns them side by side ([`ColumnBatch`]), so
//! that rows that nobody needs are never sent and nobody touches single values afterwards. KV nodes run programs over
//! what they store; a client runs the same one over rows that a transaction has changed and not sent yet. It is pure.
//!
//! A program knows how rows lie in keys and values ([`crate::row`]), not what they mean: integers, numbers with a fixed
//! count of decimals, and bytes. A row with something else in a wanted column is *unfit*: the batch ends before it and says
//! so, and the client reads rows instead.
//!
//! A condition may be a filter of values that a join looks for ([`Comparison::Sought`]): it lets all rows with one of them
//! through, and some one in a hundred of the others.
//!
//! # Chunks
//!
//! Whoever reads the same rows again and again may gather them once ([`Reader::gather`]) and keep the [`Chunk`]: columns of
//! all rows, those that satisfy no condition included. Other programs that want the same columns ([`Origin`]) are then run
//! over it ([`Reader::take_chunk`]) without a look at keys and values.
//!
//! # Partial aggregates
//!
//! A program may have an [`Aggregation`]: then the rows that satisfy its conditions are not returned but folded into groups,
//! and a batch has a row for each group, with the partial results as columns. All of them merge: counts and sums add up, a
//! least of leasts is the least. So a batch may end anywhere, as other scans do: when as much was read as a page may read,
//! or when there are [`MAX_GROUPS`] groups. Groups go on in the next batch, and the client merges what it gets.
//!
//! Sums are exact, in 128 bits. What cannot be computed (a sum beyond that, an integer that its type does not hold) makes the
//! row unfit, and the batch empty: whoever asked reads rows instead, and raises the error that SQL wants, if it wants one.
//!
//! Missing: floats (their sums depend on the order), quotients, distinct values.

mod aggregation;
mod batch;
mod chunk;
mod condition;
mod fold;
#[cfg(test)]
mod fuzz;
mod like;
mod reader;
mod sought;

pub use aggregation::{
    Aggregation, Computation, Fold, MAX_COMPUTATIONS, MAX_GROUPS, MAX_PARTIALS, Operation, Partial,
};
pub use batch::{ColumnBatch, ColumnData};
pub use chunk::{Chunk, Origin};
pub use reader::{BadProgram, Reader, Taken, Unfit};
pub use sought::{MAX_SOUGHT, MAX_SOUGHT_BYTES, sought};

use bytes::Bytes;

/// Most columns of a program.
pub const MAX_COLUMNS: usize = 2_000;

/// What a column's values are in a [`ColumnData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// One byte each, 0 or 1.
    Bool = 0,
    /// Integers of two bytes.
    Int16 = 1,
    /// Integers of four bytes.
    Int32 = 2,
    /// Integers of eight bytes.
    Int64 = 3,
    /// Numbers with as many decimals as the column says: their digits as integers of eight bytes.
    Decimal = 4,
    /// The same as integers of sixteen bytes.
    WideDecimal = 5,
    /// Bytes.
    Bytes = 6,
    /// Bytes without the spaces at their end.
    Trimmed = 7,
}

/// A column that is wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wanted {
    /// Whether it is a column of the key.
    #[prost(bool, tag = "1")]
    pub from_key: bool,
    /// Which column of the key, from zero, or the column's number in the value.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// What it becomes.
    #[prost(enumeration = "Kind", tag = "3")]
    pub kind: i32,
    /// How many decimals its values have.
    #[prost(uint32, tag = "4")]
    pub scale: u32,
    /// What a row without the column has, as a value of [`crate::row`]; empty for NULL.
    #[prost(bytes = "bytes", tag = "5")]
    pub missing: Bytes,
}

/// What a key column is, so that it can be read or stepped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum KeyKind {
    /// An integer ([`crate::encoding::encode_i64`]).
    Integer = 0,
    /// Bytes ([`crate::encoding::encode_bytes`]).
    Bytes = 1,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Comparison {
    /// `=`
    Equal = 0,
    /// `<>`
    NotEqual = 1,
    /// `<`
    Less = 2,
    /// `<=`
    LessOrEqual = 3,
    /// `>`
    Greater = 4,
    /// `>=`
    GreaterOrEqual = 5,
    /// It is one of the constants.
    In = 6,
    /// It is none of the constants.
    NotIn = 7,
    /// It matches the one constant, a pattern of SQL's LIKE with a backslash as escape.
    Like = 8,
    /// It does not match it.
    NotLike = 9,
    /// It may be in the filter ([`sought()`]) that is the one constant's bytes. Of integers.
    Sought = 10,
}

/// A constant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct Constant {
    /// For integers and decimals; of these the digits, with the column's scale.
    #[prost(sint64, tag = "1")]
    pub integer: i64,
    /// For bytes; without spaces at the end for [`Kind::Trimmed`].
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
}

/// A condition on a row. NULL satisfies none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Condition {
    /// The wanted column that is compared, from zero.
    #[prost(uint32, tag = "1")]
    pub column: u32,
    /// How.
    #[prost(enumeration = "Comparison", tag = "2")]
    pub comparison: i32,
    /// With which constants: one, but for lists.
    #[prost(message, repeated, tag = "3")]
    pub constants: Vec<Constant>,
    /// With which other wanted column instead, which has the same kind and scale.
    #[prost(uint32, optional, tag = "4")]
    pub other: Option<u32>,
}

/// Conditions, all of which hold.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Branch {
    /// Which.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<Condition>,
}

/// A condition on a row that one of several alternatives satisfies.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Choice {
    /// The alternatives.
    #[prost(message, repeated, tag = "1")]
    pub branches: Vec<Branch>,
}

/// What a scan returns of each row, and of which rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Program {
    /// Bytes of each key, behind the tenant's prefix, that come before its first column.
    #[prost(uint32, tag = "1")]
    pub prefix_len: u32,
    /// The columns of the key up to the last one wanted.
    #[prost(enumeration = "KeyKind", repeated, tag = "2")]
    pub key: Vec<i32>,
    /// The columns that are wanted, in the order in which they are returned.
    #[prost(message, repeated, tag = "3")]
    pub columns: Vec<Wanted>,
    /// What a row must satisfy, all of it.
    #[prost(message, repeated, tag = "4")]
    pub conditions: Vec<Condition>,
    /// Of each of these, one alternative.
    #[prost(message, repeated, tag = "5")]
    pub choices: Vec<Choice>,
    /// What becomes of these rows, if they are not returned themselves.
    #[prost(message, optional, tag = "6")]
    pub aggregation: Option<Aggregation>,
}
