//! After the trouble: the cluster must work again, agree, and fall quiet.

use super::{Happening, World};
use crate::clock::{MILLI, Micros, SECOND};
use crate::layout;
use crate::register::{Action, Answer, ClientId, Request};
use crate::watch::Violation;
use replication::Envelope;
use replication::message::Payload;

/// How often the world looks whether an ending has come further.
const LOOK: Micros = 100 * MILLI;
/// Within this time of the end of all faults a new write is acknowledged.
const RECOVERY: Micros = 10 * SECOND;
/// The clients go on for this long after that.
const AFTERMATH: Micros = 2 * SECOND;
/// Within this time after the last operation all replicas are equal.
const SETTLING: Micros = 20 * SECOND;
/// After this time without operations nothing but heartbeats between nodes is sent...
const CALMING: Micros = 4 * SECOND;
/// ...for this long.
const QUIET: Micros = 3 * SECOND;

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
    audited: u8,
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
                self.ending.enter(Phase::Auditing, now);
                self.after(0, Happening::Next(self.plan.clients));
            }
            Phase::Auditing if self.ending.audited >= self.plan.keys => {
                self.ending.enter(Phase::Settling, now)
            }
            Phase::Auditing if elapsed > RECOVERY => {
                return Err(Violation::new("available again", "the registers cannot be read"));
            }
            Phase::Settling if now >= self.ending.stragglers_until => match self.unsettled() {
                None => {
                    self.check_replicas()?;
                    self.ending.enter(Phase::Calming, now);
                }
                Some(why) if elapsed > SETTLING => return Err(Violation::new("replicas catch up", why)),
                Some(_) => {}
            },
            Phase::Calming if elapsed >= CALMING => {
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
        if self.ending.phase == Phase::Auditing && self.ending.audited < self.plan.keys {
            self.ask(client, self.ending.audited, Action::Read);
        }
        Ok(())
    }

    /// An answer came; if it is one for the reader of the end, the next register is its turn.
    pub(super) fn audit_answer(&mut self, request: Request, answer: Answer) {
        if request.client == self.plan.clients && matches!(answer, Answer::Read(_)) {
            self.ending.audited += 1;
        }
    }

    /// Why the replicas are not equal yet.
    fn unsettled(&mut self) -> Option<String> {
        let Some(leader) = self.leader() else { return Some("nobody leads".to_owned()) };
        let Some(status) = self.status_of(leader) else { return Some("nobody leads".to_owned()) };
        if status.members.is_joint() {
            return Some(format!("the members are still changing: {:?}", status.members));
        }
        if status.committed != status.last || status.applied != status.last {
            return Some(format!("the leader, n{leader}, has not applied its log: {status:?}"));
        }
        for id in status.members.all() {
            match self.status_of(id) {
                Some(other) if other.applied == status.last && !other.incomplete => {}
                other => return Some(format!("n{id} is behind n{leader} ({status:?}): {other:?}")),
            }
        }
        None
    }

    /// All members have the same contents.
    fn check_replicas(&mut self) -> Result<(), Violation> {
        let wrong = |detail: String| Err(Violation::new("equal replicas", detail));
        if let Some(why) = self.unsettled() {
            return wrong(format!("settled before, and no longer: {why}"));
        }
        let status = self.leader().and_then(|leader| self.status_of(leader));
        let members = status.map(|status| status.members.all()).unwrap_or_default();
        let mut first = None;
        for id in members {
            let Some(node) = self.node(id) else { continue };
            let contents = match layout::contents(&*node.engine) {
                Ok(contents) => contents,
                Err(error) => return wrong(format!("n{id}: {error}")),
            };
            let Some((other, expected)) = &first else {
                first = Some((id, contents));
                continue;
            };
            if *expected != contents {
                let place = expected.iter().zip(&contents).find(|(one, two)| one != two);
                let (one, two) = (expected.len(), contents.len());
                return wrong(format!(
                    "n{other} has {one} entries, n{id} {two}; the first that differs: {place:?}"
                ));
            }
        }
        Ok(())
    }

    fn check_quiet(&mut self) -> Result<(), Violation> {
        let status = self.leader().and_then(|leader| self.status_of(leader));
        let members = status.map(|status| status.members).unwrap_or_default();
        for node in self.nodes.iter().filter(|node| !members.contains(node.id)) {
            if node.process.as_ref().is_some_and(|process| !process.store.ranges().is_empty()) {
                let detail = format!("n{} has a replica though it is no member: {members:?}", node.id);
                return Err(Violation::new("replicas are removed", detail));
            }
        }
        if let Some((first, count)) = &self.ending.noise {
            let detail =
                format!("{} messages besides heartbeats though nothing happens, the first: {first}", count);
            return Err(Violation::new("quiet groups", detail));
        }
        let syncs = self.syncs() - self.ending.syncs;
        if syncs > 0 {
            return Err(Violation::new("quiet groups", format!("{syncs} syncs though nothing happens")));
        }
        Ok(())
    }
}
