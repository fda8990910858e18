//! Which KV node is tried next: pure.
//!
//! Exactly one node serves clients at a time, the leaseholder. The others refuse, and say who it is if
//! they know. A [`Route`] goes around the nodes it knows until one serves:
//!
//! ```text
//!  refused, leaseholder named ──► that node, at once         (at most MAX_HINTS times in a row)
//!  refused otherwise, failed ───► the next node, at once     (once around)
//!  around without success, or too many hints ──► a pause, then on
//! ```
//!
//! A hint never moves the place in the round: nodes that send the client to one that is gone do not keep
//! it from asking all others.

/// Most addresses remembered; those given at the start come first.
pub const MAX_ADDRESSES: usize = 64;
/// Most hints followed without a pause.
const MAX_HINTS: usize = 4;
/// Longest address: a host name of 253 bytes, a colon, a port.
const MAX_ADDRESS_LEN: usize = 253 + 6;

/// When to try [`Route::current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Now.
    AtOnce,
    /// After a pause: trying more often would not help.
    AfterPause,
}

/// The addresses known, and the place among them.
#[derive(Debug)]
pub struct Route {
    known: Vec<String>,
    /// The first so many of `known` were given at the start and are never forgotten.
    given: usize,
    /// The next in the round.
    place: usize,
    /// Tried instead of the next in the round.
    hint: Option<String>,
    /// Nodes of the round tried since the last pause or success.
    tried: usize,
    /// Hints followed since then.
    hints: usize,
}

impl Route {
    /// A route over the addresses given, beginning with the first.
    pub fn new(given: &[String]) -> Self {
        let mut route = Route { known: Vec::new(), given: 0, place: 0, hint: None, tried: 0, hints: 0 };
        // What was given is taken as it is: a mistake in it shows as what it is when it is tried.
        given.iter().for_each(|address| route.add(address.clone()));
        route.given = route.known.len();
        route
    }

    /// The address to try.
    pub fn current(&self) -> &str {
        self.hint.as_deref().or(self.known.get(self.place).map(String::as_str)).unwrap_or_default()
    }

    /// All addresses known, [`Route::current`] first.
    pub fn known(&self) -> Vec<String> {
        let current = self.current();
        let others = self.known.iter().filter(|address| *address != current);
        std::iter::once(current.to_owned()).chain(others.cloned()).collect()
    }

    /// Remembers addresses that a node without the lease named.
    pub fn learn(&mut self, addresses: Vec<String>) {
        addresses.into_iter().filter(|address| is_address(address)).for_each(|address| self.add(address));
    }

    /// The current node serves. What it names replaces what was learned before; if it names nothing, what
    /// was learned stays.
    pub fn connected(&mut self, addresses: Vec<String>) {
        let current = self.current().to_owned();
        if !addresses.is_empty() {
            self.known.truncate(self.given);
            self.add(current.clone());
            self.learn(addresses);
        }
        self.place = self.known.iter().position(|address| *address == current).unwrap_or(0);
        self.hint = None;
        self.start_over();
    }

    /// The current node cannot be reached, or the connection to it ended.
    pub fn failed(&mut self) -> Step {
        self.leave();
        if self.tried < self.known.len() {
            return Step::AtOnce;
        }
        self.start_over();
        Step::AfterPause
    }

    /// The current node does not hold the lease, and named the node that does, if it knew it.
    pub fn refused(&mut self, leaseholder: Option<String>) -> Step {
        let refusing = self.current().to_owned();
        match leaseholder {
            Some(hint) if hint != refusing && is_address(&hint) && self.hints < MAX_HINTS => {
                self.leave();
                self.hints += 1;
                self.add(hint.clone());
                self.hint = Some(hint);
                Step::AtOnce
            }
            _ => self.failed(),
        }
    }

    /// Goes on from the current address to the next in the round.
    fn leave(&mut self) {
        let left = self.hint.take();
        let next = self.known.get(self.place);
        // A hint that stands next in the round has had its turn.
        if left.is_none() || left.as_ref() == next {
            self.tried += 1;
            self.place = if self.place + 1 < self.known.len() { self.place + 1 } else { 0 };
        }
    }

    fn start_over(&mut self) {
        (self.tried, self.hints) = (0, 0);
    }

    fn add(&mut self, address: String) {
        if self.known.len() < MAX_ADDRESSES && !self.known.contains(&address) {
            self.known.push(address);
        }
    }
}

