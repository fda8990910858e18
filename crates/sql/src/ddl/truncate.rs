//! TRUNCATE: new storage numbers, the old contents cleared after the commit.

use super::DdlContext;
use super::statement::SequenceOptions;
use super::tokens::Name;
use crate::session::locks::mode;
use crate::session::privileges::denied;
use crate::statistics::StatisticsCell;
use sql_types::{Oid, SqlError, SqlResult, SqlState};

/// TRUNCATE
pub(super) async fn truncate(
    cx: &mut DdlContext<'_>,
    names: &[Name],
    restart: bool,
    cascade: bool,
) -> SqlResult<()> {
    let mut tables: Vec<Oid> = Vec::new();
    for name in names {
        let table = cx.table(name)?;
        if !cx.catalog.has_privilege(cx.user(), table.owner, table.oid, 'D') {
            return Err(denied("table", &table.name));
        }
        if !tables.contains(&table.oid) {
            tables.push(table.oid);
        }
    }
    let mut next = 0;
    while let Some(oid) = tables.get(next).copied() {
        next += 1;
        for (referring, _) in cx.catalog.referencing(oid) {
            if tables.contains(&referring.oid) {
                continue;
            }
            if !cascade {
                let referenced = cx.table_by_oid(oid)?;
                let detail = format!("Table \"{}\" references \"{}\".", referring.name, referenced.name);
                let hint = format!(
                    "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                    referring.name
                );
                let message = "cannot truncate a table referenced in a foreign key constraint";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(detail)
                    .with_hint(hint));
            }
            cx.notice(format!("truncate cascades to table \"{}\"", referring.name));
            tables.push(referring.oid);
        }
    }
    for oid in tables {
        cx.lock(oid, mode::ACCESS_EXCLUSIVE).await?;
        let table = cx.table_by_oid(oid)?;
        cx.check_unused(&table, "TRUNCATE")?;
        let mut changed = (*table).clone();
        changed.storage = u64::from(cx.new_oid().await?);
        for column in &mut changed.columns {
            column.added_value = None;
        }
        changed.statistics = StatisticsCell::default();
        cx.forget_statistics(oid)?;
        cx.garbage(table.storage, 0)?;
        cx.put_table(changed)?;
        if restart {
            for sequence in table.columns.iter().filter_map(|column| column.sequence) {
                let options = SequenceOptions { restart: Some(None), ..SequenceOptions::default() };
                cx.alter_sequence(sequence, &options).await?;
            }
        }
    }
    Ok(())
}
