//! Ranges that come to be and go, and what the directory says of them.
//!
//! A new range's record and first replicas are the work of one command of the root range. The replicas of a
//! range that is no more are removed by telling each member until it has done so; no leader of that range is
//! needed, for the directory has the last word.

use super::Cluster;
use super::message::{Gone, Kind, Report};
use super::reported::Draft;
use crate::command::{Command, Effects, NewVersion, Order};
use crate::directory::{
    GoneRecord, RangeRecord, before, counter_key, gone, gone_key, gone_members, last_range, lookup,
    of_tenant, record_key, tenant_descriptor,
};
use crate::node::Node;
use crate::pipeline::{ROOT, Standing};
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind, TenantId};
use parking_lot::Mutex;
use prost::Message;
use replication::command::RangeChange;
use replication::{NodeId, RangeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::Space;
use tokio::sync::oneshot;

/// Most ranges of which replicas are removed at a time.
const MAX_GONE: usize = 256;
/// Most ranges in one report.
const MAX_REPORTED: usize = 1024;

impl Cluster {
    /// Makes the range of a new tenant, unless there is one.
    ///
    /// # Errors
    /// If this node does not lead the root range, or what keeps the command from being applied.
    pub async fn create_tenant(&self, node: &Arc<Node>, tenant: TenantId) -> Result<(), KvError> {
        node.ready(ROOT).await?;
        let _one_at_a_time = self.directory.lock().await;
        let lease = node.pipeline.lease(ROOT)?;
        if lookup(&*node.engine, &tenant.span().start)?.is_some() {
            return Ok(());
        }
        let range_id = last_range(&*node.engine)?.saturating_add(1);
        let descriptor = tenant_descriptor(range_id, tenant);
        let status = node.pipeline.status(ROOT).await?;
        let members = status.map(|status| status.group.members).unwrap_or_default();
        let unfinished = members.is_joint() || !members.learners.is_empty();
        let turn = usize::try_from(range_id).unwrap_or(0) % members.voters.len().max(1);
        let record = RangeRecord {
            range_id,
            start: descriptor.start.clone(),
            end: descriptor.end.clone(),
            generation: descriptor.generation,
            // Spread from the beginning.
            leaseholder: members.voters.get(turn).copied().unwrap_or(self.myself.id),
            voters: members.voters,
            learners: members.learners,
            ..RangeRecord::default()
        };
        let writes = vec![
            (counter_key(), Some(Bytes::copy_from_slice(&range_id.to_be_bytes()))),
            (record_key(&record.start), Some(record.encode_to_vec().into())),
        ];
        // Nothing was ever served in it; its clock need not begin seconds ahead.
        let served = Some(node.pipeline.clock(ROOT)?);
        let change = RangeChange { created: vec![descriptor], served, ..RangeChange::default() };
        self.write(node, lease, writes, Some(change)).await?;
        if unfinished {
            // It has the root range's members, and needs a leaseholder of its own to get as far as that will.
            let node = Arc::clone(node);
            tokio::spawn(async move {
                // If it comes to nothing, a survey finds it.
                let _ = node.ready(range_id).await;
            });
        }
        Ok(())
    }

    /// Takes a tenant's ranges out of the directory, all at once; their replicas are removed soon.
    ///
    /// # Errors
    /// As for [`Cluster::create_tenant`].
    pub async fn drop_tenant(&self, node: &Arc<Node>, tenant: TenantId) -> Result<(), KvError> {
        node.ready(ROOT).await?;
        {
            let _one_at_a_time = self.directory.lock().await;
            let lease = node.pipeline.lease(ROOT)?;
            let mut writes = Vec::new();
            // A member that is not in a record, because it was added just now, is found out when it reports; so is
            // a range that was split off just now.
            for record in of_tenant(&*node.engine, tenant)? {
                let members = record.voters.into_iter().chain(record.learners).collect();
                writes.extend([(record_key(&record.start), None), gone_write(record.range_id, members)]);
            }
            if writes.is_empty() {
                return Ok(());
            }
            self.write(node, lease, writes, None).await?;
        }
        // What cannot be removed now is tried again by the next look.
        if let Err(error) = self.remove_gone(node).await {
            tracing::debug!("replicas of a dropped tenant are still to be removed: {error}");
        }
        Ok(())
    }

    /// Applies changes of the cluster's own keys, one set at a time.
    pub(super) async fn write(
        &self,
        node: &Arc<Node>,
        lease: u64,
        writes: Vec<(Bytes, Option<Bytes>)>,
        change: Option<RangeChange>,
    ) -> Result<(), KvError> {
        let mut versions = Vec::with_capacity(writes.len());
        for (key, value) in writes {
            let replaced = node.engine.get(Space::Data, &key)?.map(|bytes| Bytes::copy_from_slice(&bytes));
            if value.is_some() || replaced.is_some() {
                versions.push(NewVersion { key, value, replaced });
            }
        }
        let effects = Effects { versions, ..Effects::default() };
        submit(node, ROOT, lease, effects, change).await
    }

    /// Sees to it that the replicas of ranges that are no more are removed: those of some such ranges at a time.
    pub(super) async fn remove_gone(&self, node: &Arc<Node>) -> Result<(), KvError> {
        let after = *self.gone_after.lock();
        let records = gone(&*node.engine, after, MAX_GONE)?;
        // From the beginning again when the end is reached.
        *self.gone_after.lock() = records.get(MAX_GONE - 1).map_or(0, |last| last.range_id);
        if records.is_empty() {
            return Ok(());
        }
        let nodes = node.pipeline.nodes().await?;
        let views = self.views(&self.records(), &nodes);
        let replicas =
            records.iter().flat_map(|record| record.members.iter().map(|member| (record.range_id, *member)));
        let views = &views;
        let removals = replicas.map(|(range_id, member)| async move {
            let question = Kind::Gone(Gone { range_id });
            let removed = match views.iter().find(|view| view.id == member) {
                _ if member == self.myself.id => node.pipeline.destroy(range_id).await.is_ok(),
                Some(view) if view.live => matches!(self.ask(member, question).await, Some(Kind::Done(_))),
                // It is told when it is back.
                Some(_) => false,
                None => true,
            };
            removed.then_some((range_id, member))
        });
        let removed: Vec<_> = futures::future::join_all(removals).await.into_iter().flatten().collect();
        if removed.is_empty() {
            return Ok(());
        }
        let _one_at_a_time = self.directory.lock().await;
        let lease = node.pipeline.lease(ROOT)?;
        let mut writes = Vec::new();
        for range_id in records.iter().map(|record| record.range_id) {
            // Read again: others may have been found meanwhile.
            let mut members = gone_members(&*node.engine, range_id)?;
            members.retain(|member| !removed.contains(&(range_id, *member)));
            writes.push(gone_write(range_id, members));
        }
        self.write(node, lease, writes, None).await
    }

    /// Notes that the directory is to be told of a range.
    pub fn described(&self, range: RangeId) {
        self.to_report.lock().insert(range);
    }

    /// Tells the directory of ranges that changed.
    pub(super) async fn report(&self, node: &Arc<Node>, leads_root: bool) -> Result<(), KvError> {
        let mut noted = Noted::take(&self.to_report);
        if !noted.ranges.is_empty() && self.report_these(node, leads_root, &noted.ranges).await? {
            noted.ranges.clear();
        }
        Ok(())
    }

    /// Tells the directory of some ranges, as far as their leases are held here. Says whether it has heard.
    async fn report_these(
        &self,
        node: &Arc<Node>,
        leads_root: bool,
        ranges: &[RangeId],
    ) -> Result<bool, KvError> {
        let held = |range| matches!(node.pipeline.standing(range), Standing::Leaseholder(_));
        let statuses = node.pipeline.statuses(ranges.to_vec()).await?;
        let records: Vec<RangeRecord> = statuses
            .into_iter()
            // Whoever holds the lease now reports; a half-finished change is reported when it is whole.
            .filter(|status| held(status.range) && !status.group.members.is_joint())
            .filter_map(|status| {
                let (members, index) = (status.group.members, status.group.applied);
                Some(RangeRecord::of(status.descriptor?, members, self.myself.id, index))
            })
            .collect();
        let mut followers = Vec::new();
        for record in &records {
            followers.extend(self.following(node, record).await?);
        }
        let mut records = records;
        records.retain(|record| !self.is_known(node, record));
        records.extend(followers);
        Ok(records.is_empty()
            || if leads_root {
                self.take_report(node, records).await.is_ok()
            } else {
                self.send_report(node, records).await?
            })
    }

    /// The range that follows one that is reported, if it was split off another and there is a replica of it here.
    /// Perhaps nobody has ever held its lease, and the directory has not heard of it.
    async fn following(&self, node: &Node, record: &RangeRecord) -> Result<Option<RangeRecord>, KvError> {
        if TenantId::of_key(&record.end) != TenantId::of_key(&record.start) {
            return Ok(None);
        }
        let Some(range) = node.pipeline.covering(record.end.clone()).await? else { return Ok(None) };
        let replica = node.pipeline.survey(range.saturating_sub(1), 1).await?.pop();
        let Some((descriptor, members)) = replica
            .filter(|replica| replica.range == range && !replica.members.is_joint())
            .and_then(|replica| Some((replica.descriptor?, replica.members)))
        else {
            return Ok(None);
        };
        // Whatever its leaseholder says is newer.
        let record = RangeRecord::of(descriptor, members, self.myself.id, 0);
        let listed = || before(&*node.engine, &record.start).ok().flatten();
        let is_known = node.pipeline.span(ROOT).is_some()
            && listed().is_some_and(|known| known.range_id == record.range_id);
        Ok((!is_known && record.origin != 0).then_some(record))
    }

    /// Whether the replica of the directory here, if there is one, says the same already.
    fn is_known(&self, node: &Node, record: &RangeRecord) -> bool {
        if node.pipeline.span(ROOT).is_none() {
            return false;
        }
        let known = lookup(&*node.engine, &record.start).ok().flatten();
        known.is_some_and(|known| RangeRecord { index: record.index, ..known } == *record)
    }

    async fn send_report(&self, node: &Arc<Node>, records: Vec<RangeRecord>) -> Result<bool, KvError> {
        let nodes = node.pipeline.nodes().await?;
        let to = self.root_leader(&nodes).or_else(|| self.root_members().first().copied());
        let Some(to) = to.filter(|to| *to != self.myself.id) else { return Ok(false) };
        Ok(matches!(self.ask(to, Kind::Report(Report { records })).await, Some(Kind::Done(_))))
    }

    /// Writes what leaseholders report into the directory, as far as it is newer.
    pub(super) async fn take_report(
        &self,
        node: &Arc<Node>,
        records: Vec<RangeRecord>,
    ) -> Result<(), KvError> {
        let _one_at_a_time = self.directory.lock().await;
        let lease = node.pipeline.lease(ROOT)?;
        let mut strangers: Vec<(RangeId, Vec<NodeId>)> = Vec::new();
        let mut draft = Draft::new(&*node.engine);
        for record in records.into_iter().take(2 * MAX_REPORTED) {
            let members = record.voters.iter().chain(&record.learners).copied().collect();
            let range_id = record.range_id;
            if !draft.take(record)? {
                strangers.push((range_id, members));
            }
        }
        let write = |record: RangeRecord| (record_key(&record.start), Some(record.encode_to_vec().into()));
        let (absorbed, news) = draft.finish();
        self.compare_configs(node, &news)?;
        let mut writes: Vec<(Bytes, Option<Bytes>)> = Vec::new();
        for record in absorbed {
            // A split may have come after the merge, at the same key.
            if !news.iter().any(|news| news.start == record.start) {
                writes.push((record_key(&record.start), None));
            }
            strangers.push((record.range_id, record.voters.into_iter().chain(record.learners).collect()));
        }
        writes.extend(news.into_iter().map(write));
        for (range_id, mut members) in strangers {
            let known = gone_members(&*node.engine, range_id)?;
            members
                .extend(known.iter().copied().filter(|member| !members.contains(member)).collect::<Vec<_>>());
            writes.push(gone_write(range_id, members));
        }
        if writes.is_empty() { Ok(()) } else { self.write(node, lease, writes, None).await }
    }
}

/// Ranges of which the directory is to be told. They are taken out first, so that what is noted while that is under way
/// stays for the next time, and come back when this is dropped.
struct Noted<'a> {
    all: &'a Mutex<BTreeSet<RangeId>>,
    ranges: Vec<RangeId>,
}

