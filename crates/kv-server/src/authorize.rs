//! The tenant authorizer: the one place that decides whose keys a request may touch.
//!
//! It runs on every batch before anything else looks at it, and nothing turns it off.
//!
//! * A tenant's SQL node may touch keys and spans that lie wholly within `/tenant/<id>/`, refresh spans
//!   included, look up the ranges of its own keys, say where the ranges of its own spans are to be and whether all
//!   replicas serve them, and nothing else.
//! * The control plane may touch the system tenant's span, may look up any range, make, configure and drop
//!   other tenants, compare replicas, and list ranges and nodes and drain nodes.
//! * Everyone else is refused at connect, by [`Caller::from_identity`].

use kv_api::batch::{ConfigureSpan, RangeConfig, RequestKind};
use kv_api::{BatchRequest, KvError, KvErrorKind, Span, TenantId};
use process::identity::Identity;

/// Who asks, as proven by a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A SQL node of a tenant.
    Tenant(TenantId),
    /// The control plane.
    Control,
}

impl Caller {
    /// The tenant whose keys the caller works on.
    pub fn tenant(self) -> TenantId {
        match self {
            Caller::Tenant(tenant) => tenant,
            Caller::Control => TenantId::SYSTEM,
        }
    }

    /// The caller with this identity.
    ///
    /// # Errors
    /// [`KvErrorKind::Unauthorized`] for everyone but SQL nodes of tenants and the control plane.
    pub fn from_identity(identity: Option<Identity>) -> Result<Self, KvError> {
        match identity {
            // The largest id has no end of its span to compare with.
            Some(Identity::Tenant(id)) if id != 0 && id != u64::MAX => Ok(Caller::Tenant(TenantId(id))),
            Some(Identity::Control) => Ok(Caller::Control),
            _ => Err(KvError::new(KvErrorKind::Unauthorized, "this identity may not speak to a KV node")),
        }
    }
}

/// Whether `caller` may send `batch`.
///
/// # Errors
/// [`KvErrorKind::Unauthorized`] at the first request or span that is not the caller's.
pub fn authorize(caller: Caller, batch: &BatchRequest) -> Result<(), KvError> {
    let tenant = caller.tenant();
    if !batch.header.refresh_spans.iter().all(|span| owns_span(tenant, span)) {
        return Err(outside(tenant));
    }
    batch.requests.iter().try_for_each(|request| match &request.kind {
        Some(kind) => authorize_request(caller, kind),
        None => Ok(()),
    })
}

fn authorize_request(caller: Caller, kind: &RequestKind) -> Result<(), KvError> {
    let tenant = caller.tenant();
    let allowed = match kind {
        RequestKind::Get(request) => owns_key(tenant, &request.key),
        RequestKind::Put(request) => owns_key(tenant, &request.key),
        RequestKind::ConditionalPut(request) => owns_key(tenant, &request.key),
        RequestKind::Delete(request) => owns_key(tenant, &request.key),
        RequestKind::Increment(request) => owns_key(tenant, &request.key),
        RequestKind::Scan(request) => owns_range(tenant, &request.start, &request.end),
        RequestKind::DeleteRange(request) => owns_range(tenant, &request.start, &request.end),
        RequestKind::ClearRange(request) => owns_range(tenant, &request.start, &request.end),
        RequestKind::ListContention(request) => owns_range(tenant, &request.start, &request.end),
        RequestKind::DecideTxn(request) => {
            request.parts.iter().chain([&request.anchor]).all(|key| owns_key(tenant, key))
        }
        RequestKind::ResolveTxn(request) => owns_key(tenant, &request.key),
        RequestKind::DetachTxn(request) => owns_key(tenant, &request.key),
        RequestKind::AdoptTxn(request) => owns_key(tenant, &request.key),
        // The header's spans are checked above.
        RequestKind::EndTxn(request) => request.prepare.as_ref().is_none_or(|prepare| {
            prepare.staged.iter().chain([&prepare.anchor]).all(|key| owns_key(tenant, key))
        }),
        RequestKind::Refresh(_) => true,
        RequestKind::RangeLookup(request) => caller == Caller::Control || owns_key(tenant, &request.key),
        RequestKind::DropTenant(request) => return administers(caller, Some(request.tenant_id)),
        RequestKind::CreateTenant(request) => return administers(caller, Some(request.tenant_id)),
        RequestKind::ConfigureTenant(request) => return administers(caller, Some(request.tenant_id)),
        RequestKind::ConfigureSpan(request) => return configures(caller, request),
        RequestKind::Nodes(_)
        | RequestKind::DrainNode(_)
        | RequestKind::Ranges(_)
        | RequestKind::SplitRange(_)
        | RequestKind::MergeRange(_)
        | RequestKind::CheckReplicas(_) => return administers(caller, None),
    };
    if allowed { Ok(()) } else { Err(outside(tenant)) }
}

/// Whether the caller is the control plane, and the tenant one that it makes and drops.
fn administers(caller: Caller, tenant: Option<u64>) -> Result<(), KvError> {
    let is_users = |id: u64| TenantId(id) >= TenantId::FIRST_USER && id != u64::MAX;
    if caller == Caller::Control && tenant.is_none_or(is_users) {
        return Ok(());
    }
    let message = "only the control plane works on the cluster, and only on users' tenants";
    Err(KvError::new(KvErrorKind::Unauthorized, message))
}

/// Whether the caller may set how a span is kept: the control plane for any user's tenant, and a tenant for its own
/// keys what costs nobody but itself.
fn configures(caller: Caller, request: &ConfigureSpan) -> Result<(), KvError> {
    let tenant = TenantId(request.tenant_id);
    if !owns_range(tenant, &request.start, &request.end) {
        return Err(outside(tenant));
    }
    if caller == Caller::Control {
        return administers(caller, Some(request.tenant_id));
    }
    let modest = |config: &RangeConfig| config.replicas == 0 && config.gc_ttl_s == 0;
    match caller {
        Caller::Tenant(own) if own != tenant || tenant < TenantId::FIRST_USER => Err(outside(own)),
        _ if request.config.as_ref().is_none_or(modest) => Ok(()),
        _ => {
            let message = "only the control plane sets the number of replicas and how long versions are kept";
            Err(KvError::new(KvErrorKind::Unauthorized, message))
        }
    }
}

fn owns_key(tenant: TenantId, key: &[u8]) -> bool {
    TenantId::of_key(key) == Some(tenant)
}

/// An empty end is no end at all here, not the single key it is in a [`Span`].
fn owns_range(tenant: TenantId, start: &[u8], end: &[u8]) -> bool {
    owns_key(tenant, start) && end > start && end <= &tenant.span().end[..]
}

fn owns_span(tenant: TenantId, span: &Span) -> bool {
    if span.is_point() { owns_key(tenant, &span.start) } else { owns_range(tenant, &span.start, &span.end) }
}

fn outside(tenant: TenantId) -> KvError {
    KvError::new(KvErrorKind::Unauthorized, format!("a key of the request is not within tenant {tenant}"))
}

#[cfg(test)]
mod tests;
