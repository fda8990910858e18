//! The KV nodes of a data directory.
//!
//! Node 1 is in `kv`, the others are in `kv-2`, `kv-3`, and so on. A directory that exists is a node of
//! the cluster: their number may grow, but leaving one out would take its replicas away. Each keeps its
//! address in a file, since the others find it by that address.

use super::{DataDir, create, write_atomically};
use crate::error::{Failure, Outcome};
use rand::Rng;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// How many KV nodes a data directory may have.
pub(crate) const NODE_COUNTS: RangeInclusive<u8> = 1..=9;
/// Ports are chosen here: below those the kernel gives to whoever asks for any, so that nobody else has
/// one by chance when the system is started again.
const PORTS: RangeInclusive<u16> = 20_000..=31_999;
/// Attempts to find a free one of them; after that the kernel is asked.
const PORT_ATTEMPTS: usize = 100;

/// A KV node of the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KvNode {
    /// From 1.
    pub number: u8,
    /// Directory of its data.
    pub store: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it is new: it was not part of any earlier run.
    pub new: bool,
}

/// Name of the directory of a node, and of its log.
pub(crate) fn name(number: u8) -> String {
    if number == 1 { "kv".into() } else { format!("kv-{number}") }
}

impl DataDir {
    /// The directory's KV nodes: those it has, and new ones up to `wanted`.
    ///
    /// # Errors
    /// If it has more than `wanted`, or an address is taken by somebody else.
    pub fn kv_nodes(&self, wanted: Option<u8>) -> Outcome<Vec<KvNode>> {
        let root = self.paths.root();
        let present = present(root);
        let count = wanted.unwrap_or(present);
        if count < present {
            return Err(Failure::new(format!(
                "{} has {present} KV nodes; with --nodes {count} some of its data would be missing",
                root.display()
            ))
            .hint(format!(
                "Start it with --nodes {present}, or with more. Nodes can be added, not left out."
            )));
        }
        let mut taken = Vec::new();
        let mut nodes = Vec::new();
        for number in 1..=count {
            let store = root.join(name(number));
            create(&store)?;
            let (address, new) = address(number, &store, count == 1, &mut taken)?;
            nodes.push(KvNode { number, store, address, new });
        }
        Ok(nodes)
    }
}

/// How many KV nodes a directory has. A first one is there from the beginning.
fn present(root: &Path) -> u8 {
    NODE_COUNTS.rev().find(|number| root.join(name(*number)).is_dir()).unwrap_or(1)
}

/// The address of a node, and whether the node is new. A node that is `alone` is known to nobody by its
/// address and may get another one.
fn address(
    number: u8,
    store: &Path,
    alone: bool,
    taken: &mut Vec<TcpListener>,
) -> Outcome<(SocketAddr, bool)> {
    let path = store.join("address");
    let kept = match fs::read_to_string(&path) {
        Ok(text) => Some(text.trim().parse::<SocketAddr>().map_err(|_| {
            Failure::new(format!("{} is damaged: it does not hold an address", path.display()))
                .hint("Write the address the node had into it, as in 127.0.0.1:26258.")
        })?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::io("read", &path, &error)),
    };
    match kept.map(|address| (address, TcpListener::bind(address))) {
        Some((address, Ok(listener))) => {
            taken.push(listener);
            Ok((address, false))
        }
        Some((address, Err(error))) if !alone => {
            Err(Failure::new(format!("KV node {number} cannot listen on {address}: {error}"))
                .hint("Stop what listens there: the other KV nodes know the node by this address."))
        }
        kept => {
            let listener = free_port(&mut rand::rng())
                .map_err(|error| Failure::new(format!("no port is free for KV node {number}: {error}")))?;
            let address = listener.local_addr().map_err(|error| Failure::new(error.to_string()))?;
            write_atomically(&path, format!("{address}\n").as_bytes(), 0o644)?;
            taken.push(listener);
            Ok((address, kept.is_none()))
        }
    }
}

/// Listens on a free port. Held until all nodes have theirs, so that no two get the same.
fn free_port(random: &mut impl Rng) -> io::Result<TcpListener> {
    for _ in 0..PORT_ATTEMPTS {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, random.random_range(PORTS))) {
            return Ok(listener);
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(nodes: &[KvNode]) -> Vec<(u8, String, SocketAddr)> {
        let directory = |node: &KvNode| node.store.file_name().unwrap().to_string_lossy().into_owned();
        nodes.iter().map(|node| (node.number, directory(node), node.address)).collect()
    }

    #[test]
    fn nodes_keep_their_addresses_and_may_only_become_more() {
        let root = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(root.path()).unwrap();
        let one = data_dir.kv_nodes(None).unwrap();
        assert_eq!((one.len(), one[0].new), (1, true));
        assert_eq!(one[0].store, root.path().join("kv"));
        let three = data_dir.kv_nodes(Some(3)).unwrap();
        assert_eq!(three.iter().map(|node| node.new).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(summary(&three)[0], summary(&one)[0]);
        assert!(three[1].store.ends_with("kv-2") && three[2].store.ends_with("kv-3"));
        assert!(three[0].address != three[1].address && three[1].address != three[2].address);
        for again in [None, Some(3)] {
            let again = data_dir.kv_nodes(again).unwrap();
            assert_eq!(summary(&again), summary(&three));
            assert!(again.iter().all(|node| !node.new));
        }
        let failure = data_dir.kv_nodes(Some(2)).unwrap_err().to_string();
        assert!(failure.contains("has 3 KV nodes") && failure.contains("--nodes 3"), "{failure}");
        assert_eq!(data_dir.kv_nodes(Some(9)).unwrap().len(), 9);
    }

    #[test]
    fn an_address_that_somebody_else_has_is_changed_only_for_a_lone_node() {
        let root = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(root.path()).unwrap();
        let old = data_dir.kv_nodes(None).unwrap()[0].address;
        let stranger = TcpListener::bind(old).unwrap();
        let changed = data_dir.kv_nodes(None).unwrap().remove(0);
        assert!(changed.address != old && !changed.new);
        drop(stranger);
        let two = data_dir.kv_nodes(Some(2)).unwrap();
        let _stranger = TcpListener::bind(two[1].address).unwrap();
        let failure = data_dir.kv_nodes(None).unwrap_err().to_string();
        assert!(failure.contains("KV node 2 cannot listen on"), "{failure}");
    }

    #[test]
    fn a_damaged_address_is_named() {
        let root = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(root.path()).unwrap();
        fs::write(root.path().join("kv/address"), "nowhere").unwrap();
        let failure = data_dir.kv_nodes(None).unwrap_err().to_string();
        assert!(failure.contains("kv/address is damaged"), "{failure}");
    }
}
