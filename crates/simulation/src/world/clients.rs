//! Clients: each does one operation at a time, at the node it takes for the leaseholder.

use super::{Happening, World};
use crate::clock::{MILLI, Micros};
use crate::coverage::Kind;
use crate::network::happens;
use crate::plan::NODES;
use crate::register::{Action, Answer, ClientId, OpId, Request};
use crate::watch::Violation;
use rand::Rng;
use replication::NodeId;

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
    /// Whom it takes for the leaseholder.
    hint: Option<NodeId>,
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
        let register = self.rng.random_range(0..self.plan.keys);
        let writes = happens(&mut self.rng, self.plan.writes_per_mille);
        let action = if writes {
            self.values += 1;
            Action::Write(self.values)
        } else {
            Action::Read
        };
        self.ask(client, register, action);
        Ok(())
    }

    /// Sends an operation to some node.
    pub(super) fn ask(&mut self, client: ClientId, register: u8, action: Action) {
        let hint = self.clients.get(client).and_then(|client| client.hint);
        // Now and then a client asks the wrong node, which must not serve it.
        let node = match hint.filter(|_| !happens(&mut self.rng, 50)) {
            Some(node) => node,
            None => self.rng.random_range(1..=NODES),
        };
        let op = self.record.begin(client, register, action);
        let now = self.now;
        self.trace
            .note(now, || format!("client {client} asks n{node}: operation {op}, {action:?} k{register}"));
        if let Some(client) = self.clients.get_mut(client) {
            client.current = Some((op, node));
        }
        let delay = self.rng.random_range(CLIENT_DELAY.0..CLIENT_DELAY.1);
        self.after(delay, Happening::Request(node, Request { op, client, register, action }));
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
        client.hint = match answer {
            Answer::Read(_) | Answer::Written => Some(node),
            Answer::NotLeaseholder(leader) => leader,
            Answer::Failed | Answer::Unknown => client.hint,
        };
        self.coverage.count(match answer {
            Answer::Read(_) => Kind::Reads,
            Answer::Written => Kind::Writes,
            Answer::NotLeaseholder(_) | Answer::Failed => Kind::NotLeaseholder,
            Answer::Unknown => Kind::Unknown,
        });
        self.record.answer(request.op, answer).map_err(|detail| Violation::new("answers", detail))?;
        if answer == Answer::Written {
            self.ending.wrote(now);
        }
        self.audit_answer(request, answer);
        self.go_on(request.client, matches!(answer, Answer::NotLeaseholder(_)));
        Ok(())
    }

    /// A client gives up waiting.
    pub(super) fn timed_out(&mut self, client: ClientId, op: OpId) -> Result<(), Violation> {
        let Some(state) = self.clients.get_mut(client) else { return Ok(()) };
        if state.current.map(|(op, _)| op) != Some(op) {
            return Ok(());
        }
        (state.current, state.hint) = (None, None);
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
