//! Advisory locks exclude the sessions of all nodes.

use super::{LEASE, beside, node, two};
use crate::online::{start, until};
use crate::support::new_tenant;
use std::time::Duration;
use tokio::runtime::Runtime;

const TRY: &str = "SELECT pg_try_advisory_lock(7)";
const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_one_node_keeps_the_others_out() {
    let (mut a, mut b) = two().await;
    assert_eq!(a.rows(TRY).await, ["t"]);
    assert_eq!(b.rows(TRY).await, ["f"]);
    assert_eq!(b.rows("SELECT pg_try_advisory_lock_shared(7), pg_try_advisory_lock(8)").await, ["f|t"]);
    assert_eq!(a.rows("SELECT pg_try_advisory_lock(8), pg_try_advisory_lock(7)").await, ["f|t"]);
    let waiting = start(&b.engine, "SELECT pg_advisory_lock(7)").await;
    until(&mut beside(&b).await, WAITING, "0").await;
    // It was taken twice.
    assert_eq!(a.rows("SELECT pg_advisory_unlock(7)").await, ["t"]);
    assert_eq!(beside(&a).await.rows("SELECT pg_try_advisory_xact_lock(7)").await, ["f"]);
    assert_eq!(a.rows("SELECT pg_advisory_unlock(7)").await, ["t"]);
    waiting.task.await.expect("a task").expect("a lock");
    // That session has ended, and its lock with it.
    a.execute("SELECT pg_advisory_lock_shared(7)").await;
    b.execute("SELECT pg_advisory_lock_shared(7)").await;
    a.execute("SELECT pg_advisory_unlock_all()").await;
    b.execute("SELECT pg_advisory_unlock_all(); SELECT pg_advisory_lock(7)").await;
    b.execute("BEGIN; SELECT pg_advisory_xact_lock(9); COMMIT; SELECT pg_advisory_unlock(7)").await;
    a.execute("SELECT pg_advisory_lock(9), pg_advisory_lock(7)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_taken_before_the_other_node_began_counts() {
    let tenant = new_tenant().tenant();
    let mut a = node(tenant).await;
    assert_eq!(a.rows(TRY).await, ["t"]);
    let mut b = node(tenant).await;
    assert_eq!(b.rows(TRY).await, ["f"]);
    drop(a);
    b.execute("SELECT pg_advisory_lock(7)").await;
}

#[test]
fn a_node_that_dies_loses_its_locks_with_its_lease() {
    let running = || Runtime::new().expect("a runtime");
    let (here, there) = (running(), running());
    let tenant = here.block_on(async { new_tenant().tenant() });
    there.block_on(async {
        let mut b = node(tenant).await;
        b.execute("SELECT pg_advisory_lock(7)").await;
        std::mem::forget(b);
    });
    there.shutdown_background();
    here.block_on(async {
        let mut a = node(tenant).await;
        let limit = 20 * LEASE;
        let locked =
            tokio::time::timeout(limit.max(Duration::from_secs(60)), a.execute("SELECT pg_advisory_lock(7)"));
        locked.await.expect("a lock");
    });
}
