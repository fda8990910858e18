//! Histories of concurrent transactions, checked by machine.

use crate::support::*;
use kv_api::batch::*;
use kv_api::columns::{ColumnBatch, Kind, Program, Wanted};
use kv_api::row::{ROW_FORMAT, tag};
use kv_api::{KvError, KvErrorKind, LockStrength, Timestamp};
use kv_server::{ColumnCacheConfig, Limits};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::MemoryEngine;

fn retryable(error: &KvError) -> bool {
    matches!(error.kind(), KvErrorKind::Retry | KvErrorKind::Deadlock)
}

/// What one committed transaction saw and did.
#[derive(Debug)]
struct Record {
    at: Timestamp,
    /// The largest timestamp acknowledged to anybody when it began.
    began_after: Timestamp,
    reads: Vec<(String, Option<String>)>,
    writes: HashMap<String, Option<String>>,
}

/// Commits in the order of their timestamps must be a serial history that shows every read.
fn check(mut records: Vec<Record>) {
    // A transaction that only read stands after the commit at its timestamp, if there is one.
    records.sort_by_key(|record| (record.at, record.writes.is_empty()));
    let mut state: BTreeMap<String, String> = BTreeMap::new();
    for record in &records {
        assert!(record.at >= record.began_after, "{record:?} does not see what was acknowledged");
        for (key, value) in &record.reads {
            assert_eq!(state.get(key), value.as_ref(), "{key} in {record:?}");
        }
        for (key, value) in &record.writes {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
    }
}

struct World {
    acknowledged: acknowledged::Max,
    unique: AtomicU64,
}

/// The largest timestamp acknowledged so far.
mod acknowledged {
    use kv_api::Timestamp;
    use std::sync::Mutex;

    #[derive(Default)]
    pub struct Max(Mutex<Option<Timestamp>>);

    impl Max {
        pub fn note(&self, timestamp: Timestamp) {
            let mut latest = self.0.lock().expect("not poisoned");
            *latest = (*latest).max(Some(timestamp));
        }

        pub fn get(&self) -> Timestamp {
            self.0.lock().expect("not poisoned").unwrap_or(Timestamp::MIN)
        }
    }
}

async fn random_txn(client: &Client, random: &mut StdRng, world: &World) -> Result<Record, KvError> {
    let began_after = world.acknowledged.get();
    let mut txn = client.begin();
    let result = random_steps(&mut txn, random, world).await;
    let (at, reads, writes) = match result {
        Ok(result) => result,
        Err(error) => {
            let _ = txn.abort().await;
            return Err(error);
        }
    };
    world.acknowledged.note(at);
    Ok(Record { at, began_after, reads, writes })
}

type Effects = (Timestamp, Vec<(String, Option<String>)>, HashMap<String, Option<String>>);

/// Small chunks of columns, which all scans keep and use.
fn with_small_chunks() -> Limits {
    let column_cache = ColumnCacheConfig { bytes: 1 << 20, chunk_rows: 3, least_rows: 1 };
    Limits { column_cache, inline_scan_bytes: 1, ..Limits::default() }
}

/// A value that is a row of one text.
fn unique_row(world: &World) -> String {
    let text = world.unique.fetch_add(1, Ordering::Relaxed).to_string();
    let head = tag::BYTES | (text.len() as u8) << 4;
    let header = [ROW_FORMAT, 1, text.len() as u8 + 2, head].map(char::from);
    header.into_iter().chain(text.chars()).collect()
}

/// Both kinds of scans of the same rows.
fn both_scans() -> Vec<RequestKind> {
    let text = Wanted { number: 1, kind: Kind::Bytes as i32, ..Wanted::default() };
    let program = Program { columns: vec![text], ..Program::default() };
    let RequestKind::Scan(plain) = scan("k", "l", 0) else { unreachable!() };
    let columns = Scan { program: Some(Box::new(program)), ..plain.clone() };
    vec![RequestKind::Scan(plain), RequestKind::Scan(columns)]
}

/// Columns say what rows say.
fn check_columns(rows: &[(String, String)], columns: &ColumnBatch) {
    let texts: String = rows.iter().map(|row| &row.1[4..]).collect();
    assert_eq!((columns.rows, columns.unfit), (rows.len() as u64, false));
    assert_eq!(columns.columns[0].values, texts.as_bytes());
}

async fn random_steps(txn: &mut Txn, random: &mut StdRng, world: &World) -> Result<Effects, KvError> {
    let name = |random: &mut StdRng| format!("k{}", random.random_range(0..8));
    let mut reads: Vec<(String, Option<String>)> = Vec::new();
    let mut writes: HashMap<String, Option<String>> = HashMap::new();
    let mut flushed: HashMap<String, Option<String>> = HashMap::new();
    let mut sequence = 0;
    for _ in 0..random.random_range(1..5) {
        match random.random_range(0..10) {
            0..=3 => {
                let key = name(random);
                let seen = txn.get(&key).await?;
                note(&mut reads, &flushed, key, seen);
            }
            4..=5 => {
                let key = name(random);
                let strength = if random.random() { LockStrength::Shared } else { LockStrength::Exclusive };
                let seen = txn.lock(&key, strength).await?;
                note(&mut reads, &flushed, key, seen);
            }
            6 => {
                let found = txn.send(both_scans()).await?.responses;
                let rows = rows_of(&found[0]);
                if let Some(columns) = &found[1].columns {
                    check_columns(&rows, columns);
                }
                for index in 0..8 {
                    let key = format!("k{index}");
                    let seen = rows.iter().find(|row| row.0 == key).map(|row| row.1.clone());
                    note(&mut reads, &flushed, key, seen);
                }
            }
            7 => {
                // A statement that is flushed, and sometimes rolled back to its savepoint.
                sequence += 1;
                let (key, value) = (name(random), unique_row(world));
                txn.send(vec![put(&key, &value, sequence)]).await?;
                if random.random_range(0..3) == 0 {
                    if let Some(meta) = &mut txn.header.txn {
                        meta.ignored.push(IgnoredSequences { from: sequence, to: sequence + 1 });
                    }
                } else {
                    flushed.insert(key, Some(value));
                }
            }
            _ => {
                let value = unique_row(world);
                writes.insert(name(random), (random.random_range(0..4) > 0).then_some(value));
            }
        }
    }
    let mut requests = Vec::new();
    for (key, value) in &writes {
        sequence += 1;
        requests.push(match value {
            Some(value) => put(key, value, sequence),
            None => delete(key, sequence),
        });
    }
    let at = txn.commit(requests).await?;
    flushed.extend(writes);
    Ok((at, reads, flushed))
}

/// Notes a read of committed data; what the transaction itself wrote is compared at once.
fn note(
    reads: &mut Vec<(String, Option<String>)>,
    flushed: &HashMap<String, Option<String>>,
    key: String,
    seen: Option<String>,
) {
    match flushed.get(&key) {
        Some(own) => assert_eq!(&seen, own, "a transaction reads its own writes"),
        None => reads.push((key, seen)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_transactions_are_serializable() {
    for seed in 0..6 {
        let test = TestNode::with(Arc::new(MemoryEngine::new()), with_small_chunks());
        let world = Arc::new(World { acknowledged: Default::default(), unique: AtomicU64::new(1) });
        let tasks: Vec<_> = (0..12)
            .map(|task| {
                let (client, world) = (test.client(), world.clone());
                tokio::spawn(async move {
                    let mut random = StdRng::seed_from_u64(seed * 1000 + task);
                    let mut records = Vec::new();
                    let mut retries = 0;
                    while records.len() < 60 {
                        match random_txn(&client, &mut random, &world).await {
                            Ok(record) => records.push(record),
                            Err(error) if retryable(&error) => retries += 1,
                            Err(error) => panic!("{error}"),
                        }
                        assert!(retries < 20_000, "no progress");
                    }
                    records
                })
            })
            .collect();
        let mut records = Vec::new();
        for task in tasks {
            records.extend(task.await.expect("task"));
        }
        check(records);
        test.settled().await;
    }
}

#[test]
#[should_panic(expected = "k1 in")]
fn the_checker_finds_a_lost_update() {
    let record = |wall, read: Option<&str>, write: &str| Record {
        at: Timestamp::new(wall, 0),
        began_after: Timestamp::MIN,
        reads: vec![("k1".into(), read.map(str::to_owned))],
        writes: HashMap::from([("k1".into(), Some(write.to_owned()))]),
    };
    check(vec![record(1, None, "a"), record(2, Some("a"), "b"), record(3, Some("a"), "c")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_keep_the_total() {
    const ACCOUNTS: usize = 10;
    let test = TestNode::start();
    let client = test.client();
    let name = |account: usize| format!("account{account}");
    client.send((0..ACCOUNTS).map(|account| put(&name(account), "100", 1)).collect()).await.expect("write");
    let transfer = move |client: Client, seed: u64| async move {
        let mut random = StdRng::seed_from_u64(seed);
        let mut done = 0;
        while done < 60 {
            let (from, to) = (random.random_range(0..ACCOUNTS), random.random_range(0..ACCOUNTS));
            if from == to {
                continue;
            }
            let locking = random.random();
            let mut txn = client.begin();
            let outcome = async {
                let mut balances = Vec::new();
                for account in [from, to] {
                    let read = if locking {
                        txn.lock(&name(account), LockStrength::Exclusive).await?
                    } else {
                        txn.get(&name(account)).await?
                    };
                    balances.push(read.expect("exists").parse::<i64>().expect("a number"));
                }
                let amount = random.random_range(1..20);
                txn.commit(vec![
                    put(&name(from), &(balances[0] - amount).to_string(), 1),
                    put(&name(to), &(balances[1] + amount).to_string(), 2),
                ])
                .await
            };
            match outcome.await {
                Ok(_) => done += 1,
                Err(error) if retryable(&error) => txn.abort().await.expect("abort"),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let transfers: Vec<_> = (0..8).map(|seed| tokio::spawn(transfer(test.client(), seed))).collect();
    let reader = test.client();
    let sums = tokio::spawn(async move {
        for _ in 0..200 {
            let mut txn = reader.begin();
            let mut total = 0;
            for account in 0..ACCOUNTS {
                let read = txn.get(&name(account)).await.expect("read").expect("exists");
                total += read.parse::<i64>().expect("a number");
                tokio::task::yield_now().await;
            }
            assert_eq!(total, 1000);
        }
    });
    for task in transfers {
        task.await.expect("task");
    }
    sums.await.expect("sums");
    let total: i64 = client.scan_all().await.iter().map(|row| row.1.parse::<i64>().expect("a number")).sum();
    assert_eq!(total, 1000);
    test.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_who_look_at_each_other_do_not_both_leave() {
    let test = TestNode::start();
    let client = test.client();
    for _ in 0..100 {
        client.send(vec![put("a", "on", 1), put("b", "on", 2)]).await.expect("write");
        let leave = |own: &'static str| {
            let client = test.client();
            tokio::spawn(async move {
                let mut txn = client.begin();
                let on = rows_of(&txn.send(vec![scan("a", "c", 0)]).await.expect("scan").responses[0]);
                if on.iter().all(|row| row.1 == "on") {
                    let left = txn.commit(vec![put(own, "off", 1)]).await;
                    assert!(left.is_ok() || kind(left) == KvErrorKind::Retry);
                }
            })
        };
        let (one, two) = (leave("a"), leave("b"));
        one.await.expect("task");
        two.await.expect("task");
        let on = client.scan_all().await.iter().filter(|row| row.1 == "on").count();
        assert!(on >= 1, "both left");
    }
}
