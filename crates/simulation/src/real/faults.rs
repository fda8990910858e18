//! Draws what goes wrong, and makes it happen.

use super::desk::Desk;
use super::machine::{Ending, Loss, begin_again, crash};
use super::plan::Menu;
use super::run::{CONTROL, set_global, tenants};
use super::workload::borders;
use super::world::{FIRST_CLIENT, World};
use crate::clock::{MAX_RATE_PPM, MILLI, Micros, SECOND};
use crate::network::{Link, Weather};
use kv_api::TenantId;
use kv_api::batch::RangeInfo;
use kv_server::authorize::Caller;
use rand::Rng;
use rand::seq::IndexedRandom;
use replication::NodeId;
use std::sync::Arc;
use storage::StorageError;

/// Lets things go wrong until the trouble is over.
pub async fn run(world: Arc<World>) {
    let until = world.now() + world.plan.trouble;
    if let Some(pause) = world.plan.transfer_pause {
        tokio::spawn(hand_leases_over(Arc::clone(&world), pause));
    }
    while world.now() < until && !world.is_over() {
        let (from, to) = world.plan.gap;
        world.sleep(world.draw(|rng| rng.random_range(from..=to))).await;
        let menu = world.plan.menu.clone();
        if let Some(kind) = world.draw(|rng| menu.choose(rng).copied()) {
            happen(&world, kind).await;
        }
    }
    world.end();
}

fn span(world: &World, from: Micros, to: Micros) -> Micros {
    world.draw(|rng| rng.random_range(from..=to))
}

fn some_node(world: &World) -> NodeId {
    let nodes = world.plan.nodes;
    world.draw(|rng| rng.random_range(1..=nodes))
}

/// Undoes something after a while.
fn later(world: &Arc<World>, span: Micros, undo: impl FnOnce(&World) + Send + 'static) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        world.sleep(span).await;
        undo(&world);
    });
}

fn crash_for(world: &Arc<World>, id: NodeId, down: Micros) {
    let loss = world.draw(|rng| if rng.random_bool(0.5) { Loss::Everything } else { Loss::Some });
    let ending = world.draw(|rng| if rng.random_bool(0.6) { Ending::Noticed } else { Ending::Silent });
    if !crash(world, id, loss, ending) {
        return;
    }
    let world = Arc::clone(world);
    tokio::spawn(async move {
        world.sleep(down).await;
        begin_again(&world, id).await;
    });
}

fn cut_for(world: &Arc<World>, links: Vec<Link>, span: Micros) {
    world.note(|| format!("network: cut {links:?} for {} ms", span / MILLI));
    world.count("cuts");
    world.with_network(|network| network.cut(&links));
    later(world, span, move |world| world.with_network(|network| network.mend(&links)));
}

