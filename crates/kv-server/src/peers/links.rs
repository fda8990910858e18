//! What a node needs of the network: the real one, or a simulated one.

use super::join::{JoinError, join};
use super::message::{JoinRequest, JoinResponse};
use super::sender::Peers;
use async_trait::async_trait;
use replication::{Envelope, NodeId};
use tokio::time::Instant;

/// The ways to other nodes.
#[async_trait]
pub trait Links: Send + Sync {
    /// Says where a node is.
    fn set_address(&self, node: NodeId, address: String);

    /// Sends a message, which may get lost. Never waits.
    fn send(&self, envelope: Envelope);

    /// Asks the nodes at these addresses to take this node in, or back; see [`join`].
    async fn join(
        &self,
        addresses: &[String],
        request: JoinRequest,
        deadline: Instant,
    ) -> Result<JoinResponse, JoinError>;
}

#[async_trait]
impl Links for Peers {
    fn set_address(&self, node: NodeId, address: String) {
        Peers::set_address(self, node, address);
    }

    fn send(&self, envelope: Envelope) {
        Peers::send(self, envelope);
    }

    async fn join(
        &self,
        addresses: &[String],
        request: JoinRequest,
        deadline: Instant,
    ) -> Result<JoinResponse, JoinError> {
        join(addresses, self.tls(), request, deadline).await
    }
}
