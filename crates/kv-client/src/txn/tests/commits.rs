//! Commits of transactions over several ranges.

use super::super::model::{Model, Play, RANGE, Record};
use super::{begin, bytes, kind, put, wall_ns};
use crate::deadline::{CommitDeadline, CommitDeadlines};
use crate::{Isolation, Txn, TxnOptions};
use kv_api::batch::{BatchRequest, EndTxn, Prepare, RequestKind};
use kv_api::{KvError, KvErrorKind, LockStrength, Timestamp};
use std::sync::Arc;

const OTHER: u64 = RANGE + 1;

/// Two ranges that meet at `m`.
async fn two_ranges() -> Arc<Model> {
    let model = Model::start();
    assert_eq!(model.split("m", 1), OTHER);
    for key in ["a", "n"] {
        put(&model, key, "1").await;
    }
    model.store.lock().received.clear();
    model
}

fn write(txn: &Txn, keys: &[&str]) {
    keys.iter().for_each(|key| txn.put(key.as_bytes(), bytes("new")).unwrap());
}

fn prepare(batch: &BatchRequest) -> Option<&Prepare> {
    match batch.requests.last()?.kind.as_ref()? {
        RequestKind::EndTxn(end) => end.prepare.as_ref(),
        _ => None,
    }
}

/// Lets something become of the first batches that match.
fn script(
    model: &Model,
    times: usize,
    matches: impl Fn(&BatchRequest) -> bool + Send + 'static,
    play: fn() -> Play,
) {
    let mut left = times;
    model.store.lock().script = Some(Box::new(move |batch| {
        if left > 0 && matches(batch) {
            left -= 1;
            return play();
        }
        Play::Serve
    }));
}

fn prepares_in(range_id: u64) -> impl Fn(&BatchRequest) -> bool + Send + 'static {
    move |batch| batch.header.range_id == range_id && prepare(batch).is_some()
}

fn is_new(model: &Model, keys: &[&str]) -> bool {
    let newest = model.store.lock().newest();
    let new: Vec<bool> = keys.iter().map(|key| newest.get(key.as_bytes()) == Some(&bytes("new"))).collect();
    assert!(new.iter().all(|is| *is == new[0]), "not atomic: {newest:?}");
    new[0]
}

#[tokio::test]
async fn writes_in_several_ranges_commit_in_one_round() {
    let model = two_ranges().await;
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    write(&txn, &["n", "a", "b", "o"]);
    model.store.lock().received.clear();
    let committed = txn.commit().await.unwrap().timestamp.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["a", "b", "n", "o"]));
    let store = model.store.lock();
    let mut trace = store.trace();
    trace[..2].sort();
    trace[2..4].sort();
    let told = ["70 prepare", "71 prepare", "70 decide", "71 resolve", "71 settle", "70 settle"];
    assert_eq!(trace, told);
    for batch in &store.received[..2] {
        let prepare = prepare(batch).unwrap();
        assert_eq!((&prepare.anchor[9..], prepare.timestamp), (&b"a"[..], committed));
        let staged: Vec<_> = prepare.staged.iter().map(|key| &key[9..]).collect();
        let anchor = batch.header.range_id == RANGE;
        assert_eq!(staged, if anchor { vec![b"a", b"b", b"n", b"o"] } else { vec![] });
        assert_eq!(batch.header.refresh_spans.len(), usize::from(anchor));
    }
}

#[tokio::test]
async fn a_commit_comes_after_what_earlier_statements_saw() {
    let model = two_ranges().await;
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    for keys in [&["n"][..], &["a", "n"]] {
        let txn = model.client.begin(options);
        txn.begin_statement();
        txn.get(b"a", LockStrength::None).await.unwrap();
        let seen = txn.read_timestamp().unwrap();
        // The clock of the client is behind that of the range.
        let ahead = Timestamp::new(seen.wall_ns + 10_000_000_000, 0);
        txn.state.lock().read_timestamp = Some(ahead);
        txn.begin_statement();
        write(&txn, keys);
        model.store.lock().received.clear();
        txn.commit().await.unwrap();
        let store = model.store.lock();
        let commit = &store.received[0];
        match prepare(commit) {
            Some(prepare) => assert!(prepare.timestamp > ahead),
            None => assert_eq!(commit.header.read_timestamp, Some(ahead)),
        }
    }
}

