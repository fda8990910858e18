//! Row security of rows that are written.

use crate::catalog::descriptor::TableDescriptor;
use crate::exec::ExecContext;
use crate::exec::eval::eval_bool;
use crate::exec::operator::build;
use crate::exec::scope::Scope;
use crate::plan::{PolicyCheck, PolicyTest};
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState};

/// Which rows are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// Those that are written.
    New,
    /// One that ON CONFLICT DO UPDATE is to change.
    Existing,
    /// One that MERGE is to change or delete.
    Target,
}

/// 42501 for a row that a condition is not true for.
fn violated(check: &PolicyCheck, table: &TableDescriptor, checked: Checked) -> SqlError {
    let row = if checked == Checked::Target { "target row" } else { "new row" };
    let policy = check.policy.as_ref().map(|policy| format!(" \"{policy}\"")).unwrap_or_default();
    let using = if checked == Checked::New { "" } else { " (USING expression)" };
    let message =
        format!("{row} violates row-level security policy{policy}{using} for table \"{}\"", table.name);
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// Refuses a full row for which a condition of policies is not true.
pub(super) async fn check_row(
    cx: &ExecContext<'_>,
    scope: &Scope<'_>,
    checks: &[PolicyCheck],
    table: &TableDescriptor,
    row: &Row,
    checked: Checked,
) -> SqlResult<()> {
    for check in checks {
        let holds = match &check.test {
            PolicyTest::Row(expr) => eval_bool(expr, row, &scope.env(cx))? == Some(true),
            PolicyTest::Query(plan) => {
                let scope = scope.with_row(row.clone());
                let answer = build(plan, &scope)?.next(cx, 1).await?;
                let answer = answer.and_then(|rows| rows.into_iter().next());
                matches!(answer.as_deref(), Some([Datum::Bool(true)]))
            }
        };
        if !holds {
            return Err(violated(check, table, checked));
        }
    }
    Ok(())
}
