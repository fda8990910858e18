//! `nextval` and its kin: counters outside of transactions.
//!
//! A sequence's counter holds the distance of its last value from the one before its first: absent or
//! 0 before the first `nextval`.

use super::view::{SessionView, Shared};
use crate::catalog::descriptor::SequenceDescriptor;
use crate::catalog::store;
use crate::exec::kv_error;
use bytes::Bytes;
use kv_api::{KvErrorKind, LockStrength};
use kv_client::TxnOptions;
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use std::collections::HashMap;

/// What a session remembers of sequences.
#[derive(Default)]
pub(crate) struct SequenceState {
    /// The last value each sequence gave, by OID.
    current: HashMap<Oid, i64>,
    last: Option<Oid>,
    /// Values taken in advance: storage, next value, how many are left.
    cached: HashMap<Oid, (u64, i64, i64)>,
}

impl SequenceState {
    pub(crate) fn clear(&mut self) {
        *self = SequenceState::default();
    }

    fn note(&mut self, sequence: Oid, value: i64) {
        self.current.insert(sequence, value);
        self.last = Some(sequence);
    }

    /// `lastval()`
    pub(crate) fn last_value(&self) -> SqlResult<i64> {
        self.last.and_then(|oid| self.current.get(&oid)).copied().ok_or_else(|| {
            SqlError::new(SqlState::OBJECT_STATE, "lastval is not yet defined in this session")
        })
    }

    /// `currval()`
    pub(crate) fn current_value(&self, sequence: &SequenceDescriptor) -> SqlResult<i64> {
        self.current.get(&sequence.oid).copied().ok_or_else(|| {
            let message =
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
            SqlError::new(SqlState::OBJECT_STATE, message)
        })
    }
}

/// A sequence by OID; 42809 if the OID is of something else.
pub(crate) fn find(view: &SessionView, oid: Oid) -> SqlResult<&SequenceDescriptor> {
    if let Some(sequence) = view.snapshot().sequences.get(&oid) {
        return Ok(sequence);
    }
    if let Some(table) = view.snapshot().table(oid) {
        return Err(SqlError::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{}\" is not a sequence", table.name),
        ));
    }
    Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("could not open relation with OID {oid}")))
}

/// `nextval`
pub(crate) async fn next_value(view: &SessionView, oid: Oid) -> SqlResult<i64> {
    let sequence = find(view, oid)?;
    if !view.is_superuser() && !view.snapshot().has_privilege(view.user, sequence.owner, oid, 'U') {
        return Err(super::privileges::denied("sequence", &sequence.name));
    }
    if sequence.cache > 1 {
        let mut state = view.shared.sequences.lock();
        if let Some((storage, next, left)) = state.cached.get_mut(&oid)
            && *storage == sequence.storage
            && *left > 0
        {
            let value = *next;
            *next = next.wrapping_add(sequence.increment);
            *left -= 1;
            state.note(oid, value);
            return Ok(value);
        }
    }
    let value = advance(&view.shared, sequence).await?;
    view.shared.engine.sequence_values.lock().insert(sequence.storage, value);
    view.shared.sequences.lock().note(oid, value);
    Ok(value)
}

fn value_of(sequence: &SequenceDescriptor, counter: i64) -> Option<i64> {
    let value = i128::from(sequence.first) - i128::from(sequence.increment) + i128::from(counter);
    i64::try_from(value).ok().filter(|value| (sequence.min..=sequence.max).contains(value))
}