#[tokio::test]
async fn without_parallel_commits_the_record_decides_before_the_commit_is_acknowledged() {
    let model = two_ranges().await;
    let options = TxnOptions { parallel_commits: false, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    write(&txn, &["n", "a"]);
    model.store.lock().received.clear();
    txn.commit().await.unwrap();
    let mut trace = model.store.lock().trace();
    trace.truncate(3);
    trace[..2].sort();
    assert_eq!(trace, ["70 prepare", "71 prepare", "70 decide"]);
    assert!(model.store.lock().received[..2].iter().all(|batch| prepare(batch).unwrap().staged.is_empty()));
    model.settled().await;
    assert!(is_new(&model, &["a", "n"]));
}

#[tokio::test]
async fn all_writes_are_flushed_to_all_ranges_at_the_same_time() {
    let model = two_ranges().await;
    model.split("t", 0);
    // So that the client knows of the split.
    put(&model, "x", "1").await;
    let txn = begin(&model);
    txn.flush_all().await.unwrap();
    write(&txn, &["n", "a", "o", "x"]);
    txn.put_if_absent(b"b", bytes("new")).unwrap();
    model.store.lock().received.clear();
    txn.flush_all().await.unwrap();
    let mut trace = model.store.lock().trace();
    trace.sort();
    assert_eq!(trace, ["70 write", "71 write", "72 write"]);
    assert_eq!(model.store.lock().intents(), 5);
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["a", "b", "n", "o", "x"]));
}

#[tokio::test]
async fn what_one_range_refuses_fails_the_flush_to_all() {
    let model = two_ranges().await;
    model.split("t", 0);
    put(&model, "x", "1").await;
    let txn = begin(&model);
    write(&txn, &["a", "x"]);
    txn.put_if_absent(b"n", bytes("new")).unwrap();
    let error = txn.flush_all().await.unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::ConditionFailed, Some(bytes("n"))));
    // The range behind it was sent to as well.
    assert_eq!(model.store.lock().intents(), 2);
    txn.rollback().await;
    // A range that was split in the meantime is asked part by part.
    let txn = begin(&model);
    write(&txn, &["a", "n", "p"]);
    model.split("o", 0);
    txn.flush_all().await.unwrap();
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["a", "n", "p"]));
}

#[tokio::test]
async fn a_part_prepared_late_moves_the_commit() {
    for read in [false, true] {
        let model = two_ranges().await;
        model.split("t", 0);
        put(&model, "x", "1").await;
        let txn = begin(&model);
        if read {
            txn.get(b"x", LockStrength::None).await.unwrap();
            txn.get(b"a", LockStrength::None).await.unwrap();
        }
        write(&txn, &["a", "n"]);
        let ahead = wall_ns() + 30_000_000;
        model.store.lock().set_clock(OTHER, ahead);
        model.store.lock().received.clear();
        let committed = txn.commit().await.unwrap().timestamp.unwrap();
        assert!(committed.wall_ns > ahead);
        model.settled().await;
        assert!(is_new(&model, &["a", "n"]));
        let trace = model.store.lock().trace();
        let refreshed: Vec<_> = trace.iter().filter(|line| line.contains("refresh")).collect();
        // Ranges with writes too: their clocks must be at the commit.
        assert_eq!(refreshed.len(), if read { 4 } else { 2 }, "{trace:?}");
        let next = begin(&model);
        write(&next, &["a", "n"]);
        next.commit().await.unwrap();
        model.settled().await;
    }
}

#[tokio::test]
async fn what_changed_before_a_late_commit_aborts_it() {
    let model = two_ranges().await;
    let txn = begin(&model);
    txn.get(b"b", LockStrength::None).await.unwrap();
    write(&txn, &["a", "n"]);
    model.store.lock().set_clock(OTHER, wall_ns() + 30_000_000);
    // Between the time the commit was to have and the one it gets.
    let store = model.store.clone();
    model.store.lock().script = Some(Box::new(move |batch| {
        let changes = matches!(batch.requests[0].kind, Some(RequestKind::Refresh(_)));
        if changes { Play::Fail(KvError::new(KvErrorKind::Retry, "changed")) } else { Play::Serve }
    }));
    assert_eq!(kind(txn.commit().await), KvErrorKind::Retry);
    model.settled().await;
    assert!(!is_new(&model, &["a", "n"]));
    assert_eq!(store.lock().prepared(), 0);
}

