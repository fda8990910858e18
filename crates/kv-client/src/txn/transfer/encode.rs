//! What is carried of a transaction, and what of that can be: pure.
//!
//! Nothing of what is under way is carried, for there is nothing, nor what was seen of clocks and connections: those
//! are the process's own. Numbers that only tell answers apart which belong to an earlier statement start anew.

use super::super::options::{Isolation, TxnOptions};
use super::super::part::{Part, Parts};
use super::super::state::State;
use super::token::invalid;
use crate::environment::Environment;
use crate::located::Located;
use crate::refresh::{self, RefreshSpans};
use crate::write_buffer::{Write, WriteBuffer};
use bytes::Bytes;
use kv_api::batch::IgnoredSequences;
use kv_api::key::{MAX_KEY_LEN, MAX_VALUE_LEN};
use kv_api::{KvResult, Priority, Span, TenantId, Timestamp};
use smallvec::SmallVec;

/// Most ranges of which something is carried.
const MAX_PARTS: usize = 4096;

/// A transaction on its way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Exported {
    /// The cluster, if who exported it knows; or else empty.
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    #[prost(uint64, tag = "2")]
    pub tenant_id: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub id: Bytes,
    /// That of who takes it over.
    #[prost(uint32, tag = "4")]
    pub hop: u32,
    #[prost(message, required, tag = "5")]
    pub options: Options,
    #[prost(message, optional, tag = "6")]
    pub read_timestamp: Option<Timestamp>,
    #[prost(bool, tag = "7")]
    pub fixed: bool,
    #[prost(message, optional, tag = "8")]
    pub uncertain_until: Option<Timestamp>,
    #[prost(uint32, tag = "9")]
    pub sequence: u32,
    #[prost(message, repeated, tag = "10")]
    pub ignored: Vec<IgnoredSequences>,
    #[prost(uint64, tag = "11")]
    pub locked_keys: u64,
    #[prost(message, repeated, tag = "12")]
    pub parts: Vec<CarriedPart>,
    /// The range that decides who takes the transaction over.
    #[prost(uint64, tag = "13")]
    pub claim: u64,
    /// Whether nothing else is there.
    #[prost(bool, tag = "14")]
    pub claim_only: bool,
    #[prost(uint32, tag = "15")]
    pub protected: u32,
    #[prost(message, repeated, tag = "16")]
    pub writes: Vec<KeyWrites>,
    #[prost(message, repeated, tag = "17")]
    pub refresh: Vec<Span>,
    #[prost(message, repeated, tag = "18")]
    pub loose: Vec<Span>,
    #[prost(bool, tag = "19")]
    pub untracked: bool,
    #[prost(message, optional, tag = "20")]
    pub seen: Option<Timestamp>,
}

/// See [`TxnOptions`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Options {
    #[prost(bool, tag = "1")]
    pub read_committed: bool,
    #[prost(bool, tag = "2")]
    pub read_only: bool,
    #[prost(bool, tag = "3")]
    pub follower_reads: bool,
    #[prost(message, optional, tag = "4")]
    pub as_of: Option<Timestamp>,
    #[prost(uint32, tag = "5")]
    pub lock_timeout_ms: u32,
    #[prost(uint64, tag = "6")]
    pub buffer_bytes: u64,
    #[prost(enumeration = "Priority", tag = "7")]
    pub priority: i32,
    #[prost(bool, tag = "8")]
    pub parallel_commits: bool,
}

/// See [`Part`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct CarriedPart {
    #[prost(uint64, tag = "1")]
    pub range_id: u64,
    /// Both empty if it is not known any more where the range lies.
    #[prost(message, required, tag = "2")]
    pub span: Span,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(bool, tag = "4")]
    pub known: bool,
    #[prost(uint64, tag = "5")]
    pub lease: u64,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub intent: Option<Bytes>,
    #[prost(bool, tag = "7")]
    pub has_intents: bool,
    #[prost(message, optional, tag = "8")]
    pub observed: Option<Timestamp>,
}

/// The buffered writes of a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyWrites {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub history: Vec<CarriedWrite>,
}

/// See [`Write`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct CarriedWrite {
    #[prost(uint32, tag = "1")]
    pub sequence: u32,
    #[prost(bool, tag = "2")]
    pub insert: bool,
    /// Absent for a delete.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub value: Option<Bytes>,
}

/// Where it is decided who takes a transaction over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub range_id: u64,
    /// Whether there is nothing else of the transaction in that range.
    pub only: bool,
}

