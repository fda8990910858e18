//! What statements see of their session: catalog, settings, user. Immutable, rebuilt when one changes.

use super::activity::Activity;
use super::api::{CancelHandle, Notice};
use super::locks::{LockKey, Scope};
use super::notify::Inbox;
use super::sequences::SequenceState;
use super::settings::{Derived, Settings};
use super::statements::NamedStatement;
use crate::bind::BindContext;
use crate::catalog::routine::RoutineDescriptor;
use crate::catalog::temporary::Temporary;
use crate::catalog::{CatalogSnapshot, DatabaseCatalog};
use crate::engine::Engine;
use parking_lot::Mutex;
use smallvec::SmallVec;
use sql_types::context::{EvalContext, Random, TextContext};
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// How long the end of a change in steps is waited for, unless `lock_timeout` says otherwise.
const LONGEST_BUILD: Duration = Duration::from_secs(7 * 24 * 3600);
/// Notices kept until they are sent.
const MOST_NOTICES: usize = 10_000;

/// What lasts as long as the session and is reached from functions.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub session: u64,
    pub process_id: i32,
    pub database: Oid,
    pub database_name: Arc<str>,
    pub login: Oid,
    pub settings: Mutex<Settings>,
    pub notices: Mutex<Vec<Notice>>,
    pub sequences: Mutex<SequenceState>,
    pub random: SessionRandom,
    pub cancel: CancelHandle,
    pub inbox: Arc<Inbox>,
    pub activity: Arc<Activity>,
    pub held: Mutex<Held>,
    /// Notifications to be sent at commit.
    pub outgoing: Mutex<Vec<(Arc<str>, Arc<str>)>>,
    /// Statements of SQL's PREPARE and open cursors, for their catalogs: name, text, time.
    pub named: Mutex<Named>,
    /// Calls of functions that are running, one within the other.
    pub calls: AtomicU32,
    /// Calls of functions so far; it wraps.
    pub called: AtomicU32,
    /// Changes of rows that functions and triggers have made.
    pub changes: AtomicU64,
}

/// What has a name in the session.
#[derive(Default)]
pub(crate) struct Named {
    pub statements: HashMap<String, NamedStatement>,
    pub cursors: Vec<(String, Arc<str>, i64, bool)>,
}

/// Locks of the session: keys, and for tables the modes held, as bits.
#[derive(Default)]
pub(crate) struct Held {
    pub transaction: SmallVec<[(LockKey, u8); 4]>,
    pub session: Vec<LockKey>,
}

impl Shared {
    pub(crate) fn notice(&self, notice: Notice) {
        let mut notices = self.notices.lock();
        if notices.len() < MOST_NOTICES {
            notices.push(notice);
        }
    }

    /// Takes a table lock if it is not held yet. False if that needs waiting.
    pub(crate) fn try_lock(&self, key: LockKey, mode: u8) -> bool {
        let mut held = self.held.lock();
        let bit = 1 << mode;
        if held.transaction.iter().any(|(known, modes)| *known == key && modes & bit != 0) {
            return true;
        }
        if !self.engine.locks.try_lock(self.session, key, mode, Scope::Transaction) {
            return false;
        }
        note(&mut held, key, mode);
        true
    }

    /// Takes a table lock, waiting for it; true if it had to wait.
    pub(crate) async fn lock(&self, key: LockKey, mode: u8) -> SqlResult<bool> {
        if self.try_lock(key, mode) {
            return Ok(false);
        }
        let timeout = self.settings.lock().derived().lock_timeout;
        self.engine.locks.lock(self.session, key, mode, Scope::Transaction, timeout).await?;
        note(&mut self.held.lock(), key, mode);
        Ok(true)
    }

    /// The same, for a lock that may be held for as long as an index is built.
    pub(crate) async fn lock_in_the_end(&self, key: LockKey, mode: u8) -> SqlResult<bool> {
        if self.try_lock(key, mode) {
            return Ok(false);
        }
        let timeout = self.settings.lock().derived().lock_timeout.unwrap_or(LONGEST_BUILD);
        self.engine.locks.lock(self.session, key, mode, Scope::Transaction, Some(timeout)).await?;
        note(&mut self.held.lock(), key, mode);
        Ok(true)
    }

