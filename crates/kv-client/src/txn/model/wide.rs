//! The part of the model that knows transactions over several ranges.

use super::{Model, Range, Store, TENANT, retry};
use bytes::Bytes;
use kv_api::batch::{BatchRequest, Header, Prepare, RequestKind};
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult, Span, Timestamp, TxnMeta};
use std::collections::BTreeMap;

/// A part of a transaction that can commit.
pub struct Prepared {
    at: u64,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

/// What the range of its anchor knows of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    Staging { at: u64, keys: Vec<Bytes> },
    Committed(u64),
}

/// Whether a range holds all keys of a batch.
pub fn is_within(batch: &BatchRequest, range: &Span) -> bool {
    let holds = |span: &Span| {
        range.contains(&span.start) && (span.is_point() || span.end > span.start && span.end <= range.end)
    };
    batch.header.refresh_spans.iter().all(holds)
        && batch.requests.iter().all(|request| match request.kind.as_ref().unwrap() {
            RequestKind::Get(get) => range.contains(&get.key),
            RequestKind::Scan(scan) => holds(&Span::new(scan.start.clone(), scan.end.clone())),
            RequestKind::Put(put) => range.contains(&put.key),
            RequestKind::ConditionalPut(put) => range.contains(&put.key),
            RequestKind::Delete(delete) => range.contains(&delete.key),
            RequestKind::Increment(increment) => range.contains(&increment.key),
            RequestKind::ClearRange(clear) => holds(&Span::new(clear.start.clone(), clear.end.clone())),
            RequestKind::DecideTxn(decide) => range.contains(&decide.anchor),
            RequestKind::ResolveTxn(resolve) => range.contains(&resolve.key),
            RequestKind::DetachTxn(detach) => range.contains(&detach.key),
            RequestKind::AdoptTxn(adopt) => range.contains(&adopt.key),
            _ => true,
        })
}

impl Model {
    /// Splits the range that holds a key; the right part is on node `leaseholder`. Locks there go.
    pub fn split(&self, key: &str, leaseholder: usize) -> u64 {
        self.split_at(key.as_bytes(), leaseholder)
    }

    /// The same.
    pub fn split_at(&self, key: &[u8], leaseholder: usize) -> u64 {
        let mut store = self.store.lock();
        let key = TENANT.prefixed(key);
        if let Some(range) = store.ranges.iter().find(|range| range.span.start == key) {
            return range.id;
        }
        let id = store.ranges.iter().map(|range| range.id).max().unwrap() + 1;
        let left = store.ranges.iter_mut().find(|range| range.span.contains(&key)).unwrap();
        let mut right = Range::new(id, Span::new(key.clone(), left.span.end.clone()));
        (right.leaseholder, right.clock, right.lease) = (leaseholder, left.clock, id);
        left.span.end = key;
        let span = right.span.clone();
        store.ranges.push(right);
        store.locks.retain(|key, _| !span.contains(key));
        id
    }

    /// A range absorbs its right neighbour, in which nothing is under way.
    pub fn merge(&self, left: u64) {
        let mut store = self.store.lock();
        let border = store.ranges.iter().find(|range| range.id == left).unwrap().span.end.clone();
        let place = store.ranges.iter().position(|range| range.span.start == border).unwrap();
        let right = store.ranges.remove(place);
        assert!(right.prepared.is_empty() && right.records.is_empty());
        assert!(!store.locks.keys().any(|key| right.span.contains(key)));
        let left = store.ranges.iter_mut().find(|range| range.id == left).unwrap();
        left.span.end = right.span.end;
        left.clock = left.clock.max(right.clock);
    }

    /// The leaseholder of a range gives the lease away and gets it again; locks go.
    pub fn lose_lease(&self, range_id: u64) {
        let mut store = self.store.lock();
        let range = store.ranges.iter_mut().find(|range| range.id == range_id).unwrap();
        range.lease += 10;
        range.hops.clear();
        let span = range.span.clone();
        store.locks.retain(|key, _| !span.contains(key));
    }

    /// Waits until nothing is left of any transaction.
    pub async fn settled(&self) {
        for _ in 0..5_000 {
            if self.store.lock().is_clean() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
        let store = self.store.lock();
        let (locks, intents) = (store.locks.len(), store.intents.len());
        let left =
            format!("{locks} locks, {intents} intents, {} parts, {:?}", store.prepared(), store.records());
        panic!("something is left of a transaction: {left}; {:?}", store.trace());
    }
}

impl Store {
    /// Sets the clock of a range ahead.
    pub fn set_clock(&mut self, range_id: u64, clock: u64) {
        let range = self.ranges.iter_mut().find(|range| range.id == range_id).unwrap();
        range.clock = range.clock.max(clock);
    }

    /// The records of transactions, wherever they are.
    pub fn records(&self) -> Vec<Record> {
        self.ranges.iter().flat_map(|range| range.records.values().cloned()).collect()
    }

    /// The parts prepared.
    pub fn prepared(&self) -> usize {
        self.ranges.iter().map(|range| range.prepared.len()).sum()
    }

