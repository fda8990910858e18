//! Comparing replicas.
//!
//! All replicas of a range are asked what they hold at one closed timestamp, as a digest. What is visible
//! there never changes again, on any replica that has applied the promised entry ([`crate::follower`]), so
//! they need not be stopped, nor be at the same entry; each reads in the background, a piece at a time.
//!
//! A replica that differs from the majority is told to serve no more and is taken out of the range; the
//! leaseholder makes another in its place. If the leaseholder's own differs it hands the lease over first.
//! Without a majority nothing is done but to say so, loudly.
//!
//! What is not compared: versions that are not visible at the timestamp, open intents, the logs.

use crate::cluster::Cluster;
use crate::cluster::message::{Digest, GetDigest, Gone, Kind};
use crate::follower::{committed_intents, storage_error};
use crate::metrics::metrics;
use crate::node::Node;
use bytes::{Bytes, BytesMut};
use kv_api::batch::ReplicaCheck;
use kv_api::{KvError, KvErrorKind, Span};
use replication::state;
use replication::{MemberChange, NodeId};
use ring::digest::{Context, SHA256};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::mvcc::View;

/// Keys read before others get their turn.
const KEYS_PER_TURN: usize = 4096;

/// Compares the replicas of a range whose lease is held here. Those that differ are asked twice: what is
/// cleared for good, such as a dropped table, goes at a moment and not at a timestamp.
///
/// # Errors
/// If it is not held here.
pub async fn check(node: &Arc<Node>, cluster: &Cluster, range_id: u64) -> Result<Vec<ReplicaCheck>, KvError> {
    let first = compare(node, cluster, range_id).await?;
    let suspects = differing(&first);
    if suspects.is_empty() {
        return Ok(first);
    }
    let checks = compare(node, cluster, range_id).await?;
    let wrong: Vec<NodeId> =
        differing(&checks).into_iter().filter(|member| suspects.contains(member)).collect();
    if !wrong.is_empty() {
        metrics().replicas_differ.inc();
        tracing::error!(range = range_id, ?wrong, "replicas of the range differ");
        if checks.iter().any(|check| check.agrees) {
            isolate(node, cluster, range_id, &wrong, &checks).await;
        }
    }
    Ok(checks)
}

/// The members that hold something else than the majority, or than each other where there is none.
fn differing(checks: &[ReplicaCheck]) -> Vec<NodeId> {
    let answered = || checks.iter().filter(|check| check.problem.is_empty());
    let mut digests = answered().map(|check| &check.digest);
    let first = digests.next();
    // Perhaps too few answered to have a majority, but they say the same.
    if digests.all(|digest| Some(digest) == first) {
        return Vec::new();
    }
    answered().filter(|check| !check.agrees).map(|check| check.node_id).collect()
}

/// Asks all replicas of a range once.
async fn compare(node: &Arc<Node>, cluster: &Cluster, range_id: u64) -> Result<Vec<ReplicaCheck>, KvError> {
    node.ready(range_id).await?;
    let (timestamp, index) = node.promise(range_id)?;
    let status = node.pipeline.status(range_id).await?.ok_or_else(|| KvError::range_not_found(range_id))?;
    let members = status.group.members.all();
    let question = GetDigest { range_id, timestamp, index };
    let asked = members.iter().map(|member| async {
        if *member == node.node_id() {
            return digest(node, question).await.map_err(|error| error.message);
        }
        match cluster.ask_patiently(*member, Kind::GetDigest(question)).await {
            Some(Kind::Digest(digest)) => Ok(digest),
            Some(Kind::Refused(refusal)) => Err(refusal.reason),
            _ => Err("the node does not answer".to_owned()),
        }
    });
    let digests: Vec<Result<Digest, String>> = futures::future::join_all(asked).await;
    let agreed = majority(&digests, members.len());
    let mut checks = Vec::with_capacity(members.len());
    for (member, digest) in members.iter().zip(digests) {
        let (digest, problem) = match digest {
            Ok(digest) => (digest, String::new()),
            Err(problem) => (Digest::default(), problem),
        };
        checks.push(ReplicaCheck {
            range_id,
            node_id: *member,
            agrees: problem.is_empty() && agreed.as_ref() == Some(&digest.digest),
            digest: digest.digest,
            keys: digest.keys,
            timestamp,
            problem,
        });
    }
    Ok(checks)
}

/// What a majority of the members holds.
fn majority(digests: &[Result<Digest, String>], members: usize) -> Option<Bytes> {
    let mut votes: BTreeMap<&[u8], usize> = BTreeMap::new();
    for digest in digests.iter().flatten() {
        *votes.entry(&digest.digest).or_default() += 1;
    }
    let (digest, votes) = votes.into_iter().max_by_key(|(_, votes)| *votes)?;
    (votes * 2 > members).then(|| Bytes::copy_from_slice(digest))
}

