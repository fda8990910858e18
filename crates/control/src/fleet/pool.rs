//! How many warm nodes to start, and how long to wait after one that would not start.

use std::time::Duration;

/// First wait after a node failed to start; doubled with every further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Longest wait.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// What the decision rests on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PoolView {
    /// Warm nodes there should be.
    pub target: usize,
    /// Warm nodes there are.
    pub warm: usize,
    /// Nodes that were started and have not registered yet.
    pub starting: usize,
    /// Tenants that wait for a node.
    pub waiting: usize,
    /// Nodes in all.
    pub nodes: usize,
    /// Most nodes in all.
    pub max_nodes: usize,
    /// Most nodes that start at a time.
    pub max_starting: usize,
    /// Whether the pool may be filled now, or only the demand be met.
    pub refill: bool,
}

/// How many nodes to start now.
pub(super) fn starts(view: PoolView) -> usize {
    let wanted = view.waiting + if view.refill { view.target } else { 0 };
    wanted
        .saturating_sub(view.warm + view.starting)
        .min(view.max_starting.saturating_sub(view.starting))
        .min(view.max_nodes.saturating_sub(view.nodes))
}

/// How long to wait before the next start after `failures` in a row.
pub(super) fn backoff(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_BACKOFF.saturating_mul(1 << doublings.min(16)).min(MAX_BACKOFF),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: PoolView = PoolView {
        target: 2,
        warm: 0,
        starting: 0,
        waiting: 0,
        nodes: 0,
        max_nodes: 100,
        max_starting: 4,
        refill: true,
    };

    #[test]
    fn fills_the_pool_and_meets_demand() {
        assert_eq!(starts(VIEW), 2);
        assert_eq!(starts(PoolView { warm: 1, ..VIEW }), 1);
        assert_eq!(starts(PoolView { warm: 1, starting: 1, ..VIEW }), 0);
        assert_eq!(starts(PoolView { waiting: 1, ..VIEW }), 3);
        assert_eq!(starts(PoolView { waiting: 1, refill: false, ..VIEW }), 1);
        assert_eq!(starts(PoolView { refill: false, ..VIEW }), 0);
    }

    #[test]
    fn is_bounded_by_starts_under_way_and_nodes_in_all() {
        assert_eq!(starts(PoolView { waiting: 50, ..VIEW }), 4);
        assert_eq!(starts(PoolView { waiting: 50, starting: 3, ..VIEW }), 1);
        assert_eq!(starts(PoolView { waiting: 50, starting: 9, ..VIEW }), 0);
        assert_eq!(starts(PoolView { nodes: 99, ..VIEW }), 1);
        assert_eq!(starts(PoolView { nodes: 101, ..VIEW }), 0);
    }

    #[test]
    fn backs_off_up_to_a_bound() {
        assert_eq!(backoff(0), Duration::ZERO);
        assert_eq!(backoff(1), FIRST_BACKOFF);
        assert_eq!(backoff(2), FIRST_BACKOFF * 2);
        assert_eq!(backoff(u32::MAX), MAX_BACKOFF);
    }
}
