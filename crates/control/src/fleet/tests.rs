//! Each test drives a fleet by hand: events in, effects out, time as a number.

use super::*;
use crate::record::{CATALOG_VERSION, OWNER_ROLE, TenantSettings};
use std::time::Duration;

type TestFleet = Fleet<u32>;

fn at(ms: u64) -> Moment {
    Duration::from_millis(ms)
}

fn record(id: u64) -> Arc<TenantRecord> {
    with_settings(id, TenantSettings::default())
}

fn with_settings(id: u64, settings: TenantSettings) -> Arc<TenantRecord> {
    Arc::new(TenantRecord {
        id,
        name: format!("t{id}"),
        created_unix_s: 0,
        catalog_version: CATALOG_VERSION,
        owner_role: OWNER_ROLE.into(),
        owner_verifier: String::new(),
        settings,
    })
}

fn limits() -> Limits {
    Limits {
        pool: 1,
        max_starting: 2,
        max_nodes: 4,
        max_waking: 2,
        max_waiters: 3,
        idle_timeout: Some(at(60_000)),
        max_attempts: 3,
        ..Limits::default()
    }
}

fn fleet() -> TestFleet {
    Fleet::new(limits(), 1)
}

fn name(number: u32) -> NodeName {
    format!("sql-{number}").into()
}

fn register(
    fleet: &mut TestFleet,
    number: u32,
    tenant: Option<u64>,
    now: Moment,
) -> Result<(), RegisterError> {
    let node = name(number);
    let address = format!("unix:/{node}").into();
    fleet.register(Registration { node, pid: number, address, tenant: tenant.map(record) }, now)
}

/// A fleet with one warm node, sql-1.
fn warm() -> TestFleet {
    let mut fleet = fleet();
    fleet.tick(at(0));
    assert_eq!(fleet.take_effects(), [Effect::Start(name(1))]);
    register(&mut fleet, 1, None, at(5)).unwrap();
    assert_eq!(fleet.take_effects(), []);
    fleet
}

/// A fleet in which sql-1 serves tenant 7 since 20 ms.
fn running() -> TestFleet {
    let mut fleet = warm();
    fleet.resolve(&record(7), 100, at(10));
    fleet.serving(&name(1), at(20));
    fleet.take_effects();
    fleet
}

fn answer(effects: &[Effect<u32>], token: u32) -> Option<&Result<Route, WakeError>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Answer(to, answer) if *to == token => Some(answer),
        _ => None,
    })
}

fn routed(effects: &[Effect<u32>], token: u32) -> (u64, String) {
    let route = answer(effects, token).expect("an answer").as_ref().expect("a route");
    (route.tenant_id, route.node.to_string())
}

#[test]
fn a_warm_node_wakes_a_tenant_and_the_pool_is_filled_again_later() {
    let mut fleet = warm();
    fleet.resolve(&record(7), 100, at(10));
    assert_eq!(fleet.take_effects(), [Effect::Assign { node: name(1), tenant: record(7) }]);
    assert_eq!(fleet.tenant(7), TenantStatus::Waking);
    fleet.serving(&name(1), at(14));
    let effects = fleet.take_effects();
    assert_eq!(effects[0], Effect::Woke(at(4)));
    assert_eq!(routed(&effects, 100), (7, "sql-1".into()));
    assert_eq!(fleet.next_deadline(at(14)), Some(at(40)));
    fleet.tick(at(40));
    assert_eq!(fleet.take_effects(), [Effect::Start(name(2))]);
}

#[test]
fn everybody_who_asks_shares_one_wake_up_and_later_ones_are_answered_at_once() {
    let mut fleet = warm();
    for token in 0..4 {
        fleet.resolve(&record(7), token, at(10));
    }
    let effects = fleet.take_effects();
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Assign { .. })).count(), 1);
    assert!(matches!(answer(&effects, 3), Some(Err(WakeError::Overloaded(_)))), "three may wait");
    fleet.serving(&name(1), at(12));
    let effects = fleet.take_effects();
    assert!((0..3).all(|token| routed(&effects, token).0 == 7));
    fleet.resolve(&record(7), 9, at(13));
    let effects = fleet.take_effects();
    assert!(!answer(&effects, 9).unwrap().as_ref().unwrap().woken);
}

