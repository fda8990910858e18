//! Running a workload: connections, time, repetition, progress.

use crate::errors::Failure;
use crate::report::{Latencies, progress_line};
use crate::{Worker, Workload};
use anyhow::Context;
use futures::future::try_join_all;
use pg_client::{Connection, Kind, Target};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_postgres::Client;

/// How long workers may take to end their last operation.
const LAST_OPERATION: Duration = Duration::from_secs(90);

/// How to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many connections.
    pub connections: u32,
    /// How long.
    pub duration: Duration,
    /// Whether to print a line each second.
    pub progress: bool,
}

/// What a run measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Latency of every operation that succeeded.
    pub latencies: Latencies,
    /// How long the run took.
    pub elapsed: Duration,
    /// Attempts undone because of other transactions and repeated.
    pub retries: u64,
    /// Connections made anew.
    pub reconnects: u64,
    /// Commits of which nobody knows whether they happened.
    pub ambiguous: u64,
}

/// What the workers share.
#[derive(Debug, Default)]
struct Shared {
    retries: AtomicU64,
    reconnects: AtomicU64,
    ambiguous: AtomicU64,
}

/// One worker's latencies since they were last collected.
type Slot = Arc<Mutex<Latencies>>;

/// Runs a workload.
///
/// # Errors
/// If the database refuses, stays away, or an operation fails for good.
pub async fn run(workload: &dyn Workload, target: &Target, plan: &Plan) -> anyhow::Result<Measured> {
    let connect = (0..plan.connections).map(|number| prepare(workload, target, number));
    let lanes = try_join_all(connect).await?;
    let shared = Arc::new(Shared::default());
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    let mut slots = Vec::new();
    for lane in lanes {
        let slot = Slot::default();
        slots.push(Arc::clone(&slot));
        tasks.spawn(lane.run(Arc::clone(&shared), slot, start + plan.duration));
    }
    let latencies = collect(&mut tasks, &slots, &shared, plan, start).await;
    // After an error some may still be at work.
    tasks.shutdown().await;
    let latencies = latencies?;
    Ok(Measured {
        latencies,
        elapsed: start.elapsed(),
        retries: shared.retries.load(Ordering::Relaxed),
        reconnects: shared.reconnects.load(Ordering::Relaxed),
        ambiguous: shared.ambiguous.load(Ordering::Relaxed),
    })
}

async fn prepare(workload: &dyn Workload, target: &Target, number: u32) -> anyhow::Result<Lane> {
    let mut worker = workload.worker(number)?;
    let (client, connection) = target.reconnect().await.context("cannot connect")?;
    let hint = || format!("cannot prepare; was `workload init {}` run?", workload.name());
    worker.prepare(&client).await.with_context(hint)?;
    Ok(Lane { worker, target: target.clone(), client, connection })
}

/// Waits for the workers, collecting each second.
async fn collect(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    slots: &[Slot],
    shared: &Shared,
    plan: &Plan,
    start: Instant,
) -> anyhow::Result<Latencies> {
    let mut all = Latencies::default();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    let over = tokio::time::sleep(plan.duration + LAST_OPERATION);
    tokio::pin!(over);
    loop {
        tokio::select! {
            done = tasks.join_next() => match done {
                Some(done) => done.context("a worker failed")??,
                None => break,
            },
            _ = second.tick() => {
                let interval = take(slots);
                if plan.progress {
                    let (retries, reconnects) =
                        (shared.retries.load(Ordering::Relaxed), shared.reconnects.load(Ordering::Relaxed));
                    eprintln!("{}", progress_line(start.elapsed(), &interval, retries, reconnects));
                }
                all.add(&interval);
            }
            () = &mut over => anyhow::bail!("{} operations do not come to an end", tasks.len()),
        }
    }
    all.add(&take(slots));
    Ok(all)
}

fn take(slots: &[Slot]) -> Latencies {
    let mut sum = Latencies::default();
    for slot in slots {
        let mut latencies = slot.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add(&latencies);
        latencies.reset();
    }
    sum
}

/// One connection and its worker.
struct Lane {
    worker: Box<dyn Worker>,
    target: Target,
    client: Client,
    connection: Connection,
}

impl Lane {
    async fn run(mut self, shared: Arc<Shared>, slot: Slot, end: Instant) -> anyhow::Result<()> {
        while Instant::now() < end && !self.worker.is_done() {
            let pause = self.worker.pause();
            if !pause.is_zero() {
                tokio::time::sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
                if Instant::now() >= end {
                    break;
                }
            }
            let start = Instant::now();
            let Some(kind) = self.operation(&shared, end).await? else { break };
            slot.lock().unwrap_or_else(PoisonError::into_inner).record(kind, start.elapsed());
        }
        Ok(())
    }

    /// One operation, repeated until it succeeds or the time is over (`None`).
    async fn operation(&mut self, shared: &Shared, end: Instant) -> anyhow::Result<Option<&'static str>> {
        loop {
            let failure = match self.worker.step(&mut self.client).await {
                Ok(kind) => return Ok(Some(kind)),
                Err(failure) => failure,
            };
            if matches!(failure, Failure::Ambiguous(_)) {
                shared.ambiguous.fetch_add(1, Ordering::Relaxed);
            }
            match Kind::of(failure.error()) {
                Kind::Retry => {
                    shared.retries.fetch_add(1, Ordering::Relaxed);
                }
                Kind::Lost => {
                    shared.reconnects.fetch_add(1, Ordering::Relaxed);
                    self.reconnect().await?;
                }
                Kind::Fatal => return Err(into_error(failure)),
            }
            if Instant::now() >= end {
                return Ok(None);
            }
        }
    }

    /// Connects again until the statements are prepared, too.
    async fn reconnect(&mut self) -> anyhow::Result<()> {
        loop {
            (self.client, self.connection) = self.target.reconnect().await.context("cannot connect again")?;
            match self.worker.prepare(&self.client).await {
                Ok(()) => return Ok(()),
                Err(error) if Kind::of(&error) == Kind::Fatal => {
                    return Err(anyhow::Error::new(error).context("cannot prepare again"));
                }
                Err(_) => {}
            }
        }
    }
}

fn into_error(failure: Failure) -> anyhow::Error {
    let (Failure::Undone(error) | Failure::Ambiguous(error)) = failure;
    let text = match error.as_db_error() {
        Some(db) => format!("an operation failed: {} {}", db.code().code(), db.message()),
        None => "an operation failed".to_owned(),
    };
    anyhow::Error::new(error).context(text)
}
