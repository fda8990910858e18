//! What nodes and clients log, as part of the trace.
//!
//! One subscriber is there for all threads and all time, and asks at each event whether its thread wants it. With one
//! per run, runs on other threads would decide now and then that nobody wants an event, and a trace would miss it.

use super::world::World;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, Once, Weak};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

thread_local! {
    /// The world of the run on this thread.
    static WORLD: RefCell<Weak<World>> = const { RefCell::new(Weak::new()) };
    /// Whether what is logged on this thread goes to the trace.
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Whose trace the logs of this thread go to.
pub fn set_world(world: &Arc<World>) {
    WORLD.set(Arc::downgrade(world));
}

/// Listens to what is logged. To be called before anything is.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::new("off,kv_server=debug,kv_client=debug,replication=debug");
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(ToTrace)
            .without_time()
            .with_ansi(false)
            .finish()
            .with(dynamic_filter_fn(|_, _| WANTED.get()));
        // Where there is one already, traces are without logs.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
}

/// Runs something whose logs go to the trace.
pub fn with_logs<T>(work: impl FnOnce() -> T) -> T {
    struct Unwanted;
    impl Drop for Unwanted {
        fn drop(&mut self) {
            WANTED.set(false);
        }
    }
    WANTED.set(true);
    let _unwanted = Unwanted;
    work()
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
