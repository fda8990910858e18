//! SQL: parse, bind, plan, execute; catalog, schema change, statistics; functions and triggers ([`routine`]).
//! No sockets, no clock of its own.
//!
//! # Where things are
//!
//! * A statement goes through [`parse`], [`bind`], [`optimize`] (with `memo`, which chooses joins and orders) and runs in one of
//!   two engines: by rows in [`exec`] and [`dml`], or by columns in [`analytic`]. [`plan`] is what they share,
//!   [`explain`] shows it, [`copy`] takes rows in and out.
//! * [`session`] runs statements and transactions for a client; [`engine`] is what the sessions of a node share.
//! * [`instances`] is how the SQL nodes of a tenant agree: leases, locks and catalogs of several of them.
//! * [`catalog`] knows what there is, [`ddl`] changes it (`online`: while a table is written to), [`system`] shows it as
//!   PostgreSQL's catalogs, [`statistics`] count it.
//! * [`table`] says how rows and index entries lie in keys and values, [`inverted`] which tokens a value has.

pub mod analytic;
pub mod bind;
pub mod catalog;
pub mod copy;
pub mod ddl;
pub mod dml;
pub mod engine;
pub mod exec;
pub mod explain;
pub mod instances;
pub mod inverted;
pub mod optimize;
pub mod parse;
pub mod plan;
pub mod routine;
pub mod session;
pub mod statistics;
pub mod system;
pub mod table;
