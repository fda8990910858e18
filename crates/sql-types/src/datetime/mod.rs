//! Calendar, time zones, date and time arithmetic, parsing and formatting.
//!
//! A date is a number of days, a timestamp a number of microseconds since 2000-01-01; `timestamptz`
//! counts in UTC. The least and greatest integers stand for `-infinity` and `infinity`. Years are
//! astronomical inside (year 0 is 1 BC); the calendar is the proleptic Gregorian one.

mod arithmetic;
mod calendar;
mod extract;
mod format;
mod interval;
mod parse;
mod pattern;
mod pattern_parse;
#[cfg(test)]
mod tests;
mod zone;

pub use arithmetic::{
    age, date_to_timestamp, date_to_timestamptz, interval_compare_key, interval_div, interval_mul,
    interval_negate, interval_sum, justify_days, justify_hours, justify_interval, make_date, make_interval,
    make_time, make_timestamp, round_micros, timestamp_plus_interval, timestamp_to_timestamptz,
    timestamptz_plus_interval, timestamptz_to_timestamp,
};
pub use calendar::{Civil, days_from_civil};
pub use extract::{
    Field, Part, date_trunc, date_trunc_interval, date_trunc_tz, extract_date, extract_interval,
    extract_time, extract_timestamp, extract_timestamptz,
};
pub use format::{format_date, format_time, format_timestamp, format_timestamptz};
pub use interval::{fit_interval, format_interval, parse_interval, range as interval_fields};
pub use parse::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
pub use pattern::{interval_to_char, timestamp_to_char};
pub use pattern_parse::{to_date, to_timestamp};
pub use zone::TimeZone;

use crate::error::{SqlError, SqlState};

/// Microseconds of a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds of a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds of an hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds of a day.
pub const DAY: i64 = 24 * HOUR;
/// 2000-01-01 in microseconds since 1970-01-01.
pub const UNIX_EPOCH_OFFSET: i64 = 10_957 * DAY;

/// The least finite timestamp, 4714-11-24 BC.
pub const MIN_TIMESTAMP: i64 = -211_813_488_000_000_000;
/// One beyond the greatest finite timestamp, the start of 294277 AD.
pub const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;
/// The least finite date, 4714-11-24 BC.
pub const MIN_DATE: i32 = -2_451_545;
/// One beyond the greatest finite date, 5874897-12-31.
pub const END_DATE: i32 = 2_147_483_494 - 2_451_545;

#[cold]
pub(crate) fn out_of_range(what: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, format!("{what} out of range"))
}

/// The timestamp, if it is within bounds.
pub(crate) fn check_timestamp(micros: i64) -> crate::SqlResult<i64> {
    if (MIN_TIMESTAMP..END_TIMESTAMP).contains(&micros) { Ok(micros) } else { Err(out_of_range("timestamp")) }
}

/// The date, if it is within bounds.
pub(crate) fn check_date(days: i64) -> crate::SqlResult<i32> {
    i32::try_from(days)
        .ok()
        .filter(|days| (MIN_DATE..END_DATE).contains(days))
        .ok_or_else(|| out_of_range("date"))
}

/// Whether a timestamp is one of the infinities.
pub fn is_infinite_timestamp(micros: i64) -> bool {
    micros == i64::MIN || micros == i64::MAX
}

/// Whether a date is one of the infinities.
pub fn is_infinite_date(days: i32) -> bool {
    days == i32::MIN || days == i32::MAX
}
