//! After the trouble: the cluster must work again, agree, and fall quiet, and asleep if groups do.

use super::drive::note;
use super::{Happening, World};
use crate::clock::{MILLI, Micros, SECOND};
use crate::layout::{self, Register};
use crate::network::happens;
use crate::node::Input;
use crate::plan::NODES;
use crate::register::{Action, Answer, ClientId, Request};
use crate::watch::Violation;
use bytes::Bytes;
use replication::message::Payload;
use replication::state::RangeState;
use replication::{Envelope, NodeId, RangeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often the world looks whether an ending has come further.
const LOOK: Micros = 100 * MILLI;
/// Within this time of the end of all faults a new write is acknowledged, and later any register is read.
const RECOVERY: Micros = 10 * SECOND;
/// The clients go on for this long after that.
const AFTERMATH: Micros = 2 * SECOND;
/// Within this time after the last operation all replicas are equal.
const SETTLING: Micros = 20 * SECOND;
/// After this time without operations nothing but heartbeats between nodes is sent, and empty replicas that
/// late messages made are gone...
const CALMING: Micros = 8 * SECOND;
/// ...for this long. What sleeps is asleep by then.
const QUIET: Micros = 3 * SECOND;

/// How often, of a thousand times, somebody looks after a replica of a range.
const LOOKED_AFTER_PER_MILLE: u32 = 50;

/// By range and node, the replicas there are, asleep or awake.
type Replicas = BTreeMap<RangeId, BTreeMap<NodeId, RangeState>>;

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Things go wrong.
    #[default]
    Trouble,
    /// All is well again, and new writes must be acknowledged.
    Recovering,
    /// The clients finish.
    Draining,
    /// Everything is read once more.
    Auditing,
    /// The replicas become equal.
    Settling,
    /// The last messages are sent.
    Calming,
    /// Nothing happens.
    Quiet,
    /// Done.
    Over,
}

/// The end of a run.
#[derive(Debug, Default)]
pub(super) struct Ending {
    phase: Phase,
    since: Micros,
    wrote: bool,
    /// Registers that are still to be read.
    audit: VecDeque<Register>,
    /// Ranges that had a leader that had applied everything.
    settled: BTreeSet<RangeId>,
    /// When the last message that was sent so far arrives.
    last_arrival: Micros,
    /// When the last message that was sent in the trouble arrives.
    stragglers_until: Micros,
    /// The first message of a quiet time that was not a heartbeat, and how many there were.
    noise: Option<(String, u64)>,
    syncs: u64,
}

impl Ending {
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn in_trouble(&self) -> bool {
        self.phase == Phase::Trouble
    }

    /// Whether clients begin new operations.
    pub(super) fn clients_go_on(&self) -> bool {
        self.phase <= Phase::Recovering
    }

    /// A write was acknowledged.
    pub(super) fn wrote(&mut self, now: Micros) {
        self.wrote |= self.phase == Phase::Recovering && now > self.since;
    }

    /// A message will arrive, for the last time at `at`.
    pub(super) fn arrives(&mut self, at: Micros) {
        self.last_arrival = self.last_arrival.max(at);
    }

    /// A message was sent.
    pub(super) fn sent(&mut self, envelope: &Envelope) {
        let heartbeat = matches!(envelope.payload, Some(Payload::Heartbeat(_) | Payload::HeartbeatAck(_)));
        if self.phase == Phase::Quiet && !heartbeat {
            self.noise.get_or_insert_with(|| (format!("{envelope:?}"), 0)).1 += 1;
        }
    }

    fn enter(&mut self, phase: Phase, now: Micros) {
        self.phase = phase;
        self.since = now;
    }
}

impl World {
    /// Sees how the ending goes.
    pub(super) fn look(&mut self) -> Result<(), Violation> {
        self.after(LOOK, Happening::Look);
        let now = self.now;
        let elapsed = now - self.ending.since;
        match self.ending.phase {
            Phase::Trouble => {
                self.heal();
                self.ending.stragglers_until = self.ending.last_arrival;
                self.ending.enter(Phase::Recovering, now);
            }
            Phase::Recovering if self.ending.wrote && elapsed >= AFTERMATH => {
                self.ending.enter(Phase::Draining, now)
            }
            Phase::Recovering if !self.ending.wrote && elapsed > RECOVERY => {
                let detail = format!(
                    "no write was acknowledged in the {} s since all is well again",
                    RECOVERY / SECOND
                );
                return Err(Violation::new("available again", detail));
            }
            Phase::Draining if self.is_idle() => {
                self.ending.audit = self.registers().into();
                self.ending.enter(Phase::Auditing, now);
                self.after(0, Happening::Next(self.plan.clients));
            }
            Phase::Auditing if self.ending.audit.is_empty() => self.ending.enter(Phase::Settling, now),
            Phase::Auditing if elapsed > RECOVERY => {
                let detail = format!("registers that cannot be read: {:?}", self.ending.audit);
                return Err(Violation::new("available again", detail));
            }
            Phase::Settling if now >= self.ending.stragglers_until => match self.unsettled()? {
                None => {
                    self.check_replicas()?;
                    self.ending.enter(Phase::Calming, now);
                }
                Some(why) if elapsed > SETTLING => return Err(Violation::new("replicas catch up", why)),
                Some(_) => self.look_after_ranges()?,
            },
            Phase::Calming if elapsed >= CALMING + 2 * MILLI * self.plan.sleep_after_ms => {
                self.ending.syncs = self.syncs();
                self.ending.enter(Phase::Quiet, now);
            }
            Phase::Quiet if elapsed >= QUIET => {
                self.check_quiet()?;
                self.check_replicas()?;
                self.ending.enter(Phase::Over, now);
            }
            _ => {}
        }
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.nodes.iter().map(|node| node.engine.syncs()).sum()
    }

