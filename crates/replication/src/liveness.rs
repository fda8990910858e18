//! Liveness of nodes: who supports whom until when. Pure.
//!
//! Every node asks each peer for support, every [`HEARTBEAT_MS`]. A peer that answers promises: for
//! [`SUPPORT_MS`] from when the heartbeat arrived, by my clock, I help elect no other leader in groups
//! that I know you to lead. The asker counts from when it *sent* the heartbeat, and a little less, so
//! what it relies on ends before what was promised, as long as the rates of the two clocks differ by less
//! than the margin. What the clocks show does not matter.
//!
//! Support that has run out is not the same when it is given again: the peer may have helped somebody else
//! in between. So support has a *generation* that grows each time, and a leader that relies on it must
//! have heard in this generation, in its own term, that the peer knows it for the leader
//! ([`crate::lease`]). After a restart a peer no longer knows what it has promised, and helps nobody until
//! every promise it may have made has run out.
//!
//! The idea is that of node liveness in `cockroachdb-2020`, section 2.2 and 4.3, without the records that
//! have to be written for it.

use crate::Millis;
use crate::faults::{Bug, Faults};
use crate::message::{Heartbeat, HeartbeatAck, NodeId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// How often support is asked for.
pub const HEARTBEAT_MS: Millis = 300;
/// How long it is promised.
pub const SUPPORT_MS: Millis = 1200;
/// What is taken off for clocks that go at different rates: five percent.
pub const RATE_MARGIN: Millis = SUPPORT_MS / 20;
/// Longest note that goes with a heartbeat, in bytes; longer ones are dropped.
pub const MAX_NOTE_BYTES: usize = 1 << 10;

/// Support as its receiver counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// The process that gives it.
    pub epoch: u64,
    /// Which time it is given.
    pub generation: u64,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    /// When it was asked last.
    asked_at: Option<Millis>,
    /// What it gives.
    support: Option<Support>,
    /// Until when.
    supported_until: Millis,
    /// What was promised to it: until when, to which process, which time.
    promised_until: Option<Millis>,
    promised_epoch: u64,
    generation: u64,
    /// When it was last heard of.
    heard_at: Option<Millis>,
    /// What it last said of itself.
    note: Bytes,
}

/// One node's view of its peers.
#[derive(Debug)]
pub struct Liveness {
    /// Before this, nobody is helped.
    grace_until: Millis,
    peers: BTreeMap<NodeId, Peer>,
}

impl Liveness {
    /// The view of a process that starts.
    pub fn new(now: Millis, faults: &impl Faults) -> Self {
        let grace = if faults.planted(Bug::NoGraceAfterRestart) { 0 } else { SUPPORT_MS + RATE_MARGIN };
        Liveness { grace_until: now.saturating_add(grace), peers: BTreeMap::new() }
    }

    /// Whether promises of an earlier process may still stand.
    pub fn is_in_grace(&self, now: Millis) -> bool {
        now < self.grace_until
    }

    /// Notes whom this node shares groups with; nobody else is asked.
    pub fn set_peers(&mut self, peers: impl Iterator<Item = NodeId>) {
        for peer in peers {
            self.peers.entry(peer).or_default();
        }
    }

    /// Whether there is nobody to ask.
    pub fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    /// The peers to ask now.
    pub fn due(&mut self, now: Millis) -> Vec<NodeId> {
        let due = |peer: &Peer| peer.asked_at.is_none_or(|asked| now.saturating_sub(asked) >= HEARTBEAT_MS);
        let peers: Vec<_> = self.peers.iter().filter(|(_, peer)| due(peer)).map(|(node, _)| *node).collect();
        for node in &peers {
            self.peers.entry(*node).or_default().asked_at = Some(now);
        }
        peers
    }

    /// A heartbeat arrived: promises support.
    pub fn heartbeat(&mut self, now: Millis, from: NodeId, epoch: u64, heartbeat: Heartbeat) -> HeartbeatAck {
        let peer = self.peers.entry(from).or_default();
        let lapsed = peer.promised_until.is_none_or(|until| now > until);
        if lapsed || peer.promised_epoch != epoch {
            peer.generation += 1;
        }
        peer.promised_epoch = epoch;
        peer.promised_until = Some(now.saturating_add(SUPPORT_MS));
        peer.heard_at = Some(now);
        if heartbeat.note.len() <= MAX_NOTE_BYTES && peer.note != heartbeat.note {
            // A copy: the buffer it came in is larger.
            peer.note = Bytes::copy_from_slice(&heartbeat.note);
        }
        HeartbeatAck { sent_at: heartbeat.sent_at, epoch, wall_ns: 0 }
    }

    /// Whether this node has promised to support a process of another, and which time it has; 0 is never.
    pub fn promise(&self, now: Millis, node: NodeId, epoch: u64) -> u64 {
        match self.peers.get(&node) {
            Some(peer)
                if peer.promised_epoch == epoch && peer.promised_until.is_some_and(|until| now <= until) =>
            {
                peer.generation
            }
            _ => 0,
        }
    }

