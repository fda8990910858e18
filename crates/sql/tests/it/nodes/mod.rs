//! Several SQL nodes of a tenant at the same time.

mod advisory;
mod catalog;
mod ended;
mod locks;
mod notify;
mod online;

use crate::database::{Database, session, tenant_of};
use crate::support::{client_of, new_tenant};
use kv_api::TenantId;
use sql::engine::Engine;
use sql::exec::NodeBudget;
use std::sync::Arc;
use std::time::Duration;

/// The length of the nodes' leases.
pub const LEASE: Duration = Duration::from_secs(2);

/// A node of a tenant.
pub async fn node_of(tenant: TenantId) -> Arc<Engine> {
    let kv = Arc::new(client_of(tenant));
    let (info, memory) = (tenant_of(&kv), NodeBudget::new(NodeBudget::DEFAULT_BYTES, None));
    Engine::open_leased(kv, info, memory, LEASE).await.expect("an engine")
}

/// A node with a session.
pub async fn node(tenant: TenantId) -> Database {
    let engine = node_of(tenant).await;
    let session = session(&engine).await;
    Database { engine, session }
}

/// Another session at the same node.
pub async fn beside(db: &Database) -> Database {
    Database { engine: db.engine.clone(), session: session(&db.engine).await }
}

/// Two nodes of a new tenant. Both have run a statement.
pub async fn two() -> (Database, Database) {
    let tenant = new_tenant().tenant();
    let (mut a, mut b) = (node(tenant).await, node(tenant).await);
    for db in [&mut a, &mut b] {
        db.execute("SELECT 1").await;
    }
    (a, b)
}

/// Table locks that are waited for.
pub const AWAITED: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'";
