//! Tests of the order of commits and of durability.

use super::*;
use crate::command::{Effects, NewVersion};
use crate::found::open_or_found;
use bytes::Bytes;
use kv_api::timestamp::MAX_CLOCK_OFFSET_NS;
use replication::StoreConfig;
use std::sync::mpsc;
use storage::{MemoryEngine, Reader, Space};

struct Nobody;

impl Transport for Nobody {
    fn send(&self, _: Envelope) {}
}

/// The pipeline of a node that is alone.
fn start(engine: &Arc<MemoryEngine>) -> Pipeline {
    let shared: Arc<dyn Engine> = engine.clone();
    let identity = open_or_found(&shared).expect("found");
    let bounds = Bounds { max_queued_bytes: 1 << 20, max_clock_offset: Duration::from_millis(500) };
    Pipeline::start(engine.clone(), bounds, Arc::new(Nobody), move |now| {
        Ok(Store::open(shared, StoreConfig::new(identity.node_id, 1, 1), Sound, now).expect("open"))
    })
    .expect("start")
}

type Outcome = Result<Timestamp, CommandError>;

fn put(pipeline: &Pipeline, key: &str, done: mpsc::Sender<Outcome>) -> Command {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let versions = vec![NewVersion { key, value: Some(Bytes::from_static(b"v")), replaced: None }];
    Command {
        range: ROOT,
        change: None,
        effects: Effects { versions, ..Effects::default() },
        lease: pipeline.lease(ROOT).expect("held"),
        order: Order::Present,
        before_visible: None,
        late: None,
        done: Box::new(move |result| {
            let _ = done.send(result);
        }),
    }
}

#[test]
fn commits_are_durable_ordered_and_closed_when_done() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = start(&engine);
    let (sender, receiver) = mpsc::channel();
    let mut last = pipeline.read_timestamp(ROOT).expect("held");
    for index in 0..200 {
        let command = put(&pipeline, &format!("{index:03}"), sender.clone());
        let timestamp = pipeline.submit(command).expect("submit");
        assert!(timestamp > last);
        last = timestamp;
    }
    for _ in 0..200 {
        let done = receiver.recv().expect("done").expect("applied");
        assert!(pipeline.closed(ROOT).expect("held") >= done, "acknowledged means closed");
    }
    assert!(pipeline.read_timestamp(ROOT).expect("held") > last);
    drop(pipeline);
    // What was applied need not be synced: the log is.
    engine.crash();
    let _again = start(&engine);
    for index in 0..200 {
        assert!(engine.get(Space::Data, format!("{index:03}").as_bytes()).expect("read").is_some());
    }
    assert!(engine.syncs() <= 230, "at most one sync per commit, and a few to begin with");
}

#[test]
fn reads_stay_below_what_is_in_flight() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = start(&engine);
    let (sender, receiver) = mpsc::channel();
    let (gate, wait) = mpsc::channel::<()>();
    let mut first = put(&pipeline, "a", sender.clone());
    first.before_visible = Some(Box::new(move |_| {
        let _ = wait.recv();
    }));
    let timestamp = pipeline.submit(first).expect("submit");
    let second = pipeline.submit(put(&pipeline, "b", sender)).expect("submit");
    assert!(second > timestamp);
    assert!(pipeline.read_timestamp(ROOT).expect("held") < timestamp);
    assert!(pipeline.closed(ROOT).expect("held") < timestamp);
    gate.send(()).expect("open the gate");
    receiver.recv().expect("done").expect("applied");
    receiver.recv().expect("done").expect("applied");
    assert!(pipeline.read_timestamp(ROOT).expect("held") > second);
}

#[test]
fn a_full_disk_holds_commands_back_but_not_reads_and_passes() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = start(&engine);
    let (sender, _others) = mpsc::channel();
    let (first, receiver) = mpsc::channel();
    engine.fail_writes(Some(StorageError::DiskFull("test".into())));
    pipeline.submit(put(&pipeline, "a", first)).expect("submit");
    // The one that met the full disk is held; the next is refused, once that is known.
    let refused = loop {
        match pipeline.submit(put(&pipeline, "b", sender.clone())) {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), KvErrorKind::DiskFull);
    let before = pipeline.read_timestamp(ROOT).expect("reads go on");
    assert!(receiver.try_recv().is_err());
    engine.fail_writes(None);
    let first = receiver.recv().expect("done").expect("applied");
    assert!(first > before);
    assert!(engine.get(Space::Data, b"a").expect("read").is_some());
    while pipeline.submit(put(&pipeline, "c", sender.clone())).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn time_goes_on_where_the_last_lease_may_have_been() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = start(&engine);
    let before = pipeline.read_timestamp(ROOT).expect("held");
    drop(pipeline);
    engine.crash();
    let again = start(&engine);
    let after = again.read_timestamp(ROOT).expect("held");
    assert!(after.wall_ns >= before.wall_ns + 1_000_000_000, "above the ceiling of the last lease");
}

#[test]
fn commands_of_another_lease_are_refused() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = start(&engine);
    let (sender, _receiver) = mpsc::channel();
    let command = Command { lease: 77, ..put(&pipeline, "a", sender) };
    assert_eq!(pipeline.submit(command).err().map(|error| error.kind()), Some(KvErrorKind::NotLeaseholder));
}

#[test]
fn closing_applies_what_is_queued_and_refuses_more() {
    let engine = Arc::new(MemoryEngine::new());
    let pipeline = start(&engine);
    let (sender, receiver) = mpsc::channel();
    let late = put(&pipeline, "late", sender.clone());
    for _ in 0..10 {
        pipeline.submit(put(&pipeline, "a", sender.clone())).expect("submit");
    }
    pipeline.close();
    assert_eq!(receiver.try_iter().filter(Result::is_ok).count(), 10);
    assert_eq!(pipeline.submit(late).err().map(|error| error.kind()), Some(KvErrorKind::Unavailable));
}