async fn happen(world: &Arc<World>, kind: Menu) {
    let nodes = world.plan.nodes;
    match kind {
        Menu::Crashes => crash_for(world, some_node(world), span(world, 10 * MILLI, 4 * SECOND)),
        Menu::TornTurns => {
            let id = some_node(world);
            let writes = world.draw(|rng| rng.random_range(0..4));
            world.with_machine(id, |machine| {
                if machine.process.is_some() {
                    machine.torn = true;
                    let error = StorageError::Io("the power failed".to_owned());
                    machine.engine.fail_writes_after(Some((writes, error)));
                }
            });
            world.count("torn turns");
        }
        Menu::Outages => {
            world.count("outages");
            for id in 1..=nodes {
                crash_for(world, id, span(world, 10 * MILLI, 2 * SECOND));
            }
        }
        Menu::Cuts => {
            let clients = u64::try_from(world.plan.clients).unwrap_or(1) * world.plan.tenants;
            let first = some_node(world);
            let second = world.draw(|rng| {
                let client = FIRST_CLIENT + rng.random_range(0..clients.max(1));
                if rng.random_bool(0.4) { client } else { rng.random_range(1..=nodes) }
            });
            let both = world.draw(|rng| rng.random_bool(0.6));
            let mut links = vec![(first, second)];
            if both {
                links.push((second, first));
            }
            cut_for(world, links, span(world, 50 * MILLI, 5 * SECOND));
        }
        Menu::Isolation => {
            let id = some_node(world);
            let way = world.draw(|rng| rng.random_range(0..3));
            let others = (1..=nodes).filter(|other| *other != id);
            let links = others.flat_map(|other| match way {
                0 => vec![(id, other)],
                1 => vec![(other, id)],
                _ => vec![(id, other), (other, id)],
            });
            let links: Vec<Link> = links.collect();
            cut_for(world, links, span(world, 100 * MILLI, 6 * SECOND));
        }
        Menu::Storms => {
            let weather = world.draw(|rng| Weather {
                delay: (0, *[5 * MILLI, 100 * MILLI].choose(rng).unwrap_or(&MILLI)),
                late_per_mille: rng.random_range(0..200),
                late: (100 * MILLI, 3 * SECOND),
                lost_per_mille: rng.random_range(0..300),
                repeated_per_mille: rng.random_range(0..200),
            });
            world.note(|| format!("network: {weather:?}"));
            world.count("storms");
            world.with_network(|network| network.weather = weather);
            later(world, span(world, SECOND, 4 * SECOND), |world| {
                // Once the trouble is over the weather is fair.
                let usual = if world.is_over() { Weather::FAIR } else { world.plan.weather };
                world.with_network(|network| network.weather = usual);
            });
        }
        Menu::SlowDisks => {
            let (id, sync) = (some_node(world), span(world, 10 * MILLI, 500 * MILLI));
            world.note(|| format!("node {id}: a sync takes {} ms more", sync / MILLI));
            world.count("slow disks");
            world.with_machine(id, |machine| machine.slow_disk = sync);
            later(world, span(world, SECOND, 4 * SECOND), move |world| {
                world.with_machine(id, |machine| machine.slow_disk = 0);
            });
        }
        Menu::Clocks => {
            let (id, most) = (some_node(world), world.plan.wall_error);
            let (offset, rate) = world
                .draw(|rng| (rng.random_range(-most..=most), rng.random_range(-MAX_RATE_PPM..=MAX_RATE_PPM)));
            world.note(|| format!("node {id}: wall clock {offset} us off, rate {rate} ppm"));
            world.count("clocks set");
            let wrong = world.has_wrong_clock(id);
            world.with_clock(id, |clock, now| {
                if !wrong {
                    clock.set_wall_offset(offset);
                }
                clock.set_rate(now, rate);
            });
        }
        Menu::WrongClocks => {
            let id = some_node(world);
            let offset = world.draw(|rng| {
                let far = rng.random_range(2 * SECOND..3600 * SECOND).cast_signed();
                if rng.random_bool(0.5) { far } else { -far }
            });
            // One at a time: with two wrong clocks of three nobody knows which is right.
            if world.begin_wrong_clock(id) {
                world.note(|| format!("node {id}: wall clock set {offset} us off"));
                world.count("clocks set wrong");
                world.with_clock(id, |clock, _| clock.set_wall_offset(offset));
            }
        }
        Menu::Transfers => transfer(world, some_node(world), some_node(world)).await,
        Menu::Splits => {
            let tenants = tenants(world);
            if let Some(tenant) = world.draw(|rng| tenants.choose(rng).copied()) {
                split(world, tenant);
            }
        }
        Menu::Merges => {
            let tenants = tenants(world);
            if let Some(tenant) = world.draw(|rng| tenants.choose(rng).copied()) {
                merge(world, tenant);
            }
        }
        Menu::Globals => change_globals(world),
        // Clients do these to themselves.
        Menu::BrokenConnections | Menu::ClientCrashes | Menu::CoordinatorCrashes => {}
    }
}

