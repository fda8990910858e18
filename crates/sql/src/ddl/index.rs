//! CREATE INDEX.

use super::DdlContext;
use super::constraint::key_columns;
use super::statement::CreateIndex;
use crate::catalog::Relation;
use crate::catalog::descriptor::IndexDescriptor;
use crate::session::locks::mode;
use sql_types::{SqlError, SqlResult, SqlState};

/// CREATE INDEX
pub(super) async fn create(cx: &mut DdlContext<'_>, index: &CreateIndex) -> SqlResult<()> {
    let table = cx.own_table(&index.table)?;
    cx.lock(table.oid, mode::SHARE).await?;
    let columns = key_columns(&table, &index.columns)?;
    let name = match &index.name {
        Some(name) => {
            if name
                .schema
                .as_deref()
                .is_some_and(|schema| cx.catalog.schema_name(table.database, table.schema) != Some(schema))
            {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "an index lies in the schema of its table",
                ));
            }
            if index.if_not_exists && cx.catalog.relation(table.database, table.schema, &name.name).is_some()
            {
                cx.notice(format!("relation \"{}\" already exists, skipping", name.name));
                return Ok(());
            }
            cx.check_free(table.schema, &name.name)?;
            name.name.clone()
        }
        None => {
            let second: Vec<&str> = index.columns.iter().map(|(name, _)| name.as_str()).collect();
            cx.relation_name(table.schema, (&table.name, &second.join("_"), "idx"), &[])
        }
    };
    let oid = cx.new_oid().await?;
    let mut changed = (*table).clone();
    changed.indexes.push(IndexDescriptor {
        id: oid,
        oid,
        name,
        unique: index.unique,
        constraint: false,
        columns,
        ..IndexDescriptor::default()
    });
    changed.next_index = changed.next_index.max(oid + 1);
    cx.backfill(&changed, oid).await?;
    cx.put_table(changed)?;
    Ok(())
}

/// Drops an index that no constraint made.
pub(super) async fn drop(cx: &mut DdlContext<'_>, relation: Relation) -> SqlResult<()> {
    let Relation::Index(oid, table, id) = relation else { return Err(SqlError::internal("not an index")) };
    let table = cx.table_by_oid(table)?;
    cx.lock(table.oid, mode::ACCESS_EXCLUSIVE).await?;
    let mut changed = (*table).clone();
    if let Some(index) = table.indexes.iter().find(|index| index.oid == oid)
        && index.constraint
    {
        let message = format!(
            "cannot drop index {} because constraint {} on table {} requires it",
            index.name, index.name, table.name
        );
        let hint = format!("You can drop constraint {} on table {} instead.", index.name, table.name);
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_hint(hint));
    }
    changed.indexes.retain(|index| index.oid != oid);
    cx.garbage(table.storage, u64::from(id))?;
    cx.put_table(changed)?;
    Ok(())
}
