//! [`DdlContext`]: what a schema change works with.

use super::tokens::Name;
use crate::bind::BindContext;
use crate::catalog::descriptor::{
    AclDescriptor, DatabaseDescriptor, RoleDescriptor, SchemaDescriptor, SequenceDescriptor, TableDescriptor,
    ViewDescriptor,
};
use crate::catalog::routine::RoutineDescriptor;
use crate::catalog::store::{self, Section};
use crate::catalog::temporary::PG_TEMP;
use crate::catalog::user_type::TypeDescriptor;
use crate::catalog::{CatalogSnapshot, Relation, oids};
use crate::engine::Engine;
use crate::exec::{MemoryBudget, kv_error};
use crate::session::Notice;
use crate::session::locks::{LockKey, mode};
use crate::session::privileges::{denied, must_own};
use crate::session::transaction::Open;
use crate::session::view::{SessionView, Times};
use bytes::Bytes;
use sql_types::{ColumnType, Datum, Oid, SqlError, SqlResult, SqlState};
use sqlparser::ast::DataType;
use std::sync::Arc;

/// What a schema change works with.
pub(crate) struct DdlContext<'a> {
    /// The session as the statement found it.
    pub view: Arc<SessionView>,
    pub open: &'a mut Open,
    /// The catalog being changed.
    pub catalog: CatalogSnapshot,
    pub times: Times,
    pub params: &'a [Datum],
    pub memory: &'a MemoryBudget,
}