    /// The reader of the end asks for the next register.
    pub(super) fn audit_next(&mut self, client: ClientId) -> Result<(), Violation> {
        if self.ending.phase == Phase::Auditing
            && let Some(register) = self.ending.audit.front()
        {
            self.ask(client, *register, Action::Read);
        }
        Ok(())
    }

    /// An answer came; if it is one for the reader of the end, the next register is its turn.
    pub(super) fn audit_answer(&mut self, request: Request, answer: Answer) {
        if request.client == self.plan.clients && matches!(answer, Answer::Read(..)) {
            self.ending.audit.pop_front();
            self.ending.since = self.now;
        }
    }

    /// Now and then somebody wants a range that has not settled: a member that missed what its group did before it
    /// fell asleep hears of it, and so does one that is none any more.
    fn look_after_ranges(&mut self) -> Result<(), Violation> {
        let ranges = self.ranges.live().clone();
        for range in ranges {
            for id in 1..=NODES {
                if happens(&mut self.rng, LOOKED_AFTER_PER_MILLE) {
                    self.input(id, Input::Wake(range))?;
                }
            }
        }
        Ok(())
    }

    /// All replicas, as they are in memory and on disk.
    fn replicas(&self) -> Result<Replicas, Violation> {
        let mut replicas = Replicas::new();
        for node in &self.nodes {
            let Some(process) = &node.process else { continue };
            let states = process.store.survey(0, usize::MAX);
            let states = states.map_err(|error| Violation::new("store works", error.to_string()))?;
            for (range, state) in states {
                replicas.entry(range).or_default().insert(node.id, state);
            }
        }
        Ok(replicas)
    }

    /// Why the replicas are not equal yet.
    fn unsettled(&mut self) -> Result<Option<String>, Violation> {
        if let Some(why) = self.merges.under_way() {
            return Ok(Some(why));
        }
        let mut replicas = self.replicas()?;
        for range in self.ranges.gone() {
            if let Some(node) = self.nodes.iter().find(|node| !node.destroyed.contains(range)) {
                return Ok(Some(format!("n{} has not destroyed range {range}", node.id)));
            }
            if let Some(states) = replicas.remove(range) {
                return Ok(Some(format!("range {range} is gone, and there is {states:?}")));
            }
        }
        for range in self.ranges.live().clone() {
            if let Some(why) = self.unsettled_range(range, &replicas.remove(&range).unwrap_or_default()) {
                return Ok(Some(format!("range {range}: {why}")));
            }
        }
        Ok(replicas.pop_first().map(|(range, states)| format!("nobody knows range {range}: {states:?}")))
    }

    fn unsettled_range(&mut self, range: RangeId, states: &BTreeMap<NodeId, RangeState>) -> Option<String> {
        let Some(newest) = newest(states) else { return Some(format!("no replica is complete: {states:?}")) };
        let members = &newest.members;
        if members.is_joint() {
            return Some(format!("the members are still changing: {members:?}"));
        }
        if let Some(leader) = self.leader_of(range) {
            let status = self.status_in(range, leader)?;
            if status.committed != status.last || status.applied != status.last {
                return Some(format!("the leader, n{leader}, has not applied its log: {status:?}"));
            }
            self.ending.settled.insert(range);
        }
        if !self.ending.settled.contains(&range) {
            return Some(format!("nobody leads: {states:?}"));
        }
        for id in members.all() {
            match states.get(&id) {
                Some(other)
                    if other.applied == newest.applied
                        && other.descriptor == newest.descriptor
                        && !other.incomplete => {}
                other => return Some(format!("n{id} is behind {newest:?}: {other:?}")),
            }
        }
        let outside = states.keys().find(|id| !members.contains(**id));
        outside.map(|id| format!("n{id} has a replica though it is no member: {members:?}"))
    }

