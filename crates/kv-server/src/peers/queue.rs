//! What waits to be sent to one peer.

use super::config::PeerLimits;
use parking_lot::Mutex;
use replication::Envelope;
use replication::message::Payload;
use std::collections::VecDeque;
use tokio::sync::Notify;

/// Most heartbeats and answers to them that wait. The newest are what matters.
const MAX_HEARTBEATS: usize = 16;
/// A queue that grew beyond this gives its memory back when it is empty.
const KEEP_CAPACITY: usize = 1024;
/// What a message takes in a frame besides itself: a tag and a length.
const FRAMING: usize = 6;

/// A bounded queue with any number of writers, who never wait, and one reader.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    ready: Notify,
    max_messages: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Waiting {
    heartbeats: VecDeque<Envelope>,
    others: VecDeque<(Envelope, usize)>,
    /// Size of `others`.
    bytes: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.heartbeats.is_empty() && self.others.is_empty()
    }

    fn len(&self) -> usize {
        self.heartbeats.len() + self.others.len()
    }
}

impl Queue {
    pub(super) fn new(limits: &PeerLimits) -> Self {
        Queue {
            waiting: Mutex::default(),
            ready: Notify::new(),
            max_messages: limits.max_queued_messages,
            max_bytes: limits.max_queued_bytes,
        }
    }

    /// Puts a message of `len` bytes in. Says how many messages there was no room for: this one, or an
    /// older heartbeat.
    pub(super) fn push(&self, envelope: Envelope, len: usize) -> usize {
        let mut waiting = self.waiting.lock();
        let was_empty = waiting.is_empty();
        let dropped = if is_heartbeat(&envelope) {
            waiting.heartbeats.push_back(envelope);
            if waiting.heartbeats.len() > MAX_HEARTBEATS {
                waiting.heartbeats.pop_front();
                1
            } else {
                0
            }
        } else {
            let len = len.saturating_add(FRAMING);
            let full = waiting.others.len() >= self.max_messages
                || (!waiting.others.is_empty() && waiting.bytes.saturating_add(len) > self.max_bytes);
            if full {
                return 1;
            }
            waiting.bytes = waiting.bytes.saturating_add(len);
            waiting.others.push_back((envelope, len));
            0
        };
        drop(waiting);
        if was_empty {
            self.ready.notify_one();
        }
        dropped
    }

    /// Returns when there is something to take. Only one may wait at a time.
    pub(super) async fn ready(&self) {
        while self.waiting.lock().is_empty() {
            // A push between the two is not missed: it leaves a permit.
            self.ready.notified().await;
        }
    }

    /// Takes messages of up to about `max_bytes` together; at least one, if there is one.
    pub(super) fn take(&self, max_bytes: usize) -> Vec<Envelope> {
        let mut waiting = self.waiting.lock();
        let mut taken: Vec<_> = waiting.heartbeats.drain(..).collect();
        let mut bytes = 0;
        while let Some((_, len)) = waiting.others.front()
            && (taken.is_empty() || bytes + len <= max_bytes)
            && let Some((envelope, len)) = waiting.others.pop_front()
        {
            bytes += len;
            taken.push(envelope);
        }
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        if waiting.is_empty() && waiting.others.capacity() > KEEP_CAPACITY {
            *waiting = Waiting::default();
        }
        taken
    }

    /// Empties the queue; says how many messages were in it.
    pub(super) fn clear(&self) -> usize {
        let cleared = std::mem::take(&mut *self.waiting.lock());
        cleared.len()
    }

    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().len()
    }
}

/// Whether leases depend on the message arriving in time.
fn is_heartbeat(envelope: &Envelope) -> bool {
    matches!(envelope.payload, Some(Payload::Heartbeat(_) | Payload::HeartbeatAck(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::message::{Heartbeat, LeaderQuery};

    fn queue(max_queued_messages: usize, max_queued_bytes: usize) -> Queue {
        Queue::new(&PeerLimits { max_queued_messages, max_queued_bytes, ..PeerLimits::default() })
    }

    fn query(term: u64) -> Envelope {
        let payload = Some(Payload::LeaderQuery(LeaderQuery { range_id: 1, term }));
        Envelope { payload, ..Envelope::default() }
    }

    fn heartbeat(sent_at: u64) -> Envelope {
        Envelope {
            payload: Some(Payload::Heartbeat(Heartbeat { sent_at, ..Heartbeat::default() })),
            ..Envelope::default()
        }
    }

    #[test]
    fn messages_beyond_a_bound_are_not_taken() {
        let by_count = queue(2, 1000);
        let dropped: Vec<_> = (0..3).map(|term| by_count.push(query(term), 10)).collect();
        assert_eq!(dropped, [0, 0, 1]);
        assert_eq!(by_count.take(1000), [query(0), query(1)]);
        assert_eq!(by_count.push(query(3), 10), 0);

        let by_bytes = queue(100, 50);
        let dropped: Vec<_> = (0..4).map(|term| by_bytes.push(query(term), 14)).collect();
        assert_eq!(dropped, [0, 0, 1, 1]);
        assert_eq!(by_bytes.clear(), 2);
        assert_eq!(by_bytes.push(query(4), 1000), 0, "alone, any message is taken");
        assert_eq!(by_bytes.push(query(5), 1), 1);
        assert_eq!(by_bytes.len(), 1);
    }

    #[test]
    fn a_frame_takes_what_fits_and_at_least_one_message() {
        let queue = queue(100, 10_000);
        for (term, len) in [94, 94, 4994, 4, 4].into_iter().enumerate() {
            queue.push(query(term as u64), len);
        }
        let sizes = std::iter::from_fn(|| Some(queue.take(200).len()).filter(|taken| *taken > 0));
        assert_eq!(sizes.collect::<Vec<_>>(), [2, 1, 2]);
    }

    #[test]
    fn heartbeats_overtake_and_have_room_of_their_own() {
        let queue = queue(1, 1000);
        assert_eq!(queue.push(query(0), 10), 0);
        assert_eq!(queue.push(query(1), 10), 1);
        let dropped: usize = (0..20).map(|sent_at| queue.push(heartbeat(sent_at), 10)).sum();
        assert_eq!(dropped, 20 - MAX_HEARTBEATS);
        let taken = queue.take(1000);
        assert_eq!(taken.len(), MAX_HEARTBEATS + 1);
        assert_eq!((&taken[0], taken.last()), (&heartbeat(4), Some(&query(0))));
    }

    #[tokio::test]
    async fn the_reader_is_woken() {
        let queue = std::sync::Arc::new(queue(10, 1000));
        queue.push(query(0), 10);
        queue.ready().await;
        queue.take(1000);
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.ready().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        queue.push(query(1), 10);
        waiting.await.expect("woken");
    }
}
