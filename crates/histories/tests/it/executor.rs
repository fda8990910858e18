//! Executors of random transactions, in memory: serial, snapshot isolation, READ COMMITTED.

use histories::{History, Isolation, Op, Outcome, Txn};
use std::collections::BTreeMap;

/// What a transaction is to do: the key, and what to do with it (see [`intent`]).
pub type Intents = Vec<(u64, u8)>;

/// How transactions see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One after the other.
    Serial,
    /// Each sees what was there when it began; the first that commits a write wins.
    Snapshot,
    /// Each statement sees what is there. Who writes an object keeps others from it; who waits for long gives up.
    ReadCommitted,
}

#[derive(Clone, Default)]
struct State {
    lists: BTreeMap<u64, Vec<u64>>,
    registers: BTreeMap<u64, u64>,
    /// When objects changed last: lists have even numbers, registers odd ones.
    changed: BTreeMap<u64, u64>,
}

struct Running {
    txn: Txn,
    intents: Intents,
    next: usize,
    snapshot: Option<(State, u64)>,
    fate: u8,
    waited: u8,
}

/// Runs transactions; `schedule` says whose turn it is, `fates` how each ends. Ends with a read of everything.
pub fn run(mode: Mode, all: &[Intents], schedule: &[u8], fates: &[u8]) -> History {
    let mut world = World {
        mode,
        state: State::default(),
        now: 0,
        value: 0,
        history: History::default(),
        locks: BTreeMap::new(),
    };
    let mut waiting = all.iter().enumerate().rev().collect::<Vec<_>>();
    let mut running: Vec<Running> = Vec::new();
    let concurrency = if mode == Mode::Serial { 1 } else { 4 };
    let mut schedule = schedule.iter().cycle();
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < concurrency
            && let Some((id, intents)) = waiting.pop()
        {
            let fate = fates.get(id).copied().unwrap_or_default();
            running.push(world.begin(id as u64, intents.clone(), fate));
        }
        let turn = usize::from(*schedule.next().unwrap_or(&0)) % running.len();
        if world.step(&mut running[turn]) {
            let ended = running.swap_remove(turn);
            world.end(ended);
        }
    }
    world.read_everything();
    world.history
}

struct World {
    mode: Mode,
    state: State,
    now: u64,
    value: u64,
    history: History,
    /// Who writes an object, under READ COMMITTED.
    locks: BTreeMap<u64, u64>,
}

impl World {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, id: u64, intents: Intents, fate: u8) -> Running {
        let isolation = match self.mode {
            Mode::ReadCommitted => Isolation::ReadCommitted,
            Mode::Serial | Mode::Snapshot => Isolation::Serializable,
        };
        let invoked = self.tick();
        let (outcome, ops) = (Outcome::Committed, Vec::new());
        let txn = Txn { id, process: (id % 4) as u32, invoked, completed: None, outcome, isolation, ops };
        Running { txn, intents, next: 0, snapshot: None, fate, waited: 0 }
    }

    /// Does one thing. True at the end.
    fn step(&mut self, running: &mut Running) -> bool {
        let now = self.tick();
        if running.snapshot.is_none() || self.mode == Mode::ReadCommitted {
            running.snapshot = Some((self.state.clone(), now));
        }
        let Some((key, what)) = running.intents.get(running.next).copied() else { return true };
        if self.mode == Mode::ReadCommitted && what % 2 == 1 {
            let object = key * 2 + u64::from(what % 4 == 3);
            if *self.locks.entry(object).or_insert(running.txn.id) != running.txn.id {
                running.waited += 1;
                running.fate = if running.waited > 8 { 0 } else { running.fate };
                return running.waited > 8;
            }
        }
        running.next += 1;
        let (snapshot, _) = running.snapshot.as_ref().unwrap();
        let mut seen = snapshot.clone();
        seen.apply(&running.txn.ops, now);
        let op = match what % 4 {
            0 => Op::ReadList { key, values: seen.lists.get(&key).cloned().unwrap_or_default() },
            1 => Op::Append { key, value: self.next_value() },
            2 => Op::Read { key, value: seen.registers.get(&key).copied() },
            _ => Op::Write { key, value: self.next_value() },
        };
        running.txn.ops.push(op);
        false
    }

    fn next_value(&mut self) -> u64 {
        self.value += 1;
        self.value
    }

    fn end(&mut self, mut running: Running) {
        let since = running.snapshot.as_ref().map_or(0, |(_, at)| *at);
        let loses = self.mode == Mode::Snapshot && self.state.changed_since(&running.txn.ops, since);
        running.txn.outcome = match running.fate % 10 {
            _ if loses => Outcome::Aborted,
            0 => Outcome::Aborted,
            1 | 2 => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        let now = self.tick();
        let happens = matches!(running.fate % 10, 1 | 3..);
        if happens && !loses {
            self.state.apply(&running.txn.ops, now);
        }
        self.locks.retain(|_, holder| *holder != running.txn.id);
        let ended = self.tick();
        running.txn.completed = (running.txn.outcome != Outcome::Unknown).then_some(ended);
        self.history.txns.push(running.txn);
    }

    fn read_everything(&mut self) {
        let (invoked, completed) = (self.tick(), Some(self.tick()));
        let lists = (0..KEYS)
            .map(|key| Op::ReadList { key, values: self.state.lists.get(&key).cloned().unwrap_or_default() });
        let registers = (0..KEYS).map(|key| Op::Read { key, value: self.state.registers.get(&key).copied() });
        let (outcome, isolation) = (Outcome::Committed, Isolation::Serializable);
        let ops = lists.chain(registers).collect();
        self.history.txns.push(Txn {
            id: u64::MAX,
            process: 99,
            invoked,
            completed,
            outcome,
            isolation,
            ops,
        });
    }
}

/// How many lists and how many registers there are.
pub const KEYS: u64 = 3;

impl State {
    fn apply(&mut self, ops: &[Op], now: u64) {
        for op in ops {
            match op {
                Op::Append { key, value } => {
                    self.lists.entry(*key).or_default().push(*value);
                    self.changed.insert(key * 2, now);
                }
                Op::Write { key, value } => {
                    self.registers.insert(*key, *value);
                    self.changed.insert(key * 2 + 1, now);
                }
                Op::ReadList { .. } | Op::Read { .. } => {}
            }
        }
    }

    fn changed_since(&self, ops: &[Op], since: u64) -> bool {
        ops.iter().any(|op| {
            let object = match op {
                Op::Append { key, .. } => key * 2,
                Op::Write { key, .. } => key * 2 + 1,
                Op::ReadList { .. } | Op::Read { .. } => return false,
            };
            self.changed.get(&object).is_some_and(|changed| *changed > since)
        })
    }
}