    /// The process of a node that was promised support last, and which time.
    pub fn promised(&self, now: Millis, node: NodeId) -> u64 {
        self.peers.get(&node).map_or(0, |peer| self.promise(now, node, peer.promised_epoch))
    }

    /// An answer arrived. True if the support it gives is not the one that was there before.
    pub fn ack(
        &mut self,
        now: Millis,
        from: NodeId,
        support: Support,
        ack: HeartbeatAck,
        own_epoch: u64,
        faults: &impl Faults,
    ) -> bool {
        if ack.epoch != own_epoch || ack.sent_at > now {
            return false;
        }
        let peer = self.peers.entry(from).or_default();
        peer.heard_at = Some(now);
        let until = if faults.planted(Bug::SupportFromArrival) {
            now.saturating_add(SUPPORT_MS)
        } else {
            ack.sent_at.saturating_add(SUPPORT_MS - RATE_MARGIN)
        };
        let changed = peer.support != Some(support);
        if changed {
            let older = peer
                .support
                .is_some_and(|known| known.epoch == support.epoch && known.generation > support.generation);
            if older {
                return false;
            }
            peer.support = Some(support);
            peer.supported_until = until;
        } else {
            peer.supported_until = peer.supported_until.max(until);
        }
        changed
    }

    /// The support a node gives and until when.
    pub fn support(&self, node: NodeId) -> Option<(Support, Millis)> {
        let peer = self.peers.get(&node)?;
        Some((peer.support?, peer.supported_until))
    }

    /// Whether a node was heard of lately.
    pub fn is_live(&self, now: Millis, node: NodeId) -> bool {
        let heard = self.peers.get(&node).and_then(|peer| peer.heard_at);
        heard.is_some_and(|heard| now.saturating_sub(heard) <= SUPPORT_MS)
    }

    /// What each peer last said of itself, if it ever did.
    pub fn notes(&self) -> impl Iterator<Item = (NodeId, &Bytes)> {
        self.peers.iter().filter(|(_, peer)| !peer.note.is_empty()).map(|(node, peer)| (*node, &peer.note))
    }

    /// For each peer that was ever heard of, how long ago that was.
    pub fn silences(&self, now: Millis) -> impl Iterator<Item = (NodeId, Millis)> {
        self.peers.iter().filter_map(move |(node, peer)| Some((*node, now.saturating_sub(peer.heard_at?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Sound;

    fn sent() -> Heartbeat {
        Heartbeat { sent_at: 1000, ..Heartbeat::default() }
    }

    #[test]
    fn what_is_counted_on_ends_before_what_was_promised() {
        let mut asker = Liveness::new(0, &Sound);
        let mut giver = Liveness::new(0, &Sound);
        // The giver's clock shows something else altogether.
        let ack = giver.heartbeat(500_000, 1, 7, sent());
        let support = Support { epoch: 3, generation: giver.promise(500_000, 1, 7) };
        assert!(asker.ack(1050, 2, support, ack, 7, &Sound));
        assert_eq!(asker.support(2), Some((support, 1000 + SUPPORT_MS - RATE_MARGIN)));
        assert_eq!(giver.promise(500_000 + SUPPORT_MS, 1, 7), 1);
        assert_eq!(giver.promise(500_001 + SUPPORT_MS, 1, 7), 0);
    }

    #[test]
    fn support_given_again_is_another() {
        let mut giver = Liveness::new(0, &Sound);
        giver.heartbeat(0, 1, 7, sent());
        giver.heartbeat(SUPPORT_MS, 1, 7, sent());
        assert_eq!(giver.promise(SUPPORT_MS, 1, 7), 1, "without a gap it is the same");
        giver.heartbeat(3 * SUPPORT_MS, 1, 7, sent());
        assert_eq!(giver.promise(3 * SUPPORT_MS, 1, 7), 2);
        giver.heartbeat(3 * SUPPORT_MS, 1, 8, sent());
        assert_eq!(giver.promise(3 * SUPPORT_MS, 1, 8), 3, "another process");
        assert_eq!(giver.promise(3 * SUPPORT_MS, 1, 7), 0, "the one before is gone");
    }

    #[test]
    fn answers_to_others_and_old_answers_do_not_count() {
        let mut asker = Liveness::new(0, &Sound);
        let ack = HeartbeatAck { sent_at: 10, epoch: 6, wall_ns: 0 };
        let support = |generation| Support { epoch: 3, generation };
        assert!(!asker.ack(20, 2, support(1), ack, 7, &Sound), "to an earlier process");
        let ack = HeartbeatAck { epoch: 7, ..ack };
        assert!(asker.ack(20, 2, support(2), ack, 7, &Sound));
        assert!(!asker.ack(21, 2, support(1), ack, 7, &Sound));
        assert_eq!(asker.support(2).map(|(support, _)| support.generation), Some(2));
    }

    #[test]
    fn after_a_restart_nobody_is_helped_for_a_while() {
        let liveness = Liveness::new(100, &Sound);
        assert!(liveness.is_in_grace(100 + SUPPORT_MS));
        assert!(!liveness.is_in_grace(100 + SUPPORT_MS + RATE_MARGIN));
    }
}
