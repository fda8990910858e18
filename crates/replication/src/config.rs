//! Sizes and times of a [`crate::Store`].

use crate::Millis;
use crate::message::NodeId;

/// How often [`crate::Store::tick`] is to be called.
pub const TICK_MS: Millis = 100;
/// Ticks without a leader after which a replica campaigns; at most twice as many, by chance.
pub const ELECTION_TICKS: usize = 3;
/// Ticks between a leader's heartbeats in a group that is not quiet.
pub const HEARTBEAT_TICKS: usize = 2;
/// Ticks without anything to do after which a group is quiet.
pub const QUIET_TICKS: u32 = 10;

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// This node.
    pub node: NodeId,
    /// Distinguishes this process from those of the same node before it.
    pub epoch: u64,
    /// Where chance comes from.
    pub seed: u64,
    /// Entries that stay in a log after they were applied, for followers a little behind.
    pub log_keep: u64,
    /// Bytes of entries that stay, at most.
    pub log_keep_bytes: usize,
    /// Bytes of a snapshot chunk.
    pub chunk_bytes: usize,
    /// Bytes of proposals a group may have under way; more are refused.
    pub max_uncommitted_bytes: u64,
    /// After how long without use a group leaves memory; 0 is never.
    pub sleep_after_ms: Millis,
}

impl StoreConfig {
    /// The defaults.
    pub fn new(node: NodeId, epoch: u64, seed: u64) -> Self {
        StoreConfig {
            node,
            epoch,
            seed,
            log_keep: 4096,
            log_keep_bytes: 8 << 20,
            chunk_bytes: 256 << 10,
            max_uncommitted_bytes: 256 << 20,
            sleep_after_ms: 60_000,
        }
    }

    /// What raft-rs is told.
    pub(crate) fn raft(&self, applied: u64) -> raft::Config {
        raft::Config {
            id: self.node,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            // Support between nodes takes its place.
            check_quorum: false,
            pre_vote: true,
            max_uncommitted_size: self.max_uncommitted_bytes,
            max_committed_size_per_ready: 8 << 20,
            ..raft::Config::default()
        }
    }
}
