//! Text form of intervals, in every `IntervalStyle`, and their modifiers.

use super::format::put_fraction;
use super::{DAY, HOUR, MINUTE, SECOND};
use crate::context::IntervalStyle;
use crate::datum::Interval;
use crate::error::{SqlError, SqlResult, SqlState};
use std::fmt::Write;

/// Appends an interval.
pub fn format_interval(value: Interval, style: IntervalStyle, out: &mut String) {
    let parts = Shown {
        years: i64::from(value.months / 12),
        months: i64::from(value.months % 12),
        days: i64::from(value.days),
        hours: value.micros / HOUR,
        minutes: value.micros % HOUR / MINUTE,
        seconds: value.micros % MINUTE / SECOND,
        micros: value.micros % SECOND,
    };
    match style {
        IntervalStyle::Postgres => parts.postgres(out),
        IntervalStyle::PostgresVerbose => parts.verbose(out),
        IntervalStyle::SqlStandard => parts.sql_standard(out),
        IntervalStyle::Iso8601 => parts.iso_8601(out),
    }
}

/// An interval in the units it is shown in; all of a part's units have one sign.
struct Shown {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Shown {
    fn time(&self) -> [i64; 4] {
        [self.hours, self.minutes, self.seconds, self.micros]
    }

    fn postgres(&self, out: &mut String) {
        let mut empty = true;
        let mut before = false;
        for (value, unit) in [(self.years, "year"), (self.months, "mon"), (self.days, "day")] {
            if value == 0 {
                continue;
            }
            if !empty {
                out.push(' ');
            }
            let plus = if before && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            let _ = write!(out, "{plus}{value} {unit}{plural}");
            before = value < 0;
            empty = false;
        }
        if empty || self.time().iter().any(|part| *part != 0) {
            if !empty {
                out.push(' ');
            }
            if self.time().iter().any(|part| *part < 0) {
                out.push('-');
            } else if before {
                out.push('+');
            }
            let _ =
                write!(out, "{:02}:{:02}:{:02}", self.hours.abs(), self.minutes.abs(), self.seconds.abs());
            put_fraction(self.micros.abs(), out);
        }
    }

    fn verbose(&self, out: &mut String) {
        out.push('@');
        let mut empty = true;
        let mut before = false;
        let units = [
            (self.years, "year"),
            (self.months, "mon"),
            (self.days, "day"),
            (self.hours, "hour"),
            (self.minutes, "min"),
        ];
        for (value, unit) in units {
            if value == 0 {
                continue;
            }
            if empty {
                before = value < 0;
            }
            let value = if before { -value } else { value };
            let plural = if value == 1 { "" } else { "s" };
            let _ = write!(out, " {value} {unit}{plural}");
            empty = false;
        }
        if self.seconds != 0 || self.micros != 0 {
            out.push(' ');
            let negative = self.seconds < 0 || self.micros < 0;
            if empty {
                before = negative;
            } else if negative != before {
                out.push('-');
            }
            let _ = write!(out, "{}", self.seconds.abs());
            put_fraction(self.micros.abs(), out);
            out.push_str(if self.seconds.abs() == 1 && self.micros == 0 { " sec" } else { " secs" });
            empty = false;
        }
        if empty {
            out.push_str(" 0");
        }
        if before {
            out.push_str(" ago");
        }
    }

    fn sql_standard(&self, out: &mut String) {
        let all = [self.years, self.months, self.days, self.hours, self.minutes, self.seconds, self.micros];
        let negative = all.iter().any(|part| *part < 0);
        let positive = all.iter().any(|part| *part > 0);
        let year_month = self.years != 0 || self.months != 0;
        let day_time = all[2..].iter().any(|part| *part != 0);
        let clock = |out: &mut String| {
            let _ = write!(out, "{}:{:02}:{:02}", self.hours.abs(), self.minutes.abs(), self.seconds.abs());
            put_fraction(self.micros.abs(), out);
        };
        if !negative && !positive {
            out.push('0');
        } else if (negative && positive) || (year_month && day_time) {
            let sign = |negative: bool| if negative { '-' } else { '+' };
            let _ = write!(
                out,
                "{}{}-{} {}{} {}",
                sign(self.years < 0 || self.months < 0),
                self.years.abs(),
                self.months.abs(),
                sign(self.days < 0),
                self.days.abs(),
                sign(self.time().iter().any(|part| *part < 0)),
            );
            clock(out);
        } else {
            if negative {
                out.push('-');
            }
            if year_month {
                let _ = write!(out, "{}-{}", self.years.abs(), self.months.abs());
            } else {
                if self.days != 0 {
                    let _ = write!(out, "{} ", self.days.abs());
                }
                clock(out);
            }
        }
    }

