//! Tests of the SQL layer against a KV node in this process.

mod as_of;
mod catalogs;
mod changes;
mod contention;
mod costs;
mod database;
mod deferred;
mod engines;
mod indexes;
mod inverted;
mod memory;
mod nodes;
mod online;
mod operators;
mod partial;
mod plan_support;
mod policies;
mod schema;
mod sessions;
mod slt;
mod statement_statistics;
mod statements;
mod statistics;
mod support;
mod temporary;
mod user_types;