#[test]
fn without_a_warm_node_one_is_started_for_the_tenant() {
    let mut fleet = fleet();
    fleet.resolve(&record(7), 1, at(0));
    assert_eq!(fleet.take_effects(), [Effect::Start(name(1)), Effect::Start(name(2))]);
    register(&mut fleet, 2, None, at(9)).unwrap();
    assert_eq!(fleet.take_effects(), [Effect::Assign { node: name(2), tenant: record(7) }]);
}

#[test]
fn wake_ups_under_way_are_bounded() {
    let mut fleet = fleet();
    fleet.resolve(&record(1), 1, at(0));
    fleet.resolve(&record(2), 2, at(0));
    fleet.take_effects();
    fleet.resolve(&record(3), 3, at(0));
    let effects = fleet.take_effects();
    assert!(matches!(answer(&effects, 3), Some(Err(WakeError::Overloaded(_)))));
    assert_eq!(fleet.tenant(3), TenantStatus::Suspended);
}

#[test]
fn idle_tenants_are_suspended_and_busy_ones_are_not() {
    let mut fleet = running();
    fleet.status(&name(1), 1, at(30));
    fleet.tick(at(500_000));
    assert!(!fleet.take_effects().contains(&Effect::Suspend(name(1))));
    fleet.status(&name(1), 0, at(500_000));
    fleet.tick(at(559_999));
    assert!(!fleet.take_effects().contains(&Effect::Suspend(name(1))));
    assert_eq!(fleet.next_deadline(at(559_999)).map(|moment| moment.min(at(560_000))), Some(at(560_000)));
    fleet.tick(at(560_000));
    assert_eq!(fleet.take_effects(), [Effect::Suspend(name(1))]);
    assert_eq!(fleet.tenant(7), TenantStatus::Suspending);
    fleet.exited(&name(1), "exit status: 0", at(560_003));
    let effects = fleet.take_effects();
    assert_eq!(effects[..2], [Effect::Gone(name(1)), Effect::Slept]);
    assert_eq!(fleet.tenant(7), TenantStatus::Suspended);
}

#[test]
fn a_repeated_report_of_no_connections_does_not_begin_the_idle_time_anew() {
    let mut fleet = running();
    fleet.status(&name(1), 0, at(30_000));
    fleet.tick(at(60_020));
    assert!(fleet.take_effects().contains(&Effect::Suspend(name(1))));
}

#[test]
fn a_tenants_own_idle_timeout_holds() {
    let mut fleet = running();
    let never = TenantSettings { idle_timeout_ms: Some(0), ..TenantSettings::default() };
    fleet.updated(&with_settings(7, never));
    fleet.tick(at(10_000_000));
    assert!(!fleet.take_effects().contains(&Effect::Suspend(name(1))));
    let soon = TenantSettings { idle_timeout_ms: Some(5), ..TenantSettings::default() };
    fleet.updated(&with_settings(7, soon));
    fleet.tick(at(10_000_000));
    assert!(fleet.take_effects().contains(&Effect::Suspend(name(1))));
}

#[test]
fn a_busy_node_goes_on_and_serves_who_asked_meanwhile() {
    let mut fleet = running();
    assert_eq!(fleet.suspend(7, false, at(100)), SuspendStart::Asked);
    fleet.resolve(&record(7), 5, at(101));
    let effects = fleet.take_effects();
    assert_eq!(effects, [Effect::Suspend(name(1))]);
    fleet.busy(&name(1), at(102));
    assert_eq!(routed(&fleet.take_effects(), 5), (7, "sql-1".into()));
    assert!(matches!(fleet.tenant(7), TenantStatus::Running { .. }));
}

#[test]
fn who_asks_while_a_tenant_is_suspended_gets_the_next_node() {
    let mut fleet = running();
    fleet.tick(at(100));
    register(&mut fleet, 2, None, at(110)).unwrap();
    fleet.suspend(7, false, at(120));
    fleet.resolve(&record(7), 5, at(121));
    fleet.take_effects();
    fleet.exited(&name(1), "", at(122));
    let effects = fleet.take_effects();
    assert!(effects.contains(&Effect::Assign { node: name(2), tenant: record(7) }));
    fleet.serving(&name(2), at(125));
    assert_eq!(routed(&fleet.take_effects(), 5), (7, "sql-2".into()));
}

