//! `pg_class`, `pg_attribute`, `pg_index`, `pg_constraint`, `pg_attrdef`.

use super::builtin::{access_method, default_opclass, types};
use super::deparse::constraint_oid;
use super::row::{SystemContext, bool, int, int2_array, int2vector, letter, oid, oidvector, optional, text};
use super::{tables, user_types};
use crate::catalog::descriptor::{
    ColumnDescriptor, EXPRESSION, IndexState, PRIMARY_INDEX, TableDescriptor, Timing,
};
use crate::catalog::oids;
use crate::inverted::OperatorClass;
use crate::table::{generated_text, key_names, predicate_text};
use sql_types::{ColumnType, Datum, Oid, Row, Type};
use std::sync::Arc;

/// The rows of one of these tables; `None` if it is another.
pub(super) fn rows(cx: &SystemContext<'_>) -> Option<Vec<Row>> {
    Some(match cx.table.name {
        "pg_class" => classes(cx),
        "pg_attribute" => attributes(cx),
        "pg_index" => indexes(cx),
        "pg_constraint" => constraints(cx),
        "pg_attrdef" => defaults(cx),
        _ => return None,
    })
}

fn my_tables<'a>(cx: &'a SystemContext<'_>) -> impl Iterator<Item = &'a std::sync::Arc<TableDescriptor>> {
    cx.catalog().tables.values().filter(|table| table.database == cx.database())
}

/// What distinguishes relations in `pg_class`.
struct Class<'a> {
    oid: Oid,
    name: &'a str,
    schema: Oid,
    owner: Oid,
    kind: char,
    columns: usize,
    rows: f64,
    pages: i64,
    has_index: bool,
    checks: usize,
    am: Oid,
    triggers: bool,
    /// Whether row security is enabled, and forced.
    security: (bool, bool),
    populated: bool,
}

fn class(cx: &SystemContext<'_>, c: Class<'_>) -> Row {
    cx.row(vec![
        ("oid", oid(c.oid)),
        ("relname", text(c.name)),
        ("relnamespace", oid(c.schema)),
        ("reltype", oid(0)),
        ("reloftype", oid(0)),
        ("relowner", oid(c.owner)),
        ("relam", oid(c.am)),
        ("relfilenode", oid(if c.kind == 'v' { 0 } else { c.oid })),
        ("reltablespace", oid(0)),
        ("relpages", int(c.pages)),
        ("reltuples", Datum::Float4(c.rows as f32)),
        ("relallvisible", int(0)),
        ("reltoastrelid", oid(0)),
        ("relhasindex", bool(c.has_index)),
        ("relisshared", bool(false)),
        ("relpersistence", letter(if c.schema == oids::PG_TEMP { 't' } else { 'p' })),
        ("relkind", letter(c.kind)),
        ("relnatts", int(c.columns as i64)),
        ("relchecks", int(c.checks as i64)),
        ("relhasrules", bool(matches!(c.kind, 'v' | 'm'))),
        ("relhastriggers", bool(c.triggers)),
        ("relhassubclass", bool(false)),
        ("relrowsecurity", bool(c.security.0)),
        ("relforcerowsecurity", bool(c.security.1)),
        ("relispopulated", bool(c.populated)),
        ("relreplident", letter(if matches!(c.kind, 'r' | 'm') { 'd' } else { 'n' })),
        ("relispartition", bool(false)),
        ("relrewrite", oid(0)),
        ("relfrozenxid", oid(0)),
        ("relminmxid", oid(0)),
    ])
}

