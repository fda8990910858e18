//! What clients do: random transactions over lists and registers.
//!
//! A list is one key whose value is a row with its numbers ([`lists`]); appending reads it and writes it back. Every number is
//! written once, so that whoever reads one knows who wrote it ([`histories`]).

use super::desk::Desk;
use super::faults::split;
use super::hop::{Hosts, Traveller};
use super::lists;
use super::plan::{Global, Menu, Plan};
use super::world::World;
use crate::clock::{MILLI, Micros, SECOND};
use bytes::Bytes;
use histories::{Op, Outcome, Txn as Recorded};
use kv_client::{
    Isolation, KvClient, KvError, KvErrorKind, KvResult, LockStrength, Priority, ReadOptions, ScanOptions,
};
use kv_client::{Span, TenantId, Txn, TxnOptions};
use kv_server::authorize::Caller;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use replication::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a client waits for a transaction before it gives it up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects of different tenants have different names in the history.
const TENANT_STEP: u64 = 1000;

/// One thing that a transaction does.
#[derive(Clone, Debug)]
enum Step {
    ReadList(u64, LockStrength),
    Append(u64, LockStrength),
    ReadRegister(u64, LockStrength),
    WriteRegister(u64),
    /// Reads all lists, as rows or as columns by turns.
    Scan,
    /// Sends the writes so far as intents.
    Flush,
    Pause(Micros),
    /// A part of the transaction, and whether it is undone in the end.
    Part(Vec<Step>, bool),
}

/// What a transaction did so far, as its client knows.
#[derive(Default)]
struct Progress {
    ops: Vec<Op>,
    /// Writes that were rolled back.
    undone: Vec<Op>,
    commits: bool,
}

/// What is done to a client while it runs a transaction, after a while.
#[derive(Clone, Copy)]
enum Disturbance {
    Breaks(Micros),
    Crashes(Micros),
    /// It crashes when it has been committing for so long.
    CrashesInCommit(Micros),
    /// It crashes so long after it heard that it has committed: what is left to do about the commit is not done.
    CrashesAfter(Micros),
}

impl Disturbance {
    fn draw(plan: &Plan, rng: &mut SmallRng) -> Option<Self> {
        let moment = rng.random_range(0..400 * MILLI);
        let short = rng.random_range(0..=4 * plan.weather.delay.1);
        let mut may = |kind| plan.menu.contains(&kind) && rng.random_bool(0.03);
        if may(Menu::CoordinatorCrashes) {
            Some(Disturbance::CrashesInCommit(short))
        } else if may(Menu::CoordinatorCrashes) {
            Some(Disturbance::CrashesAfter(short))
        } else if may(Menu::ClientCrashes) {
            Some(Disturbance::Crashes(moment))
        } else if may(Menu::BrokenConnections) {
            Some(Disturbance::Breaks(moment))
        } else {
            None
        }
    }

    /// Until it happens, if that is while the transaction runs.
    async fn due(self, world: &World, committing: &Notify) {
        match self {
            Disturbance::Breaks(after) | Disturbance::Crashes(after) => world.sleep(after).await,
            Disturbance::CrashesInCommit(after) => {
                committing.notified().await;
                world.sleep(after).await;
            }
            Disturbance::CrashesAfter(_) => std::future::pending().await,
        }
    }
}

/// The objects of a tenant.
#[derive(Clone, Copy)]
pub struct Objects {
    tenant: TenantId,
    keys: u64,
}

impl Objects {
    /// Those of a tenant.
    pub fn of(world: &World, tenant: TenantId) -> Self {
        Objects { tenant, keys: world.plan.keys }
    }

    fn name(&self, key: u64) -> u64 {
        self.tenant.0 * TENANT_STEP + key
    }
}

fn list_key(key: u64) -> Bytes {
    Bytes::from(format!("list/{key:03}"))
}

fn all_lists() -> Span {
    Span::new(Bytes::from_static(b"list/"), Bytes::from_static(b"list0"))
}

