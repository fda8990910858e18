//! The tenant authorizer: the one place that decides whose keys a request may touch.
//!
//! It runs on every batch before anything else looks at it, and nothing turns it off.
//!
//! * A tenant's SQL node may touch keys and spans that lie wholly within `/tenant/<id>/`, refresh spans
//!   included, and nothing else; it may neither drop tenants nor ask about nodes.
//! * The control plane may touch the system tenant's span, may drop other tenants, and may list and drain
//!   the nodes of the cluster.
//! * Everyone else is refused at connect, by [`Caller::from_identity`].

use kv_api::batch::RequestKind;
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
        // These name no keys; the header's spans are checked above.
        RequestKind::EndTxn(_) | RequestKind::Refresh(_) => true,
        RequestKind::DropTenant(request) => {
            let target = TenantId(request.tenant_id);
            let droppable = target >= TenantId::FIRST_USER && target.0 != u64::MAX;
            return if caller == Caller::Control && droppable {
                Ok(())
            } else {
                Err(KvError::new(KvErrorKind::Unauthorized, "only the control plane drops tenants"))
            };
        }
        RequestKind::Nodes(_) | RequestKind::DrainNode(_) => {
            return if caller == Caller::Control {
                Ok(())
            } else {
                Err(KvError::new(KvErrorKind::Unauthorized, "only the control plane asks about nodes"))
            };
        }
    };
    if allowed { Ok(()) } else { Err(outside(tenant)) }
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
