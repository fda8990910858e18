//! Moves what was read in several ranges to a timestamp, at the same time.

use super::super::{aborted_if_lost, split_without_end};
use super::share::Share;
use crate::client::{KvClient, given_up};
use crate::join::try_all;
use crate::router::{SendError, Sending};
use kv_api::batch::{BatchRequest, Refresh, RequestKind};
use kv_api::{Header, KvResult, Timestamp};

/// Times that what lay in one range is shared out anew.
const MAX_SPLITS: usize = 32;

/// Checks that nothing that was read at `from` has changed up to `to`, nor will, and that what is held is held
/// still.
///
/// # Errors
/// `Retry` if something has changed, `Aborted` if something is not held any more, or what keeps a range from
/// answering.
pub async fn refresh(
    client: &KvClient,
    shares: &[Share],
    from: Option<Timestamp>,
    to: Timestamp,
) -> KvResult<()> {
    let wanted = shares.iter().filter(|share| share.held || !share.spans.is_empty());
    let refreshes = wanted.map(|share| refresh_share(client, share.clone(), from, to)).collect();
    try_all(refreshes).await.map(drop)
}

async fn refresh_share(
    client: &KvClient,
    share: Share,
    from: Option<Timestamp>,
    to: Timestamp,
) -> KvResult<()> {
    let mut left = vec![share];
    for _ in 0..MAX_SPLITS {
        let Some(mut share) = left.pop() else { return Ok(()) };
        if !share.held {
            share.unbound();
        }
        match send(client, &share, from, to).await {
            Ok(()) => {}
            Err(SendError::Split) if !share.held => left.extend(share.split(client).await?),
            Err(error) if share.held => return Err(aborted_if_lost(error)),
            Err(error) => return Err(given_up(error)),
        }
    }
    if left.is_empty() { Ok(()) } else { Err(split_without_end()) }
}

async fn send(
    client: &KvClient,
    share: &Share,
    from: Option<Timestamp>,
    to: Timestamp,
) -> Result<(), SendError> {
    let header = Header {
        txn: Some(share.meta.clone()),
        read_timestamp: from,
        refresh_spans: share.spans.clone(),
        ..Header::default()
    };
    let refresh = RequestKind::Refresh(Refresh { to: Some(to) });
    let mut batch = BatchRequest { header, requests: vec![refresh.into()] };
    let sending = Sending {
        place: share.place.as_ref(),
        key: Some(&share.key),
        range: Some(share.at.range_id),
        again: !share.held,
        ..Sending::default()
    };
    let sent_ns = client.environment().physical_ns();
    let sent = client.send(&mut batch, sending).await?;
    if let Some(clock) = sent.response.clock {
        client.note_clock(share.at.range_id, clock, sent_ns);
    }
    Ok(())
}
