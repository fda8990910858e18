//! What a coordinator knows of its transaction. Pure: nothing here sends or waits.

use super::options::ReadOptions;
use crate::environment::Environment;
use crate::refresh::RefreshSpans;
use crate::router::Place;
use crate::write_buffer::WriteBuffer;
use bytes::Bytes;
use kv_api::batch::IgnoredSequences;
use kv_api::{BatchResponse, Header, KvError, KvErrorKind, KvResult, Timestamp, TxnMeta};

/// Where a transaction is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It reads and writes.
    Open,
    /// Its commit is on its way.
    Committing,
    /// It committed, failed, or was rolled back.
    Ended,
}

/// The state of one transaction.
pub struct State {
    pub id: Bytes,
    environment: Environment,
    pub status: Status,
    /// The snapshot, once there is one.
    pub read_timestamp: Option<Timestamp>,
    /// Whether the snapshot must stay.
    pub fixed: bool,
    /// The last sequence number used.
    pub sequence: u32,
    /// What rolled-back savepoints undid of the intents.
    pub ignored: Vec<IgnoredSequences>,
    /// Whether the node said that it has intents of the transaction.
    pub has_intents: bool,
    /// Whether a batch was sent by which the node may know the transaction: it may hold locks or
    /// intents, and must be told how the transaction ends.
    pub known: bool,
    /// Whether a flush is under way, or was given up half way: which writes the node has is not known.
    pub flushing: bool,
    /// The lease under which the node came to know the transaction; 0 until it has said so.
    pub lease: u64,
    /// Batches under way by which the node knows the transaction.
    pub bound_in_flight: u32,
    /// Where the transaction is known.
    pub place: Option<Place>,
    /// Keys locked, roughly.
    pub locked_keys: usize,
    pub lock_timeout_ms: u32,
    /// Number of the statement.
    pub statement: u32,
    /// Number of batches of writes the node has as intents.
    pub flushes: u32,
    pub buffer: WriteBuffer,
    pub refresh: RefreshSpans,
}

fn new_id(environment: &Environment) -> Bytes {
    Bytes::copy_from_slice(&environment.random())
}

/// What who uses a transaction after its end is told.
pub fn ended() -> KvError {
    KvError::new(KvErrorKind::Aborted, "the transaction has ended")
}

impl State {
    /// The state of a transaction that has done nothing.
    pub fn new(lock_timeout_ms: u32, environment: Environment) -> Self {
        State {
            id: new_id(&environment),
            environment,
            status: Status::Open,
            read_timestamp: None,
            fixed: false,
            sequence: 0,
            ignored: Vec::new(),
            has_intents: false,
            known: false,
            lease: 0,
            flushing: false,
            bound_in_flight: 0,
            place: None,
            locked_keys: 0,
            lock_timeout_ms,
            statement: 0,
            flushes: 0,
            buffer: WriteBuffer::default(),
            refresh: RefreshSpans::default(),
        }
    }

    /// Fails unless the transaction is open.
    pub fn check_open(&self) -> KvResult<()> {
        match self.status {
            Status::Open => Ok(()),
            Status::Committing | Status::Ended => Err(ended()),
        }
    }

    /// Fails unless it is known which writes the node has.
    pub fn check_settled(&self) -> KvResult<()> {
        if self.flushing {
            let message = "the transaction cannot go on: sending its writes was given up half way";
            return Err(KvError::new(KvErrorKind::Aborted, message));
        }
        Ok(())
    }

    /// How the node is told whose batch it is.
    pub fn meta(&self) -> TxnMeta {
        TxnMeta {
            id: self.id.clone(),
            sequence: self.sequence,
            ignored: self.ignored.clone(),
            has_intents: self.has_intents,
            lease: self.lease,
        }
    }

    /// The header of a batch. With `validates`, it carries what the transaction has read.
    pub fn header(&self, options: ReadOptions, validates: bool, target_bytes: u64) -> Header {
        Header {
            txn: Some(self.meta()),
            read_timestamp: self.read_timestamp,
            refresh_spans: if validates { self.refresh.to_vec() } else { Vec::new() },
            fixed_read_timestamp: self.fixed,
            wait_policy: options.wait as i32,
            lock_timeout_ms: self.lock_timeout_ms,
            target_bytes,
            ..Header::default()
        }
    }

    /// Where the next batch must go, if that matters.
    pub fn required_place(&self) -> Option<Place> {
        self.place.clone().filter(|_| self.known)
    }

    /// Becomes a transaction that the node never heard of, after it forgot this one and nothing that
    /// was read or written rests on it.
    pub fn become_unknown(&mut self) {
        self.id = new_id(&self.environment);
        self.known = false;
        self.lease = 0;
        self.place = None;
    }

    /// A number for the next write.
    pub fn next_sequence(&mut self) -> KvResult<u32> {
        let next = self.sequence.checked_add(1).filter(|next| *next < u32::MAX);
        self.sequence = next.ok_or_else(|| {
            KvError::new(KvErrorKind::Overloaded, "the transaction has made too many writes")
        })?;
        Ok(self.sequence)
    }

