//! SQL: parse, bind, plan, execute; catalog, schema change, statistics; functions and triggers ([`routine`]).
//! No sockets, no clock of its own.

pub mod analytic;
pub mod bind;
pub mod catalog;
pub mod copy;
pub mod ddl;
pub mod dml;
pub mod engine;
pub mod exec;
pub mod explain;
pub mod inverted;
pub mod optimize;
pub mod parse;
pub mod plan;
pub mod routine;
pub mod session;
pub mod statistics;
pub mod system;
pub mod table;
