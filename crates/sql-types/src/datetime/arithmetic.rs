//! Arithmetic of dates, timestamps and intervals.

use super::calendar::{Civil, days_from_civil, days_in_month};
use super::zone::TimeZone;
use super::{
    DAY, HOUR, MINUTE, check_date, check_timestamp, is_infinite_date, is_infinite_timestamp, out_of_range,
};
use crate::datum::Interval;
use crate::error::{SqlError, SqlResult, SqlState};

fn interval_range() -> SqlError {
    out_of_range("interval")
}

/// Rounds to a number of fractional digits, halves away from zero; a negative number of digits
/// leaves the value as it is. `None` if it does not fit.
pub fn round_micros(micros: i64, digits: i32) -> Option<i64> {
    if !(0..6).contains(&digits) {
        return Some(micros);
    }
    let unit = 10i64.pow(6 - digits as u32);
    let half = unit / 2;
    let shifted = if micros >= 0 { micros.checked_add(half)? } else { micros.checked_sub(half)? };
    Some(shifted / unit * unit)
}

/// A date at midnight.
pub fn date_to_timestamp(days: i32) -> SqlResult<i64> {
    if is_infinite_date(days) {
        return Ok(if days < 0 { i64::MIN } else { i64::MAX });
    }
    super::parse::midnight(days)
        .and_then(check_timestamp)
        .map_err(|_| SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range for timestamp"))
}

/// A date at midnight in a zone.
pub fn date_to_timestamptz(days: i32, zone: &TimeZone) -> SqlResult<i64> {
    timestamp_to_timestamptz(date_to_timestamp(days)?, zone)
}

/// The instant of a local time.
pub fn timestamp_to_timestamptz(local: i64, zone: &TimeZone) -> SqlResult<i64> {
    if is_infinite_timestamp(local) {
        return Ok(local);
    }
    zone.to_utc(local).map_or_else(|| Err(out_of_range("timestamp")), check_timestamp)
}

/// The local time of an instant.
pub fn timestamptz_to_timestamp(utc: i64, zone: &TimeZone) -> SqlResult<i64> {
    if is_infinite_timestamp(utc) {
        return Ok(utc);
    }
    zone.to_local(utc).map_or_else(|| Err(out_of_range("timestamp")), check_timestamp)
}

/// `timestamp + interval`: months first (the day cut to the month's length), then days, then time.
pub fn timestamp_plus_interval(timestamp: i64, interval: Interval) -> SqlResult<i64> {
    if is_infinite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    let moved = add_months(timestamp, interval.months)?;
    i64::from(interval.days)
        .checked_mul(DAY)
        .and_then(|days| moved.checked_add(days)?.checked_add(interval.micros))
        .map_or_else(|| Err(out_of_range("timestamp")), check_timestamp)
}

fn add_months(timestamp: i64, months: i32) -> SqlResult<i64> {
    if months == 0 {
        return Ok(timestamp);
    }
    let civil = Civil::from_timestamp(timestamp);
    let total = civil.year * 12 + civil.month - 1 + i64::from(months);
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
    let day = civil.day.min(days_in_month(year, month));
    Civil { year, month, day, micros: civil.micros }.timestamp().ok_or_else(|| out_of_range("timestamp"))
}

/// `timestamptz + interval`: months and days are of the zone's calendar, time is absolute.
pub fn timestamptz_plus_interval(utc: i64, interval: Interval, zone: &TimeZone) -> SqlResult<i64> {
    if is_infinite_timestamp(utc) {
        return Ok(utc);
    }
    let mut moved = utc;
    if interval.months != 0 || interval.days != 0 {
        let local = timestamptz_to_timestamp(utc, zone)?;
        let calendar = Interval { micros: 0, ..interval };
        moved = timestamp_to_timestamptz(timestamp_plus_interval(local, calendar)?, zone)?;
    }
    moved.checked_add(interval.micros).map_or_else(|| Err(out_of_range("timestamp")), check_timestamp)
}

/// Microseconds an interval counts for when compared: months of 30 days, days of 24 hours.
pub fn interval_compare_key(interval: Interval) -> i128 {
    let days = i128::from(interval.months) * 30 + i128::from(interval.days);
    days * i128::from(DAY) + i128::from(interval.micros)
}

/// Sum of two intervals.
pub fn interval_sum(left: Interval, right: Interval) -> SqlResult<Interval> {
    let sum = || {
        Some(Interval {
            months: left.months.checked_add(right.months)?,
            days: left.days.checked_add(right.days)?,
            micros: left.micros.checked_add(right.micros)?,
        })
    };
    sum().ok_or_else(interval_range)
}

/// The opposite interval.
pub fn interval_negate(value: Interval) -> SqlResult<Interval> {
    let negated = || {
        Some(Interval {
            months: value.months.checked_neg()?,
            days: value.days.checked_neg()?,
            micros: value.micros.checked_neg()?,
        })
    };
    negated().ok_or_else(interval_range)
}

/// An interval times a number: fractions of months spill into days (of 30 to a month), those of days
/// into time.
pub fn interval_mul(value: Interval, factor: f64) -> SqlResult<Interval> {
    scale(value, |part| part * factor)
}

/// An interval divided by a number.
pub fn interval_div(value: Interval, divisor: f64) -> SqlResult<Interval> {
    if divisor == 0.0 {
        return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    scale(value, |part| part / divisor)
}

fn scale(value: Interval, apply: impl Fn(f64) -> f64) -> SqlResult<Interval> {
    let to_i32 = |number: f64| {
        if number.is_nan() || number < f64::from(i32::MIN) || number > f64::from(i32::MAX) {
            return Err(interval_range());
        }
        Ok(number as i32)
    };
    // Keeps what float division leaves of exact values from cascading.
    let round = |number: f64| (number * 1e6).round_ties_even() / 1e6;
    let months_exact = apply(f64::from(value.months));
    let months = to_i32(months_exact)?;
    let days_exact = apply(f64::from(value.days));
    let mut days = to_i32(days_exact)?;
    let month_remainder = round((months_exact - f64::from(months)) * 30.0);
    let mut seconds =
        round((days_exact - f64::from(days) + month_remainder - month_remainder.trunc()) * 86_400.0);
    if seconds.abs() >= 86_400.0 {
        days = days.checked_add((seconds / 86_400.0) as i32).ok_or_else(interval_range)?;
        seconds -= (seconds / 86_400.0).trunc() * 86_400.0;
    }
    days = days.checked_add(month_remainder as i32).ok_or_else(interval_range)?;
    let micros = (apply(value.micros as f64) + seconds * 1e6).round_ties_even();
    if micros.is_nan() || !(-9.223_372_036_854_775e18..=9.223_372_036_854_775e18).contains(&micros) {
        return Err(interval_range());
    }
    Ok(Interval { months, days, micros: micros as i64 })
}

/// Moves whole days out of the time, and makes the signs of both agree.
pub fn justify_hours(value: Interval) -> SqlResult<Interval> {
    let whole = value.micros / DAY;
    let mut micros = value.micros % DAY;
    let mut days = i64::from(value.days) + whole;
    if days > 0 && micros < 0 {
        micros += DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= DAY;
        days += 1;
    }
    let days = i32::try_from(days).map_err(|_| interval_range())?;
    Ok(Interval { months: value.months, days, micros })
}

/// Moves 30 days into each month, and makes the signs of both agree.
pub fn justify_days(value: Interval) -> SqlResult<Interval> {
    let mut days = value.days % 30;
    let mut months = i64::from(value.months) + i64::from(value.days / 30);
    if months > 0 && days < 0 {
        days += 30;
        months -= 1;
    } else if months < 0 && days > 0 {
        days -= 30;
        months += 1;
    }
    let months = i32::try_from(months).map_err(|_| interval_range())?;
    Ok(Interval { months, days, micros: value.micros })
}

/// Both, with one sign for all parts.
pub fn justify_interval(value: Interval) -> SqlResult<Interval> {
    let mut micros = value.micros % DAY;
    let mut days = i64::from(value.days) + value.micros / DAY;
    let mut months = i64::from(value.months) + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        days += 30;
        months -= 1;
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        days -= 30;
        months += 1;
    }
    if days > 0 && micros < 0 {
        micros += DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= DAY;
        days += 1;
    }
    let months = i32::try_from(months).map_err(|_| interval_range())?;
    Ok(Interval { months, days: days as i32, micros })
}

/// `age(later, earlier)`: the difference in years, months, days and time, of local times.
pub fn age(later: i64, earlier: i64) -> SqlResult<Interval> {
    if is_infinite_timestamp(later) || is_infinite_timestamp(earlier) {
        return Err(out_of_range("timestamp"));
    }
    let (high, low, sign) = if later >= earlier { (later, earlier, 1) } else { (earlier, later, -1) };
    let (a, b) = (Civil::from_timestamp(high), Civil::from_timestamp(low));
    let mut months = (a.year - b.year) * 12 + a.month - b.month;
    let mut days = a.day - b.day;
    let mut micros = a.micros - b.micros;
    if micros < 0 {
        micros += DAY;
        days -= 1;
    }
    while days < 0 {
        days += days_in_month(b.year, b.month);
        months -= 1;
    }
    Ok(Interval { months: (sign * months) as i32, days: (sign * days) as i32, micros: sign * micros })
}

/// `make_date`; a negative year is BC.
pub fn make_date(year: i32, month: i32, day: i32) -> SqlResult<i32> {
    let bad = || {
        SqlError::new(
            SqlState::DATETIME_OVERFLOW,
            format!("date field value out of range: {year}-{month:02}-{day:02}"),
        )
    };
    let astronomical = match year {
        0 => return Err(bad()),
        year if year < 0 => i64::from(year) + 1,
        year => i64::from(year),
    };
    if !(1..=12).contains(&month) || day < 1 || i64::from(day) > days_in_month(astronomical, i64::from(month))
    {
        return Err(bad());
    }
    check_date(days_from_civil(astronomical, i64::from(month), i64::from(day))).map_err(|_| {
        SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: {year}-{month:02}-{day:02}"))
    })
}

/// `make_time`.
pub fn make_time(hour: i32, minute: i32, second: f64) -> SqlResult<i64> {
    let micros = if (0.0..=60.0).contains(&second) {
        i64::from(hour) * HOUR + i64::from(minute) * MINUTE + (second * 1e6).round_ties_even() as i64
    } else {
        -1
    };
    if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !(0..=DAY).contains(&micros) {
        return Err(SqlError::new(
            SqlState::DATETIME_OVERFLOW,
            format!("time field value out of range: {hour}:{minute:02}:{second:02}"),
        ));
    }
    Ok(micros)
}

/// `make_timestamp`.
pub fn make_timestamp(
    year: i32,
    month: i32,
    day: i32,
    hour: i32,
    minute: i32,
    second: f64,
) -> SqlResult<i64> {
    let days = make_date(year, month, day)?;
    let micros = make_time(hour, minute, second)?;
    let midnight = super::parse::midnight(days)?;
    midnight.checked_add(micros).map_or_else(|| Err(out_of_range("timestamp")), check_timestamp)
}

/// `make_interval`: years, months, weeks, days, hours, minutes, seconds.
pub fn make_interval(parts: [i32; 6], seconds: f64) -> SqlResult<Interval> {
    let [years, months, weeks, days, hours, minutes] = parts;
    let made = || {
        let micros = seconds * 1e6;
        if !micros.is_finite() || micros.abs() > 9e18 {
            return None;
        }
        Some(Interval {
            months: years.checked_mul(12)?.checked_add(months)?,
            days: weeks.checked_mul(7)?.checked_add(days)?,
            micros: (i64::from(hours) * HOUR)
                .checked_add(i64::from(minutes) * MINUTE)?
                .checked_add(micros.round_ties_even() as i64)?,
        })
    };
    made().ok_or_else(interval_range)
}
