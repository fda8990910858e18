//! Functions of dates and times.

use super::Function;
use super::args::{self, imm};
use super::operators::at_time_zone;
use crate::context::EvalContext;
use crate::datetime::{self, DAY, Part, TimeZone};
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Type as T;

fn part(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<Part> {
    let field = args::text(args, 0)?;
    match args.get(1) {
        Some(Datum::Date(days)) => datetime::extract_date(field, *days),
        Some(Datum::Time(micros)) => datetime::extract_time(field, *micros),
        Some(Datum::Timestamp(local)) => datetime::extract_timestamp(field, *local),
        Some(Datum::Timestamptz(utc)) => datetime::extract_timestamptz(field, *utc, context.time_zone),
        _ => datetime::extract_interval(field, args::interval(args, 1)?),
    }
}

fn extract(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<Datum> {
    Ok(part(context, args)?.map_or(Datum::Null, Datum::Numeric))
}

fn date_part(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<Datum> {
    // A date is taken as its midnight, so that fields of the time are allowed.
    let midnight;
    let args = match args {
        [field, Datum::Date(days)] => {
            midnight = [field.clone(), Datum::Timestamp(datetime::date_to_timestamp(*days)?)];
            &midnight
        }
        other => other,
    };
    if let [Datum::Text(field), Datum::Interval(interval)] = args
        && field.eq_ignore_ascii_case("epoch")
    {
        // Summed in floating point, unlike `extract`.
        let (years, months) = (f64::from(interval.months / 12), f64::from(interval.months % 12));
        let mut seconds = interval.micros as f64 / 1e6;
        seconds += 365.25 * 86_400.0 * years;
        seconds += 30.0 * 86_400.0 * months;
        seconds += 86_400.0 * f64::from(interval.days);
        return Ok(Datum::Float8(seconds));
    }
    Ok(part(context, args)?.map_or(Datum::Null, |number| Datum::Float8(number.to_f64())))
}

fn today(context: &EvalContext<'_>) -> i64 {
    context.time_zone.to_local(context.transaction_micros).unwrap_or(0)
}

/// Rounds to the precision in the first argument, if there is one.
fn to_precision(args: &[Datum], micros: i64) -> SqlResult<i64> {
    let digits = if args.is_empty() { 6 } else { args::int4(args, 0)? };
    Ok(datetime::round_micros(micros, digits).unwrap_or(micros))
}

fn now(context: &EvalContext<'_>) -> SqlResult<Datum> {
    Ok(Datum::Timestamptz(context.transaction_micros))
}

/// `age` of one argument counts from midnight today.
fn age_today(context: &EvalContext<'_>, local: i64) -> SqlResult<Datum> {
    let midnight = today(context).div_euclid(DAY) * DAY;
    Ok(Datum::Interval(datetime::age(midnight, local)?))
}

fn local(context: &EvalContext<'_>, utc: i64) -> SqlResult<i64> {
    datetime::timestamptz_to_timestamp(utc, context.time_zone)
}

fn from_epoch(seconds: f64) -> SqlResult<Datum> {
    if seconds.is_nan() {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Datum::Timestamptz(if seconds > 0.0 { i64::MAX } else { i64::MIN }));
    }
    let micros =
        ((seconds - (datetime::UNIX_EPOCH_OFFSET / datetime::SECOND) as f64) * 1e6).round_ties_even();
    if !(datetime::MIN_TIMESTAMP as f64..datetime::END_TIMESTAMP as f64).contains(&micros) {
        let mut shown = String::new();
        crate::text::format_float8(seconds, 1, &mut shown);
        return Err(SqlError::new(
            SqlState::DATETIME_OVERFLOW,
            format!("timestamp out of range: \"{shown}\""),
        ));
    }
    Ok(Datum::Timestamptz(micros as i64))
}

fn to_char(local: i64, zone: Option<(&TimeZone, i64)>, template: &str) -> SqlResult<Datum> {
    if template.is_empty() || datetime::is_infinite_timestamp(local) {
        return Ok(Datum::Null);
    }
    Ok(Datum::text(datetime::timestamp_to_char(local, zone, template)))
}

/// `date_bin(stride, source, origin)`
fn bin(stride: Interval, source: i64, origin: i64) -> SqlResult<i64> {
    if stride.months != 0 {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let out_of_range = || SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range");
    let step = i64::from(stride.days).checked_mul(DAY).and_then(|days| days.checked_add(stride.micros));
    let step = step.ok_or_else(out_of_range)?;
    if step <= 0 {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "stride must be greater than zero"));
    }
    if datetime::is_infinite_timestamp(source) {
        return Ok(source);
    }
    let distance = source.checked_sub(origin).ok_or_else(out_of_range)?;
    Ok(origin + distance.div_euclid(step) * step)
}

fn overlaps(args: &[Datum]) -> SqlResult<Datum> {
    let [a, b, c, d] = args else { return Ok(Datum::Null) };
    let ordered = |start: &Datum, end: &Datum| -> (Datum, Datum) {
        match (start.is_null(), end.is_null()) {
            (true, _) => (end.clone(), Datum::Null),
            (_, true) => (start.clone(), Datum::Null),
            _ if crate::compare::compare(start, end).is_gt() => (end.clone(), start.clone()),
            _ => (start.clone(), end.clone()),
        }
    };
    let ((s1, e1), (s2, e2)) = (ordered(a, b), ordered(c, d));
    if s1.is_null() || s2.is_null() {
        return Ok(Datum::Null);
    }
    let order = crate::compare::compare(&s1, &s2);
    if order.is_eq() {
        return Ok(if e1.is_null() || e2.is_null() { Datum::Null } else { Datum::Bool(true) });
    }
    // The earlier one must last beyond the start of the later one.
    let (end, later) = if order.is_lt() { (e1, s2) } else { (e2, s1) };
    Ok(if end.is_null() { Datum::Null } else { Datum::Bool(crate::compare::compare(&later, &end).is_lt()) })
}

fn make_interval(args: &[Datum]) -> SqlResult<Datum> {
    let mut parts = [0; 6];
    for (index, part) in parts.iter_mut().enumerate().take(args.len()) {
        *part = args::int4(args, index)?;
    }
    let seconds = if args.len() > 6 { args::float8(args, 6)? } else { 0.0 };
    Ok(Datum::Interval(datetime::make_interval(parts, seconds)?))
}

fn made(args: &[Datum]) -> SqlResult<i64> {
    let int = |index| args::int4(args, index);
    datetime::make_timestamp(int(0)?, int(1)?, int(2)?, int(3)?, int(4)?, args::float8(args, 5)?)
}

macro_rules! table {
    (parts { $($p:ident)* } $($rest:expr,)*) => {
        &[
            $(
                imm("extract", &[T::TEXT, T::$p], T::NUMERIC, extract).stable(),
                imm("date_part", &[T::TEXT, T::$p], T::FLOAT8, date_part).stable(),
            )*
            $($rest,)*
        ]
    };
}

pub(super) static TABLE: &[Function] = table! {
    parts { DATE TIME TIMESTAMP TIMESTAMPTZ INTERVAL }
    imm("now", &[], T::TIMESTAMPTZ, |c, _| now(c)).stable(),
    imm("transaction_timestamp", &[], T::TIMESTAMPTZ, |c, _| now(c)).stable(),
    imm("statement_timestamp", &[], T::TIMESTAMPTZ, |c, _| Ok(Datum::Timestamptz(c.statement_micros))).stable(),
    imm("clock_timestamp", &[], T::TIMESTAMPTZ, |c, _| Ok(Datum::Timestamptz((c.clock)()))).volatile(),
    imm("timeofday", &[], T::TEXT, |c, _| {
        let utc = (c.clock)();
        to_char(local(c, utc)?, Some((c.time_zone, utc)), "Dy Mon DD HH24:MI:SS.US YYYY TZ")
    })
    .volatile(),
    imm("current_timestamp", &[], T::TIMESTAMPTZ, |c, _| now(c)).stable(),
    imm("current_timestamp", &[T::INT4], T::TIMESTAMPTZ, |c, a| {
        Ok(Datum::Timestamptz(to_precision(a, c.transaction_micros)?))
    })
    .stable(),
    imm("localtimestamp", &[], T::TIMESTAMP, |c, _| Ok(Datum::Timestamp(today(c)))).stable(),
    imm("localtimestamp", &[T::INT4], T::TIMESTAMP, |c, a| Ok(Datum::Timestamp(to_precision(a, today(c))?))).stable(),
    imm("current_date", &[], T::DATE, |c, _| Ok(Datum::Date(today(c).div_euclid(DAY) as i32))).stable(),
    imm("current_time", &[], T::TIME, |c, _| Ok(Datum::Time(today(c).rem_euclid(DAY)))).stable(),
    imm("current_time", &[T::INT4], T::TIME, |c, a| Ok(Datum::Time(to_precision(a, today(c).rem_euclid(DAY))?))).stable(),
    imm("localtime", &[], T::TIME, |c, _| Ok(Datum::Time(today(c).rem_euclid(DAY)))).stable(),
    imm("localtime", &[T::INT4], T::TIME, |c, a| Ok(Datum::Time(to_precision(a, today(c).rem_euclid(DAY))?))).stable(),
    imm("date_trunc", &[T::TEXT, T::TIMESTAMP], T::TIMESTAMP, |_, a| {
        Ok(Datum::Timestamp(datetime::date_trunc(args::text(a, 0)?, args::timestamp(a, 1)?)?))
    }),
    imm("date_trunc", &[T::TEXT, T::TIMESTAMPTZ], T::TIMESTAMPTZ, |c, a| {
        Ok(Datum::Timestamptz(datetime::date_trunc_tz(args::text(a, 0)?, args::timestamptz(a, 1)?, c.time_zone)?))
    })
    .stable(),
    imm("date_trunc", &[T::TEXT, T::TIMESTAMPTZ, T::TEXT], T::TIMESTAMPTZ, |_, a| {
        let zone = TimeZone::parse(args::text(a, 2)?)?;
        Ok(Datum::Timestamptz(datetime::date_trunc_tz(args::text(a, 0)?, args::timestamptz(a, 1)?, &zone)?))
    })
    .stable(),
    imm("date_trunc", &[T::TEXT, T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::date_trunc_interval(args::text(a, 0)?, args::interval(a, 1)?)?))
    }),
    imm("date_bin", &[T::INTERVAL, T::TIMESTAMP, T::TIMESTAMP], T::TIMESTAMP, |_, a| {
        Ok(Datum::Timestamp(bin(args::interval(a, 0)?, args::timestamp(a, 1)?, args::timestamp(a, 2)?)?))
    }),
    imm("date_bin", &[T::INTERVAL, T::TIMESTAMPTZ, T::TIMESTAMPTZ], T::TIMESTAMPTZ, |_, a| {
        Ok(Datum::Timestamptz(bin(args::interval(a, 0)?, args::timestamptz(a, 1)?, args::timestamptz(a, 2)?)?))
    }),
    imm("age", &[T::TIMESTAMP, T::TIMESTAMP], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::age(args::timestamp(a, 0)?, args::timestamp(a, 1)?)?))
    }),
    imm("age", &[T::TIMESTAMPTZ, T::TIMESTAMPTZ], T::INTERVAL, |c, a| {
        let (later, earlier) = (local(c, args::timestamptz(a, 0)?)?, local(c, args::timestamptz(a, 1)?)?);
        Ok(Datum::Interval(datetime::age(later, earlier)?))
    })
    .stable(),
    imm("age", &[T::TIMESTAMP], T::INTERVAL, |c, a| age_today(c, args::timestamp(a, 0)?)).stable(),
    imm("age", &[T::TIMESTAMPTZ], T::INTERVAL, |c, a| age_today(c, local(c, args::timestamptz(a, 0)?)?)).stable(),
    imm("age", &[T::XID], T::INT4, |_, _| Ok(Datum::Int4(0))).stable(),
    imm("justify_hours", &[T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::justify_hours(args::interval(a, 0)?)?))
    }),
    imm("justify_days", &[T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::justify_days(args::interval(a, 0)?)?))
    }),
    imm("justify_interval", &[T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::justify_interval(args::interval(a, 0)?)?))
    }),
    imm("make_date", &[T::INT4, T::INT4, T::INT4], T::DATE, |_, a| {
        Ok(Datum::Date(datetime::make_date(args::int4(a, 0)?, args::int4(a, 1)?, args::int4(a, 2)?)?))
    }),
    imm("make_time", &[T::INT4, T::INT4, T::FLOAT8], T::TIME, |_, a| {
        Ok(Datum::Time(datetime::make_time(args::int4(a, 0)?, args::int4(a, 1)?, args::float8(a, 2)?)?))
    }),
    imm("make_timestamp", &[T::INT4, T::INT4, T::INT4, T::INT4, T::INT4, T::FLOAT8], T::TIMESTAMP, |_, a| {
        Ok(Datum::Timestamp(made(a)?))
    }),
    imm("make_timestamptz", &[T::INT4, T::INT4, T::INT4, T::INT4, T::INT4, T::FLOAT8], T::TIMESTAMPTZ, |c, a| {
        Ok(Datum::Timestamptz(datetime::timestamp_to_timestamptz(made(a)?, c.time_zone)?))
    })
    .stable(),
    imm(
        "make_timestamptz",
        &[T::INT4, T::INT4, T::INT4, T::INT4, T::INT4, T::FLOAT8, T::TEXT],
        T::TIMESTAMPTZ,
        |_, a| {
            let zone = TimeZone::parse(args::text(a, 6)?)?;
            Ok(Datum::Timestamptz(datetime::timestamp_to_timestamptz(made(a)?, &zone)?))
        },
    )
    .stable(),
    imm("make_interval", &[], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4, T::INT4], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4, T::INT4, T::INT4], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4, T::INT4, T::INT4, T::INT4], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4, T::INT4, T::INT4, T::INT4, T::INT4], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4, T::INT4, T::INT4, T::INT4, T::INT4, T::INT4], T::INTERVAL, |_, a| make_interval(a)),
    imm("make_interval", &[T::INT4, T::INT4, T::INT4, T::INT4, T::INT4, T::INT4, T::FLOAT8], T::INTERVAL, |_, a| {
        make_interval(a)
    }),
    imm("timezone", &[T::TEXT, T::TIMESTAMP], T::TIMESTAMPTZ, |_, a| at_time_zone(a)),
    imm("timezone", &[T::TEXT, T::TIMESTAMPTZ], T::TIMESTAMP, |_, a| at_time_zone(a)),
    imm("timezone", &[T::INTERVAL, T::TIMESTAMP], T::TIMESTAMPTZ, |_, a| at_time_zone(a)),
    imm("timezone", &[T::INTERVAL, T::TIMESTAMPTZ], T::TIMESTAMP, |_, a| at_time_zone(a)),
    imm("to_char", &[T::TIMESTAMP, T::TEXT], T::TEXT, |_, a| to_char(args::timestamp(a, 0)?, None, args::text(a, 1)?)).stable(),
    imm("to_char", &[T::TIMESTAMPTZ, T::TEXT], T::TEXT, |c, a| {
        let utc = args::timestamptz(a, 0)?;
        to_char(local(c, utc)?, Some((c.time_zone, utc)), args::text(a, 1)?)
    })
    .stable(),
    imm("to_char", &[T::INTERVAL, T::TEXT], T::TEXT, |_, a| {
        let template = args::text(a, 1)?;
        if template.is_empty() {
            return Ok(Datum::Null);
        }
        Ok(Datum::text(datetime::interval_to_char(args::interval(a, 0)?, template)))
    })
    .stable(),
    imm("to_timestamp", &[T::FLOAT8], T::TIMESTAMPTZ, |_, a| from_epoch(args::float8(a, 0)?)),
    imm("to_timestamp", &[T::TEXT, T::TEXT], T::TIMESTAMPTZ, |c, a| {
        Ok(Datum::Timestamptz(datetime::to_timestamp(args::text(a, 0)?, args::text(a, 1)?, c.time_zone)?))
    })
    .stable(),
    imm("to_date", &[T::TEXT, T::TEXT], T::DATE, |_, a| {
        Ok(Datum::Date(datetime::to_date(args::text(a, 0)?, args::text(a, 1)?)?))
    })
    .stable(),
    imm("isfinite", &[T::DATE], T::BOOL, |_, a| Ok(Datum::Bool(!datetime::is_infinite_date(args::date(a, 0)?)))),
    imm("isfinite", &[T::TIMESTAMP], T::BOOL, |_, a| {
        Ok(Datum::Bool(!datetime::is_infinite_timestamp(args::timestamp(a, 0)?)))
    }),
    imm("isfinite", &[T::TIMESTAMPTZ], T::BOOL, |_, a| {
        Ok(Datum::Bool(!datetime::is_infinite_timestamp(args::timestamptz(a, 0)?)))
    }),
    imm("isfinite", &[T::INTERVAL], T::BOOL, |_, _| Ok(Datum::Bool(true))),
    imm("overlaps", &[T::TIMESTAMP, T::TIMESTAMP, T::TIMESTAMP, T::TIMESTAMP], T::BOOL, |_, a| overlaps(a)).nonstrict(),
    imm("overlaps", &[T::TIMESTAMPTZ, T::TIMESTAMPTZ, T::TIMESTAMPTZ, T::TIMESTAMPTZ], T::BOOL, |_, a| overlaps(a))
        .nonstrict(),
    imm("overlaps", &[T::TIME, T::TIME, T::TIME, T::TIME], T::BOOL, |_, a| overlaps(a)).nonstrict(),
};
