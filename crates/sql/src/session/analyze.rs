//! ANALYZE, alone or as part of VACUUM.
//!
//! It is no schema change: others go on meanwhile, and plans made with older statistics are made anew when they
//! are next used. What it writes is part of the transaction, like what any statement writes; the rows are read
//! as they are committed, or as the transaction sees them if it has written itself.

use super::Session;
use super::api::Notice;
use super::host::guarded;
use super::locks::{LockKey, mode};
use super::run::read_only;
use super::temporary::is_temporary;
use super::view::now_micros;
use crate::catalog::Relation;
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::catalog::store::{Section, record_key};
use crate::ddl::tokens::{Cursor, Name};
use crate::exec::kv_error;
use crate::statistics::auto::all_columns;
use crate::statistics::gather::{Pace, gather};
use crate::statistics::{TableStatistics, record};
use kv_client::TxnOptions;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;
use std::sync::Arc;
use tokio::time::Instant;

/// A table to analyze.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    table: Name,
    /// Some of its columns; all if none.
    columns: Vec<String>,
}

/// Statistics that a transaction has made.
pub(crate) struct Made {
    pub table: Oid,
    pub statistics: Arc<TableStatistics>,
    /// Changed rows that they know of.
    pub changes: u64,
}

/// Reads what follows ANALYZE and its options.
pub(super) fn read_targets(c: &mut Cursor) -> SqlResult<Vec<Target>> {
    let mut targets = Vec::new();
    while !c.is_end() {
        let table = c.name()?;
        let mut columns = Vec::new();
        if c.take_token(&Token::LParen) {
            columns.push(c.ident()?);
            while c.take_token(&Token::Comma) {
                columns.push(c.ident()?);
            }
            c.expect_token(&Token::RParen)?;
        }
        targets.push(Target { table, columns });
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    Ok(targets)
}

impl Session {
    /// Makes statistics of tables; of all the user's own if none is named.
    pub(super) async fn analyze(&mut self, targets: &[Target], deadline: Option<Instant>) -> SqlResult<()> {
        self.ensure_transaction();
        if self.transaction.as_ref().is_some_and(|open| open.read_only) {
            return Err(read_only("ANALYZE"));
        }
        let cancel = self.shared.cancel.clone();
        for (table, columns) in self.analyzed_tables(targets)? {
            guarded(&cancel, deadline, self.analyze_table(table, &columns)).await?;
        }
        Ok(())
    }

    /// The tables meant, with the columns named.
    fn analyzed_tables(&self, targets: &[Target]) -> SqlResult<Vec<(Oid, Vec<String>)>> {
        let view = &self.view;
        let snapshot = view.snapshot();
        if targets.is_empty() {
            let mine = snapshot.tables.values().filter(|table| {
                table.database == self.shared.database && snapshot.owns(view.user, table.owner)
            });
            return Ok(mine.map(|table| (table.oid, Vec::new())).collect());
        }
        let mut found = Vec::new();
        for target in targets {
            let Name { schema, name, .. } = &target.table;
            match view.catalog.find(schema.as_deref(), name, &view.path) {
                Some(Relation::Table(oid) | Relation::MaterializedView(oid)) => {
                    found.push((oid, target.columns.clone()))
                }
                Some(_) => self.skipped(name, "cannot analyze non-tables or special system tables"),
                None => {
                    let schema = schema.as_deref().unwrap_or("pg_catalog");
                    if crate::system::reference(schema, name).is_none() {
                        return Err(self.no_relation(&target.table));
                    }
                }
            }
        }
        Ok(found)
    }

    fn no_relation(&self, name: &Name) -> SqlError {
        let message = format!("relation \"{}\" does not exist", name.written());
        let error = SqlError::new(SqlState::UNDEFINED_TABLE, message);
        match name.position {
            Some(position) => error.at(position),
            None => error,
        }
    }

    fn skipped(&self, table: &str, why: &str) {
        let message = format!("skipping \"{table}\" --- {why}");
        self.shared.notice(Notice::warning(SqlState::WARNING, message));
    }

    async fn analyze_table(&mut self, oid: Oid, columns: &[String]) -> SqlResult<()> {
        self.shared.lock_in_the_end(LockKey::Table(oid), mode::SHARE_UPDATE_EXCLUSIVE).await?;
        self.refresh_view().await?;
        self.follow_catalog(None).await?;
        let snapshot = self.view.snapshot().clone();
        // It may have been dropped while it was waited for.
        let Some(table) = snapshot.table(oid) else { return Ok(()) };
        if !snapshot.owns(self.view.user, table.owner) {
            self.skipped(&table.name, "only table or database owner can analyze it");
            return Ok(());
        }
        let columns = named_columns(table, columns)?;
        let changes = table.statistics.changes();
        let engine = self.shared.engine.clone();
        let cancel = self.shared.cancel.clone();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::internal("no transaction"));
        };
        open.txn.begin_statement();
        let mut random = StdRng::from_os_rng();
        let newer = if open.txn.has_writes() {
            gather(&open.txn, table, &columns, Pace::Full, &cancel.0.flag, &mut random).await?
        } else {
            let txn = engine.kv.begin(TxnOptions::default());
            let newer = gather(&txn, table, &columns, Pace::Full, &cancel.0.flag, &mut random).await;
            txn.rollback().await;
            newer?
        };
        let own = open.statistics.iter().rev().find(|made| made.table == oid);
        let older = own.map(|made| made.statistics.clone()).or_else(|| table.statistics.get());
        let mut statistics = older.map_or_else(TableStatistics::default, |older| (*older).clone());
        statistics.update(newer);
        statistics.version = table.statistics.version().max(statistics.version) + 1;
        statistics.analyzed = Some(now_micros());
        statistics.analyze_count += 1;
        if is_temporary(table) {
            // Nobody else has plans over it, and no record of it is kept.
            table.statistics.set(Arc::new(statistics));
            table.statistics.forget_changes(changes);
            open.used = true;
            return Ok(());
        }
        let key = record_key(Section::Statistics, &[u64::from(oid)]);
        open.txn.put(&key, record::encode(&statistics)?).map_err(kv_error)?;
        open.statistics.push(Made { table: oid, statistics: Arc::new(statistics), changes });
        open.used = true;
        Ok(())
    }
}

/// The columns of a table with these names; all if there are none.
fn named_columns(table: &TableDescriptor, names: &[String]) -> SqlResult<Vec<ColumnId>> {
    if names.is_empty() {
        return Ok(all_columns(table));
    }
    let mut ids: Vec<ColumnId> = Vec::with_capacity(names.len());
    for name in names {
        let column = table.columns.iter().find(|column| column.name == *name && !column.hidden);
        let id = column.map(|column| column.id).ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
        if ids.contains(&id) {
            let message = format!("column \"{name}\" of relation \"{}\" appears more than once", table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        ids.push(id);
    }
    Ok(ids)
}
