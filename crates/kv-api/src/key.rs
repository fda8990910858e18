//! Keys, spans and the tenant prefix.
//!
//! The keyspace is one ordered sequence of byte strings. Its first byte names the region:
//!
//! | first byte | what lives there |
//! |---|---|
//! | `0x02` | the cluster's own keys (range directory, liveness), for KV nodes alone |
//! | `0x10` | `/tenant/<id>/`: eight bytes of tenant id, big-endian, then the tenant's own key |
//!
//! Nothing else is a valid key. The prefix has one length for every tenant, so no tenant's prefix is
//! a prefix of another's, and a tenant's span is exactly `[prefix(id), prefix(id + 1))`.

use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// First byte of the cluster's own keys.
pub const CLUSTER_REGION: u8 = 0x02;
/// First byte of all tenants' keys.
pub const TENANT_REGION: u8 = 0x10;
/// Length in bytes of a tenant prefix.
pub const TENANT_PREFIX_LEN: usize = 9;
/// Longest key accepted, in bytes, tenant prefix included.
pub const MAX_KEY_LEN: usize = 16 << 10;
/// Largest value accepted, in bytes.
pub const MAX_VALUE_LEN: usize = 64 << 20;

/// Names a tenant. Tenant 1 is the system tenant: the control plane's own catalog. 0 is no tenant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u64);

impl TenantId {
    /// The control plane's own tenant.
    pub const SYSTEM: TenantId = TenantId(1);
    /// The first id given to a user's tenant.
    pub const FIRST_USER: TenantId = TenantId(2);

    /// The bytes every key of this tenant starts with.
    pub fn prefix(self) -> [u8; TENANT_PREFIX_LEN] {
        let mut prefix = [TENANT_REGION; TENANT_PREFIX_LEN];
        prefix[1..].copy_from_slice(&self.0.to_be_bytes());
        prefix
    }

    /// All keys of this tenant. The id `u64::MAX` is not a valid tenant.
    pub fn span(self) -> Span {
        Span {
            start: Bytes::copy_from_slice(&self.prefix()),
            end: Bytes::copy_from_slice(&TenantId(self.0.saturating_add(1)).prefix()),
        }
    }

    /// `key` with this tenant's prefix in front.
    pub fn prefixed(self, key: &[u8]) -> Bytes {
        let mut full = BytesMut::with_capacity(TENANT_PREFIX_LEN + key.len());
        full.put_slice(&self.prefix());
        full.put_slice(key);
        full.freeze()
    }

    /// The tenant a full key belongs to, or `None` for keys outside the tenant region.
    pub fn of_key(key: &[u8]) -> Option<TenantId> {
        match key.split_first_chunk::<TENANT_PREFIX_LEN>() {
            Some(([TENANT_REGION, id @ ..], _)) => Some(TenantId(u64::from_be_bytes(*id))),
            _ => None,
        }
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

/// The keys from `start` (included) to `end` (excluded). An empty `end` means the single key `start`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Span {
    /// First key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the span; empty for a single key.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
}

impl Span {
    /// The span of one key.
    pub fn point(key: Bytes) -> Self {
        Span { start: key, end: Bytes::new() }
    }

    /// The keys from `start` to before `end`.
    pub fn new(start: Bytes, end: Bytes) -> Self {
        Span { start, end }
    }

    /// Whether this is the span of a single key.
    pub fn is_point(&self) -> bool {
        self.end.is_empty()
    }

    /// Whether `key` lies in the span.
    pub fn contains(&self, key: &[u8]) -> bool {
        if self.is_point() { key == &self.start[..] } else { key >= &self.start[..] && key < &self.end[..] }
    }
}

/// The smallest key greater than every key with this prefix, or `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = BytesMut::from(&prefix[..=last]);
    end[last] += 1;
    Some(end.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_spans_touch_but_do_not_overlap() {
        let (one, two) = (TenantId(7).span(), TenantId(8).span());
        assert_eq!(one.end, two.start);
        assert!(one.contains(&TenantId(7).prefixed(&[0xff; 40])));
        assert!(!one.contains(&TenantId(8).prefixed(b"")));
        assert_eq!(TenantId::of_key(&TenantId(9).prefixed(b"k")), Some(TenantId(9)));
        assert_eq!(TenantId::of_key(&[TENANT_REGION, 0, 0]), None);
        assert_eq!(TenantId::of_key(&[CLUSTER_REGION; 20]), None);
    }

    #[test]
    fn prefix_end_skips_trailing_ff() {
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
    }
}
