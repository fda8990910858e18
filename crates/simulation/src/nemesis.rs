//! Draws faults by chance.

use crate::clock::{MAX_RATE_PPM, MILLI, Micros, SECOND};
use crate::fault::{Direction, Fault, Loss, Who};
use crate::network::Weather;
use crate::plan::{Menu, NODES, Plan};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// Draws the next fault of a run.
pub fn draw(plan: &Plan, rng: &mut SmallRng) -> Fault {
    match plan.menu.choose(rng).unwrap_or(&Menu::Crashes) {
        Menu::Crashes => crash(rng),
        Menu::Outages => Fault::Outage { loss: loss(rng), down: down(rng) },
        Menu::Pauses => Fault::Pause { who: who(rng), span: rng.random_range(100 * MILLI..4 * SECOND) },
        Menu::Cuts => cut(rng),
        Menu::IsolatedLeaders => {
            Fault::Isolate { side: vec![Who::Leader], direction: direction(rng), span: span(rng) }
        }
        Menu::Storms => Fault::Storm { weather: storm(rng), span: rng.random_range(SECOND..6 * SECOND) },
        Menu::SlowDisks => Fault::SlowDisk {
            who: who(rng),
            sync: rng.random_range(10 * MILLI..2 * SECOND),
            span: rng.random_range(SECOND..5 * SECOND),
        },
        Menu::FullDisks => Fault::FullDisk { who: who(rng), span: rng.random_range(100 * MILLI..3 * SECOND) },
        Menu::Clocks if rng.random_bool(0.5) && plan.wall_error > 0 => Fault::SetWallClock {
            who: who(rng),
            offset: rng.random_range(-plan.wall_error..=plan.wall_error),
        },
        Menu::Clocks => {
            Fault::SetRate { who: who(rng), rate_ppm: rng.random_range(-MAX_RATE_PPM..=MAX_RATE_PPM) }
        }
        Menu::Transfers => Fault::Transfer { to: who(rng) },
        Menu::Members => Fault::ChangeMembers,
        Menu::Splits => Fault::Split { at: None },
        // There must be something to merge.
        Menu::Merges if rng.random_bool(0.3) => Fault::Split { at: None },
        Menu::Merges => Fault::Merge,
        Menu::Tenants if rng.random_bool(0.2) => Fault::Configure,
        Menu::Tenants if rng.random_bool(0.6) => Fault::CreateTenant,
        Menu::Tenants => Fault::DropTenant { within: rng.random_range(10 * MILLI..8 * SECOND) },
        Menu::Silence => Fault::Silence { span: rng.random_range(SECOND..6 * SECOND) },
        Menu::SlowEvaluation => Fault::SlowEvaluation {
            delay: rng.random_range(10 * MILLI..4 * SECOND),
            span: rng.random_range(SECOND..5 * SECOND),
        },
    }
}

fn who(rng: &mut SmallRng) -> Who {
    match rng.random_range(0..3) {
        0 => Who::Leader,
        1 => Who::Follower(rng.random_range(0..4)),
        _ => Who::Node(rng.random_range(1..=NODES)),
    }
}

fn loss(rng: &mut SmallRng) -> Loss {
    *[Loss::Nothing, Loss::Some, Loss::AllUnsynced].choose(rng).unwrap_or(&Loss::Some)
}

fn down(rng: &mut SmallRng) -> Micros {
    // Often so short that what was promised before the crash still stands.
    if rng.random_bool(0.5) {
        rng.random_range(MILLI..500 * MILLI)
    } else {
        rng.random_range(SECOND..6 * SECOND)
    }
}

fn span(rng: &mut SmallRng) -> Micros {
    if rng.random_bool(0.7) {
        rng.random_range(200 * MILLI..4 * SECOND)
    } else {
        rng.random_range(4 * SECOND..15 * SECOND)
    }
}

fn direction(rng: &mut SmallRng) -> Direction {
    *[Direction::Both, Direction::Both, Direction::Inwards, Direction::Outwards]
        .choose(rng)
        .unwrap_or(&Direction::Both)
}

fn crash(rng: &mut SmallRng) -> Fault {
    let (who, loss, down) = (who(rng), loss(rng), down(rng));
    match rng.random_range(0..4) {
        0 => Fault::CrashAfterPersist { who, loss, down },
        1 => Fault::CrashBetweenWrites { who, writes: rng.random_range(0..6), loss, down },
        _ => Fault::Crash { who, loss, down },
    }
}

fn cut(rng: &mut SmallRng) -> Fault {
    let (direction, span) = (direction(rng), span(rng));
    if rng.random_bool(0.5) {
        return Fault::CutPair { one: who(rng), other: who(rng), direction, span };
    }
    let side = (1..=NODES).filter(|_| rng.random_bool(0.4)).map(Who::Node).collect();
    Fault::Isolate { side, direction, span }
}

fn storm(rng: &mut SmallRng) -> Weather {
    let slowest = *[5 * MILLI, 100 * MILLI, 800 * MILLI].choose(rng).unwrap_or(&MILLI);
    Weather {
        delay: (200, slowest),
        late_per_mille: *[0, 50, 300].choose(rng).unwrap_or(&0),
        late: (slowest, slowest + 2 * SECOND),
        lost_per_mille: *[0, 50, 300].choose(rng).unwrap_or(&0),
        repeated_per_mille: *[0, 20, 200].choose(rng).unwrap_or(&0),
    }
}
