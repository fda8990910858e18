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
    // Where a part is prepared nothing need have been read: the clock must be at the commit before it is
    // acknowledged, or somebody might read there below it afterwards.
    let wanted =
        shares.iter().filter(|share| share.held || share.meta.has_intents || !share.spans.is_empty());
    let refreshes: Vec<_> = wanted.map(|share| refresh_share(client, share.clone(), from, to)).collect();
    if refreshes.is_empty() {
        return Ok(());
    }
    let began_ns = client.environment().physical_ns();
    try_all(refreshes).await?;
    let took_ns = client.environment().physical_ns().saturating_sub(began_ns);
    client.with_leads(|leads| leads.note_refresh(took_ns));
    Ok(())
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
        // Nothing was read where there is none.
        read_timestamp: from.or(Some(to)),
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
    // The answer says nothing of how far the range's clock was: it is at `to` now.
    client.send(&mut batch, sending).await.map(drop)
}
