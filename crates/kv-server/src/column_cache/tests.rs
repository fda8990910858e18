use super::*;
use crate::column_page::column_page;
use crate::read::Budget;
use bytes::BytesMut;
use kv_api::TenantId;
use kv_api::batch::Scan;
use kv_api::columns::{ColumnBatch, Comparison, Condition, Constant, KeyKind, Kind, Program, Wanted};
use kv_api::encoding::encode_i64;
use kv_api::row::{self, tag};
use proptest::prelude::*;
use std::sync::Arc;
use storage::intent::{CommittedTxn, Intent, IntentView};
use storage::mvcc::{self, View};
use storage::{Engine, MemoryEngine, Reader, Space, WriteBatch};

const TENANT: TenantId = TenantId(7);

fn key(number: i64) -> Bytes {
    let mut key = BytesMut::from(&b"t"[..]);
    encode_i64(number, &mut key);
    TENANT.prefixed(&key)
}

/// A row of one integer.
fn value(integer: i8) -> Vec<u8> {
    vec![row::ROW_FORMAT, 1, 3, tag::INTEGER | 0x10, integer as u8]
}

fn program(columns: &[(bool, u32)], least: Option<i64>) -> Program {
    let wanted = |(from_key, number): &(bool, u32)| Wanted {
        from_key: *from_key,
        number: *number,
        kind: Kind::Int64 as i32,
        ..Wanted::default()
    };
    let condition = |integer| Condition {
        column: 0,
        comparison: Comparison::GreaterOrEqual as i32,
        constants: vec![Constant { integer, ..Constant::default() }],
        other: None,
    };
    Program {
        prefix_len: 1,
        key: vec![KeyKind::Integer as i32],
        columns: columns.iter().map(wanted).collect(),
        conditions: least.map(condition).into_iter().collect(),
        ..Program::default()
    }
}

fn at(time: u64) -> Timestamp {
    Timestamp::new(time, 0)
}

/// An engine, and what is kept of it.
struct Store {
    engine: Watched,
    /// The same without the cache's knowledge.
    unwatched: Arc<MemoryEngine>,
    cache: Arc<ColumnCache>,
}

impl Store {
    fn new(bytes: usize, chunk_rows: usize) -> Self {
        let config = ColumnCacheConfig { bytes, chunk_rows, least_rows: 1 };
        let cache = Arc::new(ColumnCache::new(config));
        let unwatched = Arc::new(MemoryEngine::new());
        let engine = Watched::new(Arc::<MemoryEngine>::clone(&unwatched), Arc::clone(&cache));
        Store { engine, unwatched, cache }
    }

    fn batch(&self, time: u64, writes: &[(i64, Option<i8>)]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (number, integer) in writes {
            let key = key(*number);
            let old = self.engine.get(Space::Data, &key).unwrap().map(|value| value.to_vec());
            let value = integer.map(value);
            mvcc::put_version(&mut batch, &key, at(time), value.as_deref(), old.as_deref()).unwrap();
        }
        batch
    }

    fn put(&self, time: u64, writes: &[(i64, Option<i8>)]) {
        // One at a time: those of one key build on each other.
        for write in writes {
            self.engine.write(&self.batch(time, &[*write]), false).unwrap();
        }
    }

    /// Everything that a scan finds, page by page; with the cache, or row by row.
    fn scan(
        &self,
        span: (i64, i64),
        time: u64,
        program: &Program,
        page: u64,
        cached: bool,
    ) -> Vec<ColumnBatch> {
        let intents = IntentView::default();
        let view = View { reader: &self.engine, timestamp: at(time), intents: &intents, overlay: None };
        let mut scan = Scan { start: key(span.0), end: key(span.1), ..Scan::default() };
        let mut pages = Vec::new();
        loop {
            let cache = cached.then_some(&*self.cache);
            let found = column_page(view, &scan, program, cache, &mut Budget::new(page, 1 << 20)).unwrap();
            pages.extend(found.response.columns.map(|columns| *columns));
            match found.response.resume {
                Some(rest) => scan.start = rest.start,
                None => return pages,
            }
        }
    }

    fn segments(&self) -> usize {
        let mut state = self.cache.state.lock();
        let mut count = 0;
        let mut at = Bytes::new();
        while let Some(next) = state.kept.next_start(&at) {
            assert!(state.kept.around(&next).is_some());
            (at, count) = (next, count + 1);
        }
        count
    }
}

