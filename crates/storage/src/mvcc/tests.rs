//! Tests of versions, against a model that keeps every version in a list.

use super::*;
use crate::intent::{CommittedTxn, Intent};
use crate::{Engine, MemoryEngine};

fn at(wall: u64) -> Timestamp {
    Timestamp::new(wall, 0)
}

fn write(engine: &MemoryEngine, key: &[u8], wall: u64, value: Option<&[u8]>) {
    let mut batch = WriteBatch::new();
    let replaced = engine.get(Space::Data, key).expect("read");
    put_version(&mut batch, key, at(wall), value, replaced.as_deref()).expect("well-formed");
    engine.write(&batch, false).expect("write");
}

fn put_intent(engine: &MemoryEngine, key: &[u8], txn: u8, writes: &[(u32, Option<&[u8]>)]) {
    let writes =
        writes.iter().map(|(sequence, value)| (*sequence, value.map(Bytes::copy_from_slice))).collect();
    let mut batch = WriteBatch::new();
    batch.put(Space::Locks, key, &Intent { txn: [txn; 16], writes }.encode());
    engine.write(&batch, false).expect("write");
}

fn view<'a>(engine: &'a MemoryEngine, wall: u64, intents: &'a IntentView) -> View<'a> {
    View { reader: engine, timestamp: at(wall), intents, overlay: None }
}