    fn iso_8601(&self, out: &mut String) {
        out.push('P');
        for (value, unit) in [(self.years, 'Y'), (self.months, 'M'), (self.days, 'D')] {
            if value != 0 {
                let _ = write!(out, "{value}{unit}");
            }
        }
        if self.time().iter().any(|part| *part != 0) {
            out.push('T');
            for (value, unit) in [(self.hours, 'H'), (self.minutes, 'M')] {
                if value != 0 {
                    let _ = write!(out, "{value}{unit}");
                }
            }
            if self.seconds != 0 || self.micros != 0 {
                if self.seconds < 0 || self.micros < 0 {
                    out.push('-');
                }
                let _ = write!(out, "{}", self.seconds.abs());
                put_fraction(self.micros.abs(), out);
                out.push('S');
            }
        }
        if out.ends_with('P') {
            out.push_str("T0S");
        }
    }
}

/// What a number in an interval counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Micros(i64),
    Days(i64),
    Months(i64),
}

fn unit(word: &str) -> Option<Unit> {
    Some(match word {
        "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" | "microsecon" => {
            Unit::Micros(1)
        }
        "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" | "millisecon" => {
            Unit::Micros(1000)
        }
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Micros(SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Micros(MINUTE),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Micros(HOUR),
        "d" | "day" | "days" => Unit::Days(1),
        "w" | "week" | "weeks" => Unit::Days(7),
        "mon" | "mons" | "month" | "months" => Unit::Months(1),
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Months(12),
        "dec" | "decs" | "decade" | "decades" => Unit::Months(120),
        "c" | "cent" | "century" | "centuries" => Unit::Months(1200),
        "mil" | "mils" | "millennia" | "millennium" => Unit::Months(12_000),
        _ => return None,
    })
}

/// Why an interval is refused.
enum Refusal {
    Syntax,
    Range,
    /// The fields are possible, their sum is not.
    Overflow,
}

/// An interval as it is summed up.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

impl Sum {
    /// Adds `whole + fraction` of a unit; a fraction spills into the next smaller units.
    fn add(&mut self, whole: i64, fraction: f64, unit: Unit) -> Result<(), Refusal> {
        let add = |target: &mut i64, amount: Option<i64>| {
            *target = amount.and_then(|amount| target.checked_add(amount)).ok_or(Refusal::Range)?;
            Ok(())
        };
        match unit {
            Unit::Micros(size) => {
                add(&mut self.micros, whole.checked_mul(size))?;
                add(&mut self.micros, Some((fraction * size as f64).round_ties_even() as i64))
            }
            Unit::Days(size) => {
                add(&mut self.days, whole.checked_mul(size))?;
                self.spill_days(fraction * size as f64)
            }
            Unit::Months(size) => {
                i32::try_from(whole).map_err(|_| Refusal::Range)?;
                add(&mut self.months, whole.checked_mul(size))?;
                if size == 1 {
                    return self.spill_days(fraction * 30.0);
                }
                add(&mut self.months, Some((fraction * size as f64).round_ties_even() as i64))
            }
        }
    }

    fn spill_days(&mut self, days: f64) -> Result<(), Refusal> {
        let whole = days.trunc();
        self.days = self.days.checked_add(whole as i64).ok_or(Refusal::Range)?;
        let micros = ((days - whole) * DAY as f64).round_ties_even() as i64;
        self.micros = self.micros.checked_add(micros).ok_or(Refusal::Range)?;
        Ok(())
    }

    fn finish(self) -> Result<Interval, Refusal> {
        Ok(Interval {
            months: i32::try_from(self.months).map_err(|_| Refusal::Overflow)?,
            days: i32::try_from(self.days).map_err(|_| Refusal::Range)?,
            micros: self.micros,
        })
    }
}

/// Bits of the fields in an interval's modifier, whose upper half they are.
pub mod range {
    #![allow(missing_docs)]
    pub const YEAR: i32 = 1 << 2;
    pub const MONTH: i32 = 1 << 1;
    pub const DAY: i32 = 1 << 3;
    pub const HOUR: i32 = 1 << 10;
    pub const MINUTE: i32 = 1 << 11;
    pub const SECOND: i32 = 1 << 12;
    pub const FULL: i32 = 0x7fff;
}

fn range_of(typmod: i32) -> i32 {
    if typmod < 0 { range::FULL } else { (typmod >> 16) & 0x7fff }
}

/// The unit a bare number has: the last field of the modifier, seconds without one.
fn default_unit(typmod: i32) -> Unit {
    let fields = range_of(typmod);
    if fields == range::FULL || fields & range::SECOND != 0 {
        Unit::Micros(SECOND)
    } else if fields & range::MINUTE != 0 {
        Unit::Micros(MINUTE)
    } else if fields & range::HOUR != 0 {
        Unit::Micros(HOUR)
    } else if fields & range::DAY != 0 {
        Unit::Days(1)
    } else if fields & range::MONTH != 0 {
        Unit::Months(1)
    } else {
        Unit::Months(12)
    }
}

/// Reads an interval in any style, and fits it to the modifier.
pub fn parse_interval(text: &str, typmod: i32) -> SqlResult<Interval> {
    let trimmed = text.trim();
    let result = if trimmed.starts_with(['P', 'p']) && trimmed.len() > 1 {
        parse_iso(&trimmed[1..])
    } else {
        parse_words(trimmed, typmod)
    };
    let interval = result.map_err(|refusal| match refusal {
        Refusal::Syntax => SqlError::new(
            SqlState::INVALID_DATETIME,
            format!("invalid input syntax for type interval: \"{text}\""),
        ),
        Refusal::Overflow => super::out_of_range("interval"),
        Refusal::Range => SqlError::new(
            SqlState::INTERVAL_OVERFLOW,
            format!("interval field value out of range: \"{text}\""),
        ),
    })?;
    fit_interval(interval, typmod)
}

/// A number with its sign, and how it was written.
struct Number<'a> {
    negative: bool,
    body: &'a str,
}

