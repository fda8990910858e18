//! Which KV node a batch is sent to next: pure.
//!
//! A [`Walk`] goes around the nodes that may serve a batch until one does:
//!
//! ```text
//!  does not hold the lease, names who does ──► that node   (at most MAX_HINTS times)
//!  otherwise, or cannot be reached ──────────► the next that was not asked yet
//!  all were asked ───────────────────────────► the walk ends; the next one begins after a pause
//! ```
//!
//! A hint never takes a node out of the walk: nodes that send the client to one that is gone do not keep it
//! from asking all others.

use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Most hints followed in a walk.
const MAX_HINTS: usize = 4;
/// First and longest pause between walks. A node that takes over should not be waited for longer than it
/// takes.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MOST_PAUSE: Duration = Duration::from_millis(250);

/// Once around the nodes.
#[derive(Debug, Default)]
pub struct Walk {
    asked: SmallVec<[Arc<str>; 4]>,
    /// Asked before any other.
    hint: Option<Arc<str>>,
    hints: usize,
}

impl Walk {
    /// The node to ask, out of those that may serve, the likeliest first; `None` at the end of the walk.
    pub fn next<'a>(&mut self, candidates: impl IntoIterator<Item = &'a Arc<str>>) -> Option<Arc<str>> {
        let next = match self.hint.take() {
            Some(hint) => hint,
            None => candidates.into_iter().find(|candidate| !self.asked.contains(candidate))?.clone(),
        };
        self.asked(&next);
        Some(next)
    }

    /// Takes note of a node that was asked without having been chosen here.
    pub fn asked(&mut self, address: &Arc<str>) {
        if !self.asked.contains(address) {
            self.asked.push(address.clone());
        }
    }

    /// The node asked last named another.
    pub fn redirected(&mut self, by: &str, to: Arc<str>) {
        if *to != *by && self.hints < MAX_HINTS {
            self.hints += 1;
            self.hint = Some(to);
        }
    }
}

/// Pauses that grow.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    /// The next pause. `random` is a number from 0 to 1: clients that were sent away together part.
    pub fn next(&mut self, random: f64) -> Duration {
        let most = self.0;
        self.0 = (most * 2).min(MOST_PAUSE);
        most.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &str) -> Vec<Arc<str>> {
        names.chars().map(to).collect()
    }

    fn to(name: char) -> Arc<str> {
        name.to_string().into()
    }

    fn next(walk: &mut Walk, candidates: &[Arc<str>]) -> String {
        walk.next(candidates).map_or_else(|| "end".to_owned(), |address| address.to_string())
    }

    #[test]
    fn nodes_are_asked_in_turn_once_each() {
        let (nodes, mut walk) = (list("abc"), Walk::default());
        assert_eq!(["a", "b", "c", "end", "end"].map(|_| next(&mut walk, &nodes)).join(" "), "a b c end end");
        assert_eq!(next(&mut walk, &list("ad")), "d", "one that came later is asked, too");
        assert_eq!(next(&mut Walk::default(), &[]), "end");
    }

    #[test]
    fn the_node_named_is_asked_at_once_and_hides_no_other() {
        let (nodes, mut walk) = (list("abc"), Walk::default());
        assert_eq!(next(&mut walk, &nodes), "a");
        walk.redirected("a", to('c'));
        assert_eq!(next(&mut walk, &nodes), "c");
        assert_eq!(next(&mut walk, &nodes), "b", "c is gone");
        walk.redirected("b", to('c'));
        assert_eq!(next(&mut walk, &nodes), "c", "it may be back");
        walk.redirected("c", to('c'));
        assert_eq!(next(&mut walk, &nodes), "end", "it named itself");
    }

    #[test]
    fn every_walk_ends_and_asks_every_node() {
        // Whatever the nodes answer.
        let nodes = list("abcd");
        for answers in 0..3_usize.pow(8) {
            let (mut walk, mut seen, mut rest) = (Walk::default(), Vec::new(), answers);
            while let Some(asked) = walk.next(&nodes) {
                match rest % 3 {
                    0 => {}
                    1 => walk.redirected(&asked, to('d')),
                    _ => walk.redirected(&asked, to(if *asked == *"a" { 'b' } else { 'a' })),
                }
                rest /= 3;
                seen.push(asked);
                assert!(seen.len() <= nodes.len() + MAX_HINTS);
            }
            assert!(nodes.iter().all(|node| seen.contains(node)), "{answers}: {seen:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.next(1.0), FIRST_PAUSE);
        assert_eq!(pauses.next(0.0), FIRST_PAUSE);
        let longest = (0..20).map(|_| pauses.next(1.0)).max();
        assert_eq!(longest, Some(MOST_PAUSE));
    }
}
