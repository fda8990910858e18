//! Which tenants are awake on which nodes: every decision of control, and none of its I/O.
//!
//! [`Fleet`] is a state machine. Events come in as method calls that carry the time; what has to be
//! done comes out as [`Effect`]s, in order. It never waits, never reads a clock and never fails, so
//! tests drive it through hours in microseconds.
//!
//! # A tenant
//!
//! ```text
//!              resolve                        node serves
//!  suspended ───────────► waking ─────────────────────────────────► running ◄──────┐
//!      ▲                   │  ▲ │ node fails: once more, later,        │           │ node is busy
//!      │ tries or time     │  │ │ up to `max_attempts`                 │ idle, or  │
//!      ├───────────────────┘  └─┘                                      │ asked to  │
//!      │                      ▲ someone asked meanwhile                ▼           │
//!      └──────────────────────┴─────────────────────────────────── suspending ─────┘
//!                               node ended
//! ```
//!
//! A suspended tenant has no entry at all: it costs no memory here. Everybody who asks for a tenant
//! that is waking or suspending waits on the same entry, so one wake-up serves all.
//!
//! # A node
//!
//! ```text
//!  starting ── registers ──► warm ── assign ──► assigned ── serves ──► serving ──► suspending
//!      │                      │                    │                      │            │
//!      └──────────────────────┴─────── dies, or is killed ────────────────┴────────────┴──► gone
//! ```
//!
//! # Rules
//!
//! * A tenant has at most one node. A node that was told to end still counts until its process has
//!   ended.
//! * A node that had a tenant is never given another.
//! * After a restart of control, nodes that were running before are expected back ([`Fleet::expect`]).
//!   A tenant one of them served is not woken until that node is back or its time is up.
//! * Everything is bounded: nodes, nodes starting, tenants waking, clients waiting for one.

mod model;
mod pool;
#[cfg(test)]
mod tests;

pub use model::{
    Effect, Limits, Moment, NodeName, NodeView, RegisterError, Registration, Route, SuspendStart,
    TenantStatus, WakeError,
};

use crate::record::TenantRecord;
use pool::PoolView;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Who waits, and until when.
#[derive(Debug)]
struct Waiter<W> {
    token: W,
    deadline: Moment,
}

#[derive(Debug)]
enum TenantState<W> {
    Waking(Waking<W>),
    Running { node: NodeName },
    Suspending { node: NodeName, waiters: Vec<Waiter<W>> },
}

#[derive(Debug)]
struct Waking<W> {
    waiters: Vec<Waiter<W>>,
    /// The node that was asked to serve it; without one the tenant is in `Fleet::queue`.
    node: Option<NodeName>,
    since: Moment,
    attempts: u32,
    /// The next attempt.
    not_before: Moment,
    last_error: Option<String>,
}

#[derive(Debug)]
struct Tenant<W> {
    record: Arc<TenantRecord>,
    state: TenantState<W>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Starting,
    Warm,
    Assigned(u64),
    Serving(u64),
    Suspending(u64),
    /// Of no use any more; it had this tenant.
    Ending(Option<u64>),
}

impl NodeState {
    fn tenant(self) -> Option<u64> {
        match self {
            NodeState::Starting | NodeState::Warm => None,
            NodeState::Assigned(id) | NodeState::Serving(id) | NodeState::Suspending(id) => Some(id),
            NodeState::Ending(tenant) => tenant,
        }
    }
}

/// How a node is brought to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It may refuse.
    Ask,
    /// It tells its clients.
    Stop,
    /// Now.
    Kill,
}

#[derive(Debug)]
struct Node {
    state: NodeState,
    /// Since when it is in that state.
    since: Moment,
    pid: Option<u32>,
    address: Arc<str>,
    connections: u64,
    /// Since when nobody is connected.
    idle_since: Option<Moment>,
    killed: bool,
}

