//! Tests of the SQL layer against a KV node in this process.

mod changes;
mod database;
mod engines;
mod operators;
mod plan_support;
mod statements;
mod support;