/// Splits a range of a tenant somewhere, if it is not split there already.
pub fn split(world: &Arc<World>, tenant: TenantId) {
    let borders = borders(world, tenant);
    let Some(border) = world.draw(|rng| borders.choose(rng).cloned()) else { return };
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let desk = Desk::new(&world, CONTROL, Caller::Control);
        match desk.client().split_range(&border).await {
            Ok(()) => {
                world.note(|| format!("control: split at {border:?}"));
                world.count("splits");
            }
            Err(error) => world.note(|| format!("control: no split at {border:?}: {error}")),
        }
        desk.crash();
    });
}

/// Has some range of a tenant absorb its right neighbour, if it has one.
pub fn merge(world: &Arc<World>, tenant: TenantId) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let desk = Desk::new(&world, CONTROL, Caller::Control);
        let client = desk.client();
        if let Ok(mut ranges) = client.ranges(tenant.span().start, 0).await {
            ranges.retain(|range| TenantId::of_key(&range.start) == Some(tenant));
            // Also the first, which is not after the key that it begins with.
            let starts = ranges.first().map(|range| range.start.clone());
            let first =
                starts.map(|end| RangeInfo { start: tenant.span().start, end, ..RangeInfo::default() });
            ranges.extend(first);
            // The last has no neighbour.
            ranges.retain(|range| range.end < tenant.span().end);
            if let Some(range) = world.draw(|rng| ranges.choose(rng).cloned()) {
                match client.merge_range(&range).await {
                    Ok(()) => {
                        world.note(|| format!("control: merged at {:?}", range.end));
                        world.count("merges");
                    }
                    Err(error) => world.note(|| format!("control: no merge at {:?}: {error}", range.end)),
                }
            }
        }
        desk.crash();
    });
}

/// Lets a tenant's keys begin to be read everywhere, or cease.
fn change_globals(world: &Arc<World>) {
    let tenants = tenants(world);
    let tenant = world.draw(|rng| tenants.choose(rng).copied());
    let on = world.draw(|rng| rng.random_bool(0.5));
    let Some((tenant, global)) = tenant.zip(world.plan.global) else { return };
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let desk = Desk::new(&world, CONTROL, Caller::Control);
        match set_global(&desk.client(), tenant, global, on).await {
            Ok(()) => {
                world.note(|| format!("control: {global:?} of {tenant:?} are read everywhere: {on}"));
                world.count("globals changed");
            }
            Err(error) => {
                world.note(|| format!("control: {global:?} of {tenant:?} stay as they are: {error}"))
            }
        }
        desk.crash();
    });
}

/// Hands leases over all the time, until the trouble is over: more often than not to one node, so that transactions
/// have all their parts there and are settled together.
async fn hand_leases_over(world: Arc<World>, longest_pause: Micros) {
    let favourite = some_node(&world);
    while !world.is_over() {
        world.sleep(span(&world, MILLI, longest_pause)).await;
        let (from, to) = (some_node(&world), some_node(&world));
        let back = from != favourite && world.draw(|rng| rng.random_bool(0.8));
        transfer(&world, from, if back { favourite } else { to }).await;
    }
}

/// Hands a lease that a node holds to another.
async fn transfer(world: &Arc<World>, from: NodeId, to: NodeId) {
    let node = world.with_machine(from, |machine| Some(Arc::clone(&machine.process.as_ref()?.node)));
    let Some(node) = node.flatten() else { return };
    let Ok(held) = node.pipeline().held_ranges().await else { return };
    let Some(range) = world.draw(|rng| held.choose(rng).copied()) else { return };
    let world = Arc::clone(world);
    tokio::spawn(async move {
        match node.pipeline().transfer_lease(range, to).await {
            Ok(()) => {
                world.note(|| format!("node {from}: hands the lease of range {range} to node {to}"));
                world.count("leases handed over");
            }
            Err(error) => world.note(|| format!("node {from}: range {range} not handed to {to}: {error}")),
        }
    });
}
