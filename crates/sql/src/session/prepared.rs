//! Prepared statements and the making of plans.

use super::command::{Command, read};
use super::locks::mode;
use super::plan_cache::PlanKey;
use super::privileges;
use super::statement_statistics::Held;
use super::view::{SessionView, Times, now_micros};
use crate::bind::{self, Variables};
use crate::catalog::CatalogSnapshot;
use crate::catalog::descriptor::TableDescriptor;
use crate::optimize::{self, Options};
use crate::parse::{Statement, StatementKind};
use crate::plan::{Needed, Plan, PlanColumn, PlanKind};
use crate::statistics::StatisticsCell;
use parking_lot::Mutex;
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// A plan with what its execution needs. Immutable, shared by the sessions of the node.
pub(crate) struct CachedPlan {
    pub plan: Arc<Plan>,
    pub param_types: Vec<Type>,
    pub columns: Option<Arc<[PlanColumn]>>,
    pub kind: StatementKind,
    /// Identity of the catalog snapshot it was made from.
    pub catalog: u64,
    pub path: Arc<[String]>,
    pub literals: Arc<str>,
    /// As [`SessionView::rights`].
    pub rights: (Oid, bool),
    /// How it was to be planned.
    pub planning: Options,
    /// Table locks it takes.
    pub locks: Vec<(Oid, u8)>,
    pub needed: Vec<Needed>,
    /// Tables it changes.
    pub changed: Vec<Arc<TableDescriptor>>,
    /// A materialized view it reads that has not been computed.
    pub unpopulated: Option<Box<str>>,
    /// Whether it takes row locks.
    pub locking: bool,
    /// Whether it calls functions of the user's own, which may do anything.
    pub calls: bool,
    /// The statistics it was made with, and their revisions.
    pub statistics: Vec<(StatisticsCell, u64)>,
    pub bytes: usize,
}

impl CachedPlan {
    /// Whether there are no newer statistics than those it was made with.
    fn is_recent(&self) -> bool {
        self.statistics.iter().all(|(statistics, revision)| statistics.revision() == *revision)
    }

    /// Whether it holds for what a session sees now.
    pub(crate) fn is_valid(&self, view: &SessionView) -> bool {
        self.catalog == view.snapshot().id()
            && self.rights == view.rights()
            && self.planning == view.derived.planning
            && self.is_recent()
            && (Arc::ptr_eq(&self.path, &view.path) || self.path == view.path)
            && (Arc::ptr_eq(&self.literals, &view.derived.literals) || self.literals == view.derived.literals)
    }

    /// Fails if it reads a materialized view that has not been computed.
    pub(crate) fn check_populated(&self) -> SqlResult<()> {
        let Some(name) = &self.unpopulated else { return Ok(()) };
        let message = format!("materialized view \"{name}\" has not been populated");
        Err(SqlError::new(SqlState::OBJECT_STATE, message)
            .with_hint("Use the REFRESH MATERIALIZED VIEW command."))
    }

    /// Whether it can run with nothing of it being undone: it changes and locks nothing.
    pub(crate) fn is_read(&self) -> bool {
        self.changed.is_empty() && !self.locking && !self.calls
    }
}

/// A prepared statement.
pub struct Prepared {
    pub(crate) statement: Option<Arc<Statement>>,
    pub(crate) command: Arc<Command>,
    /// As it was described.
    pub(crate) param_types: Vec<Type>,
    pub(crate) columns: Option<Arc<[PlanColumn]>>,
    /// The plan last used.
    pub(crate) plan: Mutex<Option<Arc<CachedPlan>>>,
    pub(crate) statistics: Held,
}

impl Prepared {
    /// Types of the parameters.
    pub fn param_types(&self) -> &[Type] {
        &self.param_types
    }

    /// Columns of its rows; `None` if it returns none.
    pub fn columns(&self) -> Option<&[PlanColumn]> {
        self.columns.as_deref()
    }

    /// The empty statement.
    pub(crate) fn empty() -> Self {
        Prepared {
            statement: None,
            command: Arc::new(Command::Nothing("")),
            param_types: Vec::new(),
            columns: None,
            plan: Mutex::new(None),
            statistics: Held::default(),
        }
    }
}

/// What a statement is, read once.
pub(crate) fn command_of(statement: &Statement) -> SqlResult<Arc<Command>> {
    read(statement).map(Arc::new)
}

/// The plan of a statement, from the cache of the node or made now.
pub(crate) fn plan(
    view: &SessionView,
    statement: &Arc<Statement>,
    params: &[Type],
    cached: bool,
) -> SqlResult<Arc<CachedPlan>> {
    plan_named(view, statement, params, None, cached)
}

