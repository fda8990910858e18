//! Who may do what. Superusers may do everything, owners everything with what is theirs; others need
//! what was granted.
//!
//! # What is missing
//!
//! Grants on single columns, types and languages are accepted and not kept; grant options
//! are not told apart; row security does not exist.

use crate::catalog::CatalogSnapshot;
use crate::plan::{MergeAction, Plan, PlanKind};
use sql_types::{Oid, SqlError, SqlResult, SqlState};

/// `42501` for an object.
pub(crate) fn denied(kind: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {kind} {name}"))
}

/// `42501` for what only the owner may do.
pub(crate) fn must_own(kind: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {kind} {name}"))
}

/// A privilege that a plan needs: the table and the letter it has in `aclitem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    pub table: Oid,
    pub letter: char,
}

/// The privileges a plan needs on tables. What it reads through a view counts as the reader's, too.
pub(crate) fn needed(plan: &Plan) -> Vec<Needed> {
    let mut found = Vec::new();
    collect(plan, &mut found);
    found
}

fn collect(plan: &Plan, found: &mut Vec<Needed>) {
    let mut add = |table: Oid, letter: char| {
        let needed = Needed { table, letter };
        if !found.contains(&needed) {
            found.push(needed);
        }
    };
    match &plan.kind {
        PlanKind::Scan { table, .. } => add(table.oid, 'r'),
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
        if let Some(table) = catalog.table(need.table)
            && !catalog.has_privilege(role, table.owner, table.oid, need.letter)
        {
            return Err(denied("table", &table.name));
        }
    }
    Ok(())
}
