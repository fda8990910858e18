//! What a leaseholder promises to followers: whoever has applied the log up to an index may serve reads at a
//! timestamp. One promise serves all reads that waited when it was asked for.

use super::Service;
use crate::planted::ServiceBug;
use crate::register::Turn;
use bytes::Bytes;
use kv_api::Timestamp;
use prost::Message;
use replication::{NodeId, RangeId};
use std::collections::{BTreeMap, BTreeSet};

/// A message between services: a question, or the promise that answers it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Word {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range: RangeId,
    /// Names the question.
    #[prost(uint64, tag = "2")]
    pub nonce: u64,
    /// The answer.
    #[prost(message, optional, tag = "3")]
    pub promised: Option<Promised>,
}

/// Nothing is written at or below `timestamp` after the entry at `index`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Promised {
    #[prost(message, required, tag = "1")]
    pub timestamp: Timestamp,
    #[prost(uint64, tag = "2")]
    pub index: u64,
}

/// A promise that waits for the writes that were under way when its timestamp was chosen.
#[derive(Debug)]
pub(super) struct Promise {
    nonce: u64,
    timestamp: Timestamp,
    waits_for: BTreeSet<u64>,
}

pub(super) fn decode(bytes: &Bytes) -> Option<Word> {
    Word::decode(bytes.clone()).ok()
}

pub(super) fn say(turn: &mut Turn<'_>, to: NodeId, word: &Word) {
    turn.store.send_app(to, word.encode_to_vec().into());
}

impl Service {
    /// A follower asks for a promise. Whoever cannot give one is silent; the follower asks again.
    pub(super) fn promise(&mut self, turn: &mut Turn<'_>, to: NodeId, range: RangeId, nonce: u64) {
        if !turn.wake(range) {
            return;
        }
        let Ok(under) = self.under(turn, range) else { return };
        let planted = turn.planted;
        let gives_up = self.ranges.get(&range).is_some_and(|ranged| ranged.gives_up_keys(planted));
        if gives_up || turn.is_frozen(range) {
            return;
        }
        let Some(timestamp) = self.timestamp(turn, range, under) else { return };
        turn.served(range, under.sequence, timestamp, None);
        let ranged = self.ranges.entry(range).or_default();
        let mut waits_for: BTreeSet<u64> = ranged.under_way().map(|(id, _)| id).collect();
        if turn.planted.in_service(ServiceBug::PromiseOverWrites) {
            waits_for.clear();
        }
        let promise = Promise { nonce, timestamp, waits_for };
        if promise.waits_for.is_empty() {
            give(turn, to, range, &promise);
        } else {
            ranged.promises.insert(to, promise);
        }
    }
}

/// The fate of a write is known: the promises that waited for no other are given.
pub(super) fn keep(turn: &mut Turn<'_>, range: RangeId, promises: &mut BTreeMap<NodeId, Promise>, id: u64) {
    promises.retain(|to, promise| {
        promise.waits_for.remove(&id);
        if promise.waits_for.is_empty() {
            give(turn, *to, range, promise);
        }
        !promise.waits_for.is_empty()
    });
}

fn give(turn: &mut Turn<'_>, to: NodeId, range: RangeId, promise: &Promise) {
    let Some(index) = turn.store.applied(range) else { return };
    let promised = Some(Promised { timestamp: promise.timestamp, index });
    say(turn, to, &Word { range, nonce: promise.nonce, promised });
}
