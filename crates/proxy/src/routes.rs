//! Which SQL node serves which tenant, as far as the proxy remembers.
//!
//! A bounded cache, least recently used first out. An entry leaves when control says that its node is
//! gone, when the node cannot be reached, and when the connection to control was lost and made anew
//! (what control said in between was missed). While control is away, entries go on being used: running
//! tenants do not notice.

use crate::startup::tenant::TenantName;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Where a tenant is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The tenant's number.
    pub tenant_id: u64,
    /// `unix:/path` or `host:port`.
    pub address: Arc<str>,
    /// Name of the SQL node.
    pub node: Arc<str>,
    /// Most connections the tenant may have, where it has a limit of its own.
    pub max_connections: Option<u64>,
}

/// The cache.
#[derive(Debug)]
pub struct RouteCache {
    routes: LruCache<TenantName, Route>,
}

impl RouteCache {
    /// A cache of at most `capacity` tenants, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { routes: LruCache::new(NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN)) }
    }

    /// The route of a tenant.
    pub fn get(&mut self, tenant: &TenantName) -> Option<Route> {
        self.routes.get(tenant).cloned()
    }

    /// Remembers a route.
    pub fn insert(&mut self, tenant: TenantName, route: Route) {
        self.routes.put(tenant, route);
    }

    /// Forgets a route that did not work, unless a newer one has taken its place.
    pub fn forget(&mut self, tenant: &TenantName, failed: &Route) {
        if self.routes.peek(tenant) == Some(failed) {
            self.routes.pop(tenant);
        }
    }

    /// Forgets every route to a node.
    pub fn node_gone(&mut self, node: &str) {
        let gone: Vec<TenantName> =
            self.routes.iter().filter(|(_, r)| &*r.node == node).map(|(t, _)| t.clone()).collect();
        for tenant in &gone {
            self.routes.pop(tenant);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.routes.clear();
    }

    /// How many tenants are remembered.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantName {
        TenantName::parse(name.as_bytes()).unwrap()
    }

    fn route(node: &str) -> Route {
        Route {
            tenant_id: 2,
            address: format!("unix:/{node}").into(),
            node: node.into(),
            max_connections: None,
        }
    }

    #[test]
    fn bounded_and_oldest_first_out() {
        let mut cache = RouteCache::new(2);
        cache.insert(tenant("a"), route("1"));
        cache.insert(tenant("b"), route("2"));
        assert!(cache.get(&tenant("a")).is_some());
        cache.insert(tenant("c"), route("3"));
        assert_eq!(cache.len(), 2);
        assert!(cache.get(&tenant("b")).is_none());
        assert!(cache.get(&tenant("a")).is_some());
    }

    #[test]
    fn a_gone_node_takes_its_routes_along() {
        let mut cache = RouteCache::new(8);
        cache.insert(tenant("a"), route("1"));
        cache.insert(tenant("b"), route("2"));
        cache.node_gone("1");
        assert!(cache.get(&tenant("a")).is_none());
        assert!(cache.get(&tenant("b")).is_some());
    }

    #[test]
    fn a_failure_does_not_remove_a_newer_route() {
        let mut cache = RouteCache::new(8);
        cache.insert(tenant("a"), route("2"));
        cache.forget(&tenant("a"), &route("1"));
        assert_eq!(cache.get(&tenant("a")), Some(route("2")));
        cache.forget(&tenant("a"), &route("2"));
        assert!(cache.is_empty());
    }
}
