//! Ranges: list, split and merge them, and compare their replicas.

use super::error::ApiError;
use super::{Api, Shared, parse};
use crate::directory::DirectoryError;
use crate::placement::Placement;
use crate::ranges::{PAGE, hex, unhex};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use kv_api::TenantId;
use kv_api::batch::{RangeInfo, ReplicaCheck};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the cluster's own range goes by.
const CLUSTER: &str = "cluster";
/// What the system tenant goes by, which has no record.
const SYSTEM: &str = "system";
/// Names read for a page. A tenant that was created since its ranges were listed has a name more.
const NAMES: usize = 2 * PAGE;

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/ranges", get(list))
        .route("/ranges/{id}/check", post(check))
        .route("/ranges/{id}/merge", post(merge))
        .route("/ranges/split", post(split))
}

/// A range as the API shows it.
#[derive(Debug, PartialEq, Serialize)]
struct RangeView {
    id: u64,
    /// Null for the cluster's own range.
    tenant_id: Option<u64>,
    /// `cluster`, `system`, or a name; null if there is no tenant of this number any more.
    tenant: Option<String>,
    /// First key, in hexadecimal digits.
    start: String,
    /// First key after the range, in hexadecimal digits.
    end: String,
    generation: u64,
    /// Nodes that have replicas.
    replicas: Vec<u64>,
    /// Null if nobody knows.
    leaseholder: Option<u64>,
    /// Replicas it is to have; null is the default.
    wanted_replicas: Option<u32>,
    constraints: Vec<String>,
    lease_preferences: Vec<String>,
    /// How long replaced versions are kept, in seconds; null is the default.
    gc_ttl_s: Option<u64>,
}

fn view(range: RangeInfo, names: &BTreeMap<u64, String>) -> RangeView {
    let tenant = TenantId::of_key(&range.start);
    let name = match tenant {
        None => Some(CLUSTER.to_owned()),
        Some(TenantId::SYSTEM) => Some(SYSTEM.to_owned()),
        Some(TenantId(id)) => names.get(&id).cloned(),
    };
    let placement = Placement::from(range.config.unwrap_or_default());
    RangeView {
        id: range.range_id,
        tenant_id: tenant.map(|tenant| tenant.0),
        tenant: name,
        start: hex(&range.start),
        end: hex(&range.end),
        generation: range.generation,
        replicas: range.replicas.iter().map(|replica| replica.node_id).collect(),
        leaseholder: (range.leaseholder != 0).then_some(range.leaseholder),
        wanted_replicas: placement.replicas,
        constraints: placement.constraints,
        lease_preferences: placement.lease_preferences,
        gc_ttl_s: placement.gc_ttl_s,
    }
}

#[derive(Deserialize)]
struct PageQuery {
    #[serde(default)]
    after: String,
    tenant: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct PageView {
    ranges: Vec<RangeView>,
    /// `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn start_key(text: &str) -> Result<Bytes, ApiError> {
    let not_a_key = || ApiError::bad_request("a key is written in hexadecimal digits, two per byte");
    unhex(text).ok_or_else(not_a_key)
}

async fn list(State(api): Shared, Query(query): Query<PageQuery>) -> Result<Json<PageView>, ApiError> {
    let after = start_key(&query.after)?;
    let span = match &query.tenant {
        Some(name) => Some(api.tenant(name).await?.span()),
        None => None,
    };
    let page = api.ranges.page(after, span.as_ref(), query.limit.unwrap_or(PAGE)).await?;
    let next = page.ranges.last().filter(|_| page.more).map(|range| hex(&range.start));
    let names = api.names(&page.ranges).await?;
    Ok(Json(PageView { ranges: page.ranges.into_iter().map(|range| view(range, &names)).collect(), next }))
}

impl Api {
    /// The tenant of a name, or the system tenant if no other goes by its name.
    async fn tenant(&self, name: &str) -> Result<TenantId, DirectoryError> {
        match self.control.directory().get(name).await {
            Ok(record) => Ok(TenantId(record.id)),
            Err(DirectoryError::Unknown(name)) if name == SYSTEM => Ok(TenantId::SYSTEM),
            Err(error) => Err(error),
        }
    }

