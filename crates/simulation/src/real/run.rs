//! Runs: one seed, one world, one verdict.

use super::desk::Desk;
use super::finish;
use super::hop::Hosts;
use super::machine::{self, Machine};
use super::plan::{Global, Plan};
use super::workload::{borders, global_span, run_client};
use super::world::{FIRST_CLIENT, World};
use super::{Options, Outcome, Tracing, faults, logs};
use crate::clock::{MILLI, SECOND};
use crate::network::Weather;
use crate::watch::Violation;
use kv_api::TenantId;
use kv_client::{KvClient, KvError, RangeConfig};
use kv_server::authorize::Caller;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use replication::NodeId;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

/// Most virtual time of a run.
const LONGEST: Duration = Duration::from_secs(600);
/// How long the cluster may take to have all its replicas.
const FOUNDING: u64 = 60 * SECOND;
/// The control plane's place.
pub(super) const CONTROL: NodeId = FIRST_CLIENT - 1;

thread_local! {
    /// Panics on this thread; tasks keep theirs to themselves.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            usual(panic);
        }));
    });
}

/// Runs a seed. The same seed gives the same outcome.
pub fn run(seed: u64, options: Options) -> Outcome {
    note_panics();
    logs::listen();
    PANICS.take();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut plan = Plan::draw(&mut rng);
    if options.global {
        plan.read_everywhere(&mut rng);
    }
    if options.merges {
        plan.merge_often(&mut rng);
    }
    if options.transfers {
        plan.hand_leases_over_often(&mut rng);
    }
    if options.wrong_clocks {
        plan.let_clocks_go_wrong();
    }
    if options.whole_ranges {
        plan.keep_ranges_whole();
    }
    if options.calm {
        plan.calm_down();
    }
    let wrong_clocks = plan.has_wrong_clocks();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Outcome::failed(seed, Violation::new("the run begins", error.to_string())),
    };
    let running = || {
        runtime.block_on(async {
            let world = World::new(plan, rng, options);
            logs::set_world(&world);
            if tokio::time::timeout(LONGEST, live(&world)).await.is_err() {
                world.violate("runs end", "there was no end of it in ten minutes");
            }
            world
        })
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        if options.tracing == Tracing::Off { running() } else { logs::with_logs(running) }
    }));
    let panics = PANICS.take();
    let Ok(world) = ran else {
        return Outcome::failed(seed, Violation::new("no panics", panics.join("; ")));
    };
    let mut violation = world.violation();
    if let Some(panic) = panics.first() {
        violation = violation.or_else(|| Some(Violation::new("no panics", panic.clone())));
    }
    let (history, trace, counts) = world.take_story();
    // What was still under way goes with it.
    drop(runtime);
    world.end_processes();
    drop(world);
    Outcome {
        seed,
        violation: violation.or_else(|| finish::judge(&history, wrong_clocks)),
        counts,
        trace,
        txns: history.len(),
    }
}

/// A failure in words: the end of the trace, for which the seed is run once more, the check, and how to see it
/// again.
pub fn report(failure: &Outcome, options: Options, lines: usize) -> String {
    let mut text = String::new();
    if lines > 0 {
        let again = run(failure.seed, Options { tracing: Tracing::Kept, ..options });
        let skip = again.trace.len().saturating_sub(lines);
        again.trace[skip..].iter().for_each(|line| {
            text.push_str(line);
            text.push('\n');
        });
        if again.violation != failure.violation {
            text.push_str(&format!("A second run went differently: {:?}\n", again.violation));
        }
    }
    let seed = failure.seed;
    let mut with = options.bug.map_or_else(String::new, |bug| format!(" BUG={bug:?}"));
    if options.whole_ranges {
        with.push_str(" WHOLE=1");
    }
    if options.calm {
        with.push_str(" CALM=1");
    }
    if options.merges {
        with.push_str(" MERGES=1");
    }
    if options.transfers {
        with.push_str(" TRANSFERS=1");
    }
    if options.global {
        with.push_str(" GLOBAL=1");
    }
    if options.wrong_clocks {
        with.push_str(" WRONG_CLOCKS=1");
    }
    text.push_str(&format!(
        "seed {seed} failed; to see all of it: make sim WORLD=transactions SEEDS={seed}..{seed} TRACE=1{with}\n"
    ));
    if let Some(violation) = &failure.violation {
        text.push_str(&format!("check: {}\n{}\n", violation.check, violation.detail));
    }
    text
}

