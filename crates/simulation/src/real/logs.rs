//! What nodes and clients log, as part of the trace.

use super::world::World;
use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Weak};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

thread_local! {
    /// The world of the run on this thread.
    static WORLD: RefCell<Weak<World>> = const { RefCell::new(Weak::new()) };
}

/// Whose trace the logs of this thread go to.
pub fn set_world(world: &Arc<World>) {
    WORLD.set(Arc::downgrade(world));
}

/// Runs something whose logs go to the trace.
pub fn with_logs<T>(work: impl FnOnce() -> T) -> T {
    let filter = EnvFilter::new("off,kv_server=debug,kv_client=debug,replication=debug");
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(ToTrace)
        .without_time()
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, work)
}

struct ToTrace;

impl<'a> MakeWriter<'a> for ToTrace {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::new())
    }
}

/// One event, which is written in pieces.
struct Line(Vec<u8>);

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(world) = WORLD.with_borrow(Weak::upgrade) {
            world.note(|| String::from_utf8_lossy(&self.0).trim().to_owned());
        }
    }
}
