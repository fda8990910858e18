//! The conformance suite every [`storage::Engine`] passes, and what is particular to each.

use storage::{
    Bounds, Cursor, Engine, FirstKey, Lending, MemoryEngine, Reader, RocksConfig, RocksEngine, Space,
    StorageError, WriteBatch,
};

/// A test and its name.
type Test = (&'static str, fn(&dyn Engine));

/// Runs every conformance test against one kind of engine.
fn conformance(open: impl Fn() -> (Box<dyn Engine>, Option<tempfile::TempDir>)) {
    let tests: [Test; 9] = [
        ("point reads", point_reads),
        ("many keys at once", many_keys_at_once),
        ("spaces are apart", spaces_are_apart),
        ("batches apply in order", batches_apply_in_order),
        ("cursors respect bounds", cursors_respect_bounds),
        ("cursors see the past", cursors_see_the_past),
        ("range deletion", range_deletion),
        ("first keys", first_keys),
        ("random operations", random_operations),
    ];
    for (name, test) in tests {
        println!("{name}");
        let (engine, _directory) = open();
        test(&*engine);
    }
}

#[test]
fn memory_engine_conforms() {
    conformance(|| (Box::new(MemoryEngine::new()), None));
}

#[test]
fn rocks_engine_conforms() {
    conformance(|| {
        let directory = tempfile::tempdir().expect("temporary directory");
        (Box::new(rocks(directory.path())), Some(directory))
    });
}

fn rocks(path: &std::path::Path) -> RocksEngine {
    RocksEngine::open(path, &RocksConfig { memtable_bytes: 1 << 20, ..RocksConfig::default() }).expect("open")
}

fn write(engine: &dyn Engine, fill: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    fill(&mut batch);
    engine.write(&batch, true).expect("write");
}

fn first_keys(engine: &dyn Engine) {
    write(engine, |batch| {
        ["b", "d", "e"].iter().for_each(|key| batch.put(Space::Data, key.as_bytes(), b"v"));
        batch.put(Space::Locks, b"c", b"v");
        batch.delete(Space::Data, b"d");
    });
    let first = |lower: &str, upper: &str| {
        engine.first_key(Space::Data, Bounds::new(lower.as_bytes(), upper.as_bytes())).expect("read")
    };
    let at = |key: &'static str| FirstKey::At(bytes::Bytes::from_static(key.as_bytes()));
    assert_eq!(
        [first("a", "z"), first("b", "z"), first("c", "z"), first("c", "e"), first("f", "z")],
        [at("b"), at("b"), at("e"), FirstKey::Nothing, FirstKey::Nothing]
    );
    // Where much was removed that need not be found out.
    write(engine, |batch| (0..5000_u32).for_each(|row| batch.put(Space::Locks, &row.to_be_bytes(), b"v")));
    write(engine, |batch| (0..5000_u32).for_each(|row| batch.delete(Space::Locks, &row.to_be_bytes())));
    let first = engine.first_key(Space::Locks, Bounds::new(&[0], &[1])).expect("read");
    assert!(matches!(first, FirstKey::Nothing | FirstKey::Unknown), "{first:?}");
}

fn keys(cursor: &mut dyn Cursor, reverse: bool) -> Vec<String> {
    let mut keys = Vec::new();
    if reverse {
        cursor.seek_to_last()
    } else {
        cursor.seek_to_first()
    }
    while let Some((key, _)) = cursor.item() {
        keys.push(String::from_utf8_lossy(key).into_owned());
        if reverse { cursor.prev() } else { cursor.next() }
    }
    cursor.status().expect("unbroken");
    keys
}

fn point_reads(engine: &dyn Engine) {
    assert!(engine.get(Space::Data, b"k").expect("read").is_none());
    write(engine, |batch| {
        batch.put(Space::Data, b"k", b"v");
        batch.put(Space::Data, b"", b"empty key");
        batch.put(Space::Data, b"nothing", b"");
    });
    assert_eq!(engine.get(Space::Data, b"k").expect("read").as_deref(), Some(&b"v"[..]));
    assert_eq!(engine.get(Space::Data, b"").expect("read").as_deref(), Some(&b"empty key"[..]));
    assert_eq!(engine.get(Space::Data, b"nothing").expect("read").as_deref(), Some(&b""[..]));
    write(engine, |batch| batch.delete(Space::Data, b"k"));
    assert!(engine.get(Space::Data, b"k").expect("read").is_none());
    engine.flush().expect("flush");
    assert_eq!(engine.get(Space::Data, b"").expect("read").as_deref(), Some(&b"empty key"[..]));
}

fn spaces_are_apart(engine: &dyn Engine) {
    for space in Space::ALL {
        write(engine, |batch| batch.put(space, b"k", space.name().as_bytes()));
    }
    for space in Space::ALL {
        let found = engine.get(space, b"k").expect("read");
        assert_eq!(found.as_deref(), Some(space.name().as_bytes()));
        assert_eq!(keys(&mut *engine.cursor(space, Bounds::all()), false), ["k"]);
    }
}

fn batches_apply_in_order(engine: &dyn Engine) {
    let mut appended = WriteBatch::new();
    appended.put(Space::Data, b"b", b"2");
    appended.delete(Space::Data, b"a");
    write(engine, |batch| {
        batch.put(Space::Data, b"a", b"1");
        batch.put_parts(Space::Data, &[b"x", b"y"], &[b"1", b"", b"2"]);
        batch.extend(&appended);
        batch.put(Space::Data, b"b", b"3");
        assert_eq!((batch.len(), batch.is_empty()), (5, false));
    });
    assert!(engine.get(Space::Data, b"a").expect("read").is_none());
    assert_eq!(engine.get(Space::Data, b"b").expect("read").as_deref(), Some(&b"3"[..]));
    assert_eq!(engine.get(Space::Data, b"xy").expect("read").as_deref(), Some(&b"12"[..]));
}

fn many_keys_at_once(engine: &dyn Engine) {
    write(engine, |batch| {
        for number in 0..300 {
            batch.put(Space::Data, format!("{number:03}").as_bytes(), format!("value {number}").as_bytes());
        }
    });
    engine.flush().expect("flush");
    write(engine, |batch| {
        batch.put(Space::Data, b"007", b"newer");
        batch.delete(Space::Data, b"008");
    });
    let found = |keys: &[&str]| -> Vec<Option<String>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let values = engine.get_many(Space::Data, &keys).expect("read");
        values
            .iter()
            .map(|value| value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned()))
            .collect()
    };
    let some = |value: &str| Some(value.to_string());
    assert_eq!(found(&[]), [None; 0]);
    assert_eq!(found(&["250"]), [some("value 250")]);
    // In any order, more than once, and not there.
    let keys = ["299", "007", "x", "000", "008", "007", ""];
    let values = [some("value 299"), some("newer"), None, some("value 0"), None, some("newer"), None];
    assert_eq!(found(&keys), values);
    let all: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(found(&all).iter().flatten().count(), 299);
}

