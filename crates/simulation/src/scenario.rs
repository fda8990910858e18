//! Scenarios: schedules for bugs that chance seldom meets. Time and place are chosen so that the bug has its
//! opportunity; the seed still decides the details, and whether it is taken.

use crate::clock::{MILLI, Micros, SECOND};
use crate::fault::{Direction, Fault, Loss, Who};
use crate::network::Weather;
use crate::plan::Plan;
use replication::Bug;

/// How often the faults of a scenario come again in one run.
const ROUNDS: u64 = 4;

/// The scenario for a bug, if it needs one.
pub fn scenario(bug: Bug) -> Option<Plan> {
    match bug {
        Bug::SupportIgnoredInVote => Some(second_candidate(None)),
        Bug::NoGraceAfterRestart => Some(second_candidate(Some(50 * MILLI))),
        Bug::ServesWhileTransferring => Some(deaf_leader_hands_over()),
        Bug::LeaseNotChecked => Some(lease_there_and_back()),
        Bug::IncompleteForgotten => Some(snapshot_broken_off()),
        Bug::UnknownLeaderSupported => Some(deposed_leader_returns()),
        Bug::SupportFromArrival => Some(late_answers()),
        _ => None,
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
