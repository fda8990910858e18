//! Schema changes while the table is read and written.

mod builds;
mod changes;
pub mod check;
mod crash;
mod ends;
pub mod load;
mod unique;

use crate::database::{Database, run, session};
use sql::engine::Engine;
use sql::session::{CancelHandle, Session};
use sql_types::SqlResult;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A statement that runs beside others.
pub struct Running {
    pub task: JoinHandle<SqlResult<()>>,
    pub cancel: CancelHandle,
}

/// Starts a statement in a session of its own.
pub async fn start(engine: &Arc<Engine>, text: &str) -> Running {
    start_in(session(engine).await, text)
}

/// Starts a statement in a session.
pub fn start_in(mut session: Session, text: &str) -> Running {
    let (cancel, text) = (session.cancel_handle(), text.to_string());
    Running { task: tokio::spawn(async move { run(&mut session, &text, &[]).await.map(drop) }), cancel }
}

/// Waits until a query gives what is expected.
pub async fn until(db: &mut Database, query: &str, expected: &str) {
    loop {
        if db.rows(query).await == [expected] {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

/// What the build that is under way has done.
pub const BATCHES: &str = "SELECT phase, blocks_done FROM pg_stat_progress_create_index";

/// Waits until a build has done so many batches.
pub async fn until_batches(db: &mut Database, batches: u64) {
    until(db, BATCHES, &format!("building index: scanning table|{batches}")).await;
}
