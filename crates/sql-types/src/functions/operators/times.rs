//! Arithmetic of dates, times and intervals.

use crate::datetime::{self, DAY, TimeZone};
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::Function;
use crate::functions::args::{self, imm};
use crate::types::Type;

fn out_of_range(what: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, format!("{what} out of range"))
}

fn date_plus(days: i32, more: i64) -> SqlResult<Datum> {
    if datetime::is_infinite_date(days) {
        return Ok(Datum::Date(days));
    }
    let sum = i64::from(days) + more;
    i32::try_from(sum)
        .ok()
        .filter(|days| (datetime::MIN_DATE..datetime::END_DATE).contains(days))
        .map(Datum::Date)
        .ok_or_else(|| out_of_range("date"))
}

fn date_minus_date(left: i32, right: i32) -> SqlResult<Datum> {
    if datetime::is_infinite_date(left) || datetime::is_infinite_date(right) {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "cannot subtract infinite dates"));
    }
    left.checked_sub(right).map(Datum::Int4).ok_or_else(|| out_of_range("integer"))
}

fn date_plus_interval(days: i32, interval: Interval) -> SqlResult<Datum> {
    let timestamp = datetime::date_to_timestamp(days)?;
    Ok(Datum::Timestamp(datetime::timestamp_plus_interval(timestamp, interval)?))
}

/// The difference of two timestamps: days and time.
fn difference(left: i64, right: i64) -> SqlResult<Datum> {
    if datetime::is_infinite_timestamp(left) || datetime::is_infinite_timestamp(right) {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "cannot subtract infinite timestamps"));
    }
    let micros = left.checked_sub(right).ok_or_else(|| out_of_range("interval"))?;
    Ok(Datum::Interval(datetime::justify_hours(Interval { months: 0, days: 0, micros })?))
}

fn time_plus(time: i64, interval: Interval) -> Datum {
    Datum::Time((time + interval.micros % DAY).rem_euclid(DAY))
}

fn negated(args: &[Datum], index: usize) -> SqlResult<Interval> {
    datetime::interval_negate(args::interval(args, index)?)
}

/// A date and a time of day.
fn date_and_time(days: i32, time: i64) -> SqlResult<Datum> {
    let midnight = datetime::date_to_timestamp(days)?;
    if datetime::is_infinite_timestamp(midnight) {
        return Ok(Datum::Timestamp(midnight));
    }
    midnight.checked_add(time).map(Datum::Timestamp).ok_or_else(|| out_of_range("timestamp"))
}

fn zone_of(args: &[Datum], index: usize) -> SqlResult<TimeZone> {
    match args.get(index) {
        Some(Datum::Interval(interval)) => {
            if interval.months != 0 || interval.days != 0 {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER,
                    "interval time zone must not include months or days",
                ));
            }
            Ok(TimeZone::fixed((interval.micros / datetime::SECOND).clamp(-604_800, 604_800) as i32))
        }
        _ => TimeZone::parse(args::text(args, index)?),
    }
}

/// `timezone(zone, timestamp[tz])`: `AT TIME ZONE`.
pub(in crate::functions) fn at_time_zone(args: &[Datum]) -> SqlResult<Datum> {
    match args.get(1) {
        Some(Datum::Timestamp(local)) if datetime::is_infinite_timestamp(*local) => {
            return Ok(Datum::Timestamptz(*local));
        }
        Some(Datum::Timestamptz(utc)) if datetime::is_infinite_timestamp(*utc) => {
            return Ok(Datum::Timestamp(*utc));
        }
        _ => {}
    }
    let zone = zone_of(args, 0)?;
    match args.get(1) {
        Some(Datum::Timestamp(local)) => {
            Ok(Datum::Timestamptz(datetime::timestamp_to_timestamptz(*local, &zone)?))
        }
        _ => Ok(Datum::Timestamp(datetime::timestamptz_to_timestamp(args::timestamptz(args, 1)?, &zone)?)),
    }
}

use Type as T;

