//! How a node becomes a member of a cluster, and says where it is when it comes back.
//!
//! It asks the nodes it was told of, one after the other, until one answers. That one may know a better
//! one to ask: whoever may write the list of members.

use super::config::PeerLimits;
use super::dial::dial;
use super::error::PeerError;
use super::frames::Frames;
use super::message::{FirstFrame, FirstFrameKind, JoinRequest, JoinResponse};
use async_trait::async_trait;
use replication::message::PEER_PROTOCOL_VERSION;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// First and longest pause after none of the addresses helped.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// Most redirects followed from one of the addresses.
const MAX_REDIRECTS: usize = 5;

/// Decides who becomes a member of the cluster.
#[async_trait]
pub trait JoinHandler: Send + Sync {
    /// Answers a request to join. Versions and cluster have been compared.
    ///
    /// The answer may get lost and the request be repeated, here or elsewhere: a store that asks for an
    /// id again is given the same one. The future may be dropped when it takes too long
    /// ([`PeerLimits::join_timeout`]).
    async fn join(&self, request: JoinRequest) -> JoinResponse;
}

/// Why a node did not join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The cluster does not want this node. The message says what to do.
    #[error("the cluster does not take this node in: {0}")]
    Refused(String),
    /// Until the deadline, nobody was found who could take it in.
    #[error("no node that could take this one into the cluster was reached in time: {0}")]
    Unreachable(String),
}

/// Asks the KV nodes at these addresses to take this node in, or back, until one of them answers or the
/// deadline has passed. Sets the version of the request.
///
/// # Errors
/// See [`JoinError`].
pub async fn join(
    addresses: &[String],
    tls: &Arc<rustls::ClientConfig>,
    request: JoinRequest,
    deadline: Instant,
) -> Result<JoinResponse, JoinError> {
    let request = JoinRequest { version: PEER_PROTOCOL_VERSION, ..request };
    if addresses.is_empty() {
        return Err(JoinError::Unreachable("there is no address to ask at".to_owned()));
    }
    let mut problem: Option<String> = None;
    let mut pause = PAUSE_FIRST;
    let mut logged = false;
    loop {
        for address in addresses {
            match ask_and_follow(address, tls, &request, deadline).await {
                Ok(response) => return Ok(response),
                // An attempt that the deadline has cut off says less than the one before.
                Err(JoinError::Unreachable(_)) if problem.is_some() && Instant::now() >= deadline => {}
                Err(JoinError::Unreachable(message)) => problem = Some(message),
                Err(refused) => return Err(refused),
            }
        }
        let message = problem.as_deref().unwrap_or_default();
        if deadline.saturating_duration_since(Instant::now()) <= pause {
            return Err(JoinError::Unreachable(message.to_owned()));
        }
        if !logged {
            tracing::warn!("not in the cluster yet, trying on: {message}");
            logged = true;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MOST);
    }
}

/// Asks at an address and wherever its answer points.
async fn ask_and_follow(
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    request: &JoinRequest,
    deadline: Instant,
) -> Result<JoinResponse, JoinError> {
    let mut address = address.to_owned();
    for _ in 0..=MAX_REDIRECTS {
        let limits = PeerLimits::default();
        let attempt = deadline.min(Instant::now() + limits.handshake_timeout + limits.join_timeout);
        let asked = timeout_at(attempt, ask(&address, tls, request, &limits)).await;
        let response = asked
            .unwrap_or(Err(PeerError::Handshake))
            .map_err(|error| JoinError::Unreachable(format!("{address}: {error}")))?;
        match response {
            JoinResponse { error: Some(error), try_again: true, .. } => {
                return Err(JoinError::Unreachable(format!("{address}: {error}")));
            }
            JoinResponse { error: Some(error), .. } => return Err(JoinError::Refused(error)),
            response if response.redirect.is_empty() => return checked(response, request),
            response => address = response.redirect,
        }
    }
    // The nodes disagree on who may write the list of members, which happens while that changes.
    Err(JoinError::Unreachable(format!("{address}: redirected more than {MAX_REDIRECTS} times")))
}

async fn ask(
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    request: &JoinRequest,
    limits: &PeerLimits,
) -> Result<JoinResponse, PeerError> {
    let connecting = tokio::time::timeout(limits.handshake_timeout, dial(address, tls, limits)).await;
    let mut frames = Frames::new(connecting.unwrap_or(Err(PeerError::Handshake))?);
    frames.write(&FirstFrame { kind: Some(FirstFrameKind::Join(request.clone())) }).await?;
    frames.first().await
}

/// An answer that takes the node in must say as what.
fn checked(response: JoinResponse, request: &JoinRequest) -> Result<JoinResponse, JoinError> {
    let fits = response.node_id != 0
        && !response.cluster_id.is_empty()
        && (request.node_id == 0 || request.node_id == response.node_id)
        && (request.cluster_id.is_empty() || request.cluster_id == response.cluster_id);
    if fits {
        return Ok(response);
    }
    Err(JoinError::Refused(format!(
        "the answer is for node {} of cluster {:?}, the request was of node {} of cluster {:?}: check that \
         all nodes run the same release of dormouse",
        response.node_id, response.cluster_id, request.node_id, request.cluster_id
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_as_what_the_node_is_taken_in() {
        let request = |node_id, cluster_id: &str| JoinRequest {
            node_id,
            cluster_id: cluster_id.to_owned(),
            ..JoinRequest::default()
        };
        let response = |node_id, cluster_id: &str| JoinResponse {
            node_id,
            cluster_id: cluster_id.to_owned(),
            ..JoinResponse::default()
        };
        for (request, response, fits) in [
            (request(0, ""), response(3, "c"), true),
            (request(3, "c"), response(3, "c"), true),
            (request(0, ""), response(0, "c"), false),
            (request(0, ""), response(3, ""), false),
            (request(3, ""), response(4, "c"), false),
            (request(0, "d"), response(4, "c"), false),
        ] {
            assert_eq!(checked(response, &request).is_ok(), fits, "{request:?}");
        }
    }
}
