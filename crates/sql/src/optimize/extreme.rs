//! `max(column)` and `min(column)` read one end of an index.

use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::plan::{AggregateCall, Expr, Plan, PlanKind, SortKey};
use sql_types::{Datum, Type};

/// Puts a limit of one row, in the order wanted, below such aggregates where an index starts with the
/// column.
pub fn read_ends(plan: &mut Plan) {
    plan.for_each_child_mut(&mut |child, _| read_ends(child));
    let PlanKind::Aggregate { input, groups, aggregates, .. } = &mut plan.kind else { return };
    let [call] = &aggregates[..] else { return };
    if !groups.is_empty() {
        return;
    }
    let Some((column, descending)) = extreme(call) else { return };
    if !reads_by_index(input, column) {
        return;
    }
    let ty = call.ty;
    let columns = input.columns.clone();
    let scan = std::mem::replace(input.as_mut(), Plan::one_row());
    let mut sorted = scan;
    if let PlanKind::Scan { filter, table, columns, .. } = &mut sorted.kind
        && columns.get(column).and_then(|id| table.column(*id)).is_none_or(|column| column.nullable)
    {
        let mut conjuncts = filter.take().map_or_else(Vec::new, Expr::into_conjuncts);
        conjuncts.push(Expr::IsNull(Box::new(Expr::Column(column, ty)), true));
        *filter = Expr::conjunction(conjuncts);
    }
    let key = SortKey { expr: Expr::Column(column, ty), descending, nulls_first: descending };
    let kind = PlanKind::Sort { input: Box::new(sorted), keys: vec![key], limit: None };
    let sort = Plan::new(kind, columns.clone());
    let limit = Some(Expr::Const(Datum::Int8(1), Type::INT8));
    **input = Plan::new(PlanKind::Limit { input: Box::new(sort), limit, offset: None }, columns);
}

/// The column, and whether its greatest value is wanted.
fn extreme(call: &AggregateCall) -> Option<(usize, bool)> {
    let descending = match call.function.name {
        "max" => true,
        "min" => false,
        _ => return None,
    };
    match &call.args[..] {
        [Expr::Column(column, _)] if call.filter.is_none() && call.order.is_empty() => {
            Some((*column, descending))
        }
        _ => None,
    }
}

fn reads_by_index(plan: &Plan, column: usize) -> bool {
    let PlanKind::Scan { table, columns, lock: None, filter, .. } = &plan.kind else { return false };
    let Some(id) = columns.get(column) else { return false };
    filter.is_none() && starts_an_index(table, *id)
}

fn starts_an_index(table: &TableDescriptor, id: ColumnId) -> bool {
    table.indexes.iter().any(|index| {
        index.is_public() && index.is_plain() && index.columns.first().is_some_and(|(own, _)| *own == id)
    })
}
