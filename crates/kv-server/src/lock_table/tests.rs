//! Scripts: a sequence of steps and the trace it must give.
//!
//! `lock T K s|x` asks for a shared or exclusive lock and would wait, `try T K s|x` would not,
//! `intent T K` notes an intent, `cancel N` gives up the wait numbered N, `release T` ends a
//! transaction. Each step yields one line; granted waiters are listed in order.

use super::*;

fn txn(name: &str) -> TxnKey {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    TxnKey { tenant: 2, id }
}

/// Names that begin with `h` or `l` are those of transactions of high or low priority.
fn priority(name: &str) -> Priority {
    match name.as_bytes()[0] {
        b'h' => Priority::High,
        b'l' => Priority::Low,
        _ => Priority::Normal,
    }
}

fn run(script: &str) -> Vec<String> {
    let mut table: LockTable<String> = LockTable::default();
    let mut trace = Vec::new();
    let woken = |wakeups: Vec<Wakeup<String>>| {
        let names: Vec<_> = wakeups.into_iter().map(|wakeup| wakeup.waker).collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }
    };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let strength = || if words[3] == "s" { LockStrength::Shared } else { LockStrength::Exclusive };
        let result = match words[0] {
            "lock" => {
                let waker = || format!("{}:{}", words[1], words[2]);
                format!(
                    "{:?}",
                    table.acquire(
                        txn(words[1]),
                        priority(words[1]),
                        words[2].as_bytes(),
                        strength(),
                        Some(waker)
                    )
                )
            }
            "try" => {
                let none: Option<fn() -> String> = None;
                format!(
                    "{:?}",
                    table.acquire(txn(words[1]), priority(words[1]), words[2].as_bytes(), strength(), none)
                )
            }
            "intent" => {
                table.hold_for_intent(txn(words[1]), words[2].as_bytes());
                "ok".to_owned()
            }
            "cancel" => woken(table.cancel(words[1].parse().expect("a number"))),
            "release" => woken(table.release(txn(words[1]))),
            "firm" => {
                table.make_firm(txn(words[1]));
                "ok".to_owned()
            }
            "losers" => {
                let losers = table.take_losers().into_iter();
                let name = |txn: TxnKey| String::from_utf8_lossy(&txn.id).trim_end_matches('\0').to_owned();
                losers.map(name).collect::<Vec<_>>().join(" ")
            }
            "empty" => table.is_empty().to_string(),
            other => panic!("no such step: {other}"),
        };
        trace.push(result);
    }
    trace
}

