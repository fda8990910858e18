//! Moving the snapshot, over as many ranges as were read (`cockroachdb-2020`, section 3.4).

use super::options::ReadOptions;
use super::part::Part;
use super::read::{MAX_ATTEMPTS, MAX_SPLITS};
use super::state::{Seen, State};
use super::{Txn, aborted_if_lost, split_without_end};
use crate::client::given_up;
use crate::faults::Bug;
use crate::join::try_all;
use crate::metrics::metrics;
use crate::router::{SendError, Sending};
use kv_api::batch::{BatchRequest, Refresh, RequestKind};
use kv_api::{KvError, KvErrorKind, KvResult, Span, Timestamp};

impl Txn {
    /// Moves the snapshot to the present, if nothing read so far has changed. One that was given
    /// ([`super::TxnOptions::as_of`]) stays.
    ///
    /// # Errors
    /// `Retry` if something has.
    pub async fn refresh(&self) -> KvResult<()> {
        if self.options.as_of.is_some() {
            return Ok(());
        }
        for _ in 0..MAX_SPLITS {
            let Some((range_id, alone)) = self.refreshed_range().await? else { return Ok(()) };
            if !alone {
                return self.refresh_everywhere().await;
            }
            let refresh = RequestKind::Refresh(Refresh::default()).into();
            let options = ReadOptions::default();
            let moved = self.send_read(range_id, vec![refresh], options, 0, true, |state, response| {
                if let Some(at) = response.read_timestamp {
                    state.begin_snapshot(at, range_id);
                }
            });
            match moved.await {
                Err(SendError::Split) => self.forget_range(range_id)?,
                moved => return moved.map_err(aborted_if_lost),
            }
        }
        Err(split_without_end())
    }

    /// A range with what was read, and whether nothing was read elsewhere; none if there is no snapshot.
    async fn refreshed_range(&self) -> KvResult<Option<(u64, bool)>> {
        {
            let state = self.state.lock();
            state.check_open()?;
            if state.read_timestamp.is_none() {
                return Ok(None);
            }
            let holds_all = |part: &&Part| !part.at.is_nowhere() && state.refresh.is_within(&part.at);
            if state.loose.is_empty()
                && let Some(part) = state.parts.iter().find(holds_all)
            {
                return Ok(Some((part.at.range_id, true)));
            }
            if !state.has_no_spans() {
                return Ok(Some((0, false)));
            }
        }
        let first = self.locate(&self.client.tenant_span().start, false).await?;
        Ok(Some((first, true)))
    }

    /// Moves the snapshot to the present in several ranges.
    async fn refresh_everywhere(&self) -> KvResult<()> {
        let _alone = self.moving.lock().await;
        let (ranges, floor) = {
            let state = self.state.lock();
            let ranges: Vec<u64> = state.parts.iter().map(|part| part.at.range_id).collect();
            (ranges, state.read_timestamp.unwrap_or_default())
        };
        let to = self.client.choose_timestamp(ranges, false, floor);
        self.move_snapshot(to).await?;
        let mut state = self.state.lock();
        // Somebody may have moved it further meanwhile, which is as good.
        let to = state.read_timestamp.unwrap_or(to);
        state.begin_snapshot(to, 0);
        Ok(())
    }

    /// A read met something above the snapshot that may lie before the transaction's begin, or needs it moved for
    /// another reason: moves it, unless that happened since the read was sent.
    pub(super) async fn catch_up(&self, seen: &Seen, error: KvError) -> KvResult<()> {
        let Some(to) = error.timestamp.as_deref().copied() else { return Err(behind(error)) };
        let _alone = self.moving.lock().await;
        {
            let state = self.state.lock();
            state.check_open()?;
            if state.read_timestamp != seen.read_timestamp() {
                return Ok(());
            }
            if state.fixed || state.untracked {
                return Err(behind(error));
            }
        }
        metrics().uncertain.inc();
        self.move_snapshot(to).await
    }

