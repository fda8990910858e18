//! `dormouse debug kv-load`: the KV layer under load, without SQL.
//!
//! It makes tenants of its own, which no directory of the control plane lists, writes a few keys into each,
//! and reads or writes them from many connections for a while; then it drops the tenants. What it prints is
//! operations per second and the CPU time each KV node of this machine spent per operation: what one range
//! costs against a thousand, and what a read from a follower costs its leaseholder.

use crate::api::Api;
use crate::data_dir::DataDirArgs;
use crate::duration;
use crate::error::{Failure, Outcome};
use crate::output::{Format, line, print_json, progress_bar, rows, table};
use bytes::Bytes;
use kv_client::{Config, KvClient, KvError, LockStrength, TenantId, TxnOptions};
use process::identity::Identity;
use process::metrics::Usage;
use process::tls::{Authority, CertificatePem, internal_client};
use rand::Rng;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The first of the tenants; far above those that control gives numbers to.
const FIRST_TENANT: u64 = 1 << 48;
/// Most tenants at a time.
const MAX_TENANTS: u64 = 10_000;
/// Keys of each tenant.
const KEYS: u32 = 16;
/// How long it takes at most until the directory knows who serves a range.
const REPORTED_AFTER: Duration = Duration::from_secs(2);
/// Tenants made or dropped at a time.
const AT_A_TIME: usize = 16;

/// Arguments of `dormouse debug kv-load`.
#[derive(Debug, clap::Args)]
pub(crate) struct KvLoadArgs {
    /// What is done
    #[arg(long, value_enum, default_value_t = Operation::Write)]
    operation: Operation,
    /// Tenants, each a range of its own; their numbers begin at 2^48, and they are dropped at the end
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX_TENANTS))]
    tenants: u64,
    /// Clients that work at a time, over all tenants
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    clients: u64,
    /// How long
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    duration: Duration,
    /// Bytes of each value
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=65536))]
    value_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Operation {
    /// One-key transactions
    Write,
    /// Point reads of the present, at the leaseholder
    Read,
    /// Point reads of the present, at a node that does not hold the lease
    FollowerRead,
}

/// A KV node of the cluster.
#[derive(Clone, Debug)]
struct KvNode {
    id: u64,
    address: String,
    pid: Option<u32>,
}

