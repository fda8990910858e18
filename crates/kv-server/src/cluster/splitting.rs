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
use crate::node::Node;
use crate::pipeline::{ROOT, SplitAt, Standing};
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind, TenantId};
use replication::RangeId;
use std::sync::Arc;
use std::time::Duration;

/// How often a range that cannot be split for the moment is tried again before who asked is told.
const ATTEMPTS: usize = 10;
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(100);

impl Cluster {
    /// Splits a tenant's range whose lease is held here, so that `key` is the first of a new one.
    ///
    /// # Errors
    /// [`KvErrorKind::InvalidRequest`] if a range begins with the key already or it is no tenant's,
    /// [`KvErrorKind::RangeNotFound`] if it is not in the range, [`KvErrorKind::Unavailable`] if the range cannot be
    /// split for the moment, and what keeps the command from being applied.
    pub async fn split(&self, node: &Arc<Node>, range: RangeId, key: Bytes) -> Result<(), KvError> {
        let _one_at_a_time = self.splitting.lock().await;
        let mut attempts = 0;
        loop {
            match self.try_to_split(node, range, &key).await {
                Err(error) if error.kind() == KvErrorKind::Unavailable && attempts < ATTEMPTS => {
                    attempts += 1;
                    tracing::debug!(range, "a range is to be split again: {}", error.message);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        // What cannot be reported now is reported at the next look.
        let leads_root = matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_));
        if let Err(error) = self.report(node, leads_root).await {
            tracing::debug!(range, "a split is not in the directory yet: {error}");
        }
        Ok(())
    }

    async fn try_to_split(&self, node: &Arc<Node>, range: RangeId, key: &Bytes) -> Result<(), KvError> {
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
        node.pipeline.split(range, SplitAt { key: key.clone(), new }).await
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
