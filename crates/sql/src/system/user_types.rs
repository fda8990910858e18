//! A user's types: rows of `pg_type` and `pg_enum`, and the domains of information_schema.

use super::builtin::{function_oid, types};
use super::columns::type_columns;
use super::row::{SystemContext, bool, int, letter, oid, optional, text};
use crate::catalog::oids;
use crate::catalog::user_type::{DomainType, TypeDescriptor, TypeKind};
use sql_types::{Datum, Oid, Row};
use std::sync::Arc;

/// Longest name of a type in bytes.
const MOST: usize = 63;

/// What the rows of `pg_type` differ in.
struct Shape<'a> {
    oid: Oid,
    name: String,
    len: i64,
    by_value: bool,
    kind: char,
    category: char,
    delimiter: char,
    element: Oid,
    array: Oid,
    /// Input, output, receive, send.
    functions: [Oid; 4],
    align: char,
    storage: char,
    not_null: bool,
    base: Oid,
    typmod: i32,
    collation: Oid,
    default: Option<&'a str>,
}

/// The user's types of this database.
pub(super) fn mine<'a>(cx: &'a SystemContext<'_>) -> impl Iterator<Item = &'a Arc<TypeDescriptor>> {
    cx.catalog().types.values().filter(|ty| ty.database == cx.database())
}

/// The name of the array type over a type.
pub(super) fn array_name(name: &str) -> String {
    let mut end = name.len().min(MOST - 1);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("_{}", &name[..end])
}

/// Rows of `pg_type`.
pub(super) fn type_rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in mine(cx) {
        match &ty.kind {
            TypeKind::Enum(_) => {
                rows.push(type_row(cx, ty, enum_shape(ty)));
                rows.push(type_row(cx, ty, array_shape(ty)));
            }
            TypeKind::Domain(domain) => rows.push(type_row(cx, ty, domain_shape(ty, domain))),
        }
    }
    rows
}

fn enum_shape(ty: &TypeDescriptor) -> Shape<'_> {
    Shape {
        oid: ty.oid,
        name: ty.name.clone(),
        len: 4,
        by_value: true,
        kind: 'e',
        category: 'E',
        delimiter: ',',
        element: 0,
        array: ty.array().map_or(0, |array| array.0),
        functions: [3506, 3507, 3532, 3533],
        align: 'i',
        storage: 'p',
        not_null: false,
        base: 0,
        typmod: -1,
        collation: 0,
        default: None,
    }
}

fn array_shape(ty: &TypeDescriptor) -> Shape<'_> {
    Shape {
        oid: ty.array().map_or(0, |array| array.0),
        name: array_name(&ty.name),
        len: -1,
        by_value: false,
        kind: 'b',
        category: 'A',
        element: ty.oid,
        array: 0,
        functions: [750, 751, 2400, 2401],
        storage: 'x',
        ..enum_shape(ty)
    }
}

fn domain_shape<'a>(ty: &TypeDescriptor, domain: &'a DomainType) -> Shape<'a> {
    let base = types().iter().find(|known| known.oid == domain.base.ty.0);
    let [_, output, _, send] = match base {
        Some(base) => [0, 1, 2, 3].map(|at| function_oid(base.functions[at])),
        None if domain.base.ty.is_enum() => [3506, 3507, 3532, 3533],
        None => [750, 751, 2400, 2401],
    };
    Shape {
        oid: ty.oid,
        name: ty.name.clone(),
        len: base.map_or(if domain.base.ty.is_enum() { 4 } else { -1 }, |base| i64::from(base.len)),
        by_value: base.map_or(domain.base.ty.is_enum(), |base| base.by_value),
        kind: 'd',
        category: domain.base.ty.category(),
        delimiter: ',',
        element: 0,
        array: 0,
        functions: [2597, output, 2598, send],
        align: base.map_or('i', |base| base.align),
        storage: base.map_or('x', |base| base.storage),
        not_null: domain.not_null,
        base: domain.over.unwrap_or(domain.base.ty.0),
        typmod: domain.base.typmod,
        collation: base.map_or(0, |base| base.collation),
        default: domain.default.as_deref(),
    }
}

fn type_row(cx: &SystemContext<'_>, ty: &TypeDescriptor, shape: Shape<'_>) -> Row {
    let [input, output, receive, send] = shape.functions;
    let default = shape.default.map(|text| cx.view.named_types(text));
    cx.row(vec![
        ("oid", oid(shape.oid)),
        ("typname", text(&shape.name)),
        ("typnamespace", oid(ty.schema)),
        ("typowner", oid(ty.owner)),
        ("typlen", int(shape.len)),
        ("typbyval", bool(shape.by_value)),
        ("typtype", letter(shape.kind)),
        ("typcategory", letter(shape.category)),
        ("typispreferred", bool(false)),
        ("typisdefined", bool(true)),
        ("typdelim", letter(shape.delimiter)),
        ("typrelid", oid(0)),
        ("typsubscript", oid(if shape.element == 0 { 0 } else { 6179 })),
        ("typelem", oid(shape.element)),
        ("typarray", oid(shape.array)),
        ("typinput", oid(input)),
        ("typoutput", oid(output)),
        ("typreceive", oid(receive)),
        ("typsend", oid(send)),
        ("typmodin", oid(0)),
        ("typmodout", oid(0)),
        ("typanalyze", oid(0)),
        ("typalign", letter(shape.align)),
        ("typstorage", letter(shape.storage)),
        ("typnotnull", bool(shape.not_null)),
        ("typbasetype", oid(shape.base)),
        ("typtypmod", int(i64::from(shape.typmod))),
        ("typndims", int(0)),
        ("typcollation", oid(shape.collation)),
        ("typdefaultbin", optional(default.as_deref())),
        ("typdefault", optional(default.as_deref())),
    ])
}

