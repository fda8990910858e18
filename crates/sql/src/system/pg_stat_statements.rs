//! `pg_stat_statements`: what statements did on this SQL node.

use super::row::{SystemContext, bool, int, oid, text};
use sql_types::{Datum, Row};

/// The rows. Of other users' statements only superusers see the text.
pub(super) fn rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let engine = &cx.view.shared.engine;
    let mut entries = engine.statement_statistics.all();
    entries.sort_by_key(|entry| (entry.key.user, entry.key.database, entry.key.query_id));
    let row = |entry: &std::sync::Arc<crate::session::statement_statistics::Entry>| {
        let shown = cx.view.is_superuser() || entry.key.user == cx.view.user;
        let counts = entry.counts();
        let count = |number: u64| int(i64::try_from(number).unwrap_or(i64::MAX));
        let mut values = vec![
            ("userid", oid(entry.key.user)),
            ("dbid", oid(entry.key.database)),
            ("toplevel", bool(true)),
            ("queryid", if shown { int(entry.key.query_id) } else { Datum::Null }),
            ("query", text(if shown { &entry.text } else { "<insufficient privilege>" })),
            ("plans", int(0)),
            ("calls", count(counts.calls)),
            ("total_exec_time", Datum::Float8(counts.total)),
            ("min_exec_time", Datum::Float8(counts.least)),
            ("max_exec_time", Datum::Float8(counts.most)),
            ("mean_exec_time", Datum::Float8(counts.mean)),
            ("stddev_exec_time", Datum::Float8(counts.deviation)),
            ("rows", count(counts.rows)),
        ];
        for time in
            ["total_plan_time", "min_plan_time", "max_plan_time", "mean_plan_time", "stddev_plan_time"]
        {
            values.push((time, Datum::Float8(0.0)));
        }
        cx.row(values)
    };
    entries.iter().map(row).collect()
}
