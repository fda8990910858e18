//! What can go wrong, as data: a run draws faults by chance, a scenario lists them.

use crate::clock::Micros;
use crate::layout::Register;
use crate::network::Weather;
use replication::NodeId;

/// A range, named by what it is when the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that was there first.
    First,
    /// The one that came to be last.
    Newest,
    /// Any that is there.
    Any,
}

/// A node, named by what it is to the range that faults concern when the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// This node.
    Node(NodeId),
    /// The leader; any node if there is none.
    Leader,
    /// The node that was the leader when a fault last named [`Who::Leader`], or asked for another one.
    FormerLeader,
    /// A voter that is not the leader: the n-th by number, from 0, and round again.
    Follower(usize),
}

/// What a crash loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The process died; what it wrote is safe with the operating system.
    Nothing,
    /// The power failed: what was not synced may be lost, some of it or all.
    Some,
    /// The power failed, and all that was not synced is lost.
    AllUnsynced,
}

/// Which messages between two sides are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// All.
    Both,
    /// Those to the first side.
    Inwards,
    /// Those from the first side.
    Outwards,
}

/// Something that goes wrong, or that an operator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node crashes and comes back.
    Crash {
        /// Which.
        who: Who,
        /// What it loses.
        loss: Loss,
        /// When it comes back.
        down: Micros,
    },
    /// A node crashes after it has next persisted something, before it has sent any message.
    CrashAfterPersist {
        /// Which.
        who: Who,
        /// What it loses.
        loss: Loss,
        /// When it comes back.
        down: Micros,
    },
    /// A node crashes between two writes to its disk.
    CrashBetweenWrites {
        /// Which.
        who: Who,
        /// How many writes it still makes.
        writes: u64,
        /// What it loses.
        loss: Loss,
        /// When it comes back.
        down: Micros,
    },
    /// All nodes crash.
    Outage {
        /// What they lose.
        loss: Loss,
        /// When they come back.
        down: Micros,
    },
    /// A node does nothing for a while, then goes on as if nothing had been.
    Pause {
        /// Which.
        who: Who,
        /// How long.
        span: Micros,
    },
    /// Some nodes are cut off from the others.
    Isolate {
        /// One side.
        side: Vec<Who>,
        /// Which messages are lost.
        direction: Direction,
        /// How long.
        span: Micros,
    },
    /// Two nodes are cut off from each other.
    CutPair {
        /// One.
        one: Who,
        /// The other.
        other: Who,
        /// Which messages are lost.
        direction: Direction,
        /// How long.
        span: Micros,
    },
    /// The network is as given for a while.
    Storm {
        /// How messages fare.
        weather: Weather,
        /// How long.
        span: Micros,
    },
    /// Writing takes long.
    SlowDisk {
        /// Whose.
        who: Who,
        /// How long a sync takes at most.
        sync: Micros,
        /// How long this lasts.
        span: Micros,
    },
    /// Writing fails for want of space.
    FullDisk {
        /// Whose.
        who: Who,
        /// How long.
        span: Micros,
    },
    /// A wall clock is set.
    SetWallClock {
        /// Whose.
        who: Who,
        /// How far it is off from now on, in microseconds.
        offset: i64,
    },
    /// A clock goes at another rate.
    SetRate {
        /// Whose.
        who: Who,
        /// How far the rate is off, in millionths.
        rate_ppm: i64,
    },
    /// From now on faults that name leaders, followers and members concern another range. Faults by chance choose
    /// one each time.
    Concern(Which),
    /// The leader is asked to split the range.
    Split {
        /// The first register of the new range; any if there is none.
        at: Option<Register>,
    },
    /// The range is to absorb its right neighbour.
    Merge,
    /// The leader is asked to note what users want of the range.
    Configure,
    /// The leader of the first range is asked to create one for a tenant.
    CreateTenant,
    /// A tenant's range is gone for good; the nodes hear of it one by one.
    DropTenant {
        /// After how long they have heard of it, at most.
        within: Micros,
    },
    /// No client begins anything for a while.
    Silence {
        /// How long.
        span: Micros,
    },
    /// The leader is asked to hand over.
    Transfer {
        /// To whom.
        to: Who,
    },
    /// The leader is asked to change the members in some way.
    ChangeMembers,
    /// The leader is asked for a learner.
    AddLearner(NodeId),
    /// The leader is asked for these voters.
    SetVoters(Vec<NodeId>),
    /// Commands evaluated from now on are proposed this much later, at most.
    SlowEvaluation {
        /// How much.
        delay: Micros,
        /// How long this lasts.
        span: Micros,
    },
}
