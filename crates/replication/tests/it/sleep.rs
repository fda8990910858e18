//! Groups that leave memory and come back.

use crate::cluster::{Cluster, FIRST, SLEEP_AFTER_MS};
use replication::message::Payload;
use replication::{Bug, Event, LeaseView, ReplicationError};

fn sleeping(cluster: &mut Cluster) -> Vec<bool> {
    let nodes: Vec<u64> = cluster.nodes.keys().copied().collect();
    nodes.into_iter().map(|id| !cluster.is_awake(id, FIRST)).collect()
}

#[test]
fn nothing_is_in_memory_before_somebody_asks() {
    let mut cluster = Cluster::new(3, None);
    cluster.run(10_000);
    assert_eq!(sleeping(&mut cluster), [true, true, true]);
    assert_eq!(cluster.store(1).counts(), (1, 0, 0));
    let now = cluster.now;
    assert!(!cluster.store(1).wake(now, 5).expect("wake"), "no such range");
    assert!(cluster.store(1).wake(now, FIRST).expect("wake"));
    cluster.settle();
    assert_eq!(cluster.holder(FIRST), Some(1), "without waiting for a tick");
    assert_eq!(cluster.store(1).counts(), (1, 1, 1));
}

#[test]
fn who_is_alone_leads_at_once() {
    let mut cluster = Cluster::new(1, None);
    let now = cluster.now;
    assert!(cluster.store(1).wake(now, FIRST).expect("wake"));
    cluster.settle();
    assert_eq!(cluster.holder(FIRST), Some(1));
    cluster.run(SLEEP_AFTER_MS + 2_000);
    assert_eq!(sleeping(&mut cluster), [true]);
    assert_eq!(cluster.events(1, FIRST).last().map(String::as_str), Some("Slept"));
}

#[test]
fn a_group_that_nobody_uses_leaves_memory_and_comes_back() {
    let mut cluster = Cluster::new(3, None);
    let leader = cluster.lead(1, FIRST);
    cluster.propose(FIRST, Some("c"), None).expect("put");
    for _ in 0..10 {
        cluster.run(SLEEP_AFTER_MS / 2);
        cluster.store(leader).touch(FIRST);
    }
    assert_eq!(sleeping(&mut cluster), [false, false, false], "it is in use");
    cluster.run(SLEEP_AFTER_MS + 2_000);
    assert_eq!(sleeping(&mut cluster), [true, true, true]);
    let events = cluster.events(leader, FIRST);
    assert!(events.ends_with(&["LeaseLost".to_owned(), "Slept".to_owned()]), "{events:?}");
    assert_eq!((cluster.store(1).applied(FIRST), cluster.store(1).closed(FIRST)), (None, None));
    let now = cluster.now;
    assert_eq!(cluster.store(leader).lease(FIRST, now), LeaseView::Elsewhere { leader: None });
    let other = leader % 3 + 1;
    assert!(cluster.store(other).wake(now, FIRST).expect("wake"));
    cluster.settle();
    assert_eq!(cluster.holder(FIRST), Some(other));
    let LeaseView::Held { sequence, .. } = cluster.store(other).lease(FIRST, now) else { panic!("no lease") };
    assert_eq!(sequence, 2);
    cluster.propose(FIRST, Some("d"), None).expect("put");
    cluster.run(1_000);
    assert!((1..=3).all(|id| cluster.has_key(id, "c") && cluster.has_key(id, "d")));
}

#[test]
fn a_leader_about_to_sleep_can_be_woken() {
    let mut cluster = Cluster::new(3, None);
    let leader = cluster.lead(1, FIRST);
    cluster.run(SLEEP_AFTER_MS / 2);
    while cluster.holder(FIRST).is_some() {
        cluster.run(100);
    }
    assert!(cluster.is_awake(leader, FIRST), "its driver hears of the lease first");
    assert_eq!(cluster.events(leader, FIRST).last().map(String::as_str), Some("LeaseLost"));
    let now = cluster.now;
    assert!(cluster.store(leader).wake(now, FIRST).expect("wake"));
    cluster.settle();
    assert_eq!(cluster.holder(FIRST), Some(leader));
    assert_eq!(sleeping(&mut cluster), [false, false, false]);
}

fn deaf(planted: Option<Bug>) -> (Cluster, u64, u64) {
    let mut cluster = Cluster::new(3, planted);
    let leader = cluster.lead(1, FIRST);
    let deaf = leader % 3 + 1;
    cluster.arrives = Box::new(move |envelope| {
        envelope.to != deaf || !matches!(&envelope.payload, Some(Payload::LeaderAnswer(_)))
    });
    (cluster, leader, deaf)
}

#[test]
fn a_follower_stays_while_it_is_bound() {
    let (mut cluster, leader, deaf) = deaf(None);
    cluster.run(4 * SLEEP_AFTER_MS);
    assert!(cluster.is_awake(deaf, FIRST) && !cluster.is_awake(leader, FIRST));
    let now = cluster.now;
    let asked = |cluster: &Cluster| cluster.lost.len();
    assert!(asked(&cluster) >= 2, "it asked whether its leader still leads");
    cluster.store(deaf).wake(now, FIRST).expect("wake");
    cluster.settle();
    assert_eq!(cluster.holder(FIRST), None, "it knows no better");
    cluster.arrives = Box::new(|_| true);
    assert_eq!(cluster.lead(deaf, FIRST), deaf);
}

