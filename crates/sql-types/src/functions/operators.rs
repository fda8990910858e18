//! Operators.
use super::Function;
pub(super) static TABLES: &[&[Function]] = &[];
