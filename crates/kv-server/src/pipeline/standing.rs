//! Who serves a range, and who waits to hear of it.
//!
//! Waiters are woken in the order in which they came, which tokio's watch channel does not promise, and which
//! a simulation needs to repeat a run.

use super::Standing;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

struct Shared {
    /// Absent once the range is no longer in memory.
    standing: Mutex<Option<Standing>>,
    changed: Notify,
}

/// The standing of a range, where it is decided. When it is dropped, whoever waits is told that the range is no
/// longer in memory.
pub(super) struct Decided(Arc<Shared>);

impl Decided {
    pub fn new(standing: Standing) -> Self {
        Decided(Arc::new(Shared { standing: Mutex::new(Some(standing)), changed: Notify::new() }))
    }

    /// What it is now.
    pub fn get(&self) -> Standing {
        // It is there for as long as `self`.
        self.0.standing.lock().unwrap_or(Standing::Follower(None))
    }

    /// Changes it.
    pub fn set(&self, standing: Standing) {
        let before = self.0.standing.lock().replace(standing);
        if before != Some(standing) {
            self.0.changed.notify_waiters();
        }
    }

    /// For who waits.
    pub fn watch(&self) -> Watched {
        Watched(Arc::clone(&self.0))
    }
}

impl Drop for Decided {
    fn drop(&mut self) {
        *self.0.standing.lock() = None;
        self.0.changed.notify_waiters();
    }
}

/// The standing of a range, for who waits.
pub(super) struct Watched(Arc<Shared>);

impl Watched {
    /// What it is now; `None` if the range is no longer in memory.
    pub fn get(&self) -> Option<Standing> {
        *self.0.standing.lock()
    }

    /// What it is now. A range that fell asleep has nobody who serves it.
    pub fn or_nobody(&self) -> Standing {
        self.get().unwrap_or(Standing::Follower(None))
    }

    /// Waits until it is known who serves the range; `None` if the range is no longer in memory.
    pub async fn settled(&self) -> Option<Standing> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            // Before looking: what changes after that is heard of.
            changed.as_mut().enable();
            match self.get() {
                Some(Standing::Follower(None)) => changed.await,
                known => return known,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn waiters_hear_in_the_order_they_came_and_also_of_the_end() {
        let decided = Decided::new(Standing::Follower(None));
        let heard = Arc::new(Mutex::new(Vec::new()));
        for number in 0..20 {
            let (watched, heard) = (decided.watch(), Arc::clone(&heard));
            tokio::spawn(async move {
                let standing = watched.settled().await;
                heard.lock().push((number, standing));
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(heard.lock().is_empty());
        decided.set(Standing::Leaseholder(3));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let expected: Vec<_> = (0..20).map(|number| (number, Some(Standing::Leaseholder(3)))).collect();
        assert_eq!(*heard.lock(), expected);
        decided.set(Standing::Follower(None));
        let watched = decided.watch();
        let waiting = tokio::spawn(async move { watched.settled().await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(decided);
        assert_eq!(waiting.await.expect("ends"), None);
    }
}
