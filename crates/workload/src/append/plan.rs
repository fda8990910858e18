//! What transactions do, by chance. Pure: nothing here knows of a connection.

use super::Level;
use histories::Isolation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a list or register is written before its key is replaced: reads are as long as lists are.
pub const WRITES_PER_KEY: u64 = 64;
/// Most operations of a transaction.
const MOST_STEPS: usize = 8;
/// Most keys of a scan.
const MOST_SCANNED: u64 = 4;

/// Which keys are in use. All workers share it.
#[derive(Debug)]
pub struct Keys {
    /// How often the key of each place was written. Its current key follows from that.
    writes: Vec<AtomicU64>,
}

impl Keys {
    /// So many at a time; at least one.
    pub fn new(count: u64) -> Self {
        Self { writes: (0..count.max(1)).map(|_| AtomicU64::new(0)).collect() }
    }

    fn count(&self) -> u64 {
        self.writes.len() as u64
    }

    fn key(&self, place: u64, writes: u64) -> u64 {
        (writes / WRITES_PER_KEY).saturating_mul(self.count()).saturating_add(place)
    }

    fn any(&self, random: &mut StdRng, adding: u64) -> u64 {
        let place = random.random_range(0..self.count());
        let writes = usize::try_from(place).ok().and_then(|place| self.writes.get(place));
        self.key(place, writes.map_or(0, |writes| writes.fetch_add(adding, Ordering::Relaxed)))
    }

    fn to_read(&self, random: &mut StdRng) -> u64 {
        self.any(random, 0)
    }

    fn to_write(&self, random: &mut StdRng) -> u64 {
        self.any(random, 1)
    }
}

/// What the index of lists calls a key: neighbours lie far apart. Only the last 32 bits count.
pub fn alias(key: u64) -> u64 {
    let low = u32::try_from(key & u64::from(u32::MAX)).unwrap_or_default();
    u64::from(low.reverse_bits())
}

/// How a list is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// By its primary key.
    Key,
    /// Through the index.
    Index,
}

/// How a value is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// UPDATE; upsert if there is no such row.
    Update(Road),
    /// INSERT … ON CONFLICT DO UPDATE.
    Upsert,
    /// SELECT, and UPDATE with what it returned and the value; upsert if there is no such row.
    ReadThenWrite {
        /// Whether with FOR UPDATE.
        lock: bool,
    },
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Reads a list.
    ReadList(u64, Road),
    /// Reads neighbouring lists with one statement: the first and how many.
    Scan(u64, u64),
    /// Appends to a list.
    Append(u64, Way),
    /// Reads a register.
    Read(u64),
    /// Writes a register.
    Write(u64),
    /// Does things after a savepoint.
    Savepoint {
        /// What.
        steps: Vec<Step>,
        /// Whether they stay; otherwise they are rolled back.
        stays: bool,
    },
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What it asks for.
    pub isolation: Isolation,
    /// Whether it promises to only read.
    pub read_only: bool,
    /// Whether with BEGIN and COMMIT. Without there is one statement.
    pub explicit: bool,
    /// Whether it ends with ROLLBACK.
    pub gives_up: bool,
    /// What it does.
    pub steps: Vec<Step>,
}

/// Chooses transactions.
#[derive(Debug)]
pub struct Chooser {
    random: StdRng,
    level: Level,
    keys: Arc<Keys>,
}

impl Chooser {
    /// Choices that follow from the seed, and from what other workers choose.
    pub fn new(seed: u64, level: Level, keys: Arc<Keys>) -> Self {
        Self { random: StdRng::seed_from_u64(seed), level, keys }
    }

    /// What a transaction without BEGIN is promised, hence what a session is set to.
    pub fn default_isolation(&self) -> Isolation {
        match self.level {
            Level::Serializable | Level::Mixed => Isolation::Serializable,
            Level::ReadCommitted => Isolation::ReadCommitted,
        }
    }

