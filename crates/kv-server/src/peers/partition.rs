//! Nodes that are cut off on purpose.

use hashbrown::HashSet;
use parking_lot::RwLock;
use replication::NodeId;

/// Nodes that nothing is sent to, or taken from.
#[derive(Default)]
pub(super) struct Partition {
    blocked: RwLock<HashSet<NodeId>>,
}

impl Partition {
    pub(super) fn block(&self, node: NodeId) {
        self.blocked.write().insert(node);
    }

    pub(super) fn unblock(&self, node: NodeId) {
        self.blocked.write().remove(&node);
    }

    pub(super) fn is_blocked(&self, node: NodeId) -> bool {
        self.blocked.read().contains(&node)
    }
}
