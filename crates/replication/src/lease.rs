//! Until when a leader may serve: pure.

use crate::Millis;
use crate::liveness::Support;
use crate::message::{Members, NodeId};
use kv_api::Timestamp;

/// What a node knows of the lease of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseView {
    /// This node may serve.
    Held {
        /// The lease's sequence number.
        sequence: u64,
        /// Below this timestamp.
        ceiling: Timestamp,
        /// Until then, and longer if support is renewed.
        until: Millis,
    },
    /// Somebody else may, if anybody.
    Elsewhere {
        /// Who leads the group, as far as it is known.
        leader: Option<NodeId>,
    },
}

/// Until when a majority of the voters, of both sets while the members change, supports `leader`.
/// `support` says until when one of them does.
pub fn quorum_until(leader: NodeId, members: &Members, support: impl Fn(NodeId) -> Millis) -> Millis {
    let of = |voters: &[NodeId]| {
        let mut until: Vec<Millis> =
            voters.iter().map(|voter| if *voter == leader { Millis::MAX } else { support(*voter) }).collect();
        until.sort_unstable();
        // The largest time that a majority reaches.
        let majority = voters.len() / 2 + 1;
        until.len().checked_sub(majority).and_then(|place| until.get(place).copied()).unwrap_or(0)
    };
    let now = of(&members.voters);
    if members.voters_outgoing.is_empty() { now } else { now.min(of(&members.voters_outgoing)) }
}

/// Until when a voter's support counts: not at all unless it is the very support under which the voter
/// confirmed that it knows the leader.
pub fn counted(confirmed: Option<Support>, given: Option<(Support, Millis)>) -> Millis {
    match (confirmed, given) {
        (Some(confirmed), Some((given, until))) if confirmed == given => until,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_counts() {
        let members = |voters: &[u64], outgoing: &[u64]| Members {
            voters: voters.to_vec(),
            voters_outgoing: outgoing.to_vec(),
            ..Members::default()
        };
        let support = |node| node * 10;
        assert_eq!(quorum_until(1, &members(&[1], &[]), support), Millis::MAX);
        assert_eq!(quorum_until(1, &members(&[1, 2], &[]), support), 20);
        assert_eq!(quorum_until(1, &members(&[1, 2, 3], &[]), support), 30);
        assert_eq!(quorum_until(1, &members(&[1, 2, 3, 4], &[]), support), 30);
        assert_eq!(quorum_until(1, &members(&[1, 2, 3, 4, 5], &[]), support), 40);
        assert_eq!(quorum_until(9, &members(&[1, 2, 3], &[]), support), 20, "a leader that is no voter");
        assert_eq!(quorum_until(1, &members(&[1, 4, 5], &[1, 2, 3]), support), 30, "both sets");
        assert_eq!(quorum_until(1, &members(&[], &[]), support), 0);
    }

    #[test]
    fn support_counts_only_as_it_was_confirmed() {
        let support = |generation| Support { epoch: 1, generation };
        assert_eq!(counted(Some(support(2)), Some((support(2), 50))), 50);
        assert_eq!(counted(Some(support(1)), Some((support(2), 50))), 0);
        assert_eq!(counted(None, Some((support(2), 50))), 0);
    }
}