fn register_key(key: u64) -> Bytes {
    Bytes::from(format!("register/{key:03}"))
}

/// Keys that are read everywhere.
pub fn global_span(global: Global, tenant: TenantId) -> Span {
    let named = |start: &[u8], end: &[u8]| Span::new(tenant.prefixed(start), tenant.prefixed(end));
    match global {
        Global::Lists => named(b"list/", b"list0"),
        Global::Registers => named(b"register/", b"register0"),
        Global::All => tenant.span(),
    }
}

/// Where the keys of a tenant can be parted: before every list but the first, and before every register.
pub fn borders(world: &World, tenant: TenantId) -> Vec<Bytes> {
    let keys = world.plan.keys;
    let keys = (1..keys).map(list_key).chain((0..keys).map(register_key));
    keys.map(|key| tenant.prefixed(&key)).collect()
}

fn encode(values: &[u64]) -> Bytes {
    values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>().into()
}

fn torn() -> KvError {
    KvError::new(KvErrorKind::Internal, "a value is torn")
}

fn decode(bytes: &[u8]) -> KvResult<Vec<u64>> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    match rest {
        [] => Ok(numbers.iter().map(|number| u64::from_be_bytes(*number)).collect()),
        _ => Err(torn()),
    }
}

fn decode_list(stored: Option<Bytes>) -> KvResult<Vec<u64>> {
    stored.map_or_else(|| Ok(Vec::new()), |row| lists::decode(&row).ok_or_else(torn))
}

fn script(rng: &mut SmallRng, keys: u64, most: usize, locking: bool, depth: u32) -> Vec<Step> {
    (0..rng.random_range(1..=most))
        .map(|_| {
            let key = rng.random_range(0..keys);
            let lock = match rng.random_range(0..10) {
                _ if locking => LockStrength::Exclusive,
                0..3 => LockStrength::Exclusive,
                3 => LockStrength::Shared,
                _ => LockStrength::None,
            };
            match rng.random_range(0..100) {
                0..25 => Step::ReadList(key, lock),
                25..60 => Step::Append(key, lock),
                60..72 => Step::ReadRegister(key, lock),
                72..82 => Step::WriteRegister(key),
                82..87 => Step::Scan,
                87..90 => Step::Flush,
                90..94 => Step::Pause(rng.random_range(MILLI..300 * MILLI)),
                _ if depth < 2 => {
                    Step::Part(script(rng, keys, most.min(3), locking, depth + 1), rng.random_bool(0.6))
                }
                _ => Step::Append(key, lock),
            }
        })
        .collect()
}

/// What a transaction does that only reads.
fn reading(rng: &mut SmallRng, keys: u64, most: usize) -> Vec<Step> {
    (0..rng.random_range(1..=most))
        .map(|_| match rng.random_range(0..10) {
            0..5 => Step::ReadList(rng.random_range(0..keys), LockStrength::None),
            5..8 => Step::ReadRegister(rng.random_range(0..keys), LockStrength::None),
            8 => Step::Pause(rng.random_range(MILLI..100 * MILLI)),
            _ => Step::Scan,
        })
        .collect()
}

struct Runner<'a> {
    world: &'a World,
    txn: Mutex<Arc<Txn>>,
    traveller: Option<&'a Traveller<'a>>,
    objects: Objects,
    progress: &'a Mutex<Progress>,
}

