//! Requests under way on a connection, and the frames that wait to be written.

use bytes::BytesMut;
use hashbrown::HashMap;
use kv_api::wire::{ClientFrame, ServerFrame, encode_frame};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, KvResult};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// A write buffer that grew beyond this is not kept.
const KEEP_CAPACITY: usize = 64 << 10;

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The KV node answered.
    Answered(KvResult<BatchResponse>),
    /// The request was not carried out: the connection was lost before it was written, or the KV node
    /// does not serve clients.
    Unsent,
    /// The connection was lost after the request was written: whether it was carried out is not known.
    Lost,
}

/// What the end of a connection means for the requests on it.
#[derive(Clone, Copy)]
pub enum End<'a> {
    /// It was lost: what was written may have been carried out.
    Lost,
    /// The KV node refused the client: that is the answer to everything.
    Refused(&'a KvError),
    /// The KV node serves no clients: nothing was carried out.
    NotServed,
}

/// The requests of one connection.
#[derive(Default)]
pub struct Pending {
    state: Mutex<State>,
    /// Wakes the writer.
    pub writable: Notify,
}

#[derive(Default)]
struct State {
    last_id: u64,
    /// Requests up to this one were handed to the socket.
    written_id: u64,
    waiting: HashMap<u64, oneshot::Sender<Outcome>>,
    unwritten: BytesMut,
    closed: bool,
}

impl Pending {
    /// Queues a request; `None` if the connection is closed. The batch is the same afterwards.
    pub fn submit(&self, batch: &mut BatchRequest) -> Option<oneshot::Receiver<Outcome>> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        state.last_id += 1;
        let id = state.last_id;
        let frame = ClientFrame { id, batch: std::mem::take(batch) };
        encode_frame(&frame, &mut state.unwritten);
        *batch = frame.batch;
        state.waiting.insert(id, sender);
        drop(state);
        self.writable.notify_one();
        Some(receiver)
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
            state.closed = true;
            state.unwritten = BytesMut::new();
            (std::mem::take(&mut state.waiting), state.written_id)
        };
        for (id, sender) in waiting {
            let _ = sender.send(match end {
                End::Refused(error) => Outcome::Answered(Err(error.clone())),
                End::Lost if id <= written_id => Outcome::Lost,
                End::Lost | End::NotServed => Outcome::Unsent,
            });
        }
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

    #[test]
    fn closing_tells_written_requests_from_unwritten_ones() {
        let pending = Pending::default();
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
        assert!(pending.submit(&mut request).is_none());
    }

    #[test]
    fn a_refusal_answers_everything() {
        let pending = Pending::default();
        let mut answer = pending.submit(&mut batch()).unwrap();
        pending.close(End::Refused(&KvError::new(KvErrorKind::Unauthorized, "no")));
        match answer.try_recv() {
            Ok(Outcome::Answered(Err(error))) => assert_eq!(error.kind(), KvErrorKind::Unauthorized),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_node_that_serves_nobody_has_carried_out_nothing() {
        let pending = Pending::default();
        let mut answer = pending.submit(&mut batch()).unwrap();
        pending.take_unwritten(&mut BytesMut::new());
        pending.close(End::NotServed);
        pending.close(End::Lost);
        assert!(matches!(answer.try_recv(), Ok(Outcome::Unsent)));
    }

    #[test]
    fn answers_reach_who_asked_and_strangers_answers_nobody() {
        let pending = Pending::default();
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
