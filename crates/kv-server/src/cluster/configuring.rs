//! How ranges are kept.
//!
//! The first range of a tenant is configured by the control plane, and the others are kept as it is. A range that is
//! split off another takes over its configuration; those there are already are told by the leaseholder of the root
//! range, which sees in their reports that they are kept otherwise.

use super::Cluster;
use super::message::{Configure, Kind};
use super::ranges::submit;
use crate::command::Effects;
use crate::directory::{RangeRecord, before, list, of_tenant};
use crate::node::Node;
use crate::pipeline::{ROOT, Standing};
use bytes::Bytes;
use kv_api::batch::RangeConfig;
use kv_api::{KvError, TenantId};
use prost::Message;
use replication::command::RangeChange;
use replication::{NodeId, RangeDescriptor, RangeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most ranges told in one look.
const MAX_TOLD: usize = 16;
/// Records of the directory that are read at a time.
const PAGE: usize = 1000;

/// What the leaseholder of the root range knows of ranges that are kept otherwise than they should be.
#[derive(Default)]
pub(super) struct Configuring {
    /// Their first keys, and how they should be kept.
    wanted: BTreeMap<Bytes, Bytes>,
    /// Whether the whole directory was gone over, since this node keeps it.
    compared: bool,
}

impl Cluster {
    /// Sets how a tenant is kept, whose first range is one whose lease is held here.
    ///
    /// # Errors
    /// If it is not, or what keeps the command from being applied.
    pub async fn configure(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        tenant: TenantId,
        config: RangeConfig,
    ) -> Result<(), KvError> {
        let first = |descriptor: &RangeDescriptor| descriptor.start == tenant.span().start;
        self.configure_range(node, range, first, config.encode_to_vec().into()).await
    }

    /// Sets how a range is kept whose lease is held here, if it is one that `fits`.
    ///
    /// # Errors
    /// As for [`Cluster::configure`].
    pub(super) async fn configure_range(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        fits: impl Fn(&RangeDescriptor) -> bool,
        config: Bytes,
    ) -> Result<(), KvError> {
        node.ready(range).await?;
        let lease = node.pipeline.lease(range)?;
        let status = node.pipeline.status(range).await?;
        let descriptor = status.and_then(|status| status.descriptor).filter(fits);
        let descriptor = descriptor.ok_or_else(|| KvError::range_not_found(range))?;
        if descriptor.config != config {
            let generation = descriptor.generation + 1;
            let changed = RangeDescriptor { generation, config, ..descriptor };
            let change = RangeChange { descriptor: Some(changed), ..RangeChange::default() };
            submit(node, range, lease, Effects::default(), Some(change)).await?;
        }
        // What cannot be reported now is reported at the next look.
        self.described(range);
        let leads_root = matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_));
        if let Err(error) = self.report(node, leads_root).await {
            tracing::debug!(range, "a new configuration is not in the directory yet: {error}");
        }
        Ok(())
    }

    /// Finds out, from what is news to the directory, which ranges are kept otherwise than the first one of their
    /// tenant.
    pub(super) fn compare_configs(&self, node: &Node, news: &[RangeRecord]) -> Result<(), KvError> {
        let mut found = Vec::new();
        for record in news {
            let Some(tenant) = TenantId::of_key(&record.start) else { continue };
            let start = tenant.span().start;
            let known = before(&*node.engine, &start)?.filter(|known| known.start == start);
            if record.start != start {
                let first = news.iter().find(|first| first.start == start).or(known.as_ref());
                found.extend(first.and_then(|first| differs(first, record)));
            } else if known.is_none_or(|known| known.config != record.config) {
                let others = of_tenant(&*node.engine, tenant)?;
                found.extend(others.iter().filter_map(|other| differs(record, other)));
            }
        }
        self.configuring.lock().wanted.extend(found);
        Ok(())
    }

    /// Tells ranges how they are to be kept: some at a time.
    pub(super) async fn pass_on_configs(&self, node: &Arc<Node>) -> Result<(), KvError> {
        if !std::mem::replace(&mut self.configuring.lock().compared, true) {
            self.compare_all(node)?;
        }
        let asked: Vec<(Bytes, Bytes)> = {
            let wanted = &self.configuring.lock().wanted;
            wanted.iter().take(MAX_TOLD).map(|(start, config)| (start.clone(), config.clone())).collect()
        };
        if asked.is_empty() {
            return Ok(());
        }
        let nodes = node.pipeline.nodes().await?;
        let views = self.views(&self.records(), &nodes);
        let live: Vec<NodeId> = views.iter().filter(|view| view.live).map(|view| view.id).collect();
        for (start, config) in asked {
            let done = self.pass_on_config(node, &start, &config, &live).await?;
            let wanted = &mut self.configuring.lock().wanted;
            if done && wanted.get(&start) == Some(&config) {
                wanted.remove(&start);
            }
        }
        Ok(())
    }

    /// Another node keeps the directory, and what it finds there.
    pub(super) fn leave_configs(&self) {
        *self.configuring.lock() = Configuring::default();
    }

    /// Goes over the whole directory: the leaseholder before may not have told everybody.
    fn compare_all(&self, node: &Node) -> Result<(), KvError> {
        let mut first: Option<RangeRecord> = None;
        let mut after = Bytes::new();
        loop {
            let records = list(&*node.engine, &after, PAGE)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.start.clone();
            for record in records {
                match first.as_ref().filter(|first| first.family() == record.family()) {
                    Some(first) => self.configuring.lock().wanted.extend(differs(first, &record)),
                    None => first = Some(record),
                }
            }
        }
    }

    /// Tells one range; false if it is to be told again. One that is no more needs not be told.
    async fn pass_on_config(
        &self,
        node: &Arc<Node>,
        start: &Bytes,
        config: &Bytes,
        live: &[NodeId],
    ) -> Result<bool, KvError> {
        let record = before(&*node.engine, start)?.filter(|record| record.start == *start);
        let Some(record) = record.filter(|record| record.config != *config) else { return Ok(true) };
        let range = record.range_id;
        let mut members: Vec<NodeId> = record.voters.into_iter().filter(|id| live.contains(id)).collect();
        members.sort_by_key(|member| *member != record.leaseholder);
        for member in members {
            let done = if member == self.myself.id {
                self.configure_range(node, range, |_| true, config.clone()).await.is_ok()
            } else {
                let question = Configure { range_id: range, config: config.clone() };
                matches!(self.ask(member, Kind::Configure(question)).await, Some(Kind::Done(_)))
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How a range is to be kept, if that is not how it is: as the first one of its tenant.
fn differs(first: &RangeRecord, other: &RangeRecord) -> Option<(Bytes, Bytes)> {
    (first.config != other.config).then(|| (other.start.clone(), first.config.clone()))
}