impl Runner<'_> {
    fn txn(&self) -> Arc<Txn> {
        Arc::clone(&self.txn.lock())
    }

    /// Between two statements the transaction may change its process.
    async fn perhaps_go(&self) -> KvResult<()> {
        let Some(traveller) = self.traveller else { return Ok(()) };
        if let Some(txn) = traveller.perhaps_go(&self.txn()).await? {
            *self.txn.lock() = txn;
        }
        Ok(())
    }

    fn did(&self, op: Op) {
        self.progress.lock().ops.push(op);
    }

    async fn read_list(&self, key: u64, lock: LockStrength) -> KvResult<Vec<u64>> {
        let stored = self.txn().get(&list_key(key), lock).await?;
        let values = decode_list(stored)?;
        self.did(Op::ReadList { key: self.objects.name(key), values: values.clone() });
        Ok(values)
    }

    /// Reads all lists. No chance is asked for how: seeds give the runs that they gave without columns.
    async fn scan(&self) -> KvResult<()> {
        let as_columns = self.progress.lock().ops.len().is_multiple_of(2);
        let mut found = if as_columns { self.scan_columns().await? } else { self.scan_rows().await? };
        for key in 0..self.objects.keys {
            let values = found.remove(&key).unwrap_or_default();
            self.did(Op::ReadList { key: self.objects.name(key), values });
        }
        Ok(())
    }

    async fn scan_rows(&self) -> KvResult<BTreeMap<u64, Vec<u64>>> {
        let (mut span, mut found) = (all_lists(), BTreeMap::new());
        let txn = self.txn();
        loop {
            let page =
                txn.scan(&span, ScanOptions { read: ReadOptions::default(), ..ScanOptions::default() });
            let page = page.await?;
            for key in 0..self.objects.keys {
                if let Some((_, value)) = page.rows.iter().find(|(of, _)| *of == list_key(key)) {
                    found.insert(key, decode_list(Some(value.clone()))?);
                }
            }
            match page.resume {
                Some(rest) => span = rest,
                None => return Ok(found),
            }
        }
    }

    async fn scan_columns(&self) -> KvResult<BTreeMap<u64, Vec<u64>>> {
        let (mut span, mut found) = (all_lists(), BTreeMap::new());
        let txn = self.txn();
        self.world.count("scans of columns");
        loop {
            let page = txn.scan_columns(&span, &lists::program()).await?;
            found.extend(lists::of_columns(&page.columns).ok_or_else(torn)?);
            match page.resume {
                Some(rest) => span = rest,
                None => return Ok(found),
            }
        }
    }

    async fn step(&self, step: &Step) -> KvResult<()> {
        self.perhaps_go().await?;
        let txn = self.txn();
        txn.begin_statement();
        match step {
            Step::ReadList(key, lock) => self.read_list(*key, *lock).await.map(|_| ()),
            Step::Append(key, lock) => {
                let mut values = self.read_list(*key, *lock).await?;
                let value = self.world.unique();
                values.push(value);
                txn.put(&list_key(*key), lists::encode(*key, &values))?;
                self.did(Op::Append { key: self.objects.name(*key), value });
                Ok(())
            }
            Step::ReadRegister(key, lock) => {
                let stored = txn.get(&register_key(*key), *lock).await?;
                let value = stored.map(|stored| decode(&stored)).transpose()?;
                let value = value.and_then(|value| value.first().copied());
                self.did(Op::Read { key: self.objects.name(*key), value });
                Ok(())
            }
            Step::WriteRegister(key) => {
                let value = self.world.unique();
                txn.put(&register_key(*key), encode(&[value]))?;
                self.did(Op::Write { key: self.objects.name(*key), value });
                Ok(())
            }
            Step::Scan => self.scan().await,
            Step::Flush => txn.flush().await,
            Step::Pause(span) => {
                self.world.sleep(*span).await;
                Ok(())
            }
            Step::Part(steps, undo) => {
                let savepoint = txn.savepoint();
                let before = self.progress.lock().ops.len();
                for step in steps {
                    Box::pin(self.step(step)).await?;
                }
                if *undo {
                    self.txn().rollback_to(savepoint);
                    self.world.count("savepoints rolled back");
                    let mut progress = self.progress.lock();
                    // What was read there may have been written there.
                    let undone = progress.ops.split_off(before);
                    progress.undone.extend(undone.into_iter().filter(|op| op.written().is_some()));
                }
                Ok(())
            }
        }
    }
}