    /// The batches served, as range and kind of their last request.
    pub fn trace(&self) -> Vec<String> {
        let name = |batch: &BatchRequest| match batch.requests.last().unwrap().kind.as_ref().unwrap() {
            RequestKind::EndTxn(end) if end.prepare.is_some() => "prepare",
            RequestKind::EndTxn(end) if end.commit_at.is_some() => "commit at",
            RequestKind::EndTxn(end) if end.commit => "commit",
            RequestKind::EndTxn(_) => "abort",
            RequestKind::Refresh(_) => "refresh",
            RequestKind::DecideTxn(_) => "decide",
            RequestKind::ResolveTxn(resolve) if resolve.recorded => "settle",
            RequestKind::ResolveTxn(_) => "resolve",
            RequestKind::Get(_) | RequestKind::Scan(_) => "read",
            _ => "write",
        };
        self.received.iter().map(|batch| format!("{} {}", batch.header.range_id, name(batch))).collect()
    }

    /// Who else has prepared to write a key, and where.
    pub(super) fn prepared_by_others(&self, key: &Bytes, id: &Bytes) -> Option<u64> {
        let prepared = self.ranges.iter().flat_map(|range| range.prepared.iter());
        let mut others = prepared.filter(|(other, part)| *other != id && part.writes.contains_key(key));
        others.next().map(|(_, part)| part.at)
    }

    /// Fails if something that is read may have been committed before the transaction began, or is prepared.
    pub(super) fn check_certain(&self, batch: &BatchRequest, snapshot: u64) -> KvResult<()> {
        let id = batch.header.txn.as_ref().map(|meta| meta.id.clone()).unwrap_or_default();
        let limit = batch.header.uncertainty_limit.map_or(snapshot, |limit| limit.wall_ns.min(self.clock));
        let reads = |key: &Bytes| {
            batch.requests.iter().any(|request| match &request.kind {
                Some(RequestKind::Get(get)) => get.key == *key,
                Some(RequestKind::Scan(scan)) => *key >= scan.start && *key < scan.end,
                _ => false,
            })
        };
        for (key, versions) in self.versions.iter().filter(|(key, _)| reads(key)) {
            let newest = versions.iter().map(|(at, _)| *at).filter(|at| *at > snapshot && *at <= limit).max();
            if let Some(at) = newest {
                return Err(KvError::snapshot_behind(Timestamp::new(at, 0)).with_key(key.clone()));
            }
        }
        let prepared = self.ranges[self.asked].prepared.iter().filter(|(other, _)| **other != id);
        for key in prepared.flat_map(|(_, part)| part.writes.keys()).filter(|key| reads(key)) {
            if self.prepared_by_others(key, &id).is_some_and(|at| at <= snapshot.max(limit)) {
                return Err(KvError::new(KvErrorKind::LockNotAvailable, "prepared").with_key(key.clone()));
            }
        }
        Ok(())
    }

    pub(super) fn prepare(
        &mut self,
        header: &Header,
        meta: &TxnMeta,
        writes: Vec<(Bytes, u32, Option<Bytes>)>,
        prepare: &Prepare,
        first: u64,
    ) -> KvResult<Timestamp> {
        let at = prepare.timestamp.wall_ns.max(self.clock + 1);
        self.check_unchanged(header, first, at)?;
        self.clock = at;
        let writes = self.outcome(meta, writes);
        // There may be none: all that was flushed may have been undone.
        let range = &mut self.ranges[self.asked];
        range.prepared.insert(meta.id.clone(), Prepared { at, writes });
        let is_anchor = range.span.contains(&prepare.anchor);
        assert!(is_anchor || prepare.staged.is_empty());
        if is_anchor {
            let record = Record::Staging { at: prepare.timestamp.wall_ns, keys: prepare.staged.clone() };
            range.records.insert(meta.id.clone(), record);
        }
        Ok(Timestamp::new(at, 0))
    }

    /// What is said of a transaction that is prepared: again, or that it is decided.
    pub(super) fn settle(&mut self, meta: &TxnMeta, batch: &BatchRequest) -> Option<KvResult<BatchResponse>> {
        let range = &mut self.ranges[self.asked];
        let response = BatchResponse::default();
        match batch.requests.last()?.kind.as_ref()? {
            RequestKind::EndTxn(end) if end.prepare.is_some() => {
                let prepared = range.prepared.get(&meta.id)?;
                let prepared_at = Some(Timestamp::new(prepared.at, 0));
                Some(Ok(BatchResponse { prepared_at, ..response }))
            }
            RequestKind::DecideTxn(decide) => {
                let at = decide.timestamp.wall_ns;
                let known = range.records.get_mut(&meta.id);
                let Some(record) = known else {
                    return Some(Err(KvError::new(KvErrorKind::Aborted, "it was aborted")));
                };
                match record {
                    Record::Committed(before) if *before != at => {
                        return Some(Err(retry("decided otherwise")));
                    }
                    record => *record = Record::Committed(at),
                }
                self.publish(&meta.id, at);
                Some(Ok(response))
            }
            RequestKind::ResolveTxn(resolve) => {
                let at = resolve.committed.unwrap().wall_ns;
                self.publish(&meta.id, at);
                if resolve.recorded {
                    let range = &mut self.ranges[self.asked];
                    range.prepared.remove(&meta.id);
                    range.records.remove(&meta.id);
                    self.end(&meta.id);
                }
                Some(Ok(response))
            }
            _ => None,
        }
    }

    /// Makes what is prepared in the range that is asked visible.
    fn publish(&mut self, id: &Bytes, at: u64) {
        self.clock = self.clock.max(at);
        let Some(prepared) = self.ranges[self.asked].prepared.get_mut(id) else { return };
        assert!(prepared.at <= at);
        for (key, value) in std::mem::take(&mut prepared.writes) {
            assert!(self.ranges[self.asked].span.contains(&key));
            self.versions.entry(key).or_default().push((at, value));
        }
    }
}