#[test]
fn a_node_that_takes_its_leave_is_not_killed() {
    let mut fleet = running();
    fleet.suspend(7, false, at(100));
    fleet.take_effects();
    fleet.lost(&name(1), at(101));
    assert!(!fleet.take_effects().contains(&Effect::Kill(name(1))));
    fleet.exited(&name(1), "exit status: 0", at(102));
    assert_eq!(fleet.tenant(7), TenantStatus::Suspended);
}

#[test]
fn a_node_that_does_not_end_is_killed() {
    let mut fleet = running();
    fleet.suspend(7, false, at(100));
    fleet.take_effects();
    fleet.tick(at(10_100));
    assert!(fleet.take_effects().contains(&Effect::Kill(name(1))));
    assert_eq!(fleet.tenant(7), TenantStatus::Suspending, "until the process has ended");
    fleet.exited(&name(1), "", at(10_101));
    assert_eq!(fleet.tenant(7), TenantStatus::Suspended);
}

#[test]
fn a_node_that_dies_is_replaced_when_somebody_asks() {
    let mut fleet = running();
    fleet.status(&name(1), 3, at(30));
    fleet.lost(&name(1), at(40));
    let effects = fleet.take_effects();
    assert_eq!(effects[..2], [Effect::Gone(name(1)), Effect::Kill(name(1))]);
    fleet.resolve(&record(7), 6, at(41));
    assert_eq!(answer(&fleet.take_effects(), 6), None);
    fleet.exited(&name(1), "signal: 9", at(42));
    let started = fleet.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Start(node) => Some(node),
        _ => None,
    });
    let number = started.unwrap().trim_start_matches("sql-").parse().unwrap();
    register(&mut fleet, number, None, at(50)).unwrap();
    fleet.serving(&name(number), at(55));
    assert_eq!(routed(&fleet.take_effects(), 6).0, 7);
}

#[test]
fn a_node_that_cannot_serve_is_killed_and_the_wake_up_is_tried_again_up_to_a_bound() {
    let mut fleet = fleet();
    fleet.resolve(&record(7), 1, at(0));
    let mut now = 0;
    for attempt in 1..=3 {
        now += 10_000 / 4;
        fleet.tick(at(now));
        let starting = fleet.nodes().into_iter().find(|node| node.state == "starting");
        let node = starting.expect("a node is started").name;
        let number: u32 = node.trim_start_matches("sql-").parse().unwrap();
        register(&mut fleet, number, None, at(now)).unwrap();
        let assigned = fleet.nodes().into_iter().find(|node| node.state == "assigned").unwrap().name;
        fleet.take_effects();
        fleet.failed(&assigned, "no catalog", at(now));
        let effects = fleet.take_effects();
        assert!(effects.contains(&Effect::Kill(Arc::clone(&assigned))));
        let expected = (attempt == 3).then(|| Err(WakeError::StartFailed("no catalog".into())));
        assert_eq!(answer(&effects, 1), expected.as_ref());
        fleet.exited(&assigned, "", at(now));
    }
    assert_eq!(fleet.tenant(7), TenantStatus::Suspended);
}

#[test]
fn starts_that_fail_back_off_and_end_in_an_error() {
    let mut fleet = fleet();
    fleet.resolve(&record(7), 1, at(0));
    fleet.take_effects();
    fleet.exited(&name(1), "exit status: 1", at(1));
    assert_eq!(fleet.take_effects(), []);
    fleet.start_failed(&name(2), "no such file", at(2));
    assert_eq!(fleet.take_effects(), [], "it waits before it starts another");
    let next = fleet.next_deadline(at(2)).unwrap();
    fleet.tick(next.max(at(300)));
    assert_eq!(fleet.take_effects(), [Effect::Start(name(3)), Effect::Start(name(4))]);
    fleet.start_failed(&name(3), "no such file", at(301));
    let effects = fleet.take_effects();
    assert_eq!(answer(&effects, 1), Some(&Err(WakeError::StartFailed("no such file".into()))));
}

