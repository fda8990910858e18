//! The proxy over real sockets, between scripted clients, a scripted control and scripted SQL nodes.
//!
//! Nothing here waits for time to pass to decide whether a test is right: every wait is for an event, and
//! [`PATIENCE`](world::PATIENCE) only ends a test that would hang.

mod client;
mod control;
mod node;
mod world;

mod cancelling;
mod ending;
mod finding;
mod refusing;
mod routing;
mod starting;
