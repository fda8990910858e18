//! Which replicas there are, awake or not.

use super::Store;
use crate::error::ReplicationResult;
use crate::faults::{Bug, Faults};
use crate::group::Group;
use crate::message::RangeId;
use crate::state::{self, RangeDescriptor, RangeState};
use kv_api::Timestamp;

impl<F: Faults> Store<F> {
    /// The ranges with a replica here, awake or not, whole or not.
    pub fn ranges(&self) -> Vec<RangeId> {
        let mut ranges = self.index.after(0, usize::MAX);
        ranges.extend(self.groups.keys().copied().filter(|range| !self.index.contains(*range)));
        ranges.sort_unstable();
        ranges
    }

    /// Every replica here with a descriptor, awake or not.
    pub fn local(&self) -> impl Iterator<Item = (RangeId, &RangeDescriptor)> {
        self.index.iter()
    }

    /// The keys of a range with a replica here, awake or not.
    pub fn descriptor(&self, range: RangeId) -> Option<&RangeDescriptor> {
        self.index.descriptor(range)
    }

    /// The range with a replica here that has a key.
    pub fn covering(&self, key: &[u8]) -> Option<RangeId> {
        self.index.covering(key)
    }

    /// Where the first `limit` replicas after a range stand, by id. What sleeps is read from the disk.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn survey(&self, after: RangeId, limit: usize) -> ReplicationResult<Vec<(RangeId, RangeState)>> {
        let mut found = Vec::new();
        for range in self.index.after(after, limit) {
            if let Some(state) = self.state_of(range)? {
                found.push((range, state));
            }
        }
        Ok(found)
    }

    /// Where a replica stands, awake or not.
    pub(super) fn state_of(&self, range: RangeId) -> ReplicationResult<Option<RangeState>> {
        match self.groups.get(&range) {
            Some(group) => Ok(Some(group.state.clone())),
            None => state::load_state(&*self.engine, range),
        }
    }

    /// Up to where reads at this replica see everything that will ever be written, if it is known: not while
    /// it sleeps, nor right after it woke or got a snapshot, nor while the disk is full.
    pub fn closed(&self, range: RangeId) -> Option<Timestamp> {
        let group = self.readable(range)?;
        (group.closed > Timestamp::MIN).then_some(group.closed)
    }

    /// The last entry applied here, of a replica that is awake and whose contents are those of one instant: not
    /// right after a snapshot, which is read for a while, nor while the disk is full.
    pub fn applied(&self, range: RangeId) -> Option<u64> {
        self.readable(range).map(|group| group.state.applied)
    }

    /// A replica whose contents are as far as its state says: not while a round waits for space, which is applied
    /// in memory only.
    fn readable(&self, range: RangeId) -> Option<&Group> {
        let early = self.stalled.is_some() && !self.faults.planted(Bug::AppliedBeforeWritten);
        self.groups.get(&range).filter(|group| group.is_whole() && !early)
    }

    /// How many replicas there are, how many of them are awake, and how many leases this node holds.
    pub fn counts(&self) -> (usize, usize, usize) {
        let held = self.groups.values().filter(|group| group.holding.is_some()).count();
        (self.index.len(), self.groups.len(), held)
    }
}
