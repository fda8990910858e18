//! Ranges that absorb their right neighbours.

use crate::cluster::{Cluster, FIRST, raft_of, span};
use kv_api::Timestamp;
use replication::change::merged;
use replication::command::Freeze;
use replication::message::Payload;
use replication::{Bug, Event, NodeId, RangeChange, RangeDescriptor, RangeId};
use storage::{Reader, Space, WriteBatch, range_spans};

const RIGHT: RangeId = 2;
/// The largest timestamp served in the right range.
const SERVED: Timestamp = Timestamp { wall_ns: 90, logical: 0 };

fn left() -> RangeDescriptor {
    span(FIRST, "b", "m", 1)
}

fn right() -> RangeDescriptor {
    RangeDescriptor { origin: FIRST, ..span(RIGHT, "m", "y", 1) }
}

fn freeze(generation: u64) -> Freeze {
    Freeze { absorber: FIRST, generation, served: SERVED }
}

/// Three nodes with two ranges led by the first, and a key in each.
fn split(planted: Option<Bug>) -> (Cluster, NodeId) {
    let mut cluster = Cluster::new(3, planted);
    let leader = cluster.lead(1, FIRST);
    cluster.propose(FIRST, Some("c"), None).expect("put");
    cluster.propose(FIRST, Some("p"), None).expect("put");
    let change = RangeChange { descriptor: Some(left()), created: vec![right()], ..RangeChange::default() };
    cluster.propose(FIRST, None, Some(change)).expect("split");
    cluster.settle();
    assert_eq!(cluster.lead(leader, RIGHT), leader);
    (cluster, leader)
}

fn frozen(cluster: &mut Cluster) {
    let change = RangeChange { freeze: Some(freeze(1)), ..RangeChange::default() };
    cluster.propose(RIGHT, None, Some(change)).expect("freeze");
    cluster.settle();
}

/// The command with which the left range absorbs the right one, as it is at a node.
fn absorb(cluster: &mut Cluster, node: NodeId) -> (RangeChange, WriteBatch) {
    let (left, right) = (left(), right());
    let mut contents = WriteBatch::new();
    let engine = &cluster.nodes[&node].engine;
    for (space, start, end) in range_spans(&right.start, &right.end) {
        let mut cursor = engine.cursor(space, storage::Bounds::new(&start, &end));
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            contents.put(space, key, value);
            cursor.next();
        }
    }
    let descriptor = Some(merged(&left, &right));
    let change =
        RangeChange { descriptor, absorbed: Some(right), served: Some(SERVED), ..RangeChange::default() };
    (change, contents)
}

fn merge(cluster: &mut Cluster, leader: NodeId) {
    frozen(cluster);
    let (change, contents) = absorb(cluster, leader);
    cluster.propose_batch(FIRST, contents, Some(change)).expect("absorb");
    cluster.settle();
}

#[test]
fn a_range_has_the_keys_of_the_one_that_it_absorbs() {
    let (mut cluster, leader) = split(None);
    merge(&mut cluster, leader);
    cluster.run(500);
    for node in 1..=3 {
        assert!(cluster.has_key(node, "p") && cluster.has_key(node, "c"));
        assert_eq!(cluster.store(node).covering(b"p"), Some(FIRST));
        assert_eq!(cluster.store(node).ranges(), [FIRST], "the other is gone");
        assert!(cluster.events(node, RIGHT).contains(&"Removed".to_owned()));
    }
    cluster.propose(FIRST, Some("q"), None).expect("a key of the other");
    cluster.run(500);
    assert!((1..=3).all(|node| cluster.has_key(node, "q")));
    for node in 1..=3 {
        cluster.stop(node);
        cluster.start(node);
        assert_eq!(cluster.store(node).ranges(), [FIRST], "also after a restart");
    }
}

#[test]
fn a_frozen_range_takes_nothing_but_its_thaw() {
    let (mut cluster, leader) = split(None);
    frozen(&mut cluster);
    assert_eq!(cluster.store(leader).frozen(RIGHT), Some(freeze(1)));
    let id = cluster.propose(RIGHT, Some("q"), None).expect("taken, for the pipeline may be behind");
    cluster.settle();
    let rejected = |event: &Event| matches!(event, Event::Rejected { range: RIGHT, id: of } if *of == id);
    assert!(cluster.nodes[&leader].events.iter().any(rejected));
    assert!(!cluster.has_key(leader, "q"));
    let now = cluster.now;
    let learner = replication::MemberChange::AddLearner(4);
    assert!(cluster.store(leader).change_members(now, RIGHT, learner).is_err());
    for (thaw, done) in [(freeze(2), false), (freeze(1), true)] {
        let change = RangeChange { thaw: Some(thaw), ..RangeChange::default() };
        assert_eq!(cluster.propose(RIGHT, None, Some(change)).is_ok(), done);
    }
    cluster.settle();
    assert_eq!(cluster.store(leader).frozen(RIGHT), None);
    cluster.propose(RIGHT, Some("q"), None).expect("put");
    cluster.settle();
    assert!(cluster.has_key(leader, "q"));
}

#[test]
fn a_frozen_range_is_so_after_a_restart() {
    for planted in [None, Some(Bug::FrozenForgotten)] {
        let (mut cluster, _) = split(planted);
        frozen(&mut cluster);
        for node in 1..=3 {
            cluster.stop(node);
            // What was not synced is lost.
            cluster.nodes[&node].engine.crash();
            cluster.start(node);
        }
        cluster.run(2_000);
        let leader = cluster.lead(1, RIGHT);
        assert_eq!(cluster.store(leader).frozen(RIGHT).is_some(), planted.is_none());
    }
}

