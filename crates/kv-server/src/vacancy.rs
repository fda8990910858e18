//! Where nothing lies. A batch that inserts many keys into a part of a table that is empty, as bulk loads do, finds out
//! with one seek for many of them that they are new, instead of looking each one up.
//!
//! Only keys that the batch has latched may be asked for: what was not there when the engine was asked is then not there
//! until the batch is done. Others may be written meanwhile.

use bytes::Bytes;
use kv_api::batch::{Request, RequestKind};
use storage::{Bounds, FirstKey, Reader, Space, StorageResult};

/// How often the patience doubles after seeks that found little.
const MAX_DOUBLINGS: u32 = 8;

/// A gap between keys of the engine, as far as an evaluation has found one.
#[derive(Debug)]
pub(crate) struct Vacancy {
    /// Nothing lies from the first to before the second.
    from: Bytes,
    to: Bytes,
    /// No key after it will be asked for, as far as is known.
    last: Option<Bytes>,
    /// After so many vacant keys in a row it is looked where the next occupied one is.
    patience: usize,
    doublings: u32,
    /// Vacant keys looked up since.
    looked_up: usize,
    /// Keys found in the present gap.
    covered: usize,
}

impl Vacancy {
    /// For a batch whose last write is that of the last key; if it is not, less comes of it.
    pub fn new(requests: &[Request], patience: usize) -> Self {
        let last = requests.iter().rev().find_map(written_key).filter(|_| requests.len() > patience);
        Vacancy {
            from: Bytes::new(),
            to: Bytes::new(),
            last: last.cloned(),
            patience,
            doublings: 0,
            looked_up: 0,
            covered: 0,
        }
    }

    /// Whether it is known that nothing lies at a latched key.
    pub fn covers(&mut self, key: &[u8]) -> bool {
        let covers = self.from[..] <= *key && *key < self.to[..];
        self.covered += usize::from(covers);
        covers
    }

    /// Notes that a latched key was looked up, and whether nothing was found. Looks how far nothing lies once that
    /// promises to save look-ups: in the data space, and with `locks` in that of intents as well.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn note(
        &mut self,
        reader: &(impl Reader + ?Sized),
        key: &Bytes,
        is_vacant: bool,
        locks: bool,
    ) -> StorageResult<()> {
        self.looked_up = if is_vacant { self.looked_up + 1 } else { 0 };
        if self.looked_up < self.patience << self.doublings {
            return Ok(());
        }
        let Some(last) = self.last.as_ref().filter(|last| *last > key) else { return Ok(()) };
        if !self.to.is_empty() {
            let saved = self.covered > self.patience;
            self.doublings = if saved { 0 } else { (self.doublings + 1).min(MAX_DOUBLINGS) };
        }
        (self.looked_up, self.covered) = (0, 0);
        (self.from, self.to) = (key.clone(), last.clone());
        for space in [Space::Data, Space::Locks].into_iter().take(1 + usize::from(locks)) {
            match reader.first_key(space, Bounds::new(&self.from, &self.to))? {
                FirstKey::At(occupied) => self.to = occupied,
                FirstKey::Nothing => {}
                FirstKey::Unknown => self.to = self.from.clone(),
            }
        }
        Ok(())
    }
}

/// The key that a request of a flush or a commit writes.
fn written_key(request: &Request) -> Option<&Bytes> {
    match &request.kind {
        Some(RequestKind::Put(put)) => Some(&put.key),
        Some(RequestKind::ConditionalPut(put)) => Some(&put.key),
        Some(RequestKind::Delete(delete)) => Some(&delete.key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::batch::Put;
    use storage::{Engine, MemoryEngine, WriteBatch};

    fn key(number: u32) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    /// Asks for keys as an evaluation does; returns how many were looked up.
    fn ask(engine: &MemoryEngine, keys: &[u32], patience: usize, locks: bool) -> usize {
        let put = |number: &u32| RequestKind::Put(Put { key: key(*number), ..Put::default() }).into();
        let requests: Vec<Request> = keys.iter().map(put).collect();
        let mut vacancy = Vacancy::new(&requests, patience);
        let mut looked_up = 0;
        for number in keys {
            let key = key(*number);
            let lies = |space| engine.get(space, &key).expect("read").is_some();
            let occupied = lies(Space::Data) || (locks && lies(Space::Locks));
            if vacancy.covers(&key) {
                assert!(!occupied, "{number} is not vacant");
                continue;
            }
            looked_up += 1;
            vacancy.note(engine, &key, !occupied, locks).expect("read");
        }
        looked_up
    }

    #[test]
    fn what_is_said_to_be_vacant_is() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        (0..1000)
            .filter(|number| number % 40 < 5)
            .for_each(|number| batch.put(Space::Data, &key(number), b"v"));
        batch.put(Space::Locks, &key(777), b"l");
        batch.put(Space::Data, &key(5000), b"v");
        engine.write(&batch, false).expect("write");
        let ascending: Vec<u32> = (0..3000).collect();
        let descending: Vec<u32> = (0..3000).rev().collect();
        let mixed: Vec<u32> = (0..3000).map(|number| number * 7919 % 3000).collect();
        for keys in [&ascending, &descending, &mixed] {
            for patience in [0, 1, 8] {
                for locks in [false, true] {
                    assert!(ask(&engine, keys, patience, locks) <= keys.len());
                }
            }
        }
        assert!(ask(&engine, &ascending, 8, true) < 1000);
        let empty: Vec<u32> = (3000..4000).collect();
        assert_eq!(ask(&engine, &empty, 8, true), 9, "the last one is beyond what was asked about");
        let dense: Vec<u32> = (0..4).collect();
        assert_eq!(ask(&engine, &dense, 8, true), 4);
    }

    #[test]
    fn seeks_that_save_nothing_become_rare() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        (0..3000).step_by(3).for_each(|number| batch.put(Space::Data, &key(number), b"v"));
        engine.write(&batch, false).expect("write");
        let between: Vec<u32> = (0..3000).filter(|number| number % 3 == 1).collect();
        assert!(ask(&engine, &between, 1, false) > 980);
    }
}
