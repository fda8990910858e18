//! Simulation: whole clusters of [`replication::Store`]s in one thread, driven by one seed.
//!
//! # What it is for
//!
//! It looks for schedules in which replication breaks a promise: nodes crash at any moment, clocks err,
//! disks are slow or full, and the network loses, delays, repeats and reorders. A run is a function of its
//! seed, so a failure can be seen again, with every step written down.
//!
//! # How a run goes
//!
//! A seed draws a [`plan::Plan`]: the size of the group, the clients, the weather, the kinds of faults.
//! The [`world::World`] has one queue of events in simulated time. Five nodes each run a store on a
//! [`storage::MemoryEngine`], and on the store a small service ([`register`]) that keeps to the rules a KV
//! node keeps to: latches, evaluation under a lease, timestamps below the ceiling. Clients read and
//! write registers there. For twenty to forty simulated seconds things go wrong ([`nemesis`]); then all is
//! well again, and the cluster has to show it.
//!
//! # What is checked
//!
//! | when | what |
//! |---|---|
//! | after every event | at most one node holds the lease; one leader per term; one holder per lease |
//! | with every operation | timestamps grow from lease to lease and from version to version; no two writes make the same version; all parts of a register belong together; what was rejected never has an effect ([`watch`], [`layout`]) |
//! | in the end | every register is linearizable ([`linear`]), and so no acknowledged write is lost; writes are acknowledged again within ten seconds; the members are equal; nothing but heartbeats is sent and nothing is synced when nothing happens |
//! | always | nothing panics; no store fails or refuses to open unless its disk is full; the number of events is bounded |
//!
//! # How it is known to work
//!
//! Every [`replication::Bug`] is planted in turn, and a test fails if no run finds it. Counters
//! ([`coverage`]) say how often each kind of thing happened, and a test fails if one never does.
//!
//! # What is missing
//!
//! One range only: splits and merges do not exist yet. A byte that changes on a disk is not among the faults
//! of a run: the in-memory engine has no checksums, which is where RocksDB would notice. That such a byte
//! panics nothing is a test of its own.
//!
//! Whatever is iterated over is ordered, and chance comes from the seed alone. The shape of it follows
//! TigerBeetle's VOPR and FoundationDB's simulation; drawing the kinds of faults for every seed anew is
//! "Swarm testing" (Groce et al., ISSTA 2012).

pub mod clock;
pub mod coverage;
pub mod fault;
pub mod layout;
pub mod linear;
pub mod nemesis;
pub mod network;
pub mod node;
pub mod plan;
pub mod planted;
pub mod queue;
pub mod record;
pub mod register;
pub mod run;
pub mod scenario;
pub mod service;
pub mod trace;
pub mod watch;
pub mod world;

pub use coverage::{Coverage, Kind};
pub use plan::Plan;
pub use run::{Options, Outcome, Summary, Wanted, operations, report, run, run_many};
