//! ALTER TABLE: columns.

use super::DdlContext;
use super::alter_table::{contains_nulls, forget_added_values};
use super::constraint::{column_position, violation_query};
use super::drop_object;
use super::generated;
use super::statement::{AlterAction, ColumnDef, Constraint, ConstraintKind};
use super::tokens::quote_ident;
use crate::bind;
use crate::catalog::descriptor::{ColumnDescriptor, PRIMARY_INDEX, TableDescriptor};
use crate::exec::eval::{EvalEnv, eval};
use crate::plan::Expr;
use crate::session::sequences;
use crate::table::TableCodec;
use sql_types::cast::{CastKind, cast, cast_kind};
use sql_types::functions::Volatility;
use sql_types::{Datum, SqlError, SqlResult, SqlState};
use std::sync::Arc;

impl DdlContext<'_> {
    /// ADD COLUMN
    pub(super) async fn add_column_to(
        &mut self,
        table: &Arc<TableDescriptor>,
        column: &ColumnDef,
        constraints: &[Constraint],
        if_not_exists: bool,
    ) -> SqlResult<()> {
        if if_not_exists && table.columns.iter().any(|known| known.name == column.name) {
            self.notice(format!(
                "column \"{}\" of relation \"{}\" already exists, skipping",
                column.name, table.name
            ));
            return Ok(());
        }
        let mut changed = (**table).clone();
        self.add_column(&mut changed, column).await?;
        let id = changed.next_column - 1;
        self.settle_generated(&mut changed, &[id])?;
        let Some(added) = changed.columns.last().cloned() else { return Ok(()) };
        let primary = constraints.iter().any(|c| matches!(c.kind, ConstraintKind::Primary(_)));
        if self.has_rows(table).await? {
            match self.fixed_default(&added)? {
                Some(Datum::Null) => {
                    if !added.nullable || primary {
                        return Err(contains_nulls(&table.name, &added.name));
                    }
                }
                Some(value) => {
                    let text = self.literal(&value, &added);
                    if let Some(last) = changed.columns.last_mut() {
                        last.added_value = Some(text);
                    }
                }
                None => {
                    self.fill_column(table, &mut changed, &added).await?;
                }
            }
        }
        let table = self.put_table(changed)?;
        if added.domain.is_some() {
            self.check_domain_rows(table.oid, &added.name, false).await?;
        }
        for constraint in constraints {
            self.alter_constraint(table.oid, constraint).await?;
        }
        Ok(())
    }

    async fn alter_constraint(&mut self, table: sql_types::Oid, constraint: &Constraint) -> SqlResult<()> {
        let action = AlterAction::AddConstraint(constraint.clone());
        Box::pin(self.alter_again(table, &action)).await
    }

    /// The value all existing rows get for a new column; `None` if each gets its own.
    fn fixed_default(&self, column: &ColumnDescriptor) -> SqlResult<Option<Datum>> {
        if column.generated.is_some() {
            return Ok(None);
        }
        let default = column.default.clone().or_else(|| self.domain_default(column.domain));
        let Some(text) = &default else { return Ok(Some(Datum::Null)) };
        if column.sequence.is_some() || text.to_ascii_lowercase().contains("nextval") {
            return Ok(None);
        }
        let view = self.working_view()?;
        let session = view.eval(self.times);
        let bound = bind::bind_default(text, column, &view.bind_context(&session, &[]))?;
        if bound.volatility() == Volatility::Volatile {
            return Ok(None);
        }
        eval(&bound, &[], &EvalEnv { eval: &session, params: &[], outer: None }).map(Some)
    }

    /// A value as [`ColumnDescriptor::added_value`] holds it.
    fn literal(&self, value: &Datum, column: &ColumnDescriptor) -> String {
        let mut text = String::new();
        sql_types::text::format(value, column.ty.ty, &sql_types::context::TextContext::plain(), &mut text);
        format!("'{}'", text.replace('\'', "''"))
    }

    /// Writes a table anew, each row with a value of its own in the last column.
    async fn fill_column(
        &mut self,
        table: &Arc<TableDescriptor>,
        changed: &mut TableDescriptor,
        added: &ColumnDescriptor,
    ) -> SqlResult<()> {
        changed.storage = u64::from(self.new_oid().await?);
        forget_added_values(changed);
        let view = self.working_view()?;
        let session = view.eval(self.times);
        if let Some(sequence) = added.sequence {
            // Values are drawn before the rows are read: drawing waits, mapping a row does not.
            let count = self.count_rows(table).await?;
            let mut values = Vec::new();
            for _ in 0..count {
                values.push(sequences::next_value(&view, sequence).await?);
            }
            let mut values = values.into_iter();
            let (from, to) = (sql_types::Type::INT8, added.ty);
            return self
                .rewrite(table, changed, &mut |mut row| {
                    let value = Datum::Int8(values.next().unwrap_or_default());
                    row.push(cast(&value, from, to, false, &sql_types::context::EvalContext::plain())?);
                    Ok(row)
                })
                .await;
        }
        if added.generated.is_some() {
            let codec = TableCodec::new(Arc::new(changed.clone()))?;
            return self
                .rewrite(table, changed, &mut |mut row| {
                    row.push(Datum::Null);
                    codec.generate(&mut row)?;
                    match row.last() {
                        Some(Datum::Null) if !added.nullable => Err(contains_nulls(&table.name, &added.name)),
                        _ => Ok(row),
                    }
                })
                .await;
        }
        let default = added.default.clone().or_else(|| self.domain_default(added.domain));
        let text = default.as_deref().unwrap_or("NULL");
        let bound: Expr = bind::bind_default(text, added, &view.bind_context(&session, &[]))?;
        self.rewrite(table, changed, &mut |mut row| {
            row.push(eval(&bound, &[], &EvalEnv { eval: &session, params: &[], outer: None })?);
            Ok(row)
        })
        .await
    }

    /// DROP COLUMN
    pub(super) async fn drop_column(
        &mut self,
        table: &Arc<TableDescriptor>,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> SqlResult<()> {
        let at = match column_position(table, name) {
            Ok(at) => at,
            Err(_) if if_exists => {
                self.notice(format!(
                    "column \"{name}\" of relation \"{}\" does not exist, skipping",
                    table.name
                ));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let id = table.columns[at].id;
        let what = format!("column {name} of table {}", table.name);
        drop_object::release_column_readers(self, table, name, cascade, &what)?;
        self.release_column_policies(table, at, cascade, &what)?;
        self.release_column_triggers(table, name, cascade, &what)?;
        let readers: Vec<String> =
            generated::readers(table, id).iter().map(|column| column.name.clone()).collect();
        for reader in &readers {
            let reading = format!("column {reader} of table {}", table.name);
            if !cascade {
                let detail = format!("{reading} depends on {what}");
                return Err(drop_object::dependents(&what, detail));
            }
            self.notice(format!("drop cascades to {reading}"));
            let table = self.table_by_oid(table.oid)?;
            Box::pin(self.drop_column(&table, reader, true, true)).await?;
        }
        let table = &self.table_by_oid(table.oid)?;
        let at = column_position(table, name)?;
        let codec = TableCodec::new(table.clone())?;
        let indexes: Vec<_> = table
            .indexes
            .iter()
            .filter(|index| {
                index.columns.iter().any(|(column, _)| *column == id)
                    || index.included.contains(&id)
                    || codec.index(index.id).is_ok_and(|layout| layout.depends_on(&[at]))
            })
            .cloned()
            .collect();
        for index in &indexes {
            drop_object::release_index(self, table, index, cascade)?;
        }
        let mut table = self.table_by_oid(table.oid)?;
        if indexes.iter().any(|index| index.id == PRIMARY_INDEX) {
            self.drop_primary_key(&table).await?;
            table = self.table_by_oid(table.oid)?;
        }
        let mut changed = (*table).clone();
        for index in indexes.iter().filter(|index| index.id != PRIMARY_INDEX) {
            changed.indexes.retain(|known| known.oid != index.oid);
            self.garbage(table.storage, u64::from(index.id))?;
        }
        changed.foreign_keys.retain(|key| !key.columns.contains(&id));
        let view = self.working_view()?;
        let session = view.eval(self.times);
        let context = view.bind_context(&session, &[]);
        let sequence =
            changed.columns.iter().find(|column| column.id == id).and_then(|column| column.sequence);
        changed.columns.retain(|column| column.id != id);
        // A check that can no longer be bound was about the column.
        let without = Arc::new(TableDescriptor { checks: Vec::new(), ..changed.clone() });
        changed.checks.retain(|check| bind::bind_check(&check.expr, &without, &context).is_ok());
        self.put_table(changed)?;
        match sequence {
            Some(oid) if self.catalog.sequences.contains_key(&oid) => self.remove_sequence(oid),
            _ => Ok(()),
        }
    }

    /// The other changes of a column.
    pub(super) async fn alter_column(
        &mut self,
        table: &Arc<TableDescriptor>,
        action: &AlterAction,
    ) -> SqlResult<()> {
        let mut changed = (**table).clone();
        match action {
            AlterAction::SetDefault(name, text) => {
                let at = column_position(table, name)?;
                if table.columns[at].identity.is_some() {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is an identity column", table.name);
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                if table.columns[at].generated.is_some() {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is a generated column", table.name);
                    let error = SqlError::new(SqlState::SYNTAX_ERROR, message);
                    return Err(match text {
                        Some(_) => error,
                        None => {
                            error.with_hint("Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead.")
                        }
                    });
                }
                changed.columns[at].default = match text {
                    Some(text) => self.default_text(text, &table.columns[at])?,
                    None => None,
                };
            }
            AlterAction::SetNotNull(name, true) => {
                let at = column_position(table, name)?;
                let condition = format!("{} IS NULL", quote_ident(name));
                let query = violation_query(&condition, &self.qualified(table));
                let known = !table.columns[at].nullable || self.is_checked_not_null(table, at)?;
                if !known && self.finds_row(&query).await? {
                    return Err(contains_nulls(&table.name, name));
                }
                changed.columns[at].nullable = false;
            }
            AlterAction::SetNotNull(name, false) => {
                let at = column_position(table, name)?;
                let id = table.columns[at].id;
                if table.primary().columns.iter().any(|(column, _)| *column == id) {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
                }
                changed.columns[at].nullable = true;
            }
            AlterAction::SetType { column, ty, using } => {
                return self.set_type(table, column, ty, using.as_deref()).await;
            }
            AlterAction::AddIdentity(name, kind, options) => {
                let at = column_position(table, name)?;
                if table.columns[at].nullable {
                    let message = format!(
                        "column \"{name}\" of relation \"{}\" must be declared NOT NULL before identity can be added",
                        table.name
                    );
                    return Err(SqlError::new(SqlState::OBJECT_STATE, message));
                }
                if table.columns[at].default.is_some() || table.columns[at].generated.is_some() {
                    let message = format!(
                        "column \"{name}\" of relation \"{}\" already has a default value",
                        table.name
                    );
                    return Err(SqlError::new(SqlState::OBJECT_STATE, message));
                }
                let (oid, default) = self.owned_sequence(&changed, &table.columns[at], options).await?;
                let column = &mut changed.columns[at];
                (column.identity, column.sequence, column.default) = (Some(*kind), Some(oid), Some(default));
            }
            AlterAction::SetIdentity(name, kind, options) => {
                let at = column_position(table, name)?;
                let Some(sequence) =
                    table.columns[at].sequence.filter(|_| table.columns[at].identity.is_some())
                else {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name);
                    return Err(SqlError::new(SqlState::OBJECT_STATE, message));
                };
                if let Some(kind) = kind {
                    changed.columns[at].identity = Some(*kind);
                }
                self.alter_sequence(sequence, options).await?;
            }
            AlterAction::DropIdentity(name, if_exists) => {
                let at = column_position(table, name)?;
                let Some(sequence) =
                    table.columns[at].sequence.filter(|_| table.columns[at].identity.is_some())
                else {
                    if *if_exists {
                        return Ok(());
                    }
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name);
                    return Err(SqlError::new(SqlState::OBJECT_STATE, message));
                };
                let column = &mut changed.columns[at];
                (column.identity, column.sequence, column.default) = (None, None, None);
                self.remove_sequence(sequence)?;
            }
            AlterAction::DropExpression(name, if_exists) => {
                return self.drop_expression(table, name, *if_exists);
            }
            _ => return Err(SqlError::internal("not a change of a column")),
        }
        self.put_table(changed).map(|_| ())
    }

    async fn set_type(
        &mut self,
        table: &Arc<TableDescriptor>,
        name: &str,
        ty: &sqlparser::ast::DataType,
        using: Option<&str>,
    ) -> SqlResult<()> {
        let at = column_position(table, name)?;
        let (old, (new, domain)) = (table.columns[at].ty, self.declared_type(ty)?);
        if old == new && using.is_none() && table.columns[at].domain == domain {
            return Ok(());
        }
        self.refuse_column_readers(table, name, "change the type of a column of")?;
        let id = table.columns[at].id;
        if let Some(reader) = generated::readers(table, id).first() {
            let detail = format!("Column \"{name}\" is used by generated column \"{}\".", reader.name);
            let message = "cannot alter type of a column used by a generated column";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail));
        }
        if table.columns[at].generated.is_some() && using.is_some() {
            let message = "cannot specify USING when altering type of generated column";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_DEFINITION, message)
                .with_detail(format!("Column \"{name}\" is a generated column.")));
        }
        let referring = self.catalog.referencing(table.oid);
        let mut keys = referring.iter().filter_map(|(other, position)| other.foreign_keys.get(*position));
        let referred = keys.any(|key| key.referenced_columns.contains(&id))
            || table.foreign_keys.iter().any(|key| key.columns.contains(&id));
        if referred && old.ty != new.ty {
            return Err(SqlError::unsupported("to change the type of a column that a foreign key uses"));
        }
        if using.is_none()
            && old.ty != new.ty
            && !matches!(cast_kind(old.ty, new.ty), Some(CastKind::Implicit | CastKind::Assignment))
        {
            let message = format!("column \"{name}\" cannot be cast automatically to type {}", new.ty);
            let hint = format!("You might need to specify \"USING {name}::{}\".", new.ty);
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint));
        }
        let view = self.working_view()?;
        let session = view.eval(self.times);
        let context = view.bind_context(&session, &[]);
        self.refuse_retyping(table, at)?;
        self.refuse_retyping_for_triggers(table, name)?;
        let mut changed = (**table).clone();
        changed.storage = u64::from(self.new_oid().await?);
        changed.columns[at].ty = new;
        changed.columns[at].domain = domain;
        forget_added_values(&mut changed);
        super::index::retype_expressions(&mut changed)?;
        let default = match &table.columns[at].default {
            Some(text) if table.columns[at].sequence.is_none() => {
                self.default_text(text, &changed.columns[at]).map_err(|_| {
                    let message = format!(
                        "default for column \"{name}\" cannot be cast automatically to type {}",
                        new.ty
                    );
                    SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                })?
            }
            other => other.clone(),
        };
        changed.columns[at].default = default;
        self.settle_generated(&mut changed, &[id])?;
        let using = match using {
            None => None,
            Some(text) => {
                let plain = TableDescriptor { checks: Vec::new(), ..(**table).clone() };
                Some(bind::bind_row_expr(text, &Arc::new(plain), &context)?)
            }
        };
        let kinds = changed
            .checks
            .iter()
            .map(|check| bind::bind_check(&check.expr, &Arc::new(changed.clone()), &context));
        kinds.collect::<SqlResult<Vec<_>>>()?;
        self.rewrite(table, &changed, &mut |mut row| {
            let (value, from) = match &using {
                Some(expr) => {
                    let env = EvalEnv { eval: &session, params: &[], outer: None };
                    (eval(expr, &row, &env)?, expr.ty())
                }
                // Computed anew when the row is written.
                None if changed.columns[at].generated.is_some() => (Datum::Null, old.ty),
                None => (std::mem::take(&mut row[at]), old.ty),
            };
            row[at] = cast(&value, from, new, false, &session)?;
            Ok(row)
        })
        .await?;
        let table = self.put_table(changed)?;
        if domain.is_some() { self.check_domain_rows(table.oid, name, false).await } else { Ok(()) }
    }
}
