//! What kind of run a seed stands for.

use crate::clock::{MILLI, Micros, SECOND};
use crate::network::Weather;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use replication::NodeId;

/// Kinds of faults that a run may have or not; every seed draws its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    /// Nodes crash.
    Crashes,
    /// Nodes crash in the middle of a turn: some of its writes fail.
    TornTurns,
    /// All nodes crash.
    Outages,
    /// The network between two places is cut, one way or both.
    Cuts,
    /// A node is cut off from the other nodes, but not from clients.
    Isolation,
    /// The network is bad for a while.
    Storms,
    /// Disks are slow.
    SlowDisks,
    /// Wall clocks are set, and clocks change their rates.
    Clocks,
    /// A wall clock is set to a wrong time: its node must stop.
    WrongClocks,
    /// Leases are handed over.
    Transfers,
    /// Ranges are split.
    Splits,
    /// Ranges are merged.
    Merges,
    /// Connections of clients break.
    BrokenConnections,
    /// Clients crash in the middle of a transaction.
    ClientCrashes,
    /// They do so while they commit, or right after it.
    CoordinatorCrashes,
    /// Spans begin, or cease, to be read everywhere.
    Globals,
}

/// Which keys of a tenant are read everywhere ([`kv_server::global`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// The lists.
    Lists,
    /// The registers.
    Registers,
    /// All.
    All,
}

impl Menu {
    /// All of them.
    pub const ALL: [Menu; 14] = [
        Menu::Crashes,
        Menu::TornTurns,
        Menu::Outages,
        Menu::Cuts,
        Menu::Isolation,
        Menu::Storms,
        Menu::SlowDisks,
        Menu::Clocks,
        Menu::WrongClocks,
        Menu::Transfers,
        Menu::Splits,
        Menu::BrokenConnections,
        Menu::ClientCrashes,
        Menu::CoordinatorCrashes,
    ];
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many nodes there are.
    pub nodes: NodeId,
    /// How many tenants.
    pub tenants: u64,
    /// How many clients of each.
    pub clients: usize,
    /// How many lists each tenant has, and as many registers.
    pub keys: u64,
    /// In how many of a thousand places between keys ranges are split before the trouble begins.
    pub splits_per_mille: u32,
    /// The longest transaction, in steps.
    pub steps: usize,
    /// How long a client waits between two transactions, at most.
    pub think: Micros,
    /// How many of a thousand transactions are READ COMMITTED.
    pub read_committed_per_mille: u32,
    /// How many of a thousand transactions have a low or high priority.
    pub priorities_per_mille: u32,
    /// Before how many of a thousand statements a transaction changes its process.
    pub hops_per_mille: u32,
    /// How long things go wrong.
    pub trouble: Micros,
    /// How far wall clocks may be off.
    pub wall_error: i64,
    /// The network between faults.
    pub weather: Weather,
    /// How long a sync takes: from, to.
    pub sync: (Micros, Micros),
    /// Which keys are read everywhere.
    pub global: Option<Global>,
    /// How many of a thousand transactions only read, at any replica.
    pub readers_per_mille: u32,
    /// The longest pause between two leases that are handed over all the time, whatever else goes wrong; `None` is never.
    pub transfer_pause: Option<Micros>,
    /// After how long ranges that are idle are merged; 0 is never.
    pub merge_after: Micros,
    /// What may go wrong.
    pub menu: Vec<Menu>,
    /// How long it takes until the next thing goes wrong: from, to.
    pub gap: (Micros, Micros),
}

impl Plan {
    /// Leaves out everything that goes wrong, and merges, which take locks with them; and has transactions change their processes often.
    pub fn calm_down(&mut self) {
        self.menu.clear();
        self.weather = Weather::FAIR;
        self.hops_per_mille = 300;
        self.merge_after = 0;
        self.transfer_pause = None;
    }

    /// Leaves out the splits.
    pub fn keep_ranges_whole(&mut self) {
        self.splits_per_mille = 0;
        // The borders of spans split ranges.
        self.global = self.global.map(|_| Global::All);
        self.menu.retain(|kind| !matches!(kind, Menu::Splits | Menu::Merges));
        if self.menu.is_empty() {
            self.menu.push(Menu::Crashes);
        }
    }

    /// Has keys read everywhere in any case, and much.
    pub fn read_everywhere(&mut self, rng: &mut SmallRng) {
        let kinds = [Global::Lists, Global::Registers, Global::All, Global::All];
        self.global = kinds.choose(rng).copied();
        self.readers_per_mille = 600;
        self.think = self.think.min(50 * MILLI);
        self.wall_error = self.wall_error.max(*[0, 50_000, 240_000].choose(rng).unwrap_or(&0));
    }

