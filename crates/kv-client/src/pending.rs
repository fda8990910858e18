//! Requests under way on a connection, and the frames that wait to be written.

use bytes::BytesMut;
use hashbrown::HashMap;
use kv_api::wire::{ClientFrame, ServerFrame, encode_frame};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, KvResult};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Notify, oneshot};

/// A write buffer that grew beyond this is not kept.
const KEEP_CAPACITY: usize = 64 << 10;

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The KV node answered.
    Answered(KvResult<BatchResponse>),
    /// The request was not carried out: the connection was lost before it was written.
    Unsent,
    /// The connection was lost after the request was written: whether it was carried out is not known.
    Lost,
}

/// What the end of a connection means for the requests on it.
#[derive(Clone, Copy)]
pub enum End<'a> {
    /// It was lost: what was written may have been carried out.
    Lost,
    /// The KV node refused the client: that is the answer to everything, and nothing was carried out.
    Refused(&'a KvError),
}

/// Why a connection takes no request.
#[derive(Debug, PartialEq)]
pub enum NotOpen {
    /// It is being made; see [`Pending::settled`].
    Connecting,
    /// It ended, and why if the KV node refused the client.
    Closed(Option<KvError>),
}

/// The requests of one connection.
#[derive(Default)]
pub struct Pending {
    state: Mutex<State>,
    /// Wakes the writer.
    pub writable: Notify,
    /// Wakes who waits for the connection to open.
    settled: Notify,
    /// Wakes who watches for silence.
    watch: Notify,
    /// Grows with everything that shows that the peer is alive.
    alive: AtomicU64,
}

#[derive(Default)]
struct State {
    phase: Phase,
    last_id: u64,
    /// Requests up to this one were handed to the socket.
    written_id: u64,
    waiting: HashMap<u64, oneshot::Sender<Outcome>>,
    unwritten: BytesMut,
    /// Whether somebody watches for silence.
    watched: bool,
}

#[derive(Default)]
enum Phase {
    #[default]
    Connecting,
    Open,
    Closed(Option<KvError>),
}

impl Pending {
    /// Takes requests from now on.
    pub fn open(&self) {
        self.state.lock().phase = Phase::Open;
        self.settled.notify_waiters();
    }

    /// Waits until the connection is open or closed.
    pub async fn settled(&self) {
        let mut settled = std::pin::pin!(self.settled.notified());
        settled.as_mut().enable();
        if matches!(self.state.lock().phase, Phase::Connecting) {
            settled.await;
        }
    }

