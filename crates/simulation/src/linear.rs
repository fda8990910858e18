//! The linearizability check.
//!
//! Every key is a register, and every value is written at most once. For such histories there is no need
//! to search: the operations on one value, its write and its reads, form a *cluster*, and whether the
//! clusters can be put in an order follows from when each began and ended. This is the algorithm of Gibbons
//! and Korach, "Testing shared memories" (SIAM Journal on Computing 26, 1997), in the terms of Golab, Li and
//! Shah, "Analyzing consistency properties for fun and profit" (PODC 2011):
//!
//! The *zone* of a cluster lies between the earliest end and the latest beginning of its operations. If
//! that end comes first, the register held the value during all of the zone (a *forward* zone);
//! otherwise all operations of the cluster overlap, and one instant between the two suffices (a *backward*
//! zone). The history is linearizable if and only if
//!
//! 1. no read ends before the write of its value begins,
//! 2. no two forward zones overlap,
//! 3. no backward zone lies within a forward zone.
//!
//! A write without an answer may take effect at any time after it began. If nobody read its value it
//! may as well have had no effect, and is left out; a read of its value says that it did.
//!
//! Cost: O(n log n).

use std::collections::BTreeMap;
use std::fmt;

/// A moment in a history; no two are the same.
pub type Stamp = u64;
/// The end of an operation that never ended.
pub const NEVER: Stamp = Stamp::MAX;

/// An operation on one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Names it in reports.
    pub id: usize,
    /// What was written or read.
    pub value: u64,
    /// When it was asked for.
    pub began: Stamp,
    /// When it was answered; [`NEVER`] if it was not.
    pub ended: Stamp,
}

/// The history of one register.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What the register held before the first moment.
    pub initial: u64,
    /// Writes, of different values, but for those that certainly had no effect.
    pub writes: Vec<Access>,
    /// Reads that were answered.
    pub reads: Vec<Access>,
}

/// Why a history is not linearizable. Operations are named by their ids; the initial value has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A read returned what nobody wrote.
    Unwritten {
        /// The read.
        read: Access,
    },
    /// A value was written twice: the history does not meet the conditions of the check.
    Repeated {
        /// The value.
        value: u64,
    },
    /// A read ended before the write of its value began.
    Early {
        /// The read.
        read: Access,
    },
    /// Two values must have been held at the same time.
    Overlap {
        /// One zone.
        first: Zone,
        /// The other.
        second: Zone,
    },
    /// A value must have been held while another was.
    Within {
        /// The one that had to be held all the time.
        outer: Zone,
        /// The one that lies within.
        inner: Zone,
    },
}

/// What the operations on one value say about when it was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The value.
    pub value: u64,
    /// The earliest end of an operation.
    pub first_end: Stamp,
    /// The operation with that end.
    pub first_end_of: Option<usize>,
    /// The latest beginning of an operation.
    pub last_begin: Stamp,
    /// The operation with that beginning.
    pub last_begin_of: Option<usize>,
}

impl Zone {
    fn of_write(write: Option<&Access>, value: u64) -> Self {
        Zone {
            value,
            first_end: write.map_or(0, |write| write.ended),
            first_end_of: write.map(|write| write.id),
            last_begin: write.map_or(0, |write| write.began),
            last_begin_of: write.map(|write| write.id),
        }
    }

    fn add(&mut self, read: &Access) {
        if read.ended < self.first_end {
            (self.first_end, self.first_end_of) = (read.ended, Some(read.id));
        }
        if read.began > self.last_begin {
            (self.last_begin, self.last_begin_of) = (read.began, Some(read.id));
        }
    }

    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: Option<usize>| id.map_or("the beginning".to_owned(), |id| format!("operation {id}"));
        let (ended, began) = (name(self.first_end_of), name(self.last_begin_of));
        write!(
            f,
            "value {} (first end {}: {ended}, last begin {}: {began})",
            self.value, self.first_end, self.last_begin
        )
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anomaly::Unwritten { read } => write!(f, "a read returned what was never written: {read:?}"),
            Anomaly::Repeated { value } => write!(f, "value {value} was written twice"),
            Anomaly::Early { read } => write!(f, "a read ended before its value was written: {read:?}"),
            Anomaly::Overlap { first, second } => {
                write!(f, "both were the newest at once: {first} and {second}")
            }
            Anomaly::Within { outer, inner } => {
                write!(f, "while one was the newest, so was another: {outer}, {inner}")
            }
        }
    }
}

/// Checks a history.
///
/// # Errors
/// The first anomaly found.
pub fn check(history: &History) -> Result<(), Anomaly> {
    let zones = zones(history)?;
    let (forward, backward): (Vec<Zone>, Vec<Zone>) = zones.into_iter().partition(Zone::is_forward);
    let mut by_begin: BTreeMap<Stamp, Zone> = BTreeMap::new();
    for zone in forward {
        if let Some(first) = by_begin.insert(zone.first_end, zone) {
            return Err(Anomaly::Overlap { first, second: zone });
        }
    }
    let mut before: Option<Zone> = None;
    for zone in by_begin.values() {
        if let Some(first) = before.filter(|first| first.last_begin > zone.first_end) {
            return Err(Anomaly::Overlap { first, second: *zone });
        }
        before = Some(*zone);
    }
    for inner in backward {
        let outer = by_begin.range(..inner.last_begin).next_back().map(|(_, outer)| *outer);
        if let Some(outer) = outer.filter(|outer| outer.last_begin > inner.first_end) {
            return Err(Anomaly::Within { outer, inner });
        }
    }
    Ok(())
}

/// The zones of all values that matter, by value.
fn zones(history: &History) -> Result<Vec<Zone>, Anomaly> {
    let mut zones = BTreeMap::from([(history.initial, (Zone::of_write(None, history.initial), 0, true))]);
    for write in &history.writes {
        let zone = Zone::of_write(Some(write), write.value);
        if zones.insert(write.value, (zone, write.began, write.ended != NEVER)).is_some() {
            return Err(Anomaly::Repeated { value: write.value });
        }
    }
    for read in &history.reads {
        let Some((zone, written, matters)) = zones.get_mut(&read.value) else {
            return Err(Anomaly::Unwritten { read: *read });
        };
        if read.ended < *written {
            return Err(Anomaly::Early { read: *read });
        }
        zone.add(read);
        *matters = true;
    }
    Ok(zones.into_values().filter(|(_, _, matters)| *matters).map(|(zone, _, _)| zone).collect())
}