#[tokio::test]
async fn a_failure_after_an_answer_was_lost_is_not_told_before_the_anchor_agrees() {
    for committed in [false, true] {
        let model = two_ranges().await;
        let txn = begin(&model);
        txn.get(b"b", LockStrength::None).await.unwrap();
        write(&txn, &["a", "n"]);
        model.store.lock().set_clock(OTHER, wall_ns() + 30_000_000);
        let mut lost = false;
        model.store.lock().script = Some(Box::new(move |batch| {
            if prepares_in(OTHER)(batch) && !std::mem::replace(&mut lost, true) {
                return Play::LoseAnswer;
            }
            match batch.requests[0].kind {
                Some(RequestKind::Refresh(_)) => Play::Fail(KvError::new(KvErrorKind::Retry, "changed")),
                // By who met a part before the answer was lost: its own write is what has changed.
                Some(RequestKind::EndTxn(EndTxn { for_good: true, .. })) if committed => {
                    Play::Fail(KvError::new(KvErrorKind::Aborted, "the transaction has committed"))
                }
                _ => Play::Serve,
            }
        }));
        let expected = if committed { KvErrorKind::Ambiguous } else { KvErrorKind::Retry };
        assert_eq!(kind(txn.commit().await), expected);
        if !committed {
            model.settled().await;
        }
        assert!(!is_new(&model, &["a", "n"]));
    }
}

#[tokio::test]
async fn a_commit_in_one_range_of_what_was_read_in_another() {
    let model = two_ranges().await;
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    write(&txn, &["n"]);
    model.store.lock().received.clear();
    txn.commit().await.unwrap();
    assert_eq!(model.store.lock().trace(), ["70 refresh", "71 commit at"]);
    // A clock that is ahead is met the second time.
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    write(&txn, &["n"]);
    let ahead = wall_ns() + 20_000_000;
    model.store.lock().set_clock(OTHER, ahead);
    model.store.lock().received.clear();
    let committed = txn.commit().await.unwrap().timestamp.unwrap();
    assert!(committed.wall_ns > ahead);
    let again = ["70 refresh", "71 commit at", "70 refresh", "71 commit at"];
    assert_eq!(model.store.lock().trace(), again);
    // What was read has changed.
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    write(&txn, &["o"]);
    put(&model, "a", "2").await;
    assert_eq!(kind(txn.commit().await), KvErrorKind::Retry);
    assert!(!is_new(&model, &["o"]));
}

#[tokio::test]
async fn a_prepare_that_is_lost_is_sent_again() {
    for (range_id, play) in [
        (RANGE, (|| Play::LoseAnswer) as fn() -> Play),
        (OTHER, || Play::LoseAnswer),
        (OTHER, || Play::LoseBatch),
        (OTHER, || Play::Fail(KvError::new(KvErrorKind::Ambiguous, "the lease moved under it"))),
    ] {
        let model = two_ranges().await;
        let txn = begin(&model);
        txn.get(b"n", LockStrength::Exclusive).await.unwrap();
        write(&txn, &["a", "n"]);
        script(&model, 2, prepares_in(range_id), play);
        txn.commit().await.unwrap();
        model.settled().await;
        assert!(is_new(&model, &["a", "n"]));
    }
}

#[tokio::test]
async fn a_prepare_that_fails_aborts_the_others() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["a", "b"]);
    txn.put_if_absent(b"n", bytes("new")).unwrap();
    let error = txn.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::ConditionFailed, Some(bytes("n"))));
    model.settled().await;
    let newest = model.store.lock().newest();
    assert_eq!((newest.len(), &newest[&b"a"[..]]), (2, &bytes("1")));
    // What was read in a range with writes.
    let txn = begin(&model);
    txn.get(b"n", LockStrength::None).await.unwrap();
    write(&txn, &["a", "n"]);
    put(&model, "n", "2").await;
    assert_eq!(kind(txn.commit().await), KvErrorKind::Retry);
    model.settled().await;
    assert!(!is_new(&model, &["a", "n"]));
}

