//! A [`Reader`] that refuses to read on after so much.
//!
//! How long an evaluation takes is not known before it has been done: a scan of six rows and one of millions are asked for alike.
//! Evaluating where it stands what then takes long would keep everybody else of this thread waiting; handing the
//! thread's work over first ([`crate::environment::Environment::in_place`]) costs more than most evaluations. So
//! evaluations begin with some patience, and those that run out of it are begun anew elsewhere: at most
//! [`INLINE_READS`] reads are wasted, and only by those that go on to do more ([`Manner`], [`briefly_or_elsewhere`]).
//!
//! Whoever reads beyond it gets [`StorageError::OutOfPatience`], as an error of the disk would be told: evaluations stop at it,
//! as they may stop at any read, and can be repeated.

use crate::elsewhere::Elsewhere;
use crate::metrics::metrics;
use crate::node::BatchResult;
use futures::TryFutureExt;
use kv_api::{BatchResponse, KvError, KvErrorKind};
use std::cell::Cell;
use std::future::Future;
use storage::{Bounds, Cursor, FirstKey, Pinned, Reader, Space, StorageError, StorageResult};

/// Keys that are looked up or passed by cursors before an evaluation has taken long: a tenth of a millisecond or two.
pub(crate) const INLINE_READS: u32 = 128;

/// How a batch is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// With some patience, where others wait for it.
    Brief,
    /// However long it takes, on a task of its own.
    Whole,
}

/// Why a batch was not answered.
#[derive(Debug)]
pub(crate) enum Unevaluated {
    /// It fails.
    Failed(KvError),
    /// It takes longer than there was patience for.
    TakesLong,
}

impl From<KvError> for Unevaluated {
    fn from(error: KvError) -> Self {
        Unevaluated::Failed(error)
    }
}

impl From<Unevaluated> for KvError {
    fn from(unevaluated: Unevaluated) -> Self {
        match unevaluated {
            Unevaluated::Failed(error) => error,
            Unevaluated::TakesLong => KvError::new(KvErrorKind::Internal, "the evaluation was given no time"),
        }
    }
}

/// Answers a batch where it stands, or if that would take long on a task of its own.
///
/// # Errors
/// Those of the batch.
pub(crate) async fn briefly_or_elsewhere<F>(answer: impl Fn(Manner) -> F) -> BatchResult
where
    F: Future<Output = Result<BatchResponse, Unevaluated>> + Send + 'static,
{
    match answer(Manner::Brief).await {
        Err(Unevaluated::TakesLong) => {
            metrics().long_evaluations.inc();
            Elsewhere::spawn(answer(Manner::Whole).map_err(KvError::from)).await
        }
        result => result.map_err(KvError::from),
    }
}

/// Reads of another reader, counted.
pub(crate) struct Patience<'a> {
    reader: &'a dyn Reader,
    left: Cell<u32>,
    ran_out: Cell<bool>,
}

impl<'a> Patience<'a> {
    /// Reads so much of `reader` at most.
    pub fn new(reader: &'a dyn Reader, reads: u32) -> Self {
        Patience { reader, left: Cell::new(reads), ran_out: Cell::new(false) }
    }

    /// Whether a read was refused.
    pub fn ran_out(&self) -> bool {
        self.ran_out.get()
    }

    /// Counts a read; false if it must not be made.
    fn spend(&self) -> bool {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.ran_out.set(true),
        }
        !self.ran_out.get()
    }
}

impl Reader for Patience<'_> {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        if self.spend() { self.reader.get(space, key) } else { Err(StorageError::OutOfPatience) }
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> StorageResult<Vec<Option<Pinned<'_>>>> {
        for _ in keys {
            if !self.spend() {
                return Err(StorageError::OutOfPatience);
            }
        }
        self.reader.get_many(space, keys)
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        Box::new(Counted { cursor: self.reader.cursor(space, bounds), patience: self, refused: false })
    }

    fn first_key(&self, space: Space, bounds: Bounds<'_>) -> StorageResult<FirstKey> {
        if self.spend() { self.reader.first_key(space, bounds) } else { Err(StorageError::OutOfPatience) }
    }
}