    /// Gives back the locks of the transaction.
    pub(crate) fn release_transaction_locks(&self) {
        let keys = std::mem::take(&mut self.held.lock().transaction);
        if !keys.is_empty() {
            self.engine.locks.release_all(
                self.session,
                keys.into_iter().map(|(key, _)| key),
                Scope::Transaction,
            );
        }
    }

    /// Gives back the session's advisory locks.
    pub(crate) fn release_session_locks(&self) {
        let keys = std::mem::take(&mut self.held.lock().session);
        self.engine.locks.release_all(self.session, keys, Scope::Session);
    }
}

fn note(held: &mut Held, key: LockKey, mode: u8) {
    match held.transaction.iter_mut().find(|(known, _)| *known == key) {
        Some((_, modes)) => *modes |= 1 << mode,
        None => held.transaction.push((key, 1 << mode)),
    }
}

/// What statements see of their session.
#[derive(Clone)]
pub(crate) struct SessionView {
    pub shared: Arc<Shared>,
    pub catalog: DatabaseCatalog,
    /// The catalog without the session's temporary objects.
    pub base: Arc<CatalogSnapshot>,
    /// The temporary objects in the catalog.
    pub temporary: Option<Arc<Temporary>>,
    pub derived: Arc<Derived>,
    /// The schemas searched, those that exist.
    pub path: Arc<[String]>,
    pub user: Oid,
    pub user_name: Arc<str>,
    pub login_name: Arc<str>,
    pub generation: u64,
    /// It is that of a function with its owner's rights.
    pub of_function: bool,
}

/// The instants a statement knows, in microseconds since 2000-01-01 UTC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub transaction: i64,
    pub statement: i64,
}

/// The present time in microseconds since 2000-01-01 UTC.
pub(crate) fn now_micros() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX) - sql_types::datetime::UNIX_EPOCH_OFFSET
}

/// The schemas of a search path that exist.
fn schemas(names: &[String], user: &str, snapshot: &CatalogSnapshot, database: Oid) -> Arc<[String]> {
    let mut path: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let name: &str = if name == "$user" { user } else { name };
        if snapshot.schema(database, name).is_some() && !path.iter().any(|known| known == name) {
            path.push(name.to_string());
        }
    }
    path.into()
}

impl SessionView {
    /// A view of a snapshot and the session's temporary objects.
    pub(crate) fn with_temporary(
        shared: Arc<Shared>,
        base: Arc<CatalogSnapshot>,
        temporary: Option<Arc<Temporary>>,
    ) -> SqlResult<Self> {
        let Some(temporary) = temporary else { return SessionView::new(shared, base) };
        let whole = base.with_temporary(&temporary, shared.database, shared.session);
        let view = SessionView::new(shared, Arc::new(whole))?;
        Ok(SessionView { base, temporary: Some(temporary), ..view })
    }