#[test]
fn a_start_that_hangs_is_killed() {
    let mut fleet = fleet();
    fleet.tick(at(0));
    fleet.take_effects();
    fleet.tick(at(10_000));
    assert_eq!(fleet.take_effects(), [Effect::Kill(name(1))]);
    fleet.exited(&name(1), "signal: 9", at(10_001));
    fleet.tick(at(10_200));
    assert_eq!(fleet.take_effects(), [Effect::Start(name(2))]);
}

#[test]
fn nobody_is_held_for_ever() {
    let mut fleet = warm();
    fleet.resolve(&record(7), 1, at(10));
    fleet.take_effects();
    assert!(fleet.next_deadline(at(10)).unwrap() <= at(10_010));
    fleet.tick(at(10_010));
    let effects = fleet.take_effects();
    assert!(matches!(answer(&effects, 1), Some(Err(WakeError::Unavailable(_)))));
    fleet.tick(at(20_010));
    assert_ne!(fleet.tenant(7), TenantStatus::Waking, "nobody waits, nothing serves");
}

#[test]
fn a_dropped_tenant_is_gone_for_who_waits_and_its_node_stops() {
    let mut fleet = warm();
    fleet.resolve(&record(7), 1, at(10));
    fleet.take_effects();
    fleet.dropped(7, at(11));
    let effects = fleet.take_effects();
    assert_eq!(answer(&effects, 1), Some(&Err(WakeError::Dropped)));
    assert!(effects.contains(&Effect::Stop(name(1))));
    assert!(fleet.has_node_of(7));
    fleet.tick(at(10_011));
    assert!(fleet.take_effects().contains(&Effect::Kill(name(1))));
    fleet.exited(&name(1), "", at(10_012));
    assert!(!fleet.has_node_of(7));
}

#[test]
fn nodes_of_an_earlier_control_process_are_adopted_before_anything_is_woken() {
    let mut fleet = TestFleet::new(limits(), 10);
    fleet.expect([(name(1), Some(7)), (name(2), None), (name(3), Some(8))], at(3_000));
    fleet.resolve(&record(7), 1, at(1));
    fleet.tick(at(2));
    assert_eq!(fleet.take_effects(), [], "tenant 7 may be running already, and a warm node will come");
    fleet.resolve(&record(9), 2, at(3));
    assert_eq!(fleet.take_effects(), [Effect::Start("sql-10".into())], "others need not wait");
    register(&mut fleet, 1, Some(7), at(100)).unwrap();
    assert_eq!(routed(&fleet.take_effects(), 1), (7, "sql-1".into()));
    register(&mut fleet, 2, None, at(110)).unwrap();
    assert_eq!(fleet.take_effects(), [Effect::Assign { node: name(2), tenant: record(9) }]);
    fleet.tick(at(3_000));
    assert_eq!(fleet.take_effects(), [Effect::Kill(name(3))], "one did not come back");
}

#[test]
fn registrations_nobody_asked_for_are_refused() {
    let mut fleet = running();
    assert_eq!(register(&mut fleet, 1, None, at(50)), Err(RegisterError::Duplicate));
    assert_eq!(register(&mut fleet, 99, None, at(50)), Err(RegisterError::Unknown));
    fleet.expect([(name(50), Some(7))], at(3_000));
    assert_eq!(register(&mut fleet, 50, Some(7), at(60)), Err(RegisterError::ServedElsewhere));
}

#[test]
fn with_all_nodes_taken_the_idlest_tenant_gives_way() {
    let mut fleet = Fleet::new(Limits { pool: 0, max_nodes: 2, ..limits() }, 1);
    for id in [1, 2] {
        let token = u32::try_from(id).unwrap();
        fleet.resolve(&record(id), token, at(10 * id));
        register(&mut fleet, token, None, at(10 * id + 1)).unwrap();
        fleet.serving(&name(token), at(10 * id + 2));
    }
    fleet.status(&name(1), 1, at(30));
    fleet.take_effects();
    fleet.resolve(&record(3), 3, at(100));
    assert_eq!(fleet.take_effects(), [Effect::Suspend(name(2))]);
    fleet.exited(&name(2), "", at(101));
    assert!(fleet.take_effects().contains(&Effect::Start(name(3))));
}

#[test]
fn a_quiet_fleet_has_nothing_to_do() {
    let mut fleet = warm();
    fleet.tick(at(100));
    assert_eq!(fleet.next_deadline(at(100)), None);
}
