//! Ranges that every replica serves at the present time without asking anybody: global reads.
//!
//! # For what
//!
//! A range whose configuration says `global_reads` ([`kv_api::batch::RangeConfig`]) is read everywhere and seldom
//! written. Its leaseholder keeps the clock of the range ahead of the present by the [`LEAD_NS`] and promises
//! ([`crate::follower`]) up to there. So promises that followers hold lie in the future, and a follower reads at the
//! present time without asking. Who writes pays for it: a commit lies above all that is promised, and is acknowledged
//! when clocks have passed it (*commit wait*), after about the lead. Such ranges are those of CockroachDB's global
//! tables; the waiting out of clocks is that of `spanner-2012`, section 4.1.2.
//!
//! Everywhere else no promise rests on wall clocks. Here what is *up to date* does: clocks of nodes are taken to be at
//! most [`MAX_CLOCK_OFFSET_NS`] apart. If they are further apart, reads of these ranges may be stale by as much;
//! transactions stay serializable, for nobody reads where something may still be written. A clock that jumps is not
//! followed at once here either ([`crate::steady`]), so a node that is about to stop itself because its clock is wrong
//! does no harm in between.
//!
//! # The rules
//!
//! Let `offset` be that bound, `L` and `F` the clocks of the leaseholder and of any replica.
//!
//! 1. *Commit wait.* A commit at `c` is acknowledged when `L >= c`. The leaseholder waits for commits in one range.
//!    For those in several it says what its clock shows ([`kv_api::BatchResponse::wall_ns`]), and the coordinator
//!    waits. Locks, latches and intents go when the commit is applied, before the wait: others may use what it
//!    wrote, by rule 3.
//! 2. *Present.* A read of the present is one at `F + offset`, or below it where that is closed and holds everything
//!    acknowledged. By rule 1 everything acknowledged before it began lies there. A follower needs a promise that
//!    reaches so far. For a transaction that has a snapshot already, this is how far what is uncertain reaches;
//!    if there is something in between its snapshot moves, like elsewhere.
//! 3. *Read wait.* Who has read a version above `F` answers when `F` has passed it. So what was seen by one is in the
//!    present of all others who come later, as if it were acknowledged.
//!
//! With rules 1 and 3 an answer that rests on a version at `c` comes when some clock has passed `c`, and by rule 2 all
//! reads that begin after that see it. A writer that reads what has not been waited out yet commits above it, and
//! waits itself.
//!
//! # When promises count
//!
//! What was acknowledged before the range became one of these did not wait; neither did what was prepared by then. It
//! may lie further ahead than rule 2 looks, so until the leaseholder's clock has passed where the clock of the
//! range was when there was nothing of that kind any more, under this lease, reads are those of other ranges, and a
//! promise may not be used for the present. After a lease has moved that takes up to
//! five seconds, for the clock begins at the ceiling of the last lease; until then commits wait as long, and followers ask as
//! elsewhere. A range stops being one of these when all that was promised ahead lies in the past
//! ([`crate::pipeline::Pipeline::end_ahead`]): only then do commits no longer wait.
//!
//! While a transaction is prepared and not decided nothing is promised. Promises that are held go on to be used.
//!
//! # What it costs
//!
//! A follower that is asked asks once, and from then on for as long as it is being asked asks again every
//! [`REFRESH`], in the background. After [`IDLE`] without a read it stops: a quiet range costs nothing, and only the first
//! read after that waits. The leaseholder hears one question per follower and [`REFRESH`], whatever the number of
//! reads. A commit takes the lead longer than elsewhere if anybody reads, and no longer if nobody does.
//!
//! # What is missing
//!
//! A transaction over such a range and others: its writes elsewhere can be seen when they are decided, which is before
//! clocks have passed them. Who saw one there and then reads the other here, in another transaction and at another
//! node, may for the rest of the lead not see it: each key is up to date, the order between them is not promised.

use crate::bounds;
use crate::faults::Bug;
use crate::node::{Asker, Node};
use kv_api::batch::{Request, RequestKind};
use kv_api::timestamp::MAX_CLOCK_OFFSET_NS;
use kv_api::{KvError, KvErrorKind, Span, Timestamp};
use std::time::Duration;
use storage::intent::IntentView;
use storage::{Reader, mvcc};

/// How often a follower that is being asked renews its promise.
pub const REFRESH: Duration = Duration::from_millis(200);
/// For how long a follower that nobody asks renews it.
pub const IDLE: Duration = Duration::from_secs(2);
/// How long a promise may take to get to a follower and be kept there: the way there and back, and the application of
/// the entry.
const PROPAGATION_NS: u64 = 150_000_000;
/// For clocks that are not quite the same, as a rule, and timers that are late.
const SLACK_NS: u64 = 50_000_000;
/// How far ahead of its wall clock a leaseholder promises. A promise is used up to the offset below it; what
/// is left is the time until the next one has come. A follower whose clock is further ahead than the slack, or that is
/// further away, asks more often than it should, and reads the same.
pub const LEAD_NS: u64 = MAX_CLOCK_OFFSET_NS + PROPAGATION_NS + 200_000_000 + SLACK_NS;
/// Pause before it is looked again whether clocks have passed what was read.
const PAUSE: Duration = Duration::from_millis(10);
/// How long anybody waits for a clock: further ahead no clock of a range can be. A wall clock that went back may keep
/// it longer.
const PATIENCE: Duration = Duration::from_secs(8);

