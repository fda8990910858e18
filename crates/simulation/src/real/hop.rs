//! Transactions that change their process between two statements, and thieves that must not get one.

use super::desk::Desk;
use super::plan::Menu;
use super::world::World;
use crate::clock::MILLI;
use bytes::Bytes;
use kv_client::{KvClient, KvError, KvErrorKind, KvResult, TenantId, TransferKey, Txn};
use parking_lot::Mutex;
use rand::Rng;
use rand::seq::IndexedRandom;
use replication::NodeId;
use std::sync::Arc;

/// The check that thieves put to the test.
const ONE_COORDINATOR: &str = "one process goes on with a transaction";
/// What must hold where nothing goes wrong.
const NO_HARM: &str = "hops do no harm";

/// A process of a tenant that transactions can go to.
#[derive(Clone)]
pub struct Host {
    tenant: TenantId,
    place: NodeId,
    desk: Arc<Desk>,
    client: KvClient,
}

/// The processes that run.
#[derive(Default)]
pub struct Hosts(Mutex<Vec<Host>>);

impl Hosts {
    /// A process has started, in place of an earlier one.
    pub fn enter(&self, tenant: TenantId, place: NodeId, desk: &Arc<Desk>, client: &KvClient) {
        let host = Host { tenant, place, desk: Arc::clone(desk), client: client.clone() };
        let mut hosts = self.0.lock();
        hosts.retain(|other| other.place != place);
        hosts.push(host);
    }

    /// All processes end.
    pub fn close(&self) {
        self.0.lock().drain(..).for_each(|host| host.desk.crash());
    }

    fn some(&self, world: &World, wanted: impl Fn(&Host) -> bool) -> Option<Host> {
        let hosts: Vec<Host> =
            self.0.lock().iter().filter(|host| host.desk.is_alive() && wanted(host)).cloned().collect();
        world.draw(|rng| hosts.choose(rng).cloned())
    }
}

fn key() -> TransferKey {
    TransferKey::new([7; 32])
}

/// The way of one transaction from process to process.
pub struct Traveller<'a> {
    world: &'a World,
    hosts: &'a Hosts,
    tenant: TenantId,
    /// The process it is at.
    desk: Mutex<Arc<Desk>>,
    /// What it was exported as the last time.
    last: Mutex<Option<Bytes>>,
}

impl<'a> Traveller<'a> {
    /// One that begins at a process.
    pub fn new(world: &'a World, hosts: &'a Hosts, tenant: TenantId, desk: &Arc<Desk>) -> Self {
        Traveller { world, hosts, tenant, desk: Mutex::new(Arc::clone(desk)), last: Mutex::default() }
    }

    fn chance(&self, per_mille: u32) -> bool {
        self.world.draw(|rng| rng.random_range(0..1000)) < per_mille
    }

    /// Perhaps hands the transaction on; returns it as it is then.
    ///
    /// # Errors
    /// If it was lost on the way.
    pub async fn perhaps_go(&self, txn: &Arc<Txn>) -> KvResult<Option<Arc<Txn>>> {
        if !self.chance(self.world.plan.hops_per_mille) {
            return Ok(None);
        }
        let world = self.world;
        let bytes = txn.export(&key()).await.inspect_err(|error| {
            world.count("exports failed");
            self.must_not_be(error);
        })?;
        world.count("exports");
        if world.plan.menu.contains(&Menu::ClientCrashes) {
            if self.chance(40) {
                world.count("exports that nobody imports");
                return Err(KvError::new(KvErrorKind::Aborted, "the exported transaction is lost"));
            }
            if self.chance(80) {
                world.count("exporters crash");
                self.desk.lock().crash();
            }
        }
        self.try_to_steal(&bytes).await;
        if self.chance(300) {
            world.sleep(world.draw(|rng| rng.random_range(0..100 * MILLI))).await;
        }
        let Some(host) = self.hosts.some(world, |host| host.tenant == self.tenant) else {
            return Err(KvError::new(KvErrorKind::Aborted, "no process takes the transaction over"));
        };
        let imported = host.client.import(bytes.clone(), &key()).await;
        let txn = imported.inspect_err(|error| {
            world.note(|| format!("client {}: not imported: {error}", host.place));
            world.count(match error.kind() {
                KvErrorKind::Aborted => "imports refused: aborted",
                KvErrorKind::Unavailable => "imports refused: unavailable",
                _ => "imports refused otherwise",
            });
            self.must_not_be(error);
        })?;
        world.note(|| format!("client {}: imported", host.place));
        world.count("hops");
        *self.desk.lock() = host.desk;
        if self.chance(150) {
            self.steal("taken over again", bytes.clone()).await;
        }
        *self.last.lock() = Some(bytes);
        Ok(Some(Arc::new(txn)))
    }

    fn must_not_be(&self, error: &KvError) {
        if self.world.options.calm {
            self.world.violate(NO_HARM, error.to_string());
        }
    }

    /// What must be refused while the transaction is on its way.
    async fn try_to_steal(&self, bytes: &Bytes) {
        let last = self.last.lock().clone();
        if let Some(last) = last
            && self.chance(200)
        {
            self.steal("taken over as it was earlier", last).await;
        }
        if self.chance(50) {
            let (place, bit) =
                self.world.draw(|rng| (rng.random_range(0..bytes.len()), rng.random_range(0..8)));
            let mut changed = bytes.to_vec();
            changed[place] ^= 1 << bit;
            self.steal("taken over although its bytes were changed", changed.into()).await;
        }
        let foreign = self.hosts.some(self.world, |host| host.tenant != self.tenant);
        if let Some(foreign) = foreign
            && foreign.client.import(bytes.clone(), &key()).await.is_ok()
        {
            self.world.violate(ONE_COORDINATOR, "it was taken over by another tenant");
        }
    }

    async fn steal(&self, how: &str, bytes: Bytes) {
        let Some(thief) = self.hosts.some(self.world, |host| host.tenant == self.tenant) else { return };
        match thief.client.import(bytes, &key()).await {
            Ok(_) => self.world.violate(ONE_COORDINATOR, format!("it was {how}")),
            Err(_) => self.world.count("thieves refused"),
        }
    }
}
