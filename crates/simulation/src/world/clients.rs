//! Clients: each does one operation at a time, in the range it takes for the one with the register, at the
//! node it takes for its leaseholder.

use super::{Happening, World};
use crate::clock::{MILLI, Micros};
use crate::coverage::Kind;
use crate::layout::Register;
use crate::network::happens;
use crate::plan::NODES;
use crate::register::{Action, Answer, ClientId, FIRST_RANGE, OpId, Request};
use crate::watch::Violation;
use rand::Rng;
use rand::seq::IndexedRandom;
use replication::{NodeId, RangeId};
use std::collections::BTreeMap;

/// How long a message between a client and a node takes.
const CLIENT_DELAY: (Micros, Micros) = (50, 500);
/// How long a client waits for an answer.
const PATIENCE: (Micros, Micros) = (300 * MILLI, 3_000 * MILLI);

/// How long it waits before it asks somebody else.
const REFUSED: (Micros, Micros) = (5 * MILLI, 100 * MILLI);

/// A client.
#[derive(Debug, Default)]
pub struct Client {
    /// The operation it waits for, and who it asked.
    current: Option<(OpId, NodeId)>,
    /// The register it is at.
    register: Option<Register>,
    /// The ranges in which it takes registers to be.
    ranges: BTreeMap<Register, RangeId>,
    /// Whom it takes for the leaseholders.
    hints: BTreeMap<RangeId, NodeId>,
}

impl World {
    /// A client begins its next operation.
    pub(super) fn next_operation(&mut self, client: ClientId) -> Result<(), Violation> {
        if client >= self.plan.clients {
            return self.audit_next(client);
        }
        if !self.ending.clients_go_on() {
            return Ok(());
        }
        if self.now < self.silent_until {
            let rest = self.silent_until - self.now + self.rng.random_range(0..MILLI);
            self.after(rest, Happening::Next(client));
            return Ok(());
        }
        let Some(register) = self.turn_to_register(client) else { return Ok(()) };
        // A write is waited for then.
        let least = if self.ending.in_trouble() { 0 } else { 500 };
        let action = if happens(&mut self.rng, self.plan.writes_per_mille.max(least)) {
            self.values += 1;
            Action::Write(self.values)
        } else if happens(&mut self.rng, self.plan.past_per_mille) {
            Action::Past
        } else if happens(&mut self.rng, self.plan.follows_per_mille) {
            Action::Follow
        } else {
            Action::Read
        };
        self.ask(client, register, action);
        Ok(())
    }

    /// The register of a client's next operation.
    fn turn_to_register(&mut self, client: ClientId) -> Option<Register> {
        let roams = happens(&mut self.rng, self.plan.roams_per_mille);
        let registers = self.registers();
        let at = self.clients.get(client).and_then(|client| client.register);
        let register = match at.filter(|at| !roams && registers.contains(at)) {
            Some(register) => register,
            None => *registers.choose(&mut self.rng)?,
        };
        if let Some(client) = self.clients.get_mut(client) {
            client.register = Some(register);
        }
        Some(register)
    }

    /// The range in which a client takes a register to be: what it knows, or what some node says.
    fn look_up(&mut self, client: ClientId, register: Register) -> RangeId {
        let known = self.clients.get(client).and_then(|client| client.ranges.get(&register).copied());
        if let Some(range) = known.filter(|_| !happens(&mut self.rng, 20)) {
            return range;
        }
        let first = self.rng.random_range(0..NODES);
        let mut nodes = (0..NODES).map(|place| (first + place) % NODES + 1);
        let Some(range) = nodes.find_map(|id| self.covering(id, register)) else { return FIRST_RANGE };
        if let Some(client) = self.clients.get_mut(client) {
            client.ranges.insert(register, range);
        }
        range
    }

