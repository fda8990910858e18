//! `to_timestamp` and `to_date`: reading text by a template.

use super::calendar::{Civil, civil_from_days, days_from_civil, days_in_month, is_leap, iso_week_start};
use super::format::{MONTHS, WEEKDAYS};
use super::pattern::{Keyword as K, Node, clock_micros, parse_template};
use super::zone::TimeZone;
use super::{SECOND, check_date, check_timestamp};
use crate::error::{SqlError, SqlResult, SqlState};

/// What has been read.
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    year_digits: usize,
    century: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    iso_day_of_year: Option<i64>,
    week_of_year: Option<i64>,
    week_of_month: Option<i64>,
    hour: i64,
    half_day: bool,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    seconds_of_day: Option<i64>,
    micros: i64,
    bc: bool,
    offset: Option<(i64, i64)>,
    negative_offset: bool,
    zone: Option<TimeZone>,
}

fn invalid(value: &str, keyword: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_DATETIME, format!("invalid value \"{value}\" for \"{keyword}\""))
}

fn label(keyword: K) -> &'static str {
    match keyword {
        K::Year(4) => "YYYY",
        K::Year(3) => "YYY",
        K::Year(2) => "YY",
        K::Year(_) => "Y",
        K::YearWithComma => "Y,YYY",
        K::Month => "MM",
        K::MonthName => "MONTH",
        K::MonthAbbreviation => "MON",
        K::DayOfMonth => "DD",
        K::DayOfYear => "DDD",
        K::DayName => "DAY",
        K::DayAbbreviation => "DY",
        K::DayOfWeek => "D",
        K::Hour24 => "HH24",
        K::Hour12 => "HH12",
        K::Minute => "MI",
        K::Second => "SS",
        K::Millisecond => "MS",
        K::Microsecond => "US",
        K::Meridiem { .. } => "AM",
        K::Era { .. } => "AD",
        K::ZoneHours => "TZH",
        K::ZoneMinutes => "TZM",
        K::Julian => "J",
        K::Quarter => "Q",
        K::Century => "CC",
        K::RomanMonth => "RM",
        K::SecondsOfDay => "SSSS",
        K::WeekOfYear => "WW",
        K::WeekOfMonth => "W",
        K::IsoWeek => "IW",
        K::IsoYear(_) => "IYYY",
        K::IsoDayOfWeek => "ID",
        K::IsoDayOfYear => "IDDD",
        K::Fraction(_) => "FF",
        K::Exact => "FX",
        K::Offset => "OF",
        K::ZoneName => "TZ",
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// A number of at most `width` digits, or of any length if no digit follows its field.
    fn number(&mut self, keyword: K, width: usize, greedy: bool) -> SqlResult<(i64, usize)> {
        self.skip_blanks();
        let signed = self.rest.starts_with(['-', '+']);
        let body = &self.rest[usize::from(signed)..];
        let most = if greedy { 18 } else { width };
        let length = body.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if length == 0 {
            let end = self.rest.char_indices().nth(width).map_or(self.rest.len(), |(at, _)| at);
            let shown = &self.rest[..end];
            return Err(invalid(shown, label(keyword)).with_detail("Value must be an integer."));
        }
        let value: i64 = body[..length].parse().map_err(|_| invalid(&body[..length], label(keyword)))?;
        let negative = self.rest.starts_with('-');
        self.rest = &body[length..];
        Ok((if negative { -value } else { value }, length))
    }

    /// One of the names, whole or (if `short`) by its first three letters.
    fn name(&mut self, keyword: K, names: &[&str], short: bool) -> SqlResult<i64> {
        self.skip_blanks();
        let lower = self.rest.to_ascii_lowercase();
        for (index, name) in names.iter().enumerate() {
            let wanted = if short { name.get(..3).unwrap_or(name) } else { name };
            if lower.starts_with(&wanted.to_ascii_lowercase()) {
                self.rest = &self.rest[wanted.len()..];
                return Ok(index as i64);
            }
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(self.rest.len());
        Err(invalid(&self.rest[..end], label(keyword))
            .with_detail("The given value did not match any of the allowed values for this field."))
    }
}

fn read(text: &str, template: &str) -> SqlResult<Fields> {
    let nodes = parse_template(template);
    let mut fields = Fields::default();
    let mut reader = Reader { rest: text };
    for (index, node) in nodes.iter().enumerate() {
        if reader.rest.is_empty() {
            break;
        }
        match node {
            Node::Text(text) => skip_text(&mut reader, text),
            Node::Field { keyword, ordinal, fill, .. } => {
                // A number stops at its width only if another number follows at once.
                let greedy = !matches!(nodes.get(index + 1), Some(Node::Field { .. })) || !fill;
                fields.take(*keyword, greedy, &mut reader)?;
                if ordinal.is_some() && reader.rest.len() >= 2 && reader.rest.is_char_boundary(2) {
                    reader.rest = &reader.rest[2..];
                }
            }
        }
    }
    Ok(fields)
}

/// Separators match any separators or none; letters match one character each.
fn skip_text(reader: &mut Reader<'_>, text: &str) {
    for c in text.chars() {
        let Some(next) = reader.rest.chars().next() else { return };
        let separator = |c: char| !c.is_alphanumeric();
        if c.is_whitespace() {
            reader.skip_blanks();
            if let Some(next) = reader.rest.chars().next()
                && separator(next)
                && !matches!(next, '+' | '-')
            {
                reader.rest = &reader.rest[next.len_utf8()..];
            }
        } else if separator(c) {
            let blanks = reader.rest.trim_start();
            if let Some(next) = blanks.chars().next()
                && separator(next)
            {
                reader.rest = &blanks[next.len_utf8()..];
            }
        } else {
            reader.rest = &reader.rest[next.len_utf8()..];
        }
    }
}

impl Fields {
    fn take(&mut self, keyword: K, greedy: bool, reader: &mut Reader<'_>) -> SqlResult<()> {
        let mut number = |width: usize| reader.number(keyword, width, greedy && width != 1);
        match keyword {
            K::Year(width) => {
                let (year, digits) = reader.number(keyword, width, greedy && width == 4)?;
                self.year = Some(if digits < 4 && width < 4 { near_2020(year, digits) } else { year });
                self.year_digits = digits;
            }
            K::YearWithComma => {
                let (thousands, _) = reader.number(keyword, 9, true)?;
                reader.rest = reader.rest.strip_prefix(',').unwrap_or(reader.rest);
                let (rest, _) = reader.number(keyword, 3, false)?;
                self.year = Some(thousands * 1000 + rest);
                self.year_digits = 4;
            }
            K::IsoYear(width) => {
                let (year, digits) = reader.number(keyword, width, greedy && width == 4)?;
                self.iso_year = Some(if digits < 4 && width < 4 { near_2020(year, digits) } else { year });
            }
            K::Century => self.century = Some(number(2)?.0),
            K::Month => self.month = Some(number(2)?.0),
            K::DayOfMonth => self.day = Some(number(2)?.0),
            K::DayOfYear => self.day_of_year = Some(number(3)?.0),
            K::IsoDayOfYear => self.iso_day_of_year = Some(number(3)?.0),
            K::IsoWeek => self.iso_week = Some(number(2)?.0),
            K::IsoDayOfWeek => self.iso_day = Some(number(1)?.0),
            K::WeekOfYear => self.week_of_year = Some(number(2)?.0),
            K::WeekOfMonth => self.week_of_month = Some(number(1)?.0),
            K::DayOfWeek | K::Quarter => {
                number(1)?;
            }
            K::Julian => self.julian = Some(reader.number(keyword, 9, true)?.0),
            K::Hour24 => self.hour = number(2)?.0,
            K::Hour12 => {
                self.hour = number(2)?.0;
                self.half_day = true;
            }
            K::Minute => self.minute = number(2)?.0,
            K::Second => self.second = number(2)?.0,
            K::SecondsOfDay => self.seconds_of_day = Some(reader.number(keyword, 5, true)?.0),
            K::Millisecond => self.micros += fraction(reader.number(keyword, 3, false)?, 3),
            K::Microsecond => self.micros += fraction(reader.number(keyword, 6, false)?, 6),
            K::Fraction(digits) => {
                self.micros += fraction(reader.number(keyword, digits as usize, false)?, digits as usize);
            }
            K::MonthName => {
                self.month = Some(
                    reader.name(keyword, &MONTHS, false).or_else(|_| reader.name(keyword, &MONTHS, true))?
                        + 1,
                );
            }
            K::MonthAbbreviation => self.month = Some(reader.name(keyword, &MONTHS, true)? + 1),
            K::DayName => {
                reader.name(keyword, &WEEKDAYS, false).or_else(|_| reader.name(keyword, &WEEKDAYS, true))?;
            }
            K::DayAbbreviation => {
                reader.name(keyword, &WEEKDAYS, true)?;
            }
            K::RomanMonth => {
                // Longer numerals first, or XII would be read as X.
                let names = ["XII", "XI", "VIII", "VII", "VI", "IV", "IX", "X", "V", "III", "II", "I"];
                let months = [12, 11, 8, 7, 6, 4, 9, 10, 5, 3, 2, 1];
                let index = reader.name(keyword, &names, false)?;
                self.month = months.get(index as usize).copied();
            }
            K::Meridiem { dots } => {
                let names = if dots { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                self.afternoon = Some(reader.name(keyword, &names, false)? == 1);
            }
            K::Era { dots } => {
                let names = if dots { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                self.bc = reader.name(keyword, &names, false)? == 1;
            }
            K::ZoneHours => {
                reader.skip_blanks();
                self.negative_offset = reader.rest.starts_with('-');
                let (hours, _) = reader.number(keyword, 2, false)?;
                self.offset = Some((hours.abs(), 0));
            }
            K::ZoneMinutes => {
                let (minutes, _) = reader.number(keyword, 2, false)?;
                self.offset = Some((self.offset.map_or(0, |(hours, _)| hours), minutes));
            }
            K::Offset | K::ZoneName => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("formatting field \"{}\" is only supported in to_char", label(keyword)),
                ));
            }
            K::Exact => {}
        }
        Ok(())
    }

    fn date(&self) -> SqlResult<i64> {
        let out_of_range =
            || SqlError::new(SqlState::DATETIME_OVERFLOW, "date/time field value out of range");
        if let Some(julian) = self.julian {
            return Ok(julian + i64::from(super::MIN_DATE));
        }
        let iso = [self.iso_year, self.iso_week, self.iso_day, self.iso_day_of_year];
        let gregorian = [self.year, self.month, self.day, self.day_of_year];
        if iso.iter().any(Option::is_some) && gregorian.iter().any(Option::is_some) {
            return Err(SqlError::new(SqlState::INVALID_DATETIME, "invalid combination of date conventions")
                .with_hint("Do not mix Gregorian and ISO week date conventions in a formatting template."));
        }
        if self.iso_year.is_some() || self.iso_week.is_some() {
            let year = self.iso_year.unwrap_or(1);
            if let Some(day) = self.iso_day_of_year {
                return Ok(iso_week_start(year, 1) + day - 1);
            }
            let week = self.iso_week.unwrap_or(1);
            if !(1..=53).contains(&week) {
                return Err(out_of_range());
            }
            return Ok(iso_week_start(year, week) + self.iso_day.unwrap_or(1) - 1);
        }
        let mut year = match (self.year, self.century) {
            (Some(year), Some(century)) if self.year_digits <= 2 => (century - 1) * 100 + year % 100,
            (Some(year), _) => year,
            (None, Some(century)) => (century - 1) * 100 + 1,
            (None, None) => 0,
        };
        if self.bc {
            year = 1 - year;
        } else if year < 0 {
            year += 1;
        } else if self.year.is_none() && self.century.is_none() {
            // No year at all is 1 BC.
            year = 0;
        }
        if let Some(day) = self.day_of_year {
            if !(1..=365 + i64::from(is_leap(year))).contains(&day) {
                return Err(out_of_range());
            }
            return Ok(days_from_civil(year, 1, 1) + day - 1);
        }
        if let Some(week) = self.week_of_year {
            return Ok(days_from_civil(year, 1, 1) + (week - 1) * 7);
        }
        let month = self.month.unwrap_or(1);
        let day = self.day.or(self.week_of_month.map(|week| (week - 1) * 7 + 1)).unwrap_or(1);
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) || year.abs() > 6_000_000
        {
            return Err(out_of_range());
        }
        Ok(days_from_civil(year, month, day))
    }

    fn time(&self) -> SqlResult<i64> {
        let out_of_range =
            || SqlError::new(SqlState::DATETIME_OVERFLOW, "date/time field value out of range");
        if let Some(seconds) = self.seconds_of_day {
            if !(0..86_400).contains(&seconds) {
                return Err(out_of_range());
            }
            return Ok(seconds * SECOND + self.micros);
        }
        let mut hour = self.hour;
        if self.half_day || self.afternoon.is_some() {
            if !(1..=12).contains(&hour) && self.half_day {
                return Err(SqlError::new(
                    SqlState::INVALID_DATETIME,
                    format!("hour \"{hour}\" is invalid for the 12-hour clock"),
                )
                .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            if self.afternoon == Some(true) && hour < 12 {
                hour += 12;
            } else if self.afternoon != Some(true) && hour == 12 && self.half_day {
                hour = 0;
            }
        }
        clock_micros(hour, self.minute, self.second, self.micros).ok_or_else(out_of_range)
    }
}

/// Two- and three-digit years are taken to be near 2020.
fn near_2020(year: i64, digits: usize) -> i64 {
    if !(0..1000).contains(&year) || digits >= 4 {
        return year;
    }
    match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        _ => year + 1000,
    }
}

