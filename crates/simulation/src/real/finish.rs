//! The end of a run: all is well again, and the cluster has to show it.

use super::desk::Desk;
use super::machine::begin_again;
use super::run::{tenants, until};
use super::workload::read_everything;
use super::world::{FIRST_CLIENT, World};
use crate::clock::SECOND;
use crate::watch::Violation;
use histories::{Class, History, Options, Txn};
use kv_server::authorize::Caller;
use replication::NodeId;
use std::sync::Arc;

/// How long everything may take to work again.
const RECOVERY: u64 = 60 * SECOND;
/// The place of those who look in the end.
const JUDGE: NodeId = FIRST_CLIENT - 2;

/// Makes everything well.
pub async fn mend(world: &Arc<World>) {
    world.with_network(|network| network.heal());
    for id in world.machines() {
        world.with_machine(id, |machine| {
            machine.slow_disk = 0;
            if machine.process.is_some() {
                machine.torn = false;
                machine.engine.fail_writes_after(None);
            }
        });
        begin_again(world, id).await;
    }
    // It has two others that hear it now.
    let stopped = async || match world.wrong_clock() {
        Some(id) => Err(format!("node {id} goes on")),
        None => Ok(()),
    };
    until(world, RECOVERY, "a node with a wrong clock stops", stopped).await;
}

/// Everything works again, nothing is left behind, and the replicas are the same.
pub async fn check(world: &Arc<World>) {
    for tenant in tenants(world) {
        if let Err(error) = read_everything(world, JUDGE, tenant, RECOVERY).await {
            let left = left_behind(world).await.join("\n");
            return world.violate("transactions commit again", format!("{tenant:?}: {error}\n{left}"));
        }
    }
    if !nothing_is_left(world, "nothing is left behind", false).await {
        return;
    }
    let desk = Desk::new(world, JUDGE, Caller::Control);
    let control = desk.client();
    let agree = async || {
        let ranges = control.ranges(Default::default(), 0).await.map_err(|error| error.to_string())?;
        for range in &ranges {
            let checks = control.check_replicas(range).await.map_err(|error| error.to_string())?;
            if let Some(wrong) = checks.iter().find(|check| !check.agrees) {
                return Err(format!("range {}: node {}: {}", range.range_id, wrong.node_id, wrong.problem));
            }
        }
        Ok(())
    };
    until(world, RECOVERY, "replicas agree", agree).await;
    desk.crash();
}

/// What each node keeps of transactions, and which ranges are frozen there.
async fn left_behind(world: &Arc<World>) -> Vec<String> {
    let mut left = Vec::new();
    for id in world.machines() {
        let node = world.with_machine(id, |machine| Some(Arc::clone(&machine.process.as_ref()?.node)));
        let Some(node) = node.flatten() else { continue };
        left.extend(node.leftovers().into_iter().map(|what| format!("node {id} has {what}")));
        let frozen = node.pipeline().frozen().await.unwrap_or_default();
        left.extend(frozen.into_iter().map(|(range, freeze)| {
            format!("node {id} has range {} frozen for {}", range.range_id, freeze.absorber)
        }));
    }
    left
}

/// Whether no node keeps anything of a transaction any more, or soon will not. While `connected`, nothing that others
/// have to wait for; that is because clients have said how their transactions end.
pub async fn nothing_is_left(world: &Arc<World>, check: &'static str, connected: bool) -> bool {
    let idle = async || {
        for id in world.machines() {
            let node = world.with_machine(id, |machine| Some(Arc::clone(&machine.process.as_ref()?.node)));
            match node.flatten() {
                Some(node)
                    if !connected
                        && node.pipeline().frozen().await.is_ok_and(|frozen| !frozen.is_empty()) =>
                {
                    return Err(format!("node {id} has ranges that are frozen"));
                }
                Some(node) if node.is_idle() || (connected && node.keeps_nobody_waiting()) => {}
                Some(node) => return Err(format!("node {id} still has {}", node.leftovers().join("; "))),
                None => return Err(format!("node {id} does not run")),
            }
        }
        Ok(())
    };
    until(world, RECOVERY, check, idle).await
}

/// What the history says. With `wrong_clocks` reads may be stale.
pub fn judge(history: &[Txn], wrong_clocks: bool) -> Option<Violation> {
    let history = History { txns: history.to_vec() };
    let mut anomalies = histories::check(&history, Options::default());
    let is_stale = |class| matches!(class, Class::RealTime | Class::LostAppend);
    anomalies.retain(|anomaly| !wrong_clocks || !is_stale(anomaly.class));
    let first = anomalies.first()?;
    let others: Vec<&str> = anomalies.iter().skip(1).map(|anomaly| anomaly.class.name()).collect();
    let more = if others.is_empty() { String::new() } else { format!("\nand: {}", others.join(", ")) };
    let detail =
        format!("{} of transactions {:?}: {}{more}", first.class.name(), first.txns, first.explanation);
    Some(Violation::new("transactions are serializable", detail))
}
