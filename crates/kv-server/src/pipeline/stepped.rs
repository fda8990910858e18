//! The driver of the replicas without a thread of its own, for simulations.

use super::driver::Driver;
use super::{Ended, Shared};
use replication::Millis;
use std::sync::Arc;

/// When the driver has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Now.
    Now,
    /// After so many milliseconds of the node's own clock, unless something is asked of it before.
    After(Millis),
}

/// A driver that does nothing by itself. If it is dropped before its last turn, that is what a crash is to its
/// pipeline: nothing more comes of it.
pub struct Stepped {
    driver: Driver,
    shared: Arc<Shared>,
    _ended: Ended,
}

impl Stepped {
    pub(super) fn new(driver: Driver) -> Self {
        let shared = driver.shared();
        Stepped { driver, _ended: Ended(Arc::clone(&shared)), shared }
    }

    /// When a turn is wanted.
    pub fn due(&self) -> Due {
        self.driver.due().map_or(Due::Now, Due::After)
    }

    /// Does what there is to do, with one sync; false if that was the last turn, because the pipeline was closed
    /// or the engine failed.
    pub fn turn(&mut self) -> bool {
        self.driver.step()
    }

    /// Ends when something was asked of the driver since the last of these ended.
    pub fn asked(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move {
            if let Some(stepped) = &shared.ready.stepped {
                stepped.notified().await;
            }
        }
    }
}