    /// All members of a range have the same contents, and nobody else has any. Of what is gone nobody has.
    fn check_replicas(&mut self) -> Result<(), Violation> {
        if let Some(why) = self.unsettled()? {
            return Err(Violation::new("equal replicas", format!("settled before, and no longer: {why}")));
        }
        let mut spans = Vec::new();
        for (range, states) in &self.replicas()? {
            let descriptor = newest(states).and_then(|state| state.descriptor.as_ref());
            let Some(descriptor) = descriptor else { continue };
            let members: Vec<NodeId> = states.keys().copied().collect();
            self.check_contents(*range, &descriptor.start, &descriptor.end, &members)?;
            spans.push((descriptor.start.clone(), descriptor.end.clone()));
        }
        for range in self.ranges.gone() {
            if let Some(tenant) = self.ranges.tenant(*range) {
                let (start, end) = layout::span_of(tenant);
                self.check_contents(*range, &start, &end, &[])?;
            }
        }
        check_spans(spans)?;
        self.check_reads()
    }

    fn check_contents(
        &self,
        range: RangeId,
        start: &[u8],
        end: &[u8],
        members: &[NodeId],
    ) -> Result<(), Violation> {
        let wrong =
            |detail: String| Err(Violation::new("equal replicas", format!("range {range}: {detail}")));
        let mut first = None;
        for node in &self.nodes {
            let contents = match layout::contents(&*node.engine, start, end) {
                Ok(contents) => contents,
                Err(error) => return wrong(format!("n{}: {error}", node.id)),
            };
            if !members.contains(&node.id) {
                match contents.first() {
                    None => continue,
                    Some(entry) => return wrong(format!("n{} has no replica, but {entry:?}", node.id)),
                }
            }
            let Some((other, expected)) = &first else {
                first = Some((node.id, contents));
                continue;
            };
            if *expected != contents {
                let place = expected.iter().zip(&contents).find(|(one, two)| one != two);
                let (one, two) = (expected.len(), contents.len());
                return wrong(format!(
                    "n{other} has {one} entries, n{} {two}; the first that differs: {place:?}",
                    node.id
                ));
            }
        }
        Ok(())
    }

    /// What was read at a timestamp is what was there.
    fn check_reads(&self) -> Result<(), Violation> {
        let wrong = |error: String| Violation::new("contents", error);
        for register in self.registers() {
            // Whoever has nothing of it is no member.
            for node in &self.nodes {
                let stored =
                    layout::read(&*node.engine, register).map_err(|error| wrong(error.to_string()))?;
                if stored.version > 0 {
                    self.watch.check_reads(register, stored.value)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Every node has heard what its peers want it to know.
    fn check_notes(&self) -> Result<(), Violation> {
        for node in &self.nodes {
            let Some(process) = &node.process else { continue };
            for (peer, heard) in process.store.notes() {
                let said = self.nodes.iter().find(|node| node.id == peer).map(|node| note(peer, node.epoch));
                if said.as_ref() != Some(heard) {
                    let detail = format!("n{} heard {heard:?} of n{peer}, which said {said:?}", node.id);
                    return Err(Violation::new("notes", detail));
                }
            }
        }
        Ok(())
    }

    fn check_quiet(&mut self) -> Result<(), Violation> {
        if let Some((first, count)) = &self.ending.noise {
            let leads = |range: &RangeId| Some((*range, self.leader_of(*range)?));
            let leaders: Vec<_> = self.ranges.live().iter().filter_map(leads).collect();
            let detail = format!(
                "{count} messages besides heartbeats though nothing happens, the first: {first}; leaders: {leaders:?}"
            );
            return Err(Violation::new("quiet groups", detail));
        }
        let syncs = self.syncs() - self.ending.syncs;
        if syncs > 0 {
            return Err(Violation::new("quiet groups", format!("{syncs} syncs though nothing happens")));
        }
        self.check_notes()?;
        if self.plan.sleep_after_ms == 0 {
            return Ok(());
        }
        for node in &self.nodes {
            let Some(process) = &node.process else { continue };
            let store = &process.store;
            let awake = store.ranges().into_iter().find(|range| store.is_awake(*range));
            if let Some(range) = awake {
                let detail = format!("n{} has range {range} in memory: {:?}", node.id, store.status(range));
                return Err(Violation::new("groups sleep", detail));
            }
        }
        Ok(())
    }
}

/// The replica that has applied most.
fn newest(states: &BTreeMap<NodeId, RangeState>) -> Option<&RangeState> {
    states
        .values()
        .filter(|state| !state.incomplete && state.descriptor.is_some())
        .max_by_key(|state| state.applied)
}

/// The ranges of the first keys have all of them, and each key once.
fn check_spans(mut spans: Vec<(Bytes, Bytes)>) -> Result<(), Violation> {
    spans.sort();
    let mut at = Bytes::from_static(layout::START);
    for (start, end) in spans.iter().filter(|(start, _)| &start[..] < layout::END) {
        if *start != at {
            return Err(Violation::new("one range for every key", format!("{spans:?}")));
        }
        at = end.clone();
    }
    if at == layout::END {
        Ok(())
    } else {
        Err(Violation::new("one range for every key", format!("{spans:?}")))
    }
}
