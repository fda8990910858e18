//! The proxy: the only address clients know.
//!
//! It finds out which tenant a client means ([`startup::tenant`]), asks control where that tenant's SQL node
//! is while the client is held, joins the two, and from then on copies bytes. It authenticates nobody:
//! SCRAM runs end to end between client and SQL node. It reads no rows and knows no SQL.
//!
//! # A connection's states
//!
//! ```text
//!  accepted ──► negotiating ──► startup packet read ──► tenant named
//!                 │  ▲ SSLRequest: S + handshake │              │ session permit
//!                 │  │ GSSENCRequest: N          │              ▼
//!                 │  └─ TLS at once (ALPN)       │         resolving ◄─────────┐
//!                 │                              │              │ route        │ refused, gone, 57P03:
//!                 ▼                              ▼              ▼              │ nothing was sent yet
//!          CancelRequest:                     refused      connecting ─────────┘
//!          forwarded with the             (FATAL, closed)       │ the node's first word
//!          node's own key                        ▲              ▼
//!                                                ├──────── authenticating  (BackendKeyData exchanged)
//!                                                │              │ ReadyForQuery
//!                                                │              ▼
//!                                                └────────── running ──► half closed ──► closed
//!                                             node lost,                (client sends no more)
//!                                             proxy stops
//! ```
//!
//! In every state before `authenticating` the client's socket is watched: a client that goes away takes its
//! wait along. In every later state the end of either socket ends the other. A node that ends without a
//! FATAL error of its own is reported to the client as 57P01, between two messages, never inside one.
//!
//! # Who waits for whom
//!
//! A client can be slow only where a deadline runs ([`config::Timeouts`]) and holds no more than
//! [`config::ConnectionLimits`] allow. A session holds no buffer while it is idle and one chunk per
//! direction when a receiver is slow.
//!
//! # Rules
//!
//! * Before a session only the startup packet is parsed, afterwards only message headers.
//! * Parameters beginning with `_dormouse.` come from the proxy alone; a client that sends one is refused.
//! * A log line holds a client's address, tenant and user, never another value a client sent.
//!
//! # Missing
//!
//! Moving sessions between SQL nodes, balancing over several of one tenant, PROXY protocol, passing
//! CancelRequests between proxies.

pub mod admission;
pub mod cancel;
pub mod config;
mod connection;
mod control;
pub mod error;
mod flow;
pub mod frames;
mod metrics;
mod negotiate;
mod node;
pub mod routes;
mod server;
mod session;
pub mod startup;
mod stream;

pub use config::{Config, ConnectionLimits, Timeouts};
pub use server::{Proxy, ProxyError, run};