/// All rows of pages.
fn rows(pages: &[ColumnBatch]) -> Vec<Vec<i64>> {
    let mut rows = Vec::new();
    for page in pages {
        for row in 0..page.rows as usize {
            let integer = |column: &kv_api::columns::ColumnData| {
                column.values.as_chunks::<8>().0.get(row).map_or(i64::MIN, |bytes| i64::from_le_bytes(*bytes))
            };
            rows.push(page.columns.iter().map(integer).collect());
        }
    }
    rows
}

#[test]
fn the_second_scan_reads_no_rows() {
    let store = Store::new(1 << 20, 4);
    let writes: Vec<_> = (0..10).map(|number| (number, Some(number as i8))).collect();
    store.put(5, &writes);
    let both = program(&[(false, 1), (true, 0)], Some(3));
    let expected: Vec<_> = (3..10).map(|number| vec![number, number]).collect();
    assert_eq!(rows(&store.scan((0, 100), 9, &both, 0, true)), expected);
    assert_eq!(store.segments(), 3);
    // Behind the cache's back: what is read now can only be what was kept.
    store.unwatched.write(&store.batch(6, &[(4, Some(100))]), false).unwrap();
    assert_eq!(rows(&store.scan((0, 100), 9, &both, 0, true)), expected);
    // A program with fewer columns finds them too; one with others gathers them, from where the rows are.
    assert_eq!(rows(&store.scan((0, 100), 9, &program(&[(true, 0)], None), 0, true)).len(), 10);
    // As of a time before the newest version, and within a chunk, rows are read.
    assert_eq!(rows(&store.scan((0, 100), 4, &both, 0, true)).len(), 0);
    assert_eq!(rows(&store.scan((4, 5), 9, &both, 0, true)), [[100, 4]]);
    // What is written through the engine is forgotten.
    store.put(7, &[(5, Some(50))]);
    assert_eq!(store.segments(), 2);
    let found = rows(&store.scan((0, 100), 9, &both, 0, true));
    assert!(found.contains(&vec![50, 5]) && found.contains(&vec![100, 4]), "{found:?}");
    assert_eq!(store.segments(), 3);
    let mut batch = WriteBatch::new();
    batch.delete_range(Space::Data, &key(3), &key(5));
    store.engine.write(&batch, false).unwrap();
    assert_eq!(store.segments(), 1);
}

#[test]
fn writes_that_come_between_keep_a_chunk_from_being_kept() {
    let store = Store::new(1 << 20, 4);
    store.put(5, &[(1, Some(1)), (2, Some(2))]);
    let program = program(&[(true, 0)], None);
    let (columns, intents) = (program.origins(), IntentView::default());
    let gather = |end: i64| match store.cache.step(&key(0), &key(end), &columns, at(9)) {
        Step::Gather(gathering) => Some(gathering),
        _ => None,
    };
    let view = View { reader: &store.engine, timestamp: at(9), intents: &intents, overlay: None };
    let scan = Scan { start: key(0), end: key(9), ..Scan::default() };
    let read = || column_page(view, &scan, &program, None, &mut Budget::new(0, 1 << 20)).unwrap();
    let chunk = || Chunk { rows: 2, columns: read().response.columns.unwrap().columns };
    // One that begins while it is gathered.
    let gathering = gather(9).unwrap();
    let stale = chunk();
    store.put(6, &[(3, Some(3))]);
    gathering.keep(key(9), at(5), columns.clone(), &stale);
    assert_eq!(store.segments(), 0);
    // One that is under way when it begins.
    let writing = store.cache.before_write(&store.batch(7, &[(4, Some(4))]));
    assert!(gather(9).is_none());
    assert!(gather(4).is_some(), "elsewhere nothing is written");
    drop(writing);
    // One to other keys, and to other spaces.
    let gathering = gather(9).unwrap();
    store.put(8, &[(9, Some(9))]);
    let mut locks = WriteBatch::new();
    locks.put(Space::Locks, &key(3), b"intent");
    store.engine.write(&locks, false).unwrap();
    gathering.keep(key(9), at(6), columns.clone(), &chunk());
    assert_eq!(store.segments(), 1);
    // Whoever comes too late with what overlaps.
    let late = gather(1).is_none();
    assert!(late, "rows are read that end within a chunk");
}

