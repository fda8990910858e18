//! Bounds on the traffic between KV nodes.

use std::time::Duration;

/// Bounds on the traffic between KV nodes.
#[derive(Clone, Debug)]
pub struct PeerLimits {
    /// Most messages that wait for one peer. Heartbeats are counted apart.
    pub max_queued_messages: usize,
    /// Most bytes of messages that wait for one peer. A message that is larger on its own is taken if
    /// nothing else waits.
    pub max_queued_bytes: usize,
    /// Bytes after which a frame takes no more messages.
    pub frame_bytes: usize,
    /// First pause after a failed attempt to connect; doubles each time.
    pub reconnect_first: Duration,
    /// Longest pause between attempts to connect.
    pub reconnect_most: Duration,
    /// Most time for TCP, TLS and the first frame together.
    pub handshake_timeout: Duration,
    /// Most time for the peer to take a frame that is written to it.
    pub write_timeout: Duration,
    /// Most time from the first byte of a frame to its last, for frames up to 1 MiB; larger ones get as
    /// much again for every further MiB.
    pub frame_timeout: Duration,
    /// How long bytes on their way may stay unacknowledged by the peer's machine, or the peer without room
    /// for them, before the connection is given up.
    pub unacknowledged_timeout: Duration,
    /// How long a connection is kept without anything to send.
    pub idle_timeout: Duration,
    /// Most time for a [`super::JoinHandler`] to answer.
    pub join_timeout: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        PeerLimits {
            max_queued_messages: 1 << 16,
            max_queued_bytes: 32 << 20,
            frame_bytes: 1 << 20,
            reconnect_first: Duration::from_millis(10),
            reconnect_most: Duration::from_millis(500),
            handshake_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(30),
            unacknowledged_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(5 * 60),
            join_timeout: Duration::from_secs(10),
        }
    }
}