fn classes(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let base = |oid, name, schema, owner, kind, columns| Class {
        oid,
        name,
        schema,
        owner,
        kind,
        columns,
        rows: -1.0,
        pages: 0,
        has_index: false,
        checks: 0,
        am: 0,
        triggers: false,
        security: (false, false),
        populated: true,
    };
    for table in tables::all() {
        let schema = super::contention::schema_oid(table.schema);
        let columns = table.columns().len();
        rows.push(class(cx, base(table.oid, table.name, schema, oids::OWNER, table.kind, columns)));
    }
    for table in my_tables(cx) {
        let visible = table.columns.iter().filter(|column| !column.hidden).count();
        let kind = if table.view.is_some() { 'm' } else { 'r' };
        let described = base(table.oid, &table.name, table.schema, table.owner, kind, visible);
        let has_keys = !table.foreign_keys.is_empty() || !cx.catalog().referencing(table.oid).is_empty();
        rows.push(class(
            cx,
            Class {
                rows: table.statistics.rows().unwrap_or(-1.0),
                pages: table.statistics.get().map_or(0, |statistics| statistics.pages()),
                has_index: table.indexes.iter().any(|index| index.oid != 0),
                checks: table.checks.len(),
                am: 2,
                triggers: has_keys || !table.triggers.is_empty(),
                security: (table.security.enabled, table.security.forced),
                populated: table.view.as_ref().is_none_or(|view| view.populated),
                ..described
            },
        ));
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            let described = base(
                index.oid,
                &index.name,
                table.schema,
                table.owner,
                'i',
                index.columns.len() + index.included.len(),
            );
            let rows_indexed = table.statistics.rows().unwrap_or(0.0);
            let pages = (rows_indexed / 100.0).ceil() as i64;
            let am = access_method(index);
            rows.push(class(cx, Class { am, rows: rows_indexed, pages, ..described }));
        }
    }
    for view in cx.catalog().views.values().filter(|view| view.database == cx.database()) {
        rows.push(class(cx, base(view.oid, &view.name, view.schema, view.owner, 'v', view.columns.len())));
    }
    for sequence in cx.catalog().sequences.values().filter(|sequence| sequence.database == cx.database()) {
        let described = base(sequence.oid, &sequence.name, sequence.schema, sequence.owner, 'S', 3);
        rows.push(class(cx, Class { rows: 1.0, ..described }));
    }
    rows
}

/// What distinguishes columns in `pg_attribute`.
#[derive(Default)]
struct Attribute<'a> {
    relation: Oid,
    name: &'a str,
    number: i16,
    ty: Option<ColumnType>,
    not_null: bool,
    has_default: bool,
    identity: Option<char>,
    generated: bool,
    has_missing: bool,
    domain: Option<Oid>,
}

fn attribute(cx: &SystemContext<'_>, a: Attribute<'_>) -> Row {
    let ty = a.ty.unwrap_or(ColumnType::plain(Type::TEXT));
    let builtin = types().iter().find(|builtin| builtin.oid == ty.ty.0);
    let is_enum = ty.ty.is_enum();
    cx.row(vec![
        ("attrelid", oid(a.relation)),
        ("attname", text(a.name)),
        ("atttypid", oid(a.domain.unwrap_or(ty.ty.0))),
        ("attstattarget", int(-1)),
        ("attlen", int(builtin.map_or(if is_enum { 4 } else { -1 }, |ty| i64::from(ty.len)))),
        ("attnum", int(i64::from(a.number))),
        ("attndims", int(i64::from(ty.ty.is_plain_array()))),
        ("attcacheoff", int(-1)),
        // That of a domain is its own.
        ("atttypmod", int(if a.domain.is_some() { -1 } else { i64::from(ty.typmod) })),
        ("attbyval", bool(builtin.map_or(is_enum, |ty| ty.by_value))),
        ("attalign", letter(builtin.map_or('i', |ty| ty.align))),
        ("attstorage", letter(builtin.map_or(if is_enum { 'p' } else { 'x' }, |ty| ty.storage))),
        ("attcompression", text("")),
        ("attnotnull", bool(a.not_null)),
        ("atthasdef", bool(a.has_default)),
        ("atthasmissing", bool(a.has_missing)),
        ("attidentity", a.identity.map_or_else(|| text(""), letter)),
        ("attgenerated", if a.generated { letter('s') } else { text("") }),
        ("attisdropped", bool(false)),
        ("attislocal", bool(true)),
        ("attinhcount", int(0)),
        ("attcollation", oid(builtin.map_or(0, |ty| ty.collation))),
    ])
}