#[test]
fn locks_are_met() {
    let store = Store::new(1 << 20, 2);
    store.put(5, &(0..6).map(|number| (number, Some(1))).collect::<Vec<_>>());
    let program = program(&[(true, 0), (false, 1)], None);
    store.scan((0, 9), 9, &program, 0, true);
    assert_eq!(store.segments(), 3);
    // A transaction that has committed and not been resolved.
    let id = [3; 16];
    let mut batch = WriteBatch::new();
    let intent = Intent { txn: id, writes: vec![(1, Some(value(77).into()))] }.encode();
    batch.put(Space::Locks, &key(2), &intent);
    store.engine.write(&batch, false).unwrap();
    let committed = CommittedTxn { id, timestamp: at(7), ignored: Vec::new() };
    let intents = IntentView { committed: vec![committed], ..IntentView::default() };
    let view = |timestamp| View { reader: &store.engine, timestamp, intents: &intents, overlay: None };
    let scan = Scan { start: key(0), end: key(9), ..Scan::default() };
    for (time, expected) in [(9, 77), (6, 1)] {
        let mut budget = Budget::new(0, 1 << 20);
        let page = column_page(view(at(time)), &scan, &program, Some(&store.cache), &mut budget).unwrap();
        let found = rows(&[*page.response.columns.unwrap()]);
        assert_eq!((found.len(), found[2][1]), (6, expected));
    }
    assert_eq!(store.segments(), 3);
}

#[test]
fn memory_is_bounded() {
    let store = Store::new(600, 4);
    let writes: Vec<_> = (0..100).map(|number| (number, Some(1))).collect();
    store.put(5, &writes);
    let program = program(&[(true, 0), (false, 1)], None);
    for _ in 0..40 {
        assert_eq!(rows(&store.scan((0, 200), 9, &program, 0, true)).len(), 100);
        assert!(store.cache.state.lock().kept.bytes() <= 600);
    }
    assert!(store.segments() >= 7, "{}", store.segments());
    let nothing = Store::new(0, 4);
    nothing.put(5, &writes);
    assert_eq!(rows(&nothing.scan((0, 200), 9, &program, 0, true)).len(), 100);
    assert_eq!(nothing.segments(), 0);
}

#[derive(Clone, Debug)]
enum Action {
    Write(Vec<(i64, Option<i8>)>),
    Clear(i64, i64),
    /// From, to, how long ago, which columns, the least value, bytes of a page.
    Scan(i64, i64, u64, usize, Option<i64>, u64),
}

fn action() -> impl Strategy<Value = Action> {
    let number = || 0..40i64;
    let write = prop::collection::vec((number(), prop::option::weighted(0.8, any::<i8>())), 1..4);
    let page = prop_oneof![3 => Just(0u64), 1 => 1..200u64];
    let least = prop::option::of(-50..50i64);
    prop_oneof![
        3 => write.prop_map(Action::Write),
        1 => (number(), 0..5i64).prop_map(|(start, length)| Action::Clear(start, start + length)),
        6 => (number(), number(), 0..3u64, 0..4usize, least, page)
            .prop_map(|(start, length, ago, columns, least, page)| Action::Scan(start, start + length, ago, columns, least, page)),
        6 => (0..4usize, prop::option::of(-50..50i64))
            .prop_map(|(columns, least)| Action::Scan(0, 100, 0, columns, least, 0)),
    ]
}

proptest! {
    #[test]
    fn scans_find_what_is_there(
        actions in prop::collection::vec(action(), 1..60),
        chunk_rows in 1..9usize,
        bytes in prop_oneof![Just(1usize << 20), Just(300)],
    ) {
        let store = Store::new(bytes, chunk_rows);
        let mut time = 10;
        for action in actions {
            time += 1;
            match action {
                Action::Write(writes) => store.put(time, &writes),
                Action::Clear(start, end) => {
                    let mut batch = WriteBatch::new();
                    batch.delete_range(Space::Data, &key(start), &key(end));
                    store.engine.write(&batch, false).unwrap();
                }
                Action::Scan(start, end, ago, columns, least, page) => {
                    const WANTED: [&[(bool, u32)]; 4] =
                        [&[(true, 0)], &[(false, 1)], &[(true, 0), (false, 1)], &[(false, 1), (true, 0)]];
                    let program = program(WANTED[columns], least);
                    let cached = store.scan((start, end), time - ago, &program, page, true);
                    let plain = store.scan((start, end), time - ago, &program, page, false);
                    prop_assert_eq!(rows(&cached), rows(&plain));
                    let seen = |pages: &[ColumnBatch]| pages.iter().map(|page| page.seen).sum::<u64>();
                    prop_assert_eq!(seen(&cached), seen(&plain));
                }
            }
        }
    }
}
