//! What happened in runs, counted: a fault that never happens finds nothing.

use std::fmt;

macro_rules! kinds {
    ($($kind:ident $name:literal $text:literal)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $text] $kind,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// A short name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    Reads "reads" "Reads that were answered with a value."
    Writes "writes" "Writes that were acknowledged."
    NotLeaseholder "sent elsewhere" "Operations refused by a node that does not hold the lease."
    Refused "refused" "Proposals the store did not take."
    Rejected "rejected" "Proposals that were rejected when they were to be applied."
    Unknown "unknown" "Operations whose outcome the client does not know."
    SlowEvaluations "slow evaluations" "Commands proposed a while after they were evaluated."
    Leases "leases" "Leases acquired."
    CeilingsRaised "ceilings" "Ceilings raised."
    Terms "terms" "Terms with a leader."
    SnapshotsBegun "snapshots begun" "First chunks of snapshots sent."
    SnapshotsEnded "snapshots ended" "Last chunks of snapshots sent."
    SnapshotsReceived "snapshots received" "Replicas that became complete."
    Transfers "transfers" "Leaders asked to hand over."
    MemberChanges "member changes" "Changes of members proposed."
    MembersChanged "members changed" "Changes of members in force."
    FollowerReads "follower reads" "Reads of the present that a follower served."
    PastReads "past reads" "Reads of the past."
    Waits "waits for promises" "Promises of something the follower had not applied yet."
    NotHere "wrong range" "Operations refused by a node whose replica does not have the register."
    Splits "splits" "Ranges split off."
    Merges "merges" "Ranges merged."
    Frozen "replicas frozen" "Replicas that serve nothing because they are about to be absorbed."
    Thawed "replicas thawed" "Replicas that serve again, because they are not."
    Absorbed "neighbours absorbed" "Replicas that absorbed the right neighbour of their range."
    Created "ranges created" "Ranges created for tenants."
    Configured "descriptors changed" "Replicas whose descriptor became another."
    Destroyed "ranges destroyed" "Replicas destroyed for good."
    Silences "silence" "Times without operations."
    Slept "groups asleep" "Groups that left memory."
    Woken "groups woken" "Groups loaded because somebody wanted them."
    Removed "replicas removed" "Replicas removed from nodes."
    Crashes "power losses" "Crashes that lose what was not synced."
    Kills "kills" "Crashes that lose nothing but memory."
    CrashesAfterPersist "crashes before sending" "Crashes after persisting, before the messages are sent."
    CrashesBetweenWrites "crashes between writes" "Crashes in the middle of persisting."
    Outages "outages" "Crashes of all nodes at once."
    Pauses "pauses" "Nodes that do nothing for a while."
    Cuts "partitions" "Partitions in both directions."
    OneWayCuts "one-way partitions" "Partitions in one direction."
    Isolations "isolated leaders" "Leaders cut off from all others."
    Storms "bad weather" "Times of slow and lossy networks."
    Lost "messages lost" "Messages lost."
    Duplicated "messages repeated" "Messages delivered twice."
    Delayed "messages late" "Messages delayed by more than is usual."
    SlowDisks "slow disks" "Times of slow disks."
    FullDisks "full disks" "Times of full disks."
    WallJumps "clock jumps" "Jumps of wall clocks."
    RateChanges "clock rates" "Changes of the rates of clocks."
}

/// Counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    counts: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage { counts: vec![0; Kind::ALL.len()] }
    }
}

impl Coverage {
    /// Counts one.
    pub fn count(&mut self, kind: Kind) {
        if let Some(count) = self.counts.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// How many were counted.
    pub fn get(&self, kind: Kind) -> u64 {
        self.counts.get(kind as usize).copied().unwrap_or(0)
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Coverage) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<Kind> {
        Kind::ALL.iter().copied().filter(|kind| self.get(*kind) == 0).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            writeln!(f, "  {:<24}{:>10}", kind.name(), self.get(*kind))?;
        }
        Ok(())
    }
}
