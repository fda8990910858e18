//! ANALYZE: counts rows.

use super::DdlContext;
use super::tokens::Name;
use crate::catalog::Relation;
use crate::session::locks::mode;
use sql_types::{Oid, SqlResult};

/// ANALYZE; of all the user's tables if none is named.
pub(super) async fn analyze(cx: &mut DdlContext<'_>, names: &[Name]) -> SqlResult<()> {
    let mut tables: Vec<Oid> = Vec::new();
    if names.is_empty() {
        let database = cx.database();
        let all = cx.catalog.tables.values().filter(|table| table.database == database);
        tables.extend(all.filter(|table| cx.catalog.owns(cx.user(), table.owner)).map(|table| table.oid));
    }
    for name in names {
        match cx.find(name) {
            Some(Relation::Table(oid)) => tables.push(oid),
            Some(_) => {}
            None if crate::system::reference("pg_catalog", &name.name).is_some() => {}
            None => return Err(cx.undefined("relation", name)),
        }
    }
    for oid in tables {
        cx.lock(oid, mode::ACCESS_SHARE).await?;
        let table = cx.table_by_oid(oid)?;
        cx.check_owner("table", &table.name, table.owner)?;
        let rows = cx.count_committed(&table).await? as f64;
        if table.row_count != Some(rows) {
            let mut changed = (*table).clone();
            changed.row_count = Some(rows);
            cx.put_table(changed)?;
        }
    }
    Ok(())
}
