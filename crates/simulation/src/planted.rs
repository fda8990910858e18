//! The bug of a run, if it has one: in replication, or in the service on top ([`crate::service`]).

use replication::{Bug, Faults};
use std::fmt;

/// Something the service leaves out on purpose: what every user of replication has to keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceBug {
    /// A follower serves at the promised timestamp without waiting until it has applied the promised index.
    FollowerServesWithoutWaiting,
    /// A read that came after a promise was asked for is served by that promise.
    PromiseForLatecomers,
    /// The leaseholder promises a timestamp without waiting for the writes under way.
    PromiseOverWrites,
    /// A timestamp is closed although writes below it are under way.
    ClosedOverWrites,
    /// A timestamp is closed that is not below the ceiling of the lease: the next holder writes there.
    ClosedAboveCeiling,
    /// Keys are served, and written, while they are being given up.
    SplitWhileServing,
    /// A range is served while it is being frozen.
    FrozenWhileServing,
    /// A range that is frozen is served.
    FrozenServes,
    /// A range that was frozen serves again although the other may yet absorb it.
    ThawedUnsettled,
}

impl ServiceBug {
    /// All of them.
    pub const ALL: [ServiceBug; 9] = [
        ServiceBug::FollowerServesWithoutWaiting,
        ServiceBug::PromiseForLatecomers,
        ServiceBug::PromiseOverWrites,
        ServiceBug::ClosedOverWrites,
        ServiceBug::ClosedAboveCeiling,
        ServiceBug::SplitWhileServing,
        ServiceBug::FrozenWhileServing,
        ServiceBug::FrozenServes,
        ServiceBug::ThawedUnsettled,
    ];
}

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// In the store.
    Store(Bug),
    /// In the service.
    Service(ServiceBug),
}

impl Plant {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Plant> {
        Bug::ALL.into_iter().map(Plant::Store).chain(ServiceBug::ALL.into_iter().map(Plant::Service))
    }
}

impl fmt::Debug for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plant::Store(bug) => bug.fmt(f),
            Plant::Service(bug) => bug.fmt(f),
        }
    }
}

/// At most one planted bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(pub Option<Plant>);

impl Planted {
    /// Whether the service leaves this out.
    pub fn in_service(&self, bug: ServiceBug) -> bool {
        self.0 == Some(Plant::Service(bug))
    }
}

impl Faults for Planted {
    fn planted(&self, bug: Bug) -> bool {
        self.0 == Some(Plant::Store(bug))
    }
}
