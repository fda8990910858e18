//! What followers serve: reads at closed timestamps, and reads at the present time by a promise.

use super::promise::{Promised, Word, say};
use crate::layout;
use crate::network::happens;
use crate::planted::ServiceBug;
use crate::register::{Answer, Effect, Request, Turn};
use kv_api::Timestamp;
use rand::Rng;
use replication::{Millis, NodeId, RangeId};
use std::collections::BTreeMap;
use storage::StorageError;

/// After how long a promise is asked for again.
const ASK_AGAIN_MS: Millis = 500;
/// How far below the closed timestamp a read looks, at most, in nanoseconds.
const LOOKS_BACK_NS: u64 = 1_000_000_000;

/// A question under way, and who waits for the answer.
#[derive(Debug)]
struct Asked {
    nonce: u64,
    at: Millis,
    requests: Vec<Request>,
}

/// The reads of one range.
#[derive(Debug, Default)]
struct Waiting {
    asked: Option<Asked>,
    /// Came after that question: its answer may be older than they are.
    latecomers: Vec<Request>,
    /// Wait until enough is applied.
    promised: Vec<(Promised, Vec<Request>)>,
}

/// The reads that wait at a node for what leaseholders say.
#[derive(Debug, Default)]
pub(super) struct Follower {
    ranges: BTreeMap<RangeId, Waiting>,
}

impl Follower {
    /// A client wants to read here what `leader` knows.
    pub(super) fn ask(&mut self, turn: &mut Turn<'_>, leader: NodeId, request: Request) {
        let waiting = self.ranges.entry(request.range).or_default();
        match &mut waiting.asked {
            Some(asked) if turn.planted.in_service(ServiceBug::PromiseForLatecomers) => {
                asked.requests.push(request);
            }
            Some(_) => waiting.latecomers.push(request),
            None => waiting.asked = Some(question(turn, leader, request.range, vec![request])),
        }
    }

    /// The leaseholder has promised something.
    pub(super) fn promised(&mut self, turn: &mut Turn<'_>, range: RangeId, nonce: u64, promised: Promised) {
        let Some(waiting) = self.ranges.get_mut(&range) else { return };
        let Some(asked) = waiting.asked.take_if(|asked| asked.nonce == nonce) else { return };
        if turn.store.applied(range).is_none_or(|applied| applied < promised.index) {
            turn.effects.push(Effect::Waited);
        }
        waiting.promised.push((promised, asked.requests));
        let next = std::mem::take(&mut waiting.latecomers);
        self.ask_for(turn, range, next);
        self.look(turn);
    }

    /// Asks for whoever waits, if there is anybody to ask.
    fn ask_for(&mut self, turn: &mut Turn<'_>, range: RangeId, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let leader = turn.store.status(range).and_then(|status| status.leader);
        match leader.filter(|leader| *leader != turn.store.node()) {
            Some(leader) => {
                let asked = question(turn, leader, range, requests);
                self.ranges.entry(range).or_default().asked = Some(asked);
            }
            None => refuse(turn, requests),
        }
    }

    /// Serves what can be served by now.
    pub(super) fn look(&mut self, turn: &mut Turn<'_>) {
        let careless = turn.planted.in_service(ServiceBug::FollowerServesWithoutWaiting);
        for (range, waiting) in &mut self.ranges {
            let applied = turn.store.applied(*range);
            let ready =
                |promised: &Promised| applied.is_some_and(|applied| careless || applied >= promised.index);
            for (promised, requests) in waiting.promised.extract_if(.., |(promised, _)| ready(promised)) {
                requests.into_iter().for_each(|request| serve(turn, request, promised.timestamp));
            }
        }
        self.ranges.retain(|_, waiting| waiting.asked.is_some() || !waiting.promised.is_empty());
    }

    /// Time has passed: what was not answered is asked again.
    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) {
        for range in self.ranges.keys().copied().collect::<Vec<_>>() {
            let Some(waiting) = self.ranges.get_mut(&range) else { continue };
            let late = |asked: &mut Asked| turn.now.saturating_sub(asked.at) >= ASK_AGAIN_MS;
            if let Some(asked) = waiting.asked.take_if(late) {
                let mut requests = asked.requests;
                requests.append(&mut waiting.latecomers);
                self.ask_for(turn, range, requests);
            }
        }
    }

    /// There is no replica any more, or it is not in memory.
    pub(super) fn forget(&mut self, turn: &mut Turn<'_>, range: RangeId) {
        let Some(waiting) = self.ranges.remove(&range) else { return };
        refuse(turn, waiting.latecomers);
        refuse(turn, waiting.asked.into_iter().flat_map(|asked| asked.requests));
        refuse(turn, waiting.promised.into_iter().flat_map(|(_, requests)| requests));
    }
}

fn refuse(turn: &mut Turn<'_>, requests: impl IntoIterator<Item = Request>) {
    requests.into_iter().for_each(|request| turn.reply(request, Answer::NotLeaseholder(None)));
}

fn question(turn: &mut Turn<'_>, leader: NodeId, range: RangeId, requests: Vec<Request>) -> Asked {
    // Another process of this node must not take the answer for one of its own.
    let nonce = turn.rng.random();
    say(turn, leader, &Word { range, nonce, promised: None });
    Asked { nonce, at: turn.now, requests }
}

/// Serves a read at a timestamp that is closed.
pub(super) fn past(turn: &mut Turn<'_>, request: Request) {
    let Some(closed) = turn.store.closed(request.range) else {
        return turn.reply(request, Answer::NotLeaseholder(None));
    };
    let back = if happens(turn.rng, 500) { 0 } else { turn.rng.random_range(0..LOOKS_BACK_NS) };
    let timestamp = Timestamp::new(closed.wall_ns.saturating_sub(back), closed.logical);
    serve(turn, request, timestamp);
}

fn serve(turn: &mut Turn<'_>, request: Request, timestamp: Timestamp) {
    if !turn.covers(request.range, request.register) {
        return turn.reply(request, Answer::NotHere);
    }
    match layout::read_at(turn.engine, request.register, timestamp) {
        Ok(Some(value)) => turn.reply(request, Answer::Read(timestamp, value)),
        Ok(None) | Err(StorageError::Io(_) | StorageError::DiskFull(_)) => {
            turn.reply(request, Answer::Failed)
        }
        Err(error) => turn.effects.push(Effect::Wrong("contents", format!("{request:?}: {error}"))),
    }
}
