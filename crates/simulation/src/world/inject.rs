//! Faults happen, and end.

use super::{Happening, World};
use crate::clock::{MILLI, Micros};
use crate::coverage::Kind;
use crate::fault::{Direction, Fault, Loss, Which, Who};
use crate::nemesis;
use crate::network::Link;
use crate::node::Input;
use crate::plan::NODES;
use crate::watch::Violation;
use rand::Rng;
use replication::{GroupStatus, NodeId, RangeId};
use storage::StorageError;

impl World {
    /// Plans the next fault.
    pub(super) fn schedule_trouble(&mut self) {
        let at = match &self.plan.script {
            Some(script) => match script.get(self.script_at) {
                Some((at, _)) => *at,
                None => return,
            },
            None => self.now + self.rng.random_range(self.plan.gap.0..=self.plan.gap.1),
        };
        if at < self.plan.trouble {
            self.queue.push(at.max(self.now), Happening::Trouble);
        }
    }

    /// The next fault happens.
    pub(super) fn trouble(&mut self) -> Result<(), Violation> {
        let fault = match &self.plan.script {
            Some(script) => script.get(self.script_at).map(|(_, fault)| fault.clone()),
            None => {
                self.concern = self.resolve_range(Which::Any);
                Some(nemesis::draw(&self.plan, &mut self.rng))
            }
        };
        self.script_at += 1;
        self.schedule_trouble();
        match fault {
            Some(fault) => self.inject(fault),
            None => Ok(()),
        }
    }

    fn inject(&mut self, fault: Fault) -> Result<(), Violation> {
        let now = self.now;
        let range = self.concern;
        self.trace.note(now, || format!("*** {fault:?}, range {range}"));
        match fault {
            Fault::Crash { who, loss, down } => {
                let id = self.resolve(who);
                self.crash(id, loss, down);
            }
            Fault::CrashAfterPersist { who, loss, down } => {
                let id = self.resolve(who);
                if let Some(node) = self.node(id) {
                    node.doomed = Some((loss, down));
                }
            }
            Fault::CrashBetweenWrites { who, writes, loss, down } => {
                let id = self.resolve(who);
                if let Some(node) = self.node(id) {
                    node.fused = Some((loss, down));
                    let error = StorageError::Io("the node is about to crash".to_owned());
                    node.engine.fail_writes_after(Some((writes, error)));
                }
            }
            Fault::Outage { loss, down } => {
                self.coverage.count(Kind::Outages);
                (1..=NODES).for_each(|id| self.crash(id, loss, down));
            }
            Fault::Pause { who, span } => self.pause(who, span),
            Fault::Isolate { side, direction, span } => self.isolate(&side, direction, span),
            Fault::CutPair { one, other, direction, span } => {
                let (one, other) = (self.resolve(one), self.resolve(other));
                let other = if one == other { one % NODES + 1 } else { other };
                self.cut(&[one], &[other], direction, span);
            }
            Fault::Storm { weather, span } => {
                self.coverage.count(Kind::Storms);
                self.network.weather = weather;
                self.weather_until = now + span;
                self.after(span, Happening::MendWeather);
            }
            Fault::SlowDisk { who, sync, span } => {
                self.coverage.count(Kind::SlowDisks);
                let id = self.resolve(who);
                if let Some(node) = self.node(id) {
                    node.slow = (now + span, sync);
                }
            }
            Fault::FullDisk { who, span } => self.fill_disk(who, span),
            Fault::SetWallClock { who, offset } => {
                self.coverage.count(Kind::WallJumps);
                let id = self.resolve(who);
                if let Some(node) = self.node(id) {
                    node.clock.set_wall_offset(offset);
                }
            }
            Fault::SetRate { who, rate_ppm } => {
                self.coverage.count(Kind::RateChanges);
                let id = self.resolve(who);
                if let Some(node) = self.node(id) {
                    node.clock.set_rate(now, rate_ppm);
                }
            }
            Fault::Transfer { to } => {
                let to = self.resolve(to);
                if let Some(leader) = self.leader() {
                    self.coverage.count(Kind::Transfers);
                    self.former_leader = leader;
                    return self.input(leader, Input::Transfer(range, to));
                }
            }
            Fault::Concern(which) => self.concern = self.resolve_range(which),
            Fault::Split { at } => return self.split(at),
            Fault::Merge => self.begin_merge(),
            Fault::Configure => return self.configure(),
            Fault::CreateTenant => return self.create_tenant(),
            Fault::DropTenant { within } => self.drop_tenant(within),
            Fault::Silence { span } => {
                self.coverage.count(Kind::Silences);
                self.silent_until = now + span;
            }
            Fault::ChangeMembers => return self.change_members(),
            Fault::AddLearner(id) => return self.add_learner(id),
            Fault::SetVoters(voters) => return self.set_voters(&voters),
            Fault::SlowEvaluation { delay, span } => self.slow_evaluation = (now + span, delay),
        }
        Ok(())
    }

