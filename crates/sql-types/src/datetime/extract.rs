//! `extract`, `date_part` and `date_trunc`.

use super::calendar::{Civil, days_from_civil, iso_week, iso_week_start, weekday};
use super::zone::TimeZone;
use super::{
    DAY, HOUR, MINUTE, SECOND, UNIX_EPOCH_OFFSET, is_infinite_date, is_infinite_timestamp, out_of_range,
    timestamp_to_timestamptz, timestamptz_to_timestamp,
};
use crate::datum::Interval;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;

/// A field of a date, time or interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Field {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

impl Field {
    /// A field by name or alias, in any case.
    pub fn parse(name: &str) -> Option<Field> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "microseconds" | "microsecond" | "us" | "usec" | "usecs" | "usecond" | "useconds"
            | "microsecon" => Field::Microseconds,
            "milliseconds" | "millisecond" | "ms" | "msec" | "msecs" | "msecond" | "mseconds"
            | "millisecon" => Field::Milliseconds,
            "second" | "seconds" | "sec" | "secs" | "s" => Field::Second,
            "minute" | "minutes" | "min" | "mins" | "m" => Field::Minute,
            "hour" | "hours" | "hr" | "hrs" | "h" => Field::Hour,
            "day" | "days" | "d" => Field::Day,
            "week" | "weeks" | "w" => Field::Week,
            "month" | "months" | "mon" | "mons" => Field::Month,
            "quarter" | "qtr" => Field::Quarter,
            "year" | "years" | "yr" | "yrs" | "y" => Field::Year,
            "decade" | "decades" | "dec" | "decs" => Field::Decade,
            "century" | "centuries" | "cent" | "c" => Field::Century,
            "millennium" | "millennia" | "mil" | "mils" => Field::Millennium,
            "epoch" => Field::Epoch,
            "dow" => Field::DayOfWeek,
            "isodow" => Field::IsoDayOfWeek,
            "doy" => Field::DayOfYear,
            "isoyear" => Field::IsoYear,
            "julian" | "jd" | "j" => Field::Julian,
            "timezone" => Field::Timezone,
            "timezone_hour" | "timezone_h" => Field::TimezoneHour,
            "timezone_minute" | "timezone_m" => Field::TimezoneMinute,
            _ => return None,
        })
    }

    /// Whether the field grows without bound with time, so that it is infinite at infinity.
    fn is_monotonic(self) -> bool {
        matches!(
            self,
            Field::Year
                | Field::Decade
                | Field::Century
                | Field::Millennium
                | Field::Julian
                | Field::IsoYear
                | Field::Epoch
        )
    }
}

/// Whether `date_trunc` knows the field at all, as opposed to not supporting it.
fn is_unit(field: Field) -> bool {
    matches!(field, Field::Timezone | Field::TimezoneHour | Field::TimezoneMinute)
}

/// The value of a field: an exact number, NULL where infinity has no such field.
pub type Part = Option<Numeric>;

fn unknown(name: &str, ty: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, format!("unit \"{name}\" not recognized for type {ty}"))
}

fn unsupported(name: &str, ty: &str) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("unit \"{name}\" not supported for type {ty}"))
}

fn micros(value: i64, scale: u16) -> Numeric {
    Numeric::new(i128::from(value), scale)
}

fn infinite(field: Field, negative: bool) -> Part {
    field.is_monotonic().then_some(if negative { Numeric::NEG_INFINITY } else { Numeric::INFINITY })
}

fn century(year: i64, length: i64) -> i64 {
    if year > 0 { (year + length - 1) / length } else { -((length - 1 - (year - 1)) / length) }
}

fn decade(year: i64) -> i64 {
    year.div_euclid(10)
}

/// Seconds of the minute in microseconds, and the parts of the clock.
fn clock(field: Field, time: i64) -> Option<Numeric> {
    let second = time % MINUTE;
    Some(match field {
        Field::Microseconds => Numeric::from(second),
        Field::Milliseconds => micros(second, 3),
        Field::Second => micros(second, 6),
        Field::Minute => Numeric::from(time % HOUR / MINUTE),
        Field::Hour => Numeric::from(time / HOUR),
        _ => return None,
    })
}