impl Number<'_> {
    fn parts(&self) -> Result<(i64, f64), Refusal> {
        let (whole, fraction) = split_decimal(self.body)?;
        Ok(if self.negative { (-whole, -fraction) } else { (whole, fraction) })
    }
}

fn split_decimal(text: &str) -> Result<(i64, f64), Refusal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(Refusal::Syntax);
    }
    let value = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Refusal::Range)? };
    let fraction = if fraction.is_empty() {
        0.0
    } else {
        format!("0.{fraction}").parse().map_err(|_| Refusal::Syntax)?
    };
    Ok((value, fraction))
}

/// `[-]hh:mm[:ss[.f]]`, or `mm:ss.f` if the modifier is MINUTE TO SECOND.
fn parse_clock(body: &str, typmod: i32) -> Result<i64, Refusal> {
    let parts: Vec<&str> = body.split(':').collect();
    let whole = |text: &str| -> Result<i64, Refusal> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Refusal::Syntax);
        }
        text.parse().map_err(|_| Refusal::Range)
    };
    let seconds = |text: &str| -> Result<i64, Refusal> {
        let (seconds, fraction) = split_decimal(text)?;
        if seconds > 60 {
            return Err(Refusal::Range);
        }
        Ok(seconds * SECOND + (fraction * SECOND as f64).round_ties_even() as i64)
    };
    let (hours, minutes, micros) = match parts[..] {
        [minutes, rest] if rest.contains('.') || range_of(typmod) == range::MINUTE | range::SECOND => {
            (0, whole(minutes)?, seconds(rest)?)
        }
        [hours, minutes] => (whole(hours)?, whole(minutes)?, 0),
        [hours, minutes, rest] => (whole(hours)?, whole(minutes)?, seconds(rest)?),
        _ => return Err(Refusal::Syntax),
    };
    if minutes > 59 && (parts.len() == 3 || hours > 0) {
        return Err(Refusal::Range);
    }
    hours
        .checked_mul(HOUR)
        .and_then(|total| total.checked_add(minutes.checked_mul(MINUTE)?)?.checked_add(micros))
        .ok_or(Refusal::Range)
}

