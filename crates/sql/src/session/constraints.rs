//! SET CONSTRAINTS, and the checks that a transaction has put off.

use super::Session;
use super::api::Notice;
use super::run::Environment;
use super::view::{Times, now_micros};
use crate::catalog::descriptor::Timing;
use crate::ddl::tokens::Name;
use crate::dml::deferred;
use sql_types::{Oid, SqlError, SqlResult, SqlState};

impl Session {
    /// SET CONSTRAINTS, of all (`None`) or some.
    pub(super) async fn set_constraints(&mut self, names: Option<&[Name]>, deferred: bool) -> SqlResult<()> {
        if !self.in_block() {
            self.shared.notice(Notice::warning(
                SqlState::NO_ACTIVE_TRANSACTION,
                "SET CONSTRAINTS can only be used in transaction blocks",
            ));
        }
        let constraints = match names {
            None => None,
            Some(names) => {
                let mut found = Vec::new();
                for name in names {
                    found.extend(self.constraints_named(name, deferred)?);
                }
                Some(found)
            }
        };
        self.ensure_transaction();
        let Some(open) = &self.transaction else { return Ok(()) };
        open.deferred.set(constraints.as_deref(), deferred);
        if deferred {
            return Ok(());
        }
        // Going back to a savepoint makes what is checked now open again.
        let forget = open.savepoints.is_empty();
        self.check_deferred(constraints.as_deref(), forget).await
    }

    /// The deferrable constraints of a name: those of the first schema that has one.
    fn constraints_named(&self, name: &Name, deferred: bool) -> SqlResult<Vec<Oid>> {
        let database = self.shared.database;
        let snapshot = self.view.snapshot();
        let schemas: Vec<Oid> = match &name.schema {
            Some(schema) => {
                let found = snapshot.schema(database, schema).ok_or_else(|| {
                    SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{schema}\" does not exist"))
                })?;
                vec![found.oid]
            }
            None => {
                let path = self.view.path.iter();
                path.filter_map(|schema| snapshot.schema(database, schema)).map(|schema| schema.oid).collect()
            }
        };
        for schema in schemas {
            let found = self.constraints_in(schema, &name.name);
            if found.is_empty() {
                continue;
            }
            if deferred && found.iter().any(|(_, timing)| !timing.deferrable) {
                let message = format!("constraint \"{}\" is not deferrable", name.name);
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            let deferrable = found.into_iter().filter(|(_, timing)| timing.deferrable);
            return Ok(deferrable.map(|(oid, _)| oid).collect());
        }
        let message = format!("constraint \"{}\" does not exist", name.written());
        Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
    }

    fn constraints_in(&self, schema: Oid, name: &str) -> Vec<(Oid, Timing)> {
        let mut found = Vec::new();
        let database = self.shared.database;
        let tables = self.view.snapshot().tables.values();
        for table in tables.filter(|table| table.database == database && table.schema == schema) {
            let keys = table.foreign_keys.iter().filter(|key| key.name == name);
            found.extend(keys.map(|key| (key.oid, key.timing)));
            let checks = table.checks.iter().filter(|check| check.name == name);
            found.extend(checks.map(|check| (check.oid, Timing::default())));
            let indexes = table.indexes.iter().filter(|index| index.constraint && index.name == name);
            found.extend(indexes.map(|index| (index.oid, index.timing)));
        }
        found
    }

    /// Checks the constraints, or some of them, that the transaction has put off; with `forget`, it is done
    /// with them then.
    ///
    /// # Errors
    /// 23503 and 23505 if a constraint does not hold.
    pub(super) async fn check_deferred(
        &mut self,
        constraints: Option<&[Oid]>,
        forget: bool,
    ) -> SqlResult<()> {
        let nothing = |open: &&super::transaction::Open| open.failed || open.deferred.is_empty();
        if self.transaction.as_deref().as_ref().is_none_or(nothing) {
            return Ok(());
        }
        self.refresh_view().await?;
        self.follow_catalog(None).await?;
        let view = self.view.clone();
        let Some(open) = self.transaction.as_deref() else { return Ok(()) };
        open.txn.begin_statement();
        let memory = self.statement_memory();
        let environment = Environment {
            view: &view,
            times: Times { transaction: open.started, statement: now_micros() },
            params: &[],
            memory: &memory,
            implicit_commit: false,
            stats: None,
        };
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        Box::pin(deferred::check(&cx, &open.deferred, constraints, forget)).await
    }
}
