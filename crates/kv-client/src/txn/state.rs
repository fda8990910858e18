//! What a coordinator knows of its transaction. Pure: nothing here sends or waits.

use super::TxnName;
use super::options::ReadOptions;
use super::part::{Part, Parts};
use crate::environment::Environment;
use crate::refresh::RefreshSpans;
use crate::write_buffer::WriteBuffer;
use bytes::Bytes;
use kv_api::batch::IgnoredSequences;
use kv_api::{BatchResponse, Header, KvError, KvErrorKind, KvResult, Priority, Timestamp, TxnMeta};

/// Where a transaction is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It reads and writes.
    Open,
    /// Its commit is on its way.
    Committing,
    /// It is being handed to another coordinator.
    Leaving,
    /// It committed, failed, was rolled back, or was handed to another coordinator.
    Ended,
}

/// The state of one transaction.
pub struct State {
    pub id: Bytes,
    /// The same, for who watches.
    pub name: TxnName,
    environment: Environment,
    pub status: Status,
    /// How often it was handed to another coordinator.
    pub hop: u32,
    /// Reads under way.
    pub reads_in_flight: u32,
    /// The snapshot, once there is one.
    pub read_timestamp: Option<Timestamp>,
    /// Whether the snapshot must stay.
    pub fixed: bool,
    /// The latest snapshot of earlier statements; none if there was none. What they saw was committed up to there, and
    /// ranges whose clocks are behind must not commit this transaction before it.
    pub seen: Option<Timestamp>,
    /// The last sequence number used.
    pub sequence: u32,
    /// What rolled-back savepoints undid of the intents.
    pub ignored: Vec<IgnoredSequences>,
    /// Whether a flush is under way, or was given up half way: which writes the node has is not known.
    pub flushing: bool,
    /// What it has to do with each range it uses.
    pub parts: Parts,
    /// Up to where something committed in further ranges may lie before the transaction's begin; none until there
    /// is a snapshot.
    pub uncertain_until: Option<Timestamp>,
    /// Keys locked, roughly.
    pub locked_keys: usize,
    pub lock_timeout_ms: u32,
    /// How important it is.
    pub priority: Priority,
    /// Number of the statement.
    pub statement: u32,
    /// Number of batches of writes the node has as intents.
    pub flushes: u32,
    pub buffer: WriteBuffer,
    /// What was read and must be unchanged when the transaction commits, or its snapshot moves.
    pub refresh: RefreshSpans,
    /// What was read besides and must be unchanged when the coordinator moves the snapshot.
    pub loose: RefreshSpans,
    /// Whether anything was read at the snapshot that is in neither.
    pub untracked: bool,
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
    pub fn new(lock_timeout_ms: u32, priority: Priority, environment: Environment) -> Self {
        let id = new_id(&environment);
        State {
            name: TxnName::new(id.clone()),
            id,
            environment,
            status: Status::Open,
            hop: 0,
            reads_in_flight: 0,
            read_timestamp: None,
            fixed: false,
            seen: None,
            sequence: 0,
            ignored: Vec::new(),
            flushing: false,
            parts: Parts::default(),
            uncertain_until: None,
            locked_keys: 0,
            lock_timeout_ms,
            priority,
            statement: 0,
            flushes: 0,
            buffer: WriteBuffer::default(),
            refresh: RefreshSpans::default(),
            loose: RefreshSpans::default(),
            untracked: false,
        }
    }

