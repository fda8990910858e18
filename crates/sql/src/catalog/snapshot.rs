//! [`CatalogSnapshot`]: the whole catalog at one version.

use super::descriptor::{
    AclDescriptor, DatabaseDescriptor, IndexId, PRIMARY_INDEX, RoleDescriptor, SchemaDescriptor,
    SequenceDescriptor, TableDescriptor, ViewDescriptor,
};
use super::oids;
use super::routine::RoutineDescriptor;
use super::temporary::PG_TEMP;
use super::user_type::{DomainType, TypeDescriptor};
use crate::ddl::online::JobRecord;
use crate::engine::TenantInfo;
use sql_types::{Oid, Type};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A storage number and an index of it, or 0 for all of it.
pub(crate) type Garbage = (u64, u64);

/// What a name among relations stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A table.
    Table(Oid),
    /// A materialized view, which is a table otherwise.
    MaterializedView(Oid),
    /// A view.
    View(Oid),
    /// A sequence.
    Sequence(Oid),
    /// An index: its OID, its table and its id there.
    Index(Oid, Oid, IndexId),
}

impl Relation {
    /// Its OID.
    pub fn oid(self) -> Oid {
        match self {
            Relation::Table(oid)
            | Relation::MaterializedView(oid)
            | Relation::View(oid)
            | Relation::Sequence(oid)
            | Relation::Index(oid, ..) => oid,
        }
    }

    /// What it is, for error messages.
    pub fn kind(self) -> &'static str {
        match self {
            Relation::Table(_) => "table",
            Relation::MaterializedView(_) => "materialized view",
            Relation::View(_) => "view",
            Relation::Sequence(_) => "sequence",
            Relation::Index(..) => "index",
        }
    }
}

/// A view or materialized view that depends on something.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub relation: Relation,
    pub name: String,
}

/// The whole catalog at one version. Changed only while it is not shared: by its loader, and by a
/// schema change on a copy, which then gets a new [`CatalogSnapshot::id`].
#[derive(Clone, Debug)]
pub struct CatalogSnapshot {
    id: u64,
    /// The version key it belongs to.
    pub(crate) version: u64,
    pub(crate) databases: BTreeMap<Oid, Arc<DatabaseDescriptor>>,
    /// By database and OID.
    pub(crate) schemas: BTreeMap<(Oid, Oid), Arc<SchemaDescriptor>>,
    pub(crate) tables: BTreeMap<Oid, Arc<TableDescriptor>>,
    pub(crate) sequences: BTreeMap<Oid, Arc<SequenceDescriptor>>,
    pub(crate) views: BTreeMap<Oid, Arc<ViewDescriptor>>,
    pub(crate) types: BTreeMap<Oid, Arc<TypeDescriptor>>,
    pub(crate) routines: BTreeMap<Oid, Arc<RoutineDescriptor>>,
    pub(crate) roles: BTreeMap<Oid, Arc<RoleDescriptor>>,
    pub(crate) acls: BTreeMap<Oid, Arc<AclDescriptor>>,
    /// Storage numbers, and indexes of them (0 for all), whose keys nothing refers to any more.
    pub(crate) garbage: Vec<Garbage>,
    /// The same of temporary objects: nothing of an earlier process refers to them any more.
    pub(crate) left_behind: Vec<Garbage>,
    /// Changes in steps that were under way when it was read.
    pub(crate) jobs: Vec<JobRecord>,
    names: HashMap<(Oid, Oid), HashMap<String, Relation>>,
    type_names: HashMap<(Oid, Oid), HashMap<String, Oid>>,
    routine_names: HashMap<(Oid, Oid), HashMap<String, Vec<Oid>>>,
    indexes: HashMap<Oid, (Oid, IndexId)>,
    referencing: HashMap<Oid, Vec<(Oid, usize)>>,
    row_security: bool,
}

