//! `pg_settings`, time zones, functions and operators as rows.

use super::registry;
use super::row::{SystemContext, bool, int, letter, oid, oidvector, optional, text};
use crate::catalog::oids;
use crate::session::definitions::{self, Definition, Kind};
use crate::session::settings::kind_name;
use crate::session::view::{SessionView, now_micros};
use sql_types::datetime::TimeZone;
use sql_types::{Datum, Interval, Row, Type};

/// The rows of one of these tables; `None` if it is another.
pub(super) fn rows(cx: &SystemContext<'_>) -> Option<Vec<Row>> {
    Some(match cx.table.name {
        "pg_settings" => all(cx.view),
        "pg_timezone_names" => zones(),
        "pg_proc" => procs(cx),
        "pg_operator" => operators(cx),
        "pg_aggregate" => Vec::new(),
        _ => return None,
    })
}

/// The rows of `pg_settings`.
pub(super) fn all(view: &SessionView) -> Vec<Row> {
    let settings = view.shared.settings.lock();
    let row = |definition: &Definition| {
        let value = settings.raw(definition.name).unwrap_or_default();
        let source = if settings.is_set(definition.name) { "session" } else { "default" };
        let filled = |value: &'static str| optional(Some(value).filter(|value| !value.is_empty()));
        let allowed = match definition.kind {
            Kind::Enum => Datum::array(Type::TEXT, definition.allowed.split(',').map(Datum::text).collect()),
            _ => Datum::Null,
        };
        vec![
            text(definition.name),
            Datum::text(value),
            filled(definition.unit),
            text(definition.category),
            text(definition.description),
            Datum::Null,
            text(definition.context),
            text(kind_name(definition.kind)),
            text(source),
            filled(definition.min),
            filled(definition.max),
            allowed,
            text(definition.default),
            optional(settings.reset_value(definition.name).as_deref()),
            Datum::Null,
            Datum::Null,
            bool(false),
        ]
    };
    definitions::all().iter().map(row).collect()
}

/// The rows of `pg_timezone_names`.
pub(super) fn zones() -> Vec<Row> {
    let now = now_micros();
    let zones = chrono_tz::TZ_VARIANTS.iter().map(|zone| TimeZone::Named(*zone));
    zones
        .map(|zone| {
            let offset = i64::from(zone.offset_at(now)) * 1_000_000;
            vec![
                text(zone.name()),
                Datum::text(zone.abbreviation_at(now)),
                Datum::Interval(Interval { months: 0, days: 0, micros: offset }),
                bool(false),
            ]
        })
        .collect()
}

fn procs(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = registry::functions()
        .iter()
        .map(|function| {
            cx.row(vec![
                ("oid", oid(function.oid)),
                ("proname", text(function.name)),
                ("pronamespace", oid(oids::PG_CATALOG)),
                ("proowner", oid(oids::OWNER)),
                ("prolang", oid(12)),
                ("procost", int(1)),
                ("prorows", int(if function.set { 1000 } else { 0 })),
                ("provariadic", oid(if function.variadic { 2276 } else { 0 })),
                ("prosupport", oid(0)),
                ("prokind", letter(function.kind)),
                ("prosecdef", bool(false)),
                ("proleakproof", bool(false)),
                ("proisstrict", bool(function.strict)),
                ("proretset", bool(function.set)),
                ("provolatile", letter(function.volatility)),
                ("proparallel", letter('s')),
                ("pronargs", int(function.args.len() as i64)),
                ("pronargdefaults", int(0)),
                ("prorettype", oid(function.returns.0)),
                ("proargtypes", oidvector(function.args.iter().map(|ty| ty.0))),
                ("prosrc", text(function.name)),
            ])
        })
        .collect();
    rows.extend(super::routine::procs(cx));
    for (number, name) in super::builtin::type_functions() {
        rows.push(cx.row(vec![
            ("oid", oid(*number)),
            ("proname", text(name)),
            ("pronamespace", oid(oids::PG_CATALOG)),
            ("proowner", oid(oids::OWNER)),
            ("prolang", oid(12)),
            ("prokind", letter('f')),
            ("proisstrict", bool(true)),
            ("proretset", bool(false)),
            ("provolatile", letter('i')),
            ("proparallel", letter('s')),
            ("pronargs", int(1)),
            ("prorettype", oid(2281)),
            ("proargtypes", oidvector([2281])),
            ("prosrc", text(name)),
        ]));
    }
    rows
}

fn operators(cx: &SystemContext<'_>) -> Vec<Row> {
    registry::operators()
        .map(|(number, name, left, right, result)| {
            cx.row(vec![
                ("oid", oid(number)),
                ("oprname", text(name)),
                ("oprnamespace", oid(oids::PG_CATALOG)),
                ("oprowner", oid(oids::OWNER)),
                ("oprkind", letter(if left.0 == 0 { 'l' } else { 'b' })),
                ("oprcanmerge", bool(false)),
                ("oprcanhash", bool(false)),
                ("oprleft", oid(left.0)),
                ("oprright", oid(right.0)),
                ("oprresult", oid(result.0)),
                ("oprcom", oid(0)),
                ("oprnegate", oid(0)),
                ("oprcode", oid(0)),
                ("oprrest", oid(0)),
                ("oprjoin", oid(0)),
            ])
        })
        .collect()
}
