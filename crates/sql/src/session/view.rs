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
use crate::instances::{Asked, Standing};
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
/// How long a lock is waited for at other SQL nodes, while it is held here, in case an index is built there.
const PATIENCE_WITH_JOBS: Duration = Duration::from_secs(1);
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
    /// Who else there was when the transaction first needed a strong lock.
    pub standing: Option<Standing>,
    /// What other SQL nodes hold for the transaction.
    pub asked: Vec<Asked>,
    /// What other SQL nodes hold for the session.
    pub asked_for_session: Vec<((LockKey, u8), Asked)>,
    /// The registration of the node under which it took advisory locks of the session.
    pub registration: u64,
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
        let timeout = self.settings.lock().derived().lock_timeout;
        if key.is_strong(mode) {
            return Box::pin(self.lock_strongly(key, mode, timeout)).await;
        }
        if self.try_lock(key, mode) {
            return Ok(false);
        }
        self.engine.locks.lock(self.session, key, mode, Scope::Transaction, timeout).await?;
        note(&mut self.held.lock(), key, mode);
        Ok(true)
    }

    /// Takes a lock that may conflict with what is held at other SQL nodes.
    async fn lock_strongly(&self, key: LockKey, mode: u8, timeout: Option<Duration>) -> SqlResult<bool> {
        if self.holds(key, mode) {
            return Ok(false);
        }
        if !self.standing().await?.alone {
            return self.lock_everywhere(key, mode, (true, timeout)).await.map(|()| true);
        }
        if self.try_lock(key, mode) {
            return Ok(false);
        }
        self.engine.locks.lock(self.session, key, mode, Scope::Transaction, timeout).await?;
        note(&mut self.held.lock(), key, mode);
        Ok(true)
    }

    /// Takes a table lock if that needs no waiting for whoever holds it.
    ///
    /// # Errors
    /// What keeps other SQL nodes from being asked.
    pub(crate) async fn lock_now(&self, key: LockKey, mode: u8) -> SqlResult<bool> {
        if !key.is_strong(mode) || self.holds(key, mode) || self.standing().await?.alone {
            return Ok(self.try_lock(key, mode));
        }
        match self.lock_everywhere(key, mode, (false, None)).await {
            Err(error) if error.code == SqlState::LOCK_NOT_AVAILABLE => Ok(false),
            result => result.map(|()| true),
        }
    }

    async fn lock_everywhere(
        &self,
        key: LockKey,
        mode: u8,
        waiting: (bool, Option<Duration>),
    ) -> SqlResult<()> {
        let (engine, scope) = (&self.engine, Scope::Transaction);
        let asked =
            engine.instances.lock_everywhere(engine, self.session, (key, mode), scope, waiting).await?;
        let mut held = self.held.lock();
        note(&mut held, key, mode);
        held.asked.push(asked);
        Ok(())
    }

    /// Takes an advisory lock, waiting for it if that is wanted; whether it has got it.
    pub(crate) async fn lock_advisory(
        &self,
        key: LockKey,
        mode: u8,
        scope: Scope,
        (waits, timeout): (bool, Option<Duration>),
    ) -> SqlResult<bool> {
        let (engine, session) = (&self.engine, self.session);
        let again = engine.locks.holds(session, key, mode);
        if !again && engine.instances.knows_others() {
            let waiting = (waits, timeout);
            let asked = engine.instances.lock_everywhere(engine, session, (key, mode), scope, waiting).await;
            let asked = match asked {
                Err(error) if !waits && error.code == SqlState::LOCK_NOT_AVAILABLE => return Ok(false),
                asked => asked?,
            };
            let mut held = self.held.lock();
            match scope {
                Scope::Transaction => held.asked.push(asked),
                Scope::Session => held.asked_for_session.push(((key, mode), asked)),
            }
        } else if !waits {
            if !engine.locks.try_lock(session, key, mode, scope) {
                return Ok(false);
            }
        } else {
            engine.locks.lock(session, key, mode, scope, timeout).await?;
        }
        let mut held = self.held.lock();
        match scope {
            Scope::Transaction => held.transaction.push((key, 1 << mode)),
            Scope::Session => {
                held.registration = engine.instances.registration();
                if !held.session.contains(&key) {
                    held.session.push(key);
                }
            }
        }
        Ok(true)
    }

    /// Gives back an advisory lock of the session once; false if it has none.
    pub(crate) fn unlock_advisory(&self, key: LockKey, mode: u8) -> bool {
        let locks = &self.engine.locks;
        let released = locks.release(self.session, key, mode, Scope::Session);
        if released && !locks.holds(self.session, key, mode) {
            self.held.lock().asked_for_session.retain(|(known, _)| *known != (key, mode));
        }
        released
    }

    /// Fails if the session has lost its advisory locks, with its node's lease.
    ///
    /// # Errors
    /// 57P01.
    pub(crate) fn check_advisory(&self, registration: u64) -> SqlResult<()> {
        {
            let held = self.held.lock();
            if held.session.is_empty() || held.registration == registration {
                return Ok(());
            }
        }
        self.release_session_locks();
        let message = "advisory locks of the session are lost: the lease of the SQL node has ended";
        Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, message))
    }

    /// Who else there was when the transaction first needed a strong lock, which is now unless it was before.
    pub(crate) async fn standing(&self) -> SqlResult<Standing> {
        let known = self.held.lock().standing;
        if let Some(standing) = known {
            return Ok(standing);
        }
        let standing = self.engine.instances.standing(&self.engine).await?;
        self.held.lock().standing = Some(standing);
        Ok(standing)
    }

    /// Whether the transaction holds a lock.
    pub(crate) fn holds(&self, key: LockKey, mode: u8) -> bool {
        let held = self.held.lock();
        held.transaction.iter().any(|(known, modes)| *known == key && modes & (1 << mode) != 0)
    }

    /// The same, for a lock that may be held for as long as an index is built.
    pub(crate) async fn lock_in_the_end(&self, key: LockKey, mode: u8) -> SqlResult<bool> {
        let timeout = self.settings.lock().derived().lock_timeout.unwrap_or(LONGEST_BUILD);
        if self.standing().await?.alone || self.holds(key, mode) {
            return Box::pin(self.lock_strongly(key, mode, Some(timeout))).await;
        }
        let ends = tokio::time::Instant::now() + timeout;
        loop {
            self.engine.end_of_jobs(key, ends).await?;
            // A job that begins just now waits for what is held already: it is let go on soon.
            let left = ends.saturating_duration_since(tokio::time::Instant::now());
            match self.lock_everywhere(key, mode, (true, Some(left.min(PATIENCE_WITH_JOBS)))).await {
                Err(error) if error.code == SqlState::LOCK_NOT_AVAILABLE && left > PATIENCE_WITH_JOBS => {}
                result => return result.map(|()| true),
            }
        }
    }

    /// Gives back the locks of the transaction.
    pub(crate) fn release_transaction_locks(&self) {
        let (keys, asked) = {
            let mut held = self.held.lock();
            held.standing = None;
            (std::mem::take(&mut held.transaction), std::mem::take(&mut held.asked))
        };
        drop(asked);
        if !keys.is_empty() {
            self.engine.locks.release_all(
                self.session,
                keys.into_iter().map(|(key, _)| key),
                Scope::Transaction,
            );
            let mut held = self.held.lock();
            if !held.asked_for_session.is_empty() {
                // Locks that were the session's first, and then the transaction's only.
                held.asked_for_session
                    .retain(|((key, mode), _)| self.engine.locks.holds(self.session, *key, *mode));
            }
        }
    }

    /// Gives back the session's advisory locks.
    pub(crate) fn release_session_locks(&self) {
        let (keys, asked) = {
            let mut held = self.held.lock();
            (std::mem::take(&mut held.session), std::mem::take(&mut held.asked_for_session))
        };
        drop(asked);
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
