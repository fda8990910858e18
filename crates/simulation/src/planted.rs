//! The bug of a run, if it has one.

use replication::{Bug, Faults};

/// At most one planted bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(pub Option<Bug>);

impl Faults for Planted {
    fn planted(&self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}
