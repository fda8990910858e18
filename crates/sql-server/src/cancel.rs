//! Cancel keys: which running session a CancelRequest means.

use parking_lot::Mutex;
use rand::Rng;
use sql::session::CancelHandle;
use std::collections::HashMap;
use subtle::ConstantTimeEq;

/// The sessions of a node by process id. As many entries as there are sessions.
#[derive(Default)]
pub struct CancelRegistry {
    sessions: Mutex<HashMap<i32, Entry>>,
}

struct Entry {
    secret: i32,
    handle: Option<CancelHandle>,
}

/// The key of one session; the entry is removed when it is dropped.
pub struct CancelKey<'a> {
    registry: &'a CancelRegistry,
    /// Shown as `pg_backend_pid()`.
    pub process_id: i32,
    /// Known to the client alone.
    pub secret: i32,
}

impl CancelRegistry {
    /// A new key with an unguessable secret.
    pub fn register(&self) -> CancelKey<'_> {
        let mut rng = rand::rng();
        let secret = rng.random();
        let mut sessions = self.sessions.lock();
        loop {
            let process_id = rng.random_range(1..=i32::MAX);
            if let std::collections::hash_map::Entry::Vacant(entry) = sessions.entry(process_id) {
                entry.insert(Entry { secret, handle: None });
                return CancelKey { registry: self, process_id, secret };
            }
        }
    }

    /// Cancels what the session with this key is doing; anything else is ignored, as PostgreSQL does.
    pub fn cancel(&self, process_id: i32, secret: i32) -> bool {
        let sessions = self.sessions.lock();
        let Some(entry) = sessions.get(&process_id) else { return false };
        let matches: bool = entry.secret.to_be_bytes().ct_eq(&secret.to_be_bytes()).into();
        match (&entry.handle, matches) {
            (Some(handle), true) => {
                handle.cancel();
                true
            }
            _ => false,
        }
    }
}

impl CancelKey<'_> {
    /// Attaches what is to be cancelled.
    pub fn attach(&self, handle: CancelHandle) {
        if let Some(entry) = self.registry.sessions.lock().get_mut(&self.process_id) {
            entry.handle = Some(handle);
        }
    }
}

impl Drop for CancelKey<'_> {
    fn drop(&mut self) {
        self.registry.sessions.lock().remove(&self.process_id);
    }
}