#[test]
fn a_follower_that_missed_it_sleeps_later() {
    let (mut cluster, leader, deaf) = deaf(None);
    while cluster.is_awake(leader, FIRST) {
        cluster.run(100);
    }
    cluster.arrives = Box::new(|_| true);
    cluster.run(2 * SLEEP_AFTER_MS);
    assert!(!cluster.is_awake(deaf, FIRST));
}

#[test]
fn a_forgotten_promise_gives_two_leases() {
    let mut cluster = Cluster::new(3, Some(Bug::GuardForgottenAsleep));
    let leader = cluster.lead(1, FIRST);
    for _ in 0..10 {
        cluster.run(SLEEP_AFTER_MS / 2);
        cluster.store(leader).touch(FIRST);
    }
    let other = leader % 3 + 1;
    assert!(!cluster.is_awake(other, FIRST), "the bug");
    cluster.arrives = Box::new(move |envelope| envelope.to != leader);
    let now = cluster.now;
    cluster.store(other).wake(now, FIRST).expect("wake");
    cluster.settle();
    assert!(matches!(cluster.store(other).lease(FIRST, now), LeaseView::Held { .. }));
    assert!(matches!(cluster.store(leader).lease(FIRST, now), LeaseView::Held { .. }));
}

#[test]
fn whoever_asks_a_leader_in_vain_learns_of_it() {
    let mut cluster = Cluster::new(3, None);
    let leader = cluster.lead(1, FIRST);
    let other = leader % 3 + 1;
    cluster.stop(other);
    cluster.run(500);
    cluster.start(other);
    for _ in 0..4 {
        cluster.run(SLEEP_AFTER_MS / 2);
        cluster.store(leader).touch(FIRST);
    }
    let now = cluster.now;
    cluster.store(other).wake(now, FIRST).expect("wake");
    cluster.settle();
    assert_eq!(cluster.holder(FIRST), Some(leader));
    assert_eq!(cluster.store(other).lease(FIRST, now), LeaseView::Elsewhere { leader: Some(leader) });
}

#[test]
fn who_is_behind_wakes_somebody_who_is_not() {
    let mut cluster = Cluster::new(3, None);
    let leader = cluster.lead(1, FIRST);
    let late = leader % 3 + 1;
    cluster.stop(late);
    cluster.run(500);
    cluster.propose(FIRST, Some("c"), None).expect("put");
    cluster.run(2 * SLEEP_AFTER_MS);
    assert!(!cluster.is_awake(leader, FIRST), "it does not wait for who is not there");
    cluster.start(late);
    cluster.run(3_000);
    let now = cluster.now;
    cluster.store(late).wake(now, FIRST).expect("wake");
    cluster.settle();
    assert!(cluster.holder(FIRST).is_some_and(|holder| holder != late), "at once");
    cluster.run(500);
    assert!(cluster.has_key(late, "c"));
}

#[test]
fn without_a_majority_they_sleep_when_nobody_asks() {
    let mut cluster = Cluster::new(4, None);
    let leader = cluster.lead(1, FIRST);
    let gone = [leader, leader % 4 + 1];
    for id in gone {
        cluster.stop(id);
    }
    let left: Vec<u64> = (1..=4).filter(|id| !gone.contains(id)).collect();
    let (one, other) = (left[0], left[1]);
    for _ in 0..10 {
        cluster.run(SLEEP_AFTER_MS / 2);
        let now = cluster.now;
        cluster.store(one).wake(now, FIRST).expect("wake");
    }
    assert!(cluster.is_awake(one, FIRST) && cluster.is_awake(other, FIRST), "somebody asks");
    cluster.run(3 * SLEEP_AFTER_MS);
    assert!(!cluster.is_awake(one, FIRST) && !cluster.is_awake(other, FIRST));
    for id in gone {
        cluster.start(id);
    }
    cluster.run(3_000);
    cluster.lead(other, FIRST);
}

#[test]
fn a_leader_that_dies_in_its_sleep_of_reads_is_replaced() {
    let mut cluster = Cluster::new(3, None);
    let leader = cluster.lead(1, FIRST);
    for _ in 0..6 {
        cluster.run(SLEEP_AFTER_MS / 2);
        cluster.store(leader).touch(FIRST);
    }
    cluster.stop(leader);
    cluster.run(3_000);
    assert!(cluster.holder(FIRST).is_some(), "somebody used it a moment ago");
    cluster.run(3 * SLEEP_AFTER_MS);
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    assert!(others.into_iter().all(|id| !cluster.is_awake(id, FIRST)), "and now nobody does");
}

#[test]
fn a_sleeping_range_takes_no_commands() {
    let mut cluster = Cluster::new(1, None);
    let (now, batch) = (cluster.now, storage::WriteBatch::new());
    let closed = kv_api::Timestamp::MIN;
    let proposal =
        replication::Proposal { id: 1, range: FIRST, lease_sequence: 1, batch, change: None, closed };
    let refused = cluster.store(1).propose(now, proposal);
    assert_eq!(refused, Err(ReplicationError::NotLeader { range: FIRST, leader: None }));
}

#[test]
fn a_survey_sees_what_sleeps() {
    let mut cluster = Cluster::new(3, None);
    let survey = cluster.store(1).survey(0, 10).expect("survey");
    assert_eq!(survey.len(), 1);
    assert_eq!(survey[0].1.members.voters, vec![1, 2, 3]);
    assert!(cluster.store(1).survey(FIRST, 10).expect("survey").is_empty());
    assert!(cluster.nodes[&1].events.iter().all(|event| !matches!(event, Event::Slept { .. })));
}
