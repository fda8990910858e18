//! Who may do what. Superusers may do everything, owners everything with what is theirs; others need
//! what was granted. A view reads with the rights of its owner; who reads the view needs SELECT on the view alone.
//!
//! # What is missing
//!
//! Grants on single columns, types and languages are accepted and not kept; grant options
//! are not told apart.

use crate::catalog::CatalogSnapshot;
use crate::plan::{MergeAction, Needed, Plan, PlanKind};
use sql_types::{Oid, SqlError, SqlResult, SqlState};

/// `42501` for an object.
pub(crate) fn denied(kind: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {kind} {name}"))
}

/// `42501` for what only the owner may do.
pub(crate) fn must_own(kind: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {kind} {name}"))
}

/// The privileges a plan needs: those to read, which the binder knows, and those to write.
pub(crate) fn needed(plan: &Plan, mut reads: Vec<Needed>) -> Vec<Needed> {
    collect(plan, &mut reads);
    reads
}

fn collect(plan: &Plan, found: &mut Vec<Needed>) {
    let mut add = |table: Oid, letter: char| {
        let needed = Needed { table, letter, user: None };
        if !found.contains(&needed) {
            found.push(needed);
        }
    };
    match &plan.kind {
        PlanKind::Insert { table, on_conflict, .. } => {
            add(table.oid, 'a');
            if on_conflict.as_ref().is_some_and(|action| action.update.is_some()) {
                add(table.oid, 'w');
            }
        }
        PlanKind::Merge { table, clauses, .. } => {
            for clause in clauses {
                match clause.action {
                    MergeAction::Nothing => {}
                    MergeAction::Delete => add(table.oid, 'd'),
                    MergeAction::Update(_) => add(table.oid, 'w'),
                    MergeAction::Insert { .. } => add(table.oid, 'a'),
                }
            }
        }
        PlanKind::Update { table, .. } => add(table.oid, 'w'),
        PlanKind::Delete { table, .. } => add(table.oid, 'd'),
        _ => {}
    }
    plan.for_each_child(&mut |child, _| collect(child, found));
}

/// Refuses what a role may not do.
pub(crate) fn check(catalog: &CatalogSnapshot, role: Oid, needed: &[Needed]) -> SqlResult<()> {
    for need in needed {
        let role = need.user.unwrap_or(role);
        let (kind, name, owner) = match (catalog.table(need.table), catalog.views.get(&need.table)) {
            (Some(table), _) => ("table", &table.name, table.owner),
            (None, Some(view)) => ("view", &view.name, view.owner),
            (None, None) => continue,
        };
        if !catalog.has_privilege(role, owner, need.table, need.letter) {
            return Err(denied(kind, name));
        }
    }
    Ok(())
}