    /// A view of a snapshot.
    pub(crate) fn new(shared: Arc<Shared>, snapshot: Arc<CatalogSnapshot>) -> SqlResult<Self> {
        let (derived, generation, role, login) = {
            let settings = shared.settings.lock();
            let role = settings.raw("role").filter(|role| role != "none");
            (settings.derived(), settings.generation, role, settings.raw("session_authorization"))
        };
        let login_role = login.as_deref().and_then(|name| snapshot.role(name));
        let login_role = login_role.or_else(|| snapshot.roles.get(&shared.login));
        let Some(login_role) = login_role else {
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, "the session's role was dropped"));
        };
        let user = role.and_then(|name| snapshot.role(&name)).unwrap_or(login_role);
        let path = schemas(&derived.search_path, &user.name, &snapshot, shared.database);
        Ok(SessionView {
            catalog: DatabaseCatalog {
                snapshot: snapshot.clone(),
                database: shared.database,
                name: shared.database_name.clone(),
            },
            base: snapshot.clone(),
            temporary: None,
            derived,
            path,
            user: user.oid,
            user_name: user.name.as_str().into(),
            login_name: login_role.name.as_str().into(),
            generation,
            of_function: false,
            shared,
        })
    }

    /// The view that a function's statements have, if it is another one: with its owner's rights (SECURITY DEFINER), or
    /// with a search path of its own.
    ///
    /// # Errors
    /// 28000 if the owner is gone.
    pub(crate) fn within(&self, routine: &RoutineDescriptor) -> SqlResult<Option<SessionView>> {
        if !routine.definer && routine.search_path.is_none() {
            return Ok(None);
        }
        let mut view = self.clone();
        if routine.definer {
            let Some(owner) = self.snapshot().roles.get(&routine.owner) else {
                return Err(SqlError::new(
                    SqlState::INVALID_AUTHORIZATION,
                    "the owner of the function is gone",
                ));
            };
            (view.user, view.user_name) = (owner.oid, owner.name.as_str().into());
            view.of_function = true;
        }
        let names = routine.search_path.as_ref().unwrap_or(&self.derived.search_path);
        view.path = schemas(names, &view.user_name, self.snapshot(), self.shared.database);
        Ok(Some(view))
    }

    pub(crate) fn snapshot(&self) -> &Arc<CatalogSnapshot> {
        &self.catalog.snapshot
    }

    pub(crate) fn is_superuser(&self) -> bool {
        self.snapshot().is_superuser(self.user)
    }

    /// What plans depend on besides the catalog, where tables have row security: the user, and `row_security`.
    pub(crate) fn rights(&self) -> (Oid, bool) {
        if self.snapshot().has_row_security() { (self.user, self.derived.row_security) } else { (0, true) }
    }

    /// What text input and output depend on.
    pub(crate) fn text(&self, transaction_micros: i64) -> TextContext<'_> {
        let derived = &*self.derived;
        TextContext {
            time_zone: &derived.time_zone,
            date_style: derived.date_style,
            date_order: derived.date_order,
            interval_style: derived.interval_style,
            extra_float_digits: derived.extra_float_digits,
            bytea_output: derived.bytea_output,
            transaction_micros,
            catalog: self,
        }
    }

    /// What functions may know.
    pub(crate) fn eval(&self, times: Times) -> EvalContext<'_> {
        EvalContext {
            text: self.text(times.transaction),
            statement_micros: times.statement,
            clock: now_micros,
            user: &self.user_name,
            session_user: &self.login_name,
            database: &self.shared.database_name,
            schemas: &self.path,
            process_id: self.shared.process_id,
            random: &self.shared.random,
        }
    }

    /// What binding depends on.
    pub(crate) fn bind_context<'a>(
        &'a self,
        eval: &'a EvalContext<'a>,
        param_types: &'a [Type],
    ) -> BindContext<'a> {
        BindContext {
            catalog: &self.catalog,
            search_path: &self.path,
            eval,
            param_types,
            variables: None,
            user: self.user,
            row_security: self.derived.row_security,
        }
    }
}

/// What text input and output of values depend on. Cheap to clone.
#[derive(Clone)]
pub struct TextSettings {
    pub(crate) view: Arc<SessionView>,
    pub(crate) transaction_micros: i64,
}

impl TextSettings {
    /// As functions want it.
    pub fn context(&self) -> TextContext<'_> {
        self.view.text(self.transaction_micros)
    }
}

/// Random numbers of a session: the thread's generator, or a repeatable sequence after `setseed`.
#[derive(Default)]
pub(crate) struct SessionRandom(Mutex<Option<u64>>);

impl Random for SessionRandom {
    fn next_u64(&self) -> u64 {
        match &mut *self.0.lock() {
            None => rand::random(),
            Some(state) => {
                // SplitMix64.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
        }
    }

    fn seed(&self, seed: f64) {
        *self.0.lock() = Some(seed.to_bits());
    }
}
