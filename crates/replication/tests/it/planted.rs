//! What goes wrong when something is left out: that the rules about new and sleeping ranges are needed.

use crate::cluster::{Cluster, FIRST, SLEEP_AFTER_MS, raft_of, span};
use kv_api::Timestamp;
use replication::message::Payload;
use replication::{Bug, Event, LeaseView, NodeId, RangeChange, RangeId};

fn leaders(cluster: &mut Cluster, range: RangeId) -> Vec<NodeId> {
    let (now, nodes) = (cluster.now, cluster.nodes.keys().copied().collect::<Vec<_>>());
    let held = |id: &NodeId| matches!(cluster.store(*id).lease(range, now), LeaseView::Held { .. });
    nodes.into_iter().filter(held).collect()
}

fn change(own: bool) -> Option<RangeChange> {
    let split = || RangeChange {
        descriptor: Some(span(FIRST, "b", "m", 1)),
        created: vec![span(2, "m", "y", 0)],
        ..RangeChange::default()
    };
    let tenant =
        || RangeChange { descriptor: None, created: vec![span(2, "y", "z", 0)], ..RangeChange::default() };
    Some(if own { split() } else { tenant() })
}

#[test]
fn a_leader_that_says_it_sleeps_must_give_up_its_lease() {
    for planted in [None, Some(Bug::LeaseKeptAsleep)] {
        let mut cluster = Cluster::new(3, planted);
        let leader = cluster.lead(1, FIRST);
        let other = leader % 3 + 1;
        // The others hear that it sleeps, and are then cut off.
        let told = std::rc::Rc::new(std::cell::Cell::new(0));
        let count = told.clone();
        cluster.arrives = Box::new(move |envelope| {
            let says = matches!(&envelope.payload, Some(Payload::LeaderAnswer(answer)) if answer.asleep);
            count.set(count.get() + u32::from(says));
            says || count.get() < 2 || (envelope.from != leader && envelope.to != leader)
        });
        while told.get() < 2 {
            cluster.run(100);
        }
        let now = cluster.now;
        cluster.store(other).wake(now, FIRST).expect("wake");
        cluster.settle();
        assert_eq!(leaders(&mut cluster, FIRST).len(), if planted.is_some() { 2 } else { 1 });
    }
}

/// One node has the entry that makes range 2 later than the others; until then nothing but what `arrives`
/// says comes to it.
fn late(planted: Option<Bug>, own: bool) -> (Cluster, NodeId, NodeId) {
    let mut cluster = Cluster::new(3, planted);
    let leader = cluster.lead(1, FIRST);
    let late = if leader == 3 { 2 } else { 3 };
    cluster.propose(FIRST, Some("p"), None).expect("put");
    cluster.settle();
    cluster.raise_ceiling(FIRST, Timestamp::new(50, 0));
    cluster.arrives = Box::new(move |envelope| {
        let chunk = matches!(&envelope.payload, Some(Payload::SnapshotChunk(_)));
        envelope.to != late || (raft_of(envelope, FIRST).is_none() && (own || !chunk))
    });
    cluster.propose(FIRST, None, change(own)).expect("change");
    cluster.settle();
    (cluster, leader, late)
}

#[test]
fn whom_an_empty_replica_supports_is_not_forgotten() {
    for planted in [None, Some(Bug::SplitVoteForgotten)] {
        let (mut cluster, leader, late) = late(planted, false);
        assert_eq!(cluster.lead(leader, 2), leader);
        let other = 6 - leader - late;
        // The lease now rests on the late node alone.
        let cut = move |a, b| (a, b) == (leader, other) || (b, a) == (leader, other);
        cluster.arrives = Box::new(move |envelope| {
            let chunk = matches!(&envelope.payload, Some(Payload::SnapshotChunk(_)));
            let held_up = envelope.to == late && (chunk || raft_of(envelope, FIRST).is_some());
            !held_up && !cut(envelope.from, envelope.to)
        });
        cluster.run(2_000);
        assert_eq!(leaders(&mut cluster, 2), [leader]);
        // It hears of the range, but no more of its leader than that it lives.
        cluster.arrives = Box::new(move |envelope| {
            let chunk = matches!(&envelope.payload, Some(Payload::SnapshotChunk(_)));
            let led = envelope.from == leader && (chunk || raft_of(envelope, 2).is_some());
            let held_up = led && envelope.to == late;
            !held_up && !cut(envelope.from, envelope.to)
        });
        while cluster.store(late).descriptor(2).is_none() {
            cluster.run(100);
        }
        cluster.run(1_000);
        assert_eq!(leaders(&mut cluster, 2).len(), if planted.is_some() { 2 } else { 1 });
    }
}

#[test]
fn a_new_range_begins_above_what_the_old_one_served() {
    for planted in [None, Some(Bug::NewRangeBelowFloor)] {
        let (mut cluster, leader, _) = late(planted, true);
        let holder = cluster.lead(leader, 2);
        let floors = cluster.nodes[&holder].events.iter().filter_map(|event| match event {
            Event::LeaseAcquired { range: 2, floor, .. } => Some(*floor),
            _ => None,
        });
        let floors: Vec<Timestamp> = floors.collect();
        assert_eq!(floors[0] < Timestamp::new(50, 0), planted.is_some());
    }
}

#[test]
fn keys_that_two_replicas_have_are_lost() {
    for planted in [None, Some(Bug::OverlapAccepted)] {
        let (mut cluster, leader, late) = late(planted, true);
        cluster.lead(leader, 2);
        cluster.run(2_000);
        cluster.propose(2, Some("q"), None).expect("put");
        cluster.run(2_000);
        assert_eq!(cluster.has_key(late, "q"), planted.is_some());
        assert_eq!(cluster.store(late).ranges().len(), 2, "perhaps an empty one");
        assert_eq!(cluster.store(late).descriptor(2).is_some(), planted.is_some());
    }
}

#[test]
fn without_the_mark_a_destroyed_range_comes_back() {
    for planted in [None, Some(Bug::DestroyedComesBack)] {
        let (mut cluster, leader, late) = late(planted, false);
        cluster.arrives = Box::new(|_| true);
        cluster.run(1_000);
        cluster.lead(leader, 2);
        cluster.store(late).destroy(2).expect("destroy");
        cluster.run(SLEEP_AFTER_MS / 2);
        cluster.propose(2, Some("y1"), None).expect("put");
        cluster.run(2_000);
        assert_eq!(cluster.has_key(late, "y1"), planted.is_some());
    }
}
