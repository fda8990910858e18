//! Scripts: a sequence of steps and the trace it must give.
//!
//! `lock T K s|x` asks for a shared or exclusive lock and would wait, `try T K s|x` would not,
//! `intent T K` notes an intent, `cancel N` gives up the wait numbered N, `release T` ends a
//! transaction, `within T K` what it has at one key. Each step yields one line; granted waiters are listed in order.

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
                        0,
                        Some(waker)
                    )
                )
            }
            "try" => {
                let none: Option<fn() -> String> = None;
                format!(
                    "{:?}",
                    table.acquire(
                        txn(words[1]),
                        priority(words[1]),
                        words[2].as_bytes(),
                        strength(),
                        0,
                        none
                    )
                )
            }
            "intent" => {
                table.hold_for_intent(txn(words[1]), words[2].as_bytes(), 0);
                "ok".to_owned()
            }
            "cancel" => woken(table.cancel(words[1].parse().expect("a number"))),
            "release" => woken(table.release(txn(words[1]))),
            "within" => {
                let key = Span::point(Bytes::copy_from_slice(words[2].as_bytes()));
                woken(table.release_within(txn(words[1]), &key))
            }
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
        table.acquire(one, Priority::Normal, b"k", LockStrength::Exclusive, 0, Some(|| 1)),
        Acquire::Granted
    );
    table.hold_for_intent(other, b"k", 0);
    assert!(!table.is_free(one, b"k", LockStrength::Exclusive));
    let Acquire::Waiting(_) =
        table.acquire(one, Priority::Normal, b"k", LockStrength::Exclusive, 0, Some(|| 2))
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
fn nothing_is_left_of_one_whose_only_lock_was_taken() {
    let trace = run("lock l k x
        try h k x
        losers
        within l k
        release h
        empty");
    assert_eq!(trace, ["Granted", "Granted", "l", "nobody", "nobody", "true"]);
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

fn numbered(number: u32) -> TxnKey {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    TxnKey { tenant: 2, id }
}

/// What ten thousand waiters do is to end soon: with the square of as many steps it does not.
const MANY: u32 = 10_000;

#[test]
fn ten_thousand_wait_for_one_key_and_are_granted_in_order() {
    let mut table = LockTable::default();
    let ask = |table: &mut LockTable<u32>, number| {
        table.acquire(numbered(number), Priority::Normal, b"k", LockStrength::Exclusive, 0, Some(|| number))
    };
    assert_eq!(ask(&mut table, 0), Acquire::Granted);
    for number in 1..=MANY {
        // Everybody holds something that somebody else waits for.
        let own = number.to_be_bytes();
        let hold =
            table.acquire(numbered(number), Priority::Normal, &own, LockStrength::Exclusive, 0, Some(|| 0));
        assert_eq!(hold, Acquire::Granted);
        let other = numbered(number + 2 * MANY);
        let wait = table.acquire(other, Priority::Normal, &own, LockStrength::Exclusive, 0, Some(|| number));
        assert!(matches!(wait, Acquire::Waiting(_)), "{wait:?}");
        let wait = ask(&mut table, number);
        assert!(matches!(wait, Acquire::Waiting(_)), "{wait:?}");
    }
    assert_eq!(table.waits(2).len() as u32, 2 * MANY, "edges");
    assert_eq!(table.list_awaited(&all(), 5).0.len(), 5);
    // The one that all wait for must not wait for the last of them.
    let last = table.acquire(
        numbered(0),
        Priority::Normal,
        &MANY.to_be_bytes(),
        LockStrength::Shared,
        0,
        Some(|| 0),
    );
    assert_eq!(last, Acquire::Deadlock);
    for number in 0..=MANY {
        let woken = table.release(numbered(number));
        let next = woken.iter().filter(|wakeup| wakeup.txn == numbered(number + 1)).count();
        assert_eq!(next, usize::from(number < MANY), "{number}");
        let _ = table.release(numbered(number + 2 * MANY));
    }
    assert!(table.is_empty());
}

#[test]
fn ten_thousand_share_a_key_and_leave_it_in_any_order() {
    let mut table = LockTable::default();
    let mut waiters = Vec::new();
    for number in 0..MANY {
        let granted =
            table.acquire(numbered(number), Priority::Normal, b"k", LockStrength::Shared, 0, Some(|| 0));
        assert_eq!(granted, Acquire::Granted);
    }
    for number in MANY..2 * MANY {
        let strength = if number % 2 == 0 { LockStrength::Exclusive } else { LockStrength::Shared };
        let Acquire::Waiting(waiter) =
            table.acquire(numbered(number), Priority::Normal, b"k", strength, 0, Some(|| number))
        else {
            panic!("{number} must wait")
        };
        waiters.push(waiter);
    }
    let edges = table.waits(2).len() as u32;
    assert!(edges <= 3 * MANY, "{edges} edges");
    for number in (0..MANY).rev() {
        let woken = table.release(numbered(number));
        assert_eq!(woken.len(), usize::from(number == 0), "{number}");
    }
    for waiter in waiters.into_iter().rev() {
        let _ = table.cancel(waiter);
    }
    let _ = table.release(numbered(MANY));
    assert!(table.is_empty());
}

#[test]
fn a_transaction_with_ten_thousand_locks_waits_and_ends() {
    let mut table = LockTable::default();
    let (holder, waits) = (numbered(0), |number| numbered(number + 1));
    for number in 0..MANY {
        let granted = table.acquire(
            holder,
            Priority::Normal,
            &number.to_be_bytes(),
            LockStrength::Exclusive,
            0,
            Some(|| 0),
        );
        assert_eq!(granted, Acquire::Granted);
    }
    for number in 0..MANY {
        let key = number.to_be_bytes();
        let wait =
            table.acquire(waits(number), Priority::Normal, &key, LockStrength::Exclusive, 0, Some(|| number));
        assert!(matches!(wait, Acquire::Waiting(_)));
    }
    assert_eq!(
        table.acquire(waits(MANY), Priority::Normal, b"x", LockStrength::Exclusive, 0, Some(|| 0)),
        Acquire::Granted
    );
    for _ in 0..100 {
        let Acquire::Waiting(waiter) =
            table.acquire(holder, Priority::Normal, b"x", LockStrength::Exclusive, 0, Some(|| 0))
        else {
            panic!("it must wait")
        };
        let _ = table.cancel(waiter);
    }
    assert_eq!(table.release(holder).len() as u32, MANY);
}

#[test]
fn a_queue_is_bounded() {
    let mut table = LockTable::default();
    table.bound_queues(2);
    let mut ask = |number, key| {
        table.acquire(numbered(number), Priority::Normal, key, LockStrength::Exclusive, 0, Some(|| number))
    };
    assert_eq!(ask(0, b"k"), Acquire::Granted);
    assert!(matches!(ask(1, b"k"), Acquire::Waiting(_)));
    assert!(matches!(ask(2, b"k"), Acquire::Waiting(_)));
    assert_eq!(ask(3, b"k"), Acquire::Full);
    assert_eq!(ask(3, b"l"), Acquire::Granted, "other keys have queues of their own");
}

fn all() -> Span {
    Span::new(Bytes::new(), Bytes::from_static(&[0xff]))
}

#[test]
fn a_listing_says_who_waits_for_whom_and_since_when() {
    let mut table = LockTable::default();
    let (a, b, c) = (txn("a"), txn("b"), txn("c"));
    let ask = |table: &mut LockTable<u32>, txn, key: &[u8], now| {
        table.acquire(txn, Priority::Normal, key, LockStrength::Exclusive, now, Some(|| 0))
    };
    assert_eq!(ask(&mut table, a, b"k", 10), Acquire::Granted);
    assert_eq!(ask(&mut table, a, b"j", 11), Acquire::Granted);
    let Acquire::Waiting(first) = ask(&mut table, b, b"k", 20) else { panic!("it must wait") };
    assert!(matches!(ask(&mut table, c, b"k", 30), Acquire::Waiting(_)));
    assert_eq!(table.blocker(first), Some(a));
    let (awaited, more) = table.list_awaited(&all(), 9);
    let shown = awaited.into_iter().map(|wait| (wait.txn, wait.since, wait.blockers)).collect::<Vec<_>>();
    assert_eq!((shown, more), (vec![(b, 20, vec![a]), (c, 30, vec![a, b])], false));
    let held = |table: &LockTable<u32>, limit| {
        let (held, more) = table.list_held(&all(), limit);
        (held.into_iter().map(|held| (held.key, held.txn, held.since)).collect::<Vec<_>>(), more)
    };
    let key = |name: &'static str| Bytes::from_static(name.as_bytes());
    assert_eq!(held(&table, 9), (vec![(key("j"), a, Some(11)), (key("k"), a, Some(10))], false));
    assert_eq!(held(&table, 1), (vec![(key("k"), a, Some(10))], true), "what is contended comes first");
    assert_eq!(table.release(a).len(), 1);
    assert_eq!(held(&table, 9), (vec![(key("k"), b, None)], false));
    table.note_granted(b, b"k", 40);
    table.note_granted(b, b"k", 50);
    assert_eq!(held(&table, 9), (vec![(key("k"), b, Some(40))], false));
    assert!(!table.is_waiting(first) && table.waiters() == 1);
}

/// The edges that a queue comes to, had nothing been left out.
fn all_edges(table: &LockTable<u32>) -> HashSet<(TxnKey, TxnKey)> {
    let mut edges = HashSet::new();
    for lock in table.locks.values() {
        for (place, waiter) in lock.queue() {
            edges.extend(
                lock.blockers(&table.standings, waiter.txn, waiter.strength, *place)
                    .map(|to| (waiter.txn, to)),
            );
        }
    }
    edges
}

fn reach(edges: &HashSet<(TxnKey, TxnKey)>, from: TxnKey) -> HashSet<TxnKey> {
    let (mut seen, mut next) = (HashSet::new(), vec![from]);
    while let Some(txn) = next.pop() {
        next.extend(
            edges.iter().filter(|edge| edge.0 == txn).map(|edge| edge.1).filter(|to| seen.insert(*to)),
        );
    }
    seen
}

#[test]
fn what_is_left_out_follows_and_no_request_closes_a_cycle_unseen() {
    // A small generator: numbers of a linear congruence.
    let mut state = 1_u64;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32) % below
    };
    let mut deadlocks = 0;
    for _ in 0..300 {
        let mut table = LockTable::default();
        let mut waiters = Vec::new();
        for _ in 0..60 {
            let txn = numbered(random(7));
            let key = [random(4) as u8];
            let strength = if random(2) == 0 { LockStrength::Shared } else { LockStrength::Exclusive };
            match random(12) {
                0 => drop(table.release(txn)),
                1 if !waiters.is_empty() => drop(table.cancel(waiters.swap_remove(0))),
                _ => {
                    let before = all_edges(&table);
                    let expected = table.locks.get(&key[..]).is_some_and(|lock| {
                        let place = lock.place(&table.standings, txn, table.next_waiter);
                        !table.is_free(txn, &key, strength)
                            && lock
                                .blockers(&table.standings, txn, strength, place)
                                .any(|other| other == txn || reach(&before, other).contains(&txn))
                    });
                    let came = table.acquire(txn, Priority::Normal, &key, strength, 0, Some(|| 0));
                    assert_eq!(came == Acquire::Deadlock, expected, "{came:?}");
                    deadlocks += usize::from(expected);
                    waiters.extend(if let Acquire::Waiting(id) = came { Some(id) } else { None });
                }
            }
            let key_of = |(from, to)| (TxnKey { tenant: 2, id: from }, TxnKey { tenant: 2, id: to });
            let listed: HashSet<_> = table.waits(2).into_iter().map(key_of).collect();
            let whole = all_edges(&table);
            for txn in (0..7).map(numbered) {
                assert_eq!(reach(&listed, txn), reach(&whole, txn));
                assert!(!reach(&whole, txn).contains(&txn), "a cycle");
            }
        }
    }
    assert!(deadlocks > 100, "{deadlocks}");
}
