//! Errors of constraints, in PostgreSQL's words.

use crate::catalog::descriptor::{ForeignKeyDescriptor, TableDescriptor};
use crate::exec::{ExecContext, ExecHost, kv_error};
use crate::plan::Plan;
use crate::table::{TableCodec, codec};
use kv_api::{KvError, KvErrorKind};
use sql_types::context::TextContext;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type, text};
use std::sync::Arc;

/// Longest value shown of a failing row, in characters.
const SHOWN_CHARACTERS: usize = 64;

fn place(
    mut error: SqlError,
    host: &dyn ExecHost,
    table: &TableDescriptor,
    constraint: Option<&str>,
) -> SqlError {
    let extra = error.extra_mut();
    extra.schema = host.schema_name(table.schema);
    extra.table = Some(table.name.clone());
    extra.constraint = constraint.map(str::to_string);
    error
}

fn shown(value: &Datum, ty: Type, context: &TextContext<'_>) -> String {
    if value.is_null() { "null".to_string() } else { text::to_string(value, ty, context) }
}

/// An error with a detail that shows values of a table, unless policies hide rows of it.
fn with_values(
    error: SqlError,
    host: &dyn ExecHost,
    table: &TableDescriptor,
    detail: impl FnOnce() -> String,
) -> SqlError {
    if host.secures(table) { error } else { error.with_detail(detail()) }
}

/// `Failing row contains (…).`
fn failing_row(cx: &ExecContext<'_>, table: &TableDescriptor, row: &[Datum]) -> String {
    let value = |value: &Datum, ty: Type| {
        let full = shown(value, ty, &cx.eval.text);
        match full.char_indices().nth(SHOWN_CHARACTERS) {
            Some((end, _)) => format!("{}...", &full[..end]),
            None => full,
        }
    };
    let values: Vec<String> = table
        .columns
        .iter()
        .zip(row)
        .filter(|(column, _)| !column.hidden)
        .map(|(column, datum)| value(datum, column.ty.ty))
        .collect();
    format!("Failing row contains ({}).", values.join(", "))
}

/// 23502
pub(super) fn not_null(
    cx: &ExecContext<'_>,
    table: &TableDescriptor,
    position: usize,
    row: &[Datum],
) -> SqlError {
    let column = table.columns.get(position).map_or("", |column| &column.name);
    let message = format!(
        "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
        table.name
    );
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
    let error = with_values(error, cx.host, table, || failing_row(cx, table, row));
    let mut error = place(error, cx.host, table, None);
    error.extra_mut().column = Some(column.to_string());
    error
}

/// 23514
pub(super) fn check(cx: &ExecContext<'_>, table: &TableDescriptor, name: &str, row: &[Datum]) -> SqlError {
    let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    let error = SqlError::new(SqlState::CHECK_VIOLATION, message);
    let error = with_values(error, cx.host, table, || failing_row(cx, table, row));
    place(error, cx.host, table, Some(name))
}