impl DdlContext<'_> {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.view.shared.engine
    }

    pub(crate) fn database(&self) -> Oid {
        self.view.shared.database
    }

    pub(crate) fn user(&self) -> Oid {
        self.view.user
    }

    pub(crate) fn notice(&self, message: impl Into<String>) {
        self.view.shared.notice(Notice::plain(message));
    }

    pub(crate) async fn new_oid(&self) -> SqlResult<Oid> {
        self.engine().new_oid().await
    }

    /// The session's view of the catalog as it is being changed.
    pub(crate) fn working_view(&self) -> SqlResult<SessionView> {
        SessionView::new(self.view.shared.clone(), Arc::new(self.catalog.clone()))
    }

    /// The type a type name stands for.
    pub(crate) fn column_type(&self, ty: &DataType) -> SqlResult<ColumnType> {
        let eval = self.view.eval(self.times);
        let context: BindContext<'_> = self.view.bind_context(&eval, &[]);
        let found = crate::bind::column_type(ty, &context)?;
        if found.ty.info().is_some_and(|info| info.category == 'P') {
            let message = format!("column has pseudo-type {}", found.ty);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        Ok(found)
    }

    /// Locks a table until the transaction ends. With a lock that keeps others from writing, what is read of it from then
    /// on is as they have left it.
    ///
    /// # Errors
    /// 55006 if an index of it is built or dropped in steps, in which case the session waits and tries again if it
    /// can; what waiting for the lock ends with.
    pub(crate) async fn lock(&mut self, table: Oid, mode: u8) -> SqlResult<()> {
        let (shared, key) = (&self.view.shared, LockKey::Table(table));
        let is_free = shared.engine.locks.count_conflicting(shared.session, key, mode) == 0;
        if !shared.holds(key, mode) {
            if key.is_strong(mode) && self.is_busy(table, is_free).await? {
                self.open.schema.online.busy = Some((table, mode));
                let name = self.catalog.table(table).map(|table| table.name.as_str()).unwrap_or_default();
                let message = format!(
                    "cannot change table \"{name}\" because an index of it is being built or dropped"
                );
                return Err(SqlError::new(SqlState::OBJECT_IN_USE, message).with_hint(
                    "Run the statement on its own, and it waits for the end of that. \
                     pg_stat_progress_create_index shows how far it is.",
                ));
            }
            shared.lock(key, mode).await?;
        }
        if mode >= mode::SHARE {
            // The snapshot is older than the lock: it would lack what was committed in between, and an index that is built
            // from it could not be committed.
            self.open.txn.refresh().await.map_err(kv_error)?;
        }
        Ok(())
    }

    /// Whether an index of a table is built or dropped in steps, here or at another SQL node.
    async fn is_busy(&self, table: Oid, is_free: bool) -> SqlResult<bool> {
        let shared = &self.view.shared;
        let here = shared.engine.online.is_busy(table);
        if here || shared.standing().await?.alone {
            return Ok(here && !is_free);
        }
        Ok(self.catalog.jobs.iter().any(|job| job.table == table))
    }

    // Names.

    /// The schema a new object goes to.
    pub(crate) fn schema_for(&self, name: &Name) -> SqlResult<Oid> {
        let schema = match &name.schema {
            Some(schema) => self.catalog.schema(self.database(), schema).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{schema}\" does not exist"))
            })?,
            None => {
                let first = self.view.path.iter().find_map(|name| self.catalog.schema(self.database(), name));
                first.ok_or_else(|| {
                    SqlError::new(SqlState::INVALID_SCHEMA, "no schema has been selected to create in")
                })?
            }
        };
        if crate::system::is_schema(&schema.name) {
            let message = format!("permission denied to create \"{}.{}\"", schema.name, name.name);
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("System catalog modifications are currently disallowed."));
        }
        let own = schema.oid == oids::PG_TEMP;
        if !own && !self.catalog.has_privilege(self.user(), schema.owner, schema.oid, 'C') {
            return Err(denied("schema", &schema.name));
        }
        Ok(schema.oid)
    }

    /// Finds a relation as the working catalog has it.
    pub(crate) fn find(&self, name: &Name) -> Option<Relation> {
        let within = |schema: &str| {
            let schema = self.catalog.schema(self.database(), schema)?.oid;
            self.catalog.relation(self.database(), schema, &name.name)
        };
        match &name.schema {
            Some(schema) => within(schema),
            None => {
                let path = self.view.path.iter().map(String::as_str);
                let named = path.clone().any(|schema| schema == PG_TEMP);
                let first = (!named).then_some(PG_TEMP);
                first.into_iter().chain(path).find_map(within)
            }
        }
    }

    pub(crate) fn undefined(&self, kind: &str, name: &Name) -> SqlError {
        if let Some(schema) = &name.schema
            && self.catalog.schema(self.database(), schema).is_none()
        {
            return SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{schema}\" does not exist"));
        }
        let error =
            SqlError::new(SqlState::UNDEFINED_TABLE, format!("{kind} \"{}\" does not exist", name.written()));
        match name.position {
            Some(position) if kind == "relation" => error.at(position),
            _ => error,
        }
    }

    /// A table that the user owns.
    pub(crate) fn own_table(&self, name: &Name) -> SqlResult<Arc<TableDescriptor>> {
        let table = self.table(name)?;
        self.check_owner("table", &table.name, table.owner)?;
        Ok(table)
    }

    /// A table or materialized view that the user owns, for an index.
    pub(crate) fn own_indexed(&self, name: &Name) -> SqlResult<Arc<TableDescriptor>> {
        let Some(Relation::MaterializedView(oid)) = self.find(name) else { return self.own_table(name) };
        let table = self.table_by_oid(oid)?;
        self.check_owner("materialized view", &table.name, table.owner)?;
        Ok(table)
    }

    /// A table by name.
    pub(crate) fn table(&self, name: &Name) -> SqlResult<Arc<TableDescriptor>> {
        match self.find(name) {
            Some(Relation::Table(oid)) => self.table_by_oid(oid),
            Some(_) => {
                let message = format!("\"{}\" is not a table", name.name);
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
            }
            None if is_system(name) => Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{}\" is a system catalog", name.name),
            )),
            None => Err(self.undefined("relation", name)),
        }
    }

    pub(crate) fn table_by_oid(&self, oid: Oid) -> SqlResult<Arc<TableDescriptor>> {
        self.catalog.table(oid).cloned().ok_or_else(|| SqlError::internal(format!("table {oid} is gone")))
    }

    /// Fails if the transaction has put off a check because of a change of the table.
    pub(crate) fn check_unused(&self, table: &TableDescriptor, what: &str) -> SqlResult<()> {
        if !self.open.deferred.concerns(table.oid) {
            return Ok(());
        }
        let message = format!("cannot {what} \"{}\" because it has pending trigger events", table.name);
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message))
    }

    /// Whether a relation is one of the session's own.
    pub(crate) fn is_temporary(&self, oid: Oid) -> bool {
        let table = self.catalog.tables.get(&oid).map(|table| table.schema);
        let view = || self.catalog.views.get(&oid).map(|view| view.schema);
        let sequence = || self.catalog.sequences.get(&oid).map(|sequence| sequence.schema);
        table.or_else(view).or_else(sequence) == Some(oids::PG_TEMP)
    }

    pub(crate) fn check_owner(&self, kind: &str, name: &str, owner: Oid) -> SqlResult<()> {
        if self.catalog.owns(self.user(), owner) { Ok(()) } else { Err(must_own(kind, name)) }
    }

    /// Fails if a relation name is taken in a schema.
    pub(crate) fn check_free(&self, schema: Oid, name: &str) -> SqlResult<()> {
        match self.catalog.relation(self.database(), schema, name) {
            None => Ok(()),
            Some(_) => {
                Err(SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")))
            }
        }
    }

    /// Role by name; `current_user` and the like included.
    /// A role that the user may make the owner of something: one whose rights are also the user's.
    ///
    /// # Errors
    /// 42704 if there is none of the name; 42501 if the user is not a member of it.
    pub(crate) fn new_owner(&self, name: &str) -> SqlResult<Arc<RoleDescriptor>> {
        let role = self.role(name)?;
        if self.catalog.owns(self.user(), role.oid) {
            return Ok(role);
        }
        let message = format!("must be member of role \"{}\"", role.name);
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
    }

    pub(crate) fn role(&self, name: &str) -> SqlResult<Arc<RoleDescriptor>> {
        let name = match name {
            "current_user" | "current_role" => &*self.view.user_name,
            "session_user" => &*self.view.login_name,
            other => other,
        };
        self.catalog.role(name).cloned().ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
        })
    }

    // Writing.

    fn write(&mut self, section: Section, ids: &[u64], value: Option<Bytes>) -> SqlResult<()> {
        let key = store::record_key(section, ids);
        let written = match value {
            Some(value) => self.open.txn.put(&key, value),
            None => self.open.txn.delete(&key),
        };
        written.map_err(kv_error)
    }

    pub(crate) fn put_table(&mut self, mut table: TableDescriptor) -> SqlResult<Arc<TableDescriptor>> {
        table.version += 1;
        if table.schema == oids::PG_TEMP {
            let known = self.catalog.table(table.oid).map(|known| known.storage);
            self.note_temporary(known, table.storage)?;
        } else {
            self.write(Section::Table, &[u64::from(table.oid)], Some(store::encode(&table)?))?;
        }
        let table = Arc::new(table);
        self.catalog.tables.insert(table.oid, table.clone());
        self.catalog.finish();
        Ok(table)
    }

    pub(crate) fn remove_table(&mut self, oid: Oid) -> SqlResult<()> {
        let removed = self.catalog.tables.remove(&oid);
        if removed.is_none_or(|table| table.schema != oids::PG_TEMP) {
            self.write(Section::Table, &[u64::from(oid)], None)?;
            self.forget_statistics(oid)?;
        }
        self.remove_acl(oid)?;
        self.catalog.finish();
        Ok(())
    }

    /// Removes the statistics of a table whose contents go.
    pub(crate) fn forget_statistics(&mut self, oid: Oid) -> SqlResult<()> {
        self.open.statistics.retain(|made| made.table != oid);
        if self.catalog.table(oid).is_some_and(|table| table.schema == oids::PG_TEMP) {
            return Ok(());
        }
        self.write(Section::Statistics, &[u64::from(oid)], None)
    }

    /// Has the contents of a temporary object cleared however its session ends, if they are new.
    fn note_temporary(&mut self, known: Option<u64>, storage: u64) -> SqlResult<()> {
        if known == Some(storage) {
            return Ok(());
        }
        let (key, value) = store::temporary_record(storage);
        self.open.txn.put(&key, value).map_err(kv_error)
    }

    pub(crate) fn put_sequence(&mut self, sequence: SequenceDescriptor) -> SqlResult<()> {
        if sequence.schema == oids::PG_TEMP {
            let known = self.catalog.sequences.get(&sequence.oid).map(|known| known.storage);
            self.note_temporary(known, sequence.storage)?;
        } else {
            self.write(Section::Sequence, &[u64::from(sequence.oid)], Some(store::encode(&sequence)?))?;
        }
        self.catalog.sequences.insert(sequence.oid, Arc::new(sequence));
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn remove_sequence(&mut self, oid: Oid) -> SqlResult<()> {
        if let Some(sequence) = self.catalog.sequences.remove(&oid) {
            if sequence.schema != oids::PG_TEMP {
                self.write(Section::Sequence, &[u64::from(oid)], None)?;
            }
            self.garbage(sequence.storage, 0)?;
        }
        self.remove_acl(oid)?;
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn put_view(&mut self, view: ViewDescriptor) -> SqlResult<()> {
        if view.schema != oids::PG_TEMP {
            self.write(Section::View, &[u64::from(view.oid)], Some(store::encode(&view)?))?;
        }
        self.catalog.views.insert(view.oid, Arc::new(view));
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn remove_view(&mut self, oid: Oid) -> SqlResult<()> {
        let removed = self.catalog.views.remove(&oid);
        if removed.is_none_or(|view| view.schema != oids::PG_TEMP) {
            self.write(Section::View, &[u64::from(oid)], None)?;
        }
        self.remove_acl(oid)?;
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn put_type(&mut self, ty: TypeDescriptor) -> SqlResult<()> {
        self.write(Section::Type, &[u64::from(ty.oid)], Some(store::encode(&ty)?))?;
        self.catalog.types.insert(ty.oid, Arc::new(ty));
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn remove_type(&mut self, oid: Oid) -> SqlResult<()> {
        self.write(Section::Type, &[u64::from(oid)], None)?;
        self.catalog.types.remove(&oid);
        self.remove_acl(oid)?;
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn put_routine(&mut self, routine: RoutineDescriptor) -> SqlResult<()> {
        // What was made of an earlier body is not for this one.
        let routine = RoutineDescriptor { compiled: Default::default(), ..routine };
        self.write(Section::Routine, &[u64::from(routine.oid)], Some(store::encode(&routine)?))?;
        self.catalog.routines.insert(routine.oid, Arc::new(routine));
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn remove_routine(&mut self, oid: Oid) -> SqlResult<()> {
        self.write(Section::Routine, &[u64::from(oid)], None)?;
        self.catalog.routines.remove(&oid);
        self.remove_acl(oid)?;
        self.catalog.finish();
        Ok(())
    }

    pub(crate) fn put_role(&mut self, role: RoleDescriptor) -> SqlResult<()> {
        self.write(Section::Role, &[u64::from(role.oid)], Some(store::encode(&role)?))?;
        self.catalog.roles.insert(role.oid, Arc::new(role));
        Ok(())
    }

    pub(crate) fn remove_role(&mut self, oid: Oid) -> SqlResult<()> {
        self.write(Section::Role, &[u64::from(oid)], None)?;
        self.catalog.roles.remove(&oid);
        Ok(())
    }

    pub(crate) fn put_schema(&mut self, schema: SchemaDescriptor) -> SqlResult<()> {
        let ids = [u64::from(schema.database), u64::from(schema.oid)];
        self.write(Section::Schema, &ids, Some(store::encode(&schema)?))?;
        self.catalog.put_schema(Arc::new(schema));
        Ok(())
    }

    pub(crate) fn put_database(&mut self, database: DatabaseDescriptor) -> SqlResult<()> {
        self.write(Section::Database, &[u64::from(database.oid)], Some(store::encode(&database)?))?;
        self.catalog.put_database(Arc::new(database));
        Ok(())
    }

    pub(crate) fn put_acl(&mut self, oid: Oid, acl: AclDescriptor) -> SqlResult<()> {
        if self.is_temporary(oid) {
            return Err(SqlError::unsupported("GRANT on a temporary object"));
        }
        let empty = acl.grants.is_empty();
        let value = if empty { None } else { Some(store::encode(&acl)?) };
        self.write(Section::Acl, &[u64::from(oid)], value)?;
        if empty {
            self.catalog.acls.remove(&oid);
        } else {
            self.catalog.acls.insert(oid, Arc::new(acl));
        }
        Ok(())
    }

    pub(crate) fn remove_acl(&mut self, oid: Oid) -> SqlResult<()> {
        if self.catalog.acls.contains_key(&oid) {
            self.put_acl(oid, AclDescriptor::default())
        } else {
            Ok(())
        }
    }

    /// Removes the record of a schema for good, or marks an implied one as gone.
    pub(crate) fn drop_schema(&mut self, schema: &SchemaDescriptor) -> SqlResult<()> {
        let implied = schema.oid < crate::catalog::descriptor::FIRST_USER_OID;
        if implied {
            return self.put_schema(SchemaDescriptor { dropped: true, ..schema.clone() });
        }
        let ids = [u64::from(schema.database), u64::from(schema.oid)];
        self.write(Section::Schema, &ids, None)?;
        self.catalog.schemas.remove(&(schema.database, schema.oid));
        self.remove_acl(schema.oid)
    }

    /// Removes the record of a database for good, or marks the implied one as gone.
    pub(crate) fn drop_database(&mut self, database: &DatabaseDescriptor) -> SqlResult<()> {
        if database.oid < crate::catalog::descriptor::FIRST_USER_OID {
            return self.put_database(DatabaseDescriptor { dropped: true, ..database.clone() });
        }
        self.write(Section::Database, &[u64::from(database.oid)], None)?;
        self.catalog.remove_database(database.oid);
        self.remove_acl(database.oid)
    }

    /// Has the keys of a storage number (one index of it, or 0 for all) cleared after the commit.
    pub(crate) fn garbage(&mut self, storage: u64, index: u64) -> SqlResult<()> {
        self.write(Section::Garbage, &[storage, index], Some(Bytes::from_static(&[1])))?;
        self.open.schema.clear_on_commit.push((storage, index));
        Ok(())
    }
}

fn is_system(name: &Name) -> bool {
    let schema = name.schema.as_deref().unwrap_or("pg_catalog");
    crate::system::reference(schema, &name.name).is_some()
}
