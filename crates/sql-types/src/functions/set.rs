//! Set-returning functions.
use super::SetFunction;
pub(super) static TABLES: &[&[SetFunction]] = &[];
