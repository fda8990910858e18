//! What a worker does next, by chance, as the core workloads of YCSB define it (SoCC 2010, section 5). Pure.

use super::record::{FIELDS, fnv};
use super::zipf::Zipf;
use clap::ValueEnum;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Most rows of a scan.
const MOST_SCANNED: i64 = 100;

/// The core workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mix {
    /// Half reads, half updates
    #[value(name = "a", alias = "A")]
    A,
    /// 95 % reads, 5 % updates
    #[value(name = "b", alias = "B")]
    B,
    /// Reads only
    #[value(name = "c", alias = "C")]
    C,
    /// 95 % reads, of new rows above all, 5 % inserts
    #[value(name = "d", alias = "D")]
    D,
    /// 95 % scans of up to 100 rows, 5 % inserts
    #[value(name = "e", alias = "E")]
    E,
    /// Half reads, half transactions that read a row and update it
    #[value(name = "f", alias = "F")]
    F,
}

/// How rows are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// Some are popular, wherever they lie
    Zipfian,
    /// New ones are popular
    Latest,
    /// All are alike
    Uniform,
}

/// An operation, with the number of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads all fields.
    Read(u64),
    /// Replaces one field.
    Update(u64, usize),
    /// Reads all fields and replaces one.
    ReadModifyWrite(u64, usize),
    /// Adds the row.
    Insert(u64),
    /// Reads at most so many rows in the order of their keys.
    Scan(u64, i64),
}

impl Mix {
    /// What the mix is made of: the operation besides its main one, and its share in percent.
    fn share(self) -> u32 {
        match self {
            Self::A | Self::F => 50,
            Self::B | Self::D | Self::E => 5,
            Self::C => 0,
        }
    }

    /// The distribution it is defined with.
    pub fn distribution(self) -> Distribution {
        if self == Self::D { Distribution::Latest } else { Distribution::Zipfian }
    }
}

/// The rows there are. All workers share it.
#[derive(Debug)]
pub struct Rows {
    loaded: u64,
    /// Where this run's own rows begin, far from those of other runs, which are not read.
    own: u64,
    inserted: Mutex<Inserted>,
}

#[derive(Debug, Default)]
struct Inserted {
    next: u64,
    /// All below were acknowledged.
    acknowledged: u64,
    /// Others that were.
    beyond: BTreeSet<u64>,
}

impl Rows {
    /// So many were loaded; at least one. `run` tells this run from others.
    pub fn new(loaded: u64, run: u64) -> Self {
        Self { loaded: loaded.max(1), own: (run | 1) << 32, inserted: Mutex::default() }
    }

    /// How many may be read.
    fn count(&self) -> u64 {
        self.loaded + self.inserted.lock().unwrap_or_else(PoisonError::into_inner).acknowledged
    }

    /// The number of a row by its place among those that may be read.
    fn number(&self, place: u64) -> u64 {
        if place < self.loaded { place } else { self.own.wrapping_add(place - self.loaded) }
    }

    /// The number of a new row.
    fn begin_insert(&self) -> u64 {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.next += 1;
        self.own.wrapping_add(inserted.next - 1)
    }

    /// A new row is there, or will never be.
    pub fn end_insert(&self, row: u64) {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.beyond.insert(row.wrapping_sub(self.own));
        let mut next = inserted.acknowledged;
        while inserted.beyond.remove(&next) {
            next += 1;
        }
        inserted.acknowledged = next;
    }
}

/// Chooses the operations of one worker.
#[derive(Debug)]
pub struct Chooser {
    mix: Mix,
    distribution: Distribution,
    zipf: Zipf,
    rows: Arc<Rows>,
    random: StdRng,
}

impl Chooser {
    /// A worker's.
    pub fn new(mix: Mix, distribution: Distribution, rows: Arc<Rows>, random: StdRng) -> Self {
        let zipf = match distribution {
            Distribution::Latest => Zipf::new(rows.count()),
            Distribution::Zipfian | Distribution::Uniform => Zipf::of_many(),
        };
        Self { mix, distribution, zipf, rows, random }
    }

