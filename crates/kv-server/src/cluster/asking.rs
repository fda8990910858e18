//! Questions to other nodes, and who waits for their answers.

use super::message::{Kind, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use replication::NodeId;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// Most questions under way; further ones go unanswered at once.
const MAX_ASKED: usize = 4096;

/// The questions under way.
pub struct Asking {
    state: Mutex<State>,
}

struct State {
    /// Begins at random: an answer to an earlier process of this node must not pass for one to this.
    last_id: u64,
    /// Who was asked, and who waits.
    waiting: HashMap<u64, (NodeId, oneshot::Sender<Kind>)>,
}

impl Asking {
    /// Nothing is asked yet. Questions are numbered from a random number.
    pub fn new(random: u64) -> Self {
        Asking { state: Mutex::new(State { last_id: random, waiting: HashMap::new() }) }
    }

    /// Asks a node and waits for its answer, at most for `patience`; `None` if there is none.
    pub async fn ask(
        &self,
        to: NodeId,
        question: Kind,
        patience: Duration,
        send: impl FnOnce(NodeId, Bytes),
    ) -> Option<Kind> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut state = self.state.lock();
            if state.waiting.len() >= MAX_ASKED {
                return None;
            }
            state.last_id = state.last_id.wrapping_add(1);
            let id = state.last_id;
            state.waiting.insert(id, (to, sender));
            id
        };
        let _forget = Forget(self, id);
        send(to, encode(id, question));
        tokio::time::timeout(patience, receiver).await.ok()?.ok()
    }

    /// Takes in a message: an answer reaches whoever waits for it, a question is given back.
    pub fn answered(&self, from: NodeId, id: u64, kind: Kind) -> Option<Kind> {
        if !is_answer(&kind) {
            return Some(kind);
        }
        let mut state = self.state.lock();
        if state.waiting.get(&id).is_some_and(|(asked, _)| *asked == from)
            && let Some((_, waiting)) = state.waiting.remove(&id)
        {
            // Who asked may have given up.
            let _ = waiting.send(kind);
        }
        None
    }
}

/// Nobody waits for an answer any more, however that came.
struct Forget<'a>(&'a Asking, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting.remove(&self.1);
    }
}

fn is_answer(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Book(_)
            | Kind::Done(_)
            | Kind::Promise(_)
            | Kind::Refused(_)
            | Kind::Digest(_)
            | Kind::TxnOutcome(_)
            | Kind::Waits(_)
            | Kind::RangeId(_)
            | Kind::Neighbour(_)
            | Kind::Frozen(_)
            | Kind::Contents(_)
            | Kind::MergeSettled(_)
            | Kind::Listed(_)
    )
}

/// A message as it travels.
pub fn encode(id: u64, kind: Kind) -> Bytes {
    Message { id, kind: Some(kind) }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::super::message::Empty;
    use super::*;

    #[tokio::test]
    async fn answers_reach_who_asked_that_node() {
        let asking = Asking::new(7);
        let sent = Mutex::new(None);
        let question = asking.ask(2, Kind::GetBook(Empty {}), Duration::from_secs(60), |to, bytes| {
            *sent.lock() = Some((to, Message::decode(bytes).expect("decodes").id));
        });
        let answering = async {
            let (to, id) = loop {
                let asked = *sent.lock();
                match asked {
                    Some(asked) => break asked,
                    None => tokio::task::yield_now().await,
                }
            };
            assert_eq!(to, 2);
            assert!(asking.answered(3, id, Kind::Done(Empty {})).is_none(), "another node");
            assert!(
                asking.answered(2, id.wrapping_add(1), Kind::Done(Empty {})).is_none(),
                "another question"
            );
            assert!(asking.answered(2, id, Kind::GetBook(Empty {})).is_some(), "no answer");
            assert!(asking.answered(2, id, Kind::Done(Empty {})).is_none());
        };
        let (answer, ()) = tokio::join!(question, answering);
        assert_eq!(answer, Some(Kind::Done(Empty {})));
        assert!(asking.state.lock().waiting.is_empty());
        let nobody = asking.ask(2, Kind::GetBook(Empty {}), Duration::ZERO, |_, _| {}).await;
        assert!(nobody.is_none() && asking.state.lock().waiting.is_empty());
    }
}
