//! The catalog: what databases, schemas, tables, indexes, sequences and roles a tenant has.

pub mod descriptor;
