//! Scalar functions.
use super::Function;
pub(super) static TABLES: &[&[Function]] = &[];