/// A cursor whose moves are counted. One that was refused a move is broken.
struct Counted<'a> {
    cursor: Box<dyn Cursor + 'a>,
    patience: &'a Patience<'a>,
    refused: bool,
}

impl Counted<'_> {
    fn go(&mut self, go: impl FnOnce(&mut dyn Cursor)) {
        self.refused = self.refused || !self.patience.spend();
        if !self.refused {
            go(&mut *self.cursor);
        }
    }
}

impl Cursor for Counted<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.go(|cursor| cursor.seek(key));
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        self.go(|cursor| cursor.seek_for_prev(key));
    }

    fn seek_to_first(&mut self) {
        self.go(|cursor| cursor.seek_to_first());
    }

    fn seek_to_last(&mut self) {
        self.go(|cursor| cursor.seek_to_last());
    }

    fn next(&mut self) {
        self.go(|cursor| cursor.next());
    }

    fn prev(&mut self) {
        self.go(|cursor| cursor.prev());
    }

    fn item(&self) -> Option<(&[u8], &[u8])> {
        if self.refused { None } else { self.cursor.item() }
    }

    fn status(&self) -> StorageResult<()> {
        if self.refused { Err(StorageError::OutOfPatience) } else { self.cursor.status() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use kv_api::Timestamp;
    use storage::intent::IntentView;
    use storage::mvcc::{View, put_version};
    use storage::{Engine, MemoryEngine, WriteBatch};

    /// An engine with a row at each of `a`, `b`, `c`, `d`.
    fn engine() -> MemoryEngine {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        for key in [b"a", b"b", b"c", b"d"] {
            put_version(&mut batch, key, Timestamp::new(1, 0), Some(b"value"), None).expect("put");
        }
        engine.write(&batch, true).expect("write");
        engine
    }

    /// The rows that a scan finds with so much patience, up to a limit, and whether there are more.
    fn scan(reads: u32, limit: usize) -> (StorageResult<(usize, bool)>, bool) {
        let engine = engine();
        let patience = Patience::new(&engine, reads);
        let intents = IntentView::default();
        let view =
            View { reader: &patience, timestamp: Timestamp::new(2, 0), intents: &intents, overlay: None };
        let found = {
            let mut scanner = view.scan(b"a", b"z", false);
            let mut rows = 0;
            loop {
                match scanner.next(&mut BytesMut::new()) {
                    Ok(Some(_)) => rows += 1,
                    Ok(None) => break Ok((rows, false)),
                    Err(error) => break Err(error),
                }
                if rows == limit {
                    break scanner.is_exhausted().map(|exhausted| (rows, !exhausted));
                }
            }
        };
        (found, patience.ran_out())
    }

    #[test]
    fn a_scan_that_was_cut_off_never_looks_like_one_that_ended() {
        // One move to the first key, and one behind each.
        assert_eq!(scan(5, 9), (Ok((4, false)), false));
        assert_eq!(scan(3, 2), (Ok((2, true)), false));
        for (reads, limit) in [(0, 9), (1, 9), (4, 9), (2, 2), (4, 4)] {
            assert_eq!(scan(reads, limit), (Err(StorageError::OutOfPatience), true), "{reads} {limit}");
        }
    }

    #[test]
    fn whatever_is_read_counts() {
        let engine = engine();
        let patience = Patience::new(&engine, 2);
        assert!(patience.get(Space::Data, b"a").expect("read").is_some());
        assert!(matches!(patience.first_key(Space::Data, Bounds::all()), Ok(FirstKey::At(_))));
        assert!(!patience.ran_out());
        assert!(patience.get(Space::Data, b"a").is_err());
        assert!(patience.ran_out());
        assert_eq!(patience.first_key(Space::Data, Bounds::all()), Err(StorageError::OutOfPatience));
        let mut cursor = patience.cursor(Space::Data, Bounds::all());
        cursor.seek(b"a");
        assert_eq!((cursor.item(), cursor.status()), (None, Err(StorageError::OutOfPatience)));
    }
}
