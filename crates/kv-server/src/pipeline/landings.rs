//! Who waits for commands of a range to land, that is, to be in flight no more.
//!
//! They are woken in the order in which they came; see [`super::standing`] for why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

#[derive(Default)]
struct Shared {
    landed: Arc<Notify>,
    /// Whether the range is no longer in memory.
    gone: AtomicBool,
}

/// Where it is known that something has landed. When it is dropped, whoever waits is told that the range is no longer in
/// memory.
#[derive(Default)]
pub(super) struct Landings(Arc<Shared>);

impl Landings {
    /// Wakes all who wait.
    pub fn notify(&self) {
        self.0.landed.notify_waiters();
    }

    /// For who waits: what happens from now on is heard of.
    pub fn next(&self) -> Landing {
        Landing { landed: Arc::clone(&self.0.landed).notified_owned(), shared: Arc::clone(&self.0) }
    }
}

impl Drop for Landings {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
        self.0.landed.notify_waiters();
    }
}

/// The next landing.
pub(super) struct Landing {
    landed: OwnedNotified,
    shared: Arc<Shared>,
}

impl Landing {
    /// Waits for it; false if the range is no longer in memory.
    pub async fn wait(self) -> bool {
        self.landed.await;
        !self.shared.gone.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn waiters_hear_in_the_order_they_came_and_also_of_the_end() {
        let landings = Landings::default();
        let heard = Arc::new(Mutex::new(Vec::new()));
        for number in 0..20 {
            let (next, heard) = (landings.next(), Arc::clone(&heard));
            tokio::spawn(async move {
                let there = next.wait().await;
                heard.lock().push((number, there));
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(heard.lock().is_empty());
        landings.notify();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*heard.lock(), (0..20).map(|number| (number, true)).collect::<Vec<_>>());
        // Also what happens before anybody looks.
        let (next, last) = (landings.next(), landings.next());
        landings.notify();
        assert!(next.wait().await);
        drop(landings);
        assert!(!last.wait().await);
    }
}
