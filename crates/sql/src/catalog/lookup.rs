//! [`DatabaseCatalog`]: a snapshot as the sessions of one database see it.

use super::descriptor::TableDescriptor;
use super::oids;
use super::routine::RoutineDescriptor;
use super::snapshot::{CatalogSnapshot, Relation};
use super::temporary::PG_TEMP;
use super::user_type::TypeDescriptor;
use crate::bind::{CatalogLookup, RelationRef, ViewRef};
use crate::system;
use sql_types::types::TYPE_MARK;
use sql_types::{ColumnType, Oid, SqlResult, Type};
use std::sync::Arc;

/// A snapshot as the sessions of one database see it.
#[derive(Clone, Debug)]
pub struct DatabaseCatalog {
    /// The snapshot.
    pub snapshot: Arc<CatalogSnapshot>,
    /// OID of the database.
    pub database: Oid,
    /// Its name.
    pub name: Arc<str>,
}

impl DatabaseCatalog {
    fn in_schema(&self, schema: &str, name: &str) -> Option<RelationRef> {
        if system::is_schema(schema) {
            return system::reference(schema, name).map(RelationRef::System);
        }
        let schema = self.snapshot.schema(self.database, schema)?.oid;
        self.resolved(self.snapshot.relation(self.database, schema, name)?)
    }

    fn resolved(&self, relation: Relation) -> Option<RelationRef> {
        Some(match relation {
            Relation::Table(oid) | Relation::MaterializedView(oid) => {
                RelationRef::Table(self.snapshot.table(oid)?.clone())
            }
            Relation::Sequence(oid) => RelationRef::Sequence(oid, self.snapshot.sequences.get(&oid)?.start),
            Relation::Index(..) => RelationRef::Other("index"),
            Relation::View(oid) => {
                let view = self.snapshot.views.get(&oid)?;
                RelationRef::View(ViewRef {
                    oid,
                    owner: view.owner,
                    columns: view.columns.clone().into(),
                    query: view.query.as_str().into(),
                    search_path: view.search_path.clone().into(),
                })
            }
        })
    }

    /// The schemas searched for a name: `pg_catalog` first unless the path names it.
    /// Before that come the session's temporary objects, likewise.
    pub fn search_order<'p>(&self, path: &'p [String]) -> impl Iterator<Item = &'p str> {
        let named = path.iter().any(|schema| schema == "pg_catalog");
        let implied = (!named).then_some("pg_catalog");
        self.temporary_first(path).into_iter().chain(implied).chain(path.iter().map(String::as_str))
    }

    /// The schema of temporary objects, unless there are none or the path says where it comes.
    fn temporary_first(&self, path: &[String]) -> Option<&'static str> {
        let exists = self.snapshot.schemas.contains_key(&(self.database, oids::PG_TEMP));
        (exists && !path.iter().any(|schema| schema == PG_TEMP)).then_some(PG_TEMP)
    }

    /// A user's relation by name, in a schema or along the path.
    pub fn find(&self, schema: Option<&str>, name: &str, path: &[String]) -> Option<Relation> {
        let within = |schema: &str| {
            let schema = self.snapshot.schema(self.database, schema)?.oid;
            self.snapshot.relation(self.database, schema, name)
        };
        match schema {
            Some(schema) => within(schema),
            None => {
                let first = self.temporary_first(path).into_iter();
                first.chain(path.iter().map(String::as_str)).find_map(within)
            }
        }
    }

    /// A user's type by name, in a schema or along the path.
    pub fn find_type(
        &self,
        schema: Option<&str>,
        name: &str,
        path: &[String],
    ) -> Option<&Arc<TypeDescriptor>> {
        let within = |schema: &str| {
            let schema = self.snapshot.schema(self.database, schema)?.oid;
            self.snapshot.type_named(self.database, schema, name)
        };
        match schema {
            Some(schema) => within(schema),
            None => path.iter().find_map(|schema| within(schema)),
        }
    }

    /// Whether a user's type is found by its bare name.
    pub fn type_is_visible(&self, ty: &TypeDescriptor, path: &[String]) -> bool {
        Type::by_name(&ty.name).is_none()
            && self.find_type(None, &ty.name, path).is_some_and(|found| found.oid == ty.oid)
    }

    /// Whether a relation is found by its bare name.
    pub fn is_visible(&self, oid: Oid, schema: Oid, name: &str, path: &[String]) -> bool {
        if schema == oids::PG_CATALOG {
            return true;
        }
        self.find(None, name, path).is_some_and(|relation| relation.oid() == oid)
            && system::reference("pg_catalog", name).is_none()
    }
}

impl CatalogLookup for DatabaseCatalog {
    fn relation(&self, schema: Option<&str>, name: &str, path: &[String]) -> SqlResult<Option<RelationRef>> {
        Ok(match schema {
            Some(schema) => self.in_schema(schema, name),
            None => self.search_order(path).find_map(|schema| self.in_schema(schema, name)),
        })
    }

    fn type_by_name(&self, schema: Option<&str>, name: &str, path: &[String]) -> Option<ColumnType> {
        // Stored expressions name a type by its OID, which a new name does not change.
        if let Some(oid) = name.strip_prefix(TYPE_MARK).and_then(|oid| oid.parse().ok()) {
            return self.snapshot.user_type(Type(oid)).map(|found| found.ty().into());
        }
        if let Some(found) = self.find_type(schema, name, path) {
            return Some(found.ty().into());
        }
        // `_name` is the array type's own name.
        self.find_type(schema, name.strip_prefix('_')?, path)?.array().map(ColumnType::plain)
    }

    fn routines(&self, schema: Option<&str>, name: &str, path: &[String]) -> Vec<Arc<RoutineDescriptor>> {
        if self.snapshot.routines.is_empty() {
            return Vec::new();
        }
        let within = |schema: &str| {
            let schema = self.snapshot.schema(self.database, schema).map(|schema| schema.oid);
            schema.map(|schema| self.snapshot.routines_named(self.database, schema, name)).unwrap_or_default()
        };
        let Some(schema) = schema else {
            let mut found: Vec<Arc<RoutineDescriptor>> = Vec::new();
            for routine in path.iter().flat_map(|schema| within(schema)) {
                // The same arguments in an earlier schema hide those of a later one.
                if !found.iter().any(|known| known.argument_types().eq(routine.argument_types())) {
                    found.push(routine.clone());
                }
            }
            return found;
        };
        within(schema).into_iter().cloned().collect()
    }

    fn domain(&self, ty: Type) -> Option<ColumnType> {
        self.snapshot.user_type(ty)?.as_domain().map(|domain| domain.base)
    }

    fn domains(&self, ty: Type) -> Vec<Arc<TypeDescriptor>> {
        self.snapshot.domains(ty.0).into_iter().map(|(found, _)| found).collect()
    }

    fn secures(&self, table: &TableDescriptor, role: Oid) -> bool {
        self.snapshot.secures(table, role)
    }

    fn is_member(&self, role: Oid, group: Oid) -> bool {
        self.snapshot.is_member(role, group)
    }

    fn schema_exists(&self, schema: &str) -> bool {
        self.snapshot.schema(self.database, schema).is_some()
    }

    fn database(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, oid: Oid) -> Option<String> {
        self.snapshot.schema_name(self.database, oid).map(str::to_string)
    }
}
