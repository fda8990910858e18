//! Building rows by column name.

use super::tables::SystemTable;
use crate::catalog::CatalogSnapshot;
use crate::session::view::SessionView;
use sql_types::{Datum, Oid, Row, Type};

/// What the rows of a computed table are made from.
pub(crate) struct SystemContext<'a> {
    pub view: &'a SessionView,
    pub table: &'static SystemTable,
}

impl SystemContext<'_> {
    pub(crate) fn catalog(&self) -> &CatalogSnapshot {
        self.view.snapshot()
    }

    pub(crate) fn database(&self) -> Oid {
        self.view.shared.database
    }

    /// A row with these columns; NULL, or for numbers and booleans of catalogs their zero, elsewhere.
    pub(crate) fn row(&self, values: Vec<(&'static str, Datum)>) -> Row {
        let columns = self.table.columns();
        let mut row: Row = vec![Datum::Null; columns.len()];
        for (name, value) in values {
            match columns.iter().position(|(column, _)| *column == name) {
                Some(index) => row[index] = fit(value, columns[index].1),
                None => debug_assert!(false, "{} has no column {name}", self.table.full_name),
            }
        }
        row
    }
}

/// A value in the type of its column: the builders write numbers as they come.
fn fit(value: Datum, ty: Type) -> Datum {
    match (value, ty) {
        (Datum::Int8(n), Type::INT4) => Datum::Int4(n as i32),
        (Datum::Int8(n), Type::INT2) => Datum::Int2(n as i16),
        (Datum::Int8(n), Type::FLOAT4) => Datum::Float4(n as f32),
        (Datum::Int8(n), Type::FLOAT8) => Datum::Float8(n as f64),
        (Datum::Int4(n), Type::INT8) => Datum::Int8(i64::from(n)),
        (Datum::Int8(n), Type::TEXT | Type::VARCHAR | Type::NAME) => Datum::text(n.to_string()),
        (Datum::Bool(b), Type::VARCHAR | Type::TEXT) => text(if b { "YES" } else { "NO" }),
        (value, _) => value,
    }
}

/// A text.
pub(crate) fn text(value: &str) -> Datum {
    Datum::text(value)
}

/// A `"char"`.
pub(crate) fn letter(value: char) -> Datum {
    Datum::text(value.to_string())
}

/// A number of any integer type.
pub(crate) fn int(value: i64) -> Datum {
    Datum::Int8(value)
}

pub(crate) fn oid(value: Oid) -> Datum {
    Datum::Oid(value)
}

pub(crate) fn bool(value: bool) -> Datum {
    Datum::Bool(value)
}

pub(crate) fn optional(value: Option<&str>) -> Datum {
    value.map_or(Datum::Null, Datum::text)
}

/// An int2vector.
pub(crate) fn int2vector(values: impl IntoIterator<Item = i16>) -> Datum {
    vector(Type::INT2, values.into_iter().map(Datum::Int2).collect())
}

/// An oidvector.
pub(crate) fn oidvector(values: impl IntoIterator<Item = Oid>) -> Datum {
    vector(Type::OID, values.into_iter().map(Datum::Oid).collect())
}

/// Vectors count from 0.
fn vector(element: Type, values: Vec<Datum>) -> Datum {
    let dimensions = if values.is_empty() { Vec::new() } else { vec![(values.len(), 0)] };
    Datum::Array(std::sync::Arc::new(sql_types::ArrayValue { element, dimensions, values }))
}

pub(crate) fn int2_array(values: impl IntoIterator<Item = i16>) -> Datum {
    Datum::array(Type::INT2, values.into_iter().map(Datum::Int2).collect())
}