/// Keeps replicas that differ from serving, and takes them out of the range.
async fn isolate(
    node: &Arc<Node>,
    cluster: &Cluster,
    range_id: u64,
    wrong: &[NodeId],
    checks: &[ReplicaCheck],
) {
    for member in wrong.iter().filter(|member| **member != node.node_id()) {
        if cluster.ask(*member, Kind::Distrust(Gone { range_id })).await.is_none() {
            tracing::warn!(range = range_id, node = member, "a node with a wrong replica does not answer");
        }
    }
    let result = if wrong.contains(&node.node_id()) {
        node.distrust(range_id);
        let right = checks.iter().find(|check| check.agrees).map(|check| check.node_id);
        match right {
            Some(right) => node.pipeline.transfer_lease(range_id, right).await,
            None => Ok(()),
        }
    } else {
        let change = MemberChange::Replace { add: vec![], remove: wrong.to_vec() };
        node.pipeline.change_members(range_id, change).await
    };
    if let Err(error) = result {
        tracing::error!(range = range_id, ?wrong, "the wrong replicas could not be taken out: {error}");
    }
}

/// The digest of what the replica here holds.
///
/// # Errors
/// If there is no replica here, or it is damaged.
pub async fn digest(node: &Arc<Node>, asked: GetDigest) -> Result<Digest, KvError> {
    let missing = || KvError::range_not_found(asked.range_id);
    if !node.pipeline.reached(asked.range_id, asked.index).await? {
        return Err(missing());
    }
    let span = node.pipeline.span(asked.range_id).ok_or_else(missing)?;
    let mut context = Context::new(&SHA256);
    let (mut keys, mut rest) = (0, Some(span.clone()));
    while let Some(piece) = rest {
        let environment = node.pipeline.environment();
        let (node, span) = (Arc::clone(node), span.clone());
        let digesting = environment.blocking(move || {
            let mut context = context;
            let (count, rest) = digest_piece(&node, &span, &piece, asked, &mut context)?;
            Ok::<_, KvError>((context, count, rest))
        });
        let ended = |_| KvError::new(KvErrorKind::Internal, "the comparison ended abnormally");
        let (returned, count, left) = digesting.await.map_err(ended)??;
        (context, rest) = (returned, left);
        keys += count;
    }
    if asked.timestamp < node.history.oldest(asked.range_id) {
        let message = "what is compared is no longer kept; it took too long";
        return Err(KvError::new(KvErrorKind::Retry, message));
    }
    Ok(Digest { digest: Bytes::copy_from_slice(context.finish().as_ref()), keys })
}

/// Digests the first keys of a piece of the range's span; returns how many and what is left.
fn digest_piece(
    node: &Node,
    range: &Span,
    span: &Span,
    asked: GetDigest,
    context: &mut Context,
) -> Result<(u64, Option<Span>), KvError> {
    let snapshot = node.engine.snapshot();
    // Had the replica gone, or a part of its keys to another range, what the snapshot shows might be half of it.
    let whole = state::whole(&*snapshot, asked.range_id, asked.index).map_err(storage_error)?;
    if whole.is_none_or(|whole| (&whole.start, &whole.end) != (&range.start, &range.end)) {
        return Err(KvError::range_not_found(asked.range_id));
    }
    let intents = committed_intents(&*snapshot, range)?;
    let view = View { reader: &*snapshot, timestamp: asked.timestamp, intents: &intents, overlay: None };
    let mut scanner = view.scan(&span.start, &span.end, false);
    let mut row = BytesMut::new();
    let mut keys = 0;
    let mut last = None;
    while let Some(mark) = scanner.next(&mut row)? {
        let (key, value) = (&row[mark.start..mark.middle], &row[mark.middle..mark.end]);
        for part in [key, value] {
            context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            context.update(part);
        }
        keys += 1;
        if keys >= KEYS_PER_TURN {
            last = Some(crate::shard::key_after(key));
            break;
        }
        row.clear();
    }
    let rest = last.filter(|next| *next < span.end).map(|next| Span::new(next, span.end.clone()));
    Ok((u64::try_from(keys).unwrap_or(u64::MAX), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_all_members_decides() {
        let digest = |byte: u8| Ok(Digest { digest: Bytes::from(vec![byte]), keys: 1 });
        let silent = || Err("silent".to_owned());
        assert_eq!(majority(&[digest(1), digest(1), digest(2)], 3).as_deref(), Some(&[1][..]));
        assert_eq!(majority(&[digest(1), digest(2), digest(3)], 3), None);
        assert_eq!(majority(&[digest(1), digest(1), silent()], 3).as_deref(), Some(&[1][..]));
        assert_eq!(majority(&[digest(1), silent(), silent()], 3), None);
        assert_eq!(majority(&[digest(1)], 1).as_deref(), Some(&[1][..]));
        assert_eq!(majority(&[digest(1), digest(2)], 2), None);
    }
}
