//! The command line against real processes.
//!
//! Every test starts a system of its own on free ports in a directory of its own and ends it by process
//! number; a test that fails takes its processes along.

mod bulk;
mod client;
mod cluster;
mod contention;
mod crashes;
mod differential;
mod disk;
mod drivers;
mod nodes;
mod pgbench;
mod processes;
mod ranges;
mod raw;
mod refusals;
mod tenants;
mod tpc;
