//! What the tools that speak PostgreSQL's protocol share: connecting as a URL says, and what errors mean to a
//! client that wants to go on.

mod connect;
mod kind;

pub use connect::{Connection, Target};
pub use kind::Kind;
