//! `pg_stats`: the statistics of columns.

use super::row::{SystemContext, bool, int, text};
use crate::statistics::{ColumnStatistics, TableStatistics};
use sql_types::{Datum, Row, Type};

/// A number of distinct values that grows with the table is shown as a share of its rows, negative, from this share on.
const GROWING: f64 = 0.1;

/// The statistics of the columns that the user may read.
pub(super) fn rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let catalog = cx.catalog();
    let mut rows = Vec::new();
    for table in catalog.tables.values().filter(|table| table.database == cx.database()) {
        if !catalog.has_privilege(cx.view.user, table.owner, table.oid, 'r')
            || catalog.secures(table, cx.view.user)
        {
            continue;
        }
        let Some(statistics) = table.statistics.get() else { continue };
        let schema = catalog.schema_name(table.database, table.schema).unwrap_or("");
        for column in table.columns.iter().filter(|column| !column.hidden) {
            let Some(known) = statistics.column(table, column.id) else { continue };
            let mut row = vec![
                ("schemaname", text(schema)),
                ("tablename", text(&table.name)),
                ("attname", text(&column.name)),
                ("inherited", bool(false)),
            ];
            row.extend(described(cx, &statistics, known));
            rows.push(cx.row(row));
        }
    }
    rows
}

fn described(
    cx: &SystemContext<'_>,
    statistics: &TableStatistics,
    column: &ColumnStatistics,
) -> Vec<(&'static str, Datum)> {
    let list = |values: Vec<Datum>| -> Datum {
        let Some(ty) = column.ty.array().filter(|_| !values.is_empty()) else { return Datum::Null };
        let array = Datum::array(column.ty, values);
        Datum::text(sql_types::text::to_string(&array, ty, &cx.view.text(0)))
    };
    let share = |share: f64| Datum::Float4(share as f32);
    let distinct = match column.distinct / statistics.rows.max(1.0) {
        share if share > GROWING => -share,
        _ => column.distinct,
    };
    let common = &column.most_common;
    let shares: Vec<Datum> = common.iter().map(|(_, common)| share(*common)).collect();
    vec![
        ("null_frac", share(column.null_fraction)),
        ("avg_width", int(column.width.round() as i64)),
        ("n_distinct", share(distinct)),
        ("most_common_vals", list(common.iter().map(|(value, _)| value.clone()).collect())),
        (
            "most_common_freqs",
            if shares.is_empty() { Datum::Null } else { Datum::array(Type::FLOAT4, shares) },
        ),
        ("histogram_bounds", list(column.histogram.clone())),
    ]
}
