//! Ranges that come to be, and ranges that are destroyed.

use crate::cluster::{Cluster, FIRST, raft_of, span};
use kv_api::Timestamp;
use replication::message::Payload;
use replication::{Envelope, Event, MemberChange, RangeChange, ReplicationError};

fn split(at: &str) -> Option<RangeChange> {
    Some(RangeChange {
        descriptor: Some(span(FIRST, "b", at, 1)),
        created: vec![span(2, at, "y", 0)],
        ..RangeChange::default()
    })
}

fn tenant() -> Option<RangeChange> {
    Some(RangeChange { descriptor: None, created: vec![span(9, "y", "z", 0)], ..RangeChange::default() })
}

fn led() -> Cluster {
    let mut cluster = Cluster::new(3, None);
    cluster.lead(1, FIRST);
    cluster.propose(FIRST, Some("c"), None).expect("put");
    cluster.propose(FIRST, Some("p"), None).expect("put");
    cluster.settle();
    cluster
}

#[test]
fn a_range_is_cut_in_two() {
    let mut cluster = led();
    let ceiling = Timestamp::new(77, 0);
    cluster.raise_ceiling(FIRST, ceiling);
    cluster.propose(FIRST, None, split("m")).expect("split");
    cluster.settle();
    for id in 1..=3 {
        let created = Event::Created { range: 2, descriptor: span(2, "m", "y", 0) };
        assert!(cluster.nodes[&id].events.contains(&created));
        let changed = Event::DescriptorChanged { range: FIRST, descriptor: span(FIRST, "b", "m", 1) };
        assert!(cluster.nodes[&id].events.contains(&changed));
        assert!(!cluster.is_awake(id, 2), "asleep until somebody wants it");
        let store = cluster.store(id);
        assert_eq!(
            (store.covering(b"c"), store.covering(b"p"), store.covering(b"y")),
            (Some(1), Some(2), None)
        );
        assert_eq!((store.ranges(), store.counts().0), (vec![1, 2], 2));
        assert!(cluster.has_key(id, "p"), "the keys stay where they are");
    }
    let holder = cluster.lead(3, 2);
    let acquired = cluster.nodes[&holder].events.iter().find_map(|event| match event {
        Event::LeaseAcquired { range: 2, floor, .. } => Some(*floor),
        _ => None,
    });
    assert_eq!(acquired, Some(ceiling), "the old range may have served all below");
}

#[test]
fn a_new_range_begins_where_the_old_one_has_served_up_to() {
    let first_floor = |served| {
        let mut cluster = led();
        cluster.raise_ceiling(FIRST, Timestamp::new(77, 0));
        let change =
            split("m").map(|change| RangeChange { served: Some(Timestamp::new(served, 0)), ..change });
        cluster.propose(FIRST, None, change).expect("split");
        cluster.settle();
        let holder = cluster.lead(3, 2);
        cluster.nodes[&holder].events.iter().find_map(|event| match event {
            Event::LeaseAcquired { range: 2, floor, .. } => Some(floor.wall_ns),
            _ => None,
        })
    };
    assert_eq!(first_floor(50), Some(50));
    assert_eq!(first_floor(90), Some(77), "it cannot have served above the ceiling of its lease");
}

#[test]
fn changes_that_do_not_fit_are_not_proposed() {
    let mut cluster = led();
    let refused = |result| assert!(matches!(result, Err(ReplicationError::Change { .. })), "{result:?}");
    let change = |created| Some(RangeChange { descriptor: None, created, ..RangeChange::default() });
    refused(cluster.propose(FIRST, None, change(vec![span(2, "p", "q", 0)])));
    cluster.propose(FIRST, None, tenant()).expect("a tenant");
    refused(cluster.propose(FIRST, None, tenant()));
    refused(cluster.propose(FIRST, None, split("m")));
    cluster.propose(FIRST, None, change(vec![span(10, "z", "zz", 0)])).expect("another tenant at once");
    cluster.settle();
    refused(cluster.propose(FIRST, None, change(vec![span(9, "zzz", "zzzz", 0)])));
    refused(cluster.propose(FIRST, None, change(vec![span(11, "y0", "y1", 0)])));
    assert_eq!(cluster.store(2).ranges(), vec![1, 9, 10]);
}