/// Asks until it holds.
pub(super) async fn until<F: Future<Output = Result<(), String>>>(
    world: &World,
    patience: u64,
    check: &'static str,
    mut holds: impl FnMut() -> F,
) -> bool {
    let deadline = world.now() + patience;
    loop {
        match holds().await {
            Ok(()) => return true,
            Err(problem) if world.now() >= deadline => {
                world.violate(check, problem);
                return false;
            }
            Err(_) => world.sleep(100 * MILLI).await,
        }
    }
}

async fn live(world: &Arc<World>) {
    world.note(|| format!("{:?}", world.plan));
    let usual = world.plan.weather;
    world.with_network(|network| network.weather = Weather::FAIR);
    if !found(world).await {
        return;
    }
    world.with_network(|network| network.weather = usual);
    world.note(|| "trouble begins".to_owned());
    let mut clients = Vec::new();
    let hosts = Arc::<Hosts>::default();
    let mut place = FIRST_CLIENT;
    for tenant in tenants(world) {
        for _ in 0..world.plan.clients {
            clients.push(tokio::spawn(run_client(Arc::clone(world), Arc::clone(&hosts), place, tenant)));
            place += 1;
        }
    }
    faults::run(Arc::clone(world)).await;
    world.note(|| "trouble ends".to_owned());
    finish::mend(world).await;
    for client in clients {
        // One that panics is noticed otherwise.
        let _ = client.await;
    }
    let ended = "clients leave no locks behind while they are connected";
    if world.violation().is_none() && finish::nothing_is_left(world, ended, true).await {
        hosts.close();
        finish::check(world).await;
    }
    hosts.close();
}

/// The tenants of a run.
pub fn tenants(world: &World) -> Vec<TenantId> {
    (0..world.plan.tenants).map(|number| TenantId(TenantId::FIRST_USER.0 + number)).collect()
}

/// Has keys of a tenant read everywhere, or no longer.
pub(super) async fn set_global(
    control: &KvClient,
    tenant: TenantId,
    global: Global,
    on: bool,
) -> Result<(), KvError> {
    let config = on.then(|| RangeConfig { global_reads: true, ..RangeConfig::default() });
    control.configure_span_of(tenant, global_span(global, tenant), config).await
}

/// Founds the cluster and makes the tenants' ranges.
async fn found(world: &Arc<World>) -> bool {
    for id in 1..=world.plan.nodes {
        world.set_clock(id);
        world.add_machine(id, Machine::new());
        machine::start(world, id).await;
        if world.violation().is_some() {
            return false;
        }
    }
    let desk = Desk::new(world, CONTROL, Caller::Control);
    let control = desk.client();
    for tenant in tenants(world) {
        if let Err(error) = control.create_tenant(tenant).await {
            world.violate("the cluster is founded", format!("{tenant:?}: {error}"));
            return false;
        }
    }
    for tenant in tenants(world) {
        for border in borders(world, tenant) {
            if world.draw(|rng| rng.random_range(0..1000)) >= world.plan.splits_per_mille {
                continue;
            }
            if let Err(error) = control.split_range(&border).await {
                world.violate("the cluster is founded", format!("a split at {border:?}: {error}"));
                return false;
            }
        }
    }
    for tenant in tenants(world) {
        let Some(global) = world.plan.global else { break };
        if let Err(error) = set_global(&control, tenant, global, true).await {
            world.violate("the cluster is founded", format!("what is read everywhere: {error}"));
            return false;
        }
    }
    // Who uses a range wakes it, and only then it is looked after at once.
    let desks = tenants(world).into_iter().map(|tenant| Desk::new(world, CONTROL, Caller::Tenant(tenant)));
    let desks: Vec<_> = desks.chain([Arc::clone(&desk)]).collect();
    let users: Vec<_> = desks.iter().map(Desk::client).collect();
    let whole = async || {
        for user in &users {
            user.ready().await.map_err(|error| error.to_string())?;
        }
        let ranges = control.ranges(Default::default(), 0).await.map_err(|error| error.to_string())?;
        match ranges.iter().find(|range| range.replicas.len() < 3) {
            Some(range) => Err(format!("range {} has {} replicas", range.range_id, range.replicas.len())),
            None => Ok(()),
        }
    };
    let founded = until(world, FOUNDING, "the cluster is founded", whole).await;
    desks.iter().for_each(|desk| desk.crash());
    founded
}