fn attributes(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in tables::all() {
        for (position, (name, ty)) in table.columns().iter().enumerate() {
            let number = position as i16 + 1;
            rows.push(attribute(
                cx,
                Attribute { relation: table.oid, name, number, ty: Some((*ty).into()), ..Default::default() },
            ));
        }
    }
    for table in my_tables(cx) {
        for column in table.columns.iter().filter(|column| !column.hidden) {
            rows.push(attribute(
                cx,
                Attribute {
                    relation: table.oid,
                    name: &column.name,
                    number: column.id as i16,
                    ty: Some(column.ty),
                    not_null: !column.nullable,
                    has_default: stored_default(table, column).is_some(),
                    identity: column.identity,
                    generated: column.generated.is_some(),
                    has_missing: column.added_value.is_some(),
                    domain: column.domain,
                },
            ));
        }
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            let keys = index.parts().map(|(id, expression, _)| {
                let (name, ty) = match expression {
                    Some(expression) => (expression.name.as_str(), expression.ty.into()),
                    None => table.column(id).map(|column| (column.name.as_str(), column.ty))?,
                };
                let kept = |class: OperatorClass| match class.key_type() {
                    Type::ANYELEMENT => ty.ty.element().unwrap_or(ty.ty).into(),
                    kept => kept.into(),
                };
                Some((name, index.inverted.map_or(ty, kept)))
            });
            let included = index.included.iter().map(|id| {
                let column = table.column(*id)?;
                Some((column.name.as_str(), column.ty))
            });
            for (position, column) in keys.chain(included).enumerate() {
                let Some((name, ty)) = column else { continue };
                let number = position as i16 + 1;
                rows.push(attribute(
                    cx,
                    Attribute { relation: index.oid, name, number, ty: Some(ty), ..Default::default() },
                ));
            }
        }
    }
    for view in cx.catalog().views.values().filter(|view| view.database == cx.database()) {
        for (position, (name, ty)) in view.columns.iter().enumerate() {
            let number = position as i16 + 1;
            rows.push(attribute(
                cx,
                Attribute { relation: view.oid, name, number, ty: Some(*ty), ..Default::default() },
            ));
        }
    }
    for sequence in cx.catalog().sequences.values().filter(|sequence| sequence.database == cx.database()) {
        let columns = [("last_value", Type::INT8), ("log_cnt", Type::INT8), ("is_called", Type::BOOL)];
        for (position, (name, ty)) in columns.into_iter().enumerate() {
            let number = position as i16 + 1;
            rows.push(attribute(
                cx,
                Attribute {
                    relation: sequence.oid,
                    name,
                    number,
                    ty: Some(ty.into()),
                    not_null: true,
                    ..Default::default()
                },
            ));
        }
    }
    rows
}

fn indexes(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            let keys = key_names(table, index);
            let collations = keys
                .iter()
                .map(|(_, key)| types().iter().find(|ty| ty.oid == key.0).map_or(0, |ty| ty.collation));
            let classes = keys.iter().map(|(_, ty)| match index.inverted {
                Some(class) => class.oids().0,
                None => default_opclass(*ty),
            });
            let all = keys.len() + index.included.len();
            let ids = index.columns.iter().map(|(id, _)| *id).chain(index.included.iter().copied());
            let of_expressions = index.columns.iter().zip(&keys).filter(|((id, _), _)| *id == EXPRESSION);
            let expressions: Vec<&str> = of_expressions.map(|(_, (text, _))| text.as_str()).collect();
            let expressions = Some(expressions.join(", ")).filter(|text| !text.is_empty());
            let expressions = expressions.map(|text| cx.view.explained(text));
            let predicate = predicate_text(table, index).map(|text| cx.view.explained(text));
            rows.push(cx.row(vec![
                ("indexrelid", oid(index.oid)),
                ("indrelid", oid(table.oid)),
                ("indnatts", int(all as i64)),
                ("indnkeyatts", int(keys.len() as i64)),
                ("indisunique", bool(index.unique)),
                ("indnullsnotdistinct", bool(index.nulls_not_distinct)),
                ("indisprimary", bool(index.id == PRIMARY_INDEX)),
                ("indisexclusion", bool(false)),
                ("indimmediate", bool(!index.timing.deferrable)),
                ("indisclustered", bool(false)),
                ("indisvalid", bool(index.is_public())),
                ("indcheckxmin", bool(false)),
                ("indisready", bool(index.state != IndexState::DeleteOnly)),
                ("indislive", bool(true)),
                ("indisreplident", bool(false)),
                ("indkey", int2vector(ids.map(|id| id as i16))),
                ("indcollation", oidvector(collations)),
                ("indclass", oidvector(classes)),
                (
                    "indoption",
                    int2vector(index.columns.iter().map(|(_, descending)| if *descending { 3 } else { 0 })),
                ),
                ("indexprs", optional(expressions.as_deref())),
                ("indpred", optional(predicate.as_deref())),
            ]));
        }
    }
    rows
}

