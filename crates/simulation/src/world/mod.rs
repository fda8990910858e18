//! The world: nodes, clients, network and clocks, and the one queue of what happens next.
//!
//! * `drive`: how a node's process is driven, and what comes of it.
//! * `clients`: who reads and writes.
//! * `inject`: faults, and their ends.
//! * `members`: changes of members, as an operator would make them.
//! * `merges`: merges, as whoever looks after ranges would carry them through.
//! * `ranges`: which ranges there are; splits, tenants that come and go.
//! * `finish`: after the trouble: healing, settling, quiet, and the last checks.

mod clients;
mod drive;
mod finish;
mod inject;
mod members;
mod merges;
mod ranges;

use crate::clock::{MAX_RATE_PPM, Micros, NodeClock, SECOND};
use crate::coverage::Coverage;
use crate::layout::{self, Tenant};
use crate::network::{Link, Network};
use crate::node::Node;
use crate::plan::{NODES, Plan};
use crate::planted::{Plant, Planted};
use crate::queue::Queue;
use crate::record::Record;
use crate::register::{Answer, ClientId, FIRST_RANGE, OpId, Request};
use crate::trace::Trace;
use crate::watch::{Violation, Watch};
use bytes::Bytes;
use clients::Client;
use finish::Ending;
use merges::Merges;
use rand::Rng;
use rand::rngs::SmallRng;
use ranges::Ranges;
use replication::{Envelope, NodeId, RangeDescriptor, RangeId};
use std::collections::BTreeSet;

/// More events than any sound run comes near to: somebody sends without end.
const MAX_EVENTS: u64 = 5_000_000;

/// Something that happens.
enum Happening {
    /// A message arrives.
    Deliver(Box<Envelope>),
    /// A process is due for a tick.
    Tick(NodeId, u64),
    /// A process's disk is done.
    DiskDone(NodeId, u64),
    /// A pause ends.
    Resume(NodeId, u64),
    /// A command that was evaluated is proposed.
    Submit(NodeId, u64, RangeId, u64),
    /// A node hears that a range is gone for good.
    Destroy(NodeId, RangeId),
    /// Somebody goes on with the merge by which a range is to be absorbed.
    Merge(RangeId),
    /// A node starts.
    Start(NodeId),
    /// A request arrives.
    Request(NodeId, Request),
    /// An answer arrives.
    Answer(NodeId, Request, Answer),
    /// A client goes on.
    Next(ClientId),
    /// A client has waited long enough.
    Timeout(ClientId, OpId),
    /// The next fault is due.
    Trouble,
    /// Cut links are mended.
    MendLinks(Vec<Link>),
    /// The network is as before.
    MendWeather,
    /// A disk has space again.
    MendDisk(NodeId),
    /// Time to see how the ending goes.
    Look,
}

/// A run under way.
pub struct World {
    now: Micros,
    rng: SmallRng,
    queue: Queue<Happening>,
    plan: Plan,
    planted: Planted,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    network: Network,
    ending: Ending,
    /// The next line of the script.
    script_at: usize,
    ranges: Ranges,
    merges: Merges,
    /// The range that faults concern.
    concern: RangeId,
    /// Who led it when a fault last hit the leader.
    former_leader: NodeId,
    /// The nodes to which something has just happened.
    touched: BTreeSet<NodeId>,
    silent_until: Micros,
    weather_until: Micros,
    slow_evaluation: (Micros, Micros),
    values: u64,
    events: u64,
    record: Record,
    watch: Watch,
    /// What was counted.
    pub coverage: Coverage,
    /// What was noted.
    pub trace: Trace,
}

