//! Scenarios: schedules for bugs that chance seldom meets. Time and place are chosen so that the bug has its
//! opportunity; the seed still decides the details, and whether it is taken.

use crate::clock::{MILLI, Micros, SECOND};
use crate::fault::{Direction, Fault, Loss, Which, Who};
use crate::network::Weather;
use crate::plan::Plan;
use crate::planted::{Plant, ServiceBug};
use replication::Bug;

/// How often the faults of a scenario come again in one run.
const ROUNDS: u64 = 4;

/// The scenario for a bug, if it needs one.
pub fn scenario(bug: Plant) -> Option<Plan> {
    match bug {
        Plant::Store(bug) => of_store(bug),
        Plant::Service(bug) => Some(of_service(bug)),
    }
}

fn of_store(bug: Bug) -> Option<Plan> {
    match bug {
        Bug::SupportIgnoredInVote => Some(second_candidate(None)),
        Bug::NoGraceAfterRestart => Some(second_candidate(Some(50 * MILLI))),
        Bug::ServesWhileTransferring => Some(deaf_leader_hands_over()),
        Bug::LeaseNotChecked => Some(lease_there_and_back()),
        Bug::IncompleteForgotten => Some(snapshot_broken_off()),
        Bug::UnknownLeaderSupported => Some(deposed_leader_returns()),
        Bug::SupportFromArrival => Some(late_answers()),
        Bug::GuardForgottenAsleep => Some(left_alone_by_the_leader()),
        Bug::LeaseKeptAsleep => Some(asleep_and_cut_off()),
        Bug::NewRangeBelowFloor => Some(splits_led_by_others()),
        Bug::OverlapAccepted => Some(right_before_left()),
        Bug::SplitVoteForgotten => Some(heard_of_before_it_is_split()),
        Bug::DestroyedComesBack => Some(destroyed_before_it_is_created()),
        Bug::AppliedBeforeWritten => Some(followers_without_space()),
        Bug::AppliedOverSnapshot => Some(snapshot_behind_commit()),
        Bug::RetiredVotes => Some(asked_by_one_that_was_away()),
        Bug::EmptyNeverVotes => Some(split_on_one_node()),
        Bug::AbsorbedBelowClock => Some(merged_and_led_by_another()),
        Bug::FrozenForgotten => Some(merges_and_outages()),
        _ => None,
    }
}

fn of_service(bug: ServiceBug) -> Plan {
    match bug {
        ServiceBug::FollowerServesWithoutWaiting | ServiceBug::PromiseForLatecomers => follower_reads(),
        ServiceBug::PromiseOverWrites | ServiceBug::ClosedOverWrites => follower_reads_over_slow_writes(),
        ServiceBug::ClosedAboveCeiling => clocks_of_other_ranges(),
        ServiceBug::SplitWhileServing => splits_over_slow_writes(),
        ServiceBug::FrozenWhileServing | ServiceBug::FrozenServes | ServiceBug::ThawedUnsettled => merges(),
    }
}

/// Says the same again, a while later each time.
fn rounds(every: Micros, faults: &[(Micros, Fault)]) -> Vec<(Micros, Fault)> {
    let again = |round: u64| faults.iter().map(move |(at, fault)| ((1 + round * every) + at, fault.clone()));
    (0..ROUNDS).flat_map(again).collect()
}

/// One follower has not heard of the leader for long and wants its place; then the leader is cut off from
/// the other, who has promised to stand by it. If `restart`, that one restarts and forgets.
fn second_candidate(restart: Option<Micros>) -> Plan {
    let pair = Fault::CutPair {
        one: Who::Leader,
        other: Who::Follower(0),
        direction: Direction::Both,
        span: 6 * SECOND,
    };
    let isolate =
        Fault::Isolate { side: vec![Who::FormerLeader], direction: Direction::Both, span: 5 * SECOND };
    let mut faults = vec![(3 * SECOND, pair), (3_900 * MILLI, isolate)];
    if let Some(down) = restart {
        let crash = Fault::Crash { who: Who::Follower(1), loss: Loss::Nothing, down };
        faults.push((3_950 * MILLI, crash));
    }
    // Whoever lacks a write is not elected.
    seldom_busy(Plan::scripted(rounds(10 * SECOND, &faults)))
}