/// Keys that plain and locking reads of a batch read.
pub(crate) fn spans_read(requests: &[Request]) -> impl Iterator<Item = Span> + '_ {
    requests.iter().filter_map(|request| match &request.kind {
        Some(RequestKind::Get(get)) => Some(Span::point(get.key.clone())),
        Some(RequestKind::Scan(scan)) => Some(Span::new(scan.start.clone(), scan.end.clone())),
        Some(RequestKind::ConditionalPut(put)) => Some(Span::point(put.key.clone())),
        Some(RequestKind::DeleteRange(delete)) => Some(Span::new(delete.start.clone(), delete.end.clone())),
        _ => None,
    })
}

impl Node {
    /// The last instant that the wall clock has passed.
    fn passed(&self) -> Timestamp {
        Timestamp::new(self.pipeline.wall_ns(), u32::MAX)
    }

    /// As far as reads of the present go here.
    pub(crate) fn present_here(&self) -> Timestamp {
        let offset = match self.pipeline.environment().planted(Bug::SkewIgnored) {
            true => 0,
            false => MAX_CLOCK_OFFSET_NS,
        };
        Timestamp::new(self.pipeline.wall_ns().saturating_add(offset), 0)
    }

    /// Waits until the wall clock has passed a commit, which may be acknowledged then.
    ///
    /// # Errors
    /// [`KvErrorKind::Ambiguous`] if that takes too long, because the clock went back.
    pub(crate) async fn commit_wait(&self, committed: Timestamp) -> Result<(), KvError> {
        if self.pipeline.environment().planted(Bug::CommitWaitSkipped) {
            return Ok(());
        }
        let begun = tokio::time::Instant::now();
        loop {
            let missing = committed.wall_ns.saturating_sub(self.passed().wall_ns);
            if missing == 0 {
                return Ok(());
            }
            if begun.elapsed() >= PATIENCE {
                let message =
                    "the wall clock of the KV node went back: the commit is not visible everywhere yet";
                return Err(KvError::new(KvErrorKind::Ambiguous, message));
            }
            // Timers count milliseconds.
            tokio::time::sleep(Duration::from_nanos(missing) + Duration::from_millis(1)).await;
        }
    }

    /// What the coordinator of a transaction over several ranges is told of the wall clock here, which is to pass the
    /// commit.
    pub(crate) fn wall_ns_to_wait_for(&self) -> u64 {
        match self.pipeline.environment().planted(Bug::CommitWaitSkipped) {
            true => 0,
            false => self.pipeline.wall_ns(),
        }
    }

    /// Whether a batch that was read up to a timestamp has read what the wall clock has not passed, as far as is known.
    /// Nothing was written above `written`. `shows` is asked last: whether the reader and the intents still show all
    /// that was read.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub(crate) fn has_read_ahead(
        &self,
        reader: &dyn Reader,
        requests: &[Request],
        intents: &IntentView,
        (upto, written): (Timestamp, Timestamp),
        shows: impl FnOnce() -> Result<bool, KvError>,
    ) -> Result<bool, KvError> {
        let passed = self.passed();
        if upto.min(written) <= passed || self.pipeline.environment().planted(Bug::ReadWaitSkipped) {
            return Ok(false);
        }
        for span in spans_read(requests) {
            if mvcc::changed(reader, &span, passed, upto, intents)?.is_some() {
                return Ok(true);
            }
        }
        Ok(!shows()?)
    }

    /// Waits until the wall clock has passed what a batch has read, as `has_read_ahead` says.
    ///
    /// # Errors
    /// Its errors, and [`KvErrorKind::Unavailable`] if that takes too long, because the clock went back.
    pub(crate) async fn read_wait(
        &self,
        has_read_ahead: impl Fn() -> Result<bool, KvError>,
    ) -> Result<(), KvError> {
        let begun = tokio::time::Instant::now();
        while has_read_ahead()? {
            if begun.elapsed() >= PATIENCE {
                let message =
                    "the wall clock of the KV node went back: what was read is not visible everywhere yet";
                return Err(KvError::new(KvErrorKind::Unavailable, message));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// The same for what the leaseholder has read in a range of this kind, also if it is leaseholder no more.
    pub(crate) async fn wait_for_what_was_read(
        &self,
        asker: Asker,
        requests: &[Request],
        upto: Timestamp,
    ) -> Result<(), KvError> {
        self.read_wait(|| self.has_led_ahead(asker, requests, upto)).await
    }

    fn has_led_ahead(&self, asker: Asker, requests: &[Request], upto: Timestamp) -> Result<bool, KvError> {
        let lease = || self.pipeline.lease(asker.range).ok();
        let held = lease();
        let written = self.pipeline.written_ahead(asker.range).unwrap_or(Timestamp::MAX);
        let mut intents = self.intent_view(asker, None);
        // What is not decided was not read.
        intents.prepared.clear();
        // With the lease goes what is known of transactions, and the replica may go after it.
        let is_here = |span: &Span| spans_read(requests).all(|read| bounds::holds(span, &read));
        let shows = || Ok(held.is_some() && lease() == held && self.pipeline.holds(asker.range, is_here));
        self.has_read_ahead(&*self.engine, requests, &intents, (upto, written), shows)
    }
}