    /// A transaction.
    pub fn plan(&mut self) -> Plan {
        let differs = self.level == Level::Mixed && self.chance(50);
        let isolation = if differs { Isolation::ReadCommitted } else { self.default_isolation() };
        let read_only = self.chance(15);
        let count = self.random.random_range(1..=MOST_STEPS);
        let mut steps: Vec<Step> = (0..count).map(|_| self.step(read_only, isolation)).collect();
        if !read_only && self.chance(10) {
            let stays = self.chance(30);
            let from = self.random.random_range(0..=steps.len());
            let inner = (0..self.random.random_range(1..=2)).map(|_| self.write()).collect();
            steps.insert(from, Step::Savepoint { steps: inner, stays });
        }
        let alone = match &steps[..] {
            [step] => step.is_one_statement() && isolation == self.default_isolation(),
            _ => false,
        };
        let explicit = !alone || self.chance(30);
        Plan { isolation, read_only, explicit, gives_up: explicit && self.chance(3), steps }
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn road(&mut self) -> Road {
        if self.chance(50) { Road::Key } else { Road::Index }
    }

    fn step(&mut self, read_only: bool, isolation: Isolation) -> Step {
        match self.random.random_range(0..100) {
            0..30 => Step::ReadList(self.keys.to_read(&mut self.random), self.road()),
            30..36 => {
                let count = self.random.random_range(1..=MOST_SCANNED);
                Step::Scan(self.keys.to_read(&mut self.random), count)
            }
            36..52 => Step::Read(self.keys.to_read(&mut self.random)),
            _ if read_only => Step::ReadList(self.keys.to_read(&mut self.random), self.road()),
            52..66 => Step::Write(self.keys.to_read(&mut self.random)),
            66..74 => {
                // Without the lock READ COMMITTED loses updates, and may.
                let lock = isolation == Isolation::ReadCommitted || self.chance(50);
                Step::Append(self.keys.to_write(&mut self.random), Way::ReadThenWrite { lock })
            }
            _ => self.append(),
        }
    }

    fn append(&mut self) -> Step {
        let way = if self.chance(40) { Way::Upsert } else { Way::Update(self.road()) };
        Step::Append(self.keys.to_write(&mut self.random), way)
    }

    fn write(&mut self) -> Step {
        if self.chance(70) { self.append() } else { Step::Write(self.keys.to_read(&mut self.random)) }
    }
}

impl Step {
    /// Whether it certainly takes one statement.
    fn is_one_statement(&self) -> bool {
        match self {
            Step::ReadList(..) | Step::Scan(..) | Step::Read(_) | Step::Write(_) => true,
            Step::Append(_, way) => *way == Way::Upsert,
            Step::Savepoint { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plans(level: Level) -> Vec<Plan> {
        let mut chooser = Chooser::new(5, level, Arc::new(Keys::new(4)));
        (0..2_000).map(|_| chooser.plan()).collect()
    }

    fn is_write(step: &Step) -> bool {
        !matches!(step, Step::ReadList(..) | Step::Scan(..) | Step::Read(_))
    }

    #[test]
    fn read_only_transactions_only_read_and_lone_statements_are_alone() {
        for plan in plans(Level::Mixed) {
            assert!(!plan.read_only || !plan.steps.iter().any(is_write), "{plan:?}");
            assert!(plan.explicit || plan.steps.len() == 1 && !plan.gives_up, "{plan:?}");
            assert!(plan.explicit || plan.isolation == Isolation::Serializable, "{plan:?}");
            assert!((1..=MOST_STEPS + 1).contains(&plan.steps.len()), "{plan:?}");
        }
    }

    #[test]
    fn read_committed_locks_what_it_reads_and_then_writes() {
        let unlocked = |step: &Step| matches!(step, Step::Append(_, Way::ReadThenWrite { lock: false }));
        let has_unlocked = |plan: &Plan| plan.steps.iter().any(unlocked);
        assert!(!plans(Level::ReadCommitted).iter().any(has_unlocked));
        assert!(plans(Level::Serializable).iter().any(has_unlocked));
    }

    #[test]
    fn every_kind_of_transaction_occurs() {
        let plans = plans(Level::Mixed);
        let steps = || plans.iter().flat_map(|plan| &plan.steps);
        assert!(plans.iter().any(|plan| plan.gives_up) && plans.iter().any(|plan| !plan.explicit));
        assert!(plans.iter().any(|plan| plan.read_only && plan.explicit));
        assert!(steps().any(|step| matches!(step, Step::Savepoint { stays: true, .. })));
        assert!(steps().any(|step| matches!(step, Step::Savepoint { stays: false, .. })));
        assert!(steps().any(|step| matches!(step, Step::Append(_, Way::Update(Road::Index)))));
    }

    #[test]
    fn keys_are_replaced() {
        let keys = Keys::new(3);
        let mut random = StdRng::seed_from_u64(1);
        let written: Vec<u64> = (0..1_000).map(|_| keys.to_write(&mut random)).collect();
        for key in &written {
            let times = written.iter().filter(|other| *other == key).count();
            assert!(times as u64 <= WRITES_PER_KEY);
        }
        assert!(written.iter().collect::<BTreeSet<_>>().len() > 12);
    }

    #[test]
    fn aliases_are_unique() {
        let aliases: BTreeSet<u64> = (0..1_000).map(alias).collect();
        assert_eq!(aliases.len(), 1_000);
        assert_eq!(alias(1), 1 << 31);
    }
}
