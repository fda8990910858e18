//! The command line against real processes.
//!
//! Every test starts a system of its own on free ports in a directory of its own and ends it by process
//! number; a test that fails takes its processes along.

mod cluster;
mod crashes;
mod processes;
mod refusals;
mod tenants;
