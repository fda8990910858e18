//! Keys for cancelling, the proxy's own.
//!
//! Every session gets a random process id and a random secret, 63 unguessable bits together. The key the
//! client is told says nothing about the SQL node, and the node's own key never leaves the proxy. Keys
//! live as long as their session, so the registry is as large as the number of sessions.
//!
//! Missing on purpose: a CancelRequest must reach the proxy that carries the session; several proxies
//! behind one address would have to pass requests on to each other.

use crate::startup::CancelKey;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rand::Rng;
use std::sync::Arc;

/// Where a session's CancelRequests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The tenant.
    pub tenant_id: u64,
    /// Address of the SQL node.
    pub address: Arc<str>,
    /// The key the SQL node gave out.
    pub key: CancelKey,
}

#[derive(Debug)]
struct Entry {
    secret: u32,
    target: Option<Target>,
}

/// The keys of all sessions.
#[derive(Debug, Default)]
pub struct CancelRegistry {
    entries: Mutex<HashMap<u32, Entry>>,
}

impl CancelRegistry {
    /// Makes a key that is in nobody's hands yet. It cancels nothing until it has a target.
    pub fn issue(self: &Arc<Self>) -> Issued {
        self.issue_from(&mut rand::rng())
    }

    fn issue_from(self: &Arc<Self>, random: &mut impl Rng) -> Issued {
        let secret = random.random();
        let mut entries = self.entries.lock();
        loop {
            // Drivers read the process id as a signed number; zero means "no key" to some.
            let process_id = random.random_range(1..=i32::MAX.unsigned_abs());
            if !entries.contains_key(&process_id) {
                entries.insert(process_id, Entry { secret, target: None });
                let key = CancelKey { process_id, secret };
                return Issued { registry: Arc::clone(self), key };
            }
        }
    }

    /// Where a key's session runs. Nothing for a wrong key.
    pub fn target(&self, key: CancelKey) -> Option<Target> {
        let entries = self.entries.lock();
        let entry = entries.get(&key.process_id)?;
        // One comparison of 32 bits takes the same time however many of them are right.
        if entry.secret == key.secret { entry.target.clone() } else { None }
    }

    /// How many keys are out.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether no key is out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A session's key; given back when dropped.
#[derive(Debug)]
pub struct Issued {
    registry: Arc<CancelRegistry>,
    key: CancelKey,
}

impl Issued {
    /// What the client is told.
    pub fn key(&self) -> CancelKey {
        self.key
    }

    /// From now on the key cancels what runs at `target`.
    pub fn attach(&self, target: Target) {
        if let Some(entry) = self.registry.entries.lock().get_mut(&self.key.process_id) {
            entry.target = Some(target);
        }
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        self.registry.entries.lock().remove(&self.key.process_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn target() -> Target {
        Target { tenant_id: 2, address: "unix:/x".into(), key: CancelKey { process_id: 1, secret: 2 } }
    }

    #[test]
    fn a_key_leads_to_its_target_until_dropped() {
        let registry = Arc::new(CancelRegistry::default());
        let issued = registry.issue();
        let key = issued.key();
        assert_eq!(registry.target(key), None);
        issued.attach(target());
        assert_eq!(registry.target(key), Some(target()));
        drop(issued);
        assert_eq!(registry.target(key), None);
        assert!(registry.is_empty());
    }

    #[test]
    fn a_wrong_secret_leads_nowhere() {
        let registry = Arc::new(CancelRegistry::default());
        let issued = registry.issue();
        issued.attach(target());
        let wrong = CancelKey { secret: issued.key().secret ^ 1, ..issued.key() };
        assert_eq!(registry.target(wrong), None);
    }

    #[test]
    fn two_sessions_never_share_a_process_id() {
        let registry = Arc::new(CancelRegistry::default());
        let seed = || rand::rngs::StdRng::seed_from_u64(7);
        let first = registry.issue_from(&mut seed());
        let second = registry.issue_from(&mut seed());
        assert_ne!(first.key().process_id, second.key().process_id);
        assert_eq!(registry.len(), 2);
        assert!(i32::try_from(first.key().process_id).unwrap() > 0);
    }
}
