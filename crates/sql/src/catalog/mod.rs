//! The catalog: what databases, schemas, tables, indexes, sequences and roles a tenant has.
//!
//! # How it is kept
//!
//! Each object is a [`descriptor`], one to a key in the tenant's keyspace ([`store`]). What every
//! tenant begins with (database `postgres`, its schemas, the owner role) is implied by code
//! ([`CatalogSnapshot::implied`]) and takes no key until it is changed: a new tenant's keyspace is
//! empty. A [`CatalogSnapshot`] is the whole catalog at one version, read in one scan, immutable and
//! shared by everything that runs on the node.
//!
//! # How it changes
//!
//! A transaction that changes the schema reads the version key with an exclusive lock, so that there
//! is one at a time; it works on a copy of the snapshot, which its own statements see, and writes each
//! change to its transaction. After the commit the copy becomes the node's snapshot. Other SQL
//! nodes of the tenant are told before the statement returns ([`crate::instances`]).
//!
//! Temporary tables are a session's own and no part of this (module `temporary`).
//!
//! The statistics of tables ([`crate::statistics`]) lie among the descriptors but are no part of the schema.

pub mod descriptor;
mod lookup;
pub mod policy;
pub mod routine;
mod snapshot;
pub mod store;
pub(crate) mod temporary;
pub mod user_type;

pub use lookup::DatabaseCatalog;
pub use snapshot::{CatalogSnapshot, Relation};
pub(crate) use snapshot::{Garbage, Reader};
pub use temporary::OnCommit;

/// OIDs of what every tenant begins with; PostgreSQL's own where it has them.
pub mod oids {
    use sql_types::Oid;
    /// Database `postgres`.
    pub const POSTGRES: Oid = 5;
    /// Schema `pg_catalog`.
    pub const PG_CATALOG: Oid = 11;
    /// Schema `public`.
    pub const PUBLIC: Oid = 2200;
    /// Schema `information_schema`.
    pub const INFORMATION_SCHEMA: Oid = 13207;
    /// Schema `pg_dormouse`: computed tables that PostgreSQL does not have.
    pub const DORMOUSE_INTERNAL: Oid = 13208;
    /// The schema of a session's temporary objects: each session has one of its own.
    pub const PG_TEMP: Oid = 13209;
    /// The role a tenant begins with.
    pub const OWNER: Oid = 10;
    /// Catalog `pg_enum`.
    pub const PG_ENUM: Oid = 3501;
    /// Catalog `pg_class`.
    pub const PG_CLASS: Oid = 1259;
    /// Catalog `pg_type`.
    pub const PG_TYPE: Oid = 1247;
    /// Catalog `pg_constraint`.
    pub const PG_CONSTRAINT: Oid = 2606;
    /// Catalog `pg_namespace`.
    pub const PG_NAMESPACE: Oid = 2615;
    /// Catalog `pg_database`.
    pub const PG_DATABASE: Oid = 1262;
    /// Catalog `pg_authid`.
    pub const PG_AUTHID: Oid = 1260;
    /// Catalog `pg_attrdef`.
    pub const PG_ATTRDEF: Oid = 2604;
    /// Catalog `pg_proc`.
    pub const PG_PROC: Oid = 1255;
    /// Catalog `pg_trigger`.
    pub const PG_TRIGGER: Oid = 2620;
}

#[cfg(test)]
mod tests;