    /// The next operation.
    pub fn operation(&mut self) -> Operation {
        let other = self.random.random_range(0..100) < self.mix.share();
        match (self.mix, other) {
            (Mix::A | Mix::B, true) => Operation::Update(self.row(), self.field()),
            (Mix::F, true) => Operation::ReadModifyWrite(self.row(), self.field()),
            (Mix::D | Mix::E, true) => Operation::Insert(self.rows.begin_insert()),
            (Mix::E, false) => Operation::Scan(self.row(), self.random.random_range(1..=MOST_SCANNED)),
            _ => Operation::Read(self.row()),
        }
    }

    /// A number that no other value has, as likely as not.
    pub fn seed(&mut self) -> u64 {
        self.random.random()
    }

    fn field(&mut self) -> usize {
        self.random.random_range(0..FIELDS)
    }

    fn row(&mut self) -> u64 {
        let count = self.rows.count();
        let place = match self.distribution {
            Distribution::Uniform => self.random.random_range(0..count),
            Distribution::Zipfian => fnv(&self.zipf.rank(self.random.random()).to_be_bytes()) % count,
            Distribution::Latest => {
                self.zipf.grow(count);
                let age = self.zipf.rank(self.random.random());
                (count - 1).saturating_sub(age)
            }
        };
        self.rows.number(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashMap;

    fn chooser(mix: Mix, distribution: Distribution) -> Chooser {
        Chooser::new(mix, distribution, Arc::new(Rows::new(1000, 5)), StdRng::seed_from_u64(1))
    }

    fn drawn(mix: Mix) -> Vec<Operation> {
        let mut chooser = chooser(mix, mix.distribution());
        (0..10_000).map(|_| chooser.operation()).collect()
    }

    #[test]
    fn the_mixes_are_those_of_ycsb() {
        let share = |mix, is: fn(&Operation) -> bool| {
            drawn(mix).iter().filter(|operation| is(operation)).count() / 100
        };
        let is_read = |operation: &Operation| matches!(operation, Operation::Read(..));
        assert!((48..=52).contains(&share(Mix::A, |operation| matches!(operation, Operation::Update(..)))));
        assert!((93..=97).contains(&share(Mix::B, is_read)) && share(Mix::C, is_read) == 100);
        assert!((93..=97).contains(&share(Mix::D, is_read)));
        assert!((3..=7).contains(&share(Mix::D, |operation| matches!(operation, Operation::Insert(..)))));
        assert!((93..=97).contains(&share(Mix::E, |operation| matches!(operation, Operation::Scan(..)))));
        let modifies = |operation: &Operation| matches!(operation, Operation::ReadModifyWrite(..));
        assert!((48..=52).contains(&share(Mix::F, modifies)));
    }

    #[test]
    fn rows_are_as_popular_as_the_distribution_says() {
        let most = |distribution| {
            let mut chooser = chooser(Mix::C, distribution);
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for _ in 0..20_000 {
                let row = chooser.row();
                assert!(row < 1000);
                *counts.entry(row).or_default() += 1;
            }
            counts.into_iter().max_by_key(|(_, count)| *count).unwrap()
        };
        let (popular, count) = most(Distribution::Zipfian);
        assert!(count > 600 && popular == fnv(&0u64.to_be_bytes()) % 1000);
        assert_eq!(most(Distribution::Latest).0, 999);
        assert!(most(Distribution::Uniform).1 < 60);
    }

    #[test]
    fn only_rows_that_were_acknowledged_are_read() {
        let rows = Rows::new(10, 3);
        let new: Vec<u64> = (0..3).map(|_| rows.begin_insert()).collect();
        rows.end_insert(new[1]);
        assert_eq!(rows.count(), 10);
        rows.end_insert(new[0]);
        assert_eq!((rows.count(), rows.number(11)), (12, new[1]));
        rows.end_insert(new[2]);
        assert_eq!((rows.count(), rows.number(9), rows.number(12)), (13, 9, new[2]));
    }
}
