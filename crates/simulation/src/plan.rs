//! What kind of run a seed stands for.

use crate::clock::{MILLI, Micros, SECOND};
use crate::fault::Fault;
use crate::layout::Register;
use crate::network::Weather;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use replication::{Millis, NodeId};

/// How many nodes there are; not all are members at first.
pub const NODES: NodeId = 5;

/// Kinds of faults that a run may have or not. A run with few kinds of faults gets into states that one
/// with all of them never reaches, so every seed draws its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    /// Single nodes crash.
    Crashes,
    /// All nodes crash.
    Outages,
    /// Nodes pause.
    Pauses,
    /// The network is cut.
    Cuts,
    /// Leaders are cut off.
    IsolatedLeaders,
    /// The network is bad for a while.
    Storms,
    /// Disks are slow.
    SlowDisks,
    /// Disks are full.
    FullDisks,
    /// Clocks are set and change their rates.
    Clocks,
    /// Leaders hand over.
    Transfers,
    /// Members change.
    Members,
    /// Commands are proposed late.
    SlowEvaluation,
    /// Ranges are split.
    Splits,
    /// Ranges are merged.
    Merges,
    /// Tenants come and go, and want something else.
    Tenants,
    /// Clients fall silent.
    Silence,
}

impl Menu {
    const ALL: [Menu; 16] = [
        Menu::Crashes,
        Menu::Outages,
        Menu::Pauses,
        Menu::Cuts,
        Menu::IsolatedLeaders,
        Menu::Storms,
        Menu::SlowDisks,
        Menu::FullDisks,
        Menu::Clocks,
        Menu::Transfers,
        Menu::Members,
        Menu::SlowEvaluation,
        Menu::Splits,
        Menu::Merges,
        Menu::Tenants,
        Menu::Silence,
    ];

    fn likelihood(self) -> f64 {
        match self {
            // They make what the others can happen to.
            Menu::Splits | Menu::Merges | Menu::Tenants => 0.7,
            _ => 0.45,
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who votes at first.
    pub voters: Vec<NodeId>,
    /// How long things go wrong.
    pub trouble: Micros,
    /// How many clients there are.
    pub clients: usize,
    /// How long a client waits between two operations: from, to.
    pub think: (Micros, Micros),
    /// How many of a thousand operations are writes.
    pub writes_per_mille: u32,
    /// How many of a thousand reads are served by followers.
    pub follows_per_mille: u32,
    /// How many of a thousand reads are of the past.
    pub past_per_mille: u32,
    /// How often, of a thousand times, a client turns to another register: where it is seldom, others are
    /// left alone for long.
    pub roams_per_mille: u32,
    /// How many keys there are in the first range.
    pub keys: Register,
    /// See [`replication::StoreConfig::sleep_after_ms`].
    pub sleep_after_ms: Millis,
    /// See [`replication::StoreConfig::log_keep`].
    pub log_keep: u64,
    /// See [`replication::StoreConfig::chunk_bytes`].
    pub chunk_bytes: usize,
    /// How far wall clocks may be off, in microseconds.
    pub wall_error: i64,
    /// The network between faults.
    pub weather: Weather,
    /// How long a sync takes: from, to.
    pub sync: (Micros, Micros),
    /// What may go wrong.
    pub menu: Vec<Menu>,
    /// How long it takes until the next thing goes wrong: from, to.
    pub gap: (Micros, Micros),
    /// Faults at fixed times instead of faults by chance.
    pub script: Option<Vec<(Micros, Fault)>>,
}

impl Plan {
    /// Draws a plan.
    pub fn draw(rng: &mut SmallRng) -> Self {
        let voters = match rng.random_range(0..20) {
            0..14 => vec![1, 2, 3],
            14..18 => vec![1, 2, 3, 4, 5],
            _ => vec![1],
        };
        let mut menu: Vec<Menu> =
            Menu::ALL.into_iter().filter(|kind| rng.random_bool(kind.likelihood())).collect();
        if menu.is_empty() {
            menu.push(*Menu::ALL.choose(rng).unwrap_or(&Menu::Crashes));
        }
        let slowest_delay = *[300, 2 * MILLI, 30 * MILLI].choose(rng).unwrap_or(&MILLI);
        let weather = Weather {
            delay: (100, slowest_delay),
            late_per_mille: *[0, 0, 5, 30].choose(rng).unwrap_or(&0),
            late: (slowest_delay, *[100 * MILLI, 3 * SECOND].choose(rng).unwrap_or(&SECOND)),
            lost_per_mille: *[0, 0, 2, 20].choose(rng).unwrap_or(&0),
            repeated_per_mille: *[0, 0, 5, 50].choose(rng).unwrap_or(&0),
        };
        let longest_gap = *[SECOND, 3 * SECOND, 8 * SECOND].choose(rng).unwrap_or(&SECOND);
        Plan {
            voters,
            trouble: rng.random_range(20 * SECOND..40 * SECOND),
            clients: rng.random_range(2..=6),
            think: (MILLI, *[40 * MILLI, 200 * MILLI].choose(rng).unwrap_or(&MILLI)),
            writes_per_mille: *[300, 500, 800].choose(rng).unwrap_or(&500),
            follows_per_mille: *[0, 200, 500].choose(rng).unwrap_or(&200),
            past_per_mille: *[0, 100, 300].choose(rng).unwrap_or(&100),
            roams_per_mille: *[1000, 1000, 100, 20].choose(rng).unwrap_or(&1000),
            keys: *[2, 6, 10, 10].choose(rng).unwrap_or(&10),
            sleep_after_ms: *[0, 0, 200, 1_000, 3_000].choose(rng).unwrap_or(&0),
            log_keep: *[1, 5, 20, 100].choose(rng).unwrap_or(&20),
            chunk_bytes: *[64, 256, 4096].choose(rng).unwrap_or(&256),
            wall_error: *[0, 200_000, 20_000_000, 3_600_000_000].choose(rng).unwrap_or(&0),
            weather,
            sync: (50, *[200, 5 * MILLI, 20 * MILLI].choose(rng).unwrap_or(&200)),
            menu,
            gap: (10 * MILLI, longest_gap),
            script: None,
        }
    }

    /// A plan without chance: the given faults at the given times, on a good network.
    pub fn scripted(script: Vec<(Micros, Fault)>) -> Self {
        let end = script.iter().map(|(at, _)| *at).max().unwrap_or(0);
        Plan {
            voters: vec![1, 2, 3],
            trouble: end + 5 * SECOND,
            clients: 5,
            think: (MILLI, 40 * MILLI),
            writes_per_mille: 500,
            follows_per_mille: 0,
            past_per_mille: 0,
            roams_per_mille: 1000,
            keys: 3,
            sleep_after_ms: 0,
            log_keep: 20,
            chunk_bytes: 256,
            wall_error: 0,
            weather: Weather::FAIR,
            sync: (50, 200),
            menu: Vec::new(),
            gap: (SECOND, SECOND),
            script: Some(script),
        }
    }
}