/// All nodes and all tenants that are awake. `W` names someone who waits for an answer.
#[derive(Debug)]
pub struct Fleet<W> {
    limits: Limits,
    nodes: HashMap<NodeName, Node>,
    tenants: HashMap<u64, Tenant<W>>,
    /// Tenants that wait for a node, first come first served.
    queue: VecDeque<u64>,
    /// Nodes that will come back, and the tenants they served.
    expected: HashMap<NodeName, Option<u64>>,
    expected_until: Moment,
    next_number: u64,
    start_failures: u32,
    start_not_before: Moment,
    last_start_error: Option<String>,
    refill_not_before: Moment,
    effects: Vec<Effect<W>>,
}

impl<W> Fleet<W> {
    /// A fleet without nodes, whose first node will be `sql-<first_number>`.
    pub fn new(limits: Limits, first_number: u64) -> Self {
        Self {
            limits,
            nodes: HashMap::new(),
            tenants: HashMap::new(),
            queue: VecDeque::new(),
            expected: HashMap::new(),
            expected_until: Moment::ZERO,
            next_number: first_number,
            start_failures: 0,
            start_not_before: Moment::ZERO,
            last_start_error: None,
            refill_not_before: Moment::ZERO,
            effects: Vec::new(),
        }
    }

    /// What has to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect<W>> {
        std::mem::take(&mut self.effects)
    }

    /// Nodes that an earlier control process left behind and that will register again, with the
    /// tenants they served.
    pub fn expect(&mut self, nodes: impl IntoIterator<Item = (NodeName, Option<u64>)>, until: Moment) {
        self.expected.extend(nodes);
        self.expected_until = until;
    }

    /// Someone wants to know where a tenant is. Answered at once if it runs; otherwise it is woken.
    pub fn resolve(&mut self, record: &Arc<TenantRecord>, token: W, now: Moment) {
        let waiter = Waiter { token, deadline: now + self.limits.wake_timeout };
        let id = record.id;
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return self.wake(record, waiter, now);
        };
        tenant.record = Arc::clone(record);
        match &mut tenant.state {
            TenantState::Running { node } => {
                let node = Arc::clone(node);
                let answer = self.route(id, &node, false);
                self.effects.push(Effect::Answer(waiter.token, answer));
            }
            TenantState::Waking(Waking { waiters, .. }) | TenantState::Suspending { waiters, .. } => {
                if waiters.len() >= self.limits.max_waiters {
                    let error = WakeError::Overloaded("too many clients wait for this tenant");
                    self.effects.push(Effect::Answer(waiter.token, Err(error)));
                } else {
                    waiters.push(waiter);
                }
            }
        }
    }

    fn wake(&mut self, record: &Arc<TenantRecord>, waiter: Waiter<W>, now: Moment) {
        if self.waking() >= self.limits.max_waking {
            let error = WakeError::Overloaded("too many tenants are waking up");
            self.effects.push(Effect::Answer(waiter.token, Err(error)));
            return;
        }
        self.insert_waking(record, vec![waiter], now);
        self.schedule(now);
    }

    fn insert_waking(&mut self, record: &Arc<TenantRecord>, waiters: Vec<Waiter<W>>, now: Moment) {
        let waking =
            Waking { waiters, node: None, since: now, attempts: 0, not_before: now, last_error: None };
        let tenant = Tenant { record: Arc::clone(record), state: TenantState::Waking(waking) };
        self.tenants.insert(record.id, tenant);
        self.queue.push_back(record.id);
    }

    /// A node connected.
    ///
    /// # Errors
    /// If it cannot be used; its connection is to be closed and its process ended.
    pub fn register(&mut self, registration: Registration, now: Moment) -> Result<(), RegisterError> {
        let Registration { node: name, pid, address, tenant } = registration;
        let adopted = match self.nodes.get(&name) {
            Some(Node { state: NodeState::Starting, .. }) => false,
            Some(_) => return Err(RegisterError::Duplicate),
            None if !self.expected.contains_key(&name) => return Err(RegisterError::Unknown),
            None => true,
        };
        let state = match &tenant {
            None => NodeState::Warm,
            Some(record) => {
                self.check_free(record.id)?;
                NodeState::Serving(record.id)
            }
        };
        if !adopted {
            self.start_failures = 0;
            self.last_start_error = None;
            self.start_not_before = now;
        }
        self.expected.remove(&name);
        let node = Node {
            state,
            since: now,
            pid: Some(pid),
            address,
            connections: 0,
            idle_since: tenant.as_ref().map(|_| now),
            killed: false,
        };
        self.nodes.insert(Arc::clone(&name), node);
        if let Some(record) = tenant {
            self.now_running(record, name);
        }
        self.schedule(now);
        Ok(())
    }

    /// Whether a node that comes back may go on serving a tenant.
    fn check_free(&self, id: u64) -> Result<(), RegisterError> {
        match self.tenants.get(&id).map(|tenant| &tenant.state) {
            None | Some(TenantState::Waking(Waking { node: None, .. })) => Ok(()),
            Some(_) => Err(RegisterError::ServedElsewhere),
        }
    }

    /// Enters a tenant as running on `node` and answers who waited.
    fn now_running(&mut self, record: Arc<TenantRecord>, node: NodeName) {
        let id = record.id;
        self.queue.retain(|queued| *queued != id);
        let state = TenantState::Running { node: Arc::clone(&node) };
        let waiters = match self.tenants.insert(id, Tenant { record, state }).map(|before| before.state) {
            Some(TenantState::Waking(Waking { waiters, .. }) | TenantState::Suspending { waiters, .. }) => {
                waiters
            }
            _ => Vec::new(),
        };
        for waiter in waiters {
            let answer = self.route(id, &node, true);
            self.effects.push(Effect::Answer(waiter.token, answer));
        }
    }

    fn route(&self, tenant_id: u64, node: &NodeName, woken: bool) -> Result<Route, WakeError> {
        match self.nodes.get(node) {
            Some(found) => {
                let settings = self.tenants.get(&tenant_id).map(|tenant| &tenant.record.settings);
                let max_connections = settings.and_then(|settings| settings.max_connections);
                let (node, address) = (Arc::clone(node), Arc::clone(&found.address));
                Ok(Route { tenant_id, node, address, max_connections, woken })
            }
            None => Err(WakeError::Unavailable("the tenant's SQL node has just ended".into())),
        }
    }

    /// A node serves the tenant it was given.
    pub fn serving(&mut self, name: &NodeName, now: Moment) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let NodeState::Assigned(id) = node.state else { return };
        node.state = NodeState::Serving(id);
        node.since = now;
        node.idle_since = Some(now);
        let Some(tenant) = self.tenants.get(&id) else { return };
        if let TenantState::Waking(waking) = &tenant.state {
            self.effects.push(Effect::Woke(now.saturating_sub(waking.since)));
        }
        let record = Arc::clone(&tenant.record);
        self.now_running(record, Arc::clone(name));
    }

    /// A node cannot serve the tenant it was given. It knows a tenant's secrets now, so it ends.
    pub fn failed(&mut self, name: &NodeName, message: &str, now: Moment) {
        let Some(node) = self.nodes.get(name) else { return };
        let NodeState::Assigned(id) = node.state else { return };
        self.kill(name, now);
        self.attempt_failed(id, message, now);
        self.schedule(now);
    }

    /// A node has connections and will not end.
    pub fn busy(&mut self, name: &NodeName, now: Moment) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let NodeState::Suspending(id) = node.state else { return };
        if node.killed {
            return;
        }
        node.state = NodeState::Serving(id);
        node.since = now;
        node.idle_since = (node.connections == 0).then_some(now);
        if let Some(tenant) = self.tenants.get(&id) {
            let record = Arc::clone(&tenant.record);
            self.now_running(record, Arc::clone(name));
        }
    }

    /// A node says how many clients it has.
    pub fn status(&mut self, name: &NodeName, connections: u64, now: Moment) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let idle_since = node.idle_since.filter(|_| node.connections == 0);
        node.connections = connections;
        node.idle_since = (connections == 0).then(|| idle_since.unwrap_or(now));
    }

    /// A node's process could not be started.
    pub fn start_failed(&mut self, name: &NodeName, message: &str, now: Moment) {
        if self.nodes.remove(name).is_some() {
            self.count_start_failure(message, now);
            self.schedule(now);
        }
    }

    /// A node's connection is gone while its process may go on: it is of no use any more.
    pub fn lost(&mut self, name: &NodeName, now: Moment) {
        let Some(node) = self.nodes.get(name) else { return };
        match node.state {
            NodeState::Assigned(id) => {
                self.kill(name, now);
                self.attempt_failed(id, "the SQL node ended while it was starting to serve", now);
            }
            NodeState::Serving(id) => {
                self.effects.push(Effect::Gone(Arc::clone(name)));
                self.begin_suspend(id, name, End::Kill, now);
            }
            // It was told to end and takes its leave; a deadline is set.
            NodeState::Suspending(_) | NodeState::Ending(_) => {}
            NodeState::Starting | NodeState::Warm => self.kill(name, now),
        }
        self.schedule(now);
    }

    /// A node's process has ended.
    pub fn exited(&mut self, name: &NodeName, reason: &str, now: Moment) {
        self.expected.remove(name);
        let Some(node) = self.nodes.remove(name) else { return self.schedule(now) };
        match node.state {
            NodeState::Starting => self.count_start_failure(reason, now),
            NodeState::Assigned(id) => self.attempt_failed(id, reason, now),
            NodeState::Serving(id) | NodeState::Suspending(id) => self.slept(id, name, now),
            NodeState::Warm | NodeState::Ending(_) => {}
        }
        self.schedule(now);
    }

    /// The last node of a tenant is gone. Whoever asked meanwhile wakes it again.
    fn slept(&mut self, id: u64, name: &NodeName, now: Moment) {
        self.effects.push(Effect::Gone(Arc::clone(name)));
        self.effects.push(Effect::Slept);
        if let Some(Tenant { record, state: TenantState::Suspending { waiters, .. } }) =
            self.tenants.remove(&id)
            && !waiters.is_empty()
        {
            self.insert_waking(&record, waiters, now);
        }
    }

    fn count_start_failure(&mut self, message: &str, now: Moment) {
        self.start_failures = self.start_failures.saturating_add(1);
        self.start_not_before = now + pool::backoff(self.start_failures);
        self.last_start_error = Some(message.to_owned());
        for id in self.queue.clone() {
            self.attempt_failed(id, message, now);
        }
    }

    /// One attempt to wake a tenant failed: it is tried again later, or given up.
    fn attempt_failed(&mut self, id: u64, message: &str, now: Moment) {
        let Some(Tenant { state: TenantState::Waking(waking), .. }) = self.tenants.get_mut(&id) else {
            return;
        };
        waking.attempts += 1;
        waking.last_error = Some(message.to_owned());
        waking.not_before = now + pool::backoff(waking.attempts);
        if waking.attempts >= self.limits.max_attempts || waking.waiters.is_empty() {
            return self.give_up(id, &WakeError::StartFailed(message.to_owned()));
        }
        if waking.node.take().is_some() {
            self.queue.push_back(id);
        }
    }

    /// Ends a wake-up with an error for everybody who waits.
    fn give_up(&mut self, id: u64, error: &WakeError) {
        self.queue.retain(|queued| *queued != id);
        let Some(tenant) = self.tenants.remove(&id) else { return };
        self.effects.push(Effect::NotWoken);
        if let TenantState::Waking(Waking { waiters, .. }) | TenantState::Suspending { waiters, .. } =
            tenant.state
        {
            for waiter in waiters {
                self.effects.push(Effect::Answer(waiter.token, Err(error.clone())));
            }
        }
    }

    /// Somebody wants a tenant to sleep; `force` ends its node even if clients are connected.
    pub fn suspend(&mut self, id: u64, force: bool, now: Moment) -> SuspendStart {
        match self.tenants.get(&id).map(|tenant| &tenant.state) {
            None => SuspendStart::Asleep,
            Some(TenantState::Waking(_)) => SuspendStart::Waking,
            Some(TenantState::Suspending { node, .. }) => {
                let node = Arc::clone(node);
                if force {
                    self.effects.push(Effect::Stop(node));
                }
                SuspendStart::Asked
            }
            Some(TenantState::Running { node }) => {
                let node = Arc::clone(node);
                self.begin_suspend(id, &node, if force { End::Stop } else { End::Ask }, now);
                SuspendStart::Asked
            }
        }
    }

    fn begin_suspend(&mut self, id: u64, name: &NodeName, end: End, now: Moment) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.state = NodeState::Suspending(id);
            node.since = now;
        }
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.state = TenantState::Suspending { node: Arc::clone(name), waiters: Vec::new() };
        }
        match end {
            End::Ask => self.effects.push(Effect::Suspend(Arc::clone(name))),
            End::Stop => self.effects.push(Effect::Stop(Arc::clone(name))),
            End::Kill => self.kill(name, now),
        }
    }

    /// A tenant no longer exists: nobody waits for it any more and its node ends.
    pub fn dropped(&mut self, id: u64, now: Moment) {
        let node = match self.tenants.get(&id).map(|tenant| &tenant.state) {
            None => return,
            Some(TenantState::Waking(Waking { node, .. })) => node.clone(),
            Some(TenantState::Running { node } | TenantState::Suspending { node, .. }) => {
                Some(Arc::clone(node))
            }
        };
        self.give_up(id, &WakeError::Dropped);
        if let Some(name) = node {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.state = NodeState::Ending(Some(id));
                node.since = now;
            }
            self.effects.push(Effect::Gone(Arc::clone(&name)));
            self.effects.push(Effect::Stop(name));
        }
        self.schedule(now);
    }

    /// A tenant's record changed.
    pub fn updated(&mut self, record: &Arc<TenantRecord>) {
        if let Some(tenant) = self.tenants.get_mut(&record.id) {
            tenant.record = Arc::clone(record);
        }
    }

    /// Ends a node's process. A suspending node keeps its tenant until it has ended.
    fn kill(&mut self, name: &NodeName, now: Moment) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if !matches!(node.state, NodeState::Suspending(id) if self.tenants.contains_key(&id)) {
            node.state = NodeState::Ending(node.state.tenant());
        }
        if !node.killed {
            node.killed = true;
            node.since = now;
            self.effects.push(Effect::Kill(Arc::clone(name)));
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Moment) {
        self.expire_expected(now);
        self.expire_waiters(now);
        self.expire_nodes(now);
        self.suspend_idle(now);
        self.schedule(now);
    }

    fn expire_expected(&mut self, now: Moment) {
        if now >= self.expected_until {
            self.effects.extend(self.expected.drain().map(|(node, _)| Effect::Kill(node)));
        }
    }

    fn expire_waiters(&mut self, now: Moment) {
        let mut forsaken = Vec::new();
        for (id, tenant) in &mut self.tenants {
            let (waiters, reason) = match &mut tenant.state {
                TenantState::Running { .. } => continue,
                TenantState::Suspending { waiters, .. } => (waiters, None),
                TenantState::Waking(Waking { waiters, last_error, .. }) => (waiters, last_error.as_ref()),
            };
            if waiters.iter().all(|waiter| waiter.deadline > now) {
                continue;
            }
            let error = match reason.or(self.last_start_error.as_ref()) {
                Some(reason) => {
                    WakeError::Unavailable(format!("the tenant did not wake up in time: {reason}"))
                }
                None => WakeError::Unavailable("the tenant did not wake up in time".into()),
            };
            let (late, rest) = std::mem::take(waiters).into_iter().partition(|waiter| waiter.deadline <= now);
            *waiters = rest;
            let late: Vec<Waiter<W>> = late;
            self.effects.extend(late.into_iter().map(|w| Effect::Answer(w.token, Err(error.clone()))));
            if matches!(&tenant.state, TenantState::Waking(w) if w.waiters.is_empty() && w.node.is_none()) {
                forsaken.push((*id, error));
            }
        }
        for (id, error) in forsaken {
            self.give_up(id, &error);
        }
    }

    fn expire_nodes(&mut self, now: Moment) {
        for (name, state) in self.overdue(now) {
            match state {
                NodeState::Starting => {
                    self.kill(&name, now);
                    self.count_start_failure("the SQL node did not register in time", now);
                }
                NodeState::Assigned(_) => self.failed(&name, "the SQL node did not serve in time", now),
                _ => self.kill(&name, now),
            }
        }
    }

    fn overdue(&self, now: Moment) -> Vec<(NodeName, NodeState)> {
        self.nodes
            .iter()
            .filter(|(_, node)| self.node_deadline(node).is_some_and(|deadline| deadline <= now))
            .map(|(name, node)| (Arc::clone(name), node.state))
            .collect()
    }

    fn node_deadline(&self, node: &Node) -> Option<Moment> {
        match node.state {
            _ if node.killed => None,
            NodeState::Starting => Some(node.since + self.limits.start_timeout),
            NodeState::Assigned(_) => Some(node.since + self.limits.assign_timeout),
            NodeState::Suspending(_) | NodeState::Ending(_) => Some(node.since + self.limits.suspend_timeout),
            NodeState::Warm | NodeState::Serving(_) => None,
        }
    }

    fn idle_deadline(&self, node: &Node) -> Option<Moment> {
        let NodeState::Serving(id) = node.state else { return None };
        let settings = &self.tenants.get(&id)?.record.settings;
        Some(node.idle_since? + settings.idle_timeout(self.limits.idle_timeout)?)
    }

    fn suspend_idle(&mut self, now: Moment) {
        let idle: Vec<(NodeName, u64)> = self
            .nodes
            .iter()
            .filter(|(_, node)| self.idle_deadline(node).is_some_and(|deadline| deadline <= now))
            .filter_map(|(name, node)| match node.state {
                NodeState::Serving(id) => Some((Arc::clone(name), id)),
                _ => None,
            })
            .collect();
        for (name, id) in idle {
            self.begin_suspend(id, &name, End::Ask, now);
        }
    }

    /// When [`Fleet::tick`] has something to do next. Right after a tick, that is in the future.
    pub fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let nodes =
            self.nodes.values().flat_map(|n| [self.node_deadline(n), self.idle_deadline(n)]).flatten();
        let waiters = self.tenants.values().filter_map(|tenant| match &tenant.state {
            TenantState::Running { .. } => None,
            TenantState::Waking(Waking { waiters, .. }) | TenantState::Suspending { waiters, .. } => {
                waiters.iter().map(|waiter| waiter.deadline).min()
            }
        });
        let expected = (!self.expected.is_empty()).then_some(self.expected_until);
        // Retries and starts whose time has come wait for an event, not for the clock.
        let retries = self.queue.iter().filter_map(|id| match &self.tenants.get(id)?.state {
            TenantState::Waking(waking) => Some(waking.not_before),
            _ => None,
        });
        let starts = [self.refill_not_before, self.start_not_before];
        let later = retries.chain(starts).filter(|moment| *moment > now);
        nodes.chain(waiters).chain(expected).chain(later).min()
    }

    fn count(&self, state: NodeState) -> usize {
        self.nodes.values().filter(|node| node.state == state).count()
    }

    fn waking(&self) -> usize {
        self.tenants.values().filter(|tenant| matches!(tenant.state, TenantState::Waking(_))).count()
    }

    /// Gives warm nodes to waiting tenants and starts nodes that are missing.
    fn schedule(&mut self, now: Moment) {
        self.assign_warm(now);
        self.start_missing(now);
        self.make_room(now);
    }

    fn assign_warm(&mut self, now: Moment) {
        let mut later = VecDeque::new();
        while let Some(id) = self.queue.pop_front() {
            let Some(Tenant { record, state: TenantState::Waking(waking) }) = self.tenants.get_mut(&id)
            else {
                continue;
            };
            if waking.not_before > now || self.expected.values().any(|served| *served == Some(id)) {
                later.push_back(id);
                continue;
            }
            let warm = self.nodes.iter_mut().filter(|(_, node)| node.state == NodeState::Warm);
            let Some((name, node)) = warm.min_by_key(|(_, node)| node.since) else {
                later.push_back(id);
                break;
            };
            node.state = NodeState::Assigned(id);
            node.since = now;
            waking.node = Some(Arc::clone(name));
            self.refill_not_before = now + self.limits.refill_delay;
            self.effects.push(Effect::Assign { node: Arc::clone(name), tenant: Arc::clone(record) });
        }
        later.append(&mut self.queue);
        self.queue = later;
    }

    fn start_missing(&mut self, now: Moment) {
        if now < self.start_not_before {
            return;
        }
        let view = PoolView {
            target: self.limits.pool,
            warm: self.count(NodeState::Warm),
            starting: self.count(NodeState::Starting)
                + self.expected.values().filter(|t| t.is_none()).count(),
            waiting: self.queue.iter().filter(|id| !self.is_expected(**id)).count(),
            nodes: self.nodes.len(),
            max_nodes: self.limits.max_nodes,
            max_starting: self.limits.max_starting,
            refill: now >= self.refill_not_before,
        };
        for _ in 0..pool::starts(view) {
            let name: NodeName = format!("sql-{}", self.next_number).into();
            self.next_number += 1;
            let node = Node {
                state: NodeState::Starting,
                since: now,
                pid: None,
                address: "".into(),
                connections: 0,
                idle_since: None,
                killed: false,
            };
            self.nodes.insert(Arc::clone(&name), node);
            self.effects.push(Effect::Start(name));
        }
    }

    /// Whether a tenant may be running on a node that is yet to come back.
    fn is_expected(&self, id: u64) -> bool {
        self.expected.values().any(|served| *served == Some(id))
    }

    /// With all nodes taken and tenants waiting, the tenant that has been idle longest gives way.
    fn make_room(&mut self, now: Moment) {
        let leaving = |node: &Node| matches!(node.state, NodeState::Suspending(_) | NodeState::Ending(_));
        if self.queue.is_empty()
            || self.nodes.len() < self.limits.max_nodes
            || self.nodes.values().any(|node| leaving(node) || node.state == NodeState::Starting)
        {
            return;
        }
        let idlest = self
            .nodes
            .iter()
            .filter_map(|(name, node)| match (node.state, node.idle_since) {
                (NodeState::Serving(id), Some(since)) => Some((since, Arc::clone(name), id)),
                _ => None,
            })
            .min();
        if let Some((_, name, id)) = idlest {
            self.begin_suspend(id, &name, End::Ask, now);
        }
    }

    /// The process of a node that was started here.
    pub fn started(&mut self, name: &NodeName, pid: u32) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.pid = Some(pid);
        }
    }

    /// What a tenant is doing.
    pub fn tenant(&self, id: u64) -> TenantStatus {
        match self.tenants.get(&id).map(|tenant| &tenant.state) {
            None => TenantStatus::Suspended,
            Some(TenantState::Waking(_)) => TenantStatus::Waking,
            Some(TenantState::Suspending { .. }) => TenantStatus::Suspending,
            Some(TenantState::Running { node }) => TenantStatus::Running {
                node: Arc::clone(node),
                connections: self.nodes.get(node).map_or(0, |node| node.connections),
            },
        }
    }

    /// Whether any process that knows a tenant's secrets is still there.
    pub fn has_node_of(&self, id: u64) -> bool {
        self.nodes.values().any(|node| node.state.tenant() == Some(id))
    }

    /// All nodes, in the order they were started.
    pub fn nodes(&self) -> Vec<NodeView> {
        let mut views: Vec<NodeView> = self.nodes.iter().map(|(name, node)| view(name, node)).collect();
        views.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        views
    }

    /// How many tenants are `(waking, running)`, suspending ones included in the latter.
    pub fn awake(&self) -> (usize, usize) {
        let waking = self.waking();
        (waking, self.tenants.len() - waking)
    }
}

fn view(name: &NodeName, node: &Node) -> NodeView {
    let (state, tenant_id) = match node.state {
        NodeState::Starting => ("starting", None),
        NodeState::Warm => ("warm", None),
        NodeState::Assigned(id) => ("assigned", Some(id)),
        NodeState::Serving(id) => ("serving", Some(id)),
        NodeState::Suspending(id) => ("suspending", Some(id)),
        NodeState::Ending(id) => ("ending", id),
    };
    NodeView { name: Arc::clone(name), pid: node.pid, state, tenant_id, connections: node.connections }
}