fn rows(view: View<'_>, start: &[u8], end: &[u8], reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scanner = view.scan(start, end, reverse);
    let mut out = BytesMut::new();
    let mut rows = Vec::new();
    while let Some(mark) = scanner.next(&mut out).expect("scan") {
        rows.push((out[mark.start..mark.middle].to_vec(), out[mark.middle..mark.end].to_vec()));
    }
    assert_eq!(scanner.is_exhausted(), Ok(true));
    rows
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    expected.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

#[test]
fn reads_find_the_version_at_their_timestamp() {
    let engine = MemoryEngine::new();
    write(&engine, b"k", 10, Some(b"a"));
    write(&engine, b"k", 20, None);
    write(&engine, b"k", 30, Some(b"c"));
    let none = IntentView::default();
    let get = |wall| view(&engine, wall, &none).get(b"k").expect("read").map(|v| (v.timestamp, v.value));
    assert_eq!(get(9), None);
    assert_eq!(get(10), Some((at(10), Some(Bytes::from_static(b"a")))));
    assert_eq!(get(19), Some((at(10), Some(Bytes::from_static(b"a")))));
    assert_eq!(get(25), Some((at(20), None)));
    assert_eq!(get(99), Some((at(30), Some(Bytes::from_static(b"c")))));
    assert_eq!(view(&engine, 99, &none).get(b"other"), Ok(None));
}

#[test]
fn random_versions_read_as_the_model_says() {
    // A small generator of our own keeps the run the same everywhere.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let engine = MemoryEngine::new();
    let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\x01", b"ab", b"\xff"];
    let mut model: Vec<(Vec<u8>, u64, Option<Vec<u8>>)> = Vec::new();
    for wall in 1..400 {
        let key = keys[random(8) as usize];
        let value = (random(4) > 0).then(|| wall.to_string().into_bytes());
        write(&engine, key, wall, value.as_deref());
        model.push((key.to_vec(), wall, value));
    }
    let none = IntentView::default();
    for wall in (0..=400).step_by(7) {
        let visible = |key: &[u8]| model.iter().rev().find(|(k, w, _)| k == key && *w <= wall)?.2.clone();
        let mut expected: Vec<_> =
            keys.iter().filter_map(|key| Some((key.to_vec(), visible(key)?))).collect();
        expected.sort();
        let (start, end): (&[u8], &[u8]) = (b"", b"\xff\xff");
        assert_eq!(rows(view(&engine, wall, &none), start, end, false), expected);
        let inner: Vec<_> = expected
            .iter()
            .filter(|(key, _)| key[..] >= b"\0\0"[..] && key[..] < b"ab"[..])
            .cloned()
            .collect();
        assert_eq!(rows(view(&engine, wall, &none), b"\0\0", b"ab", false), inner);
        expected.reverse();
        assert_eq!(rows(view(&engine, wall, &none), start, end, true), expected);
        for upto in [wall + 1, wall + 20, 500] {
            for key in keys {
                let span = Span::point(Bytes::from_static(key));
                let changes = model.iter().any(|(k, w, _)| k == key && *w > wall && *w <= upto);
                let found = changed(&engine, &span, at(wall), at(upto), &none).expect("read");
                assert_eq!(found.is_some(), changes, "{key:?} in ({wall}, {upto}]");
            }
            let span = Span::new(Bytes::from_static(b"a"), Bytes::from_static(b"ab"));
            let changes = model.iter().any(|(k, w, _)| span.contains(k) && *w > wall && *w <= upto);
            assert_eq!(changed(&engine, &span, at(wall), at(upto), &none).expect("read").is_some(), changes);
        }
    }
}

#[test]
fn intents_and_own_writes_are_merged_in_both_directions() {
    let engine = MemoryEngine::new();
    for key in [b"a", b"c", b"e", b"g"] {
        write(&engine, key, 10, Some(b"old"));
    }
    put_intent(&engine, b"b", 1, &[(1, Some(b"own"))]);
    put_intent(&engine, b"c", 1, &[(1, Some(b"undone")), (2, None), (3, Some(b"undone"))]);
    put_intent(&engine, b"d", 2, &[(1, Some(b"committed"))]);
    put_intent(&engine, b"e", 2, &[(1, None)]);
    put_intent(&engine, b"f", 3, &[(1, Some(b"pending"))]);
    let ignored = vec![kv_api::batch::IgnoredSequences { from: 3, to: 4 }];
    let intents = IntentView {
        own: Some(([1; 16], ignored)),
        committed: vec![CommittedTxn { id: [2; 16], timestamp: at(20), ignored: vec![] }],
        ..IntentView::default()
    };
    let expected = [("a", "old"), ("b", "own"), ("d", "committed"), ("g", "old")];
    assert_eq!(rows(view(&engine, 20, &intents), b"a", b"z", false), pairs(&expected));
    let mut reversed = expected;
    reversed.reverse();
    assert_eq!(rows(view(&engine, 20, &intents), b"a", b"z", true), pairs(&reversed));
    let before = [("a", "old"), ("b", "own"), ("e", "old"), ("g", "old")];
    assert_eq!(rows(view(&engine, 19, &intents), b"a", b"z", false), pairs(&before));

    let mut overlay = Overlay::new();
    overlay.insert(Bytes::from_static(b"a"), None);
    overlay.insert(Bytes::from_static(b"b"), Some(Bytes::from_static(b"batch")));
    overlay.insert(Bytes::from_static(b"h"), Some(Bytes::from_static(b"batch")));
    let with_overlay = View { overlay: Some(&overlay), ..view(&engine, 20, &intents) };
    let expected = [("b", "batch"), ("d", "committed"), ("g", "old"), ("h", "batch")];
    assert_eq!(rows(with_overlay, b"a", b"z", false), pairs(&expected));
    assert_eq!(with_overlay.get(b"a"), Ok(Some(Version { timestamp: Timestamp::MAX, value: None })));

    let span = Span::new(Bytes::from_static(b"a"), Bytes::from_static(b"z"));
    assert_eq!(changed(&engine, &span, at(19), at(20), &intents), Ok(Some(Bytes::from_static(b"d"))));
    assert_eq!(changed(&engine, &span, at(10), at(19), &intents), Ok(None));
    assert_eq!(changed(&engine, &span, at(20), at(99), &intents), Ok(None));
}

#[test]
fn clearing_a_range_removes_all_versions_and_intents_in_it_and_nothing_else() {
    let engine = MemoryEngine::new();
    for (wall, key) in [(1, b"a"), (2, b"b"), (3, b"b"), (4, b"c")] {
        write(&engine, key, wall, Some(b"v"));
    }
    put_intent(&engine, b"b", 1, &[(1, None)]);
    let mut batch = WriteBatch::new();
    clear_range(&mut batch, b"b", b"c");
    engine.write(&batch, false).expect("write");
    let none = IntentView::default();
    assert_eq!(rows(view(&engine, 99, &none), b"", b"z", false), pairs(&[("a", "v"), ("c", "v")]));
    assert_eq!(view(&engine, 2, &none).get(b"b"), Ok(None));
    assert!(engine.get(Space::Locks, b"b").expect("read").is_none());
    let mut history = engine.cursor(Space::History, Bounds::all());
    history.seek_to_first();
    assert!(history.item().is_none());
}

#[test]
fn damaged_versions_are_reported() {
    let engine = MemoryEngine::new();
    let mut batch = WriteBatch::new();
    batch.put(Space::Data, b"k", b"\x77garbage");
    engine.write(&batch, false).expect("write");
    let none = IntentView::default();
    assert!(view(&engine, 9, &none).get(b"k").is_err());
    let view = view(&engine, 9, &none);
    assert!(view.scan(b"a", b"z", false).next(&mut BytesMut::new()).is_err());
    let span = Span::point(Bytes::from_static(b"k"));
    assert!(changed(&engine, &span, at(1), at(2), &none).is_err());
}

#[test]
fn garbage_goes_and_readers_above_the_floor_do_not_notice() {
    let engine = MemoryEngine::new();
    for wall in [10, 20, 30] {
        write(&engine, b"kept", wall, Some(wall.to_string().as_bytes()));
    }
    write(&engine, b"deleted", 10, Some(b"v"));
    write(&engine, b"deleted", 20, None);
    write(&engine, b"again", 10, Some(b"v"));
    write(&engine, b"again", 20, None);
    // The tombstone of "again" goes while the version it hides is still there.
    let mut batch = WriteBatch::new();
    batch.delete(Space::Data, b"again");
    engine.write(&batch, true).expect("write");
    write(&engine, b"again", 40, Some(b"new"));
    let none = IntentView::default();
    let see = |wall| rows(view(&engine, wall, &none), b"a", b"z", false);
    let expected: Vec<_> = [25, 30, 40].map(see).to_vec();
    assert_eq!(expected[0], pairs(&[("kept", "20")]));
    assert_eq!(expected[2], pairs(&[("again", "new"), ("kept", "30")]));
    engine.set_garbage_floors(crate::GarbageFloors::everywhere(at(25)));
    assert_eq!([25, 30, 40].map(see).to_vec(), expected);
    assert!(engine.get(Space::Data, b"deleted").expect("read").is_none());
    let mut history = engine.cursor(Space::History, Bounds::all());
    history.seek_to_first();
    let mut left = 0;
    while history.item().is_some() {
        left += 1;
        history.next();
    }
    assert_eq!(left, 1, "the version of \"kept\" that 25 sees");
}