#[tokio::test]
async fn a_range_split_under_the_commit_is_asked_part_by_part() {
    let model = two_ranges().await;
    let txn = begin(&model);
    for key in [&b"a"[..], b"n", b"x"] {
        txn.get(key, LockStrength::Exclusive).await.unwrap();
    }
    write(&txn, &["a", "n", "x"]);
    model.split("t", 0);
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["a", "n", "x"]));
    // The anchor's too, when it turns out while the parts are asked.
    let txn = begin(&model);
    write(&txn, &["b", "c", "o"]);
    let store = model.store.clone();
    model.split("c", 1);
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["b", "c", "o"]));
    assert!(store.lock().trace().contains(&format!("{} prepare", OTHER + 2)));
}

/// It was only read in before it absorbed one that is written in.
#[tokio::test]
async fn a_range_that_comes_to_have_a_part_is_not_told_that_nothing_comes_of_it() {
    let model = two_ranges().await;
    model.split("t", 0);
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    for key in [b"n", b"x"] {
        txn.get(key, LockStrength::None).await.unwrap();
    }
    write(&txn, &["n", "x"]);
    model.merge(RANGE);
    model.store.lock().received.clear();
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["n", "x"]));
    let trace = model.store.lock().trace();
    assert!(trace.contains(&"70 prepare".to_owned()), "{trace:?}");
    assert!(!trace.contains(&"70 abort".to_owned()), "{trace:?}");
}

/// The lease of a range moves, what was written there goes with it, and nothing keeps the range from being absorbed.
#[tokio::test]
async fn nothing_commits_without_a_part_that_went_with_its_range() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["n"]);
    txn.flush().await.unwrap();
    write(&txn, &["a"]);
    model.move_lease();
    model.merge(RANGE);
    assert_eq!(kind(txn.commit().await), KvErrorKind::Aborted);
    model.settled().await;
    assert!(!is_new(&model, &["a"]) && !is_new(&model, &["n"]));
}

#[tokio::test]
async fn what_was_read_in_a_part_split_off_is_checked_before_the_rest_is_prepared() {
    for change in [false, true] {
        let model = two_ranges().await;
        let txn = begin(&model);
        txn.get(b"x", LockStrength::None).await.unwrap();
        write(&txn, &["a", "n"]);
        model.split("t", 0);
        if change {
            put(&model, "x", "1").await;
        }
        model.store.lock().received.clear();
        let committed = txn.commit().await;
        assert_eq!(committed.as_ref().err().map(KvError::kind), change.then_some(KvErrorKind::Retry));
        model.settled().await;
        assert_eq!(is_new(&model, &["a", "n"]), !change);
        let trace = model.store.lock().trace();
        let place = |line: &str| trace.iter().position(|other| other == line);
        assert!(place("72 refresh") < place("71 prepare") || change, "{trace:?}");
        assert!(!change || place("71 prepare").is_none(), "{trace:?}");
    }
}

#[tokio::test]
async fn what_was_flushed_in_several_ranges_commits_by_its_record() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["a", "n"]);
    txn.flush().await.unwrap();
    write(&txn, &["o"]);
    model.store.lock().received.clear();
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["a", "n", "o"]));
    let store = model.store.lock();
    let mut trace = store.trace();
    trace[..2].sort();
    assert_eq!(trace, ["70 prepare", "71 prepare", "71 decide", "70 resolve", "70 settle", "71 settle"]);
    assert!(store.received[..2].iter().all(|batch| prepare(batch).unwrap().staged.is_empty()));
}

#[tokio::test]
async fn a_rollback_reaches_all_ranges() {
    let model = two_ranges().await;
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    write(&txn, &["n"]);
    txn.flush().await.unwrap();
    assert!(!model.store.lock().is_clean());
    txn.rollback().await;
    model.settled().await;
    assert!(!is_new(&model, &["n"]));
    // Locks where nothing was written go with the commit.
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    write(&txn, &["n"]);
    txn.commit().await.unwrap();
    model.settled().await;
}

#[tokio::test]
async fn a_commit_goes_on_without_its_caller() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["a", "n"]);
    model.store.lock().hold = true;
    tokio::select! {
        biased;
        _ = txn.commit() => panic!("it is held"),
        () = model.received(2) => {}
    }
    drop(txn);
    model.release();
    model.settled().await;
    assert!(is_new(&model, &["a", "n"]));
}