/// `(a, b)=(1, x)`
fn key_text<N: AsRef<str>>(columns: &[(N, Type)], values: &[Datum], context: &TextContext<'_>) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_ref()).collect();
    let values: Vec<String> =
        columns.iter().zip(values).map(|((_, ty), value)| shown(value, *ty, context)).collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

fn named(table: &TableDescriptor, ids: impl Iterator<Item = u32>) -> Vec<(&str, Type)> {
    ids.filter_map(|id| table.column(id)).map(|column| (column.name.as_str(), column.ty.ty)).collect()
}

/// The name of the index that a key belongs to, and the key as messages have it.
pub(crate) fn described_key(
    codec: &TableCodec,
    key: &[u8],
    context: &TextContext<'_>,
) -> Option<(String, String)> {
    let table = codec.table();
    let index = codec::split_key(key).and_then(|(_, id, _)| table.index(id))?;
    let (values, _) = codec.index(index.id).and_then(|layout| layout.decode_columns(key)).ok()?;
    let mut columns = named(table, index.columns.iter().map(|(id, _)| *id));
    if index.inverted.is_some() {
        // What lies in the key is a token of the value.
        columns.iter_mut().for_each(|(_, ty)| *ty = Type::BYTEA);
    }
    Some((index.name.clone(), key_text(&columns, &values, context)))
}

/// 23505 for a key of an index that exists already.
pub(super) fn duplicate(
    host: &dyn ExecHost,
    context: &TextContext<'_>,
    table: &Arc<TableDescriptor>,
    codec: &TableCodec,
    key: &[u8],
) -> SqlError {
    let index = codec::split_key(key).and_then(|(_, id, _)| table.index(id));
    let Some(index) = index else {
        return SqlError::new(SqlState::UNIQUE_VIOLATION, "duplicate key value violates unique constraint");
    };
    let message = format!("duplicate key value violates unique constraint \"{}\"", index.name);
    let mut error = SqlError::new(SqlState::UNIQUE_VIOLATION, message);
    if let Ok((values, _)) = codec.index(index.id).and_then(|layout| layout.decode_columns(key)) {
        let columns = crate::table::key_names(table, index);
        error = with_values(error, host, table, || {
            format!("Key {} already exists.", key_text(&columns, &values, context))
        });
    }
    place(error, host, table, Some(&index.name))
}

/// 23503 on the referring side.
pub(super) fn not_present(
    cx: &ExecContext<'_>,
    table: &TableDescriptor,
    key: &ForeignKeyDescriptor,
    values: &[Datum],
    parent: &TableDescriptor,
) -> SqlError {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        table.name, key.name
    );
    let columns = named(table, key.columns.iter().copied());
    let key_shown = match cx.host.secures(table) {
        true => String::new(),
        false => format!("{} ", key_text(&columns, values, &cx.eval.text)),
    };
    let detail = format!("Key {key_shown}is not present in table \"{}\".", parent.name);
    let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail);
    place(error, cx.host, table, Some(&key.name))
}

/// 23503 on the side referred to.
pub(super) fn still_referenced(
    cx: &ExecContext<'_>,
    parent: &TableDescriptor,
    values: &[Datum],
    table: &TableDescriptor,
    key: &ForeignKeyDescriptor,
) -> SqlError {
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        parent.name, key.name, table.name
    );
    let columns = named(parent, key.referenced_columns.iter().copied());
    let key_shown = match cx.host.secures(parent) {
        true => String::new(),
        false => format!("{} ", key_text(&columns, values, &cx.eval.text)),
    };
    let detail = format!("Key {key_shown}is still referenced from table \"{}\".", table.name);
    let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail);
    place(error, cx.host, table, Some(&key.name))
}

/// The tables a plan may write, foreign keys' effects aside.
pub fn changed_tables(plan: &Plan) -> Vec<Arc<TableDescriptor>> {
    let mut tables = Vec::new();
    collect(plan, &mut tables);
    tables
}

fn collect(plan: &Plan, tables: &mut Vec<Arc<TableDescriptor>>) {
    tables.extend(plan.kind.changed_table().cloned());
    plan.for_each_child(&mut |child, _| collect(child, tables));
}

/// The SQL error for a commit or flush that failed: a condition that did not hold is the violation of
/// a unique constraint of one of `tables` (see [`changed_tables`]); anything else is as
/// [`kv_error`] has it.
pub fn commit_error(
    error: KvError,
    tables: &[Arc<TableDescriptor>],
    host: &dyn ExecHost,
    context: &TextContext<'_>,
) -> SqlError {
    if error.kind() != KvErrorKind::ConditionFailed {
        return kv_error(error);
    }
    let found = error.key.as_ref().and_then(|key| {
        let (storage, ..) = codec::split_key(key)?;
        let table = tables.iter().find(|table| table.storage == storage)?;
        let codec = TableCodec::new(table.clone()).ok()?;
        Some(duplicate(host, context, table, &codec, key))
    });
    found.unwrap_or_else(|| kv_error(error))
}

/// As [`commit_error`], for a write of one table.
pub(super) fn write_error<T>(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    result: Result<T, KvError>,
) -> SqlResult<T> {
    result.map_err(|error| commit_error(error, std::slice::from_ref(codec.table()), cx.host, &cx.eval.text))
}
