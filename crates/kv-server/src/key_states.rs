//! What an evaluation knows of the keys that it writes.

use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use storage::intent::Intent;

/// What is known about a key to be written.
#[derive(Debug, Default)]
pub(crate) struct KeyState {
    /// What the data space holds, after intents of others are settled.
    pub replaced: Option<Bytes>,
    /// The transaction's own earlier intent.
    pub own: Option<Box<Intent>>,
    /// The batch's writes so far.
    pub writes: SmallVec<[(u32, Option<Bytes>); 1]>,
}

/// The states of keys. Batches name most of their keys in ascending order: those are appended to a list and found
/// again at its end.
#[derive(Debug, Default)]
pub(crate) struct KeyStates {
    ascending: Vec<(Bytes, KeyState)>,
    /// Keys that came after larger ones.
    others: BTreeMap<Bytes, KeyState>,
}

impl KeyStates {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ascending.is_empty()
    }

    /// Whether there is one of the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.place(key).is_some() || self.others.contains_key(key)
    }

    /// That of a key.
    pub fn get(&self, key: &[u8]) -> Option<&KeyState> {
        match self.place(key) {
            Some(place) => self.ascending.get(place).map(|(_, state)| state),
            None => self.others.get(key),
        }
    }

    /// That of a key.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut KeyState> {
        match self.place(key) {
            Some(place) => self.ascending.get_mut(place).map(|(_, state)| state),
            None => self.others.get_mut(key),
        }
    }

    /// Adds that of a key of which there is none.
    pub fn insert(&mut self, key: Bytes, state: KeyState) {
        match self.ascending.last() {
            Some((last, _)) if *last > key => {
                self.others.insert(key, state);
            }
            _ => self.ascending.push((key, state)),
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = KeyStates::default();
    }

    /// All of them, in the order of their keys.
    pub fn into_sorted(self) -> Vec<(Bytes, KeyState)> {
        let mut all = self.ascending;
        if !self.others.is_empty() {
            all.extend(self.others);
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        all
    }

    /// The keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.ascending.iter().map(|(key, _)| key).chain(self.others.keys())
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        match self.ascending.last()?.0[..].cmp(key) {
            std::cmp::Ordering::Equal => Some(self.ascending.len() - 1),
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Greater => {
                self.ascending.binary_search_by(|(other, _)| other[..].cmp(key)).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_sorted_in_whatever_order_they_come() {
        let (mut states, mut model) = (KeyStates::default(), BTreeMap::new());
        let mut number = 1_u64;
        for round in 0..500_u32 {
            // Mostly ascending; some from before, some again.
            number = if round % 7 == 3 { (number * 48_271) % 4_001 } else { number + 2 };
            let key = Bytes::copy_from_slice(&number.to_be_bytes());
            assert_eq!(states.contains(&key), model.contains_key(&key));
            if !states.contains(&key) {
                states.insert(key.clone(), KeyState::default());
            }
            states.get_mut(&key).expect("just added").writes.push((round, None));
            model.entry(key).or_insert_with(Vec::new).push(round);
            for (key, rounds) in &model {
                assert_eq!(states.get(key).map(|state| state.writes.len()), Some(rounds.len()));
            }
        }
        assert!(!states.others.is_empty() && states.keys().count() == model.len());
        let rounds = |state: KeyState| state.writes.iter().map(|(round, _)| *round).collect::<Vec<_>>();
        let sorted = states.into_sorted().into_iter().map(|(key, state)| (key, rounds(state)));
        assert!(sorted.eq(model));
    }
}