#[test]
fn exclusive_locks_are_granted_in_arrival_order() {
    let trace = run("lock a k x
        lock b k x
        lock c k x
        lock a k x
        release a
        release b
        release c
        empty");
    assert_eq!(trace, ["Granted", "Waiting(1)", "Waiting(2)", "Granted", "b:k", "c:k", "nobody", "true"]);
}

#[test]
fn shared_locks_share_but_do_not_overtake_a_waiting_exclusive_one() {
    let trace = run("lock a k s
        lock b k s
        lock c k x
        lock d k s
        lock e k s
        try f k s
        release a
        release b
        release c
        release d
        release e
        empty");
    assert_eq!(
        trace,
        [
            "Granted",
            "Granted",
            "Waiting(1)",
            "Waiting(2)",
            "Waiting(3)",
            "Conflict",
            "nobody",
            "c:k",
            "d:k e:k",
            "nobody",
            "nobody",
            "true"
        ]
    );
}

#[test]
fn a_lone_shared_holder_upgrades_at_once_and_ahead_of_waiters() {
    let trace = run("lock a k s
        lock b k x
        lock a k x
        try c k s
        release a
        release b
        empty");
    assert_eq!(trace, ["Granted", "Waiting(1)", "Granted", "Conflict", "b:k", "nobody", "true"]);
}

#[test]
fn an_upgrade_waits_for_the_other_holders_and_goes_before_the_queue() {
    let trace = run("lock a k s
        lock b k s
        lock c k x
        lock a k x
        release b
        release a
        release c
        empty");
    assert_eq!(trace, ["Granted", "Granted", "Waiting(1)", "Waiting(2)", "a:k", "c:k", "nobody", "true"]);
}

#[test]
fn two_upgrades_of_one_key_are_a_deadlock() {
    let trace = run("lock a k s
        lock b k s
        lock a k x
        lock b k x
        release b");
    assert_eq!(trace, ["Granted", "Granted", "Waiting(1)", "Deadlock", "a:k"]);
}

#[test]
fn a_cycle_is_refused_to_the_request_that_closes_it() {
    let trace = run("lock a 1 x
        lock b 2 x
        lock c 3 x
        lock a 2 x
        lock b 3 x
        lock c 1 x
        release c
        release b
        release a
        empty");
    assert_eq!(
        trace,
        [
            "Granted",
            "Granted",
            "Granted",
            "Waiting(1)",
            "Waiting(2)",
            "Deadlock",
            "b:3",
            "a:2",
            "nobody",
            "true"
        ]
    );
}

#[test]
fn a_cycle_through_a_queue_is_found() {
    // c waits behind b, b waits for a; a waiting for c would close the cycle.
    let trace = run("lock a 1 s
        lock b 1 x
        lock c 2 x
        lock c 1 s
        lock a 2 x");
    assert_eq!(trace, ["Granted", "Waiting(1)", "Granted", "Waiting(2)", "Deadlock"]);
}

#[test]
fn a_waiter_that_gives_up_lets_those_behind_it_go() {
    let trace = run("lock a k s
        lock b k x
        lock c k s
        cancel 1
        cancel 1
        lock d k x
        release d
        release a
        release c
        empty");
    assert_eq!(
        trace,
        [
            "Granted",
            "Waiting(1)",
            "Waiting(2)",
            "c:k",
            "nobody",
            "Waiting(3)",
            "nobody",
            "nobody",
            "nobody",
            "true"
        ]
    );
}

#[test]
fn requests_that_would_not_wait_leave_no_trace() {
    let trace = run("lock a k x
        try b k x
        try b k s
        release a
        empty");
    assert_eq!(trace, ["Granted", "Conflict", "Conflict", "nobody", "true"]);
}

#[test]
fn an_intent_holds_its_key_until_its_transaction_ends() {
    let trace = run("intent a k
        lock b k x
        intent a k
        release a
        lock a 2 x
        lock b 2 x
        lock a k x
        release b
        release a
        empty");
    assert_eq!(
        trace,
        ["ok", "Waiting(1)", "ok", "b:k", "Granted", "Waiting(2)", "Deadlock", "nobody", "nobody", "true"]
    );
}

#[test]
fn a_transaction_may_wait_in_several_places() {
    let trace = run("lock a 1 x
        lock b 2 x
        lock c 1 x
        lock c 2 x
        lock a 2 x
        release b
        release c
        release a
        empty");
    assert_eq!(
        trace,
        ["Granted", "Granted", "Waiting(1)", "Waiting(2)", "Deadlock", "c:2", "nobody", "nobody", "true"]
    );
}

#[test]
fn a_holder_waits_for_an_intent_that_is_found_under_its_lock() {
    let mut table = LockTable::default();
    let (one, other) = (txn("one"), txn("other"));
    assert_eq!(
        table.acquire(one, Priority::Normal, b"k", LockStrength::Exclusive, Some(|| 1)),
        Acquire::Granted
    );
    table.hold_for_intent(other, b"k");
    assert!(!table.is_free(one, b"k", LockStrength::Exclusive));
    let Acquire::Waiting(_) = table.acquire(one, Priority::Normal, b"k", LockStrength::Exclusive, Some(|| 2))
    else {
        panic!("it must wait")
    };
    let woken = table.release(other);
    assert_eq!(woken.iter().map(|wakeup| wakeup.waker).collect::<Vec<_>>(), [2]);
    assert!(table.is_free(one, b"k", LockStrength::Exclusive));
    assert!(table.release(one).is_empty() && table.is_empty());
}

#[test]
fn high_priority_takes_locks_from_low_priority() {
    let trace = run("lock l1 k x
        lock n k x
        lock l2 k x
        lock h k x
        losers
        release n
        losers
        release l1
        lock l1 k s
        release h
        release l2
        release l1
        empty");
    assert_eq!(
        trace,
        [
            "Granted",
            "Waiting(1)",
            "Waiting(2)",
            // Behind the one of normal priority, for whom the holder is in the way.
            "Waiting(3)",
            "",
            "h:k",
            "l1",
            "nobody",
            "Waiting(4)",
            "l2:k",
            "l1:k",
            "nobody",
            "true"
        ]
    );
    let trace = run("lock l1 k s
        lock l2 k s
        try n k x
        try h k x
        losers
        lock l1 k s
        release h
        release l1
        release l2
        empty");
    let expected = [
        "Granted",
        "Granted",
        "Conflict",
        "Granted",
        "l1 l2",
        "Waiting(1)",
        "l1:k",
        "nobody",
        "nobody",
        "true",
    ];
    assert_eq!(trace, expected);
}

#[test]
fn locks_of_firm_transactions_are_not_taken() {
    let trace = run("lock l1 k x
        firm l1
        try h k x
        lock l2 m x
        intent l2 n
        try h m x
        lock n o x
        try h o x
        lock h2 p x
        try h p x
        release l1
        release l2
        release n
        release h2
        release h
        empty");
    let expected = [
        "Granted", "ok", "Conflict", "Granted", "ok", "Conflict", "Granted", "Conflict", "Granted",
        "Conflict", "nobody", "nobody", "nobody", "nobody", "nobody", "true",
    ];
    assert_eq!(trace, expected);
}

#[test]
fn the_lowest_priority_of_a_cycle_gives_way() {
    let cycle = |first: &str, second: &str| {
        let script = format!(
            "lock {first} j x
            lock {second} k x
            lock {first} k x
            lock {second} j x"
        );
        run(&script).pop().unwrap_or_default()
    };
    assert_eq!(cycle("n", "m"), "Deadlock", "the one that closes it");
    assert_eq!(cycle("n", "l"), "Deadlock");
    assert_eq!(cycle("h", "n"), "Deadlock");
    assert_eq!(cycle("l", "n"), format!("{:?}", Acquire::DeadlockOf(txn("l"))));
    assert_eq!(cycle("n", "h"), format!("{:?}", Acquire::DeadlockOf(txn("n"))));
}
