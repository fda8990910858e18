//! The part of the model that knows transactions which change their coordinators.

use super::Store;
use bytes::Bytes;
use kv_api::batch::{BatchRequest, RequestKind};
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult, TxnMeta};

/// How a range knows a transaction that was handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    number: u32,
    /// Whether it waits to be taken over.
    waits: bool,
}

fn aborted(message: &str) -> KvError {
    KvError::new(KvErrorKind::Aborted, message)
}

impl Store {
    /// Whether a transaction waits to be taken over in a range.
    pub(super) fn waits_at(&self, range: usize, id: &Bytes) -> bool {
        self.ranges[range].hops.get(id).is_some_and(|hop| hop.waits)
    }

    /// How many parts wait to be taken over.
    pub fn waiting(&self) -> usize {
        self.ranges.iter().flat_map(|range| range.hops.values()).filter(|hop| hop.waits).count()
    }

    /// The time of those that wait is up.
    pub fn expire(&mut self) {
        for asked in 0..self.ranges.len() {
            self.asked = asked;
            let waiting = self.ranges[asked].hops.iter().filter(|(_, hop)| hop.waits);
            let waiting: Vec<Bytes> = waiting.map(|(id, _)| id.clone()).collect();
            waiting.iter().for_each(|id| self.end(id));
        }
    }

    /// The answer to what hands a transaction over, and to others that may not go on.
    pub(super) fn transfer(
        &mut self,
        meta: &TxnMeta,
        batch: &BatchRequest,
    ) -> Option<KvResult<BatchResponse>> {
        let range = &mut self.ranges[self.asked];
        let known = range.hops.get(&meta.id).copied();
        let done = Some(Ok(BatchResponse::default()));
        match batch.requests.first()?.kind.as_ref()? {
            RequestKind::AdoptTxn(adopt) => {
                let waits = Some(Hop { number: meta.hop, waits: true });
                if known != waits {
                    return Some(Err(aborted("nothing to take over")));
                }
                if adopt.claim_only {
                    range.hops.remove(&meta.id);
                } else {
                    range.hops.insert(meta.id.clone(), Hop { number: meta.hop, waits: false });
                }
                done
            }
            RequestKind::EndTxn(end) if !end.commit && known.is_some_and(|hop| hop.number == meta.hop) => {
                None
            }
            _ if known.is_some_and(|hop| hop.waits || hop.number != meta.hop) => {
                Some(Err(aborted("handed over")))
            }
            RequestKind::DetachTxn(_) => {
                if range.ended.contains(&meta.id) {
                    return Some(Err(aborted("ended")));
                }
                range.hops.insert(meta.id.clone(), Hop { number: meta.hop + 1, waits: true });
                done
            }
            _ => None,
        }
    }
}