    /// Fails unless the transaction is open.
    pub fn check_open(&self) -> KvResult<()> {
        match self.status {
            Status::Open => Ok(()),
            Status::Committing | Status::Leaving | Status::Ended => Err(ended()),
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

    /// How a node is told whose batch it is.
    pub fn meta(&self, part: Option<&Part>) -> TxnMeta {
        TxnMeta {
            id: self.id.clone(),
            sequence: self.sequence,
            ignored: self.ignored.clone(),
            has_intents: part.is_some_and(|part| part.has_intents),
            lease: part.map_or(0, |part| part.lease),
            priority: self.priority as i32,
            hop: self.hop,
        }
    }

    /// The header of a batch for a range. With `validates`, it carries what the transaction has read there.
    pub fn header(&self, range_id: u64, options: ReadOptions, validates: bool, target_bytes: u64) -> Header {
        let part = self.parts.get(range_id);
        let (refresh_spans, spans_elsewhere) = match part {
            Some(part) if validates => self.refresh.within(&part.at),
            _ => (Vec::new(), false),
        };
        let mut meta = self.meta(part);
        if let Some(point) = options.before
            && meta.has_intents
            && point.sequence <= self.sequence
        {
            // What was written since is as good as undone for this read. A batch that locks or writes says nothing
            // of the kind, so that no node takes note of it.
            let to = self.sequence + 1;
            meta.ignored.push(IgnoredSequences { from: point.sequence, to });
        }
        Header {
            txn: Some(meta),
            read_timestamp: self.read_timestamp,
            refresh_spans,
            fixed_read_timestamp: self.fixed,
            wait_policy: options.wait as i32,
            lock_timeout_ms: self.lock_timeout_ms,
            target_bytes,
            uncertainty_limit: part.and_then(|part| self.uncertainty_limit(part)),
            spans_elsewhere,
            ..Header::default()
        }
    }

    /// Up to where what is committed in a range may lie before the transaction's begin although it is above the
    /// snapshot (`cockroachdb-2020`, section 4.2). What the clock of the range showed at any time since is a
    /// bound, too, for every key of the range: so it is sent again, but lower.
    fn uncertainty_limit(&self, part: &Part) -> Option<Timestamp> {
        let (limit, snapshot) = (self.uncertain_until?, self.read_timestamp?);
        let limit = part.observed.map_or(limit, |observed| limit.min(observed));
        (limit > snapshot).then_some(limit)
    }

    /// There is a snapshot, which the clock of a range has given.
    pub fn begin_snapshot(&mut self, at: Timestamp, range_id: u64) {
        self.read_timestamp = Some(at);
        self.uncertain_until = Some(Timestamp::MAX);
        self.parts.forget_clocks();
        if let Some(part) = self.parts.get_mut(range_id) {
            part.observed = Some(at);
        }
    }

    /// The timestamp that the transaction commits above: everything it saw was committed by then.
    pub fn commits_above(&self) -> Option<Timestamp> {
        self.read_timestamp.max(self.seen)
    }

    /// Whether any node has intents of the transaction.
    pub fn has_intents(&self) -> bool {
        self.parts.iter().any(|part| part.has_intents)
    }

    /// Changes with everything that is tracked.
    pub fn tracked(&self) -> (u64, u64) {
        (self.refresh.version(), self.loose.version())
    }

    /// Whether nothing keeps the snapshot where it is.
    pub fn has_no_spans(&self) -> bool {
        self.refresh.is_empty() && self.loose.is_empty()
    }

    /// A range's node forgot the transaction's part there, on which nothing that was read or written rests: it is
    /// one that it never heard of. The name stays as long as others know it.
    pub fn become_unknown(&mut self, range_id: u64) {
        if let Some(part) = self.parts.get_mut(range_id) {
            part.become_unknown();
        }
        if self.parts.iter().all(|part| !part.known) {
            self.take_name(new_id(&self.environment));
        }
    }

    /// Goes by another name.
    pub fn take_name(&mut self, id: Bytes) {
        self.name.replace(id.clone());
        self.id = id;
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
        if self.has_intents() {
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
        if !self.loose.is_empty() {
            self.loose.clear();
        }
        self.untracked = false;
        if self.refresh.is_empty() {
            self.seen = self.seen.max(self.read_timestamp);
            self.read_timestamp = None;
            self.uncertain_until = None;
            self.parts.forget_clocks();
        }
    }
}

/// What a read was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    statement: u32,
    flushes: u32,
    read_timestamp: Option<Timestamp>,
    tracked: (u64, u64),
    range_id: u64,
    grown: u32,
}

impl Seen {
    /// What a read is sent to a range with now.
    pub fn of(state: &State, range_id: u64) -> Self {
        Seen {
            range_id,
            grown: state.parts.get(range_id).map_or(0, |part| part.grown),
            statement: state.statement,
            flushes: state.flushes,
            read_timestamp: state.read_timestamp,
            tracked: state.tracked(),
        }
    }

    /// The snapshot it is sent with.
    pub fn read_timestamp(&self) -> Option<Timestamp> {
        self.read_timestamp
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
            if moved && state.tracked() != self.tracked {
                // What was read meanwhile was not checked when the snapshot moved.
                return false;
            }
            match read_at {
                Some(read_at) if self.read_timestamp.is_none() => {
                    let range_id = if self.is_as_it_was(state) { self.range_id } else { 0 };
                    state.begin_snapshot(read_at, range_id)
                }
                _ => state.read_timestamp = read_at,
            }
            self.note_clock(state, response);
            return true;
        }
        if read_at != state.read_timestamp {
            return false;
        }
        self.note_clock(state, response);
        true
    }

    /// Takes note of what the clock of the range showed.
    fn note_clock(&self, state: &mut State, response: &BatchResponse) {
        if self.is_as_it_was(state) {
            state.parts.note_clock(self.range_id, response.clock);
        }
    }

    /// Whether the range has not absorbed another since, whose clock was not the one that its node has seen.
    fn is_as_it_was(&self, state: &State) -> bool {
        state.parts.get(self.range_id).is_none_or(|part| part.grown == self.grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::located::Located;
    use kv_api::Span;

    fn at(wall_ns: u64) -> BatchResponse {
        BatchResponse { read_timestamp: Some(Timestamp::new(wall_ns, 0)), ..BatchResponse::default() }
    }

    #[test]
    fn reads_that_overlap_come_from_one_snapshot() {
        let mut state = State::new(0, Priority::Normal, Environment::of_machine());
        let (first, second) = (Seen::of(&state, 1), Seen::of(&state, 1));
        assert!(first.admit(&mut state, &at(5)));
        assert!(!second.admit(&mut state, &at(6)), "another snapshot");
        assert_eq!(state.read_timestamp, Some(Timestamp::new(5, 0)));
        let (plain, locking) = (Seen::of(&state, 1), Seen::of(&state, 1));
        assert!(locking.admit(&mut state, &at(9)), "a locking read moves the snapshot");
        assert!(!plain.admit(&mut state, &at(5)), "and what was read below it is stale");
        assert_eq!(state.read_timestamp, Some(Timestamp::new(9, 0)));
    }

    #[test]
    fn the_snapshot_moves_only_if_everything_read_was_checked() {
        let mut state = State::new(0, Priority::Normal, Environment::of_machine());
        assert!(Seen::of(&state, 1).admit(&mut state, &at(5)));
        let locking = Seen::of(&state, 1);
        state.refresh.add(&Span::point(Bytes::from_static(b"k")));
        assert!(!locking.admit(&mut state, &at(9)));
        assert_eq!(state.read_timestamp, Some(Timestamp::new(5, 0)));
        assert!(locking.admit(&mut state, &at(5)), "a read that moved nothing is fine");
    }

    #[test]
    fn a_clock_that_was_read_before_a_merge_is_not_that_of_what_was_absorbed() {
        let mut state = State::new(0, Priority::Normal, Environment::of_machine());
        let located = |end: &'static str| Located {
            range_id: 1,
            start: Bytes::from_static(b"a"),
            end: Bytes::from_static(end.as_bytes()),
            ..Located::default()
        };
        state.parts.learn(located("m"));
        let (first, second) = (Seen::of(&state, 1), Seen::of(&state, 1));
        state.parts.learn(located("z"));
        assert!(first.admit(&mut state, &at(5)));
        assert_eq!(state.parts.get(1).unwrap().observed, None);
        let clock = Some(Timestamp::new(9, 0));
        assert!(second.admit(&mut state, &BatchResponse { clock, ..at(5) }));
        assert_eq!(state.parts.get(1).unwrap().observed, None);
        assert!(Seen::of(&state, 1).admit(&mut state, &BatchResponse { clock, ..at(5) }));
        assert_eq!(state.parts.get(1).unwrap().observed, clock);
    }

    #[test]
    fn a_flush_makes_reads_under_way_stale() {
        let mut state = State::new(0, Priority::Normal, Environment::of_machine());
        let read = Seen::of(&state, 1);
        state.flushes += 1;
        assert!(!read.admit(&mut state, &at(5)));
        assert!(Seen::of(&state, 1).admit(&mut state, &at(5)));
    }

    #[test]
    fn a_read_of_an_earlier_statement_leaves_the_snapshot_alone() {
        let mut state = State::new(0, Priority::Normal, Environment::of_machine());
        let late = Seen::of(&state, 1);
        state.new_snapshot();
        assert!(late.admit(&mut state, &at(5)));
        assert_eq!(state.read_timestamp, None);
    }

    #[test]
    fn undone_ranges_stay_sorted_and_disjoint() {
        let mut state = State::new(0, Priority::Normal, Environment::of_machine());
        state.parts.learn(Located { range_id: 1, ..Located::default() });
        state.parts.get_mut(1).unwrap().has_intents = true;
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