    /// Sends an operation to some node.
    pub(super) fn ask(&mut self, client: ClientId, register: Register, action: Action) {
        let range = self.look_up(client, register);
        let hint = self.clients.get(client).and_then(|client| client.hints.get(&range).copied());
        let anywhere = matches!(action, Action::Follow | Action::Past);
        // Now and then a client asks the wrong node, which must not serve it.
        let node = match hint.filter(|_| !anywhere && !happens(&mut self.rng, 50)) {
            Some(node) => node,
            None => self.rng.random_range(1..=NODES),
        };
        let op = self.record.begin(client, register, action);
        let now = self.now;
        self.trace
            .note(now, || format!("client {client} asks n{node}: operation {op}, {action:?} register {register} in range {range}"));
        if let Some(client) = self.clients.get_mut(client) {
            client.current = Some((op, node));
        }
        let delay = self.rng.random_range(CLIENT_DELAY.0..CLIENT_DELAY.1);
        self.after(delay, Happening::Request(node, Request { op, client, range, register, action }));
        let patience = self.rng.random_range(PATIENCE.0..PATIENCE.1);
        self.after(patience, Happening::Timeout(client, op));
    }

    /// An answer is on its way to a client.
    pub(super) fn send_answer(&mut self, node: NodeId, request: Request, answer: Answer) {
        let delay = self.rng.random_range(CLIENT_DELAY.0..CLIENT_DELAY.1);
        self.after(delay, Happening::Answer(node, request, answer));
    }

    /// A client has its answer.
    pub(super) fn answered(
        &mut self,
        node: NodeId,
        request: Request,
        answer: Answer,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(request.client) else { return Ok(()) };
        if client.current.map(|(op, _)| op) != Some(request.op) {
            return Ok(());
        }
        client.current = None;
        let now = self.now;
        self.trace.note(now, || {
            format!("client {} hears from n{node}: operation {}, {answer:?}", request.client, request.op)
        });
        match (answer, request.action) {
            (Answer::Written, _) | (Answer::Read(..), Action::Read) => {
                client.hints.insert(request.range, node);
            }
            (Answer::NotLeaseholder(Some(leader)), _) => {
                client.hints.insert(request.range, leader);
            }
            (Answer::NotLeaseholder(None) | Answer::NotHere, Action::Read | Action::Write(_)) => {
                client.hints.remove(&request.range);
            }
            _ => {}
        }
        if answer == Answer::NotHere {
            client.ranges.remove(&request.register);
        }
        self.coverage.count(match (answer, request.action) {
            (Answer::Read(..), Action::Follow) => Kind::FollowerReads,
            (Answer::Read(..), Action::Past) => Kind::PastReads,
            (Answer::Read(..), _) => Kind::Reads,
            (Answer::Written, _) => Kind::Writes,
            (Answer::NotLeaseholder(_) | Answer::Failed, _) => Kind::NotLeaseholder,
            (Answer::NotHere, _) => Kind::NotHere,
            (Answer::Unknown, _) => Kind::Unknown,
        });
        self.record.answer(request.op, answer).map_err(|detail| Violation::new("answers", detail))?;
        if answer == Answer::Written {
            self.ending.wrote(now);
        }
        self.audit_answer(request, answer);
        self.go_on(request.client, matches!(answer, Answer::NotLeaseholder(_) | Answer::NotHere));
        Ok(())
    }

    /// A client gives up waiting.
    pub(super) fn timed_out(&mut self, client: ClientId, op: OpId) -> Result<(), Violation> {
        let Some(state) = self.clients.get_mut(client) else { return Ok(()) };
        if state.current.map(|(op, _)| op) != Some(op) {
            return Ok(());
        }
        state.current = None;
        // Whoever does not answer may be gone, and so may the range.
        state.hints.clear();
        state.ranges.clear();
        self.coverage.count(Kind::Unknown);
        let now = self.now;
        self.trace.note(now, || format!("client {client} gives up operation {op}"));
        self.go_on(client, false);
        Ok(())
    }

    fn go_on(&mut self, client: ClientId, refused: bool) {
        let (from, to) = if refused { REFUSED } else { self.plan.think };
        let wait = self.rng.random_range(from..=to);
        self.after(wait, Happening::Next(client));
    }
}

impl World {
    /// Whether no client waits for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.clients.iter().all(|client| client.current.is_none())
    }
}
