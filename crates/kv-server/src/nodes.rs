//! Requests about the cluster's nodes: which there are, and draining one.

use crate::node::{BatchResult, Node};
use kv_api::batch::{RequestKind, Response};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind};
use std::sync::Arc;

/// Whether a batch is about nodes.
pub(crate) fn is_about_nodes(batch: &BatchRequest) -> bool {
    let kind = batch.requests.first().and_then(|request| request.kind.as_ref());
    matches!(kind, Some(RequestKind::Nodes(_) | RequestKind::DrainNode(_)))
}

/// The answer to a batch about nodes.
pub(crate) async fn answer(node: Arc<Node>, batch: BatchRequest) -> BatchResult {
    let missing = || KvError::new(KvErrorKind::InvalidRequest, "this node is not part of a cluster");
    let cluster = node.cluster().ok_or_else(missing)?;
    let nodes = match batch.requests.first().and_then(|request| request.kind.as_ref()) {
        Some(RequestKind::DrainNode(drain)) => {
            cluster.drain(drain.node_id, drain.undo).await?;
            Vec::new()
        }
        _ => cluster.nodes().await?,
    };
    let responses = vec![Response { nodes, ..Response::default() }];
    Ok(BatchResponse { responses, ..BatchResponse::default() })
}