fn cursors_respect_bounds(engine: &dyn Engine) {
    write(engine, |batch| {
        for key in ["a", "b", "ba", "c", "d"] {
            batch.put(Space::Data, key.as_bytes(), key.as_bytes());
        }
    });
    check_bounds(engine);
    // Lent cursors respect their own, one after the other and two at once.
    let lending = Lending::new(engine, Bounds::new(b"a", b"d"));
    check_bounds(&lending);
    check_bounds(&lending);
    let mut early = lending.cursor(Space::Data, Bounds::new(b"a", b"c"));
    early.seek_to_first();
    check_bounds(&lending);
    assert_eq!(keys(&mut *early, true), ["ba", "b", "a"]);
    assert_eq!(keys(&mut *lending.cursor(Space::Data, Bounds::all()), false), ["a", "b", "ba", "c", "d"]);
}

fn check_bounds(engine: &dyn Reader) {
    let mut cursor = engine.cursor(Space::Data, Bounds::new(b"b", b"d"));
    assert!(cursor.item().is_none());
    assert_eq!(keys(&mut *cursor, false), ["b", "ba", "c"]);
    assert_eq!(keys(&mut *cursor, true), ["c", "ba", "b"]);
    let at = |cursor: &dyn Cursor| cursor.item().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
    for (target, forward, backward) in [
        ("", Some("b"), None),
        ("b", Some("b"), Some("b")),
        ("bb", Some("c"), Some("ba")),
        ("c", Some("c"), Some("c")),
        ("cz", None, Some("c")),
        ("z", None, Some("c")),
    ] {
        cursor.seek(target.as_bytes());
        assert_eq!(at(&*cursor).as_deref(), forward, "seek {target}");
        cursor.seek_for_prev(target.as_bytes());
        assert_eq!(at(&*cursor).as_deref(), backward, "seek_for_prev {target}");
    }
    cursor.seek(b"ba");
    cursor.prev();
    assert_eq!(at(&*cursor).as_deref(), Some("b"));
    cursor.prev();
    assert_eq!(at(&*cursor), None);
    cursor.prev();
    cursor.next();
    assert_eq!(at(&*cursor), None);
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::new(b"x", b"y")), false), [""; 0]);
}