impl Exported {
    /// What is carried of a transaction.
    pub fn of(
        cluster_id: &str,
        tenant: TenantId,
        options: &TxnOptions,
        state: &State,
        claim: Claim,
        hop: u32,
    ) -> Self {
        let (protected, writes) = state.buffer.contents();
        let matters =
            |part: &&Part| part.known || part.observed.is_some() || part.at.range_id == claim.range_id;
        Exported {
            cluster_id: cluster_id.to_owned(),
            tenant_id: tenant.0,
            id: state.id.clone(),
            hop,
            options: Options::of(options, state.lock_timeout_ms),
            read_timestamp: state.read_timestamp,
            fixed: state.fixed,
            uncertain_until: state.uncertain_until,
            sequence: state.sequence,
            ignored: state.ignored.clone(),
            locked_keys: state.locked_keys as u64,
            parts: state.parts.iter().filter(matters).map(CarriedPart::of).collect(),
            claim: claim.range_id,
            claim_only: claim.only,
            protected,
            writes: writes.map(|(key, history)| KeyWrites::of(key, history)).collect(),
            refresh: state.refresh.iter().cloned().collect(),
            loose: state.loose.iter().cloned().collect(),
            untracked: state.untracked,
            seen: state.seen,
        }
    }

    /// The transaction, as it is before anything of it was taken over.
    ///
    /// # Errors
    /// `InvalidRequest` for what no transaction can come to.
    pub fn into_state(self, environment: Environment) -> KvResult<(TxnOptions, State, Claim)> {
        self.check()?;
        let options = self.options.restored();
        let mut state = State::new(self.options.lock_timeout_ms, options.priority, environment);
        state.take_name(self.id);
        state.hop = self.hop;
        (state.read_timestamp, state.fixed) = (self.read_timestamp, self.fixed);
        state.uncertain_until = self.uncertain_until;
        (state.sequence, state.ignored) = (self.sequence, self.ignored);
        state.locked_keys = usize::try_from(self.locked_keys).unwrap_or(usize::MAX);
        state.parts = Parts::of(self.parts.into_iter().map(CarriedPart::restored));
        let writes = self.writes.into_iter().map(KeyWrites::restored);
        state.buffer = WriteBuffer::of_contents(self.protected, writes);
        state.refresh = RefreshSpans::of_spans(self.refresh);
        state.loose = RefreshSpans::of_spans(self.loose);
        state.untracked = self.untracked;
        state.seen = self.seen;
        Ok((options, state, Claim { range_id: self.claim, only: self.claim_only }))
    }

    fn check(&self) -> KvResult<()> {
        let tenant = TenantId(self.tenant_id);
        let sound = self.id.len() == 16
            && self.hop > 0
            && self.sequence < u32::MAX
            && self.protected <= self.sequence + 1
            && self.ignored.iter().all(|range| range.from < range.to && range.to <= self.sequence + 1)
            && self.ignored.is_sorted_by(|one, next| one.to < next.from)
            && self.options.is_sound(self.read_timestamp, self.fixed)
            && (self.uncertain_until.is_none() || self.read_timestamp.is_some())
            && (self.read_timestamp.is_some() || self.refresh.is_empty() && self.loose.is_empty())
            && are_spans(tenant, &self.refresh)
            && are_spans(tenant, &self.loose)
            && self.are_parts(tenant)
            && self.are_writes(tenant);
        if sound { Ok(()) } else { Err(invalid("the exported transaction cannot be one")) }
    }

    fn are_parts(&self, tenant: TenantId) -> bool {
        let mut ids: Vec<u64> = self.parts.iter().map(|part| part.range_id).collect();
        ids.sort_unstable();
        let claim = self.parts.iter().find(|part| part.range_id == self.claim);
        self.parts.len() <= MAX_PARTS
            && ids.is_sorted_by(|one, next| one < next)
            && self.parts.iter().all(|part| part.is_sound(tenant))
            && claim.is_some_and(|part| part.known && !(self.claim_only && part.has_intents))
    }

    fn are_writes(&self, tenant: TenantId) -> bool {
        let is_write = |write: &CarriedWrite| {
            write.sequence > 0
                && write.sequence <= self.sequence
                && write.value.as_ref().map_or(!write.insert, |value| value.len() <= MAX_VALUE_LEN)
        };
        self.writes.is_sorted_by(|one, next| one.key < next.key)
            && (self.writes.is_empty() || !self.options.read_only)
            && self.writes.iter().all(|KeyWrites { key, history }| {
                is_key(tenant, key)
                    && !history.is_empty()
                    && history.iter().all(is_write)
                    && history.is_sorted_by(|one, next| one.sequence < next.sequence)
            })
    }
}