    /// Has ranges split and merged all the time, and clients leave them alone for moments.
    pub fn merge_often(&mut self, rng: &mut SmallRng) {
        self.global = None;
        self.keys = self.keys.max(3);
        self.splits_per_mille = 1000;
        self.menu.retain(|kind| *kind != Menu::Globals);
        // Neighbours whose leases lie with different nodes have different clocks.
        self.menu.extend([Menu::Splits, Menu::Splits, Menu::Transfers, Menu::Transfers]);
        self.menu.extend([Menu::Merges; 4]);
        self.gap = (10 * MILLI, *[200 * MILLI, SECOND].choose(rng).unwrap_or(&SECOND));
        self.think = *[50 * MILLI, 300 * MILLI].choose(rng).unwrap_or(&MILLI);
        // Where a neighbour's clock is ahead it shows whether who absorbs it has heard of that.
        self.wall_error = self.wall_error.max(*[0, 240_000, 240_000, 240_000].choose(rng).unwrap_or(&0));
    }

    /// Has leases handed over all the time while clients commit as fast as they can, in half of the runs with nothing else
    /// going wrong.
    pub fn hand_leases_over_often(&mut self, rng: &mut SmallRng) {
        (self.clients, self.keys, self.splits_per_mille) = (5, self.keys.max(3), 1000);
        self.think = 5 * MILLI;
        self.transfer_pause = [10 * MILLI, 20 * MILLI, 50 * MILLI].choose(rng).copied();
        if rng.random_bool(0.5) {
            self.menu = vec![Menu::Transfers];
        }
    }

    /// Lets wall clocks be further apart than nodes expect.
    pub fn let_clocks_go_wrong(&mut self) {
        self.wall_error = 1_500_000;
    }

    /// Whether wall clocks are further apart than nodes expect where that matters, if only until the node that is wrong
    /// stops itself.
    pub fn has_wrong_clocks(&self) -> bool {
        self.wall_error > 250_000 || self.global.is_some() && self.menu.contains(&Menu::WrongClocks)
    }

    /// Draws a plan.
    pub fn draw(rng: &mut SmallRng) -> Self {
        let mut menu: Vec<Menu> = Menu::ALL.into_iter().filter(|_| rng.random_bool(0.45)).collect();
        if menu.is_empty() {
            menu.push(*Menu::ALL.choose(rng).unwrap_or(&Menu::Crashes));
        }
        let slowest = *[MILLI, 3 * MILLI, 20 * MILLI].choose(rng).unwrap_or(&MILLI);
        let longest_gap = *[SECOND, 3 * SECOND, 6 * SECOND].choose(rng).unwrap_or(&SECOND);
        let mut plan = Plan {
            nodes: *[3, 3, 3, 4, 5].choose(rng).unwrap_or(&3),
            tenants: rng.random_range(1..=2),
            clients: rng.random_range(2..=5),
            keys: *[2, 3, 5].choose(rng).unwrap_or(&3),
            splits_per_mille: *[0, 300, 500, 1000].choose(rng).unwrap_or(&500),
            steps: rng.random_range(2..=7),
            think: *[5 * MILLI, 50 * MILLI, 300 * MILLI].choose(rng).unwrap_or(&MILLI),
            read_committed_per_mille: *[0, 0, 150].choose(rng).unwrap_or(&0),
            priorities_per_mille: *[0, 500].choose(rng).unwrap_or(&0),
            hops_per_mille: *[0, 30, 150].choose(rng).unwrap_or(&0),
            trouble: rng.random_range(8 * SECOND..20 * SECOND),
            wall_error: *[0, 20_000, 200_000].choose(rng).unwrap_or(&0),
            weather: Weather {
                delay: (0, slowest),
                late_per_mille: *[0, 5, 30].choose(rng).unwrap_or(&0),
                late: (slowest, *[100 * MILLI, 2 * SECOND].choose(rng).unwrap_or(&SECOND)),
                lost_per_mille: *[0, 0, 5, 20].choose(rng).unwrap_or(&0),
                repeated_per_mille: *[0, 5, 50].choose(rng).unwrap_or(&0),
            },
            sync: (0, *[MILLI, 3 * MILLI, 10 * MILLI].choose(rng).unwrap_or(&MILLI)),
            global: None,
            readers_per_mille: 0,
            transfer_pause: None,
            merge_after: 0,
            menu,
            gap: (50 * MILLI, longest_gap),
        };
        // Drawn last, so that the rest of a seed's plan is what it was without.
        let globals = [None, None, Some(Global::Lists), Some(Global::Registers), Some(Global::All)];
        plan.global = globals.choose(rng).copied().flatten();
        plan.readers_per_mille = *[0, 300, 500].choose(rng).unwrap_or(&0);
        if plan.global.is_some() && rng.random_bool(0.4) {
            plan.menu.push(Menu::Globals);
        }
        if rng.random_bool(0.5) {
            plan.menu.push(Menu::Merges);
            plan.merge_after = *[0, SECOND].choose(rng).unwrap_or(&0);
        }
        plan.transfer_pause =
            *[None, None, None, Some(30 * MILLI), Some(300 * MILLI)].choose(rng).unwrap_or(&None);
        plan
    }
}