fn cursors_see_the_past(engine: &dyn Engine) {
    write(engine, |batch| batch.put(Space::Data, b"a", b"1"));
    let snapshot = engine.snapshot();
    let mut cursor = engine.cursor(Space::Data, Bounds::all());
    cursor.seek_to_first();
    write(engine, |batch| {
        batch.put(Space::Data, b"a", b"2");
        batch.put(Space::Data, b"b", b"2");
    });
    assert_eq!(cursor.item(), Some((&b"a"[..], &b"1"[..])));
    cursor.next();
    assert!(cursor.item().is_none());
    assert_eq!(snapshot.get(Space::Data, b"a").expect("read").as_deref(), Some(&b"1"[..]));
    assert!(snapshot.get(Space::Data, b"b").expect("read").is_none());
    assert_eq!(keys(&mut *snapshot.cursor(Space::Data, Bounds::all()), false), ["a"]);
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::all()), false), ["a", "b"]);
}

fn range_deletion(engine: &dyn Engine) {
    write(engine, |batch| {
        for key in ["a", "b", "c", "d", "e"] {
            batch.put(Space::Data, key.as_bytes(), b"");
            batch.put(Space::Locks, key.as_bytes(), b"");
        }
    });
    write(engine, |batch| {
        batch.delete_range(Space::Data, b"b", b"d");
        batch.delete_range(Space::Data, b"e", b"e");
        batch.delete_range(Space::Data, b"z", b"a");
        batch.put(Space::Data, b"c", b"again");
    });
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::all()), false), ["a", "c", "d", "e"]);
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::all()), true), ["e", "d", "c", "a"]);
    assert_eq!(keys(&mut *engine.cursor(Space::Locks, Bounds::all()), false).len(), 5);
}

fn random_operations(engine: &dyn Engine) {
    use std::collections::BTreeMap;
    let mut seed = 88172645463325252_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut model = BTreeMap::new();
    for round in 0..300 {
        let mut batch = WriteBatch::new();
        for _ in 0..random(20) {
            let (key, other) = (format!("{:03}", random(200)), format!("{:03}", random(200)));
            match random(10) {
                0 if key < other => {
                    batch.delete_range(Space::Data, key.as_bytes(), other.as_bytes());
                    model.retain(|k: &String, _| *k < key || *k >= other);
                }
                1..=3 => {
                    batch.delete(Space::Data, key.as_bytes());
                    model.remove(&key);
                }
                _ => {
                    batch.put(Space::Data, key.as_bytes(), round.to_string().as_bytes());
                    model.insert(key, round.to_string());
                }
            }
        }
        engine.write(&batch, random(4) == 0).expect("write");
        if round % 100 == 50 {
            engine.flush().expect("flush");
        }
        let from = format!("{:03}", random(200));
        let mut cursor = engine.cursor(Space::Data, Bounds { lower: from.as_bytes(), upper: None });
        assert_eq!(
            keys(&mut *cursor, false),
            model.range(from.clone()..).map(|(k, _)| k.clone()).collect::<Vec<_>>()
        );
        let found = engine.get(Space::Data, from.as_bytes()).expect("read");
        assert_eq!(found.as_deref(), model.get(&from).map(|value| value.as_bytes()));
    }
}