fn constraints(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let common = |oid_: Oid, name: &str, table: &TableDescriptor, kind: char, timing: Timing, valid: bool| {
        vec![
            ("oid", oid(oid_)),
            ("conname", text(name)),
            ("connamespace", oid(table.schema)),
            ("contype", letter(kind)),
            ("condeferrable", bool(timing.deferrable)),
            ("condeferred", bool(timing.deferred)),
            ("convalidated", bool(valid)),
            ("conrelid", oid(table.oid)),
            ("contypid", oid(0)),
            ("conparentid", oid(0)),
            ("conislocal", bool(true)),
            ("coninhcount", int(0)),
            ("connoinherit", bool(kind != 'c')),
        ]
    };
    let no_reference = || {
        vec![
            ("confrelid", oid(0)),
            ("confupdtype", text(" ")),
            ("confdeltype", text(" ")),
            ("confmatchtype", text(" ")),
        ]
    };
    for table in my_tables(cx) {
        for index in table.indexes.iter().filter(|index| index.constraint) {
            let kind = if index.id == PRIMARY_INDEX { 'p' } else { 'u' };
            let mut values = common(constraint_oid(index), &index.name, table, kind, index.timing, true);
            values.extend(no_reference());
            values.push(("conindid", oid(index.oid)));
            values.push(("conkey", int2_array(index.columns.iter().map(|(id, _)| *id as i16))));
            rows.push(cx.row(values));
        }
        for check in &table.checks {
            let mut values = common(
                check.oid,
                &check.name,
                table,
                'c',
                Timing::default(),
                check.validity.is_shown_valid(),
            );
            values.extend(no_reference());
            values.push(("conindid", oid(0)));
            let lower = check.expr.to_lowercase();
            let words: Vec<&str> = lower.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let named = table.columns.iter().filter(|column| words.contains(&&*column.name.to_lowercase()));
            values.push(("conkey", int2_array(named.map(|column| column.id as i16))));
            values.push(("conbin", text(&cx.view.named_types(&check.expr))));
            rows.push(cx.row(values));
        }
        for key in &table.foreign_keys {
            let mut values =
                common(key.oid, &key.name, table, 'f', key.timing, key.validity.is_shown_valid());
            let index = cx.catalog().table(key.referenced_table).and_then(|referenced| {
                referenced.indexes.iter().find(|index| {
                    index.is_key()
                        && index.columns.len() == key.referenced_columns.len()
                        && index.columns.iter().all(|(id, _)| key.referenced_columns.contains(id))
                })
            });
            values.push(("confrelid", oid(key.referenced_table)));
            values.push(("confupdtype", letter(key.on_update)));
            values.push(("confdeltype", letter(key.on_delete)));
            values.push(("confmatchtype", letter('s')));
            values.push(("conindid", oid(index.map_or(0, |index| index.oid))));
            values.push(("conkey", int2_array(key.columns.iter().map(|id| *id as i16))));
            values.push(("confkey", int2_array(key.referenced_columns.iter().map(|id| *id as i16))));
            rows.push(cx.row(values));
        }
    }
    for ty in user_types::mine(cx) {
        for check in ty.as_domain().map(|domain| domain.checks.as_slice()).unwrap_or_default() {
            let mut values = vec![
                ("oid", oid(check.oid)),
                ("conname", text(&check.name)),
                ("connamespace", oid(ty.schema)),
                ("contype", letter('c')),
                ("condeferrable", bool(false)),
                ("condeferred", bool(false)),
                ("convalidated", bool(true)),
                ("conrelid", oid(0)),
                ("contypid", oid(ty.oid)),
                ("conparentid", oid(0)),
                ("conislocal", bool(true)),
                ("coninhcount", int(0)),
                ("connoinherit", bool(false)),
                ("conindid", oid(0)),
                ("conbin", text(&cx.view.named_types(&check.expr))),
            ];
            values.extend(no_reference());
            rows.push(cx.row(values));
        }
    }
    rows
}

/// The OID of a default: in a range of its own, from the table's OID and the column.
pub(super) fn default_oid(table: Oid, column: u32) -> Oid {
    0x8000_0000 | (table.wrapping_mul(1601).wrapping_add(column) & 0x7fff_ffff)
}

/// What `pg_attrdef` has of a column: its default, or the expression it is generated by.
pub(super) fn stored_default(table: &Arc<TableDescriptor>, column: &ColumnDescriptor) -> Option<String> {
    let default = column.default.clone().filter(|_| column.identity.is_none());
    default.or_else(|| generated_text(table, column))
}

fn defaults(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        for column in table.columns.iter().filter(|column| !column.hidden) {
            let Some(default) = stored_default(table, column) else { continue };
            rows.push(cx.row(vec![
                ("oid", oid(default_oid(table.oid, column.id))),
                ("adrelid", oid(table.oid)),
                ("adnum", int(i64::from(column.id))),
                ("adbin", text(&cx.view.default_text(&default))),
            ]));
        }
    }
    rows
}
