//! How KV nodes talk to each other.
//!
//! # What it is for
//!
//! [`replication`] hands out [`replication::Envelope`]s and takes them in; this module carries them. It
//! is also how a new node finds its cluster, and how one that comes back says where it is now
//! ([`join()`]).
//!
//! ```text
//!  Peers::send ─► queue of the peer ─► one connection ─── TLS ───► serve_peer ─► PeerServer's channel
//! ```
//!
//! A connection carries envelopes in one direction, from the node that made it; two nodes that talk have
//! two. A node has one connection to another: one more ends the one before. Frames are those of [`kv_api::wire`]: a length and one protobuf message.
//!
//! * [`Peers`]: one bounded queue and at most one outgoing connection per peer.
//! * [`serve_peer`], [`PeerServer`]: what the listener does with a connection from a KV node.
//! * [`join()`], [`JoinHandler`]: becoming a member of a cluster, both sides.
//! * [`message`]: what travels.
//!
//! # A connection
//!
//! The first frame is a [`message::FirstFrame`]: a hello or a request to join. A hello names the protocol
//! version, the cluster, the sender and the node the sender believes to be talking to; it is answered by
//! a hello, and if either side finds that something does not fit the connection ends with a message that
//! says what to do about it. After that come [`message::PeerFrame`]s, each with as many envelopes as
//! were waiting, up to about [`PeerLimits::frame_bytes`]: the more there is to say, the less each costs.
//!
//! The other end must prove by its certificate that it is a KV node ([`process::identity::Identity::Kv`]),
//! in both directions: every process of the cluster has a certificate of the same authority, SQL nodes
//! of tenants among them. The listener checks the one, [`Peers`] and [`join()`] check the other.
//!
//! # Loss
//!
//! Raft repeats what is lost, so nothing here does. [`Peers::send`] never waits; an envelope is dropped
//! and counted ([`DropReason`])
//!
//! * if nobody has told where its receiver is,
//! * if the queue of its receiver is full,
//! * if it is queued when an attempt to connect fails, or being written when a connection ends.
//!
//! Connections are made when there is something to send. After a failure there is a pause, 10 ms at first
//! and at most 500 ms ([`PeerLimits::reconnect_most`]). A network that swallows everything is noticed
//! when what was written is not acknowledged for [`PeerLimits::unacknowledged_timeout`].
//!
//! Heartbeats and their answers overtake everything else and have room of their own in the queue: leases
//! depend on them, and a node that is sent more than the network carries is not dead.
//!
//! # Back-pressure
//!
//! Whoever receives too slowly is not read from: [`serve_peer`] waits for room in the channel it
//! delivers to. So the sender's queue grows and overflows, which costs messages there and no memory here.
//!
//! # Partitions for tests
//!
//! [`Peers::block`] and [`PeerServer::block`] drop everything to or from a node until they are told
//! otherwise. They are for tests and for `dormouse debug`.
//!
//! # What is missing on purpose
//!
//! Retransmission, acknowledgement, order, compression, several connections per peer.

mod config;
mod dial;
mod error;
mod frames;
mod hello;
mod join;
mod links;
pub mod message;
mod outgoing;
mod partition;
mod queue;
mod sender;
mod server;

pub use config::PeerLimits;
pub use error::{DropReason, PeerError};
pub use join::{JoinError, JoinHandler, join};
pub use links::Links;
pub use message::{JoinRequest, JoinResponse, PeerNode};
pub use sender::{PeerStatus, Peers, PeersConfig};
pub use server::{PeerServer, PeerServerConfig, serve_peer};