fn calendar(field: Field, civil: &Civil) -> Option<i64> {
    let days = civil.days();
    let shown = if civil.year > 0 { civil.year } else { civil.year - 1 };
    Some(match field {
        Field::Day => civil.day,
        Field::Week => iso_week(days).1,
        Field::Month => civil.month,
        Field::Quarter => (civil.month - 1) / 3 + 1,
        Field::Year => shown,
        Field::Decade => decade(civil.year),
        Field::Century => century(civil.year, 100),
        Field::Millennium => century(civil.year, 1000),
        Field::DayOfWeek => weekday(days),
        Field::IsoDayOfWeek => (weekday(days) + 6) % 7 + 1,
        Field::DayOfYear => civil.day_of_year(),
        Field::IsoYear => {
            let year = iso_week(days).0;
            if year > 0 { year } else { year - 1 }
        }
        _ => return None,
    })
}

/// A field of a date.
pub fn extract_date(name: &str, days: i32) -> SqlResult<Part> {
    let field = Field::parse(name).ok_or_else(|| unknown(name, "date"))?;
    if is_infinite_date(days) {
        let civil = Civil { year: 2000, month: 1, day: 1, micros: 0 };
        if !field.is_monotonic() && calendar(field, &civil).is_none() {
            return Err(unsupported(name, "date"));
        }
        return Ok(infinite(field, days < 0));
    }
    let civil = Civil::from_date(days);
    match field {
        Field::Epoch => Ok(Some(Numeric::from(i64::from(days) * 86_400 + UNIX_EPOCH_OFFSET / SECOND))),
        Field::Julian => Ok(Some(Numeric::from(i64::from(days) - i64::from(super::MIN_DATE)))),
        _ => calendar(field, &civil)
            .map(|value| Some(Numeric::from(value)))
            .ok_or_else(|| unsupported(name, "date")),
    }
}

/// A field of a time of day.
pub fn extract_time(name: &str, time: i64) -> SqlResult<Part> {
    let ty = "time without time zone";
    let field = Field::parse(name).ok_or_else(|| unknown(name, ty))?;
    if field == Field::Epoch {
        return Ok(Some(micros(time, 6)));
    }
    clock(field, time).map(Some).ok_or_else(|| unsupported(name, ty))
}

/// A field of a timestamp without time zone.
pub fn extract_timestamp(name: &str, timestamp: i64) -> SqlResult<Part> {
    let ty = "timestamp without time zone";
    let field = Field::parse(name).ok_or_else(|| unknown(name, ty))?;
    if is_infinite_timestamp(timestamp) {
        return Ok(infinite(field, timestamp < 0));
    }
    local_field(field, timestamp, timestamp).map(Some).ok_or_else(|| unsupported(name, ty))
}

/// A field of a timestamp with time zone, as its local time in the zone shows it.
pub fn extract_timestamptz(name: &str, utc: i64, zone: &TimeZone) -> SqlResult<Part> {
    let ty = "timestamp with time zone";
    let field = Field::parse(name).ok_or_else(|| unknown(name, ty))?;
    if is_infinite_timestamp(utc) {
        return Ok(infinite(field, utc < 0));
    }
    let offset = i64::from(zone.offset_at(utc));
    match field {
        Field::Timezone => return Ok(Some(Numeric::from(offset))),
        Field::TimezoneHour => return Ok(Some(Numeric::from(offset / 3600))),
        Field::TimezoneMinute => return Ok(Some(Numeric::from(offset % 3600 / 60))),
        _ => {}
    }
    let local = timestamptz_to_timestamp(utc, zone)?;
    local_field(field, local, utc).map(Some).ok_or_else(|| unsupported(name, ty))
}

fn local_field(field: Field, local: i64, instant: i64) -> Option<Numeric> {
    let civil = Civil::from_timestamp(local);
    match field {
        Field::Epoch => Some(Numeric::new(i128::from(instant) + i128::from(UNIX_EPOCH_OFFSET), 6)),
        Field::Julian => {
            let days = Numeric::from(civil.days() - i64::from(super::MIN_DATE));
            let part = Numeric::from(civil.micros).div(&Numeric::from(DAY)).ok()?;
            days.add(&part).ok()
        }
        _ => clock(field, civil.micros).or_else(|| calendar(field, &civil).map(Numeric::from)),
    }
}