    /// Queues a request. The batch is the same afterwards.
    ///
    /// # Errors
    /// [`NotOpen`]; nothing will be sent then.
    pub fn submit(&self, batch: &mut BatchRequest) -> Result<oneshot::Receiver<Outcome>, NotOpen> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Open => {}
            Phase::Connecting => return Err(NotOpen::Connecting),
            Phase::Closed(refused) => return Err(NotOpen::Closed(refused.clone())),
        }
        let (sender, receiver) = oneshot::channel();
        state.last_id += 1;
        let id = state.last_id;
        let frame = ClientFrame { id, batch: std::mem::take(batch) };
        encode_frame(&frame, &mut state.unwritten);
        *batch = frame.batch;
        state.waiting.insert(id, sender);
        let watched = std::mem::replace(&mut state.watched, true);
        drop(state);
        self.writable.notify_one();
        if !watched {
            self.watch.notify_one();
        }
        Ok(receiver)
    }

    /// Takes the frames that wait to be written into `out`, which the writer is done with.
    pub fn take_unwritten(&self, out: &mut BytesMut) {
        if out.capacity() > KEEP_CAPACITY {
            *out = BytesMut::new();
        }
        out.clear();
        let mut state = self.state.lock();
        std::mem::swap(&mut state.unwritten, out);
        state.written_id = state.last_id;
    }

    /// Delivers an answer. One that nobody waits for any more is dropped.
    pub fn deliver(&self, frame: ServerFrame) {
        let Some(sender) = self.state.lock().waiting.remove(&frame.id) else { return };
        let answer = match (frame.response, frame.error) {
            (_, Some(error)) => Err(error),
            (Some(response), None) => Ok(response),
            (None, None) => Err(KvError::new(KvErrorKind::Internal, "empty answer from the KV node")),
        };
        // The caller may have given up.
        let _ = sender.send(Outcome::Answered(answer));
    }

    /// Ends the connection: nothing more is accepted, and what waits is told how it ended. What was told
    /// already stays told.
    pub fn close(&self, end: End<'_>) {
        let (waiting, written_id) = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Closed(_)) {
                return;
            }
            state.phase = Phase::Closed(match end {
                End::Refused(error) => Some(error.clone()),
                End::Lost => None,
            });
            state.unwritten = BytesMut::new();
            let mut waiting: Vec<_> = state.waiting.drain().collect();
            // In an order that a simulation can repeat.
            waiting.sort_unstable_by_key(|(id, _)| *id);
            (waiting, state.written_id)
        };
        self.settled.notify_waiters();
        for (id, sender) in waiting {
            let _ = sender.send(match end {
                End::Refused(error) => Outcome::Answered(Err(error.clone())),
                End::Lost if id <= written_id => Outcome::Lost,
                End::Lost => Outcome::Unsent,
            });
        }
    }

    /// Closes the connection if no request is under way on it; whether it did.
    pub fn close_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.waiting.is_empty() && matches!(state.phase, Phase::Open);
        if idle {
            state.phase = Phase::Closed(None);
        }
        idle
    }

    /// Requests there have been.
    pub fn submitted(&self) -> u64 {
        self.state.lock().last_id
    }

    /// The peer showed that it is alive.
    pub fn note_alive(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    /// Another number whenever the peer showed that it is alive.
    pub fn alive(&self) -> u64 {
        self.alive.load(Ordering::Relaxed)
    }

    /// Waits until requests are under way, to be watched from then on.
    pub async fn watch(&self) {
        self.watch.notified().await;
    }

    /// Whether requests are under way; if not, the watch ends.
    pub fn watch_on(&self) -> bool {
        let mut state = self.state.lock();
        state.watched = !state.waiting.is_empty();
        state.watched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::Header;
    use kv_api::wire::decode_frame;

    fn batch() -> BatchRequest {
        BatchRequest { header: Header { target_bytes: 7, ..Header::default() }, requests: Vec::new() }
    }

    fn open() -> Pending {
        let pending = Pending::default();
        pending.open();
        pending
    }

    #[test]
    fn closing_tells_written_requests_from_unwritten_ones() {
        let pending = open();
        let mut request = batch();
        let mut written = pending.submit(&mut request).unwrap();
        assert_eq!(request, batch(), "submitting leaves the batch as it was");
        let mut frames = BytesMut::new();
        pending.take_unwritten(&mut frames);
        let mut unwritten = pending.submit(&mut request).unwrap();
        let frame: ClientFrame = decode_frame(&mut frames).unwrap().unwrap();
        assert_eq!((frame.id, frame.batch), (1, batch()));
        pending.close(End::Lost);
        assert!(matches!(written.try_recv(), Ok(Outcome::Lost)));
        assert!(matches!(unwritten.try_recv(), Ok(Outcome::Unsent)));
        assert_eq!(pending.submit(&mut request).unwrap_err(), NotOpen::Closed(None));
    }

    #[test]
    fn a_refusal_answers_everything() {
        let pending = open();
        let mut answer = pending.submit(&mut batch()).unwrap();
        pending.close(End::Refused(&KvError::new(KvErrorKind::Unauthorized, "no")));
        match answer.try_recv() {
            Ok(Outcome::Answered(Err(error))) => assert_eq!(error.kind(), KvErrorKind::Unauthorized),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_ended_stays_ended() {
        let pending = open();
        let error = KvError::new(KvErrorKind::Unauthorized, "no");
        pending.close(End::Refused(&error));
        pending.close(End::Lost);
        assert_eq!(pending.submit(&mut batch()).unwrap_err(), NotOpen::Closed(Some(error)));
        let pending = Pending::default();
        assert_eq!(pending.submit(&mut batch()).unwrap_err(), NotOpen::Connecting);
        assert!(!pending.close_if_idle(), "somebody waits for it");
        pending.close(End::Lost);
        assert_eq!(pending.submit(&mut batch()).unwrap_err(), NotOpen::Closed(None));
    }

    #[test]
    fn only_an_idle_connection_is_closed_for_want_of_use() {
        let pending = open();
        let answer = pending.submit(&mut batch()).unwrap();
        drop(answer);
        assert!(!pending.close_if_idle() && pending.watch_on());
        pending.deliver(ServerFrame { id: 1, ..ServerFrame::default() });
        assert!(pending.close_if_idle() && !pending.watch_on());
        assert!(pending.submit(&mut batch()).is_err());
    }

    #[test]
    fn answers_reach_who_asked_and_strangers_answers_nobody() {
        let pending = open();
        let mut first = pending.submit(&mut batch()).unwrap();
        let mut second = pending.submit(&mut batch()).unwrap();
        let answer = |id| ServerFrame { id, response: Some(BatchResponse::default()), error: None };
        pending.deliver(answer(2));
        pending.deliver(answer(99));
        assert!(matches!(second.try_recv(), Ok(Outcome::Answered(Ok(_)))));
        assert!(first.try_recv().is_err());
        pending.deliver(ServerFrame { id: 1, response: None, error: None });
        assert!(matches!(first.try_recv(), Ok(Outcome::Answered(Err(_)))));
    }
}
