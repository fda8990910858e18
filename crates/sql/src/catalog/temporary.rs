//! [`Temporary`]: the tables, views and sequences that a session has for itself.
//!
//! They lie in no record: the session keeps their descriptors, and lays them over the node's catalog for its own
//! statements ([`CatalogSnapshot::with_temporary`]). Nobody else can see them, and no other session's plans or schema
//! changes have to do with them. Their contents are in the keyspace under storage numbers that are recorded as garbage
//! from the beginning ([`super::store::temporary_record`]): a session clears them when it ends, and what a process
//! leaves behind that ended before it could is cleared when the next one reads the catalog for the first time.

use super::CatalogSnapshot;
use super::descriptor::{SchemaDescriptor, SequenceDescriptor, TableDescriptor, ViewDescriptor};
use super::oids;
use sql_types::Oid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name under which every session finds its own schema of temporary objects.
pub(crate) const PG_TEMP: &str = "pg_temp";

/// What happens to a temporary table when a transaction commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCommit {
    /// Nothing.
    #[default]
    Preserve,
    /// It is emptied.
    Delete,
    /// It is dropped.
    Drop,
}

/// The temporary objects of a session. Immutable; a change makes another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Temporary {
    pub tables: BTreeMap<Oid, Arc<TableDescriptor>>,
    pub views: BTreeMap<Oid, Arc<ViewDescriptor>>,
    pub sequences: BTreeMap<Oid, Arc<SequenceDescriptor>>,
}

impl Temporary {
    /// The storage numbers of what they contain.
    pub(crate) fn storages(&self) -> impl Iterator<Item = u64> {
        let tables = self.tables.values().map(|table| table.storage);
        tables.chain(self.sequences.values().map(|sequence| sequence.storage))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.views.is_empty() && self.sequences.is_empty()
    }

    /// Whether a commit changes something.
    pub(crate) fn acts_on_commit(&self) -> bool {
        self.tables.values().any(|table| table.on_commit != OnCommit::Preserve)
    }
}

impl CatalogSnapshot {
    /// This catalog with the temporary objects of a session of one of its databases.
    pub(crate) fn with_temporary(&self, temporary: &Temporary, database: Oid, session: u64) -> Self {
        let mut catalog = self.clone();
        catalog.begin_temporary(database, session);
        catalog.tables.extend(temporary.tables.iter().map(|(oid, table)| (*oid, table.clone())));
        catalog.views.extend(temporary.views.iter().map(|(oid, view)| (*oid, view.clone())));
        catalog.sequences.extend(temporary.sequences.iter().map(|(oid, it)| (*oid, it.clone())));
        catalog.finish();
        catalog
    }

    /// Adds the schema of a session's temporary objects.
    pub(crate) fn begin_temporary(&mut self, database: Oid, session: u64) {
        self.schemas.entry((database, oids::PG_TEMP)).or_insert_with(|| {
            Arc::new(SchemaDescriptor {
                oid: oids::PG_TEMP,
                database,
                name: format!("{PG_TEMP}_{session}"),
                owner: oids::OWNER,
                comment: None,
                dropped: false,
            })
        });
    }

    /// Takes the temporary objects out; `None` if there is no schema for them.
    pub(crate) fn take_temporary(&mut self, database: Oid) -> Option<Temporary> {
        self.schemas.remove(&(database, oids::PG_TEMP))?;
        let mut taken = Temporary::default();
        self.tables.retain(|oid, table| keep(table.schema, || taken.tables.insert(*oid, table.clone())));
        self.views.retain(|oid, view| keep(view.schema, || taken.views.insert(*oid, view.clone())));
        self.sequences.retain(|oid, it| keep(it.schema, || taken.sequences.insert(*oid, it.clone())));
        Some(taken)
    }
}

/// Whether an object stays; one that does not is taken.
fn keep<T>(schema: Oid, take: impl FnOnce() -> T) -> bool {
    if schema == oids::PG_TEMP {
        take();
    }
    schema != oids::PG_TEMP
}