impl<'a> Noted<'a> {
    fn take(all: &'a Mutex<BTreeSet<RangeId>>) -> Self {
        let mut noted = all.lock();
        let rest = noted.iter().nth(MAX_REPORTED).copied();
        let rest = rest.map(|first| noted.split_off(&first)).unwrap_or_default();
        let ranges = std::mem::replace(&mut *noted, rest).into_iter().collect();
        Noted { all, ranges }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.all.lock().extend(self.ranges.drain(..));
    }
}

/// What makes the directory remember who may have a replica of a range that is no more.
fn gone_write(range_id: RangeId, members: Vec<NodeId>) -> (Bytes, Option<Bytes>) {
    let record = (!members.is_empty()).then(|| GoneRecord { range_id, members }.encode_to_vec().into());
    (gone_key(range_id), record)
}

pub(super) async fn submit(
    node: &Arc<Node>,
    range: RangeId,
    lease: u64,
    effects: Effects,
    change: Option<RangeChange>,
) -> Result<(), KvError> {
    let (sender, receiver) = oneshot::channel();
    let command = Command {
        range,
        effects,
        change,
        lease,
        order: Order::Present,
        before_visible: None,
        late: None,
        done: Box::new(move |result| {
            let _ = sender.send(result);
        }),
    };
    node.pipeline.submit(command)?;
    match receiver.await {
        Ok(result) => result.map(|_| ()).map_err(KvError::from),
        Err(_) => Err(KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down")),
    }
}
