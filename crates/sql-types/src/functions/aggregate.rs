//! Aggregates.
use super::AggregateFunction;
pub(super) static TABLES: &[&[AggregateFunction]] = &[];
