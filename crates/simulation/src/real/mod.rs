//! The real KV nodes and clients in a world of simulated time, networks and disks.
//!
//! # What it is for
//!
//! The other worlds of this crate ([`crate::world`]) put a model of a KV node on [`replication`]. Here nothing
//! is a model but what lies around the processes: [`kv_server::Node`] with its cluster, and
//! [`kv_client::KvClient`], speak through the frames they always speak through. So it finds what is wrong with
//! transactions: with latches, locks, intents, commits, recovery, and with what clients believe.
//!
//! # How a run goes
//!
//! A seed draws a [`plan::Plan`]. A cluster is founded, other nodes join it, and tenants are created. Clients
//! run random transactions over several ranges ([`workload`]), which read all lists as rows or as columns ([`lists`]) that nodes keep
//! in chunks of a few rows, handing some of them to one another between two
//! statements ([`hop`]), while things go wrong ([`faults`]): nodes and clients crash, the
//! network is cut, late, lossy and repeats itself, disks are slow or fail in the middle of a turn, clocks err,
//! leases move, ranges are split and merged, spans begin and cease to be read everywhere, a clock is set to another hour. Then all is
//! well again ([`finish`]).
//!
//! # What is checked
//!
//! | what | how |
//! |---|---|
//! | transactions are serializable, nothing acknowledged is lost, reads are up to date per key | [`histories::check`] |
//! | transactions commit again when all is well | within a minute of virtual time |
//! | a transaction that changes its process goes on in one, and with nothing else going wrong always does | [`hop`] |
//! | nothing is left behind: locks, latches, open transactions, intents | [`kv_server::Node::is_idle`]; first, with all clients connected, nothing that others wait for |
//! | replicas are the same | the cluster's own comparison |
//! | nothing panics, nodes start and run | always |
//! | a node whose wall clock is hours off stops itself, and no other does | before all is well |
//!
//! # How it is deterministic
//!
//! One thread, one tokio runtime with paused time, chance from the seed alone ([`kv_server::environment`],
//! [`kv_client::environment`]). Tokio's timers count milliseconds, so nothing here is shorter. What is not given
//! by the seed: the cluster's id, which nobody looks at, and the order in which hash tables are iterated over;
//! where that would be seen from outside, kv-server and kv-client sort. A test runs seeds twice and compares.
//!
//! # How it is known to work
//!
//! Bugs can be planted in all nodes or in all clients ([`Planted`]).
//!
//! # What is missing
//!
//! Full disks, and members that change other than by
//! the cluster's own decision, are the other worlds' business.

pub mod desk;
pub mod faults;
pub mod finish;
pub mod hop;
mod lists;
mod logs;
pub mod machine;
pub mod plan;
mod run;
pub mod stream;
pub mod workload;
pub mod world;

pub use run::{report, run};

use crate::watch::Violation;
use std::collections::BTreeMap;

/// A bug planted in every node, or in every client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// In nodes.
    Node(kv_server::faults::Bug),
    /// In clients.
    Client(kv_client::faults::Bug),
}

impl Planted {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Planted> {
        let nodes = kv_server::faults::Bug::ALL.into_iter().map(Planted::Node);
        nodes.chain(kv_client::faults::Bug::ALL.into_iter().map(Planted::Client))
    }
}

/// The name of the bug.
impl std::fmt::Debug for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Planted::Node(bug) => bug.fmt(f),
            Planted::Client(bug) => bug.fmt(f),
        }
    }
}

impl From<kv_server::faults::Bug> for Planted {
    fn from(bug: kv_server::faults::Bug) -> Self {
        Planted::Node(bug)
    }
}

impl From<kv_client::faults::Bug> for Planted {
    fn from(bug: kv_client::faults::Bug) -> Self {
        Planted::Client(bug)
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The bug planted.
    pub bug: Option<Planted>,
    /// Whether every tenant keeps the one range it has at first, so that no transaction is over several.
    pub whole_ranges: bool,
    /// Whether nothing goes wrong, and transactions change their processes often.
    pub calm: bool,
    /// Whether keys are read everywhere in every run.
    pub global: bool,
    /// Whether ranges are split and merged all the time.
    pub merges: bool,
    /// Whether leases are handed over all the time.
    pub transfers: bool,
    /// Whether wall clocks are further apart than nodes expect: reads where replicas serve the present may be stale then.
    pub wrong_clocks: bool,
    /// What becomes of the trace.
    pub tracing: Tracing,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bug: None,
            whole_ranges: false,
            calm: false,
            global: false,
            merges: false,
            transfers: false,
            wrong_clocks: false,
            tracing: Tracing::Off,
        }
    }
}

/// What becomes of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// There is none.
    Off,
    /// It is in the [`Outcome`].
    Kept,
    /// It is printed line by line: for runs that come to no end.
    Live,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub violation: Option<Violation>,
    /// What happened how often.
    pub counts: BTreeMap<&'static str, u64>,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
    /// How many transactions there were.
    pub txns: usize,
}

impl Outcome {
    fn failed(seed: u64, violation: Violation) -> Self {
        Outcome { seed, violation: Some(violation), counts: BTreeMap::new(), trace: Vec::new(), txns: 0 }
    }
}
