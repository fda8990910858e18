//! Whether the rows of a table satisfy its constraints: for new ones, and for VALIDATE CONSTRAINT.
//!
//! VALIDATE CONSTRAINT lets others write: everybody keeps the constraint since it was added, for that excluded
//! everybody else. So a snapshot of any time since then shows whether the rows from before satisfy it, and nothing that is
//! written meanwhile matters. A transaction that has done something else before reads by itself, for it may have
//! written such rows; there, at SERIALIZABLE, who writes the table meanwhile makes the commit fail.

use super::DdlContext;
use super::alter_table::no_constraint;
use super::constraint::violation_query;
use super::tokens::quote_ident;
use crate::bind;
use crate::catalog::descriptor::{ForeignKeyDescriptor, TableDescriptor, Validity};
use crate::plan::Expr;
use crate::session::locks::mode;
use kv_client::TxnOptions;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Marks the constraints that `changed` has and `table` has not as NOT VALID.
pub(super) fn mark_unvalidated(changed: &mut TableDescriptor, table: &TableDescriptor) {
    for check in changed.checks.iter_mut().skip(table.checks.len()) {
        check.validity = Validity::NotValid;
    }
    for key in changed.foreign_keys.iter_mut().skip(table.foreign_keys.len()) {
        key.validity = Validity::NotValid;
    }
}

impl DdlContext<'_> {
    /// VALIDATE CONSTRAINT
    pub(super) async fn validate_constraint(
        &mut self,
        table: &Arc<TableDescriptor>,
        name: &str,
    ) -> SqlResult<()> {
        let mut one = (**table).clone();
        one.checks.retain(|check| check.name == name);
        one.foreign_keys.retain(|key| key.name == name);
        let validities = one.checks.iter().map(|check| check.validity);
        let validities = validities.chain(one.foreign_keys.iter().map(|key| key.validity));
        let Some(validity) = validities.max_by_key(|validity| *validity != Validity::Valid) else {
            return Err(no_constraint(table, name));
        };
        if validity == Validity::Valid {
            return Ok(());
        }
        for key in one.foreign_keys.iter().filter(|key| key.referenced_table != table.oid) {
            self.lock(key.referenced_table, mode::ROW_SHARE).await?;
        }
        let none = TableDescriptor { checks: Vec::new(), foreign_keys: Vec::new(), ..one.clone() };
        let none = Arc::new(none);
        if self.open.used {
            self.validate(&none, &one).await?;
        } else {
            let apart = TxnOptions { read_only: true, ..TxnOptions::default() };
            let apart = self.engine().kv.begin(apart);
            let own = std::mem::replace(&mut self.open.txn, apart);
            let result = self.validate(&none, &one).await;
            self.open.txn = own;
            result?;
        }
        let mut changed = (**table).clone();
        for check in changed.checks.iter_mut().filter(|check| check.name == name) {
            check.validity = Validity::Valid;
        }
        for key in changed.foreign_keys.iter_mut().filter(|key| key.name == name) {
            key.validity = Validity::Valid;
        }
        self.put_table(changed).map(drop)
    }

    /// Checks that the rows of a table satisfy the constraints that `changed` has and `table` has not.
    pub(super) async fn validate(
        &mut self,
        table: &Arc<TableDescriptor>,
        changed: &TableDescriptor,
    ) -> SqlResult<()> {
        let name = self.qualified(table);
        for check in changed.checks.iter().skip(table.checks.len()) {
            if self.finds_row(&violation_query(&format!("NOT ({})", check.expr), &name)).await? {
                let message = format!(
                    "check constraint \"{}\" of relation \"{}\" is violated by some row",
                    check.name, table.name
                );
                return Err(SqlError::new(SqlState::CHECK_VIOLATION, message));
            }
        }
        for key in changed.foreign_keys.iter().skip(table.foreign_keys.len()) {
            self.validate_foreign_key(table, key).await?;
        }
        Ok(())
    }

    async fn validate_foreign_key(
        &mut self,
        table: &TableDescriptor,
        key: &ForeignKeyDescriptor,
    ) -> SqlResult<()> {
        let referenced = self.table_by_oid(key.referenced_table)?;
        let column = |table: &TableDescriptor, id: &u32| {
            table.column(*id).map(|column| quote_ident(&column.name)).unwrap_or_default()
        };
        let pairs = key.columns.iter().zip(&key.referenced_columns);
        let equal: Vec<String> = pairs
            .map(|(from, to)| format!("pk_.{} = fk_.{}", column(&referenced, to), column(table, from)))
            .collect();
        let present: Vec<String> =
            key.columns.iter().map(|id| format!("fk_.{} IS NOT NULL", column(table, id))).collect();
        let query = format!(
            "SELECT 1 FROM {} AS fk_ WHERE {} AND NOT EXISTS (SELECT 1 FROM {} AS pk_ WHERE {}) LIMIT 1",
            self.qualified(table),
            present.join(" AND "),
            self.qualified(&referenced),
            equal.join(" AND ")
        );
        if !self.finds_row(&query).await? {
            return Ok(());
        }
        let message = format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            table.name, key.name
        );
        let detail = format!("A key is not present in table \"{}\".", referenced.name);
        Err(SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail))
    }

    /// Whether a valid CHECK constraint says that a column, given by its position, has no NULL, so that nobody needs to look.
    pub(super) fn is_checked_not_null(&self, table: &Arc<TableDescriptor>, at: usize) -> SqlResult<bool> {
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        for check in table.checks.iter().filter(|check| check.validity == Validity::Valid) {
            let bound = bind::bind_check(&check.expr, table, &view.bind_context(&eval, &[]))?;
            // A part that is NULL would pass, but this one never is.
            let says = |part: Expr| match part {
                Expr::IsNull(value, true) => matches!(*value, Expr::Column(column, _) if column == at),
                Expr::Not(inner) => match *inner {
                    Expr::IsNull(value, false) => matches!(*value, Expr::Column(column, _) if column == at),
                    _ => false,
                },
                _ => false,
            };
            if bound.into_conjuncts().into_iter().any(says) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