#[test]
fn an_empty_replica_gives_way_to_the_first_one() {
    let mut cluster = led();
    let leader = cluster.holder(FIRST).expect("leader");
    let late = if leader == 3 { 2 } else { 3 };
    // It hears of the new range before it comes to be.
    cluster.arrives = Box::new(move |envelope| envelope.to != late || raft_of(envelope, FIRST).is_none());
    cluster.propose(FIRST, None, tenant()).expect("a tenant");
    cluster.settle();
    cluster.arrives = Box::new(move |envelope| {
        let chunk = matches!(&envelope.payload, Some(Payload::SnapshotChunk(_)));
        envelope.to != late || (raft_of(envelope, FIRST).is_none() && !chunk)
    });
    cluster.lead(leader, 9);
    assert!(cluster.is_awake(late, 9) && cluster.store(late).descriptor(9).is_none());
    let term = cluster.store(late).status(9).expect("status").term;
    assert!(cluster.store(leader).status(9).expect("status").term == term, "it knows the term");
    cluster.arrives = Box::new(|_| true);
    cluster.run(1_000);
    assert_eq!(cluster.store(late).descriptor(9), Some(&span(9, "y", "z", 0)));
    cluster.propose(9, Some("y1"), None).expect("put");
    cluster.settle();
    assert!(cluster.has_key(late, "y1"));
    assert_eq!(cluster.store(late).status(9).expect("status").term, term);
}

#[test]
fn a_snapshot_waits_for_the_keys_to_be_given_up() {
    let mut cluster = led();
    let leader = cluster.holder(FIRST).expect("leader");
    let late = if leader == 3 { 2 } else { 3 };
    cluster.arrives = Box::new(move |envelope| envelope.to != late || raft_of(envelope, FIRST).is_none());
    cluster.propose(FIRST, None, split("m")).expect("split");
    cluster.settle();
    cluster.lead(leader, 2);
    cluster.run(3_000);
    cluster.propose(2, Some("q"), None).expect("put");
    cluster.run(3_000);
    assert!(cluster.store(late).descriptor(2).is_none(), "the old replica has these keys");
    assert!(cluster.has_key(late, "p") && !cluster.has_key(late, "q"));
    cluster.arrives = Box::new(|_| true);
    cluster.run(3_000);
    assert_eq!(cluster.store(late).descriptor(2), Some(&span(2, "m", "y", 0)));
    assert!(cluster.has_key(late, "p") && cluster.has_key(late, "q"));
    assert_eq!(cluster.store(late).covering(b"p"), Some(2));
}

#[test]
fn a_replica_removed_late_leaves_the_keys_of_others_alone() {
    let mut cluster = led();
    let leader = cluster.holder(FIRST).expect("leader");
    let late = if leader == 3 { 2 } else { 3 };
    cluster.propose(FIRST, None, split("m")).expect("split");
    cluster.settle();
    let now = cluster.now;
    let change = MemberChange::Replace { add: vec![], remove: vec![late] };
    cluster.store(leader).change_members(now, FIRST, change).expect("remove");
    cluster.run(3_000);
    assert!(cluster.store(late).descriptor(FIRST).is_none());
    assert!(!cluster.has_key(late, "c") && cluster.has_key(late, "p"));
    assert_eq!(cluster.store(late).ranges(), vec![2]);
}

