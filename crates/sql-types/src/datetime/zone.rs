//! Time zones: those of the IANA database by name, abbreviations, and fixed offsets.

use super::calendar::{civil_from_days, days_from_civil, is_leap};
use super::{DAY, SECOND};
use crate::error::{SqlError, SqlResult, SqlState};
use chrono::{DateTime, NaiveDateTime, Offset, TimeZone as _};
use chrono_tz::OffsetName;
use std::sync::Arc;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeZone {
    /// A zone of the IANA database.
    Named(chrono_tz::Tz),
    /// A fixed offset.
    Fixed {
        /// Seconds east of UTC.
        seconds: i32,
        /// How it shows in `SHOW TimeZone`.
        name: Arc<str>,
    },
}

/// Abbreviations PostgreSQL knows by default, with their seconds east of UTC.
static ABBREVIATIONS: &[(&str, i32)] = &[
    ("utc", 0),
    ("gmt", 0),
    ("ut", 0),
    ("uct", 0),
    ("z", 0),
    ("zulu", 0),
    ("wet", 0),
    ("west", 3600),
    ("bst", 3600),
    ("cet", 3600),
    ("cest", 7200),
    ("met", 3600),
    ("mest", 7200),
    ("eet", 7200),
    ("eest", 10800),
    ("msk", 10800),
    ("msd", 14400),
    ("sast", 7200),
    ("ist", 7200),
    ("idt", 10800),
    ("pkt", 18000),
    ("ict", 25200),
    ("hkt", 28800),
    ("sgt", 28800),
    ("awst", 28800),
    ("jst", 32400),
    ("kst", 32400),
    ("acst", 34200),
    ("acdt", 37800),
    ("aest", 36000),
    ("aedt", 39600),
    ("nzst", 43200),
    ("nzdt", 46800),
    ("est", -18000),
    ("edt", -14400),
    ("cst", -21600),
    ("cdt", -18000),
    ("mst", -25200),
    ("mdt", -21600),
    ("pst", -28800),
    ("pdt", -25200),
    ("akst", -32400),
    ("akdt", -28800),
    ("hst", -36000),
    ("ast", -14400),
    ("adt", -10800),
    ("nst", -12600),
    ("ndt", -9000),
    ("brt", -10800),
    ("art", -10800),
    ("clt", -14400),
];

/// Largest offset accepted, exclusive: 168 hours less a second in POSIX names, 16 hours in input.
pub(super) const MAX_OFFSET: i32 = 16 * 3600;

impl TimeZone {
    /// UTC.
    pub const UTC: TimeZone = TimeZone::Named(chrono_tz::Tz::UTC);

    /// A fixed offset, named as PostgreSQL names it (`<+05:30>-05:30`).
    pub fn fixed(seconds: i32) -> TimeZone {
        let show = |seconds: i32| {
            let sign = if seconds < 0 { '-' } else { '+' };
            let (hours, rest) = (seconds.abs() / 3600, seconds.abs() % 3600);
            match (rest / 60, rest % 60) {
                (0, 0) => format!("{sign}{hours:02}"),
                (minutes, 0) => format!("{sign}{hours:02}:{minutes:02}"),
                (minutes, seconds) => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
            }
        };
        let name = format!("<{}>{}", show(seconds), show(-seconds));
        TimeZone::Fixed { seconds, name: name.into() }
    }

    /// A zone by full name or abbreviation, in any case, or by a POSIX-like name (`UTC+3` lies west).
    pub fn find(name: &str) -> Option<TimeZone> {
        let name = name.trim();
        if name.len() > 64 {
            return None;
        }
        if let Some(seconds) = Self::abbreviation_offset(name) {
            if seconds == 0 && name.eq_ignore_ascii_case("utc") {
                return Some(TimeZone::UTC);
            }
            return Some(TimeZone::Fixed { seconds, name: name.to_ascii_uppercase().into() });
        }
        if let Some(zone) = Self::named(name) {
            return Some(zone);
        }
        Self::posix(name)
    }