/// Whether a text that came over the network can be an address to connect to.
fn is_address(text: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    text.len() <= MAX_ADDRESS_LEN
        && text.is_ascii()
        && !text.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control())
        && text.rsplit_once(':').is_some_and(|(host, number)| !host.is_empty() && port(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &str) -> Vec<String> {
        names.chars().map(|name| format!("{name}:1")).collect()
    }

    fn route(names: &str) -> Route {
        Route::new(&list(names))
    }

    fn to(name: &str) -> Option<String> {
        Some(format!("{name}:1"))
    }

    #[test]
    fn nodes_are_tried_in_turn_and_a_pause_follows_the_last() {
        let mut route = route("abc");
        for _ in 0..2 {
            for (name, step) in [("a:1", Step::AtOnce), ("b:1", Step::AtOnce), ("c:1", Step::AfterPause)] {
                assert_eq!(route.current(), name);
                assert_eq!(if name == "b:1" { route.refused(None) } else { route.failed() }, step);
            }
        }
    }

    #[test]
    fn a_lone_node_is_tried_with_pauses() {
        let mut route = route("a");
        assert_eq!(route.failed(), Step::AfterPause);
        assert_eq!(route.refused(None), Step::AfterPause);
        assert_eq!(route.refused(to("a")), Step::AfterPause, "it named itself");
        assert_eq!(route.current(), "a:1");
        assert_eq!(Route::new(&[]).failed(), Step::AfterPause);
    }

    #[test]
    fn the_node_named_is_tried_at_once_and_remembered() {
        let mut route = route("a");
        assert_eq!(route.refused(to("b")), Step::AtOnce);
        assert_eq!(route.current(), "b:1");
        route.connected(Vec::new());
        assert_eq!((route.current(), route.known()), ("b:1", list("ba")));
        assert_eq!(route.failed(), Step::AtOnce);
        assert_eq!(route.current(), "a:1", "the one that was lost comes last");
    }

    #[test]
    fn nodes_that_name_each_other_are_left_alone_for_a_while() {
        let mut route = route("ab");
        let mut steps = Vec::new();
        for _ in 0..20 {
            let other = if route.current() == "a:1" { "b" } else { "a" };
            steps.push(route.refused(to(other)));
        }
        let pauses: Vec<usize> = (0..20).filter(|at| steps[*at] == Step::AfterPause).collect();
        assert!(pauses.len() >= 2, "{steps:?}");
        assert!(pauses.windows(2).all(|pair| pair[1] - pair[0] <= MAX_HINTS + 2), "{steps:?}");
    }

    #[test]
    fn a_hint_to_a_node_that_is_gone_does_not_hide_the_others() {
        let mut route = route("abc");
        assert_eq!(route.refused(to("c")), Step::AtOnce);
        assert_eq!(route.failed(), Step::AtOnce);
        assert_eq!(route.current(), "b:1");
        assert_eq!(route.refused(to("c")), Step::AtOnce);
        assert_eq!(route.failed(), Step::AfterPause, "all three were tried");
        assert_eq!(route.current(), "a:1");
    }

    #[test]
    fn every_pause_comes_after_every_node() {
        // Whatever the nodes answer, none is left out between two pauses.
        for answers in 0..3_usize.pow(8) {
            let mut route = route("abcd");
            let (mut seen, mut rest) = (Vec::new(), answers);
            loop {
                seen.push(route.current().to_owned());
                let step = match rest % 3 {
                    0 => route.failed(),
                    1 => route.refused(None),
                    _ => route.refused(to("d")),
                };
                rest /= 3;
                if step == Step::AfterPause {
                    break;
                }
                assert!(seen.len() <= 4 + MAX_HINTS);
            }
            assert!(list("abcd").iter().all(|address| seen.contains(address)), "{answers}: {seen:?}");
        }
    }

    #[test]
    fn what_is_learned_is_bounded_replaced_and_checked() {
        let mut route = route("a");
        route.learn(list("bc"));
        assert_eq!(route.known(), list("abc"));
        route.connected(list("da"));
        assert_eq!(route.known(), list("ad"), "the leaseholder knows better");
        route.connected((0..200).map(|number| format!("h{number}:1")).collect());
        assert_eq!(route.known().len(), MAX_ADDRESSES);
        let nonsense =
            ["", "x", ":1", "x:0", "x:65536", "x y:1", "x\n:1", "ä:1", &format!("{}:1", "x".repeat(300))];
        let mut route = Route::new(&list("a"));
        route.learn(nonsense.map(str::to_owned).to_vec());
        assert_eq!(route.known(), list("a"));
        for text in nonsense {
            assert_eq!(route.refused(Some(text.to_owned())), Step::AfterPause);
        }
        route.learn(vec!["[::1]:26258".into(), "kv-2.kv.svc:26258".into()]);
        assert_eq!(route.known().len(), 3);
    }
}
