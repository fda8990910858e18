//! The addresses of KV nodes known: pure.
//!
//! Those given at the start are never forgotten. What a node names in its hello replaces what was learned
//! before. The node that said hello last comes first, one that cannot be reached goes to the end.

use std::sync::Arc;

/// Most addresses remembered.
pub const MAX_ADDRESSES: usize = 64;
/// Longest address: a host name of 253 bytes, a colon, a port.
const MAX_ADDRESS_LEN: usize = 253 + 6;

/// The addresses known, the one to try first in front.
#[derive(Debug)]
pub struct Addresses {
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    address: Arc<str>,
    /// Whether it was given at the start.
    given: bool,
}

impl Addresses {
    /// The addresses given, in their order.
    pub fn new(given: &[String]) -> Self {
        let mut addresses = Addresses { known: Vec::new() };
        // What was given is taken as it is: a mistake in it shows as what it is when it is tried.
        given.iter().for_each(|address| addresses.add(address, true));
        addresses
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.iter().map(|known| &known.address)
    }

    /// All of them, for people.
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(|address| address.to_string()).collect()
    }

    /// Remembers what a node said in passing.
    pub fn learn(&mut self, address: &str) {
        if is_address(address) {
            self.add(address, false);
        }
    }

    /// A node said hello and named the cluster's nodes. If it named none, what was learned stays.
    pub fn greeted(&mut self, address: &str, named: &[String]) {
        if !named.is_empty() {
            self.known.retain(|known| known.given || *known.address == *address);
        }
        self.add(address, false);
        named.iter().for_each(|named| self.learn(named));
        if let Some(place) = self.place(address) {
            self.known[..=place].rotate_right(1);
        }
    }

    /// A node cannot be reached any more.
    pub fn lost(&mut self, address: &str) {
        if let Some(place) = self.place(address) {
            self.known[place..].rotate_left(1);
        }
    }

    fn place(&self, address: &str) -> Option<usize> {
        self.iter().position(|known| **known == *address)
    }

    fn add(&mut self, address: &str, given: bool) {
        if self.known.len() < MAX_ADDRESSES && self.place(address).is_none() {
            self.known.push(Known { address: address.into(), given });
        }
    }
}

/// Whether a text that came over the network can be an address to connect to.
pub fn is_address(text: &str) -> bool {
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

    fn check(addresses: &Addresses, names: &str) {
        assert_eq!(addresses.to_vec(), list(names));
    }

    #[test]
    fn the_node_that_said_hello_last_comes_first_and_a_lost_one_last() {
        let mut addresses = Addresses::new(&list("abc"));
        addresses.greeted("b:1", &[]);
        check(&addresses, "bac");
        addresses.lost("b:1");
        check(&addresses, "acb");
        addresses.lost("z:1");
        addresses.greeted("d:1", &[]);
        check(&addresses, "dacb");
        addresses.greeted("d:1", &[]);
        check(&addresses, "dacb");
    }

    #[test]
    fn what_is_learned_is_replaced_and_what_is_given_stays() {
        let mut addresses = Addresses::new(&list("a"));
        addresses.learn("b:1");
        addresses.greeted("c:1", &list("da"));
        check(&addresses, "cad");
        addresses.greeted("d:1", &list("d"));
        check(&addresses, "da");
    }

    #[test]
    fn what_is_learned_is_bounded_and_checked() {
        let mut addresses = Addresses::new(&list("a"));
        let nonsense =
            ["", "x", ":1", "x:0", "x:65536", "x y:1", "x\n:1", "ä:1", &format!("{}:1", "x".repeat(300))];
        nonsense.iter().for_each(|text| addresses.learn(text));
        check(&addresses, "a");
        addresses.learn("[::1]:26258");
        addresses.learn("kv-2.kv.svc:26258");
        assert_eq!(addresses.to_vec().len(), 3);
        let many: Vec<String> = (0..200).map(|number| format!("h{number}:1")).collect();
        addresses.greeted("a:1", &many);
        assert_eq!(addresses.to_vec().len(), MAX_ADDRESSES);
    }
}
