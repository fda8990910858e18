//! NOT NULL and CHECK.

use super::violation;
use crate::exec::ExecContext;
use crate::exec::eval::{EvalEnv, domain_violation, eval_bool};
use crate::plan::RowCheck;
use crate::table::TableCodec;
use sql_types::{Datum, SqlResult};

/// Refuses a full row that breaks a NOT NULL or CHECK constraint.
pub(super) fn check_row(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    checks: &[RowCheck],
    row: &[Datum],
    env: &EvalEnv<'_>,
) -> SqlResult<()> {
    let table = codec.table();
    for (position, column) in table.columns.iter().enumerate() {
        if !column.nullable && row[position].is_null() {
            return Err(violation::not_null(cx, table, position, row));
        }
    }
    for check in checks {
        if eval_bool(&check.expr, row, env)? == Some(false) {
            return Err(match &check.domain {
                Some(_) => domain_violation(check),
                None => violation::check(cx, table, &check.name, row),
            });
        }
    }
    Ok(())
}