async fn run_txn(
    world: &World,
    client: &KvClient,
    objects: Objects,
    options: TxnOptions,
    steps: &[Step],
    (progress, committing): (&Mutex<Progress>, &Notify),
    traveller: Option<&Traveller<'_>>,
) -> KvResult<()> {
    let txn = client.begin(TxnOptions { lock_timeout_ms: 5000, ..options });
    let runner = Runner { world, txn: Mutex::new(Arc::new(txn)), traveller, objects, progress };
    for step in steps {
        runner.step(step).await?;
    }
    runner.perhaps_go().await?;
    progress.lock().commits = true;
    committing.notify_one();
    runner.txn().commit().await.map(|_| ())
}

/// Whether a failed commit certainly had no effect.
fn is_aborted(error: &KvError) -> bool {
    !matches!(error.kind(), KvErrorKind::Ambiguous | KvErrorKind::Internal)
}

/// Runs transactions as one client after the other, until the trouble is over. The last process stays, for others may
/// have handed it their transactions.
pub async fn run_client(world: Arc<World>, hosts: Arc<Hosts>, place: NodeId, tenant: TenantId) {
    let objects = Objects::of(&world, tenant);
    let mut rng = world.own_rng();
    while !world.is_over() {
        world.set_clock(place);
        let desk = Desk::new(&world, place, Caller::Tenant(tenant));
        let client = desk.client();
        hosts.enter(tenant, place, &desk, &client);
        while !world.is_over() {
            let traveller = Traveller::new(&world, &hosts, tenant, &desk);
            if !run_one(&world, &desk, &client, objects, &traveller, (place, tenant), &mut rng).await {
                break;
            }
            world.sleep(rng.random_range(0..=world.plan.think)).await;
        }
        if !world.is_over() {
            // What runs in the background goes with the process.
            desk.crash();
        }
    }
}

