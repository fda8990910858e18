//! Splitting the ranges of tenants.
//!
//! The name of the new range comes from the leaseholder of the root range, which gives one only if the directory
//! knows the range as it is and whose keys follow it. So at most one range at a time is unknown to the directory
//! next to a known one, and whoever looks after the known one finds it there ([`super::ranges`]). Names that are
//! not used are lost.
//!
//! The split is one command of the range's own log. That the directory is told comes after it, and may be
//! interrupted: who next holds the lease of either part tells it.

use super::Cluster;
use super::message::{GetRangeId, Kind, Named};
use crate::directory::{before, counter_key, last_range, list};
use crate::guards::HeldIntents;
use crate::node::Node;
use crate::pipeline::{Change, ROOT, SplitAt, Standing};
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind, TenantId};
use replication::RangeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For how long it is tried again to split a range that cannot be split for the moment.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long transactions with intents in a range have to end before it is split, each time that is tried.
const INTENTS_PATIENCE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Splits a tenant's range whose lease is held here, so that `key` is the first of a new one, whose name is
    /// returned.
    ///
    /// # Errors
    /// [`KvErrorKind::InvalidRequest`] if a range begins with the key already or it is no tenant's,
    /// [`KvErrorKind::RangeNotFound`] if it is not in the range, [`KvErrorKind::Unavailable`] if the range cannot be
    /// split for the moment, and what keeps the command from being applied.
    pub async fn split(&self, node: &Arc<Node>, range: RangeId, key: Bytes) -> Result<RangeId, KvError> {
        let _one_at_a_time = self.turn_to_change().await?;
        let begun = Instant::now();
        let new = loop {
            match self.try_to_split(node, range, &key).await {
                Err(error)
                    if error.kind() == KvErrorKind::Unavailable
                        && begun.elapsed() < PATIENCE
                        && self.give_way().is_ok() =>
                {
                    tracing::debug!(range, "a range is to be split again: {}", error.message);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
                Ok(new) => break new,
            }
        };
        // What cannot be reported now is reported at the next look.
        let leads_root = matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_));
        if let Err(error) = self.report(node, leads_root).await {
            tracing::debug!(range, "a split is not in the directory yet: {error}");
        }
        Ok(new)
    }

    async fn try_to_split(&self, node: &Arc<Node>, range: RangeId, key: &Bytes) -> Result<RangeId, KvError> {
        node.ready(range).await?;
        let status = node.pipeline.status(range).await?;
        let (descriptor, joint) = status
            .and_then(|status| Some((status.descriptor?, status.group.members.is_joint())))
            .ok_or_else(|| KvError::range_not_found(range))?;
        let invalid = |message: &str| KvError::new(KvErrorKind::InvalidRequest, message);
        if TenantId::of_key(key).is_none() || TenantId::of_key(&descriptor.start).is_none() {
            return Err(invalid("only ranges of tenants are split"));
        }
        if *key == descriptor.start {
            return Err(invalid("a range begins with this key already"));
        }
        if *key < descriptor.start || *key >= descriptor.end {
            return Err(KvError::range_not_found(range));
        }
        if joint {
            return Err(KvError::new(KvErrorKind::Unavailable, "the members of the range are changing"));
        }
        let asked = GetRangeId { range_id: range, start: descriptor.start, end: descriptor.end };
        let new = self.ask_for_range_id(node, asked).await?;
        let tenant = TenantId::of_key(key).map_or(0, |tenant| tenant.0);
        let _held = HeldIntents::await_none(node, tenant, range, INTENTS_PATIENCE).await;
        node.pipeline.change(range, Change::Split(SplitAt { key: key.clone(), new })).await?;
        Ok(new)
    }

    async fn ask_for_range_id(&self, node: &Arc<Node>, asked: GetRangeId) -> Result<RangeId, KvError> {
        if matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_)) {
            return self.give_range_id(node, asked).await.map(|named| named.range_id);
        }
        let nodes = node.pipeline.nodes().await?;
        let unavailable = |message: String| KvError::new(KvErrorKind::Unavailable, message);
        let nobody = || unavailable("the leaseholder of the root range is not known".to_owned());
        let leader = self.root_leader(&nodes).filter(|id| *id != self.myself.id).ok_or_else(nobody)?;
        match self.ask(leader, Kind::GetRangeId(asked)).await {
            Some(Kind::RangeId(named)) => Ok(named.range_id),
            Some(Kind::Refused(refusal)) => Err(unavailable(refusal.reason)),
            _ => Err(nobody()),
        }
    }

    /// Gives a name for a range that is to be split off another, if the directory knows that one as it is.
    pub(super) async fn give_range_id(&self, node: &Arc<Node>, asked: GetRangeId) -> Result<Named, KvError> {
        let _one_at_a_time = self.directory.lock().await;
        let lease = node.pipeline.lease(ROOT)?;
        let tenant = TenantId::of_key(&asked.start).map(|tenant| tenant.span());
        let known = before(&*node.engine, &asked.start)?;
        let next = list(&*node.engine, &asked.start, 1)?.pop();
        let same = known.is_some_and(|known| {
            (known.range_id, known.start, &known.end) == (asked.range_id, asked.start, &asked.end)
        });
        let followed = tenant.is_some_and(|tenant| asked.end == tenant.end)
            || next.is_some_and(|next| next.start == asked.end);
        if !same || !followed {
            let message = "the directory has not heard yet of the last split there";
            return Err(KvError::new(KvErrorKind::Unavailable, message));
        }
        let range_id = last_range(&*node.engine)?.saturating_add(1);
        let counter = (counter_key(), Some(Bytes::copy_from_slice(&range_id.to_be_bytes())));
        self.write(node, lease, vec![counter], None).await?;
        Ok(Named { range_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::authorize::Caller;
    use crate::cluster::MergeLimits;
    use crate::directory::{RangeRecord, gone, of_tenant, record_key};
    use crate::node::Answer;
    use kv_api::batch::{Get, RequestKind};
    use kv_api::{BatchRequest, Header};
    use prost::Message as _;
    use storage::MemoryEngine;

    const TENANT: TenantId = TenantId(7);

    /// A node that is alone, with the tenant's range, and the number of that.
    async fn with_range(engine: &Arc<MemoryEngine>) -> (Arc<Node>, Arc<Cluster>, RangeId) {
        let (node, cluster) = start(engine);
        cluster.create_tenant(&node, TENANT).await.expect("a range");
        let range = known(&node).first().map(|record| record.range_id).expect("a record");
        node.ready(range).await.expect("served");
        (node, cluster, range)
    }

    fn start(engine: &Arc<MemoryEngine>) -> (Arc<Node>, Arc<Cluster>) {
        let node = Node::start(engine.clone(), Limits::default()).expect("start");
        let cluster = Arc::clone(node.cluster().expect("its part in the cluster"));
        (node, cluster)
    }

    fn known(node: &Node) -> Vec<RangeRecord> {
        of_tenant(&*node.engine, TENANT).expect("records")
    }

    fn spans(node: &Node) -> Vec<(RangeId, Bytes, Bytes)> {
        known(node).into_iter().map(|record| (record.range_id, record.start, record.end)).collect()
    }

    /// Splits a range of which the directory hears nothing.
    async fn split_untold(node: &Node, range: RangeId, name: &str, new: RangeId) {
        let key = TENANT.prefixed(name.as_bytes());
        node.pipeline.change(range, Change::Split(SplitAt { key, new })).await.expect("split");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_split_that_nobody_heard_of_is_told_by_who_next_holds_a_lease() {
        for wakes_left in [true, false] {
            let engine = Arc::new(MemoryEngine::new());
            let (node, cluster, left) = with_range(&engine).await;
            split_untold(&node, left, "m", 77).await;
            let before = known(&node);
            assert_eq!(before.len(), 1);
            assert_eq!(before[0].end, TENANT.span().end);
            drop((node, cluster));
            engine.crash();
            let (node, cluster) = start(&engine);
            node.ready(if wakes_left { left } else { 77 }).await.expect("served");
            cluster.report(&node, true).await.expect("report");
            let (all, at) = (TENANT.span(), TENANT.prefixed(b"m"));
            assert_eq!(spans(&node), [(left, all.start, at.clone()), (77, at, all.end)], "{wakes_left}");
        }
    }

    /// Asks a range for a key.
    async fn read(node: &Arc<Node>, range: RangeId, name: &str) -> Result<(), KvErrorKind> {
        let get = Get { key: TENANT.prefixed(name.as_bytes()), ..Get::default() };
        let header = Header { range_id: range, ..Header::default() };
        let batch = BatchRequest { header, requests: vec![RequestKind::Get(get).into()] };
        let answer = match node.handle(Caller::Tenant(TENANT), node.open_connection(TENANT), batch) {
            Answer::Ready(answer) => answer,
            Answer::Later(answer) | Answer::Heavy(answer) | Answer::LargeRead(answer) => answer.await,
        };
        answer.map(drop).map_err(|error| error.kind())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_merge_that_nobody_heard_of_is_told_once_somebody_looks_for_its_keys() {
        let engine = Arc::new(MemoryEngine::new());
        let (node, cluster, left) = with_range(&engine).await;
        let right = cluster.split(&node, left, TENANT.prefixed(b"m")).await.expect("split");
        let before = known(&node);
        cluster.merge(&node, left, None, MergeLimits::ASKED_FOR).await.expect("merged");
        let merged = spans(&node);
        assert_eq!((before.len(), merged.len()), (2, 1));
        // As if the directory had not heard of it.
        let old =
            before.iter().map(|old| (record_key(&old.start), Some(old.encode_to_vec().into()))).collect();
        let lease = node.pipeline.lease(ROOT).expect("held");
        cluster.write(&node, lease, old, None).await.expect("written");
        drop((node, cluster));
        engine.crash();
        let (node, cluster) = start(&engine);
        node.ready(ROOT).await.expect("served");
        let asleep = node.pipeline.survey(left.saturating_sub(1), 1).await.expect("asked").remove(0);
        assert!(cluster.is_unheard_of(&node, &asleep.descriptor.expect("a range")));
        assert_eq!(node.pipeline.span(left), None, "it sleeps");
        assert_eq!(read(&node, right, "z").await, Err(KvErrorKind::RangeNotFound));
        // Who asked is told at once; it is woken meanwhile.
        let told = async {
            while spans(&node) != merged {
                tokio::time::sleep(Duration::from_millis(5)).await;
                cluster.report(&node, true).await.expect("report");
            }
        };
        tokio::time::timeout(Duration::from_secs(60), told).await.expect("nobody woke it");
        assert_eq!(read(&node, left, "z").await, Ok(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_range_is_not_split_again_before_the_directory_knows() {
        let engine = Arc::new(MemoryEngine::new());
        let (node, cluster, left) = with_range(&engine).await;
        split_untold(&node, left, "m", 77).await;
        let key = TENANT.prefixed(b"g");
        let refused = cluster.try_to_split(&node, left, &key).await.expect_err("refused");
        assert_eq!(refused.kind(), KvErrorKind::Unavailable);
        cluster.report(&node, true).await.expect("report");
        cluster.split(&node, left, key.clone()).await.expect("split");
        assert_eq!(known(&node).len(), 3);
        let again = cluster.split(&node, left, key).await.expect_err("it begins there").kind();
        assert_eq!(again, KvErrorKind::RangeNotFound);
        let start = TENANT.span().start;
        let first = cluster.split(&node, left, start).await.expect_err("nothing would be left");
        assert_eq!(first.kind(), KvErrorKind::InvalidRequest);
        let root = Bytes::from_static(&[kv_api::key::CLUSTER_REGION, 7]);
        let root = cluster.split(&node, ROOT, root).await.expect_err("never");
        assert_eq!(root.kind(), KvErrorKind::InvalidRequest);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_range_that_was_split_off_a_dropped_tenant_goes_too() {
        for again in [false, true] {
            let engine = Arc::new(MemoryEngine::new());
            let (node, cluster, left) = with_range(&engine).await;
            split_untold(&node, left, "m", 77).await;
            node.ready(77).await.expect("served");
            // Its directory record still spans everything; the report is late.
            cluster.drop_tenant(&node, TENANT).await.expect("drop");
            assert_eq!(node.pipeline.covering(TENANT.prefixed(b"a")).await.expect("asked"), None);
            assert_eq!(node.pipeline.covering(TENANT.prefixed(b"z")).await.expect("asked"), Some(77));
            if again {
                let refused = cluster.create_tenant(&node, TENANT).await;
                assert!(refused.is_err(), "there are keys of the one before");
            }
            cluster.described(77);
            cluster.report(&node, true).await.expect("report");
            assert_eq!(gone(&*node.engine, 0, 9).expect("gone").len(), 1);
            cluster.remove_gone(&node).await.expect("removed");
            assert_eq!(node.pipeline.covering(TENANT.prefixed(b"z")).await.expect("asked"), None);
            assert_eq!((known(&node).len(), gone(&*node.engine, 0, 9).expect("gone").len()), (0, 0));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_evaluated_before_a_split_is_refused_after_it() {
        let engine = Arc::new(MemoryEngine::new());
        let (node, cluster, left) = with_range(&engine).await;
        let lease = node.pipeline.lease(left).expect("held");
        cluster.split(&node, left, TENANT.prefixed(b"m")).await.expect("split");
        let after = node.pipeline.lease(left).expect("held again");
        assert_ne!(lease, after);
        assert_eq!(crate::pipeline::sequence_of(lease), crate::pipeline::sequence_of(after));
        let command = |lease| crate::command::Command {
            range: left,
            effects: crate::command::Effects::default(),
            change: None,
            lease,
            order: crate::command::Order::Present,
            before_visible: None,
            late: None,
            done: Box::new(|_| {}),
        };
        let refused = node.pipeline.submit(command(lease)).expect_err("refused");
        assert_eq!(refused.kind(), KvErrorKind::NotLeaseholder);
        node.pipeline.submit(command(after)).expect("taken");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_clock_of_a_new_range_is_not_far_ahead() {
        let engine = Arc::new(MemoryEngine::new());
        let (node, cluster, left) = with_range(&engine).await;
        let before = node.pipeline.read_timestamp(left).expect("held");
        cluster.split(&node, left, TENANT.prefixed(b"m")).await.expect("split");
        let right = known(&node)[1].range_id;
        node.ready(right).await.expect("served");
        let first = node.pipeline.read_timestamp(right).expect("held");
        let now = node.pipeline.read_timestamp(left).expect("held");
        assert!(before < first && first.wall_ns <= now.wall_ns, "{before:?} {first:?} {now:?}");
    }
}
