//! The commit of a transaction that writes in one range and has read in others.

use super::super::Txn;
use super::refresh::refresh;
use super::share::Share;
use super::{Attempt, out_of_step};
use kv_api::{KvResult, Timestamp};

/// Timestamps tried.
const MAX_ROUNDS: usize = 8;
/// How far above the range's clock the second one lies, in nanoseconds; each further one goes twice as far.
const FIRST_STEP_NS: u64 = 200_000;

impl Txn {
    /// Refreshes what was read elsewhere up to a timestamp, and commits there.
    pub(in super::super) async fn commit_pinned(&self, writer: u64, readers: &[Share]) -> KvResult<Attempt> {
        let (snapshot, above) = {
            let state = self.state.lock();
            (state.read_timestamp, state.commits_above())
        };
        let mut floor = above.unwrap_or_default();
        let mut step_ns = FIRST_STEP_NS;
        for _ in 0..MAX_ROUNDS {
            let ranges = readers.iter().map(|share| share.at.range_id).chain([writer]);
            let at = self.client.choose_timestamp(ranges, true, floor);
            refresh(&self.client, readers, snapshot, at).await?;
            match self.commit_in(writer, Some(at)).await? {
                Attempt::Behind(to) => {
                    // Others may be ahead of the range's own clock, and go on being so.
                    floor = floor.max(Timestamp::new(to.wall_ns.saturating_add(step_ns), 0));
                    step_ns *= 2;
                }
                attempt => return Ok(attempt),
            }
        }
        Err(out_of_step())
    }
}