/// Whether the number before `rest` is one of hours.
fn counts_hours(rest: &str, typmod: i32) -> bool {
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    match &rest[..end] {
        "" => rest.is_empty() && default_unit(typmod) == Unit::Micros(HOUR),
        word => unit(&word.to_ascii_lowercase()) == Some(Unit::Micros(HOUR)),
    }
}

fn parse_words(text: &str, typmod: i32) -> Result<Interval, Refusal> {
    let mut sum = Sum::default();
    let mut rest = text.strip_prefix('@').unwrap_or(text).trim_start();
    let mut pending: Option<Number<'_>> = None;
    let mut ago = false;
    let mut any = false;
    let mut seen = Vec::new();
    while !rest.is_empty() {
        if let Some(number) = take_number(&mut rest)? {
            if let Some(before) = pending.take() {
                // `3 4:05:06` and `3 4 hours`: a number before a time counts days; otherwise it lacks its unit.
                if !number.body.contains(':') && !counts_hours(rest, typmod) {
                    return Err(Refusal::Syntax);
                }
                let (whole, fraction) = before.parts()?;
                sum.add(whole, fraction, Unit::Days(1))?;
            }
            any = true;
            let negative = number.negative;
            if number.body.contains(':') {
                let micros = parse_clock(number.body, typmod)?;
                let micros = if negative { -micros } else { micros };
                sum.micros = sum.micros.checked_add(micros).ok_or(Refusal::Range)?;
            } else if let Some((years, months)) = number.body.split_once('-') {
                // `1-2-3` is nothing, `1-2 -3` has days.
                let read = text.strip_suffix(rest).unwrap_or_default();
                if rest.starts_with('-') && read.ends_with(number.body) {
                    return Err(Refusal::Syntax);
                }
                let (years, _) = split_decimal(years)?;
                let (months, _) = split_decimal(months)?;
                if months >= 12 {
                    return Err(Refusal::Range);
                }
                let total = years.checked_mul(12).and_then(|years| years.checked_add(months));
                let total = total.ok_or(Refusal::Range)?;
                sum.months += if negative { -total } else { total };
            } else {
                pending = Some(Number { negative, ..number });
            }
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            if end == 0 {
                return Err(Refusal::Syntax);
            }
            let word = rest[..end].to_ascii_lowercase();
            rest = rest[end..].trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
            match pending.take() {
                Some(number) => {
                    let (whole, fraction) = number.parts()?;
                    let unit = unit(&word).ok_or(Refusal::Syntax)?;
                    // Each unit once; weeks, decades and the like add to theirs.
                    let repeatable = matches!(unit, Unit::Days(7) | Unit::Months(120..));
                    if seen.contains(&unit) && !repeatable {
                        return Err(Refusal::Syntax);
                    }
                    seen.push(unit);
                    sum.add(whole, fraction, unit)?;
                }
                None if word == "ago" && any && rest.is_empty() => ago = true,
                None => return Err(Refusal::Syntax),
            }
        }
    }
    if let Some(number) = pending {
        let (whole, fraction) = number.parts()?;
        sum.add(whole, fraction, default_unit(typmod))?;
    }
    if !any {
        return Err(Refusal::Syntax);
    }
    if ago {
        sum = Sum {
            months: -sum.months,
            days: -sum.days,
            micros: sum.micros.checked_neg().ok_or(Refusal::Range)?,
        };
    }
    sum.finish()
}

