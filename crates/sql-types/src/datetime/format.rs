//! Text output of dates, times and timestamps in every `DateStyle`.

use super::calendar::{Civil, weekday};
use super::{SECOND, is_infinite_date};
use crate::context::{DateOrder, DateStyle, TextContext};
use std::fmt::Write;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Appends a number with at least `width` digits: far quicker than `write!`, on the path of every row.
fn put(value: i64, width: usize, out: &mut String) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(value);
    for _ in text.len()..width {
        out.push('0');
    }
    out.push_str(text);
}

/// Appends `HH:MM:SS[.ffffff]`.
pub(super) fn put_time(micros: i64, out: &mut String) {
    let seconds = micros / SECOND;
    put(seconds / 3600, 2, out);
    out.push(':');
    put(seconds / 60 % 60, 2, out);
    out.push(':');
    put(seconds % 60, 2, out);
    put_fraction(micros % SECOND, out);
}

/// Appends `.ffffff` without trailing zeros, nothing for 0.
pub(super) fn put_fraction(micros: i64, out: &mut String) {
    if micros == 0 {
        return;
    }
    out.push('.');
    put(micros, 6, out);
    out.truncate(out.trim_end_matches('0').len());
}

fn shown_year(year: i64) -> i64 {
    if year > 0 { year } else { 1 - year }
}

fn put_infinity(negative: bool, out: &mut String) {
    out.push_str(if negative { "-infinity" } else { "infinity" });
}

/// The date part in a style; for `Postgres` this is the style of plain dates.
fn put_date(civil: &Civil, style: DateStyle, order: DateOrder, out: &mut String) {
    let year = shown_year(civil.year);
    match style {
        DateStyle::Iso => {
            put(year, 4, out);
            out.push('-');
            put(civil.month, 2, out);
            out.push('-');
            put(civil.day, 2, out);
        }
        DateStyle::German => {
            put(civil.day, 2, out);
            out.push('.');
            put(civil.month, 2, out);
            out.push('.');
            put(year, 4, out);
        }
        DateStyle::Sql | DateStyle::Postgres => {
            let separator = if style == DateStyle::Sql { '/' } else { '-' };
            let (first, second) =
                if order == DateOrder::Dmy { (civil.day, civil.month) } else { (civil.month, civil.day) };
            put(first, 2, out);
            out.push(separator);
            put(second, 2, out);
            out.push(separator);
            put(year, 4, out);
        }
    }
}

/// Appends a date.
pub fn format_date(days: i32, context: &TextContext<'_>, out: &mut String) {
    if is_infinite_date(days) {
        return put_infinity(days == i32::MIN, out);
    }
    let civil = Civil::from_date(days);
    put_date(&civil, context.date_style, context.date_order, out);
    if civil.year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends a time of day.
pub fn format_time(micros: i64, out: &mut String) {
    put_time(micros, out);
}

/// Appends a timestamp without time zone.
pub fn format_timestamp(micros: i64, context: &TextContext<'_>, out: &mut String) {
    put_timestamp(micros, None, context, out);
}

/// Appends a timestamp with time zone, in the session's zone.
pub fn format_timestamptz(micros: i64, context: &TextContext<'_>, out: &mut String) {
    if super::is_infinite_timestamp(micros) {
        return put_infinity(micros == i64::MIN, out);
    }
    let offset = context.time_zone.offset_at(micros);
    let local = micros.saturating_add(i64::from(offset) * SECOND);
    let zone = match context.date_style {
        DateStyle::Iso => Zone::Offset(offset),
        _ => {
            let abbreviation = context.time_zone.abbreviation_at(micros);
            if abbreviation.is_empty() || abbreviation.starts_with(['+', '-']) {
                Zone::Offset(offset)
            } else {
                Zone::Name(abbreviation)
            }
        }
    };
    put_timestamp(local, Some(zone), context, out);
}

enum Zone {
    Offset(i32),
    Name(String),
}

fn put_zone(zone: &Zone, space_before_name: bool, out: &mut String) {
    match zone {
        Zone::Name(name) => {
            if space_before_name {
                out.push(' ');
            }
            out.push_str(name);
        }
        Zone::Offset(seconds) => put_offset(*seconds, out),
    }
}

/// Appends `+HH[:MM[:SS]]`.
pub(super) fn put_offset(seconds: i32, out: &mut String) {
    out.push(if seconds < 0 { '-' } else { '+' });
    let seconds = i64::from(seconds.unsigned_abs());
    put(seconds / 3600, 2, out);
    if seconds % 3600 != 0 {
        out.push(':');
        put(seconds / 60 % 60, 2, out);
        if seconds % 60 != 0 {
            out.push(':');
            put(seconds % 60, 2, out);
        }
    }
}

fn put_timestamp(micros: i64, zone: Option<Zone>, context: &TextContext<'_>, out: &mut String) {
    if super::is_infinite_timestamp(micros) {
        return put_infinity(micros == i64::MIN, out);
    }
    let civil = Civil::from_timestamp(micros);
    match context.date_style {
        DateStyle::Postgres => {
            let name = |names: &'static [&'static str], index: i64| {
                names.get(index as usize).and_then(|name| name.get(..3)).unwrap_or("")
            };
            let _ = write!(out, "{} ", name(&WEEKDAYS, weekday(civil.days())));
            let month = name(&MONTHS, civil.month - 1);
            if context.date_order == DateOrder::Dmy {
                let _ = write!(out, "{:02} {month} ", civil.day);
            } else {
                let _ = write!(out, "{month} {:02} ", civil.day);
            }
            put_time(civil.micros, out);
            out.push(' ');
            put(shown_year(civil.year), 4, out);
            if let Some(zone) = zone {
                if matches!(zone, Zone::Offset(_)) {
                    out.push(' ');
                }
                put_zone(&zone, true, out);
            }
        }
        style => {
            put_date(&civil, style, context.date_order, out);
            out.push(' ');
            put_time(civil.micros, out);
            if let Some(zone) = zone {
                put_zone(&zone, true, out);
            }
        }
    }
    if civil.year <= 0 {
        out.push_str(" BC");
    }
}
