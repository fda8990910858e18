//! How ranges are kept.
//!
//! The first range of a tenant says how all are kept, by spans ([`crate::span_config`]): the control plane configures
//! the tenant, and it or the tenant itself spans of keys. A range that is split off another takes over its
//! configuration; those there are already are told by the leaseholder of the root range, which sees in their reports
//! that they are kept otherwise than they should be, or lie across the border of a span. These it has split.

use super::Cluster;
use super::message::{Configure, Cut, Kind};
use super::ranges::submit;
use crate::command::Effects;
use crate::directory::{RangeRecord, before, list, of_tenant};
use crate::node::Node;
use crate::pipeline::{ROOT, Standing};
use crate::span_config;
use bytes::Bytes;
use kv_api::batch::{ConfigureSpan, RangeConfig};
use kv_api::{KvError, Span, TenantId};
use prost::Message;
use replication::command::RangeChange;
use replication::{NodeId, RangeDescriptor, RangeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most ranges told in one look.
const MAX_TOLD: usize = 16;
/// Most ranges split at the borders of spans in one look.
const MAX_CUT: usize = 16;
/// Records of the directory that are read at a time.
const PAGE: usize = 1000;

/// What the leaseholder of the root range knows of ranges that are kept otherwise than they should be.
#[derive(Default)]
pub(super) struct Configuring {
    /// Their first keys, and how they should be kept.
    wanted: BTreeMap<Bytes, Bytes>,
    /// First keys of ranges that are to be split off others, because a span begins or ends there.
    cuts: BTreeSet<Bytes>,
    /// Whether some are being split off.
    cutting: bool,
    /// Whether the whole directory was gone over, since this node keeps it.
    compared: bool,
}

impl Configuring {
    /// Notes what is to become of a range where the configuration of its tenant is this.
    fn compare(&mut self, tenant: &RangeConfig, record: &RangeRecord) {
        let within = Span::new(record.start.clone(), record.end.clone());
        // Spans may be none any more.
        self.cuts.retain(|cut| !within.contains(cut));
        self.cuts.extend(span_config::borders(tenant, &within).cloned());
        if TenantId::of_key(&record.start).is_none_or(|tenant| tenant.span().start == record.start) {
            // It is what the others are compared with.
            return;
        }
        let wanted: Bytes = span_config::wanted(tenant, &record.start).encode_to_vec().into();
        if wanted == record.config {
            self.wanted.remove(&record.start);
        } else {
            self.wanted.insert(record.start.clone(), wanted);
        }
    }
}

impl Cluster {
    /// Sets how a tenant is kept besides its spans, whose first range is one whose lease is held here.
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
        let changed = |own: &RangeDescriptor| {
            first_of(own, tenant)?;
            let spans = span_config::decode(&own.config).spans;
            Ok(RangeConfig { spans, ..config.clone() }.encode_to_vec().into())
        };
        self.configure_range(node, range, changed).await
    }

    /// Sets how a span of a tenant is kept, whose first range is one whose lease is held here.
    ///
    /// # Errors
    /// [`kv_api::KvErrorKind::InvalidRequest`] for a span that overlaps another or is one too many, and as for
    /// [`Cluster::configure`].
    pub async fn configure_span(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        asked: ConfigureSpan,
    ) -> Result<(), KvError> {
        let ConfigureSpan { tenant_id, start, end, config } = asked;
        let span = Span::new(start, end);
        let changed = |own: &RangeDescriptor| {
            first_of(own, TenantId(tenant_id))?;
            let before = span_config::decode(&own.config);
            let after = span_config::with_span(before, &span, config.clone())?;
            Ok(after.encode_to_vec().into())
        };
        self.configure_range(node, range, changed).await
    }

    /// Sets how a range is kept whose lease is held here, as `changed` makes it of how it is.
    ///
    /// # Errors
    /// What `changed` fails with, and as for [`Cluster::configure`].
    pub(super) async fn configure_range(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        changed: impl Fn(&RangeDescriptor) -> Result<Bytes, KvError>,
    ) -> Result<(), KvError> {
        {
            // The descriptor is read and then replaced.
            let _one_at_a_time = self.splitting.lock().await;
            node.ready(range).await?;
            let lease = node.pipeline.lease(range)?;
            let status = node.pipeline.status(range).await?;
            let descriptor = status.and_then(|status| status.descriptor);
            let descriptor = descriptor.ok_or_else(|| KvError::range_not_found(range))?;
            let config = changed(&descriptor)?;
            if descriptor.config != config {
                let is_global = |config: &Bytes| span_config::kept(config, &descriptor.start).global_reads;
                // First what was promised must lie in the past.
                let ends = is_global(&descriptor.config) && !is_global(&config);
                let generation = descriptor.generation + 1;
                let changed = RangeDescriptor { generation, config, ..descriptor };
                let change = RangeChange { descriptor: Some(changed), ..RangeChange::default() };
                if ends {
                    node.pipeline.end_ahead(range).await?;
                }
                let done = submit(node, range, lease, Effects::default(), Some(change)).await;
                if done.is_err() {
                    node.pipeline.go_on_ahead(range);
                }
                done?;
            }
        }
        // What cannot be reported now is reported at the next look.
        self.described(range);
        let leads_root = matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_));
        if let Err(error) = self.report(node, leads_root).await {
            tracing::debug!(range, "a new configuration is not in the directory yet: {error}");
        }
        Ok(())
    }

    /// Finds out, from what is news to the directory, which ranges are kept otherwise than they should be, and which
    /// are to be split.
    pub(super) fn compare_configs(&self, node: &Node, news: &[RangeRecord]) -> Result<(), KvError> {
        let mut found = Vec::new();
        for record in news {
            let Some(tenant) = TenantId::of_key(&record.start) else { continue };
            let start = tenant.span().start;
            let known = before(&*node.engine, &start)?.filter(|known| known.start == start);
            if record.start != start {
                let first = news.iter().find(|first| first.start == start).or(known.as_ref());
                found.extend(first.map(|first| (span_config::decode(&first.config), record.clone())));
            } else {
                let config = span_config::decode(&record.config);
                if known.is_none_or(|known| known.config != record.config) {
                    let others = of_tenant(&*node.engine, tenant)?;
                    found.extend(others.into_iter().map(|other| (config.clone(), other)));
                }
                found.push((config, record.clone()));
            }
        }
        let mut configuring = self.configuring.lock();
        found.iter().for_each(|(tenant, record)| configuring.compare(tenant, record));
        Ok(())
    }

    /// Tells ranges how they are to be kept: some at a time.
    pub(super) async fn pass_on_configs(self: &Arc<Self>, node: &Arc<Node>) -> Result<(), KvError> {
        if !std::mem::replace(&mut self.configuring.lock().compared, true) {
            self.compare_all(node)?;
        }
        self.cut_where_spans_are(node);
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
        let mut first: Option<(RangeId, RangeConfig)> = None;
        let mut after = Bytes::new();
        loop {
            let records = list(&*node.engine, &after, PAGE)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.start.clone();
            for record in records {
                let (family, config) = match &first {
                    Some((family, config)) if *family == record.family() => (*family, config.clone()),
                    _ => (record.family(), span_config::decode(&record.config)),
                };
                self.configuring.lock().compare(&config, &record);
                first = Some((family, config));
            }
        }
    }

    /// Has ranges split at the borders of spans, in the background: some at a time, one after the other.
    fn cut_where_spans_are(self: &Arc<Self>, node: &Arc<Node>) {
        let cuts: Vec<Bytes> = {
            let mut configuring = self.configuring.lock();
            if configuring.cutting || configuring.cuts.is_empty() {
                return;
            }
            configuring.cutting = true;
            configuring.cuts.iter().take(MAX_CUT).cloned().collect()
        };
        let (cluster, node) = (Arc::clone(self), Arc::clone(node));
        tokio::spawn(async move {
            for key in cuts {
                let cut = cluster.cut(&node, &key).await;
                let mut configuring = cluster.configuring.lock();
                // What cannot be split for the moment is tried again at the next look.
                if matches!(cut, Ok(true)) {
                    configuring.cuts.remove(&key);
                }
            }
            cluster.configuring.lock().cutting = false;
        });
    }

    /// Has the range that holds a key split there, unless one begins with it; false if it is to be tried again.
    async fn cut(&self, node: &Arc<Node>, key: &Bytes) -> Result<bool, KvError> {
        let record = before(&*node.engine, key)?;
        let Some(record) = record.filter(|record| record.start != *key && *key < record.end) else {
            return Ok(true);
        };
        let nodes = node.pipeline.nodes().await?;
        let views = self.views(&self.records(), &nodes);
        let live: Vec<NodeId> = views.iter().filter(|view| view.live).map(|view| view.id).collect();
        let range_id = record.range_id;
        for member in members(&record, &live) {
            let done = if member == self.myself.id {
                self.split(node, range_id, key.clone()).await.is_ok()
            } else {
                let question = Kind::Cut(Cut { range_id, key: key.clone() });
                matches!(self.ask_patiently(member, question).await, Some(Kind::Done(_)))
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
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
        for member in members(&record, live) {
            let done = if member == self.myself.id {
                self.configure_range(node, range, |_| Ok(config.clone())).await.is_ok()
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

/// The members of a range that can be asked, its leaseholder first.
pub(super) fn members(record: &RangeRecord, live: &[NodeId]) -> Vec<NodeId> {
    let mut members: Vec<NodeId> = record.voters.iter().copied().filter(|id| live.contains(id)).collect();
    members.sort_by_key(|member| *member != record.leaseholder);
    members
}

/// Fails for a range that is not the first one of a tenant.
fn first_of(own: &RangeDescriptor, tenant: TenantId) -> Result<(), KvError> {
    if own.start == tenant.span().start { Ok(()) } else { Err(KvError::range_not_found(own.range_id)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(7);

    fn key(text: &'static str) -> Bytes {
        TENANT.prefixed(text.as_bytes())
    }

    #[test]
    fn ranges_are_told_what_they_should_be_and_cut_at_borders() {
        let eu = RangeConfig { constraints: vec!["region=eu".into()], ..RangeConfig::default() };
        let tenant = span_config::with_span(RangeConfig::default(), &Span::new(key("c"), key("f")), Some(eu));
        let tenant = tenant.expect("set");
        let record = |start, end, config: &RangeConfig| RangeRecord {
            start: key(start),
            end: key(end),
            config: config.encode_to_vec().into(),
            ..RangeRecord::default()
        };
        let compared = |record: RangeRecord| {
            let mut configuring = Configuring::default();
            configuring.compare(&tenant, &record);
            (configuring.wanted.into_keys().collect::<Vec<_>>(), configuring.cuts.into_iter().collect())
        };
        let nothing = || (vec![], Vec::<Bytes>::new());
        assert_eq!(compared(record("", "z", &tenant)), (vec![], vec![key("c"), key("f")]), "the first one");
        assert_eq!(compared(record("", "c", &tenant)), nothing());
        let inside = span_config::wanted(&tenant, &key("c"));
        assert_eq!(compared(record("c", "f", &inside)), nothing());
        assert_eq!(compared(record("d", "g", &inside)), (vec![], vec![key("f")]));
        assert_eq!(compared(record("f", "z", &inside)), (vec![key("f")], vec![]));
        assert_eq!(compared(record("f", "z", &RangeConfig::default())), nothing());
    }
}