#[tokio::test]
async fn read_committed_misses_locks_that_went_with_a_lease() {
    let model = two_ranges().await;
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    for lost in [false, true] {
        let txn = model.client.begin(options);
        txn.get(b"a", LockStrength::Exclusive).await.unwrap();
        txn.get(b"n", LockStrength::Exclusive).await.unwrap();
        write(&txn, &["n"]);
        if lost {
            model.lose_lease(RANGE);
        }
        let committed = txn.commit().await;
        assert_eq!(committed.as_ref().err().map(KvError::kind), lost.then_some(KvErrorKind::Aborted));
        model.settled().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_nobody_knows_is_told_in_time_and_found_out_later() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["a", "n"]);
    script(&model, usize::MAX, prepares_in(OTHER), || Play::LoseBatch);
    assert_eq!(kind(txn.commit().await), KvErrorKind::Ambiguous);
    let record = model.store.lock().records();
    assert!(matches!(&record[..], [Record::Staging { keys, .. }] if keys.len() == 2), "{record:?}");
    model.store.lock().script = None;
    model.settled().await;
    assert!(is_new(&model, &["a", "n"]));
}

#[tokio::test]
async fn a_prepare_that_may_have_been_carried_out_and_fails_is_aborted_at_the_anchor_first() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["a", "n"]);
    let mut asked = 0;
    model.store.lock().script = Some(Box::new(move |batch| {
        if !prepares_in(OTHER)(batch) {
            return Play::Serve;
        }
        asked += 1;
        match asked {
            1 => Play::LoseBatch,
            _ => Play::Fail(KvError::new(KvErrorKind::Retry, "changed")),
        }
    }));
    assert_eq!(kind(txn.commit().await), KvErrorKind::Retry);
    model.settled().await;
    assert!(!is_new(&model, &["a", "n"]));
    let trace = model.store.lock().trace();
    let aborts: Vec<_> = trace.iter().filter(|line| line.contains("abort")).collect();
    assert_eq!(aborts[0], "70 abort", "{trace:?}");
}

#[tokio::test]
async fn a_record_that_was_aborted_aborts_the_commit() {
    let model = two_ranges().await;
    let txn = begin(&model);
    write(&txn, &["a", "n"]);
    txn.flush().await.unwrap();
    let decides = |batch: &BatchRequest| matches!(batch.requests[0].kind, Some(RequestKind::DecideTxn(_)));
    script(&model, 1, decides, || Play::Fail(KvError::new(KvErrorKind::Aborted, "it was aborted")));
    assert_eq!(kind(txn.commit().await), KvErrorKind::Aborted);
    model.settled().await;
    assert!(!is_new(&model, &["a", "n"]));
    // A decision that is lost is sent again.
    let txn = begin(&model);
    write(&txn, &["a", "n"]);
    txn.flush().await.unwrap();
    script(&model, 2, decides, || Play::LoseAnswer);
    txn.commit().await.unwrap();
    model.settled().await;
    assert!(is_new(&model, &["a", "n"]));
}

#[tokio::test]
async fn nothing_commits_after_the_deadline_under_which_it_began() {
    let model = two_ranges().await;
    let deadlines = Arc::new(CommitDeadlines::default());
    let client = model.client.with_deadlines(deadlines.clone());
    let past = CommitDeadline::at(1);
    for keys in [&["a"][..], &["a", "x"], &["x"]] {
        deadlines.replace(past.clone());
        let fenced = client.begin(TxnOptions::default());
        let reader = client.begin(TxnOptions::default());
        assert_eq!(reader.get(b"x", LockStrength::None).await.unwrap(), None);
        write(&fenced, keys);
        write(&reader, &["a"]);
        // What begins later is no concern of theirs.
        deadlines.replace(CommitDeadline::none());
        assert_eq!(kind(fenced.commit().await), KvErrorKind::Retry, "{keys:?}");
        assert_eq!(kind(reader.commit().await), KvErrorKind::Retry);
        assert!(model.store.lock().newest().values().all(|value| *value != bytes("new")));
    }
    let lease = CommitDeadline::at(1);
    deadlines.replace(lease.clone());
    let renewed = client.begin(TxnOptions::default());
    write(&renewed, &["a", "x"]);
    lease.extend(wall_ns() + 60_000_000_000);
    renewed.commit().await.unwrap();
    assert!(is_new(&model, &["a", "x"]));
}