/// Runs one transaction; false if the client crashed in it.
async fn run_one(
    world: &Arc<World>,
    desk: &Desk,
    client: &KvClient,
    objects: Objects,
    traveller: &Traveller<'_>,
    (place, tenant): (NodeId, TenantId),
    rng: &mut SmallRng,
) -> bool {
    let plan = &world.plan;
    let read_committed = rng.random_range(0..1000) < plan.read_committed_per_mille;
    let isolation = if read_committed { Isolation::ReadCommitted } else { Isolation::Serializable };
    let priority = match rng.random_range(0..2000) {
        low if low < plan.priorities_per_mille => Priority::Low,
        high if high >= 2000 - plan.priorities_per_mille => Priority::High,
        _ => Priority::Normal,
    };
    // Under READ COMMITTED it is locks that keep appends from being lost.
    let reads = plan.readers_per_mille > 0 && rng.random_range(0..1000) < plan.readers_per_mille;
    let steps = match reads {
        true => reading(rng, objects.keys, plan.steps.min(3)),
        false => script(rng, objects.keys, plan.steps, read_committed, 0),
    };
    let follower_reads = reads && rng.random_bool(0.5);
    let options =
        TxnOptions { isolation, priority, read_only: reads, follower_reads, ..TxnOptions::default() };
    let disturbance = Disturbance::draw(plan, rng);
    let splits = plan.menu.contains(&Menu::Splits) && rng.random_bool(0.5);
    let committing = Notify::new();
    let progress = Mutex::new(Progress::default());
    let invoked = world.now() * 1000;
    let mut crashed = false;
    let running = run_txn(world, client, objects, options, &steps, (&progress, &committing), Some(traveller));
    let running = tokio::time::timeout(PATIENCE, running);
    let ended = if let Some(disturbance) = disturbance {
        let mut running = std::pin::pin!(running);
        tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            () = disturbance.due(world, &committing) => {
                if let Disturbance::Breaks(_) = disturbance {
                    world.count("connections broken");
                    desk.break_connections();
                    Some(running.await)
                } else {
                    world.count("client crashes");
                    crashed = true;
                    desk.crash();
                    None
                }
            }
        }
    } else {
        Some(running.await)
    };
    let completed = ended.is_some().then(|| world.now() * 1000);
    if let (Some(Disturbance::CrashesAfter(after)), Some(Ok(Ok(())))) = (disturbance, &ended) {
        world.sleep(after).await;
        world.count("client crashes");
        crashed = true;
        desk.crash();
    }
    if crashed && splits {
        // What it has prepared stays so for a while.
        split(world, tenant);
    }
    let Progress { ops, undone, commits } = progress.into_inner();
    let outcome = match &ended {
        Some(Ok(Ok(()))) => Outcome::Committed,
        Some(Ok(Err(error))) if !commits || is_aborted(error) => Outcome::Aborted,
        Some(Err(_)) | None if !commits => Outcome::Aborted,
        _ => Outcome::Unknown,
    };
    match &ended {
        Some(Ok(Err(error))) => {
            world.note(|| format!("client {place}: {error}"));
            if world.options.calm && matches!(error.kind(), KvErrorKind::Aborted | KvErrorKind::Unavailable) {
                world.violate("transactions are not aborted without trouble", error.to_string());
            }
        }
        Some(Err(_)) => world.note(|| format!("client {place}: gave up")),
        _ => {}
    }
    world.count(match outcome {
        Outcome::Committed => "committed",
        Outcome::Aborted => "aborted",
        Outcome::Unknown => "unknown",
    });
    let record = |outcome, ops| {
        let isolation = match isolation {
            Isolation::Serializable => histories::Isolation::Serializable,
            Isolation::ReadCommitted => histories::Isolation::ReadCommitted,
        };
        let process = u32::try_from(place).unwrap_or(u32::MAX);
        let id = world.unique();
        world.record(Recorded { id, process, invoked, completed, outcome, isolation, ops });
    };
    record(outcome, ops);
    if !undone.is_empty() {
        record(Outcome::Aborted, undone);
    }
    !crashed && desk.is_alive()
}

/// Reads every list and register in one transaction and appends to each, trying again for as long as
/// `patience`.
///
/// # Errors
/// The last error.
pub async fn read_everything(
    world: &Arc<World>,
    place: NodeId,
    tenant: TenantId,
    patience: Micros,
) -> Result<(), String> {
    let objects = Objects::of(world, tenant);
    let desk = Desk::new(world, place, Caller::Tenant(tenant));
    let client = desk.client();
    let steps: Vec<Step> = [Step::Scan]
        .into_iter()
        .chain((0..objects.keys).map(|key| Step::ReadRegister(key, LockStrength::None)))
        .chain((0..objects.keys).map(|key| Step::Append(key, LockStrength::None)))
        .collect();
    let deadline = world.now() + patience;
    loop {
        let invoked = world.now() * 1000;
        let progress = Mutex::new(Progress::default());
        let (usual, committing) = (TxnOptions::default(), Notify::new());
        let running = run_txn(world, &client, objects, usual, &steps, (&progress, &committing), None);
        let ended = tokio::time::timeout(PATIENCE, running).await;
        let Progress { ops, commits, .. } = progress.into_inner();
        let outcome = match &ended {
            Ok(Ok(())) => Outcome::Committed,
            Ok(Err(error)) if !commits || is_aborted(error) => Outcome::Aborted,
            _ if !commits => Outcome::Aborted,
            _ => Outcome::Unknown,
        };
        world.record(Recorded {
            id: world.unique(),
            process: u32::try_from(place).unwrap_or(u32::MAX),
            invoked,
            completed: Some(world.now() * 1000),
            outcome,
            isolation: histories::Isolation::Serializable,
            ops,
        });
        let problem = match ended {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if world.now() > deadline {
            return Err(problem);
        }
        world.sleep(100 * MILLI + SECOND / 10).await;
    }
}
