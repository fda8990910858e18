//! What a batch asks for, as far as the way it takes through the node goes.

use crate::evaluate::WriteKind;
use kv_api::batch::RequestKind;
use kv_api::{BatchRequest, LockStrength, Timestamp};

/// A batch with more requests takes long.
const INLINE_REQUESTS: usize = 64;

/// What a node does with a batch.
pub(crate) enum Class {
    Read,
    Abort,
    Evaluate(WriteKind),
    List,
    Refresh,
    Decide,
    Resolve,
    Transfer,
}

/// What is to be done with a batch.
pub(crate) fn classify(batch: &BatchRequest) -> Class {
    let in_txn = batch.header.txn.is_some();
    let (mut writes, mut locks, mut outside) = (false, false, false);
    for request in &batch.requests {
        match &request.kind {
            Some(RequestKind::Get(get)) => locks |= get.lock != LockStrength::None as i32,
            Some(RequestKind::Scan(scan)) => locks |= scan.lock != LockStrength::None as i32,
            Some(RequestKind::EndTxn(end)) => {
                return match (end.commit, &end.prepare) {
                    (true, None) => Class::Evaluate(WriteKind::Commit),
                    (true, Some(_)) => Class::Evaluate(WriteKind::Prepare),
                    (false, _) => Class::Abort,
                };
            }
            Some(RequestKind::ListContention(_)) => return Class::List,
            Some(RequestKind::Refresh(_)) => return Class::Refresh,
            Some(RequestKind::DecideTxn(_)) => return Class::Decide,
            Some(RequestKind::ResolveTxn(_)) => return Class::Resolve,
            Some(RequestKind::DetachTxn(_) | RequestKind::AdoptTxn(_)) => return Class::Transfer,
            None => {}
            Some(RequestKind::Increment(_) | RequestKind::ClearRange(_)) => {
                outside = true;
            }
            Some(_) => writes = true,
        }
    }
    match (outside, writes, locks, in_txn) {
        (true, ..) | (_, true, _, false) => Class::Evaluate(WriteKind::Lone),
        (_, true, _, true) => Class::Evaluate(WriteKind::Flush),
        (_, false, true, true) => Class::Evaluate(WriteKind::Locking),
        _ => Class::Read,
    }
}

/// Whether a batch asks for so much that evaluating it takes long. Of others it shows ([`crate::patience`]).
pub(crate) fn is_large(batch: &BatchRequest) -> bool {
    batch.requests.len() > INLINE_REQUESTS
}

/// Whether a batch ends a transaction that nobody will ask about again.
pub(crate) fn aborts_for_good(batch: &BatchRequest) -> bool {
    let last = batch.requests.last().and_then(|request| request.kind.as_ref());
    matches!(last, Some(RequestKind::EndTxn(end)) if end.for_good)
}

/// Where a batch wants to be prepared or committed, if it says so.
pub(crate) fn wanted_timestamp(batch: &BatchRequest) -> Option<Timestamp> {
    match &batch.requests.last()?.kind {
        Some(RequestKind::EndTxn(end)) => {
            end.commit_at.or_else(|| end.prepare.as_ref().map(|prepare| prepare.timestamp))
        }
        _ => None,
    }
}
