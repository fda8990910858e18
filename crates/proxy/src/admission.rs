//! How many connections there may be: in all, per tenant, and starting at the same time in all and per
//! address.
//!
//! A connection first holds a [`StartingPermit`]; it covers the time until its startup packet has been
//! read, where only the client's speed decides how long it takes. Then it holds a [`SessionPermit`].
//! Both give back what they hold when dropped.

use crate::error::ClientError;
use crate::startup::tenant::TenantName;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

/// The bounds.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Sessions in all, including those that wait for their tenant to wake.
    pub connections: usize,
    /// Sessions of one tenant.
    pub connections_per_tenant: usize,
    /// Connections whose startup packet has not been read yet.
    pub starting: usize,
    /// The same from one address.
    pub starting_per_address: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_tenant: 5_000,
            starting: 4_000,
            starting_per_address: 1_000,
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    sessions: Counter<TenantName>,
    starting: Counter<IpAddr>,
}

/// A total and its parts.
#[derive(Debug)]
struct Counter<K> {
    total: usize,
    by_key: HashMap<K, usize>,
}

impl<K> Default for Counter<K> {
    fn default() -> Self {
        Self { total: 0, by_key: HashMap::new() }
    }
}

/// Which bound was met.
enum Full {
    Total,
    Key,
}

impl<K: Hash + Eq + Clone> Counter<K> {
    fn add(&mut self, key: &K, most: usize, most_per_key: usize) -> Result<(), Full> {
        if self.total >= most {
            return Err(Full::Total);
        }
        let count = self.by_key.get(key).copied().unwrap_or(0);
        if count >= most_per_key {
            return Err(Full::Key);
        }
        self.by_key.insert(key.clone(), count + 1);
        self.total += 1;
        Ok(())
    }

    fn remove(&mut self, key: &K) {
        self.total = self.total.saturating_sub(1);
        let Some(count) = self.by_key.get_mut(key) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.by_key.remove(key);
        }
    }
}

/// Counts connections against the bounds.
#[derive(Debug)]
pub struct Admission {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
}

impl Admission {
    /// Nobody connected yet.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Lets a new connection in.
    pub fn start(self: &Arc<Self>, address: IpAddr) -> Result<StartingPermit, ClientError> {
        let limits = &self.limits;
        let added = self.counts.lock().starting.add(&address, limits.starting, limits.starting_per_address);
        match added {
            Ok(()) => Ok(StartingPermit { admission: Arc::clone(self), address }),
            Err(Full::Total) => Err(too_many("too many connections are starting")),
            Err(Full::Key) => Err(too_many("too many connections are starting from this address")),
        }
    }

    /// Lets a connection into a tenant.
    pub fn session(self: &Arc<Self>, tenant: TenantName) -> Result<SessionPermit, ClientError> {
        let limits = &self.limits;
        let added =
            self.counts.lock().sessions.add(&tenant, limits.connections, limits.connections_per_tenant);
        match added {
            Ok(()) => Ok(SessionPermit { admission: Arc::clone(self), tenant }),
            Err(Full::Total) => Err(too_many("sorry, too many clients already")),
            Err(Full::Key) => Err(too_many_of(&tenant)),
        }
    }
}

fn too_many_of(tenant: &TenantName) -> ClientError {
    too_many(&format!("too many connections for tenant \"{tenant}\""))
}

fn too_many(text: &str) -> ClientError {
    ClientError::new("53300", text).hint("Close connections that are not needed, or try again later.")
}

/// A connection that has not sent its startup packet yet.
#[derive(Debug)]
pub struct StartingPermit {
    admission: Arc<Admission>,
    address: IpAddr,
}

impl Drop for StartingPermit {
    fn drop(&mut self) {
        self.admission.counts.lock().starting.remove(&self.address);
    }
}

/// A connection to a tenant.
#[derive(Debug)]
pub struct SessionPermit {
    admission: Arc<Admission>,
    tenant: TenantName,
}

impl SessionPermit {
    /// Checks the tenant's own limit, which is known once its record has been looked up.
    pub fn check(&self, most: u64) -> Result<(), ClientError> {
        let counts = self.admission.counts.lock();
        let count = counts.sessions.by_key.get(&self.tenant).copied().unwrap_or(0);
        if u64::try_from(count).is_ok_and(|count| count <= most) {
            Ok(())
        } else {
            Err(too_many_of(&self.tenant))
        }
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.admission.counts.lock().sessions.remove(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Arc<Admission> {
        Admission::new(ConnectionLimits {
            connections: 3,
            connections_per_tenant: 2,
            starting: 3,
            starting_per_address: 2,
        })
    }

    fn tenant(name: &str) -> TenantName {
        TenantName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn sessions_are_bounded_by_tenant_and_in_all() {
        let admission = admission();
        let first = admission.session(tenant("a")).unwrap();
        let _second = admission.session(tenant("a")).unwrap();
        let error = admission.session(tenant("a")).unwrap_err();
        assert_eq!((error.code(), error.message()), ("53300", "too many connections for tenant \"a\""));
        let _third = admission.session(tenant("b")).unwrap();
        assert_eq!(admission.session(tenant("c")).unwrap_err().message(), "sorry, too many clients already");
        drop(first);
        assert!(admission.session(tenant("c")).is_ok());
    }

    #[test]
    fn a_tenant_may_have_a_limit_of_its_own() {
        let admission = admission();
        let first = admission.session(tenant("a")).unwrap();
        assert!(first.check(1).is_ok());
        let second = admission.session(tenant("a")).unwrap();
        assert_eq!(second.check(1).unwrap_err().code(), "53300");
        drop(second);
        assert!(first.check(1).is_ok());
    }

    #[test]
    fn starting_is_bounded_by_address() {
        let admission = admission();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let held: Vec<_> = (0..2).map(|_| admission.start(one).unwrap()).collect();
        assert_eq!(admission.start(one).unwrap_err().code(), "53300");
        assert!(admission.start(other).is_ok());
        drop(held);
        assert!(admission.start(one).is_ok());
        assert!(admission.counts.lock().starting.by_key.is_empty());
    }
}