/// A plan with few operations.
fn seldom_busy(plan: Plan) -> Plan {
    Plan { clients: 2, think: (300 * MILLI, 1_200 * MILLI), writes_per_mille: 300, ..plan }
}

/// A leader is cut off until another is elected, and then hears from nodes again before it hears of that.
fn deposed_leader_returns() -> Plan {
    let isolate = Fault::Isolate { side: vec![Who::Leader], direction: Direction::Both, span: 3 * SECOND };
    // The new leader has little to say.
    seldom_busy(Plan::scripted(rounds(6 * SECOND, &[(3 * SECOND, isolate)])))
}

/// A leader is cut off while answers to its heartbeats are still on their way.
fn late_answers() -> Plan {
    let isolate = Fault::Isolate { side: vec![Who::Leader], direction: Direction::Both, span: 4 * SECOND };
    let late = Weather { late_per_mille: 300, late: (800 * MILLI, 1_500 * MILLI), ..Weather::FAIR };
    Plan { weather: late, ..Plan::scripted(rounds(8 * SECOND, &[(3 * SECOND, isolate)])) }
}

/// A leader that hears nothing hands over, and does not hear that it has.
fn deaf_leader_hands_over() -> Plan {
    let deaf = Fault::Isolate { side: vec![Who::Leader], direction: Direction::Inwards, span: 3 * SECOND };
    let faults = [(3 * SECOND, deaf), (3_005 * MILLI, Fault::Transfer { to: Who::Follower(0) })];
    let plan = Plan::scripted(rounds(6 * SECOND, &faults));
    // Whoever is to take over must have the whole log.
    Plan { clients: 2, think: (20 * MILLI, 100 * MILLI), ..plan }
}

/// The lease goes to another node and comes back while a command is on its way to the log.
fn lease_there_and_back() -> Plan {
    let slow = Fault::SlowEvaluation { delay: 4 * SECOND, span: 3 * SECOND };
    let there = Fault::Transfer { to: Who::Follower(0) };
    let back = Fault::Transfer { to: Who::FormerLeader };
    let faults = [(3 * SECOND, slow), (3_500 * MILLI, there), (4_500 * MILLI, back)];
    Plan { keys: 2, ..Plan::scripted(rounds(6 * SECOND, &faults)) }
}

/// A node crashes in the middle of a snapshot, and the next leader has the log that the last had not.
fn snapshot_broken_off() -> Plan {
    let behind =
        Fault::Isolate { side: vec![Who::Follower(0)], direction: Direction::Both, span: 2 * SECOND };
    let crash = Fault::Crash { who: Who::Follower(0), loss: Loss::Nothing, down: 20 * MILLI };
    let faults = [
        (3 * SECOND, behind),
        (5_150 * MILLI, crash),
        (5_180 * MILLI, Fault::Transfer { to: Who::Follower(1) }),
    ];
    let slow = Weather { delay: (2 * MILLI, 20 * MILLI), ..Weather::FAIR };
    let plan = Plan::scripted(rounds(7 * SECOND, &faults));
    let plan = Plan { weather: slow, chunk_bytes: 64, log_keep: 50, keys: 10, ..plan };
    Plan { clients: 3, think: (20 * MILLI, 200 * MILLI), writes_per_mille: 800, ..plan }
}

/// Followers serve most reads, and messages take long.
fn follower_reads() -> Plan {
    let storm = Weather { delay: (MILLI, 80 * MILLI), ..Weather::FAIR };
    let plan = Plan::scripted(rounds(4 * SECOND, &[(3 * SECOND, Fault::Concern(Which::First))]));
    Plan { weather: storm, keys: 2, clients: 6, follows_per_mille: 800, ..plan }
}

/// Followers serve most reads while commands are long under way.
fn follower_reads_over_slow_writes() -> Plan {
    let slow = Fault::SlowEvaluation { delay: 300 * MILLI, span: 4 * SECOND };
    let plan = Plan::scripted(rounds(4 * SECOND, &[(2 * SECOND, slow)]));
    Plan { keys: 4, clients: 6, follows_per_mille: 500, past_per_mille: 400, ..plan }
}

