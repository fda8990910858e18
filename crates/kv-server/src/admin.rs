//! Requests about the cluster: its nodes and its ranges.

use crate::check;
use crate::cluster::{Cluster, MergeLimits};
use crate::directory;
use crate::node::{BatchResult, Node};
use crate::pipeline::{ROOT, Standing};
use kv_api::batch::{RangeInfo, RequestKind, Response};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, TenantId};
use std::sync::Arc;

/// Most ranges listed at a time.
const MAX_LISTED: usize = 1000;

/// Whether a batch is about the cluster.
pub(crate) fn is_about_cluster(batch: &BatchRequest) -> bool {
    let kind = batch.requests.first().and_then(|request| request.kind.as_ref());
    kind.is_some_and(RequestKind::is_about_cluster)
}

/// The answer to a batch about the cluster, which [`crate::authorize`] has let through.
pub(crate) async fn answer(node: Arc<Node>, batch: BatchRequest) -> BatchResult {
    let missing = || KvError::new(KvErrorKind::InvalidRequest, "this node is not part of a cluster");
    let cluster = node.cluster().ok_or_else(missing)?;
    let mut response = Response::default();
    match batch.requests.into_iter().next().and_then(|request| request.kind) {
        Some(RequestKind::Nodes(_)) => {
            node.ready(ROOT).await?;
            response.nodes = cluster.nodes().await?;
        }
        Some(RequestKind::DrainNode(drain)) => {
            node.ready(ROOT).await?;
            cluster.drain(drain.node_id, drain.undo).await?;
        }
        Some(RequestKind::RangeLookup(lookup)) => {
            has_directory(&node)?;
            let found = directory::lookup(&*node.engine, &lookup.key)?;
            response.ranges = found.map(|record| info(cluster, record)).into_iter().collect();
        }
        Some(RequestKind::Ranges(request)) => {
            has_directory(&node)?;
            let limit = usize::try_from(request.limit).unwrap_or(MAX_LISTED).min(MAX_LISTED);
            let limit = if limit == 0 { MAX_LISTED } else { limit };
            let found = directory::list(&*node.engine, &request.after, limit)?;
            response.ranges = found.into_iter().map(|record| info(cluster, record)).collect();
        }
        Some(RequestKind::CreateTenant(create)) => {
            // Goes on if the client leaves: who looks after the directory next must see what came of it.
            let (cluster, node) = (Arc::clone(cluster), Arc::clone(&node));
            let making = async move { cluster.create_tenant(&node, TenantId(create.tenant_id)).await };
            tokio::spawn(making).await.map_err(ended)??;
        }
        Some(RequestKind::DropTenant(drop)) => {
            let (cluster, node) = (Arc::clone(cluster), Arc::clone(&node));
            let dropping = async move { cluster.drop_tenant(&node, TenantId(drop.tenant_id)).await };
            tokio::spawn(dropping).await.map_err(ended)??;
        }
        Some(RequestKind::ConfigureTenant(configure)) => {
            let tenant = TenantId(configure.tenant_id);
            cluster.configure(&node, batch.header.range_id, tenant, configure.config).await?;
        }
        Some(RequestKind::ConfigureSpan(configure)) => {
            let (cluster, node, range) = (Arc::clone(cluster), Arc::clone(&node), batch.header.range_id);
            let configuring = async move { cluster.configure_span(&node, range, configure).await };
            tokio::spawn(configuring).await.map_err(ended)??;
        }
        Some(RequestKind::SplitRange(split)) => {
            let (cluster, node, range) = (Arc::clone(cluster), Arc::clone(&node), batch.header.range_id);
            let splitting = async move { cluster.split(&node, range, split.key).await };
            tokio::spawn(splitting).await.map_err(ended)??;
        }
        Some(RequestKind::MergeRange(merge)) => {
            let (cluster, node, range) = (Arc::clone(cluster), Arc::clone(&node), batch.header.range_id);
            let merging =
                async move { cluster.merge(&node, range, Some(merge.end), MergeLimits::ASKED_FOR).await };
            tokio::spawn(merging).await.map_err(ended)??;
        }
        Some(RequestKind::CheckReplicas(_)) => {
            response.checks = check::check(&node, cluster, batch.header.range_id).await?;
        }
        _ => return Err(KvError::new(KvErrorKind::Internal, "not a request about the cluster")),
    }
    Ok(BatchResponse { responses: vec![response], ..BatchResponse::default() })
}

fn ended(_: tokio::task::JoinError) -> KvError {
    KvError::new(KvErrorKind::Internal, "a request about the cluster ended abnormally")
}

/// Fails on a node without a replica of the directory, and says where there is one.
fn has_directory(node: &Node) -> Result<(), KvError> {
    match node.pipeline.span(ROOT) {
        Some(_) => Ok(()),
        None => Err(node.root_elsewhere()),
    }
}

fn info(cluster: &Cluster, record: directory::RangeRecord) -> RangeInfo {
    record.info(|id| cluster.address_of(id))
}

impl Node {
    /// What a node without a replica of the root range answers to those who need it.
    fn root_elsewhere(&self) -> KvError {
        let leader = match self.pipeline.standing(ROOT) {
            Standing::Follower(leader) => leader,
            Standing::Leaseholder(_) => None,
        };
        let address = leader.and_then(|id| self.address_of(id));
        KvError::not_leaseholder(address.or_else(|| self.cluster()?.root_address()))
    }
}
