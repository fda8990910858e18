//! Generated columns: their expressions, and what depends on the columns these read.

use super::DdlContext;
use super::constraint::column_position;
use super::index::stored;
use super::statement::{ColumnDef, ForeignKey};
use crate::bind;
use crate::catalog::descriptor::{ColumnDescriptor, ColumnId, TableDescriptor};
use crate::table::{bind_generated, generated_from};
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Refuses a column that is to have its values from two places.
pub(super) fn check_one_source(table: &str, column: &ColumnDef) -> SqlResult<()> {
    let other = match () {
        () if column.generated.is_none() => return Ok(()),
        () if column.identity.is_some() => "both identity and generation expression",
        () if column.default.is_some() || column.serial.is_some() => "both default and generation expression",
        () => return Ok(()),
    };
    let message = format!("{other} specified for column \"{}\" of table \"{table}\"", column.name);
    Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
}

/// Refuses what would set a generated column: only its expression does.
pub(super) fn check_foreign_key(
    table: &TableDescriptor,
    columns: &[usize],
    key: &ForeignKey,
) -> SqlResult<()> {
    if columns.iter().all(|at| table.columns[*at].generated.is_none()) {
        return Ok(());
    }
    let clause = match (key.on_delete, key.on_update) {
        (_, 'n' | 'd' | 'c') => "ON UPDATE",
        ('n' | 'd', _) => "ON DELETE",
        _ => return Ok(()),
    };
    let message = format!("invalid {clause} action for foreign key constraint containing generated column");
    Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
}

/// The generated columns of a table that read a column.
pub(super) fn readers(table: &Arc<TableDescriptor>, id: ColumnId) -> Vec<&ColumnDescriptor> {
    table.columns.iter().filter(|column| generated_from(table, column).contains(&id)).collect()
}

impl DdlContext<'_> {
    /// Checks the expressions of columns as they were written, and makes them ones that mean the same without the
    /// session. All columns of the table must be there.
    pub(super) fn settle_generated(
        &self,
        table: &mut TableDescriptor,
        columns: &[ColumnId],
    ) -> SqlResult<()> {
        if table.columns.iter().all(|column| column.generated.is_none()) {
            return Ok(());
        }
        let whole = Arc::new(table.clone());
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        let context = view.bind_context(&eval, &[]);
        for column in table.columns.iter_mut().filter(|column| columns.contains(&column.id)) {
            let Some(written) = column.generated.take() else { continue };
            let bound = bind::bind_generation(&written, &whole, column, &context)?;
            let again = |text: &str| bind_generated(text, &whole, column);
            column.generated = Some(stored(&written, &bound, &whole, "a column generated from", again)?);
        }
        Ok(())
    }

    /// DROP EXPRESSION: the column keeps its values and becomes like others.
    pub(super) fn drop_expression(
        &mut self,
        table: &TableDescriptor,
        name: &str,
        if_exists: bool,
    ) -> SqlResult<()> {
        let at = column_position(table, name)?;
        let mut changed = table.clone();
        if changed.columns[at].generated.take().is_none() {
            let message =
                format!("column \"{name}\" of relation \"{}\" is not a stored generated column", table.name);
            if !if_exists {
                return Err(SqlError::new(SqlState::OBJECT_STATE, message));
            }
            self.notice(format!("{message}, skipping"));
            return Ok(());
        }
        self.put_table(changed).map(|_| ())
    }
}