pub(super) static TABLE: &[Function] = &[
    imm("+", &[T::DATE, T::INT4], T::DATE, |_, a| date_plus(args::date(a, 0)?, i64::from(args::int4(a, 1)?))),
    imm("+", &[T::INT4, T::DATE], T::DATE, |_, a| date_plus(args::date(a, 1)?, i64::from(args::int4(a, 0)?))),
    imm("-", &[T::DATE, T::INT4], T::DATE, |_, a| {
        date_plus(args::date(a, 0)?, -i64::from(args::int4(a, 1)?))
    }),
    imm("-", &[T::DATE, T::DATE], T::INT4, |_, a| date_minus_date(args::date(a, 0)?, args::date(a, 1)?)),
    imm("+", &[T::DATE, T::INTERVAL], T::TIMESTAMP, |_, a| {
        date_plus_interval(args::date(a, 0)?, args::interval(a, 1)?)
    }),
    imm("+", &[T::INTERVAL, T::DATE], T::TIMESTAMP, |_, a| {
        date_plus_interval(args::date(a, 1)?, args::interval(a, 0)?)
    }),
    imm("-", &[T::DATE, T::INTERVAL], T::TIMESTAMP, |_, a| {
        date_plus_interval(args::date(a, 0)?, negated(a, 1)?)
    }),
    imm("+", &[T::DATE, T::TIME], T::TIMESTAMP, |_, a| date_and_time(args::date(a, 0)?, args::time(a, 1)?)),
    imm("+", &[T::TIME, T::DATE], T::TIMESTAMP, |_, a| date_and_time(args::date(a, 1)?, args::time(a, 0)?)),
    imm("+", &[T::TIME, T::INTERVAL], T::TIME, |_, a| {
        Ok(time_plus(args::time(a, 0)?, args::interval(a, 1)?))
    }),
    imm("+", &[T::INTERVAL, T::TIME], T::TIME, |_, a| {
        Ok(time_plus(args::time(a, 1)?, args::interval(a, 0)?))
    }),
    imm("-", &[T::TIME, T::INTERVAL], T::TIME, |_, a| {
        let interval = args::interval(a, 1)?;
        Ok(Datum::Time((args::time(a, 0)? - interval.micros % DAY).rem_euclid(DAY)))
    }),
    imm("-", &[T::TIME, T::TIME], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(Interval { months: 0, days: 0, micros: args::time(a, 0)? - args::time(a, 1)? }))
    }),
    imm("+", &[T::TIMESTAMP, T::INTERVAL], T::TIMESTAMP, |_, a| {
        Ok(Datum::Timestamp(datetime::timestamp_plus_interval(
            args::timestamp(a, 0)?,
            args::interval(a, 1)?,
        )?))
    }),
    imm("+", &[T::INTERVAL, T::TIMESTAMP], T::TIMESTAMP, |_, a| {
        Ok(Datum::Timestamp(datetime::timestamp_plus_interval(
            args::timestamp(a, 1)?,
            args::interval(a, 0)?,
        )?))
    }),
    imm("-", &[T::TIMESTAMP, T::INTERVAL], T::TIMESTAMP, |_, a| {
        Ok(Datum::Timestamp(datetime::timestamp_plus_interval(args::timestamp(a, 0)?, negated(a, 1)?)?))
    }),
    imm("-", &[T::TIMESTAMP, T::TIMESTAMP], T::INTERVAL, |_, a| {
        difference(args::timestamp(a, 0)?, args::timestamp(a, 1)?)
    }),
    imm("+", &[T::TIMESTAMPTZ, T::INTERVAL], T::TIMESTAMPTZ, |c, a| {
        let (utc, interval) = (args::timestamptz(a, 0)?, args::interval(a, 1)?);
        Ok(Datum::Timestamptz(datetime::timestamptz_plus_interval(utc, interval, c.time_zone)?))
    })
    .stable(),
    imm("+", &[T::INTERVAL, T::TIMESTAMPTZ], T::TIMESTAMPTZ, |c, a| {
        let (utc, interval) = (args::timestamptz(a, 1)?, args::interval(a, 0)?);
        Ok(Datum::Timestamptz(datetime::timestamptz_plus_interval(utc, interval, c.time_zone)?))
    })
    .stable(),
    imm("-", &[T::TIMESTAMPTZ, T::INTERVAL], T::TIMESTAMPTZ, |c, a| {
        let (utc, interval) = (args::timestamptz(a, 0)?, negated(a, 1)?);
        Ok(Datum::Timestamptz(datetime::timestamptz_plus_interval(utc, interval, c.time_zone)?))
    })
    .stable(),
    imm("-", &[T::TIMESTAMPTZ, T::TIMESTAMPTZ], T::INTERVAL, |_, a| {
        difference(args::timestamptz(a, 0)?, args::timestamptz(a, 1)?)
    }),
    imm("+", &[T::INTERVAL, T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::interval_sum(args::interval(a, 0)?, args::interval(a, 1)?)?))
    }),
    imm("-", &[T::INTERVAL, T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::interval_sum(args::interval(a, 0)?, negated(a, 1)?)?))
    }),
    imm("-", &[T::INTERVAL], T::INTERVAL, |_, a| Ok(Datum::Interval(negated(a, 0)?))),
    imm("*", &[T::INTERVAL, T::FLOAT8], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::interval_mul(args::interval(a, 0)?, args::float8(a, 1)?)?))
    }),
    imm("*", &[T::FLOAT8, T::INTERVAL], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::interval_mul(args::interval(a, 1)?, args::float8(a, 0)?)?))
    }),
    imm("/", &[T::INTERVAL, T::FLOAT8], T::INTERVAL, |_, a| {
        Ok(Datum::Interval(datetime::interval_div(args::interval(a, 0)?, args::float8(a, 1)?)?))
    }),
];