    /// Names of the tenants whose ranges these are. Ranges come in the order of tenants' numbers.
    async fn names(&self, ranges: &[RangeInfo]) -> Result<BTreeMap<u64, String>, DirectoryError> {
        let mut ids = ranges.iter().filter_map(|range| TenantId::of_key(&range.start));
        let ids = ids.by_ref().filter(|id| *id >= TenantId::FIRST_USER).map(|id| id.0);
        let (first, last) = ids.fold((u64::MAX, 0), |(first, last), id| (first.min(id), last.max(id)));
        if first > last {
            return Ok(BTreeMap::new());
        }
        self.control.directory().names(first, last, NAMES).await
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct CheckRequest {
    start: Option<String>,
}

/// What a comparison found of a range.
#[derive(Debug, PartialEq, Serialize)]
struct CheckView {
    id: u64,
    /// `agree`, `disagree`, or `incomplete` if those that answered agree but not all did.
    result: &'static str,
    replicas: Vec<ReplicaView>,
}

/// What a comparison found of a replica.
#[derive(Debug, PartialEq, Serialize)]
struct ReplicaView {
    node: u64,
    /// `agrees`, `disagrees` or `unanswered`.
    result: &'static str,
    /// Digest of what it holds, in hexadecimal digits; null if it did not answer.
    digest: Option<String>,
    /// Keys it holds.
    keys: u64,
    /// The moment that was compared.
    timestamp: String,
    /// Why it did not answer.
    problem: Option<String>,
}

fn judge(id: u64, checks: Vec<ReplicaCheck>) -> CheckView {
    let replicas: Vec<ReplicaView> = checks.into_iter().map(judge_replica).collect();
    let any = |result| replicas.iter().any(|replica| replica.result == result);
    let result = match (any("disagrees"), any("unanswered"), any("agrees")) {
        (true, ..) => "disagree",
        (false, false, true) => "agree",
        (false, ..) => "incomplete",
    };
    CheckView { id, result, replicas }
}

fn judge_replica(check: ReplicaCheck) -> ReplicaView {
    let answered = !check.digest.is_empty();
    ReplicaView {
        node: check.node_id,
        result: match (answered, check.agrees) {
            (false, _) => "unanswered",
            (true, true) => "agrees",
            (true, false) => "disagrees",
        },
        digest: answered.then(|| hex(&check.digest)),
        keys: check.keys,
        timestamp: check.timestamp.to_string(),
        problem: (!check.problem.is_empty()).then_some(check.problem),
    }
}

/// Where to split.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitRequest {
    /// First key of the new range, in hexadecimal digits.
    key: String,
}

async fn split(State(api): Shared, body: Bytes) -> Result<StatusCode, ApiError> {
    let request: SplitRequest = parse(&body)?;
    api.ranges.split(&start_key(&request.key)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn merge(State(api): Shared, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    let id = number(&id)?;
    let range = api.ranges.find(id, None).await?.ok_or_else(|| ApiError::unknown_range(id))?;
    api.ranges.merge(&range).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn number(id: &str) -> Result<u64, ApiError> {
    id.parse().map_err(|_| ApiError::bad_request(format!("\"{id}\" is no number of a range")))
}

async fn check(State(api): Shared, Path(id): Path<String>, body: Bytes) -> Result<Json<CheckView>, ApiError> {
    let id = number(&id)?;
    let request: CheckRequest = if body.is_empty() { CheckRequest::default() } else { parse(&body)? };
    let start = request.start.as_deref().map(start_key).transpose()?;
    let unknown = || ApiError::unknown_range(id);
    let range = api.ranges.find(id, start.as_ref()).await?.ok_or_else(unknown)?;
    match api.ranges.check(&range).await {
        Ok(checks) => Ok(Json(judge(id, checks))),
        // A range that was dropped meanwhile answers no more.
        Err(error) => match api.ranges.find(id, Some(&range.start)).await {
            Ok(None) => Err(unknown()),
            _ => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::batch::{RangeConfig, ReplicaInfo};

    fn replica(node_id: u64) -> ReplicaInfo {
        ReplicaInfo { node_id, address: format!("127.0.0.1:{node_id}") }
    }

    #[test]
    fn ranges_are_shown_with_whose_they_are() {
        let names = BTreeMap::from([(7, "app".to_owned())]);
        let of = |start: Bytes| view(RangeInfo { start, ..RangeInfo::default() }, &names);
        let whose = |view: RangeView| (view.tenant_id, view.tenant);
        assert_eq!(whose(of(Bytes::from_static(b"\x02"))), (None, Some("cluster".into())));
        assert_eq!(whose(of(TenantId::SYSTEM.prefixed(b""))), (Some(1), Some("system".into())));
        assert_eq!(whose(of(TenantId(7).prefixed(b"x"))), (Some(7), Some("app".into())));
        assert_eq!(whose(of(TenantId(8).prefixed(b""))), (Some(8), None));
        let config =
            RangeConfig { replicas: 3, constraints: vec!["zone=a".into()], ..RangeConfig::default() };
        let range = RangeInfo {
            replicas: vec![replica(3), replica(1)],
            leaseholder: 3,
            config: Some(config),
            ..RangeInfo::default()
        };
        let view = view(range, &names);
        assert_eq!((view.replicas, view.leaseholder), (vec![3, 1], Some(3)));
        assert_eq!((view.wanted_replicas, view.gc_ttl_s), (Some(3), None));
        assert_eq!(view.constraints, ["zone=a"]);
    }

    #[test]
    fn who_does_not_answer_neither_agrees_nor_disagrees() {
        let check = |digest: &'static [u8], agrees: bool| ReplicaCheck {
            digest: Bytes::from_static(digest),
            agrees,
            ..ReplicaCheck::default()
        };
        let result = |checks: &[ReplicaCheck]| judge(5, checks.to_vec()).result;
        let (same, other, silent) = (check(b"a", true), check(b"b", false), check(b"", false));
        assert_eq!(result(&[same.clone(), same.clone()]), "agree");
        assert_eq!(result(&[same.clone(), silent.clone()]), "incomplete");
        assert_eq!(result(&[same, silent.clone(), other]), "disagree");
        assert_eq!(result(&[silent]), "incomplete");
        assert_eq!(result(&[]), "incomplete");
    }
}