    /// A zone of the IANA database by name, in any case.
    fn named(name: &str) -> Option<TimeZone> {
        if let Ok(zone) = name.parse::<chrono_tz::Tz>() {
            return Some(TimeZone::Named(zone));
        }
        if let Some(zone) = chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name))
        {
            return Some(TimeZone::Named(*zone));
        }
        None
    }

    /// [`TimeZone::find`], or PostgreSQL's error.
    pub fn parse(name: &str) -> SqlResult<TimeZone> {
        Self::find(name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_PARAMETER, format!("time zone \"{name}\" not recognized"))
        })
    }

    /// The value of `SET TimeZone`: a name, or hours east of UTC as a number.
    pub fn parse_setting(value: &str) -> SqlResult<TimeZone> {
        if let Ok(hours) = value.trim().parse::<f64>() {
            if hours.abs() >= 168.0 || hours.is_nan() {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER,
                    format!("invalid value for parameter \"TimeZone\": \"{value}\""),
                ));
            }
            return Ok(TimeZone::fixed((hours * 3600.0) as i32));
        }
        // Here full names go before abbreviations: `CET` is a zone with summer time.
        Self::named(value.trim()).or_else(|| Self::find(value)).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("invalid value for parameter \"TimeZone\": \"{value}\""),
            )
        })
    }

    /// Seconds east of UTC of an abbreviation.
    pub(super) fn abbreviation_offset(name: &str) -> Option<i32> {
        ABBREVIATIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, seconds)| *seconds)
    }

    /// `STD[+-]hh[:mm[:ss]]`, where a positive offset lies west of Greenwich.
    fn posix(name: &str) -> Option<TimeZone> {
        let offset_at = if let Some(rest) = name.strip_prefix('<') {
            rest.find('>')? + 2
        } else {
            name.find(|c: char| !c.is_ascii_alphabetic())?
        };
        let offset = name.get(offset_at..)?;
        let (sign, digits) = match offset.as_bytes().first()? {
            b'-' => (1, &offset[1..]),
            b'+' => (-1, &offset[1..]),
            _ => (-1, offset),
        };
        let seconds = parse_offset(digits, 167)?;
        Some(TimeZone::Fixed { seconds: sign * seconds, name: name.into() })
    }

    /// How it shows in `SHOW TimeZone`.
    pub fn name(&self) -> &str {
        match self {
            TimeZone::Named(zone) => zone.name(),
            TimeZone::Fixed { name, .. } => name,
        }
    }

    /// Seconds east of UTC at an instant, given in microseconds since 2000-01-01 UTC.
    pub fn offset_at(&self, utc_micros: i64) -> i32 {
        match self {
            TimeZone::Fixed { seconds, .. } => *seconds,
            TimeZone::Named(chrono_tz::Tz::UTC) => 0,
            TimeZone::Named(zone) => match civil_time(utc_micros) {
                Some(time) => zone.offset_from_utc_datetime(&time).fix().local_minus_utc(),
                None => 0,
            },
        }
    }

    /// Seconds east of UTC that hold at a local time. A time that a change of the clocks skips is
    /// read with the offset before the change, one that occurs twice with the offset after it.
    pub fn offset_at_local(&self, local_micros: i64) -> i32 {
        match self {
            TimeZone::Fixed { seconds, .. } => *seconds,
            TimeZone::Named(chrono_tz::Tz::UTC) => 0,
            TimeZone::Named(zone) => {
                let Some(time) = civil_time(local_micros) else { return 0 };
                match zone.offset_from_local_datetime(&time) {
                    chrono::LocalResult::Single(offset) => offset.fix().local_minus_utc(),
                    chrono::LocalResult::Ambiguous(_, after) => after.fix().local_minus_utc(),
                    chrono::LocalResult::None => self.offset_at(local_micros.saturating_sub(DAY)),
                }
            }
        }
    }

    /// UTC of a local time; `None` if out of range.
    pub fn to_utc(&self, local_micros: i64) -> Option<i64> {
        local_micros.checked_sub(i64::from(self.offset_at_local(local_micros)) * SECOND)
    }

    /// Local time of an instant; `None` if out of range.
    pub fn to_local(&self, utc_micros: i64) -> Option<i64> {
        utc_micros.checked_add(i64::from(self.offset_at(utc_micros)) * SECOND)
    }

    /// The abbreviation in use at an instant (`CET`, `CEST`).
    pub fn abbreviation_at(&self, utc_micros: i64) -> String {
        match self {
            TimeZone::Fixed { name, .. } => {
                match name.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
                    Some((shown, _)) => shown.to_string(),
                    None => name.to_string(),
                }
            }
            TimeZone::Named(zone) => civil_time(utc_micros)
                .and_then(|time| zone.offset_from_utc_datetime(&time).abbreviation().map(str::to_string))
                .unwrap_or_default(),
        }
    }
}

/// `hh`, `hhmm`, `hh:mm` or `hh:mm:ss` in seconds.
pub(super) fn parse_offset(digits: &str, max_hours: i32) -> Option<i32> {
    let parts: Vec<&str> = digits.split(':').collect();
    if parts.iter().any(|part| part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    let number = |text: &str| text.parse::<i32>().ok();
    let (hours, minutes, seconds) = match parts[..] {
        [hours] if hours.len() <= 2 || (max_hours > 99 && hours.len() == 3) => (number(hours)?, 0, 0),
        [packed] if packed.len() <= 4 => (number(packed)? / 100, number(packed)? % 100, 0),
        [packed] if packed.len() <= 6 => {
            let packed = number(packed)?;
            (packed / 10_000, packed / 100 % 100, packed % 100)
        }
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    (hours <= max_hours && minutes < 60 && seconds < 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

/// The time for the zone tables, which end in this century: later years are mapped to one with the
/// same calendar whose rules are those in force for good.
fn civil_time(micros: i64) -> Option<NaiveDateTime> {
    let days = micros.div_euclid(DAY);
    let (year, month, day) = civil_from_days(days);
    let (days, micros_of_day) = (days, micros.rem_euclid(DAY));
    let days = if year > 2037 {
        let first = days_from_civil(year, 1, 1);
        let twin = (2010..2038).find(|candidate| {
            is_leap(*candidate) == is_leap(year)
                && (days_from_civil(*candidate, 1, 1) - first).rem_euclid(7) == 0
        })?;
        days_from_civil(twin, month, day)
    } else if year < -200_000 {
        return None;
    } else {
        days
    };
    let seconds = (days + 10_957) * 86_400 + micros_of_day / SECOND;
    DateTime::from_timestamp(seconds, (micros_of_day % SECOND * 1000) as u32).map(|time| time.naive_utc())
}