/// A field of an interval.
pub fn extract_interval(name: &str, value: Interval) -> SqlResult<Part> {
    let field = Field::parse(name).ok_or_else(|| unknown(name, "interval"))?;
    let years = i64::from(value.months / 12);
    let number = match field {
        Field::Epoch => {
            // Years of 365.25 days, months of 30.
            let days = i128::from(years) * 1461 * 6 * 3600
                + i128::from(value.months % 12) * 30 * 86_400
                + i128::from(value.days) * 86_400;
            Numeric::new(days * i128::from(SECOND) + i128::from(value.micros), 6)
        }
        Field::Year => Numeric::from(years),
        Field::Month => Numeric::from(value.months % 12),
        Field::Quarter => Numeric::from(value.months % 12 / 3 + 1),
        Field::Decade => Numeric::from(years / 10),
        Field::Century => Numeric::from(years / 100),
        Field::Millennium => Numeric::from(years / 1000),
        Field::Day => Numeric::from(value.days),
        _ => clock(field, value.micros).ok_or_else(|| unsupported(name, "interval"))?,
    };
    Ok(Some(number))
}

/// `date_trunc` of a timestamp without time zone.
pub fn date_trunc(name: &str, timestamp: i64) -> SqlResult<i64> {
    truncate(name, timestamp, "timestamp without time zone")
}

fn truncate(name: &str, timestamp: i64, ty: &str) -> SqlResult<i64> {
    if is_infinite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    let field = Field::parse(name).ok_or_else(|| unknown(name, ty))?;
    let down_to = |unit: i64| Ok(timestamp.div_euclid(unit) * unit);
    let civil = Civil::from_timestamp(timestamp);
    let start = |year: i64, month: i64| {
        let days = days_from_civil(year, month, 1);
        days.checked_mul(DAY).ok_or_else(|| out_of_range("timestamp"))
    };
    match field {
        Field::Microseconds => Ok(timestamp),
        Field::Milliseconds => down_to(1000),
        Field::Second => down_to(SECOND),
        Field::Minute => down_to(MINUTE),
        Field::Hour => down_to(HOUR),
        Field::Day => down_to(DAY),
        Field::Week => {
            let (year, week) = iso_week(civil.days());
            Ok(iso_week_start(year, week) * DAY)
        }
        Field::Month => start(civil.year, civil.month),
        Field::Quarter => start(civil.year, (civil.month - 1) / 3 * 3 + 1),
        Field::Year => start(civil.year, 1),
        Field::Decade => start(decade(civil.year) * 10, 1),
        Field::Century => start((civil.year - 1).div_euclid(100) * 100 + 1, 1),
        Field::Millennium => start((civil.year - 1).div_euclid(1000) * 1000 + 1, 1),
        field if is_unit(field) => Err(unsupported(name, ty)),
        _ => Err(unknown(name, ty)),
    }
}

/// `date_trunc` of a timestamp with time zone, in the zone's calendar.
pub fn date_trunc_tz(name: &str, utc: i64, zone: &TimeZone) -> SqlResult<i64> {
    let ty = "timestamp with time zone";
    if is_infinite_timestamp(utc) {
        return truncate(name, utc, ty);
    }
    let local = timestamptz_to_timestamp(utc, zone)?;
    let cut = truncate(name, local, ty)?;
    match Field::parse(name) {
        // Within the day the offset does not change by cutting.
        Some(Field::Microseconds | Field::Milliseconds | Field::Second | Field::Minute | Field::Hour) => {
            Ok(utc - (local - cut))
        }
        _ => timestamp_to_timestamptz(cut, zone),
    }
}

/// `date_trunc` of an interval.
pub fn date_trunc_interval(name: &str, value: Interval) -> SqlResult<Interval> {
    let field = Field::parse(name).ok_or_else(|| unknown(name, "interval"))?;
    let months = |unit: i32| Interval { months: value.months / unit * unit, days: 0, micros: 0 };
    let time = |unit: i64| Interval { micros: value.micros / unit * unit, ..value };
    Ok(match field {
        Field::Millennium => months(12_000),
        Field::Century => months(1_200),
        Field::Decade => months(120),
        Field::Year => months(12),
        Field::Quarter => months(3),
        Field::Month => months(1),
        Field::Day => Interval { micros: 0, ..value },
        Field::Hour => time(HOUR),
        Field::Minute => time(MINUTE),
        Field::Second => time(SECOND),
        Field::Milliseconds => time(1000),
        Field::Microseconds => value,
        Field::Week => {
            return Err(unsupported(name, "interval").with_detail("Months usually have fractional weeks."));
        }
        field if is_unit(field) => return Err(unsupported(name, "interval")),
        _ => return Err(unknown(name, "interval")),
    })
}