async fn advance(shared: &Shared, sequence: &SequenceDescriptor) -> SqlResult<i64> {
    let key = store::sequence_key(sequence.storage);
    let count = sequence.cache.clamp(1, 10_000);
    let by = sequence.increment.saturating_mul(count);
    let counter = match shared.engine.kv.increment(&key, by).await {
        Ok(counter) => Some(counter),
        Err(error) if error.kind() == KvErrorKind::CounterOverflow => None,
        Err(error) => return Err(kv_error(error)),
    };
    // The first value taken is `count - 1` steps before the last.
    let first = counter.and_then(|counter| value_of(sequence, counter - (by - sequence.increment)));
    if let Some(first) = first {
        let left = (1..count).take_while(|n| {
            value_of(sequence, counter.unwrap_or(0) - (by - sequence.increment) + sequence.increment * n)
                .is_some()
        });
        let left = left.count() as i64;
        if left > 0 {
            let next = first.wrapping_add(sequence.increment);
            shared.sequences.lock().cached.insert(sequence.oid, (sequence.storage, next, left));
        }
        return Ok(first);
    }
    if sequence.cycle {
        let start = if sequence.increment > 0 { sequence.min } else { sequence.max };
        set_counter(shared, sequence, start).await?;
        return Ok(start);
    }
    if counter.is_some() {
        // Keeps the counter from running away; harmless if it fails.
        let _ = shared.engine.kv.increment(&key, by.saturating_neg()).await;
    }
    let (what, bound) =
        if sequence.increment > 0 { ("maximum", sequence.max) } else { ("minimum", sequence.min) };
    let message = format!("nextval: reached {what} value of sequence \"{}\" ({bound})", sequence.name);
    Err(SqlError::new(SqlState::SEQUENCE_LIMIT, message))
}

/// Makes `value` the last value given.
async fn set_counter(shared: &Shared, sequence: &SequenceDescriptor, value: i64) -> SqlResult<()> {
    let counter = i128::from(value) - i128::from(sequence.first) + i128::from(sequence.increment);
    let counter = i64::try_from(counter)
        .map_err(|_| SqlError::new(SqlState::OUT_OF_RANGE, "sequence value out of range"))?;
    let key = store::sequence_key(sequence.storage);
    let value = Bytes::copy_from_slice(&counter.to_be_bytes());
    let written = shared.engine.kv.write(&[(key, Some(value))]).await;
    written.map_err(kv_error)
}

/// `setval`
pub(crate) async fn set_value(view: &SessionView, oid: Oid, value: i64, is_called: bool) -> SqlResult<i64> {
    let sequence = find(view, oid)?;
    if !view.is_superuser() && !view.snapshot().has_privilege(view.user, sequence.owner, oid, 'w') {
        return Err(super::privileges::denied("sequence", &sequence.name));
    }
    if !(sequence.min..=sequence.max).contains(&value) {
        let message = format!(
            "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
            sequence.name, sequence.min, sequence.max
        );
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, message));
    }
    let last = if is_called { value } else { value.wrapping_sub(sequence.increment) };
    set_counter(&view.shared, sequence, last).await?;
    {
        let mut known = view.shared.engine.sequence_values.lock();
        if is_called {
            known.insert(sequence.storage, value)
        } else {
            known.remove(&sequence.storage)
        };
    }
    let mut state = view.shared.sequences.lock();
    state.cached.remove(&oid);
    if is_called {
        state.note(oid, value);
    }
    Ok(value)
}

/// The last value a sequence gave, and whether it gave one; its first value if not.
pub(crate) async fn peek(shared: &Shared, sequence: &SequenceDescriptor) -> SqlResult<(i64, bool)> {
    let txn = shared.engine.kv.begin(TxnOptions::default());
    let stored =
        txn.get(&store::sequence_key(sequence.storage), LockStrength::None).await.map_err(kv_error)?;
    let counter = stored.and_then(|bytes| Some(i64::from_be_bytes(bytes[..].try_into().ok()?))).unwrap_or(0);
    if counter == 0 {
        return Ok((sequence.first, false));
    }
    let value = i128::from(sequence.first) - i128::from(sequence.increment) + i128::from(counter);
    Ok((i64::try_from(value).unwrap_or(sequence.max).clamp(sequence.min, sequence.max), true))
}