impl World {
    /// A cluster that is about to start.
    pub fn new(plan: Plan, mut rng: SmallRng, bug: Option<Plant>, trace: Trace) -> Self {
        let nodes = (1..=NODES)
            .map(|id| {
                let wall_offset = rng.random_range(-plan.wall_error..=plan.wall_error);
                let rate = rng.random_range(-MAX_RATE_PPM..=MAX_RATE_PPM);
                Node::new(id, NodeClock::new(0, 0, rate, wall_offset))
            })
            .collect();
        // One more than there are in the plan: it reads everything in the end.
        let clients = (0..=plan.clients).map(|_| Client::default()).collect();
        World {
            now: 0,
            rng,
            queue: Queue::new(),
            network: Network::new(plan.weather),
            plan,
            planted: Planted(bug),
            nodes,
            clients,
            ending: Ending::default(),
            script_at: 0,
            ranges: Ranges::default(),
            merges: Merges::default(),
            concern: FIRST_RANGE,
            former_leader: 1,
            touched: BTreeSet::new(),
            silent_until: 0,
            weather_until: 0,
            slow_evaluation: (0, 0),
            values: layout::INITIAL,
            events: 0,
            record: Record::default(),
            watch: Watch::default(),
            coverage: Coverage::default(),
            trace,
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.begin()?;
        while !self.ending.is_over() {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            if self.events > MAX_EVENTS {
                return Err(Violation::new("bounded work", format!("{MAX_EVENTS} events and no end")));
            }
            self.happen(happening)?;
            self.check_leases()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Violation> {
        self.trace.note(0, || format!("{:?}", self.plan));
        let descriptor = RangeDescriptor {
            range_id: FIRST_RANGE,
            start: Bytes::from_static(layout::START),
            end: Bytes::from_static(layout::END),
            generation: 1,
            ..RangeDescriptor::default()
        };
        for node in self.nodes.iter().filter(|node| self.plan.voters.contains(&node.id)) {
            replication::store::bootstrap(&*node.engine, &descriptor, &self.plan.voters)
                .map_err(|error| Violation::new("bootstrap", error.to_string()))?;
        }
        for id in 1..=NODES {
            self.after(0, Happening::Start(id));
        }
        for client in 0..self.plan.clients {
            let wait = self.rng.random_range(0..SECOND);
            self.after(wait, Happening::Next(client));
        }
        self.schedule_trouble();
        self.queue.push(self.plan.trouble, Happening::Look);
        Ok(())
    }

    fn after(&mut self, delay: Micros, happening: Happening) {
        self.queue.push(self.now + delay, happening);
    }

    fn node(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Deliver(envelope) => self.deliver(*envelope),
            Happening::Tick(node, epoch) => self.tick(node, epoch),
            Happening::DiskDone(node, epoch) => self.disk_done(node, epoch),
            Happening::Resume(node, epoch) => self.resume(node, epoch),
            Happening::Submit(node, epoch, range, id) => self.submit(node, epoch, range, id),
            Happening::Destroy(node, range) => self.destroy(node, range),
            Happening::Merge(right) => self.go_on_merging(right),
            Happening::Start(node) => self.start(node),
            Happening::Request(node, request) => self.request(node, request),
            Happening::Answer(node, request, answer) => self.answered(node, request, answer),
            Happening::Next(client) => self.next_operation(client),
            Happening::Timeout(client, op) => self.timed_out(client, op),
            Happening::Trouble => self.trouble(),
            Happening::MendLinks(links) => {
                self.trace.note(self.now, || format!("mended {links:?}"));
                self.network.mend(&links);
                Ok(())
            }
            Happening::MendWeather => {
                self.mend_weather();
                Ok(())
            }
            Happening::MendDisk(node) => {
                self.mend_disk(node);
                Ok(())
            }
            Happening::Look => {
                let seen = self.look();
                // A wrong answer is worse than whatever else went wrong in the end.
                if seen.is_err() || self.ending.is_over() {
                    self.check_histories()?;
                }
                seen
            }
        }
    }

    /// At every moment at most one node serves a range. Time only takes leases away, so it is enough to look at
    /// the nodes to which something happened.
    fn check_leases(&mut self) -> Result<(), Violation> {
        for touched in std::mem::take(&mut self.touched) {
            self.check_leases_of(touched)?;
        }
        Ok(())
    }

    fn check_leases_of(&mut self, touched: NodeId) -> Result<(), Violation> {
        let now = self.now;
        for range in self.ranges.all() {
            let holder = |node: &Node| node.holds_lease(range, now).map(|sequence| (node.id, sequence));
            let Some((_, sequence)) = self.node(touched).and_then(|node| holder(node)) else { continue };
            let other = self.nodes.iter().filter(|node| node.id != touched).find_map(holder);
            if let Some((other, other_sequence)) = other {
                let detail = format!(
                    "nodes {other} (lease {other_sequence}) and {touched} (lease {sequence}) both hold the \
                     lease of range {range}"
                );
                return Err(Violation::new("disjoint leases", detail));
            }
        }
        Ok(())
    }

    fn check_histories(&mut self) -> Result<(), Violation> {
        let tenants = (0..layout::TENANTS as Tenant).flat_map(layout::registers_of);
        for register in (0..self.plan.keys).chain(tenants) {
            if let Err(anomaly) = crate::linear::check(&self.record.history(register)) {
                return Err(Violation::new("linearizability", format!("register {register}: {anomaly}")));
            }
        }
        Ok(())
    }
}
