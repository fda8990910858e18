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
//! A seed draws a [`plan::Plan`]: the size of the first group, the clients, the weather, the kinds of faults.
//! The [`world::World`] has one queue of events in simulated time. Five nodes each run a store on a
//! [`storage::MemoryEngine`], and on the store a small [`service`] that keeps to the rules a KV node keeps
//! to: latches, evaluation under a lease, timestamps below the ceiling, promises to followers. Clients read
//! and write registers there. For twenty to forty simulated seconds things go wrong ([`nemesis`]); then all
//! is well again, and the cluster has to show it.
//!
//! # Ranges
//!
//! There is one range at first. It is cut into pieces, pieces are merged again by somebody who may give up at any step,
//! and ranges are created for tenants, whose registers
//! clients then use too, and destroyed again, while everything else goes wrong; the nodes hear of the end of
//! a range one by one, some of them before they have heard of its beginning. The members of every range
//! change on their own. In many runs groups leave memory as soon as nobody has used them for a while.
//!
//! There is no directory: a client asks any node which range has a register, believes what may be old, and
//! asks again when a node says that its replica does not have it.
//!
//! # Who serves
//!
//! The leaseholder reads and writes. Any replica reads too: the past, at timestamps that are closed; and the
//! present, when the leaseholder has promised that nothing is written at or below a timestamp after an index,
//! and the replica has applied that much. What every user of replication has to keep to for that is written down
//! in [`planted::ServiceBug`], each as something left out.
//!
//! # What is checked
//!
//! | when | what |
//! |---|---|
//! | after every event | at most one node holds the lease of a range; one leader per range and term; one holder per lease |
//! | with every operation | timestamps grow from lease to lease and from version to version; a register is served under one lease after the other and at growing timestamps, whichever ranges it belongs to in turn; no two writes make the same version; all parts of a register belong together; what was rejected never has an effect ([`watch`], [`layout`]) |
//! | in the end | every register is linearizable, reads at followers included ([`linear`]), and so no acknowledged write is lost; every read at a timestamp got what was the newest value then; writes are acknowledged again within ten seconds, and every register can be read; every key of the first range belongs to exactly one range; the members of each are equal, descriptors and contents, and nobody else has any; what was destroyed has not come back anywhere; nothing but heartbeats is sent and nothing is synced when nothing happens; nothing stays in memory if groups sleep |
//! | always | nothing panics; no store fails or refuses to open unless its disk is full; the number of events is bounded |
//!
//! # How it is known to work
//!
//! Every [`replication::Bug`] and every [`planted::ServiceBug`] is planted in turn, and a test fails if no run
//! finds it. Counters ([`coverage`]) say how often each kind of thing happened, and a test fails if one never
//! does.
//!
//! # What is missing
//!
//! Transactions are the business of [`real`], where the KV nodes and clients themselves run
//! instead of a model of them. A byte that changes on a disk is not among the faults of a run: the in-memory
//! engine has no checksums, which is where RocksDB would notice. That such a byte panics nothing is a test of its
//! own.
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
pub mod real;
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
pub use run::{Options, Outcome, Summary, Wanted, operations, report, run, run_many, sweep};