/// Runs the command.
pub(crate) fn run(data_dir: &DataDirArgs, args: &KvLoadArgs, format: Format) -> Outcome {
    let nodes = kv_nodes(&Api::of(data_dir)?)?;
    let certs = data_dir.paths().certs();
    let authority = Authority::from_pem(CertificatePem::load(&certs, "ca")?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start threads: {error}")))?;
    let report = runtime.block_on(load(&authority, &nodes, args))?;
    match format {
        Format::Json => print_json(&report),
        Format::Table => {
            line(format!(
                "{} operations, {} per second, {} failed",
                report["operations"], report["per_second"], report["failed"]
            ))?;
            if let Some(error) = report["first_error"].as_str() {
                line(format!("the first failure: {error}"))?;
            }
            let nodes = report["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            table(&["NODE", "CPU US PER OPERATION"], rows(nodes, &["node", "cpu_us_per_operation"]))
        }
    }
}

fn kv_nodes(api: &Api) -> Outcome<Vec<KvNode>> {
    let answer = api.get("/nodes")?;
    let listed = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let node = |node: &Value| KvNode {
        id: node["id"].as_u64().unwrap_or(0),
        address: node["address"].as_str().unwrap_or_default().to_owned(),
        pid: node["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
    };
    let nodes: Vec<KvNode> = listed.iter().map(node).collect();
    if nodes.is_empty() { Err(Failure::new("there is no KV node")) } else { Ok(nodes) }
}

fn config(authority: &Authority, nodes: &[KvNode], identity: Identity, tenant: TenantId) -> Outcome<Config> {
    let own = authority.issue(identity)?;
    let tls = internal_client(&authority.pem().certificate, &own)?;
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    Ok(Config::new(addresses, tls, tenant))
}

/// The address of a node that has a replica of a tenant's range and not its lease.
async fn follower(control: &KvClient, nodes: &[KvNode], tenant: TenantId) -> Outcome<String> {
    let before = TenantId(tenant.0 - 1).span().start;
    let found = control.ranges(before, 1).await.map_err(failed)?;
    let range = found.first().ok_or_else(|| Failure::new("the range of a tenant is gone"))?;
    let follower = range.replicas.iter().find(|replica| {
        replica.node_id != range.leaseholder && nodes.iter().any(|node| node.id == replica.node_id)
    });
    let alone =
        || Failure::new("there is one replica only: start more KV nodes, and wait until they have some");
    follower.map(|replica| replica.address.clone()).ok_or_else(alone)
}

fn failed(error: KvError) -> Failure {
    Failure::new(format!("the KV layer failed: {error}"))
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_be_bytes()
}

async fn load(authority: &Authority, nodes: &[KvNode], args: &KvLoadArgs) -> Outcome<Value> {
    let control = KvClient::connect(config(authority, nodes, Identity::Control, TenantId(1))?);
    let ids = FIRST_TENANT..FIRST_TENANT + args.tenants;
    let result = tokio::select! {
        result = prepare_and_run(authority, nodes, args, &control, ids.clone()) => result,
        _ = tokio::signal::ctrl_c() => Err(Failure::new("interrupted")),
    };
    let dropped = each(ids, "dropping tenants", |id| {
        let control = control.clone();
        async move { control.drop_tenant(TenantId(id)).await.map_err(failed) }
    });
    // Whatever came of the load, its tenants go.
    let dropped = dropped.await;
    result.and_then(|report| dropped.map(|_| report))
}

async fn prepare_and_run(
    authority: &Authority,
    nodes: &[KvNode],
    args: &KvLoadArgs,
    control: &KvClient,
    ids: std::ops::Range<u64>,
) -> Outcome<Value> {
    let value = Bytes::from(vec![b'v'; usize::try_from(args.value_bytes).unwrap_or(1)]);
    let operation = args.operation;
    let clients = each(ids, "making tenants", |id| {
        let (control, value) = (control.clone(), value.clone());
        let tenant = TenantId(id);
        let made = config(authority, nodes, Identity::Tenant(id), tenant);
        let nodes = nodes.to_vec();
        async move {
            control.create_tenant(tenant).await.map_err(failed)?;
            let config = made?;
            let client = KvClient::connect(config.clone());
            let writes: Vec<_> =
                (0..KEYS).map(|number| (Bytes::copy_from_slice(&key(number)), Some(value.clone()))).collect();
            client.write(&writes).await.map_err(failed)?;
            if operation != Operation::FollowerRead {
                return Ok(client);
            }
            // The directory hears of the leaseholder a moment later.
            tokio::time::sleep(REPORTED_AFTER).await;
            let near = follower(&control, &nodes, tenant).await?;
            Ok(KvClient::connect(Config { near, ..config }))
        }
    })
    .await?;
    let before = cpu(nodes);
    let begun = Instant::now();
    let (operations, failed, first_error) = work(clients.into(), args, value).await;
    let after = cpu(nodes);
    let seconds = begun.elapsed().as_secs_f64();
    let per_node: Vec<Value> = nodes
        .iter()
        .zip(before.iter().zip(&after))
        .map(|(node, (before, after))| {
            let spent = before.zip(*after).map(|(before, after)| after.saturating_sub(before) as f64 * 1000.0);
            json!({
                "node": node.id,
                "cpu_us_per_operation": spent.map(|us| (us / operations.max(1) as f64 * 100.0).round() / 100.0),
            })
        })
        .collect();
    Ok(json!({
        "operation": format!("{:?}", args.operation),
        "tenants": args.tenants,
        "clients": args.clients,
        "operations": operations,
        "failed": failed,
        "first_error": first_error,
        "per_second": (operations as f64 / seconds).round(),
        "nodes": per_node,
    }))
}

/// Does something for each tenant, a few at a time.
async fn each<T, F>(
    ids: std::ops::Range<u64>,
    what: &'static str,
    mut make: impl FnMut(u64) -> F,
) -> Outcome<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + 'static,
{
    let bar = progress_bar(what, usize::try_from(ids.end - ids.start).unwrap_or(usize::MAX));
    let mut running = tokio::task::JoinSet::new();
    let mut results = Vec::new();
    let ended = |error: tokio::task::JoinError| Failure::new(format!("a task ended abnormally: {error}"));
    for id in ids {
        if running.len() >= AT_A_TIME
            && let Some(result) = running.join_next().await
        {
            results.push(result.map_err(ended)??);
            bar.inc(1);
        }
        running.spawn(make(id));
    }
    while let Some(result) = running.join_next().await {
        results.push(result.map_err(ended)??);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(results)
}

/// CPU time of the KV nodes of this machine so far, in milliseconds.
fn cpu(nodes: &[KvNode]) -> Vec<Option<u64>> {
    nodes.iter().map(|node| Some(Usage::of(&node.pid?.to_string()).ok()?.cpu_ms)).collect()
}

/// Lets all clients work until the time is over. Returns how many operations succeeded and failed, and why the
/// first one did.
async fn work(tenants: Arc<[KvClient]>, args: &KvLoadArgs, value: Bytes) -> (u64, u64, Option<String>) {
    let first_error = Arc::new(OnceLock::new());
    let over = Arc::new(AtomicBool::new(false));
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let begun = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for worker in 0..args.clients {
        let (tenants, over, counts) = (Arc::clone(&tenants), Arc::clone(&over), Arc::clone(&counts));
        let (operation, value, first_error) = (args.operation, value.clone(), Arc::clone(&first_error));
        running.spawn(async move {
            // Every tenant is used all the time, by one client after the other.
            let mut turn = usize::try_from(worker).unwrap_or(0);
            while !over.load(Ordering::Relaxed) {
                let number = rand::rng().random_range(0..KEYS);
                let Some(client) = tenants.get(turn % tenants.len().max(1)) else { return };
                turn += 1;
                let result = match operation {
                    Operation::Write => {
                        let key = Bytes::copy_from_slice(&key(number));
                        client.write(&[(key, Some(value.clone()))]).await
                    }
                    Operation::Read | Operation::FollowerRead => {
                        let options = TxnOptions {
                            read_only: true,
                            follower_reads: operation == Operation::FollowerRead,
                            ..TxnOptions::default()
                        };
                        client.begin(options).get(&key(number), LockStrength::None).await.map(drop)
                    }
                };
                let succeeded = result.is_ok();
                if let Err(error) = result {
                    // Only the first is kept.
                    let _ = first_error.set(error.to_string());
                }
                if let Some(count) = counts.get(usize::from(!succeeded)) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    tokio::time::sleep(args.duration.saturating_sub(begun.elapsed())).await;
    over.store(true, Ordering::Relaxed);
    while running.join_next().await.is_some() {}
    let [succeeded, failed] = &*counts;
    let first_error = first_error.get().cloned();
    (succeeded.load(Ordering::Relaxed), failed.load(Ordering::Relaxed), first_error)
}