/// Ranges are split while commands are long under way.
fn splits_over_slow_writes() -> Plan {
    let slow = Fault::SlowEvaluation { delay: SECOND, span: 3 * SECOND };
    let split = |at| (at, Fault::Split { at: None });
    let faults = [(2 * SECOND, slow), split(2_500 * MILLI), split(3 * SECOND), split(3_500 * MILLI)];
    Plan { keys: 10, clients: 6, ..Plan::scripted(rounds(3 * SECOND, &faults)) }
}

/// Ranges are split and merged again and again, while commands are long under way.
fn merges() -> Plan {
    let slow = Fault::SlowEvaluation { delay: 200 * MILLI, span: 3 * SECOND };
    let storm =
        Fault::Storm { weather: Weather { delay: (MILLI, 60 * MILLI), ..Weather::FAIR }, span: 3 * SECOND };
    let mut faults = vec![(SECOND, slow), (SECOND, storm), (1_100 * MILLI, Fault::Split { at: None })];
    faults.extend((0..12).flat_map(|time| {
        let at = 1_500 * MILLI + time * 200 * MILLI;
        [(at, Fault::Concern(Which::Any)), (at, Fault::Merge), (at + 100 * MILLI, Fault::Split { at: None })]
    }));
    Plan { keys: 10, clients: 6, ..Plan::scripted(rounds(4 * SECOND, &faults)) }
}

/// The right one of two ranges is led by a node whose clock is ahead. When they are merged the node that leads the left
/// one crashes, before it was asked for anything.
fn merged_and_led_by_another() -> Plan {
    let round = |time: u64| {
        let at = move |millis: u64| SECOND + (3 * time * SECOND) + millis * MILLI;
        [
            (at(0), Fault::Concern(Which::First)),
            (at(10), Fault::Split { at: None }),
            (at(200), Fault::Concern(Which::Newest)),
            (at(210), Fault::Transfer { to: Who::Follower(0) }),
            (at(1_200), Fault::Concern(Which::First)),
            (at(1_210), Fault::Merge),
            (at(1_400), Fault::Crash { who: Who::Leader, loss: Loss::Nothing, down: 300 * MILLI }),
        ]
    };
    let plan = Plan::scripted((0..10).flat_map(round).collect());
    Plan { keys: 4, wall_error: 20_000_000, clients: 4, think: (20 * MILLI, 400 * MILLI), ..plan }
}

/// All nodes crash while ranges are being merged.
fn merges_and_outages() -> Plan {
    let round = |time: u64| {
        let at = move |millis: u64| SECOND + time * 4 * SECOND + millis * MILLI;
        let merge = move |millis| [(at(millis), Fault::Concern(Which::Any)), (at(millis), Fault::Merge)];
        let merges = [2_500, 2_510, 2_520, 2_530].into_iter().flat_map(merge);
        let outage = Fault::Outage { loss: Loss::Some, down: 20 * MILLI };
        [(at(2_000), Fault::Split { at: None }), (at(2_100), Fault::Split { at: None })]
            .into_iter()
            .chain(merges)
            .chain([(at(2_560 + 25 * time), outage)])
    };
    let slow = Weather { delay: (MILLI, 15 * MILLI), ..Weather::FAIR };
    let plan = Plan::scripted((0..8).flat_map(round).collect());
    Plan { weather: slow, sync: (MILLI, 10 * MILLI), keys: 10, clients: 6, ..plan }
}

/// New ranges are led by nodes whose clocks show something else.
fn splits_led_by_others() -> Plan {
    let faults = [
        (2 * SECOND, Fault::Split { at: None }),
        (2_200 * MILLI, Fault::Concern(Which::Newest)),
        (2_800 * MILLI, Fault::Transfer { to: Who::Follower(0) }),
    ];
    Plan { keys: 10, wall_error: 20_000_000, ..Plan::scripted(rounds(2 * SECOND, &faults)) }
}