impl CatalogSnapshot {
    /// What a tenant begins with.
    pub fn implied(tenant: &TenantInfo) -> Self {
        let mut snapshot = CatalogSnapshot {
            id: 0,
            version: 0,
            databases: BTreeMap::new(),
            schemas: BTreeMap::new(),
            tables: BTreeMap::new(),
            sequences: BTreeMap::new(),
            views: BTreeMap::new(),
            types: BTreeMap::new(),
            routines: BTreeMap::new(),
            roles: BTreeMap::new(),
            acls: BTreeMap::new(),
            garbage: Vec::new(),
            left_behind: Vec::new(),
            jobs: Vec::new(),
            names: HashMap::new(),
            type_names: HashMap::new(),
            routine_names: HashMap::new(),
            indexes: HashMap::new(),
            referencing: HashMap::new(),
            row_security: false,
        };
        let postgres = DatabaseDescriptor {
            oid: oids::POSTGRES,
            name: "postgres".into(),
            owner: oids::OWNER,
            settings: Vec::new(),
            comment: Some("default administrative connection database".into()),
            dropped: false,
        };
        snapshot.put_database(Arc::new(postgres));
        let owner = RoleDescriptor {
            oid: oids::OWNER,
            name: tenant.owner_role.clone(),
            superuser: true,
            create_db: true,
            create_role: true,
            inherit: true,
            login: true,
            replication: false,
            bypass_rls: true,
            connection_limit: -1,
            verifier: Some(tenant.owner_verifier.clone()),
            valid_until: None,
            member_of: Vec::new(),
            settings: Vec::new(),
            comment: None,
        };
        snapshot.roles.insert(owner.oid, Arc::new(owner));
        snapshot.finish();
        snapshot
    }

    /// Adds or replaces a database, with the schemas it begins with.
    pub(crate) fn put_database(&mut self, database: Arc<DatabaseDescriptor>) {
        if database.dropped {
            self.remove_database(database.oid);
            return;
        }
        for (oid, name, comment) in [
            (oids::PG_CATALOG, "pg_catalog", "system catalog schema"),
            (oids::PUBLIC, "public", "standard public schema"),
            (oids::INFORMATION_SCHEMA, "information_schema", ""),
            (oids::DORMOUSE_INTERNAL, crate::system::INTERNAL_SCHEMA, "what this database knows of itself"),
        ] {
            self.schemas.entry((database.oid, oid)).or_insert_with(|| {
                Arc::new(SchemaDescriptor {
                    oid,
                    database: database.oid,
                    name: name.into(),
                    owner: oids::OWNER,
                    comment: Some(comment.to_string()).filter(|comment| !comment.is_empty()),
                    dropped: false,
                })
            });
        }
        self.databases.insert(database.oid, database);
    }

    pub(crate) fn remove_database(&mut self, oid: Oid) {
        self.databases.remove(&oid);
        self.schemas.retain(|(database, _), _| *database != oid);
    }

    pub(crate) fn put_schema(&mut self, schema: Arc<SchemaDescriptor>) {
        let key = (schema.database, schema.oid);
        if schema.dropped {
            self.schemas.remove(&key);
        } else {
            self.schemas.insert(key, schema);
        }
    }

    /// Builds what is derived and gives the snapshot a new identity. To be called after changes.
    pub(crate) fn finish(&mut self) {
        self.id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.names.clear();
        self.type_names.clear();
        self.routine_names.clear();
        self.indexes.clear();
        self.referencing.clear();
        self.row_security = self.tables.values().any(|table| table.security.enabled);
        for table in self.tables.values() {
            let names = self.names.entry((table.database, table.schema)).or_default();
            let relation = match table.view {
                None => Relation::Table(table.oid),
                Some(_) => Relation::MaterializedView(table.oid),
            };
            names.insert(table.name.clone(), relation);
            for index in &table.indexes {
                if index.oid == 0 {
                    continue;
                }
                names.insert(index.name.clone(), Relation::Index(index.oid, table.oid, index.id));
                self.indexes.insert(index.oid, (table.oid, index.id));
            }
            for (position, key) in table.foreign_keys.iter().enumerate() {
                self.referencing.entry(key.referenced_table).or_default().push((table.oid, position));
            }
        }
        for view in self.views.values() {
            let names = self.names.entry((view.database, view.schema)).or_default();
            names.insert(view.name.clone(), Relation::View(view.oid));
        }
        for ty in self.types.values() {
            let names = self.type_names.entry((ty.database, ty.schema)).or_default();
            names.insert(ty.name.clone(), ty.oid);
        }
        for routine in self.routines.values() {
            let names = self.routine_names.entry((routine.database, routine.schema)).or_default();
            names.entry(routine.name.clone()).or_default().push(routine.oid);
        }
        for sequence in self.sequences.values() {
            let names = self.names.entry((sequence.database, sequence.schema)).or_default();
            names.insert(sequence.name.clone(), Relation::Sequence(sequence.oid));
        }
    }

