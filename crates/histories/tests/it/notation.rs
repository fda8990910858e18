//! Histories as text, a transaction on each line:
//!
//! ```text
//! c 10-20 r1:5,6 a1:7 g2:- w2:8
//! ```
//!
//! The outcome (`c`ommitted, `a`borted, `u`nknown; `rc` after it: READ COMMITTED), beginning and end (`10-`: no end),
//! and what was done: `r1:5,6` read list 1 as [5, 6], `a1:7` appended 7 to it, `g2:-` read register 2 when it was
//! empty, `w2:8` wrote 8 to it. Ids count from one.

use histories::{History, Isolation, Op, Outcome, Txn};

pub fn history<'a>(lines: impl IntoIterator<Item = &'a str>) -> History {
    History { txns: (1..).zip(lines).map(|(id, line)| txn(id, line)).collect() }
}

fn txn(id: u64, line: &str) -> Txn {
    let mut words = line.split_whitespace();
    let outcome = words.next().unwrap();
    let (invoked, completed) = words.next().unwrap().split_once('-').unwrap();
    Txn {
        id,
        process: 0,
        invoked: invoked.parse().unwrap(),
        completed: completed.parse().ok(),
        outcome: match &outcome[..1] {
            "c" => Outcome::Committed,
            "a" => Outcome::Aborted,
            _ => Outcome::Unknown,
        },
        isolation: if outcome.ends_with("rc") { Isolation::ReadCommitted } else { Isolation::Serializable },
        ops: words.map(op).collect(),
    }
}

fn op(word: &str) -> Op {
    let (object, value) = word.split_once(':').unwrap();
    let key = object[1..].parse().unwrap();
    match &object[..1] {
        "a" => Op::Append { key, value: value.parse().unwrap() },
        "w" => Op::Write { key, value: value.parse().unwrap() },
        "g" => Op::Read { key, value: value.parse().ok() },
        "r" => {
            Op::ReadList { key, values: value.split(',').filter_map(|value| value.parse().ok()).collect() }
        }
        other => panic!("{other}"),
    }
}