/// A leader is cut off, and its followers are left alone for longer than they stay in memory by themselves;
/// then they are asked.
fn left_alone_by_the_leader() -> Plan {
    let isolate = Fault::Isolate { side: vec![Who::Leader], direction: Direction::Both, span: 3 * SECOND };
    seldom_asked(Plan::scripted(rounds(6 * SECOND, &[(3 * SECOND, isolate)])))
}

/// Nobody asks for anything until the group has fallen asleep; then the leader is cut off, and the others are
/// asked.
fn asleep_and_cut_off() -> Plan {
    let silence = Fault::Silence { span: 800 * MILLI };
    let isolate = Fault::Isolate { side: vec![Who::Leader], direction: Direction::Both, span: 2 * SECOND };
    seldom_asked(Plan::scripted(rounds(4 * SECOND, &[(2 * SECOND, silence), (2_600 * MILLI, isolate)])))
}

/// A plan with few operations at all nodes, whose groups sleep soon.
fn seldom_asked(plan: Plan) -> Plan {
    let plan = Plan { sleep_after_ms: 200, keys: 1, clients: 2, follows_per_mille: 900, ..plan };
    Plan { think: (50 * MILLI, 900 * MILLI), writes_per_mille: 200, ..plan }
}

/// A node can be reached by the leader of the right half, which is new, and not by that of the left half, so
/// that it has not heard of the split.
fn right_before_left() -> Plan {
    let (left, right, late) = (Who::Node(1), Who::Node(2), Who::Node(3));
    let isolate = Fault::Isolate { side: vec![late], direction: Direction::Both, span: 2_500 * MILLI };
    let cut = Fault::CutPair { one: left, other: late, direction: Direction::Both, span: 3_500 * MILLI };
    let faults = [
        (2 * SECOND, Fault::Concern(Which::First)),
        (2_010 * MILLI, Fault::Transfer { to: left }),
        (2_500 * MILLI, isolate),
        (3 * SECOND, Fault::Split { at: None }),
        (3_300 * MILLI, Fault::Concern(Which::Newest)),
        (3_310 * MILLI, Fault::Transfer { to: right }),
        (4_500 * MILLI, cut),
    ];
    Plan { keys: 10, log_keep: 1000, ..Plan::scripted(rounds(7 * SECOND, &faults)) }
}

/// A node hears of a new range's leader before it hears of the split; that leader needs its support, for the
/// other node wants its place.
fn heard_of_before_it_is_split() -> Plan {
    let late = Who::Node(3);
    let isolate = Fault::Isolate { side: vec![late], direction: Direction::Both, span: 3 * SECOND };
    let cut = Fault::CutPair {
        one: Who::Node(1),
        other: Who::Node(2),
        direction: Direction::Both,
        span: 4 * SECOND,
    };
    let faults = [(2_500 * MILLI, isolate), (2_800 * MILLI, Fault::Split { at: None }), (4 * SECOND, cut)];
    let plan = Plan { keys: 10, log_keep: 1000, ..Plan::scripted(rounds(7 * SECOND, &faults)) };
    Plan { clients: 4, think: (20 * MILLI, 200 * MILLI), ..plan }
}

/// A node is told that a range is gone before it has heard that there is one.
fn destroyed_before_it_is_created() -> Plan {
    let isolate =
        Fault::Isolate { side: vec![Who::Follower(0)], direction: Direction::Both, span: 2_500 * MILLI };
    let faults = [
        (2_500 * MILLI, isolate),
        (3 * SECOND, Fault::CreateTenant),
        (3_800 * MILLI, Fault::DropTenant { within: 500 * MILLI }),
    ];
    Plan { log_keep: 1000, ..Plan::scripted(rounds(5 * SECOND, &faults)) }
}

/// Followers serve reads, and now and then cannot write.
fn followers_without_space() -> Plan {
    let full = |at: Micros, place| {
        let fault = Fault::FullDisk { who: Who::Follower(place), span: 150 * MILLI };
        (2 * SECOND + at * MILLI, fault)
    };
    let faults = [full(0, 0), full(200, 1), full(400, 0), full(600, 1), full(800, 0), full(1_000, 1)];
    let storm = Weather { delay: (100, 10 * MILLI), ..Weather::FAIR };
    let plan = Plan { weather: storm, keys: 1, clients: 8, ..Plan::scripted(rounds(1_200 * MILLI, &faults)) };
    Plan { think: (MILLI, 10 * MILLI), writes_per_mille: 300, follows_per_mille: 900, ..plan }
}

