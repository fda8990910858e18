//! The world of a run: time, chance, the network, and the machines.
//!
//! Everything runs on one thread, on a tokio runtime whose time is virtual. Places are nodes (from 1) and
//! clients (from [`FIRST_CLIENT`]); the network and the clocks know both.

use super::machine::Machine;
use super::plan::Plan;
use super::stream::Breaker;
use super::{Options, Tracing};
use crate::clock::{MAX_RATE_PPM, MILLI, Micros, NodeClock};
use crate::network::{Fate, Link, Network};
use crate::trace::Trace;
use crate::watch::Violation;
use histories::Txn;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use replication::{Envelope, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first place that is a client's.
pub const FIRST_CLIENT: NodeId = 101;
/// Most times clocks are read without time going on.
const MAX_LOOKS: u32 = 300_000;
/// How long a part of a stream that was lost takes, as it is sent again.
const RESENT: (Micros, Micros) = (200 * MILLI, 400 * MILLI);

/// The world of a run.
pub struct World {
    /// What kind of run it is.
    pub plan: Plan,
    began: Instant,
    state: Mutex<State>,
    clocks: Mutex<BTreeMap<NodeId, NodeClock>>,
    /// How often clocks were read since time went on, and when that was.
    looks: Mutex<(Micros, u32)>,
    /// What is run.
    pub options: Options,
}

struct State {
    rng: SmallRng,
    network: Network,
    machines: BTreeMap<NodeId, Machine>,
    trace: Trace,
    counts: BTreeMap<&'static str, u64>,
    violation: Option<Violation>,
    history: Vec<Txn>,
    last_value: u64,
    over: bool,
    /// The node whose wall clock was set to a wrong time.
    wrong_clock: Option<NodeId>,
}

impl World {
    /// A world in which nothing runs yet. Must be made within the runtime of the run.
    pub fn new(plan: Plan, rng: SmallRng, options: Options) -> Arc<Self> {
        let network = Network::new(plan.weather);
        Arc::new(World {
            plan,
            began: Instant::now(),
            state: Mutex::new(State {
                rng,
                network,
                machines: BTreeMap::new(),
                trace: Trace::new(options.tracing == Tracing::Kept),
                counts: BTreeMap::new(),
                violation: None,
                history: Vec::new(),
                last_value: 0,
                over: false,
                wrong_clock: None,
            }),
            clocks: Mutex::default(),
            looks: Mutex::default(),
            options,
        })
    }

    // Time and chance.

    /// True time since the beginning.
    pub fn now(&self) -> Micros {
        Micros::try_from(self.began.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    /// Waits; tokio's timers count milliseconds.
    pub async fn sleep(&self, span: Micros) {
        tokio::time::sleep(Duration::from_micros(span)).await;
    }

    /// Draws something.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut SmallRng) -> T) -> T {
        draw(&mut self.state.lock().rng)
    }

    /// A source of chance of its own.
    pub fn own_rng(&self) -> SmallRng {
        SmallRng::seed_from_u64(self.state.lock().rng.next_u64())
    }

    /// Gives a place its clocks.
    pub fn set_clock(&self, place: NodeId) {
        let (now, most) = (self.now(), self.plan.wall_error);
        let (origin, rate, offset) = self.draw(|rng| {
            (
                rng.random_range(0..1_000_000),
                rng.random_range(-MAX_RATE_PPM..=MAX_RATE_PPM),
                rng.random_range(-most..=most),
            )
        });
        self.clocks.lock().insert(place, NodeClock::new(now, origin, rate, offset));
    }

    /// The wall clock of a node is about to be set to a wrong time; false if that of one is wrong already.
    pub fn begin_wrong_clock(&self, id: NodeId) -> bool {
        let mut state = self.state.lock();
        let begins = state.wrong_clock.is_none();
        state.wrong_clock.get_or_insert(id);
        begins
    }

    /// Whether the wall clock of a node was set to a wrong time.
    pub fn has_wrong_clock(&self, id: NodeId) -> bool {
        self.wrong_clock() == Some(id)
    }

    /// The wall clock of a node is set right if it was wrong.
    pub fn end_wrong_clock(&self, id: NodeId) {
        if self.state.lock().wrong_clock.take_if(|wrong| *wrong == id).is_some() {
            self.with_clock(id, |clock, _| clock.set_wall_offset(0));
        }
    }

    /// Whose wall clock is wrong.
    pub fn wrong_clock(&self) -> Option<NodeId> {
        self.state.lock().wrong_clock
    }

    /// Reads a place's clock, or sets it.
    pub fn with_clock<T>(&self, place: NodeId, with: impl FnOnce(&mut NodeClock, Micros) -> T) -> T {
        let now = self.now();
        self.look_out_for_spinning(place, now);
        let mut clocks = self.clocks.lock();
        with(clocks.entry(place).or_insert_with(|| NodeClock::new(now, 0, 0, 0)), now)
    }

    /// Time stands still while a task is ready to run: one that only looks whether it can go on never ends.
    fn look_out_for_spinning(&self, place: NodeId, now: Micros) {
        let looks = {
            let mut looks = self.looks.lock();
            *looks = if looks.0 == now { (now, looks.1 + 1) } else { (now, 0) };
            looks.1
        };
        // It must be torn out of what it does; a panic is a violation.
        if looks >= MAX_LOOKS {
            self.violate("tasks wait instead of spinning", format!("a task at {place} spins"));
            panic!("a task at {place} spins");
        }
    }

    // The network.

    /// Changes the network.
    pub fn with_network<T>(&self, with: impl FnOnce(&mut Network) -> T) -> T {
        with(&mut self.state.lock().network)
    }

    /// Whether nothing passes a link.
    pub fn is_cut(&self, link: Link) -> bool {
        self.state.lock().network.is_cut(link)
    }

    fn fate(&self, link: Link) -> Fate {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.network.send(link, &mut state.rng)
    }

    /// How long what is written to a stream now takes.
    pub fn stream_delay(&self, link: Link) -> Micros {
        match self.fate(link) {
            Fate::Arrives { delay, .. } => delay,
            // It waits for the cut to be mended.
            Fate::Cut => 0,
            Fate::Lost => self.draw(|rng| rng.random_range(RESENT.0..=RESENT.1)),
        }
    }

    /// Sends a message between nodes.
    pub fn send(self: &Arc<Self>, envelope: Envelope) {
        let Fate::Arrives { delay, again, .. } = self.fate((envelope.from, envelope.to)) else {
            return self.count("messages lost");
        };
        if let Some(delay) = again {
            self.deliver_after(delay, envelope.clone());
        }
        self.deliver_after(delay, envelope);
    }

    fn deliver_after(self: &Arc<Self>, delay: Micros, envelope: Envelope) {
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.sleep(delay).await;
            // It may have been cut meanwhile.
            if world.is_cut((envelope.from, envelope.to)) {
                return;
            }
            let node =
                world.with_machine(envelope.to, |machine| Some(Arc::clone(&machine.process.as_ref()?.node)));
            if let Some(node) = node.flatten() {
                node.receive(vec![envelope]);
            }
        });
    }

    // The machines.

    /// Adds a machine.
    pub fn add_machine(&self, id: NodeId, machine: Machine) {
        self.state.lock().machines.insert(id, machine);
    }

    /// The machines.
    pub fn machines(&self) -> Vec<NodeId> {
        self.state.lock().machines.keys().copied().collect()
    }

    /// Does something with a machine. Nothing of the node's own may be called in it.
    pub fn with_machine<T>(&self, id: NodeId, with: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        self.state.lock().machines.get_mut(&id).map(with)
    }

    /// The connections of clients to a node.
    pub fn streams_of(&self, id: NodeId) -> Vec<Breaker> {
        self.with_machine(id, |machine| {
            machine.streams.retain(Breaker::is_live);
            machine.streams.clone()
        })
        .unwrap_or_default()
    }

    // The story.

    /// Adds to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let now = self.now();
        match self.options.tracing {
            Tracing::Off => {}
            Tracing::Kept => self.state.lock().trace.note(now, line),
            Tracing::Live => println!("{:>3}.{:06} {}", now / 1_000_000, now % 1_000_000, line()),
        }
    }

    /// Counts something that happened.
    pub fn count(&self, what: &'static str) {
        *self.state.lock().counts.entry(what).or_default() += 1;
    }

    /// Something that must not happen has happened. The first holds.
    pub fn violate(&self, check: &'static str, detail: impl Into<String>) {
        let mut state = self.state.lock();
        state.over = true;
        let violation = Violation::new(check, detail.into());
        state.violation.get_or_insert(violation);
    }

    /// Whether the trouble is over.
    pub fn is_over(&self) -> bool {
        self.state.lock().over
    }

    /// Ends the trouble.
    pub fn end(&self) {
        self.state.lock().over = true;
    }

    /// What was violated.
    pub fn violation(&self) -> Option<Violation> {
        self.state.lock().violation.clone()
    }

    /// A number that was not used before.
    pub fn unique(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_value += 1;
        state.last_value
    }

    /// Adds a transaction to the history.
    pub fn record(&self, txn: Txn) {
        self.note(|| {
            let ops: Vec<String> = txn.ops.iter().map(|op| format!("{op:?}")).collect();
            format!("client {}: txn {} {:?}: {}", txn.process, txn.id, txn.outcome, ops.join(", "))
        });
        self.state.lock().history.push(txn);
    }

    /// Ends the processes that still run. Nodes know the world, so it would outlive the run with them.
    pub fn end_processes(&self) {
        let machines = std::mem::take(&mut self.state.lock().machines);
        // They ask the world for the time when they end.
        drop(machines);
    }

    /// The history, the trace and the counts.
    pub fn take_story(&self) -> (Vec<Txn>, Vec<String>, BTreeMap<&'static str, u64>) {
        let mut state = self.state.lock();
        let trace = std::mem::take(&mut state.trace).into_lines();
        (std::mem::take(&mut state.history), trace, std::mem::take(&mut state.counts))
    }
}