    /// Undoes the writes from a sequence number on.
    pub fn undo(&mut self, from: u32) {
        self.buffer.rollback(from);
        let to = self.sequence + 1;
        if from >= to {
            return;
        }
        if self.has_intents {
            self.ignored.retain(|range| range.from < from);
            match self.ignored.last_mut() {
                Some(last) if last.to >= from => last.to = to,
                _ => self.ignored.push(IgnoredSequences { from, to }),
            }
        }
        // The numbers undone are not used again, or new writes would be ignored with them.
    }

    /// Starts a statement with a snapshot of its own, unless what was read still counts.
    pub fn new_snapshot(&mut self) {
        self.statement = self.statement.wrapping_add(1);
        self.fixed = false;
        if self.refresh.is_empty() {
            self.read_timestamp = None;
        }
    }
}

/// What a read was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    statement: u32,
    flushes: u32,
    read_timestamp: Option<Timestamp>,
    refresh_version: u64,
}

impl Seen {
    /// What a read is sent with now.
    pub fn of(state: &State) -> Self {
        Seen {
            statement: state.statement,
            flushes: state.flushes,
            read_timestamp: state.read_timestamp,
            refresh_version: state.refresh.version(),
        }
    }

    /// Takes note of where the node read; false if the answer is stale and the read must be sent again.
    pub fn admit(&self, state: &mut State, response: &BatchResponse) -> bool {
        if state.flushes != self.flushes {
            // Writes may have left the buffer before the answer came and reached the node after it.
            return false;
        }
        if state.statement != self.statement {
            // It belongs to an earlier statement and its snapshot.
            return true;
        }
        let read_at = response.read_timestamp.or(self.read_timestamp);
        if state.read_timestamp == self.read_timestamp {
            let moved = self.read_timestamp.is_some() && read_at != self.read_timestamp;
            if moved && state.refresh.version() != self.refresh_version {
                // What was read meanwhile was not checked when the snapshot moved.
                return false;
            }
            state.read_timestamp = read_at;
            return true;
        }
        read_at == state.read_timestamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::Span;

    fn at(wall_ns: u64) -> BatchResponse {
        BatchResponse { read_timestamp: Some(Timestamp::new(wall_ns, 0)), ..BatchResponse::default() }
    }

    #[test]
    fn reads_that_overlap_come_from_one_snapshot() {
        let mut state = State::new(0, Environment::of_machine());
        let (first, second) = (Seen::of(&state), Seen::of(&state));
        assert!(first.admit(&mut state, &at(5)));
        assert!(!second.admit(&mut state, &at(6)), "another snapshot");
        assert_eq!(state.read_timestamp, Some(Timestamp::new(5, 0)));
        let (plain, locking) = (Seen::of(&state), Seen::of(&state));
        assert!(locking.admit(&mut state, &at(9)), "a locking read moves the snapshot");
        assert!(!plain.admit(&mut state, &at(5)), "and what was read below it is stale");
        assert_eq!(state.read_timestamp, Some(Timestamp::new(9, 0)));
    }

    #[test]
    fn the_snapshot_moves_only_if_everything_read_was_checked() {
        let mut state = State::new(0, Environment::of_machine());
        assert!(Seen::of(&state).admit(&mut state, &at(5)));
        let locking = Seen::of(&state);
        state.refresh.add(&Span::point(Bytes::from_static(b"k")));
        assert!(!locking.admit(&mut state, &at(9)));
        assert_eq!(state.read_timestamp, Some(Timestamp::new(5, 0)));
        assert!(locking.admit(&mut state, &at(5)), "a read that moved nothing is fine");
    }

    #[test]
    fn a_flush_makes_reads_under_way_stale() {
        let mut state = State::new(0, Environment::of_machine());
        let read = Seen::of(&state);
        state.flushes += 1;
        assert!(!read.admit(&mut state, &at(5)));
        assert!(Seen::of(&state).admit(&mut state, &at(5)));
    }

    #[test]
    fn a_read_of_an_earlier_statement_leaves_the_snapshot_alone() {
        let mut state = State::new(0, Environment::of_machine());
        let late = Seen::of(&state);
        state.new_snapshot();
        assert!(late.admit(&mut state, &at(5)));
        assert_eq!(state.read_timestamp, None);
    }

    #[test]
    fn undone_ranges_stay_sorted_and_disjoint() {
        let mut state = State::new(0, Environment::of_machine());
        state.has_intents = true;
        let mut model = std::collections::BTreeSet::new();
        let ranges = [(3, 5), (5, 9), (20, 24), (22, 30), (10, 31)];
        for (from, upto) in ranges {
            state.sequence = upto;
            state.undo(from);
            model.extend(from..=upto);
            let listed: Vec<u32> = state.ignored.iter().flat_map(|range| range.from..range.to).collect();
            assert!(state.ignored.iter().all(|range| range.from < range.to));
            assert_eq!(listed, model.iter().copied().collect::<Vec<_>>());
        }
        state.undo(100);
        assert_eq!(state.ignored.last().map(|range| range.to), Some(32));
    }
}