/// A machine whose wall clock is set by hand. Other time passes only on request.
struct ByHand {
    wall_ns: std::sync::atomic::AtomicU64,
    millis: std::sync::atomic::AtomicU64,
}

impl ByHand {
    fn at(wall_ns: u64) -> Arc<Self> {
        Arc::new(ByHand { wall_ns: wall_ns.into(), millis: 1000.into() })
    }

    fn set(&self, wall_ns: u64) {
        self.wall_ns.store(wall_ns, std::sync::atomic::Ordering::Relaxed);
    }

    /// Lets time pass until the wall clock shows this.
    fn pass_until(&self, wall_ns: u64) {
        let before = self.wall_ns.swap(wall_ns, std::sync::atomic::Ordering::Relaxed);
        self.millis.fetch_add((wall_ns - before) / 1_000_000, std::sync::atomic::Ordering::Relaxed);
    }
}

impl crate::environment::Surroundings for ByHand {
    fn millis(&self) -> Millis {
        self.millis.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn physical_ns(&self) -> u64 {
        self.wall_ns.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn random(&self) -> [u8; 16] {
        [7; 16]
    }
}

const NOW_NS: u64 = 1_700_000_000_000_000_000;

/// A pipeline whose time is that of a machine with a clock set by hand, and what drives it.
fn start_by_hand(engine: &Arc<MemoryEngine>, machine: &Arc<ByHand>) -> (Pipeline, Stepped) {
    let shared: Arc<dyn Engine> = engine.clone();
    let identity = open_or_found(&shared).expect("found");
    let bounds = Bounds { max_queued_bytes: 1 << 20, max_clock_offset: Duration::from_millis(500) };
    let environment = Environment::given(machine.clone());
    let open = move |now| {
        Ok(Store::open(shared, StoreConfig::new(identity.node_id, 1, 1), Sound, now).expect("open"))
    };
    Pipeline::start_stepped(engine.clone(), bounds, Arc::new(Nobody), environment, open).expect("start")
}

#[test]
fn a_wall_clock_that_is_set_takes_nothing_back_and_pushes_nothing_ahead() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let engine = Arc::new(MemoryEngine::new());
    let machine = ByHand::at(NOW_NS);
    let (pipeline, stepped) = start_by_hand(&engine, &machine);
    let first = pipeline.clock(ROOT).expect("held");
    machine.set(NOW_NS + HOUR_NS);
    let second = pipeline.clock(ROOT).expect("held");
    assert!(second > first && second.wall_ns < NOW_NS + HOUR_NS / 2, "it is not followed at once: {second}");
    drop((pipeline, stepped));
    engine.crash();
    machine.set(NOW_NS - HOUR_NS);
    let (pipeline, _stepped) = start_by_hand(&engine, &machine);
    assert!(pipeline.clock(ROOT).expect("held") > second, "time goes on across a restart");
}

#[test]
fn what_was_acknowledged_before_a_range_was_read_everywhere_is_in_the_present() {
    let engine = Arc::new(MemoryEngine::new());
    let machine = ByHand::at(NOW_NS);
    drop(start_by_hand(&engine, &machine));
    engine.crash();
    // Its clock is where the last lease may have been, which is further ahead than clocks are apart.
    let (pipeline, _stepped) = start_by_hand(&engine, &machine);
    let acknowledged = pipeline.clock(ROOT).expect("held");
    let apart = |wall_ns| Timestamp::new(wall_ns + MAX_CLOCK_OFFSET_NS, 0);
    assert!(acknowledged > apart(NOW_NS));
    pipeline.shared.state.lock().ranges.get_mut(&ROOT).expect("there").keep_ahead(true);
    assert!(pipeline.present(ROOT).expect("held") >= acknowledged);
    let promised = pipeline.promise_ahead(ROOT).expect("held");
    assert!(!promised.present && promised.timestamp >= acknowledged);
    assert!(pipeline.present(ROOT).expect("held") >= acknowledged, "the wall clock has not passed it");
    let later = promised.timestamp.wall_ns + 1;
    machine.set(later);
    let promised = pipeline.promise_ahead(ROOT).expect("held");
    assert!(!promised.present, "a clock that jumps has passed nothing");
    machine.set(NOW_NS);
    machine.pass_until(later);
    let present = pipeline.present(ROOT).expect("held");
    assert!(present > acknowledged && present <= apart(later));
    assert!(pipeline.promise_ahead(ROOT).expect("held").present);
}

/// Brings the clock of the root range to the ceiling of its lease, as a merge with a range does that had served so far.
fn reach_ceiling(pipeline: &Pipeline) {
    let mut state = pipeline.shared.state.lock();
    let found = state.ranges.get_mut(&ROOT).expect("there");
    found.clock.observe(found.held.expect("held").ceiling);
    assert!(!found.wants_ceiling);
}

#[test]
fn a_clock_that_has_reached_the_ceiling_of_its_lease_goes_on() {
    let machine = ByHand::at(NOW_NS);
    let (pipeline, mut stepped) = start_by_hand(&Arc::new(MemoryEngine::new()), &machine);
    reach_ceiling(&pipeline);
    assert!(pipeline.clock(ROOT).is_err());
    for _ in 0..10 {
        assert!(stepped.turn());
    }
    pipeline.clock(ROOT).expect("who was refused has had it raised");
    reach_ceiling(&pipeline);
    machine.pass_until(NOW_NS + 2_000_000_000);
    for _ in 0..10 {
        assert!(stepped.turn());
    }
    pipeline.clock(ROOT).expect("it was raised although nobody asked");
}
