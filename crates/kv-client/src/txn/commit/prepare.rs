//! Has one range prepare its part of a transaction, until it says that it has or will not.

use super::share::Share;
use super::verdict::{Asked, Next};
use super::wide::{Order, Teller};
use crate::client::KvClient;
use crate::lead::{self, Answered};
use crate::router::Sending;
use crate::walk::Pauses;
use kv_api::batch::{BatchRequest, EndTxn, Prepare, RequestKind};
use kv_api::{Header, KvError, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How far clocks of ranges are ahead of wall clocks at most.
const MOST_AHEAD: Duration = Duration::from_secs(8);

/// What a range came to.
pub struct Answer {
    /// Its share; with the place where it is prepared, if it is.
    pub share: Share,
    /// What became of the part.
    pub outcome: Outcome,
    /// Whether a batch went unanswered. It may have been carried out, or may yet be; others may have taken the transaction
    /// for committed because of it, and settled it, and then what is prepared now is prepared anew.
    pub unanswered: bool,
}

/// What became of a part.
pub enum Outcome {
    /// It is prepared, at the share's place. Where commits are waited out, that is what the range's leaseholder said of its clock.
    Prepared(Timestamp, Option<Shown>),
    /// The range was split.
    Split,
    /// It is not prepared, and will not be unless a batch went unanswered.
    Failed(KvError),
    /// Nobody knows.
    Unknown,
}

/// What a wall clock showed at an instant, or before it.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    wall_ns: u64,
    at: Instant,
}

impl Shown {
    /// What a clock shows now, as an answer says; 0: it does not say.
    fn now(wall_ns: u64) -> Option<Self> {
        (wall_ns > 0).then(|| Shown { wall_ns, at: Instant::now() })
    }

    /// When it has passed a timestamp, which is no further ahead than clocks of ranges are.
    pub fn passes(&self, timestamp: Timestamp) -> Instant {
        let missing = Duration::from_nanos(timestamp.wall_ns.saturating_sub(self.wall_ns));
        self.at + missing.min(MOST_AHEAD) + Duration::from_millis(1)
    }
}

/// Asks until there is an answer, at most until `order.give_up`. Who waits for the commit is told that its outcome is
/// not known when asking again takes longer than requests usually wait.
pub async fn prepare(client: KvClient, mut share: Share, order: Arc<Order>, teller: Arc<Teller>) -> Answer {
    let (held, locked, bound) = (share.held, share.locked, share.place.is_some());
    let mut asked = Asked { held, locked, bound, unanswered: false };
    let mut batch = batch(&share, &order);
    let mut pauses = Pauses::default();
    let mut doubt_at: Option<Instant> = None;
    loop {
        let sending = Sending {
            place: share.place.as_ref().filter(|_| asked.bound),
            key: Some(&share.key),
            range: Some(share.at.range_id),
            ..Sending::default()
        };
        let sent_ns = client.environment().physical_ns();
        let sent = client.send(&mut batch, sending);
        let answer = match doubt_at {
            None => Some(sent.await),
            Some(doubt_at) => in_time(sent, doubt_at, order.give_up, &teller).await,
        };
        let Some(answer) = answer else {
            return Answer { share, outcome: Outcome::Unknown, unanswered: true };
        };
        let shown = answer.as_ref().ok().and_then(|sent| Shown::now(sent.response.wall_ns));
        let place = answer.as_ref().ok().map(|sent| sent.place.clone());
        let next = asked.judge(answer.map(|sent| sent.response));
        let unanswered = asked.unanswered;
        match next {
            Next::Prepared(at) => {
                let (range_id, answered) =
                    (share.at.range_id, Answered::now(lead::Asked::Write, sent_ns, client.environment()));
                client.with_leads(|leads| match at > order.at {
                    true => leads.note(range_id, at, answered),
                    false => leads.note_met(range_id),
                });
                share.place = place;
                return Answer { share, outcome: Outcome::Prepared(at, shown), unanswered };
            }
            Next::Split => return Answer { share, outcome: Outcome::Split, unanswered },
            Next::Failed(error) => return Answer { share, outcome: Outcome::Failed(error), unanswered },
            Next::Again => {}
        }
        asked.bound = false;
        if !share.held
            && let Some(meta) = &mut batch.header.txn
        {
            meta.lease = 0;
        }
        if asked.unanswered {
            doubt_at = doubt_at.or_else(|| Some(Instant::now() + client.patience()));
        }
        if Instant::now() >= order.give_up {
            return Answer { share, outcome: Outcome::Unknown, unanswered };
        }
        tokio::time::sleep(pauses.next(client.environment().random_fraction())).await;
    }
}

/// What is asked again does not keep the caller waiting for longer than until `doubt_at`.
async fn in_time<T>(
    sent: impl Future<Output = T>,
    doubt_at: Instant,
    give_up: Instant,
    teller: &Teller,
) -> Option<T> {
    let mut sent = std::pin::pin!(sent);
    if let Ok(answer) = timeout_at(doubt_at, &mut sent).await {
        return Some(answer);
    }
    teller.outcome_unknown();
    timeout_at(give_up, sent).await.ok()
}

fn batch(share: &Share, order: &Order) -> BatchRequest {
    let staged = if share.at.holds(&order.anchor) { order.staged.clone() } else { Vec::new() };
    let prepare = Prepare { anchor: order.anchor.clone(), timestamp: order.at, staged };
    let end = EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() };
    let header = Header {
        txn: Some(share.meta.clone()),
        read_timestamp: order.snapshot,
        refresh_spans: share.spans.clone(),
        lock_timeout_ms: order.lock_timeout_ms,
        ..Header::default()
    };
    let mut requests = share.writes.clone();
    requests.push(RequestKind::EndTxn(end).into());
    BatchRequest { header, requests }
}
