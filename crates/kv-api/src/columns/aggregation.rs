//! [`Aggregation`]: what a program makes of rows instead of returning them.

use super::{Choice, Condition};

/// Most computations of an aggregation; they take time for each row.
pub const MAX_COMPUTATIONS: usize = 200;
/// Most partial results of an aggregation, and most columns that it groups by.
pub const MAX_PARTIALS: usize = 200;
/// Most groups of a [`super::ColumnBatch`]; the scan's page ends there.
pub const MAX_GROUPS: usize = 16_384;

/// What a value is computed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Operation {
    /// It is the constant.
    Constant = 0,
    /// `left + right`
    Add = 1,
    /// `left - right`
    Subtract = 2,
    /// `left * right`
    Multiply = 3,
}

/// A number that is computed of others; NULL if one of them is. Numbers with decimals are computed with as integers, their
/// digits: whoever writes the aggregation knows how many decimals each result has, and multiplies by powers of ten where
/// operands must be alike.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Computation {
    /// How.
    #[prost(enumeration = "Operation", tag = "1")]
    pub operation: i32,
    /// The number of a value: the wanted columns come first, then the computations before this one.
    #[prost(uint32, tag = "2")]
    pub left: u32,
    /// The same.
    #[prost(uint32, tag = "3")]
    pub right: u32,
    /// The constant.
    #[prost(sint64, tag = "4")]
    pub constant: i64,
    /// What the result is: an integer of two, four or eight bytes, or [`super::Kind::WideDecimal`]. A row whose result
    /// does not fit is unfit.
    #[prost(enumeration = "super::Kind", tag = "5")]
    pub kind: i32,
}

/// How the values of a group become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Fold {
    /// The number of rows, as [`super::Kind::Int64`].
    CountRows = 0,
    /// The number of rows where the value is not NULL, as [`super::Kind::Int64`].
    Count = 1,
    /// The sum of a number's values, as [`super::Kind::WideDecimal`]; NULL where there are none.
    Sum = 2,
    /// The smallest value, of the value's kind; NULL where there are none. Bytes are compared bytewise.
    Least = 3,
    /// The largest value, likewise.
    Greatest = 4,
}

/// A column of partial results.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Partial {
    /// How.
    #[prost(enumeration = "Fold", tag = "1")]
    pub fold: i32,
    /// The number of the value, as in [`Computation::left`]; of no meaning for [`Fold::CountRows`].
    #[prost(uint32, tag = "2")]
    pub value: u32,
    /// What a row must satisfy to count, all of it.
    #[prost(message, repeated, tag = "3")]
    pub conditions: Vec<Condition>,
    /// Of each of these, one alternative.
    #[prost(message, repeated, tag = "4")]
    pub choices: Vec<Choice>,
}

/// What becomes of the rows that satisfy a program's conditions. Instead of them a batch has their groups: the columns in
/// [`Aggregation::groups`], then one for each of [`Aggregation::partials`]. A group may come again in the next batch; whoever
/// asked folds sums and counts by adding them, and the others as they are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Aggregation {
    /// Numbers computed of each row.
    #[prost(message, repeated, tag = "1")]
    pub computations: Vec<Computation>,
    /// The wanted columns whose values are alike within a group, NULLs included. If there are none, all rows are one
    /// group, of which a batch over no rows has nothing.
    #[prost(uint32, repeated, tag = "2")]
    pub groups: Vec<u32>,
    /// What is returned of each group.
    #[prost(message, repeated, tag = "3")]
    pub partials: Vec<Partial>,
}
