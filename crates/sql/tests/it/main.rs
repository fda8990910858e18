//! Tests of the SQL layer against a KV node in this process.

mod changes;
mod operators;
mod plan_support;
mod support;
