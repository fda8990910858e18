//! Which computed tables there are: read from `data/tables.txt`.

use sql_types::{Oid, Type};
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

static TEXT: &str = include_str!("data/tables.txt");

/// A computed table.
pub(crate) struct SystemTable {
    /// `schema.name`
    pub full_name: &'static str,
    pub schema: &'static str,
    pub name: &'static str,
    pub oid: Oid,
    /// `r` or `v`, as in `pg_class.relkind`.
    pub kind: char,
    text: &'static str,
    columns: OnceLock<Vec<(&'static str, Type)>>,
}

impl SystemTable {
    /// Names and types of its columns.
    pub(crate) fn columns(&self) -> &[(&'static str, Type)] {
        self.columns.get_or_init(|| {
            let columns = self.text.split(' ').filter_map(|column| column.rsplit_once(':'));
            columns.map(|(name, ty)| (name, type_named(ty))).collect()
        })
    }
}

fn type_named(name: &str) -> Type {
    let name = name.trim_matches('"');
    if name == "char" { Type::CHAR } else { Type::by_name(name).unwrap_or(Type::TEXT) }
}

fn parse(line: &'static str) -> Option<SystemTable> {
    let mut parts = line.splitn(4, ' ');
    let (full_name, oid, kind, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (schema, name) = full_name.split_once('.')?;
    Some(SystemTable {
        full_name,
        schema,
        name,
        oid: oid.parse().ok()?,
        kind: kind.chars().next()?,
        text,
        columns: OnceLock::new(),
    })
}

/// All computed tables.
pub(crate) fn all() -> &'static [SystemTable] {
    static ALL: LazyLock<Vec<SystemTable>> =
        LazyLock::new(|| TEXT.lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect());
    &ALL
}

/// A computed table by name.
pub(crate) fn find(schema: &str, name: &str) -> Option<&'static SystemTable> {
    static BY_NAME: LazyLock<HashMap<(&'static str, &'static str), usize>> = LazyLock::new(|| {
        all().iter().enumerate().map(|(index, table)| ((table.schema, table.name), index)).collect()
    });
    BY_NAME.get(&(schema, name)).and_then(|index| all().get(*index))
}

/// A computed table by OID.
pub(crate) fn by_oid(oid: Oid) -> Option<&'static SystemTable> {
    all().iter().find(|table| table.oid == oid)
}