    /// Moves the snapshot to `to`, if nothing that was read has changed up to there. Reads that are answered
    /// meanwhile are checked, too.
    async fn move_snapshot(&self, to: Timestamp) -> KvResult<()> {
        for _ in 0..MAX_ATTEMPTS {
            let (from, tracked) = {
                let mut state = self.state.lock();
                state.check_open()?;
                let Some(from) = state.read_timestamp.filter(|from| *from < to) else { return Ok(()) };
                if state.has_no_spans() || self.client.environment().planted(Bug::MovedUnchecked) {
                    state.read_timestamp = Some(to);
                    return Ok(());
                }
                (from, state.tracked())
            };
            self.refresh_all(to).await?;
            let mut state = self.state.lock();
            if state.read_timestamp != Some(from) {
                // A locking read in a single range; it checked what there was. What is left is done next.
                continue;
            }
            if state.tracked() == tracked {
                state.read_timestamp = Some(to);
                return Ok(());
            }
        }
        Err(KvError::new(KvErrorKind::Retry, "reads of the transaction overlap without end"))
    }

    /// Checks everything that was read, in all ranges at the same time.
    async fn refresh_all(&self, to: Timestamp) -> KvResult<()> {
        for _ in 0..MAX_SPLITS {
            let ranges = self.ranges_read().await?;
            let refreshes = ranges.into_iter().map(|range_id| self.refresh_in(range_id, to)).collect();
            let refreshed = try_all(refreshes);
            match refreshed.await {
                Ok(_) => return Ok(()),
                // It is done anew, which does no harm in ranges where it was done.
                Err((range_id, SendError::Split)) => self.forget_range(range_id)?,
                Err((_, error)) => return Err(aborted_if_lost(error)),
            }
        }
        Err(split_without_end())
    }

    /// The ranges that hold what was read.
    async fn ranges_read(&self) -> KvResult<Vec<u64>> {
        let mut left: Vec<Span> = {
            let state = self.state.lock();
            state.refresh.iter().chain(state.loose.iter()).cloned().collect()
        };
        let mut ranges = Vec::new();
        while let Some(span) = left.pop() {
            let range_id = self.locate(&span.start, false).await?;
            if !ranges.contains(&range_id) {
                ranges.push(range_id);
            }
            let end =
                self.state.lock().parts.get(range_id).map(|part| part.at.end.clone()).unwrap_or_default();
            if !end.is_empty() && !span.is_point() && end < span.end {
                left.push(Span::new(end, span.end));
            }
        }
        Ok(ranges)
    }

    async fn refresh_in(&self, range_id: u64, to: Timestamp) -> Result<(), (u64, SendError)> {
        self.send_refresh(range_id, to).await.map_err(|error| (range_id, error))
    }

    async fn send_refresh(&self, range_id: u64, to: Timestamp) -> Result<(), SendError> {
        let refresh = RequestKind::Refresh(Refresh { to: Some(to) });
        let mut batch = BatchRequest { requests: vec![refresh.into()], ..BatchRequest::default() };
        for _ in 0..MAX_ATTEMPTS {
            let bound = {
                let state = self.state.lock();
                state.check_open()?;
                batch.header = state.header(range_id, ReadOptions::default(), true, 0);
                add_loose(&mut batch, &state, range_id);
                state.parts.get(range_id).is_some_and(|part| part.known)
            };
            if batch.header.refresh_spans.is_empty() {
                return Ok(());
            }
            // It is checked against the present of the transaction's begin no more.
            batch.header.uncertainty_limit = None;
            batch.header.spans_elsewhere = false;
            if bound {
                match self.send_bound(range_id, &mut batch, false).await {
                    Err(SendError::Moved) => self.move_on(range_id)?,
                    sent => return sent.map(drop),
                }
            } else {
                let sending = Sending { again: true, range: Some(range_id), ..Sending::default() };
                return match self.send_timed(range_id, &mut batch, sending).await {
                    Err(SendError::Split) => Err(SendError::Split),
                    sent => sent.map(drop).map_err(|error| given_up(error).into()),
                };
            }
        }
        Err(split_without_end().into())
    }
}

/// Adds what is to be checked only when the coordinator moves the snapshot.
fn add_loose(batch: &mut BatchRequest, state: &State, range_id: u64) {
    if let Some(part) = state.parts.get(range_id)
        && !state.loose.is_empty()
    {
        batch.header.refresh_spans.extend(state.loose.within(&part.at).0);
    }
}

/// What who cannot move the snapshot is told.
fn behind(error: KvError) -> KvError {
    KvError { kind: KvErrorKind::Retry as i32, ..error }
}
