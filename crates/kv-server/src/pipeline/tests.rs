//! Tests of the order of commits and of durability.

use super::*;
use crate::command::{Effects, NewVersion};
use bytes::Bytes;
use std::sync::mpsc;
use storage::{MemoryEngine, Reader, Space};

fn put(key: &str, sync: bool, done: mpsc::Sender<Result<Timestamp, StorageError>>) -> Command {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let versions = vec![NewVersion { key, value: Some(Bytes::from_static(b"v")), replaced: None }];
    Command {
        effects: Effects { versions, ..Effects::default() },
        ordered: true,
        sync,
        before_visible: None,
        done: Box::new(move |result| {
            let _ = done.send(result);
        }),
    }
}

#[test]
fn commits_are_durable_ordered_and_closed_when_done() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = Pipeline::start(engine.clone(), 1 << 20).expect("start");
    let (sender, receiver) = mpsc::channel();
    let mut last = pipeline.read_timestamp();
    for index in 0..200 {
        let timestamp = pipeline.submit(put(&format!("{index:03}"), true, sender.clone())).expect("submit");
        assert!(timestamp > last);
        last = timestamp;
    }
    for _ in 0..200 {
        let done = receiver.recv().expect("done").expect("applied");
        assert!(pipeline.closed() >= done, "acknowledged means closed");
    }
    assert!(pipeline.read_timestamp() > last);
    engine.crash();
    for index in 0..200 {
        assert!(engine.get(Space::Data, format!("{index:03}").as_bytes()).expect("read").is_some());
    }
    assert!(engine.syncs() <= 202, "at most one sync per commit");
}

#[test]
fn reads_stay_below_what_is_in_flight() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = Pipeline::start(engine, 1 << 20).expect("start");
    let (sender, receiver) = mpsc::channel();
    let (gate, wait) = mpsc::channel::<()>();
    let mut first = put("a", true, sender.clone());
    first.before_visible = Some(Box::new(move |_| {
        let _ = wait.recv();
    }));
    let timestamp = pipeline.submit(first).expect("submit");
    let second = pipeline.submit(put("b", true, sender)).expect("submit");
    assert!(second > timestamp);
    assert!(pipeline.read_timestamp() < timestamp);
    assert!(pipeline.closed() < timestamp);
    gate.send(()).expect("open the gate");
    receiver.recv().expect("done").expect("applied");
    receiver.recv().expect("done").expect("applied");
    assert!(pipeline.read_timestamp() > second);
}

#[test]
fn a_full_disk_fails_commands_but_not_reads_and_passes() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = Pipeline::start(engine.clone(), 1 << 20).expect("start");
    let (sender, receiver) = mpsc::channel();
    engine.fail_writes(Some(StorageError::DiskFull("test".into())));
    pipeline.submit(put("a", true, sender.clone())).expect("submit");
    assert_eq!(receiver.recv().expect("done"), Err(StorageError::DiskFull("test".into())));
    let before = pipeline.read_timestamp();
    engine.fail_writes(None);
    pipeline.submit(put("b", true, sender)).expect("submit");
    assert!(receiver.recv().expect("done").expect("applied") > before);
    assert!(engine.get(Space::Data, b"a").expect("read").is_none());
}

#[test]
fn time_goes_on_where_the_last_run_may_have_been() {
    let engine = Arc::new(MemoryEngine::new());
    let mut batch = WriteBatch::new();
    let far = Timestamp::new(physical_ns() + 3_600_000_000_000, 0);
    ident::put_clock_floor(&mut batch, far);
    engine.write(&batch, true).expect("write");
    let pipeline = Pipeline::start(engine.clone(), 1 << 20).expect("start");
    assert!(pipeline.read_timestamp() > far);
    engine.crash();
    assert!(ident::clock_floor(&*engine).expect("read") > pipeline.read_timestamp());
}

#[test]
fn closing_applies_what_is_queued_and_refuses_more() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = Pipeline::start(engine, 1 << 20).expect("start");
    let (sender, receiver) = mpsc::channel();
    for _ in 0..10 {
        pipeline.submit(put("a", true, sender.clone())).expect("submit");
    }
    pipeline.close();
    assert_eq!(receiver.try_iter().filter(Result::is_ok).count(), 10);
    assert_eq!(
        pipeline.submit(put("a", true, sender)).err().map(|error| error.kind()),
        Some(KvErrorKind::Unavailable)
    );
}
