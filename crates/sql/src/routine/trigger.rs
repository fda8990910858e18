//! Triggers: which run for a change of rows, and what their functions see.

use super::nested;
use super::plpgsql::frame::Holder;
use super::plpgsql::machine::Gives;
use super::stack::planning;
use crate::bind;
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::{RoutineDescriptor, TriggerDescriptor, TriggerEvent};
use crate::exec::ExecContext;
use crate::exec::eval::{EvalEnv, is_true};
use crate::plan::Expr;
use crate::session::Host;
use sql_types::{ColumnType, Datum, RecordValue, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// The fields of `NEW` and `OLD`: the columns of the full row, hidden ones without a name that could be written.
pub(crate) fn fields(table: &TableDescriptor) -> Vec<(Arc<str>, ColumnType)> {
    let shown = table.columns.iter().filter(|column| !column.hidden);
    shown.map(|column| (column.name.as_str().into(), column.ty)).collect()
}

/// What a trigger's function is called with.
pub struct TriggerCall<'a> {
    /// The table.
    pub table: &'a Arc<TableDescriptor>,
    /// The trigger.
    pub trigger: &'a TriggerDescriptor,
    /// What happened.
    pub event: TriggerEvent,
    /// The full row before.
    pub old: Option<&'a [Datum]>,
    /// The full row after.
    pub new: Option<&'a [Datum]>,
}

/// The columns of a full row that can be named.
fn visible(table: &TableDescriptor, row: &[Datum]) -> Row {
    let columns = table.columns.iter().zip(row).filter(|(column, _)| !column.hidden);
    columns.map(|(_, value)| value.clone()).collect()
}

/// Calls the function of a trigger. The row it returns, with what it does not name from `base`; `None` for NULL.
pub(crate) async fn call(
    host: &Host<'_>,
    routine: &RoutineDescriptor,
    call: &TriggerCall<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<Option<Row>> {
    let TriggerCall { table, trigger, event, old, new } = call;
    let columns: Arc<[(Arc<str>, ColumnType)]> = fields(table).into();
    let schema = host.view.snapshot().schema_name(table.database, table.schema).unwrap_or_default();
    let value = nested::run(host, routine, Gives::Row, cx, |frame| {
        let row = |values: &Option<&[Datum]>| Holder::Row {
            fields: columns.clone(),
            values: values.map(|values| visible(table, values)).unwrap_or_default(),
            fixed: true,
        };
        frame.add(None, "new", row(new));
        frame.add(None, "old", row(old));
        let text = |value: &str| Holder::Value(ColumnType::plain(Type::TEXT), Datum::text(value));
        frame.add(None, "tg_name", text(&trigger.name));
        frame.add(None, "tg_when", text(if trigger.before { "BEFORE" } else { "AFTER" }));
        frame.add(None, "tg_level", text(if trigger.for_row { "ROW" } else { "STATEMENT" }));
        frame.add(None, "tg_op", text(event.name()));
        frame.add(None, "tg_relid", Holder::Value(ColumnType::plain(Type::OID), Datum::Oid(table.oid)));
        frame.add(None, "tg_relname", text(&table.name));
        frame.add(None, "tg_table_name", text(&table.name));
        frame.add(None, "tg_table_schema", text(schema));
        let count = i32::try_from(trigger.arguments.len()).unwrap_or(i32::MAX);
        frame.add(None, "tg_nargs", Holder::Value(ColumnType::plain(Type::INT4), Datum::Int4(count)));
        let arguments = trigger.arguments.iter().map(|text| Datum::text(text.as_str())).collect::<Vec<_>>();
        let dimensions = if arguments.is_empty() { Vec::new() } else { vec![(arguments.len(), 0)] };
        let array = sql_types::ArrayValue { element: Type::TEXT, dimensions, values: arguments };
        let ty = ColumnType::plain(Type::TEXT.array().unwrap_or(Type::TEXT));
        frame.add(None, "tg_argv", Holder::Value(ty, Datum::Array(Arc::new(array))));
    })
    .await?;
    let Datum::Record(record) = value else { return Ok(None) };
    if trigger.for_row {
        check_structure(&record, &columns)?;
    }
    let base = new.or(*old).unwrap_or_default();
    let mut given = record.values.iter();
    let full = table.columns.iter().enumerate().map(|(position, column)| {
        if column.hidden {
            base.get(position).cloned().unwrap_or_default()
        } else {
            given.next().cloned().unwrap_or_default()
        }
    });
    Ok(Some(full.collect()))
}

/// Fails with 42804 if what a function returned is no row of the table.
fn check_structure(record: &RecordValue, columns: &[(Arc<str>, ColumnType)]) -> SqlResult<()> {
    let wrong = |detail: Option<String>| {
        let message = "returned row structure does not match the structure of the triggering table";
        let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message);
        match detail {
            Some(detail) => Err(error.with_detail(detail)),
            None => Err(error),
        }
    };
    if record.values.len() != columns.len() {
        let (given, wanted) = (record.values.len(), columns.len());
        return wrong(Some(format!(
            "Number of returned columns ({given}) does not match expected column count ({wanted})."
        )));
    }
    let Some(fields) = &record.fields else { return wrong(None) };
    for (number, (field, (_, wanted))) in fields.iter().zip(columns).enumerate() {
        if field.ty != wanted.ty {
            let column = number + 1;
            return wrong(Some(format!(
                "Returned type {} does not match expected type {} in column {column}.",
                field.ty, wanted.ty
            )));
        }
    }
    if fields.len() == columns.len() { Ok(()) } else { wrong(None) }
}

impl TriggerCall<'_> {
    /// Whether the condition of the trigger, as [`condition`] gives it, holds.
    pub(crate) fn meets(&self, condition: &Expr, cx: &ExecContext<'_>) -> SqlResult<bool> {
        let columns = fields(self.table).len();
        let values = |row: Option<&[Datum]>| match row {
            Some(row) => visible(self.table, row),
            None => vec![Datum::Null; columns],
        };
        let mut params = values(self.new);
        params.extend(values(self.old));
        is_true(condition, &[], &EvalEnv { eval: cx.eval, params: &params, outer: None })
    }
}

/// The condition of a trigger over the values of `new` and `old` as parameters.
pub(crate) fn condition(
    host: &Host<'_>,
    table: &Arc<TableDescriptor>,
    trigger: &TriggerDescriptor,
) -> SqlResult<Option<Expr>> {
    let Some(when) = &trigger.when else { return Ok(None) };
    let eval = host.view.eval(host.times);
    let context = host.view.bind_context(&eval, &[]);
    planning(|| bind::bind_trigger_condition(when, table, &context)).map(Some)
}