    /// The node that leads the range that faults concern.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.leader_of(self.concern)
    }

    /// The node that leads a range, in the highest term if several think so.
    pub(super) fn leader_of(&self, range: RangeId) -> Option<NodeId> {
        let leaders = self.nodes.iter().filter_map(|node| Some((node.leads(range)?, node.id)));
        leaders.max().map(|(_, id)| id)
    }

    fn resolve(&mut self, who: Who) -> NodeId {
        let leader = self.leader();
        match who {
            Who::Node(id) => id,
            Who::FormerLeader => self.former_leader,
            Who::Leader => {
                let id = leader.unwrap_or_else(|| self.rng.random_range(1..=NODES));
                self.former_leader = id;
                id
            }
            Who::Follower(place) => {
                let status = leader.and_then(|leader| self.status_of(leader));
                let voters = status.map_or_else(|| self.plan.voters.clone(), |status| status.members.voters);
                let followers: Vec<NodeId> = voters.into_iter().filter(|id| Some(*id) != leader).collect();
                followers.get(place % followers.len().max(1)).copied().unwrap_or(1)
            }
        }
    }

    /// A node's process ends, and what it had not synced may be gone.
    pub(super) fn crash(&mut self, id: NodeId, loss: Loss, down: Micros) {
        let (now, part) = (self.now, self.rng.random_range(0..=8));
        let Some(node) = self.node(id).filter(|node| node.process.is_some()) else { return };
        node.process = None;
        node.doomed = None;
        node.fused = None;
        node.engine.fail_writes_after(None);
        match loss {
            Loss::Nothing => {}
            Loss::Some => node.engine.crash_keeping(part),
            Loss::AllUnsynced => node.engine.crash(),
        }
        self.coverage.count(if loss == Loss::Nothing { Kind::Kills } else { Kind::Crashes });
        self.trace.note(now, || format!("n{id} crashes, loses {loss:?}"));
        self.after(down, Happening::Start(id));
    }

    fn pause(&mut self, who: Who, span: Micros) {
        let (id, until) = (self.resolve(who), self.now + span);
        let Some(node) = self.node(id) else { return };
        let epoch = node.epoch;
        let Some(process) = &mut node.process else { return };
        process.paused_until = process.paused_until.max(until);
        self.coverage.count(Kind::Pauses);
        self.after(span, Happening::Resume(id, epoch));
    }

    fn isolate(&mut self, side: &[Who], direction: Direction, span: Micros) {
        if side.contains(&Who::Leader) {
            self.coverage.count(Kind::Isolations);
        }
        let side: Vec<NodeId> = side.iter().map(|who| self.resolve(*who)).collect();
        let rest: Vec<NodeId> = (1..=NODES).filter(|id| !side.contains(id)).collect();
        self.cut(&side, &rest, direction, span);
    }

    fn cut(&mut self, side: &[NodeId], rest: &[NodeId], direction: Direction, span: Micros) {
        let mut links: Vec<Link> = Vec::new();
        for (inner, outer) in side.iter().flat_map(|inner| rest.iter().map(move |outer| (*inner, *outer))) {
            if inner == outer {
                continue;
            }
            if direction != Direction::Inwards {
                links.push((inner, outer));
            }
            if direction != Direction::Outwards {
                links.push((outer, inner));
            }
        }
        self.coverage.count(if direction == Direction::Both { Kind::Cuts } else { Kind::OneWayCuts });
        let now = self.now;
        self.trace.note(now, || format!("cut {links:?}"));
        self.network.cut(&links);
        self.after(span, Happening::MendLinks(links));
    }

    fn fill_disk(&mut self, who: Who, span: Micros) {
        let (id, until) = (self.resolve(who), self.now + span);
        let Some(node) = self.node(id) else { return };
        node.full_until = node.full_until.max(until);
        node.engine.fail_writes(Some(StorageError::DiskFull("no space".to_owned())));
        self.coverage.count(Kind::FullDisks);
        self.after(span, Happening::MendDisk(id));
    }

    pub(super) fn mend_disk(&mut self, id: NodeId) {
        let now = self.now;
        if let Some(node) = self.node(id).filter(|node| now >= node.full_until) {
            node.engine.fail_writes(None);
        }
    }

    pub(super) fn mend_weather(&mut self) {
        if self.now >= self.weather_until && self.ending.in_trouble() {
            self.network.weather = self.plan.weather;
        }
    }

    /// Everything is as it should be from now on.
    pub(super) fn heal(&mut self) {
        let now = self.now;
        self.trace.note(now, || "*** healed".to_owned());
        self.network.heal();
        self.slow_evaluation = (0, 0);
        self.silent_until = 0;
        self.plan.sync = (50, 200);
        for node in &mut self.nodes {
            node.slow = (0, 0);
            node.full_until = 0;
            node.doomed = None;
            node.fused = None;
            node.engine.fail_writes(None);
            node.engine.fail_writes_after(None);
            if let Some(process) = &mut node.process {
                process.paused_until = now;
            }
        }
        for id in 1..=NODES {
            let epoch = self.node(id).map_or(0, |node| node.epoch);
            self.after(MILLI, Happening::Start(id));
            self.after(MILLI, Happening::Resume(id, epoch));
        }
    }

    /// What a node knows of the range that faults concern.
    pub(super) fn status_of(&mut self, id: NodeId) -> Option<GroupStatus> {
        let range = self.concern;
        self.status_in(range, id)
    }

    /// What a node knows of a range.
    pub(super) fn status_in(&mut self, range: RangeId, id: NodeId) -> Option<GroupStatus> {
        self.node(id)?.process.as_ref()?.store.status(range)
    }
}
