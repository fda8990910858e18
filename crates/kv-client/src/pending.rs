//! Requests under way on a connection, and the frames that wait to be written.

use bytes::BytesMut;
use hashbrown::HashMap;
use kv_api::wire::{ClientFrame, ServerFrame, encode_frame};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, KvResult};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The KV node answered.
    Answered(KvResult<BatchResponse>),
    /// The connection was lost after the request was handed to it: whether it was carried out is not
    /// known.
    Lost,
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
    next_id: u64,
    waiting: HashMap<u64, oneshot::Sender<Outcome>>,
    unwritten: BytesMut,
    closed: bool,
}

impl Pending {
    /// Queues a request; `None` if the connection is closed.
    pub fn submit(&self, batch: &BatchRequest) -> Option<oneshot::Receiver<Outcome>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.next_id += 1;
        let id = state.next_id;
        // Cloning is cheap: keys and values are shared.
        encode_frame(&ClientFrame { id, batch: batch.clone() }, &mut state.unwritten);
        state.waiting.insert(id, sender);
        drop(state);
        self.writable.notify_one();
        Some(receiver)
    }

    /// Takes the frames that wait to be written.
    pub fn take_unwritten(&self) -> BytesMut {
        std::mem::take(&mut self.state.lock().unwritten)
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

    /// Ends the connection: everything that waits is lost, and nothing more is accepted.
    pub fn close(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.closed = true;
            state.unwritten = BytesMut::new();
            std::mem::take(&mut state.waiting)
        };
        for (_, sender) in waiting {
            let _ = sender.send(Outcome::Lost);
        }
    }
}
