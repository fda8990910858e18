//! Writes: buffered, and sent as intents when they are too many.

use super::options::ReadOptions;
use super::state::State;
use super::{Txn, aborted_if_lost, read_only, split_without_end};
use crate::metrics::metrics;
use crate::router::SendError;
use crate::write_buffer::Write;
use bytes::Bytes;
use kv_api::batch::BatchRequest;
use kv_api::key::{MAX_KEY_LEN, MAX_VALUE_LEN};
use kv_api::{KvError, KvErrorKind, KvResult};
use parking_lot::MutexGuard;

/// Writes of one batch.
pub(super) const MAX_WRITES: usize = 50_000;
/// Bytes of writes of one batch, unless a single one is larger.
pub(super) const MAX_WRITE_BYTES: usize = 8 << 20;
/// Batches that a flush sends at most. The buffer is bounded, so more means that ranges change without end.
const MAX_FLUSHES: usize = 1 << 20;
/// How far the buffer may outgrow its budget before writes are refused.
const HARD_BOUND_FACTOR: usize = 16;
/// The least such bound, in bytes.
const MIN_HARD_BOUND: usize = MAX_VALUE_LEN;

impl Txn {
    /// Writes a value.
    ///
    /// # Errors
    /// `InvalidRequest` if key or value are too large, `Aborted` if the transaction has ended,
    /// `Overloaded` if far too much is buffered because [`Txn::flush_if_large`] is not called.
    pub fn put(&self, key: &[u8], value: Bytes) -> KvResult<()> {
        self.write(key, Write::Put(value))
    }

    /// Writes a value to a key that must not exist. Checked when the write reaches the KV node, at the
    /// latest by the commit, which then fails with `ConditionFailed`.
    ///
    /// # Errors
    /// As for [`Txn::put`]; `ConditionFailed` if the transaction itself has written the key.
    pub fn put_if_absent(&self, key: &[u8], value: Bytes) -> KvResult<()> {
        let full = self.client.tenant().prefixed(key);
        let mut state = self.writable(&full, value.len())?;
        let write = match state.buffer.get(&full) {
            None => Write::Insert(value),
            Some(None) => Write::Put(value),
            Some(Some(actual)) => {
                let mut error = KvError::new(KvErrorKind::ConditionFailed, "the key exists already")
                    .with_key(Bytes::copy_from_slice(key));
                error.actual = Some(actual);
                return Err(error);
            }
        };
        state.write(full, write)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As for [`Txn::put`].
    pub fn delete(&self, key: &[u8]) -> KvResult<()> {
        self.write(key, Write::Delete)
    }

    /// Whether the buffered writes have outgrown their budget, so that [`Txn::flush`] is due.
    pub fn wants_flush(&self) -> bool {
        self.state.lock().buffer.bytes() >= self.options.buffer_bytes
    }

    /// Flushes the buffered writes if they have outgrown their budget. To be called between rows of a
    /// statement that writes many.
    ///
    /// # Errors
    /// As for [`Txn::flush`].
    pub async fn flush_if_large(&self) -> KvResult<()> {
        if self.wants_flush() { self.flush().await } else { Ok(()) }
    }

    /// Sends the buffered writes as durable intents. What could not be sent for a reason that the node
    /// gave stays buffered, so that a return to a savepoint can undo it.
    ///
    /// # Errors
    /// As for [`Txn::get`], and `ConditionFailed`.
    pub async fn flush(&self) -> KvResult<()> {
        for _ in 0..MAX_FLUSHES {
            let first = {
                let state = self.state.lock();
                state.check_open()?;
                state.check_settled()?;
                match state.buffer.first_key(b"") {
                    Some(first) => first.clone(),
                    None => return Ok(()),
                }
            };
            let range_id = self.locate(&first, false).await?;
            self.flush_some(range_id).await?;
        }
        Err(split_without_end())
    }

    /// Sends some of the writes to the range that holds them, or finds that it does not.
    async fn flush_some(&self, range_id: u64) -> KvResult<()> {
        let mut batch = {
            let mut state = self.state.lock();
            state.check_open()?;
            state.check_settled()?;
            let Some(part) = state.parts.get(range_id) else { return Ok(()) };
            let requests = state.buffer.chunk(&part.at, MAX_WRITES, MAX_WRITE_BYTES);
            if requests.is_empty() {
                // Undone meanwhile, or split.
                return Ok(());
            }
            // Until the answer is there; for good if this future is dropped before.
            state.flushing = true;
            BatchRequest { header: state.header(range_id, ReadOptions::default(), false, 0), requests }
        };
        metrics().flushes.inc();
        let result = self.send_bound(range_id, &mut batch, true).await;
        let mut state = self.state.lock();
        state.flushing = false;
        match result {
            Err(SendError::Moved) => {
                drop(state);
                return self.move_on(range_id);
            }
            Err(SendError::Split) => {
                drop(state);
                return self.forget_range(range_id);
            }
            result => result.map_err(aborted_if_lost)?,
        };
        state.flushed(range_id, &batch);
        Ok(())
    }

    fn write(&self, key: &[u8], write: Write) -> KvResult<()> {
        let full = self.client.tenant().prefixed(key);
        let value_len = match &write {
            Write::Put(value) | Write::Insert(value) => value.len(),
            Write::Delete => 0,
        };
        self.writable(&full, value_len)?.write(full, write)
    }

    /// The state, if a key may be written with a value of this many bytes.
    fn writable(&self, full: &Bytes, value_len: usize) -> KvResult<MutexGuard<'_, State>> {
        if self.options.read_only {
            return Err(read_only());
        }
        if full.len() > MAX_KEY_LEN || value_len > MAX_VALUE_LEN {
            let message = format!("a key of {} bytes with a value of {value_len} is too large", full.len());
            return Err(KvError::new(KvErrorKind::InvalidRequest, message));
        }
        let state = self.state.lock();
        state.check_open()?;
        let most = self.options.buffer_bytes.saturating_mul(HARD_BOUND_FACTOR).max(MIN_HARD_BOUND);
        if state.buffer.bytes() >= most {
            let message = format!("the transaction has buffered more than {most} bytes of writes");
            return Err(KvError::new(KvErrorKind::Overloaded, message));
        }
        Ok(state)
    }
}

impl State {
    fn write(&mut self, full: Bytes, write: Write) -> KvResult<()> {
        let sequence = self.next_sequence()?;
        self.buffer.push(full, sequence, write);
        Ok(())
    }
}
