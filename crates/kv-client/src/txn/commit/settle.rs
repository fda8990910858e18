//! What is left to do when the outcome of a transaction over several ranges is known: told in the background, some
//! times over, for whoever meets what is prepared waits for it.
//!
//! Where one node leads all ranges, it is told once and does the rest, for many transactions at a time. Otherwise:
//!
//! The record goes last: as long as any part is prepared, somebody may ask for it. What is not said here, because a
//! range does not answer, those who meet it find out by themselves.

use super::share::Share;
use crate::client::KvClient;
use crate::join::try_all;
use crate::router::Sending;
use bytes::Bytes;
use kv_api::batch::{BatchRequest, DecideTxn, EndTxn, RequestKind, ResolveTxn};
use kv_api::{Header, KvErrorKind, Timestamp, TxnMeta};
use std::time::Duration;

/// Most ranges with writes of one transaction.
pub const MAX_PARTS: usize = 256;
/// Times that something is said. Each time the way to the range is looked for as long as requests usually wait.
const ATTEMPTS: u32 = 5;
/// The first pause in between; the next ones are twice as long each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A transaction that has committed.
pub struct Settled {
    /// Where.
    pub at: Timestamp,
    /// Whether its record says so.
    pub recorded: bool,
    pub meta: TxnMeta,
    /// The key whose range has the record.
    pub anchor: Bytes,
    /// A key of every other range with a part.
    pub parts: Vec<Bytes>,
    /// These ranges, if one node leads them all, or did a moment ago; none otherwise.
    pub together: Vec<u64>,
}

/// Tells all ranges that a transaction has committed, once not too much is still to be said of others.
pub async fn finish(client: &KvClient, settled: Settled) {
    // It is never closed. Readers wait for what is told here, so nothing is left out.
    let _permit = client.finishing().clone().acquire_owned().await;
    let Settled { at, recorded, meta, anchor, parts, together } = settled;
    if !together.is_empty() && settle_together(client, &meta, &anchor, at, &parts, together).await {
        return;
    }
    let written = async {
        if recorded { Ok(()) } else { say(client, record(&meta, &anchor, at, &parts), &anchor).await }
    };
    let (_, written) = tokio::join!(resolve(client, &meta, at, &parts, false), written);
    if written.is_ok() && resolve(client, &meta, at, &parts, true).await.is_ok() {
        let _ = resolve(client, &meta, at, &[anchor], true).await;
    }
}

/// Has the node of the anchor settle all parts, which it can do for many transactions at a time; whether it did. It is
/// asked once.
async fn settle_together(
    client: &KvClient,
    meta: &TxnMeta,
    anchor: &Bytes,
    at: Timestamp,
    parts: &[Bytes],
    settles: Vec<u64>,
) -> bool {
    let decide = DecideTxn { anchor: anchor.clone(), timestamp: at, parts: parts.to_vec(), settles };
    let mut batch = about(meta, RequestKind::DecideTxn(decide));
    client.send(&mut batch, Sending::default()).await.is_ok_and(|sent| sent.response.settled)
}

/// Tells ranges that hold these keys that a transaction has committed.
async fn resolve(
    client: &KvClient,
    meta: &TxnMeta,
    at: Timestamp,
    keys: &[Bytes],
    recorded: bool,
) -> Result<(), ()> {
    let mut sayings = Vec::with_capacity(keys.len());
    for key in keys {
        let resolve = ResolveTxn { key: key.clone(), committed: Some(at), recorded };
        sayings.push(say(client, about(meta, RequestKind::ResolveTxn(resolve)), key));
    }
    try_all(sayings).await.map(drop)
}

/// Tells ranges that a transaction will not commit.
pub async fn abort(client: &KvClient, shares: &[Share]) {
    let mut sayings = Vec::with_capacity(shares.len());
    for share in shares {
        sayings.push(say_to_one(client, share.farewell().batch(), &share.key));
    }
    let _ = try_all(sayings).await;
}

/// The same as [`say`], for what need not be heard by all.
async fn say_to_one(client: &KvClient, batch: BatchRequest, key: &Bytes) -> Result<(), ()> {
    let _ = say(client, batch, key).await;
    Ok(())
}

/// Has the range of the record forget the transaction; whether it did, so that nobody will take it for committed.
pub async fn abort_at_anchor(client: &KvClient, meta: &TxnMeta, anchor: &Bytes) -> bool {
    let end = EndTxn { for_good: true, ..EndTxn::default() };
    let said = say(client, about(meta, RequestKind::EndTxn(end)), anchor);
    matches!(tokio::time::timeout(client.patience(), said).await, Ok(Ok(())))
}

/// The batch that commits a transaction by its record.
pub fn record(meta: &TxnMeta, anchor: &Bytes, at: Timestamp, parts: &[Bytes]) -> BatchRequest {
    let parts = parts.iter().take(MAX_PARTS).cloned().collect();
    let settles = Vec::new();
    about(meta, RequestKind::DecideTxn(DecideTxn { anchor: anchor.clone(), timestamp: at, parts, settles }))
}

fn about(meta: &TxnMeta, request: RequestKind) -> BatchRequest {
    let header = Header { txn: Some(meta.clone()), ..Header::default() };
    BatchRequest { header, requests: vec![request.into()] }
}

/// Sends a batch until it is answered, a bounded number of times. A transaction that is not known is not asked about
/// again.
async fn say(client: &KvClient, mut batch: BatchRequest, key: &Bytes) -> Result<(), ()> {
    for attempt in 0..ATTEMPTS {
        let sending = Sending { key: Some(key), ..Sending::default() };
        match client.resend(&mut batch, sending).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == KvErrorKind::Aborted => break,
            Err(error) => tracing::debug!(%error, "a range was not told what became of a transaction"),
        }
        tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt)).await;
    }
    Err(())
}