fn plan_named(
    view: &SessionView,
    statement: &Arc<Statement>,
    params: &[Type],
    variables: Option<&Variables>,
    cached: bool,
) -> SqlResult<Arc<CachedPlan>> {
    let engine = &view.shared.engine;
    // What a transaction's own schema changes show is nobody else's business.
    let shared = cached && engine.cached_catalog().is_some_and(|catalog| catalog.id() == view.base.id());
    let key = shared.then(|| PlanKey {
        text: statement.text.clone(),
        params: params.iter().map(|ty| ty.0).collect(),
        catalog: view.snapshot().id(),
        database: view.shared.database,
        path: view.path.clone(),
        literals: view.derived.literals.clone(),
        variables: variables.map(|variables| variables.key.clone()),
        rights: view.rights(),
        planning: view.derived.planning,
    });
    if let Some(plan) = key.as_ref().and_then(|key| engine.plans.get(key)).filter(|plan| plan.is_recent()) {
        return Ok(plan);
    }
    let made = Arc::new(make(view, statement, params, variables)?);
    if let Some(key) = key {
        engine.plans.put(key, &made, statement.parameters > 0 || variables.is_some());
    }
    Ok(made)
}

/// The plan of a statement within a function, whose variables it can name.
pub(crate) fn plan_within(
    view: &SessionView,
    statement: &Arc<Statement>,
    variables: &Variables,
) -> SqlResult<Arc<CachedPlan>> {
    plan_named(view, statement, &variables.types, Some(variables), true)
}

fn make(
    view: &SessionView,
    statement: &Statement,
    params: &[Type],
    variables: Option<&Variables>,
) -> SqlResult<CachedPlan> {
    let now = now_micros();
    let eval = view.eval(Times { transaction: now, statement: now });
    let context = bind::BindContext { variables, ..view.bind_context(&eval, params) };
    let bound = bind::bind_statement(statement, &context)?;
    Ok(finish(view, bound, statement.text.len()))
}

/// Optimizes a bound statement and collects what its execution needs.
pub(crate) fn finish(view: &SessionView, bound: bind::Bound, text_len: usize) -> CachedPlan {
    // Asked before they are used: new ones that come meanwhile are not missed.
    let statistics = optimize::statistics(&bound.plan);
    let plan = optimize::optimize(bound.plan, view.derived.planning);
    let statistics = if optimize::is_by_keys(&plan) { Vec::new() } else { statistics };
    let mut locks = Vec::new();
    let mut locking = false;
    collect_locks(&plan, view.snapshot(), &mut locks, &mut locking);
    CachedPlan {
        needed: privileges::needed(&plan, bound.reads),
        unpopulated: unpopulated(&plan),
        changed: crate::dml::changed_tables(&plan),
        calls: plan.calls_routines(),
        plan: Arc::new(plan),
        param_types: bound.param_types,
        columns: bound.columns.map(Into::into),
        kind: bound.kind,
        catalog: view.snapshot().id(),
        path: view.path.clone(),
        literals: view.derived.literals.clone(),
        rights: view.rights(),
        planning: view.derived.planning,
        locks,
        locking,
        statistics,
        bytes: 2048 + 16 * text_len,
    }
}

fn add(locks: &mut Vec<(Oid, u8)>, table: Oid, mode: u8) {
    if !locks.contains(&(table, mode)) {
        locks.push((table, mode));
    }
}

/// A materialized view among what a plan reads that has not been computed.
fn unpopulated(plan: &Plan) -> Option<Box<str>> {
    if let PlanKind::Scan { table, .. } = &plan.kind
        && table.view.as_ref().is_some_and(|view| !view.populated)
    {
        return Some(table.name.as_str().into());
    }
    let mut found = None;
    plan.for_each_child(&mut |child, _| found = found.take().or_else(|| unpopulated(child)));
    found
}

fn collect_locks(plan: &Plan, catalog: &CatalogSnapshot, locks: &mut Vec<(Oid, u8)>, locking: &mut bool) {
    match &plan.kind {
        PlanKind::Scan { table, lock, .. } => {
            *locking |= lock.is_some();
            add(locks, table.oid, if lock.is_some() { mode::ROW_SHARE } else { mode::ACCESS_SHARE });
        }
        PlanKind::Insert { table, .. } => change(table, false, catalog, locks),
        PlanKind::Update { table, .. } | PlanKind::Delete { table, .. } | PlanKind::Merge { table, .. } => {
            change(table, true, catalog, locks)
        }
        _ => {}
    }
    plan.for_each_child(&mut |child, _| collect_locks(child, catalog, locks, locking));
}

/// A change of a table reads the tables its foreign keys refer to, and may change those that refer to it.
fn change(table: &TableDescriptor, removes: bool, catalog: &CatalogSnapshot, locks: &mut Vec<(Oid, u8)>) {
    add(locks, table.oid, mode::ROW_EXCLUSIVE);
    for key in &table.foreign_keys {
        add(locks, key.referenced_table, mode::ROW_SHARE);
    }
    if !removes {
        return;
    }
    // Cascades go on from table to table.
    let mut pending = vec![table.oid];
    let mut seen = vec![table.oid];
    while let Some(oid) = pending.pop() {
        for (referring, _) in catalog.referencing(oid) {
            add(locks, referring.oid, mode::ROW_EXCLUSIVE);
            if !seen.contains(&referring.oid) {
                seen.push(referring.oid);
                pending.push(referring.oid);
            }
        }
    }
}
