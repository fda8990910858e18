//! What travels between KV nodes, around the [`Envelope`]s.
//!
//! [`FirstFrame`], and the fields `version`, `cluster_id` and `refused` or `error` of what it carries and
//! of the answers, keep their numbers and meanings in every version of the protocol, so that nodes of
//! different versions can tell each other that they do not fit.

use replication::{Envelope, NodeId};

/// First message on a connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FirstFrame {
    /// What the connection is for.
    #[prost(oneof = "FirstFrameKind", tags = "1, 2")]
    pub kind: Option<FirstFrameKind>,
}

/// What a connection is for.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum FirstFrameKind {
    /// To send envelopes. Answered by a [`PeerHello`]; then [`PeerFrame`]s follow.
    #[prost(message, tag = "1")]
    Hello(PeerHello),
    /// To join the cluster. Answered by a [`JoinResponse`], which ends the connection.
    #[prost(message, tag = "2")]
    Join(JoinRequest),
}

/// Who is at this end of a connection, and who is believed to be at the other.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PeerHello {
    /// [`replication::message::PEER_PROTOCOL_VERSION`] of the sender.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The cluster of the sender.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
    /// The sender.
    #[prost(uint64, tag = "3")]
    pub node_id: NodeId,
    /// Who the sender takes the receiver for.
    #[prost(uint64, tag = "4")]
    pub to_node: NodeId,
    /// In an answer: why the connection is refused, and what to do about it.
    #[prost(string, optional, tag = "5")]
    pub refused: Option<String>,
}

/// Messages that were ready to be sent at the same time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PeerFrame {
    /// In the order they were sent, but for heartbeats, which come first.
    #[prost(message, repeated, tag = "1")]
    pub envelopes: Vec<Envelope>,
}

/// Asks to become a member of the cluster, or says where a member is now.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinRequest {
    /// [`replication::message::PEER_PROTOCOL_VERSION`] of the sender; [`super::join()`] sets it.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The cluster to join, or to return to; empty for whichever it is.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
    /// Where the sender can be reached, as `host:port`.
    #[prost(string, tag = "3")]
    pub address: String,
    /// Where the sender stands, as it was told.
    #[prost(string, tag = "4")]
    pub locality: String,
    /// 0 if the sender needs an id; otherwise the one it has.
    #[prost(uint64, tag = "5")]
    pub node_id: NodeId,
    /// Names the sender's store. A store that asks again for an id is given the same one.
    #[prost(string, tag = "6")]
    pub store_id: String,
    /// The sender's process on its machine.
    #[prost(uint64, tag = "7")]
    pub pid: u64,
}

/// Answers a [`JoinRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinResponse {
    /// The cluster.
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    /// The id of the node that asked.
    #[prost(uint64, tag = "2")]
    pub node_id: NodeId,
    /// The members, as far as they are known.
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<PeerNode>,
    /// Why the node did not join, and what to do about it.
    #[prost(string, optional, tag = "4")]
    pub error: Option<String>,
    /// Whom to ask instead, as `host:port`; empty unless this is all there is to say.
    #[prost(string, tag = "5")]
    pub redirect: String,
    /// With `error`: whether the same request may succeed later.
    #[prost(bool, tag = "6")]
    pub try_again: bool,
}

impl JoinResponse {
    /// The request makes no sense and will make none later.
    pub fn refused(message: impl Into<String>) -> Self {
        JoinResponse { error: Some(message.into()), ..JoinResponse::default() }
    }

    /// The request cannot be answered now.
    pub fn try_again(message: impl Into<String>) -> Self {
        JoinResponse { error: Some(message.into()), try_again: true, ..JoinResponse::default() }
    }

    /// The node at this address can answer the request.
    pub fn redirect(address: impl Into<String>) -> Self {
        JoinResponse { redirect: address.into(), ..JoinResponse::default() }
    }
}

/// A member of the cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PeerNode {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub id: NodeId,
    /// Where it can be reached, as `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Where it stands, as it was told.
    #[prost(string, tag = "3")]
    pub locality: String,
}
