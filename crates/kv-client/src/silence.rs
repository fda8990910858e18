//! Notices a KV node that is silent without closing its connections: one that was stopped, or whose machine
//! is gone.
//!
//! Long silence alone means nothing: everything under way may be waiting for locks. So after a while the node
//! is asked something that it answers at once. Time is counted in steps, so that a pause of this process is
//! not taken for one of the node. While nothing is under way, no timer runs.

use crate::pending::Pending;
use kv_api::batch::BatchRequest;
use std::time::Duration;

/// Steps that `timeout` is divided into. After the first one without a sign of life, the node is asked.
const STEPS: u32 = 3;

/// Returns when the peer gave no sign of life for `timeout` although requests were under way.
pub async fn watch(pending: &Pending, timeout: Duration, probe: impl Fn() -> BatchRequest) {
    loop {
        pending.watch().await;
        let (mut alive, mut quiet) = (pending.alive(), 0);
        loop {
            tokio::time::sleep(timeout / STEPS).await;
            if !pending.watch_on() {
                break;
            }
            let now = pending.alive();
            quiet = if now == alive { quiet + 1 } else { 0 };
            alive = now;
            if quiet == 1 {
                // Nobody waits for the answer; that there is one is enough.
                drop(pending.submit(&mut probe()));
            } else if quiet >= STEPS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use kv_api::wire::{ClientFrame, ServerFrame, decode_frame};
    use std::sync::Arc;
    use tokio::time::{Instant, sleep, timeout};

    const LIMIT: Duration = Duration::from_secs(3);

    fn open() -> Arc<Pending> {
        let pending = Arc::new(Pending::default());
        pending.open();
        pending
    }

    fn frames(pending: &Pending) -> Vec<ClientFrame> {
        let mut bytes = BytesMut::new();
        pending.take_unwritten(&mut bytes);
        std::iter::from_fn(|| decode_frame(&mut bytes).unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_nothing_is_given_up() {
        let pending = open();
        let start = Instant::now();
        let _answer = pending.submit(&mut BatchRequest::default()).unwrap();
        watch(&pending, LIMIT, BatchRequest::default).await;
        assert!(start.elapsed() >= LIMIT);
        assert_eq!(frames(&pending).len(), 2, "it was asked something else, too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_on_which_requests_wait_for_locks_answers_the_probe() {
        let pending = open();
        let _answer = pending.submit(&mut BatchRequest::default()).unwrap();
        let node = tokio::spawn({
            let pending = pending.clone();
            async move {
                loop {
                    sleep(LIMIT / 10).await;
                    for probe in frames(&pending).iter().filter(|frame| frame.id > 1) {
                        pending.note_alive();
                        pending.deliver(ServerFrame { id: probe.id, ..ServerFrame::default() });
                    }
                }
            }
        });
        assert!(timeout(LIMIT * 100, watch(&pending, LIMIT, BatchRequest::default)).await.is_err());
        node.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn while_nothing_is_under_way_nothing_is_asked() {
        let pending = open();
        for id in 1..4 {
            let _answer = pending.submit(&mut BatchRequest::default()).unwrap();
            pending.deliver(ServerFrame { id, ..ServerFrame::default() });
            assert!(timeout(LIMIT * 10, watch(&pending, LIMIT, BatchRequest::default)).await.is_err());
        }
        assert_eq!(frames(&pending).len(), 3);
    }
}