    /// A catalog of the past, as a transaction of today may use it: with the roles, privileges and databases of `now`,
    /// and without the indexes that were dropped since, whose contents are gone.
    pub(crate) fn seen_from(mut self, now: &CatalogSnapshot) -> Self {
        self.roles = now.roles.clone();
        self.acls = now.acls.clone();
        self.databases = now.databases.clone();
        for (oid, table) in &mut self.tables {
            let Some(now) = now.table(*oid) else { continue };
            let table = Arc::make_mut(table);
            table.owner = now.owner;
            table.security = now.security.clone();
            if table.storage == now.storage {
                table.indexes.retain(|index| index.id == PRIMARY_INDEX || now.index(index.id).is_some());
            }
        }
        for (oid, view) in &mut self.views {
            if let Some(now) = now.views.get(oid) {
                Arc::make_mut(view).owner = now.owner;
            }
        }
        self.garbage.clear();
        self.jobs.clear();
        self.finish();
        self
    }

    /// Names this state of the catalog within the process: two snapshots with one id are equal.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The version key the snapshot belongs to.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A database by name.
    pub fn database(&self, name: &str) -> Option<&Arc<DatabaseDescriptor>> {
        self.databases.values().find(|database| database.name == name)
    }

    /// A role by name.
    pub fn role(&self, name: &str) -> Option<&Arc<RoleDescriptor>> {
        self.roles.values().find(|role| role.name == name)
    }

    /// Name of a role; its OID if it is gone.
    pub fn role_name(&self, oid: Oid) -> String {
        self.roles.get(&oid).map_or_else(|| format!("unknown (OID={oid})"), |role| role.name.clone())
    }

    /// A schema by name.
    pub fn schema(&self, database: Oid, name: &str) -> Option<&Arc<SchemaDescriptor>> {
        if name == PG_TEMP {
            return self.schemas.get(&(database, oids::PG_TEMP));
        }
        let range = (database, 0)..=(database, Oid::MAX);
        self.schemas.range(range).map(|(_, schema)| schema).find(|schema| schema.name == name)
    }

    /// Name of a schema.
    pub fn schema_name(&self, database: Oid, oid: Oid) -> Option<&str> {
        self.schemas.get(&(database, oid)).map(|schema| schema.name.as_str())
    }

    /// What a name stands for in a schema.
    pub fn relation(&self, database: Oid, schema: Oid, name: &str) -> Option<Relation> {
        self.names.get(&(database, schema))?.get(name).copied()
    }

    /// The relations of a schema.
    pub fn relations(&self, database: Oid, schema: Oid) -> impl Iterator<Item = (&str, Relation)> {
        let names = self.names.get(&(database, schema));
        names.into_iter().flatten().map(|(name, relation)| (name.as_str(), *relation))
    }

    /// A user's type by name.
    pub fn type_named(&self, database: Oid, schema: Oid, name: &str) -> Option<&Arc<TypeDescriptor>> {
        self.types.get(self.type_names.get(&(database, schema))?.get(name)?)
    }

    /// A user's type.
    pub fn user_type(&self, ty: Type) -> Option<&Arc<TypeDescriptor>> {
        self.types.get(&ty.0)
    }

    /// The functions of a name in a schema.
    pub fn routines_named(&self, database: Oid, schema: Oid, name: &str) -> Vec<&Arc<RoutineDescriptor>> {
        let found = self.routine_names.get(&(database, schema)).and_then(|names| names.get(name));
        found.into_iter().flatten().filter_map(|oid| self.routines.get(oid)).collect()
    }

    /// A domain and those it was made of, the outermost first.
    pub fn domains(&self, oid: Oid) -> Vec<(Arc<TypeDescriptor>, &DomainType)> {
        let mut found = Vec::new();
        let mut next = Some(oid);
        while let Some((ty, domain)) =
            next.and_then(|oid| self.types.get(&oid)).and_then(|ty| Some((ty, ty.as_domain()?)))
        {
            found.push((ty.clone(), domain));
            // A domain is older than what is made of it: no circle, but records may be damaged.
            next = domain.over.filter(|over| *over < ty.oid);
        }
        found
    }

