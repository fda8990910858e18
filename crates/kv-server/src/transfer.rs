//! Transactions that change their coordinator: what a range does for its part.
//!
//! The protocol is written down in [`kv_api`], what becomes of a part in the shard's module `transfer`. Only the
//! leaseholder lets a part go or takes one over: it is the only one that has the part. When the lease moves, or the
//! node restarts, parts that wait are forgotten like all others, and whoever comes for them is told that there are
//! none. A part that nobody takes over in time is aborted by the same task that recovers prepared ones.

use crate::faults::Bug;
use crate::metrics::metrics;
use crate::node::{Asker, BatchResult, Node, abort_job, check_lease, part_key};
use crate::pipeline::sequence_of;
use kv_api::batch::{RequestKind, Response};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind};
use replication::Millis;

impl Node {
    /// Leaves a part to another coordinator, or gives one to whoever asks.
    pub(crate) fn transfer(&self, asker: Asker, batch: &BatchRequest) -> BatchResult {
        let lease = self.pipeline.lease(asker.range)?;
        check_lease(&batch.header, sequence_of(lease))?;
        self.check_holds(asker, batch)?;
        match batch.requests.first().and_then(|request| request.kind.as_ref()) {
            Some(RequestKind::DetachTxn(_)) => self.detach(asker, batch)?,
            Some(RequestKind::AdoptTxn(adopt)) => self.adopt_part(asker, batch, adopt.claim_only)?,
            _ => return Err(KvError::new(KvErrorKind::Internal, "nothing says what is to be handed over")),
        }
        Ok(BatchResponse { responses: vec![Response::default()], ..BatchResponse::default() })
    }

    fn detach(&self, asker: Asker, batch: &BatchRequest) -> Result<(), KvError> {
        let header = &batch.header;
        let part = part_key(asker, header)?;
        let (hop, has_intents) = header.txn.as_ref().map_or((0, false), |meta| (meta.hop, meta.has_intents));
        let now = self.pipeline.millis();
        let mut shard = self.shard(asker.tenant);
        shard.check(part, asker.connection, hop, has_intents)?;
        let most = self.limits.max_detached_per_tenant;
        shard.detach(part, asker.connection, hop, header.read_timestamp, now, most)
    }

    fn adopt_part(&self, asker: Asker, batch: &BatchRequest, claim_only: bool) -> Result<(), KvError> {
        let part = part_key(asker, &batch.header)?;
        let span = self.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
        let claim_only = claim_only.then_some(&span);
        let mut hop = batch.header.txn.as_ref().map_or(0, |meta| meta.hop);
        let mut shard = self.shard(asker.tenant);
        let known = shard.txn(part).map(|entry| entry.hop);
        if self.pipeline.environment().planted(Bug::HopIgnored) {
            hop = known.unwrap_or(hop);
        }
        let adopted =
            shard.adopt(part, asker.connection, hop, claim_only, self.limits.max_txns_per_connection);
        match adopted {
            Err(_)
                if self.pipeline.environment().planted(Bug::ClaimTakenTwice)
                    && known.is_none_or(|known| known == hop) =>
            {
                Ok(())
            }
            adopted => adopted,
        }
    }

    /// Aborts the parts that nobody took over in time.
    pub(crate) fn abort_overdue(&self) {
        let kept = Millis::try_from(self.limits.detached_kept.as_millis()).unwrap_or(Millis::MAX);
        let before = self.pipeline.millis().saturating_sub(kept);
        for shard in &self.shards {
            let jobs: Vec<_> = {
                let mut shard = shard.lock();
                let overdue = shard.overdue(before);
                let ended = overdue.into_iter().filter_map(|part| {
                    metrics().detached_expired.inc();
                    shard.end(part).and_then(|entry| abort_job(part, &entry))
                });
                ended.collect()
            };
            jobs.into_iter().for_each(|job| self.resolve_later(job));
        }
    }
}
