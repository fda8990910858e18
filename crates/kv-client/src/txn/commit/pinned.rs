//! The commit of a transaction that writes in one range and has read in others.

use super::super::Txn;
use super::refresh::refresh;
use super::share::Share;
use super::{Attempt, out_of_step};
use crate::lead;
use kv_api::KvResult;

/// Timestamps tried.
const MAX_ROUNDS: usize = 8;

impl Txn {
    /// Refreshes what was read elsewhere up to a timestamp, and commits there.
    pub(in super::super) async fn commit_pinned(&self, writer: u64, readers: &[Share]) -> KvResult<Attempt> {
        let snapshot = self.read_timestamp();
        let mut floor = snapshot.unwrap_or_default();
        for _ in 0..MAX_ROUNDS {
            let ranges = readers.iter().map(|share| share.at.range_id).chain([writer]);
            let at =
                lead::choose(self.client.environment().physical_ns(), self.client.lead_ns(ranges), floor);
            refresh(&self.client, readers, snapshot, at).await?;
            match self.commit_in(writer, Some(at)).await? {
                Attempt::Behind(to) => floor = floor.max(to),
                attempt => return Ok(attempt),
            }
        }
        Err(out_of_step())
    }
}
