//! Sends all buffered writes as intents, to all their ranges at the same time: one round of consensus, however many
//! ranges there are. [`Txn::flush`] sends one batch after another, which bounds what is under way; here it is what one
//! statement wrote.

use super::options::ReadOptions;
use super::state::State;
use super::write::{MAX_WRITE_BYTES, MAX_WRITES};
use super::{Txn, aborted_if_lost};
use crate::join::try_all;
use crate::metrics::metrics;
use crate::router::SendError;
use crate::write_buffer::written_key;
use bytes::Bytes;
use kv_api::KvResult;
use kv_api::batch::BatchRequest;
use std::convert::Infallible;

/// Most ranges that are sent to at the same time; what others hold follows, one after another.
const MAX_RANGES: usize = 64;

impl Txn {
    /// Sends the buffered writes as durable intents, and returns when they are.
    ///
    /// # Errors
    /// As for [`Txn::flush`]. What other ranges took stays there as intents.
    pub async fn flush_all(&self) -> KvResult<()> {
        let ranges = self.ranges_written().await?;
        if ranges.len() > 1 {
            self.flush_to(&ranges).await?;
        }
        // What was too much for one batch, and what a range did not take that has moved or was split.
        self.flush().await
    }

    /// Ranges that hold keys of the buffer, in the order of their keys; not more than are sent to.
    async fn ranges_written(&self) -> KvResult<Vec<u64>> {
        let (mut ranges, mut from) = (Vec::new(), Bytes::new());
        while ranges.len() < MAX_RANGES {
            let Some(key) = self.state.lock().buffer.first_key(&from).cloned() else { break };
            let range_id = self.locate(&key, false).await?;
            ranges.push(range_id);
            let end = self.state.lock().parts.get(range_id).map(|part| part.at.end.clone());
            // The last range has no end.
            match end.filter(|end| !end.is_empty()) {
                Some(end) => from = end,
                None => break,
            }
        }
        Ok(ranges)
    }

    async fn flush_to(&self, ranges: &[u64]) -> KvResult<()> {
        let batches = {
            let mut state = self.state.lock();
            state.check_open()?;
            state.check_settled()?;
            let batches = state.batches(ranges);
            // Until all answers are there; for good if this future is dropped before.
            state.flushing = !batches.is_empty();
            batches
        };
        batches.iter().for_each(|_| metrics().flushes.inc());
        let sending = batches.into_iter().map(|(range_id, mut batch)| async move {
            let sent = self.send_bound(range_id, &mut batch, true).await;
            Ok::<_, Infallible>((range_id, batch, sent))
        });
        let Ok(answers) = try_all(sending.collect()).await;
        self.state.lock().flushing = false;
        let mut failure = None;
        for (range_id, batch, answer) in answers {
            let taken = match answer {
                Ok(_) => {
                    self.state.lock().flushed(range_id, &batch);
                    Ok(())
                }
                Err(SendError::Moved) => self.move_on(range_id),
                Err(SendError::Split) => self.forget_range(range_id),
                Err(error) => Err(aborted_if_lost(error)),
            };
            failure = failure.or(taken.err());
        }
        failure.map_or(Ok(()), Err)
    }
}

impl State {
    /// For each of the ranges that hold buffered writes, a batch of them.
    fn batches(&self, ranges: &[u64]) -> Vec<(u64, BatchRequest)> {
        let batch = |range_id: &u64| {
            let part = self.parts.get(*range_id)?;
            let requests = self.buffer.chunk(&part.at, MAX_WRITES, MAX_WRITE_BYTES);
            let header = self.header(*range_id, ReadOptions::default(), false, 0);
            (!requests.is_empty()).then_some((*range_id, BatchRequest { header, requests }))
        };
        ranges.iter().filter_map(batch).collect()
    }

    /// A range has taken these writes as intents.
    pub(super) fn flushed(&mut self, range_id: u64, batch: &BatchRequest) {
        if let Some(part) = self.parts.get_mut(range_id) {
            part.has_intents = true;
            let first = batch.requests.iter().find_map(written_key);
            part.intent = part.intent.take().or(first.map(|key| Bytes::copy_from_slice(key)));
        }
        self.flushes = self.flushes.wrapping_add(1);
        self.buffer.remove(&batch.requests);
    }
}