#[test]
fn once_the_left_range_has_changed_it_absorbs_nothing() {
    let (mut cluster, leader) = split(None);
    frozen(&mut cluster);
    let (change, contents) = absorb(&mut cluster, leader);
    let fence = RangeChange {
        descriptor: Some(RangeDescriptor { generation: 2, ..left() }),
        ..RangeChange::default()
    };
    cluster.propose(FIRST, None, Some(fence)).expect("fence");
    cluster.settle();
    assert!(cluster.propose_batch(FIRST, contents, Some(change)).is_err());
    assert_eq!(cluster.store(leader).covering(b"p"), Some(RIGHT));
}

#[test]
fn a_range_begins_above_what_the_one_that_it_absorbed_served() {
    for planted in [None, Some(Bug::AbsorbedBelowClock)] {
        let (mut cluster, leader) = split(planted);
        merge(&mut cluster, leader);
        let other = leader % 3 + 1;
        let now = cluster.now;
        cluster.store(leader).transfer_leader(now, FIRST, other).expect("hand over");
        cluster.run(500);
        assert_eq!(cluster.holder(FIRST), Some(other));
        let floors = cluster.nodes[&other].events.iter().filter_map(|event| match event {
            Event::LeaseAcquired { range: FIRST, floor, .. } => Some(*floor),
            _ => None,
        });
        let floor = floors.last().expect("a lease");
        assert_eq!(floor <= SERVED, planted.is_some());
    }
}

/// One node hears of the merge later than the others.
fn late(cluster: &mut Cluster, leader: NodeId) -> NodeId {
    let late = leader % 3 + 1;
    cluster.arrives = Box::new(move |envelope| envelope.to != late && envelope.from != late);
    merge(cluster, leader);
    late
}

#[test]
fn a_member_that_was_away_catches_up() {
    let (mut cluster, leader) = split(None);
    let late = late(&mut cluster, leader);
    assert_eq!(cluster.store(late).covering(b"p"), Some(RIGHT));
    cluster.arrives = Box::new(|_| true);
    cluster.run(3_000);
    assert_eq!(cluster.store(late).ranges(), [FIRST]);
    assert!(cluster.has_key(late, "p"));
}

#[test]
fn what_came_after_a_merge_waits_for_it() {
    let (mut cluster, leader) = split(None);
    let late = late(&mut cluster, leader);
    // Split again, elsewhere; of the new range the late one hears first.
    let whole = merged(&left(), &right());
    let rest = RangeDescriptor { end: "r".into(), generation: 3, ..whole.clone() };
    let new = RangeDescriptor {
        range_id: 3,
        start: "r".into(),
        end: "y".into(),
        generation: 1,
        origin: FIRST,
        ..whole
    };
    let change = RangeChange { descriptor: Some(rest), created: vec![new], ..RangeChange::default() };
    cluster.propose(FIRST, None, Some(change)).expect("split");
    cluster.settle();
    cluster.lead(leader, 3);
    cluster.propose(3, Some("s"), None).expect("put");
    cluster.settle();
    cluster.store(late).destroy(RIGHT).expect("it is told by the directory");
    cluster.arrives = Box::new(move |envelope| envelope.to != late || raft_of(envelope, FIRST).is_none());
    cluster.run(3_000);
    assert!(cluster.store(late).descriptor(3).is_none(), "the absorber here is behind");
    cluster.arrives = Box::new(|_| true);
    cluster.run(5_000);
    assert!(cluster.has_key(late, "s") && cluster.has_key(late, "p"));
    assert_eq!(cluster.store(late).ranges(), [FIRST, 3]);
}

#[test]
fn a_replica_of_what_was_absorbed_gives_way_to_a_snapshot() {
    let (mut cluster, leader) = split(None);
    let late = late(&mut cluster, leader);
    // So many that the log does not reach back.
    for _ in 0..10 {
        for number in 0..2_000 {
            cluster.propose(FIRST, Some(&format!("d{number}")), None).expect("put");
        }
        cluster.run(200);
    }
    cluster.arrives = Box::new(|_| true);
    cluster.run(10_000);
    assert_eq!(cluster.store(late).ranges(), [FIRST]);
    assert!(cluster.has_key(late, "p") && cluster.has_key(late, "d7"));
}

#[test]
fn a_forgotten_replica_hears_that_its_range_is_gone() {
    let (mut cluster, leader) = split(None);
    let forgotten = late(&mut cluster, leader);
    // It hears of the range that was absorbed only.
    cluster.arrives = Box::new(move |envelope| {
        let of_left = raft_of(envelope, FIRST).is_some()
            || matches!(&envelope.payload, Some(Payload::SnapshotChunk(chunk)) if chunk.range_id == FIRST);
        !of_left || envelope.to != forgotten
    });
    let now = cluster.now;
    cluster.store(forgotten).wake(now, RIGHT).expect("wake");
    cluster.run(5_000);
    assert_eq!(cluster.store(forgotten).descriptor(RIGHT), None);
    assert!(cluster.nodes[&forgotten].engine.get(Space::Data, b"p").expect("get").is_none());
}
