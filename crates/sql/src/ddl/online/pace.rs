//! [`BatchPace`]: how many batches the backfills of a node may do.

use tokio::sync::watch;

/// How many more batches of rows the backfills of a node may do; any number at first. A test stops them with it in the
/// middle.
#[derive(Debug)]
pub struct BatchPace(watch::Sender<Option<u64>>);

impl Default for BatchPace {
    fn default() -> Self {
        BatchPace(watch::Sender::new(None))
    }
}

impl BatchPace {
    /// Lets `batches` more go.
    pub fn stop_after(&self, batches: u64) {
        self.0.send_replace(Some(batches));
    }

    /// Lets any number go.
    pub fn go_on(&self) {
        self.0.send_replace(None);
    }

    /// Waits until one more batch may be done, and counts it.
    pub(super) async fn pass(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let mut passes = true;
            self.0.send_if_modified(|left| {
                match left {
                    None => return false,
                    Some(0) => passes = false,
                    Some(left) => *left -= 1,
                }
                passes
            });
            if passes || changes.changed().await.is_err() {
                return;
            }
        }
    }
}
