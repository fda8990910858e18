//! Plans shared by the sessions of a node, by what they depend on.

use super::prepared::CachedPlan;
use crate::optimize::Options;
use crate::parse::Statement;
use parking_lot::Mutex;
use smallvec::SmallVec;
use sql_types::Oid;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Estimated bytes kept at most.
const MOST_BYTES: usize = 6 << 20;
/// Longer statements are not kept.
const LONGEST_TEXT: usize = 16 << 10;
/// Texts remembered to have been seen once.
const SEEN: usize = 256;

/// What a plan depends on besides the catalog's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    pub text: Arc<str>,
    pub params: SmallVec<[Oid; 4]>,
    /// Identity of the catalog snapshot.
    pub catalog: u64,
    pub database: Oid,
    pub path: Arc<[String]>,
    /// Settings that the reading of literals depends on.
    pub literals: Arc<str>,
    /// The names of variables, within a function.
    pub variables: Option<Arc<str>>,
    /// User and `row_security`, where tables have row security.
    pub rights: (Oid, bool),
    /// Settings of the planner.
    pub planning: Options,
}

struct Inner {
    plans: lru::LruCache<PlanKey, Arc<CachedPlan>>,
    statements: lru::LruCache<Arc<str>, Arc<Statement>>,
    bytes: usize,
    seen: [u64; SEEN],
}

/// The cache.
pub(crate) struct PlanCache {
    inner: Mutex<Inner>,
    hasher: hashbrown::DefaultHashBuilder,
}

impl Default for PlanCache {
    fn default() -> Self {
        let inner = Inner {
            plans: lru::LruCache::unbounded(),
            statements: lru::LruCache::unbounded(),
            bytes: 0,
            seen: [0; SEEN],
        };
        PlanCache { inner: Mutex::new(inner), hasher: Default::default() }
    }
}

/// Statements parsed and kept for repetition.
const MOST_STATEMENTS: usize = 256;

impl PlanCache {
    /// A statement parsed before.
    pub(crate) fn statement(&self, text: &str) -> Option<Arc<Statement>> {
        self.inner.lock().statements.get(text).cloned()
    }

    /// Keeps a parsed statement if its text has been seen before.
    pub(crate) fn put_statement(&self, text: &str, statement: &Arc<Statement>) {
        if text.len() > LONGEST_TEXT || !self.seen_before(text, 0) {
            return;
        }
        let mut inner = self.inner.lock();
        inner.statements.put(text.into(), statement.clone());
        if inner.statements.len() > MOST_STATEMENTS {
            inner.statements.pop_lru();
        }
    }

    /// Whether a text was seen lately for a purpose; from now on it was.
    fn seen_before(&self, text: &str, purpose: u8) -> bool {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u8(purpose);
        hasher.write(text.as_bytes());
        let hash = hasher.finish() | 1;
        let mut inner = self.inner.lock();
        std::mem::replace(&mut inner.seen[hash as usize / 2 % SEEN], hash) == hash
    }

    /// A plan made before.
    pub(crate) fn get(&self, key: &PlanKey) -> Option<Arc<CachedPlan>> {
        self.inner.lock().plans.get(key).cloned()
    }

    /// Keeps a plan; a statement without parameters only if its text has been seen before.
    pub(crate) fn put(&self, key: PlanKey, plan: &Arc<CachedPlan>, always: bool) {
        if key.text.len() > LONGEST_TEXT || holds_moving_literal(&key.text) {
            return;
        }
        if !always && !self.seen_before(&key.text, 1) {
            return;
        }
        let mut inner = self.inner.lock();
        inner.bytes += plan.bytes;
        if let Some(old) = inner.plans.put(key, plan.clone()) {
            inner.bytes = inner.bytes.saturating_sub(old.bytes);
        }
        while inner.bytes > MOST_BYTES {
            let Some((_, old)) = inner.plans.pop_lru() else { break };
            inner.bytes = inner.bytes.saturating_sub(old.bytes);
        }
    }

    /// Throws everything away.
    pub(crate) fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.plans.clear();
        inner.bytes = 0;
    }
}

/// Whether a constant such as `'now'` may be in the text: its value is fixed when it is read.
fn holds_moving_literal(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["'now", "'today", "'tomorrow", "'yesterday"].iter().any(|literal| lower.contains(literal))
}
