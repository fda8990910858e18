//! What a range has to do with the commit of a transaction over several.

use super::super::end::Farewell;
use super::super::lost;
use crate::client::KvClient;
use crate::located::Located;
use crate::router::Place;
use crate::write_buffer::written_key;
use bytes::Bytes;
use kv_api::{KvResult, Request, Span, TxnMeta};

/// A range's share.
#[derive(Clone)]
pub struct Share {
    /// The range.
    pub at: Located,
    /// A key of it.
    pub key: Bytes,
    /// Where the transaction is known.
    pub place: Option<Place>,
    /// How the node is told whose batch it is.
    pub meta: TxnMeta,
    /// Whether the commit rests on what the node keeps under its lease.
    pub held: bool,
    /// Whether locks that were taken in the range count.
    pub locked: bool,
    /// A key with an intent.
    pub intent: Option<Bytes>,
    /// What is to be written.
    pub writes: Vec<Request>,
    /// What was read and must be unchanged.
    pub spans: Vec<Span>,
}

impl Share {
    /// Whether anything is written in the range, or was.
    pub fn is_writer(&self) -> bool {
        self.meta.has_intents || !self.writes.is_empty()
    }

    /// A key written.
    pub fn written(&self) -> Option<&Bytes> {
        self.writes.iter().find_map(written_key).or(self.intent.as_ref())
    }

    /// How to tell the node that the transaction ends there without effect.
    pub fn farewell(&self) -> Farewell {
        let (meta, place, key) = (self.meta.clone(), self.place.clone(), self.key.clone());
        Farewell { meta, place, range_id: self.at.range_id, key }
    }

    /// The transaction as one that the node may not know: nothing rests on what it keeps.
    pub fn unbound(&mut self) {
        self.place = None;
        self.meta.lease = 0;
    }

    /// What is still to be checked where the share is prepared. It rests on nothing but its record any more.
    pub fn as_prepared(&self) -> Share {
        let meta = TxnMeta { has_intents: true, lease: 0, ..self.meta.clone() };
        let (at, key, spans) = (self.at.clone(), self.key.clone(), self.spans.clone());
        let (intent, writes) = (None, Vec::new());
        Share { at, key, place: None, meta, held: false, locked: false, intent, writes, spans }
    }

    /// The share after its range was split or absorbed by another: what is left of it, and shares of other ranges. Neither
    /// happens to a range with intents, so they are in what is left, or are no more: then the range has lost its
    /// lease, and with it the transaction.
    ///
    /// # Errors
    /// [`kv_api::KvErrorKind::Aborted`] if what was written or locked in the range went with it, and what keeps the ranges from
    /// being found.
    pub async fn split(self, client: &KvClient) -> KvResult<Vec<Share>> {
        let mut shares: Vec<Share> = Vec::new();
        let at = client.locate(&self.key, false).await?;
        if at.range_id == self.at.range_id {
            shares.push(Share { at, writes: Vec::new(), spans: Vec::new(), ..self.clone() });
        } else if self.meta.has_intents || self.held || self.locked {
            return Err(lost());
        }
        for write in &self.writes {
            let Some(key) = written_key(write) else { continue };
            self.add(&mut shares, key, client, |share| share.writes.push(write.clone())).await?;
        }
        for span in &self.spans {
            let mut left = span.clone();
            loop {
                let add = |share: &mut Share| {
                    share.spans.extend(share.at.clip(&left));
                    share.at.end.clone()
                };
                let end = self.add(&mut shares, &left.start, client, add).await?;
                if left.is_point() || end.is_empty() || end >= left.end {
                    break;
                }
                left.start = end;
            }
        }
        Ok(shares)
    }

    /// Adds something to the share of the range that holds a key.
    async fn add<T>(
        &self,
        shares: &mut Vec<Share>,
        key: &Bytes,
        client: &KvClient,
        add: impl FnOnce(&mut Share) -> T,
    ) -> KvResult<T> {
        if let Some(share) = shares.iter_mut().find(|share| share.at.holds(key)) {
            return Ok(add(share));
        }
        let at = client.locate(key, false).await?;
        let meta = TxnMeta { has_intents: false, lease: 0, ..self.meta.clone() };
        let (writes, spans) = (Vec::new(), Vec::new());
        let key = key.clone();
        let (held, locked, place, intent) = (false, false, None, None);
        let mut share = Share { at, key, place, meta, held, locked, intent, writes, spans };
        let added = add(&mut share);
        shares.push(share);
        Ok(added)
    }
}
