//! Window functions.
use super::WindowFunction;
pub(super) static TABLE: &[WindowFunction] = &[];