#[test]
fn memory_engine_loses_unsynced_writes_only() {
    let engine = MemoryEngine::new();
    let put = |key: &[u8], sync| {
        let mut batch = WriteBatch::new();
        batch.put(Space::Data, key, b"");
        engine.write(&batch, sync).expect("write");
    };
    put(b"a", false);
    put(b"b", true);
    put(b"c", false);
    engine.crash();
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::all()), false), ["a", "b"]);
    engine.fail_writes(Some(StorageError::DiskFull("test".into())));
    let failed = engine.write(&WriteBatch::new(), true);
    assert_eq!(failed, Err(StorageError::DiskFull("test".into())));
    engine.fail_writes(None);
    put(b"d", true);
    engine.crash();
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::all()), false), ["a", "b", "d"]);
}

#[test]
fn rocks_engine_keeps_synced_writes_across_a_reopen() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for round in 0..3_u8 {
        let engine = rocks(directory.path());
        for earlier in 0..round {
            assert!(engine.get(Space::Data, &[earlier]).expect("read").is_some());
        }
        write(&engine, |batch| batch.put(Space::Data, &[round], b"v"));
        let stats = engine.stats();
        assert!(stats.memtable_bytes > 0 && stats.background_errors == 0, "{stats:?}");
    }
}

#[test]
fn compaction_drops_garbage_and_nothing_else() {
    use kv_api::Timestamp;
    let directory = tempfile::tempdir().expect("temporary directory");
    let engine = rocks(directory.path());
    let put = |key: &[u8], wall: u64, value: Option<&[u8]>| {
        let replaced = engine.get(Space::Data, key).expect("read").map(|bytes| bytes.to_vec());
        write(&engine, |batch| {
            let timestamp = Timestamp::new(wall, 0);
            storage::mvcc::put_version(batch, key, timestamp, value, replaced.as_deref())
                .expect("well-formed");
        });
    };
    for wall in 1..=10 {
        put(b"kept", wall, Some(b"v"));
    }
    put(b"deleted", 1, Some(b"v"));
    put(b"deleted", 2, None);
    put(b"deleted late", 1, Some(b"v"));
    put(b"deleted late", 8, None);
    let count = |space| keys(&mut *engine.cursor(space, Bounds::all()), false).len();
    engine.compact().expect("compact");
    assert_eq!((count(Space::Data), count(Space::History)), (3, 11), "without a floor there is no garbage");
    engine.set_garbage_floors(storage::GarbageFloors::everywhere(Timestamp::new(7, 0)));
    engine.set_garbage_floors(storage::GarbageFloors::everywhere(Timestamp::new(3, 0)));
    engine.compact().expect("compact");
    assert_eq!(keys(&mut *engine.cursor(Space::Data, Bounds::all()), false), ["deleted late", "kept"]);
    assert_eq!(count(Space::History), 4, "replaced at 8, 9 and 10, and at 8");
}

#[test]
fn a_store_that_is_open_is_refused() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let _engine = rocks(directory.path());
    let second = RocksEngine::open(directory.path(), &RocksConfig::default());
    assert!(matches!(second, Err(StorageError::InUse(_))));
}

#[test]
fn damaged_files_are_reported_and_do_not_panic() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let engine = rocks(directory.path());
    for start in 0..20_u8 {
        write(&engine, |batch| {
            for key in 0..200_u8 {
                batch.put(Space::Data, &[start, key], &[key; 100]);
            }
        });
    }
    engine.flush().expect("flush");
    drop(engine);
    let mut damaged = 0;
    for file in std::fs::read_dir(directory.path()).expect("list") {
        let path = file.expect("entry").path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let mut bytes = std::fs::read(&path).expect("read file");
            let (start, end) = (bytes.len() / 8, bytes.len() / 2);
            bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
            std::fs::write(&path, bytes).expect("write file");
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let errors = match RocksEngine::open(directory.path(), &RocksConfig::default()) {
        Err(error) => vec![error],
        Ok(engine) => {
            let mut cursor = engine.cursor(Space::Data, Bounds::all());
            cursor.seek_to_first();
            while cursor.item().is_some() {
                cursor.next();
            }
            cursor.status().err().into_iter().collect()
        }
    };
    assert!(matches!(&errors[..], [StorageError::Corruption(_)]), "{errors:?}");
}