/// Rows of `pg_enum`.
pub(super) fn enum_rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in mine(cx) {
        let labels = ty.as_enum().map(|labels| labels.labels.as_slice()).unwrap_or_default();
        for (position, label) in labels.iter().enumerate() {
            rows.push(cx.row(vec![
                ("oid", oid(label.oid)),
                ("enumtypid", oid(ty.oid)),
                ("enumsortorder", int(position as i64 + 1)),
                ("enumlabel", text(&label.label)),
            ]));
        }
    }
    rows
}

/// Name of a user's type's schema.
fn schema(cx: &SystemContext<'_>, ty: &TypeDescriptor) -> Datum {
    text(cx.catalog().schema_name(cx.database(), ty.schema).unwrap_or(""))
}

fn database(cx: &SystemContext<'_>) -> Datum {
    Datum::Text(cx.view.shared.database_name.clone())
}

fn of_domain(cx: &SystemContext<'_>, ty: &TypeDescriptor) -> Vec<(&'static str, Datum)> {
    vec![("domain_catalog", database(cx)), ("domain_schema", schema(cx, ty)), ("domain_name", text(&ty.name))]
}

fn domains<'a>(cx: &'a SystemContext<'_>) -> impl Iterator<Item = (&'a Arc<TypeDescriptor>, &'a DomainType)> {
    mine(cx).filter_map(|ty| Some((ty, ty.as_domain()?)))
}

/// `information_schema.domains`
pub(super) fn domain_rows(cx: &SystemContext<'_>) -> Vec<Row> {
    domains(cx)
        .map(|(ty, domain)| {
            let mut values = of_domain(cx, ty);
            values.extend(type_columns(cx, domain.base));
            let default = domain.default.as_deref().map(|text| cx.view.named_types(text));
            values.push(("domain_default", optional(default.as_deref())));
            values.push(("udt_catalog", database(cx)));
            values.push(("dtd_identifier", text("1")));
            cx.row(values)
        })
        .collect()
}

/// `information_schema.domain_constraints`
pub(super) fn domain_constraints(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (ty, domain) in domains(cx) {
        for check in &domain.checks {
            let mut values = of_domain(cx, ty);
            values.push(("constraint_catalog", database(cx)));
            values.push(("constraint_schema", schema(cx, ty)));
            values.push(("constraint_name", text(&check.name)));
            values.push(("is_deferrable", text("NO")));
            values.push(("initially_deferred", text("NO")));
            rows.push(cx.row(values));
        }
    }
    rows
}

/// The rows of `information_schema.check_constraints` that are of domains.
pub(super) fn domain_check_constraints(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (ty, domain) in domains(cx) {
        for check in &domain.checks {
            rows.push(cx.row(vec![
                ("constraint_catalog", database(cx)),
                ("constraint_schema", schema(cx, ty)),
                ("constraint_name", text(&check.name)),
                ("check_clause", Datum::text(format!("({})", cx.view.named_types(&check.expr)))),
            ]));
        }
    }
    rows
}

/// The columns of `information_schema.columns` that name a column's domain.
pub(super) fn column_domain(cx: &SystemContext<'_>, domain: Option<Oid>) -> Vec<(&'static str, Datum)> {
    let found = domain.and_then(|oid| cx.catalog().types.get(&oid));
    found.map(|ty| of_domain(cx, ty)).unwrap_or_default()
}

/// `information_schema.column_domain_usage`
pub(super) fn column_domain_usage(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in cx.catalog().tables.values().filter(|table| table.database == cx.database()) {
        for column in table.columns.iter().filter(|column| column.domain.is_some()) {
            let mut values = column_domain(cx, column.domain);
            values.push(("table_catalog", database(cx)));
            values.push((
                "table_schema",
                text(cx.catalog().schema_name(cx.database(), table.schema).unwrap_or("")),
            ));
            values.push(("table_name", text(&table.name)));
            values.push(("column_name", text(&column.name)));
            rows.push(cx.row(values));
        }
    }
    rows
}

/// An object of a catalog: the catalog's table, its OID in it, and the number of a column or 0.
type ObjectAddress = (Oid, Oid, i64);

/// Rows of `pg_depend`: what types depend on, and columns on types.
pub(super) fn dependencies(cx: &SystemContext<'_>, add: &mut dyn FnMut(ObjectAddress, ObjectAddress, char)) {
    for ty in mine(cx) {
        add((oids::PG_TYPE, ty.oid, 0), (oids::PG_NAMESPACE, ty.schema, 0), 'n');
        if let Some(array) = ty.array() {
            add((oids::PG_TYPE, array.0, 0), (oids::PG_TYPE, ty.oid, 0), 'i');
        }
        if let Some(domain) = ty.as_domain() {
            let base = domain.over.unwrap_or(domain.base.ty.0);
            if cx.catalog().types.contains_key(&base) {
                add((oids::PG_TYPE, ty.oid, 0), (oids::PG_TYPE, base, 0), 'n');
            }
            for check in &domain.checks {
                add((oids::PG_CONSTRAINT, check.oid, 0), (oids::PG_TYPE, ty.oid, 0), 'a');
            }
        }
    }
    for table in cx.catalog().tables.values().filter(|table| table.database == cx.database()) {
        for column in table.columns.iter().filter(|column| !column.hidden) {
            let ty = column.domain.unwrap_or(column.ty.ty.0);
            let element = column.ty.ty.element().map_or(ty, |element| element.0);
            if cx.catalog().types.contains_key(&ty) || cx.catalog().types.contains_key(&element) {
                let column = (oids::PG_CLASS, table.oid, i64::from(column.id));
                add(column, (oids::PG_TYPE, ty, 0), 'n');
            }
        }
    }
}