    /// A table.
    pub fn table(&self, oid: Oid) -> Option<&Arc<TableDescriptor>> {
        self.tables.get(&oid)
    }

    /// The table and id of an index.
    pub fn index(&self, oid: Oid) -> Option<(&Arc<TableDescriptor>, IndexId)> {
        let (table, index) = self.indexes.get(&oid)?;
        Some((self.tables.get(table)?, *index))
    }

    /// Foreign keys that refer to a table: the referring table and the key's position there.
    pub fn referencing(&self, oid: Oid) -> Vec<(Arc<TableDescriptor>, usize)> {
        let keys = self.referencing.get(&oid);
        let keys = keys.into_iter().flatten();
        keys.filter_map(|(table, key)| Some((self.tables.get(table)?.clone(), *key))).collect()
    }

    /// The views and materialized views that read a relation, or name a type.
    pub(crate) fn readers(&self, oid: Oid) -> Vec<Reader> {
        let views = self.views.values().filter(|view| view.depends_on.contains(&oid));
        let views = views.map(|view| Reader { relation: Relation::View(view.oid), name: view.name.clone() });
        let tables = self
            .tables
            .values()
            .filter(|table| table.view.as_ref().is_some_and(|view| view.depends_on.contains(&oid)));
        let tables = tables.map(|table| Reader {
            relation: Relation::MaterializedView(table.oid),
            name: table.name.clone(),
        });
        views.chain(tables).filter(|reader| reader.relation.oid() != oid).collect()
    }

    /// Whether `role` is `group`, or a member of it however indirectly.
    pub fn is_member(&self, role: Oid, group: Oid) -> bool {
        let mut seen = vec![role];
        let mut next = 0;
        while let Some(oid) = seen.get(next).copied() {
            if oid == group {
                return true;
            }
            let groups = self.roles.get(&oid).map(|role| role.member_of.as_slice()).unwrap_or_default();
            for group in groups {
                if !seen.contains(group) {
                    seen.push(*group);
                }
            }
            next += 1;
        }
        false
    }

    /// Whether a role is a superuser.
    pub fn is_superuser(&self, role: Oid) -> bool {
        self.roles.get(&role).is_some_and(|role| role.superuser)
    }

    /// Whether what a plan does may depend on who made it: some table has row security.
    pub fn has_row_security(&self) -> bool {
        self.row_security
    }

    /// Whether the policies of a table apply to a role. Superusers, roles with BYPASSRLS and, unless it is forced, the
    /// owner are exempt.
    pub fn secures(&self, table: &TableDescriptor, role: Oid) -> bool {
        let exempt = self.roles.get(&role).is_some_and(|role| role.superuser || role.bypass_rls)
            || (!table.security.forced && self.is_member(role, table.owner));
        table.security.enabled && !exempt
    }

    /// The policies of other tables whose subqueries read a relation, or that name a type: table and policy.
    pub(crate) fn policies_reading(&self, oid: Oid) -> Vec<(Arc<TableDescriptor>, String)> {
        let others = self.tables.values().filter(|table| table.oid != oid);
        let reading = others.flat_map(|table| {
            let policies = table.security.policies.iter().filter(|policy| policy.depends_on.contains(&oid));
            policies.map(|policy| (table.clone(), policy.name.clone()))
        });
        reading.collect()
    }

    /// Whether a role may do everything with an object of `owner`.
    pub fn owns(&self, role: Oid, owner: Oid) -> bool {
        self.is_superuser(role) || self.is_member(role, owner)
    }

    /// Whether a role may do what `letter` (as in `aclitem`) stands for with an object.
    pub fn has_privilege(&self, role: Oid, owner: Oid, object: Oid, letter: char) -> bool {
        if self.owns(role, owner) {
            return true;
        }
        let Some(acl) = self.acls.get(&object) else { return false };
        acl.grants.iter().any(|(grantee, letters)| {
            letters.contains(letter) && (*grantee == 0 || self.is_member(role, *grantee))
        })
    }
}