#[test]
fn what_is_destroyed_stays_so() {
    let mut cluster = led();
    cluster.propose(FIRST, None, tenant()).expect("a tenant");
    cluster.settle();
    let holder = cluster.lead(2, 9);
    cluster.propose(9, Some("y1"), None).expect("put");
    cluster.settle();
    // A message of the range is still under way.
    cluster.arrives = Box::new(|envelope| raft_of(envelope, 9).is_none());
    cluster.propose(9, Some("y2"), None).expect("put");
    cluster.settle();
    cluster.arrives = Box::new(|_| true);
    for id in 1..=3 {
        cluster.store(id).destroy(9).expect("destroy");
    }
    cluster.settle();
    assert_eq!(cluster.events(holder, 9).last().map(String::as_str), Some("Removed"));
    assert!(cluster.events(holder, 9).contains(&"LeaseLost".to_owned()));
    let late: Vec<Envelope> = cluster.lost.drain(..).collect();
    assert!(!late.is_empty());
    for id in [1, 2] {
        cluster.stop(id);
        cluster.start(id);
    }
    let now = cluster.now;
    for envelope in late {
        cluster.store(envelope.to).step(now, envelope);
    }
    cluster.run(1_000);
    for id in 1..=3 {
        assert!(!cluster.has_key(id, "y1") && !cluster.is_awake(id, 9), "node {id}");
        assert!(!cluster.store(id).wake(now, 9).expect("wake"));
        assert_eq!(cluster.store(id).ranges(), vec![FIRST]);
    }
    cluster.lead(1, FIRST);
    let again = cluster.propose(FIRST, None, tenant());
    assert!(matches!(again, Err(ReplicationError::Change { .. })), "{again:?}");
}

#[test]
fn a_new_replica_gets_what_is_left_of_a_split_range() {
    let mut cluster = led();
    let leader = cluster.holder(FIRST).expect("leader");
    let late = if leader == 3 { 2 } else { 3 };
    let now = cluster.now;
    let change = MemberChange::Replace { add: vec![], remove: vec![late] };
    cluster.store(leader).change_members(now, FIRST, change).expect("remove");
    cluster.run(3_000);
    assert!(!cluster.has_key(late, "c"));
    let now = cluster.now;
    cluster.store(leader).change_members(now, FIRST, MemberChange::AddLearner(late)).expect("add");
    // The transfer is under way when the range is cut.
    cluster.arrives = Box::new(|envelope| !matches!(&envelope.payload, Some(Payload::SnapshotChunk(_))));
    cluster.settle();
    cluster.propose(FIRST, None, split("m")).expect("split");
    cluster.settle();
    cluster.lead(leader, 2);
    cluster.propose(2, Some("q"), None).expect("put");
    cluster.arrives = Box::new(|_| true);
    let now = cluster.now;
    for envelope in cluster.lost.drain(..).collect::<Vec<_>>() {
        cluster.store(envelope.to).step(now, envelope);
    }
    cluster.run(5_000);
    for key in ["c", "p", "q"] {
        assert!(cluster.has_key(late, key), "{key}");
    }
    assert_eq!(cluster.store(late).ranges(), vec![1, 2]);
}

#[test]
fn followers_know_what_is_closed() {
    let mut cluster = led();
    let leader = cluster.holder(FIRST).expect("leader");
    let id = cluster.propose(FIRST, Some("d"), None).expect("put");
    cluster.run(500);
    for node in 1..=3 {
        assert_eq!(cluster.store(node).closed(FIRST), Some(Timestamp::new(id, 0)));
        let applied = cluster.store(leader).applied(FIRST);
        assert_eq!(cluster.store(node).applied(FIRST), applied);
    }
}

#[test]
fn drivers_talk_past_the_stores() {
    let mut cluster = led();
    cluster.store(1).send_app(2, bytes::Bytes::from_static(b"hello"));
    cluster.store(1).set_note(bytes::Bytes::from_static(b"note"));
    cluster.store(1).set_note(bytes::Bytes::from(vec![0; 1025]));
    cluster.arrives = Box::new(|envelope| !matches!(&envelope.payload, Some(Payload::App(_))));
    cluster.run(1_000);
    assert_eq!(cluster.lost.len(), 1);
    let heard: Vec<_> = cluster.store(2).notes().map(|(node, note)| (node, note.to_vec())).collect();
    assert_eq!(heard, vec![(1, b"note".to_vec())]);
}