/// A node that did nothing for a while finds that some of what it was sent for one range is missing; the leader
/// tells it how far the log is committed and sends a snapshot at once, while the node writes for another range.
fn snapshot_behind_commit() -> Plan {
    let slow = Fault::SlowDisk { who: Who::Node(3), sync: 20 * MILLI, span: 2 * SECOND };
    let pause = Fault::Pause { who: Who::Node(3), span: 1_500 * MILLI };
    let split = Fault::Split { at: None };
    let faults = [(SECOND, split), (2 * SECOND, slow), (2 * SECOND, pause)];
    let lossy = Weather { lost_per_mille: 50, ..Weather::FAIR };
    let plan =
        Plan { weather: lossy, log_keep: 5, keys: 10, ..Plan::scripted(rounds(2_500 * MILLI, &faults)) };
    let plan = Plan { sync: (MILLI, 5 * MILLI), follows_per_mille: 900, ..plan };
    Plan { clients: 8, think: (MILLI, 20 * MILLI), writes_per_mille: 700, ..plan }
}

/// A node is removed while another is away. That other comes back where it reaches nobody but the one removed,
/// whom it takes for a member.
fn asked_by_one_that_was_away() -> Plan {
    let (leader, away, removed) = (Who::Node(1), Who::Node(2), Who::Node(3));
    let apart = |side: Vec<Who>, span| Fault::Isolate { side, direction: Direction::Both, span };
    let faults = vec![
        (1_500 * MILLI, Fault::Transfer { to: leader }),
        (2_500 * MILLI, Fault::AddLearner(4)),
        (4 * SECOND, apart(vec![away], 2 * SECOND)),
        (4_500 * MILLI, Fault::SetVoters(vec![1, 2, 4])),
        (5_800 * MILLI, apart(vec![away, removed], 5 * SECOND)),
    ];
    Plan::scripted(faults)
}

/// Of three nodes one is away when the range is split, and comes back for a snapshot from beyond the split; another
/// crashes before it has applied the split, and comes back for such a snapshot too.
fn split_on_one_node() -> Plan {
    let (away, crashes) = (Who::Node(2), Who::Node(3));
    let isolate = Fault::Isolate { side: vec![away], direction: Direction::Both, span: 2_500 * MILLI };
    let crash = Fault::Crash { who: crashes, loss: Loss::AllUnsynced, down: 3 * SECOND };
    let faults = [
        (1_500 * MILLI, Fault::Transfer { to: Who::Node(1) }),
        (2_500 * MILLI, isolate),
        (4_900 * MILLI, Fault::Split { at: None }),
        (4_901_500, crash),
    ];
    let plan = Plan { keys: 10, log_keep: 1, ..Plan::scripted(rounds(8 * SECOND, &faults)) };
    Plan { clients: 3, think: (5 * MILLI, 50 * MILLI), ..plan }
}

/// Nodes lead several ranges, some of which have had leaders with clocks far ahead, and say what is closed without
/// writing.
fn clocks_of_other_ranges() -> Plan {
    let mut faults = vec![
        (1_500 * MILLI, Fault::Split { at: None }),
        (2 * SECOND, Fault::Concern(Which::Newest)),
        (2_010 * MILLI, Fault::Transfer { to: Who::Follower(0) }),
        (2_020 * MILLI, Fault::Concern(Which::First)),
    ];
    faults.extend((1..8).map(|time| ((2_000 + 100 * time) * MILLI, Fault::Configure)));
    faults.push((2_900 * MILLI, Fault::Transfer { to: Who::Follower(1) }));
    let plan = Plan { keys: 3, wall_error: 20_000_000, ..Plan::scripted(rounds(2 * SECOND, &faults)) };
    Plan { past_per_mille: 700, clients: 4, think: (50 * MILLI, 400 * MILLI), ..plan }
}
