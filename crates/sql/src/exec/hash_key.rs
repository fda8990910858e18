//! Hash tables keyed by rows of values.

use hashbrown::HashTable;
use sql_types::{Datum, Row, compare};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Maps keys (rows of values, NULLs equal) to positions counted from 0 in order of arrival.
#[derive(Default)]
pub(crate) struct KeyTable {
    table: HashTable<(u64, u32)>,
    keys: Vec<Row>,
    hasher: RandomState,
}

impl KeyTable {
    pub fn new() -> Self {
        KeyTable::default()
    }

    fn hash(&self, key: &[Datum]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for value in key {
            hash_value(value, &mut hasher);
        }
        hasher.finish()
    }

    /// Position of a key, if it is there.
    pub fn find(&self, key: &[Datum]) -> Option<usize> {
        let hash = self.hash(key);
        let same = |entry: &(u64, u32)| entry.0 == hash && equal(&self.keys[entry.1 as usize], key);
        self.table.find(hash, same).map(|entry| entry.1 as usize)
    }

    /// Position of a key, and whether it is new. `make` gives the key to keep.
    pub fn insert(&mut self, key: &[Datum], make: impl FnOnce() -> Row) -> (usize, bool) {
        let hash = self.hash(key);
        let keys = &self.keys;
        let same = |entry: &(u64, u32)| entry.0 == hash && equal(&keys[entry.1 as usize], key);
        if let Some(entry) = self.table.find(hash, same) {
            return (entry.1 as usize, false);
        }
        let position = self.keys.len();
        self.keys.push(make());
        self.table.insert_unique(hash, (hash, position as u32), |entry| entry.0);
        (position, true)
    }

    /// The keys.
    pub fn keys(&self) -> &[Row] {
        &self.keys
    }

    /// Takes the keys out.
    pub fn into_keys(self) -> Vec<Row> {
        self.keys
    }
}

/// Bytes one further key costs beside the key itself.
pub(crate) const KEY_OVERHEAD: usize = 32;

fn hash_value(value: &Datum, hasher: &mut impl Hasher) {
    compare::hash(value, hasher);
}

/// Whether two rows are equal, NULLs being equal.
pub(crate) fn equal(left: &[Datum], right: &[Datum]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| compare::equal(left, right))
}
