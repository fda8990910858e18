//! The SQL node: one process that serves one tenant.
//!
//! # What it is for
//!
//! It speaks PostgreSQL's protocol with clients (through a proxy, or directly), authenticates them, and
//! runs their statements with crate `sql` against the KV nodes. It keeps no durable state and may be
//! killed at any moment.
//!
//! # Its life
//!
//! ```text
//!   warm ── assign ──► assigned ──► serving ── suspend, nobody connected ──► gone
//!    │ listens, knows no tenant       │  └──── suspend, somebody connected: busy, goes on
//!    └────────── lifeline ends, SIGTERM ─────────────────────────────────────► gone
//! ```
//!
//! A warm node has done everything that does not depend on the tenant: it listens, has its runtime, its
//! connection to control and its function registry. An assignment carries the tenant's certificate; with
//! it the node connects to the KV node and serves. Connections that arrive in between wait.
//!
//! # How data flows through it
//!
//! [`listener`] accepts and puts TLS in place, [`connection`] runs the protocol's state machine over
//! [`protocol`]'s messages, a session of crate `sql` runs statements, and rows are encoded into the
//! output buffer as they come. One thread runs all of it: a SQL node is scaled by having several.
//!
//! # Bounds
//!
//! Connections ([`Config::max_connections`]), time to authenticate ([`connection::startup`]), message
//! sizes ([`protocol::frontend`]), input read ahead and output buffered ([`connection::io`]).

pub mod auth;
pub mod cancel;
pub mod config;
pub mod connection;
pub mod control_link;
pub mod listener;
pub mod metrics;
pub mod node;
pub mod protocol;

pub use config::Config;
pub use node::run;
