//! Materialized views: tables whose rows a stored query gives.

use super::DdlContext;
use super::create_table::{add_rowid, fill};
use super::tokens::Name;
use super::view::{StoredQuery, stored_query};
use crate::bind::{self, ViewRef};
use crate::catalog::Relation;
use crate::catalog::descriptor::{ColumnDescriptor, MaterializedView, TableDescriptor};
use crate::session::locks::mode;
use crate::session::prepared::{self, CachedPlan};
use crate::session::privileges;
use sql_types::{ColumnType, Oid, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// CREATE MATERIALIZED VIEW: the tag.
pub(super) async fn create(
    cx: &mut DdlContext<'_>,
    name: &Name,
    if_not_exists: bool,
    columns: &[String],
    query: &str,
    with_data: bool,
) -> SqlResult<String> {
    const TAG: &str = "CREATE MATERIALIZED VIEW";
    let Some(schema) = cx.new_relation(name, if_not_exists)? else { return Ok(TAG.into()) };
    let StoredQuery { columns: described, text, search_path, depends_on } =
        stored_query(cx, query, columns, TAG)?;
    if depends_on.iter().any(|oid| cx.is_temporary(*oid)) {
        let message = "materialized views must not use temporary tables or views";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let mut table = cx.blank_table(&name.name, schema).await?;
    for (called, ty) in described {
        table.columns.push(ColumnDescriptor::plain(table.next_column, called, ty));
        table.next_column += 1;
    }
    add_rowid(&mut table);
    table.view = Some(Arc::new(MaterializedView {
        query: text,
        renamed: !columns.is_empty(),
        search_path,
        depends_on,
        populated: with_data,
    }));
    let table = cx.put_table(table)?;
    if !with_data {
        return Ok(TAG.into());
    }
    let count = cx.populate(&table).await?;
    Ok(format!("SELECT {count}"))
}

/// REFRESH MATERIALIZED VIEW
pub(super) async fn refresh(
    cx: &mut DdlContext<'_>,
    name: &Name,
    concurrently: bool,
    with_data: bool,
) -> SqlResult<()> {
    if concurrently && !with_data {
        let message = "REFRESH options CONCURRENTLY and WITH NO DATA cannot be used together";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let table = match cx.find(name) {
        Some(Relation::MaterializedView(oid)) => cx.table_by_oid(oid)?,
        Some(_) => {
            let message = format!("\"{}\" is not a materialized view", name.name);
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        None => return Err(cx.undefined("relation", name)),
    };
    cx.check_owner("materialized view", &table.name, table.owner)?;
    let Some(view) = &table.view else { return Err(SqlError::internal("no materialized view")) };
    if concurrently {
        check_concurrent(cx, &table, view)?;
    }
    // Others may read what there is while it is computed.
    cx.lock(table.oid, if concurrently { mode::EXCLUSIVE } else { mode::ACCESS_EXCLUSIVE }).await?;
    let mut changed = (*table).clone();
    changed.storage = u64::from(cx.new_oid().await?);
    changed.view = Some(Arc::new(MaterializedView { populated: with_data, ..(**view).clone() }));
    changed.statistics = Default::default();
    cx.forget_statistics(table.oid)?;
    cx.garbage(table.storage, 0)?;
    let changed = cx.put_table(changed)?;
    if with_data {
        cx.populate(&changed).await?;
    }
    cx.lock(table.oid, mode::ACCESS_EXCLUSIVE).await
}

/// Fails unless rows could be told apart and there are any.
fn check_concurrent(cx: &DdlContext<'_>, table: &TableDescriptor, view: &MaterializedView) -> SqlResult<()> {
    if !view.populated {
        let message = "CONCURRENTLY cannot be used when the materialized view is not populated";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    if !table.indexes.iter().any(|index| index.oid != 0 && index.is_key()) {
        let name = cx.qualified(table);
        let message = format!("cannot refresh materialized view \"{name}\" concurrently");
        return Err(SqlError::new(SqlState::OBJECT_STATE, message).with_hint(
            "Create a unique index with no WHERE clause on one or more columns of the materialized view.",
        ));
    }
    Ok(())
}

impl DdlContext<'_> {
    /// Writes the rows that the query of a new materialized view gives; how many.
    async fn populate(&mut self, table: &Arc<TableDescriptor>) -> SqlResult<u64> {
        let plan = self.view_plan(table)?;
        plan.check_populated()?;
        if !self.catalog.is_superuser(table.owner) {
            privileges::check(&self.catalog, table.owner, &plan.needed)?;
        }
        for (oid, mode) in &plan.locks {
            self.lock(*oid, *mode).await?;
        }
        fill(self, table, &plan.plan).await
    }

    /// The plan of the query of a materialized view.
    fn view_plan(&self, table: &TableDescriptor) -> SqlResult<CachedPlan> {
        let Some(stored) = &table.view else { return Err(SqlError::internal("no materialized view")) };
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        let shown = table.columns.iter().filter(|column| !column.hidden);
        let columns: Vec<(String, ColumnType)> =
            shown.map(|column| (column.name.clone(), column.ty)).collect();
        let view_ref = ViewRef {
            oid: table.oid,
            owner: table.owner,
            columns: columns.into(),
            query: stored.query.as_str().into(),
            search_path: stored.search_path.clone().into(),
        };
        let bound = bind::bind_view_query(&view_ref, &view.bind_context(&eval, &[]))?;
        Ok(prepared::finish(&view, bound, stored.query.len()))
    }

    /// Drops a materialized view and what depends on it.
    pub(super) async fn drop_materialized(
        &mut self,
        oid: Oid,
        cascade: bool,
        together: &[Oid],
    ) -> SqlResult<()> {
        let Some(table) = self.catalog.table(oid).cloned() else { return Ok(()) };
        self.check_owner("materialized view", &table.name, table.owner)?;
        self.lock(oid, mode::ACCESS_EXCLUSIVE).await?;
        let what = format!("materialized view {}", table.name);
        super::drop_object::release_readers(self, oid, cascade, &what, together)?;
        self.garbage(table.storage, 0)?;
        self.remove_table(oid)
    }
}