fn take_number<'a>(rest: &mut &'a str) -> Result<Option<Number<'a>>, Refusal> {
    let trimmed = rest.trim_start();
    let (negative, signed) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, true),
        Some(b'+') => (false, true),
        _ => (false, false),
    };
    let body = trimmed[usize::from(signed)..].trim_start();
    if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return if signed { Err(Refusal::Syntax) } else { Ok(None) };
    }
    let mut end = 0;
    let bytes = body.as_bytes();
    while end < bytes.len() {
        let inside = match bytes[end] {
            b'0'..=b'9' | b'.' | b':' => true,
            // `1-2` is one year and two months; a sign after a blank starts another number.
            b'-' => {
                bytes.get(end + 1).is_some_and(u8::is_ascii_digit) && !body[..end].contains(['-', ':', '.'])
            }
            _ => false,
        };
        if !inside {
            break;
        }
        end += 1;
    }
    *rest = body[end..].trim_start();
    Ok(Some(Number { negative, body: &body[..end] }))
}

/// ISO 8601 after the `P`: designators, or the alternative format `0001-02-03T04:05:06`.
fn parse_iso(text: &str) -> Result<Interval, Refusal> {
    let mut sum = Sum::default();
    let mut rest = text;
    let mut in_time = false;
    let mut any = false;
    while !rest.is_empty() {
        if !in_time && rest.starts_with(['T', 't']) {
            in_time = true;
            rest = &rest[1..];
            continue;
        }
        let negative = rest.starts_with('-');
        let body = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
        let (mut whole, mut fraction) = split_decimal(&body[..end])?;
        if negative {
            (whole, fraction) = (-whole, -fraction);
        }
        let designator = body[end..].chars().next();
        let unit = match (in_time, designator.map(|c| c.to_ascii_uppercase())) {
            (false, Some('Y')) => Unit::Months(12),
            (false, Some('M')) => Unit::Months(1),
            (false, Some('W')) => Unit::Days(7),
            (false, Some('D')) => Unit::Days(1),
            (true, Some('H')) => Unit::Micros(HOUR),
            (true, Some('M')) => Unit::Micros(MINUTE),
            (true, Some('S')) => Unit::Micros(SECOND),
            (_, Some('-' | ':')) if !any => return parse_iso_alternative(rest, in_time),
            _ => return Err(Refusal::Syntax),
        };
        sum.add(whole, fraction, unit)?;
        any = true;
        rest = &body[end + 1..];
    }
    if any { sum.finish() } else { Err(Refusal::Syntax) }
}

fn parse_iso_alternative(text: &str, time_only: bool) -> Result<Interval, Refusal> {
    let (date, time) = match text.split_once(['T', 't']) {
        _ if time_only => ("", text),
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    let mut sum = Sum::default();
    if !date.is_empty() {
        let units = [Unit::Months(12), Unit::Months(1), Unit::Days(1)];
        let parts: Vec<&str> = date.split('-').collect();
        if parts.len() > 3 {
            return Err(Refusal::Syntax);
        }
        for (part, unit) in parts.iter().zip(units) {
            let (whole, fraction) = split_decimal(part)?;
            sum.add(whole, fraction, unit)?;
        }
    }
    if !time.is_empty() {
        sum.micros = parse_clock(time, -1)?;
    }
    sum.finish()
}

/// Cuts the fields below an interval's modifier and rounds its seconds.
pub fn fit_interval(value: Interval, typmod: i32) -> SqlResult<Interval> {
    if typmod < 0 {
        return Ok(value);
    }
    let fields = range_of(typmod);
    let mut fitted = value;
    if fields != range::FULL {
        if fields & (range::HOUR | range::MINUTE | range::SECOND) == 0 {
            fitted.micros = 0;
            if fields & range::DAY == 0 {
                fitted.days = 0;
                if fields & range::MONTH == 0 {
                    fitted.months = fitted.months / 12 * 12;
                }
            }
        } else if fields & range::SECOND == 0 {
            let unit = if fields & range::MINUTE != 0 { MINUTE } else { HOUR };
            fitted.micros = fitted.micros / unit * unit;
        }
    }
    let precision = typmod & 0xffff;
    if precision != 0xffff {
        fitted.micros = super::round_micros(fitted.micros, precision)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range"))?;
    }
    Ok(fitted)
}