/// Digits after a point, in microseconds.
fn fraction((value, digits): (i64, usize), width: usize) -> i64 {
    let digits = digits.min(width).min(6) as u32;
    value.abs() * 10i64.pow(6 - digits)
}

/// `to_date`.
pub fn to_date(text: &str, template: &str) -> SqlResult<i32> {
    let fields = read(text, template)?;
    let days = fields.date().map_err(|error| shown(error, text))?;
    fields.time().map_err(|error| shown(error, text))?;
    check_date(days)
}

fn shown(mut error: SqlError, text: &str) -> SqlError {
    if error.code == SqlState::DATETIME_OVERFLOW {
        error.message = format!("date/time field value out of range: \"{text}\"");
    }
    error
}

/// `to_timestamp`: without a zone in the template, the text is in the session's.
pub fn to_timestamp(text: &str, template: &str, zone: &TimeZone) -> SqlResult<i64> {
    let fields = read(text, template)?;
    let days = fields.date().map_err(|error| shown(error, text))?;
    let micros = fields.time().map_err(|error| shown(error, text))?;
    let (year, month, day) = civil_from_days(days);
    let local =
        Civil { year, month, day, micros }.timestamp().ok_or_else(|| super::out_of_range("timestamp"))?;
    let utc = match (fields.offset, &fields.zone) {
        (Some((hours, minutes)), _) => {
            let seconds = hours * 3600 + minutes * 60;
            local.checked_sub(if fields.negative_offset { -seconds } else { seconds } * SECOND)
        }
        (None, Some(zone)) => zone.to_utc(local),
        (None, None) => zone.to_utc(local),
    };
    utc.map_or_else(|| Err(super::out_of_range("timestamp")), check_timestamp)
}