fn is_key(tenant: TenantId, key: &Bytes) -> bool {
    TenantId::of_key(key) == Some(tenant) && key.len() <= MAX_KEY_LEN
}

fn are_spans(tenant: TenantId, spans: &[Span]) -> bool {
    let is_span = |span: &Span| {
        let ends = span.is_point() || span.start < span.end && span.end <= tenant.span().end;
        TenantId::of_key(&span.start) == Some(tenant) && ends
    };
    let bytes: usize = spans.iter().map(|span| span.start.len() + span.end.len()).sum();
    spans.len() <= refresh::MAX_SPANS && bytes <= refresh::MAX_BYTES && spans.iter().all(is_span)
}

impl Options {
    fn of(options: &TxnOptions, lock_timeout_ms: u32) -> Self {
        Options {
            read_committed: options.isolation == Isolation::ReadCommitted,
            read_only: options.read_only,
            follower_reads: options.follower_reads,
            as_of: options.as_of,
            lock_timeout_ms,
            buffer_bytes: options.buffer_bytes as u64,
            priority: options.priority as i32,
            parallel_commits: options.parallel_commits,
        }
    }

    fn restored(&self) -> TxnOptions {
        TxnOptions {
            isolation: if self.read_committed { Isolation::ReadCommitted } else { Isolation::Serializable },
            read_only: self.read_only,
            follower_reads: self.follower_reads,
            as_of: self.as_of,
            lock_timeout_ms: self.lock_timeout_ms,
            buffer_bytes: usize::try_from(self.buffer_bytes).unwrap_or(usize::MAX),
            priority: self.priority(),
            parallel_commits: self.parallel_commits,
        }
    }

    /// One that reads the past has its snapshot from the beginning, and keeps it.
    fn is_sound(&self, read_timestamp: Option<Timestamp>, fixed: bool) -> bool {
        self.as_of.is_none()
            || self.as_of == read_timestamp && fixed && self.read_only && !self.read_committed
    }
}

impl CarriedPart {
    fn of(part: &Part) -> Self {
        let span = if part.at.is_nowhere() {
            Span::default()
        } else {
            Span::new(part.at.start.clone(), part.at.end.clone())
        };
        CarriedPart {
            range_id: part.at.range_id,
            span,
            key: part.key.clone(),
            known: part.known,
            lease: part.lease,
            intent: part.intent.clone(),
            has_intents: part.has_intents,
            observed: part.observed,
        }
    }

    fn restored(self) -> Part {
        let Span { start, end } = self.span;
        let mut at = Located { range_id: self.range_id, start, end, ..Located::default() };
        if at.start.is_empty() {
            at.vanish();
        }
        Part {
            at,
            key: self.key,
            place: None,
            tried: SmallVec::new(),
            known: self.known,
            lease: self.lease,
            intent: self.intent,
            has_intents: self.has_intents,
            bound_in_flight: 0,
            observed: self.observed,
            grown: 0,
        }
    }

    fn is_sound(&self, tenant: TenantId) -> bool {
        let Span { start, end } = &self.span;
        self.range_id > 0
            && is_key(tenant, &self.key)
            && (if start.is_empty() { end.is_empty() } else { end.is_empty() || start < end })
            && (self.known || !self.has_intents && self.lease == 0)
            && self.intent.as_ref().is_none_or(|key| self.has_intents && is_key(tenant, key))
    }
}

impl KeyWrites {
    fn of(key: &Bytes, history: &[(u32, Write)]) -> Self {
        let write = |(sequence, write): &(u32, Write)| {
            let (insert, value) = match write {
                Write::Put(value) => (false, Some(value.clone())),
                Write::Insert(value) => (true, Some(value.clone())),
                Write::Delete => (false, None),
            };
            CarriedWrite { sequence: *sequence, insert, value }
        };
        KeyWrites { key: key.clone(), history: history.iter().map(write).collect() }
    }

    fn restored(self) -> (Bytes, Vec<(u32, Write)>) {
        let write = |carried: CarriedWrite| {
            let write = match (carried.value, carried.insert) {
                (Some(value), true) => Write::Insert(value),
                (Some(value), false) => Write::Put(value),
                (None, _) => Write::Delete,
            };
            (carried.sequence, write)
        };
        (self.key, self.history.into_iter().map(write).collect())
    }
}

#[cfg(test)]
mod tests;
