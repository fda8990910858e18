//! `to_char` of timestamps and intervals, and the template language it shares with `to_timestamp`.
//!
//! Localized names (`TM`) are those of the C locale.

use super::calendar::{Civil, iso_week, weekday};
use super::format::{MONTHS, WEEKDAYS, put_offset};
use super::zone::TimeZone;
use super::{DAY, HOUR, MINUTE, SECOND};
use crate::datum::Interval;
use std::fmt::Write;

/// A field of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Meridiem { dots: bool },
    Era { dots: bool },
    Century,
    DayName,
    DayAbbreviation,
    DayOfYear,
    DayOfMonth,
    DayOfWeek,
    Fraction(u32),
    Exact,
    Hour24,
    Hour12,
    IsoDayOfYear,
    IsoDayOfWeek,
    IsoWeek,
    IsoYear(usize),
    Julian,
    Minute,
    Month,
    MonthName,
    MonthAbbreviation,
    Millisecond,
    Offset,
    Quarter,
    RomanMonth,
    SecondsOfDay,
    Second,
    ZoneHours,
    ZoneMinutes,
    ZoneName,
    Microsecond,
    WeekOfYear,
    WeekOfMonth,
    YearWithComma,
    Year(usize),
}

/// How letters of a name are cased, taken from how its keyword is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Title,
    Lower,
}

/// An element of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Field { keyword: Keyword, case: Case, fill: bool, ordinal: Option<Case> },
    Text(String),
}

use Keyword as K;

/// Longest first among those with a common beginning.
static KEYWORDS: &[(&str, Keyword)] = &[
    ("A.D.", K::Era { dots: true }),
    ("A.M.", K::Meridiem { dots: true }),
    ("AD", K::Era { dots: false }),
    ("AM", K::Meridiem { dots: false }),
    ("B.C.", K::Era { dots: true }),
    ("BC", K::Era { dots: false }),
    ("CC", K::Century),
    ("DAY", K::DayName),
    ("DDD", K::DayOfYear),
    ("DD", K::DayOfMonth),
    ("DY", K::DayAbbreviation),
    ("D", K::DayOfWeek),
    ("FF1", K::Fraction(1)),
    ("FF2", K::Fraction(2)),
    ("FF3", K::Fraction(3)),
    ("FF4", K::Fraction(4)),
    ("FF5", K::Fraction(5)),
    ("FF6", K::Fraction(6)),
    ("FX", K::Exact),
    ("HH24", K::Hour24),
    ("HH12", K::Hour12),
    ("HH", K::Hour12),
    ("IDDD", K::IsoDayOfYear),
    ("ID", K::IsoDayOfWeek),
    ("IW", K::IsoWeek),
    ("IYYY", K::IsoYear(4)),
    ("IYY", K::IsoYear(3)),
    ("IY", K::IsoYear(2)),
    ("I", K::IsoYear(1)),
    ("J", K::Julian),
    ("MI", K::Minute),
    ("MM", K::Month),
    ("MONTH", K::MonthName),
    ("MON", K::MonthAbbreviation),
    ("MS", K::Millisecond),
    ("OF", K::Offset),
    ("P.M.", K::Meridiem { dots: true }),
    ("PM", K::Meridiem { dots: false }),
    ("Q", K::Quarter),
    ("RM", K::RomanMonth),
    ("SSSSS", K::SecondsOfDay),
    ("SSSS", K::SecondsOfDay),
    ("SS", K::Second),
    ("TZH", K::ZoneHours),
    ("TZM", K::ZoneMinutes),
    ("TZ", K::ZoneName),
    ("US", K::Microsecond),
    ("WW", K::WeekOfYear),
    ("W", K::WeekOfMonth),
    ("Y,YYY", K::YearWithComma),
    ("YYYY", K::Year(4)),
    ("YYY", K::Year(3)),
    ("YY", K::Year(2)),
    ("Y", K::Year(1)),
];

fn strip_prefix_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// Splits a template into fields and text.
pub(super) fn parse_template(template: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut rest = template;
    let push_text = |nodes: &mut Vec<Node>, c: char| match nodes.last_mut() {
        Some(Node::Text(text)) => text.push(c),
        _ => nodes.push(Node::Text(c.to_string())),
    };
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            rest = &rest[1..];
            let mut escaped = false;
            for (at, c) in rest.char_indices() {
                if c == '"' && !escaped {
                    rest = &rest[at + 1..];
                    escaped = true;
                    break;
                }
                if c == '\\' && !escaped {
                    escaped = true;
                    continue;
                }
                escaped = false;
                push_text(&mut nodes, c);
            }
            if !escaped {
                rest = "";
            }
            continue;
        }
        if first == '\\' && rest[1..].starts_with('"') {
            push_text(&mut nodes, '"');
            rest = &rest[2..];
            continue;
        }
        let mut fill = true;
        let mut body = rest;
        loop {
            if let Some(after) = strip_prefix_any_case(body, "FM") {
                fill = false;
                body = after;
            } else if let Some(after) = strip_prefix_any_case(body, "TM") {
                fill = false;
                body = after;
            } else {
                break;
            }
        }
        let found = KEYWORDS
            .iter()
            .find_map(|(name, keyword)| strip_prefix_any_case(body, name).map(|after| (*keyword, after)));
        match found {
            Some((keyword, after)) => {
                let written = &body[..body.len() - after.len()];
                let mut letters = written.chars().filter(char::is_ascii_alphabetic);
                let first_upper = letters.next().is_some_and(|c| c.is_ascii_uppercase());
                let second_upper = letters.next().is_some_and(|c| c.is_ascii_uppercase());
                let case = match (first_upper, second_upper) {
                    (true, true) => Case::Upper,
                    (true, false) => Case::Title,
                    _ => Case::Lower,
                };
                let mut ordinal = None;
                rest = after;
                if let Some(after) = strip_prefix_any_case(rest, "TH") {
                    ordinal = Some(if rest.starts_with('T') { Case::Upper } else { Case::Lower });
                    rest = after;
                }
                nodes.push(Node::Field { keyword, case, fill, ordinal });
            }
            None => {
                push_text(&mut nodes, first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    nodes
}

/// What a template shows.
struct Shown {
    civil: Civil,
    /// Hours may exceed a day, for intervals.
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
    interval: bool,
    /// Offset and abbreviation.
    zone: Option<(i32, String)>,
}

/// `to_char` of a finite timestamp in local time; the zone with its instant, for timestamptz.
pub fn timestamp_to_char(local: i64, zone: Option<(&TimeZone, i64)>, template: &str) -> String {
    let civil = Civil::from_timestamp(local);
    let time = civil.micros;
    Shown {
        civil,
        hours: time / HOUR,
        minutes: time / MINUTE % 60,
        seconds: time / SECOND % 60,
        micros: time % SECOND,
        interval: false,
        zone: zone.map(|(zone, utc)| (zone.offset_at(utc), zone.abbreviation_at(utc))),
    }
    .render(template)
}

/// `to_char` of an interval.
pub fn interval_to_char(value: Interval, template: &str) -> String {
    let time = value.micros;
    Shown {
        civil: Civil {
            year: i64::from(value.months / 12),
            month: i64::from(value.months % 12),
            day: i64::from(value.days),
            micros: 0,
        },
        hours: time / HOUR,
        minutes: time / MINUTE % 60,
        seconds: time / SECOND % 60,
        micros: time % SECOND,
        interval: true,
        zone: None,
    }
    .render(template)
}

static ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_ascii_uppercase(),
        Case::Title => text.to_string(),
        Case::Lower => text.to_ascii_lowercase(),
    }
}

fn ordinal_suffix(number: i64, case: Case) -> &'static str {
    let last_two = number.rem_euclid(100);
    let index = if (11..=13).contains(&last_two) { 0 } else { (last_two % 10) as usize };
    let (lower, upper) = match index {
        1 => ("st", "ST"),
        2 => ("nd", "ND"),
        3 => ("rd", "RD"),
        _ => ("th", "TH"),
    };
    if case == Case::Lower { lower } else { upper }
}

impl Shown {
    fn render(&self, template: &str) -> String {
        let mut out = String::new();
        for node in parse_template(template) {
            match node {
                Node::Text(text) => out.push_str(&text),
                Node::Field { keyword, case, fill, ordinal } => {
                    let number = self.field(keyword, case, fill, &mut out);
                    if let (Some(number), Some(case)) = (number, ordinal) {
                        out.push_str(ordinal_suffix(number, case));
                    }
                }
            }
        }
        out
    }

    /// Appends a field; its number, if it is one.
    fn field(&self, keyword: Keyword, case: Case, fill: bool, out: &mut String) -> Option<i64> {
        let civil = &self.civil;
        let mut number = |value: i64, width: usize| {
            // A sign takes a place of its own, but not where days are counted.
            let wide = value < 0 && !matches!(keyword, K::DayOfMonth | K::DayOfYear);
            let width = if fill { width + usize::from(wide) } else { 0 };
            let _ = write!(out, "{value:0width$}");
            Some(value)
        };
        let shown_year = if civil.year > 0 || self.interval { civil.year } else { 1 - civil.year };
        let iso_year = |digits: usize| {
            let year = if self.interval { civil.year } else { iso_week(civil.days()).0 };
            let year = if year > 0 || self.interval { year } else { 1 - year };
            if digits == 4 { year } else { year % 10i64.pow(digits as u32) }
        };
        let hour12 = match self.hours % 12 {
            0 => 12,
            hour => hour,
        };
        match keyword {
            K::Hour24 => number(self.hours, 2),
            K::Hour12 if self.interval => {
                number(self.hours % 12 + if self.hours % 12 == 0 { 12 } else { 0 }, 2)
            }
            K::Hour12 => number(hour12, 2),
            K::Minute => number(self.minutes, 2),
            K::Second => number(self.seconds, 2),
            K::Millisecond => number(self.micros / 1000, 3),
            K::Microsecond => number(self.micros, 6),
            K::Fraction(digits) => number(self.micros / 10i64.pow(6 - digits), digits as usize),
            K::SecondsOfDay => number(self.hours * 3600 + self.minutes * 60 + self.seconds, 1),
            K::Year(4) => number(shown_year, 4),
            K::Year(digits) => number(shown_year % 10i64.pow(digits as u32), digits),
            K::YearWithComma => {
                let _ = write!(out, "{},{:03}", shown_year / 1000, shown_year % 1000);
                Some(shown_year)
            }
            K::IsoYear(digits) => number(iso_year(digits), digits),
            K::Century => {
                let year = civil.year;
                let century = if self.interval {
                    year / 100
                } else if year > 0 {
                    (year - 1) / 100 + 1
                } else {
                    (year - 1) / 100 - 1
                };
                number(century, 2)
            }
            K::Month => number(civil.month, 2),
            K::Quarter if civil.month == 0 => None,
            K::Quarter => number((civil.month - 1) / 3 + 1, 1),
            K::DayOfMonth => number(civil.day, 2),
            K::DayOfYear if self.interval => number(civil.year * 360 + civil.month * 30 + civil.day, 3),
            K::DayOfYear => number(civil.day_of_year(), 3),
            K::DayOfWeek if !self.interval => number(weekday(civil.days()) + 1, 1),
            K::IsoDayOfWeek if !self.interval => number((weekday(civil.days()) + 6) % 7 + 1, 1),
            K::IsoDayOfYear if !self.interval => {
                let (year, _) = iso_week(civil.days());
                number(civil.days() - super::calendar::iso_week_start(year, 1) + 1, 3)
            }
            K::IsoWeek if !self.interval => number(iso_week(civil.days()).1, 2),
            K::WeekOfYear if !self.interval => number((civil.day_of_year() - 1) / 7 + 1, 2),
            K::WeekOfMonth => number((civil.day - 1) / 7 + 1, 1),
            K::Julian if !self.interval => number(civil.days() - i64::from(super::MIN_DATE), 1),
            K::ZoneHours => {
                let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
                let _ = write!(out, "{}{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 3600);
                None
            }
            K::ZoneMinutes => {
                let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
                let _ = write!(out, "{:02}", offset.abs() % 3600 / 60);
                None
            }
            _ => {
                self.name(keyword, case, fill, out);
                None
            }
        }
    }

    /// Appends a field that is text.
    fn name(&self, keyword: Keyword, case: Case, fill: bool, out: &mut String) {
        let civil = &self.civil;
        let pad = |text: String, width: usize, out: &mut String| {
            let width = if fill { width } else { 0 };
            let _ = write!(out, "{text:<width$}");
        };
        let name = |names: &[&'static str], index: i64| {
            usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("")
        };
        let short = |text: &'static str| text.get(..3).unwrap_or("");
        match keyword {
            K::Meridiem { dots } => {
                let text = match (self.hours % 24 >= 12, dots) {
                    (true, true) => "P.M.",
                    (true, false) => "PM",
                    (false, true) => "A.M.",
                    (false, false) => "AM",
                };
                out.push_str(&if case == Case::Upper { text.to_string() } else { text.to_ascii_lowercase() });
            }
            K::Era { dots } if !self.interval => {
                let text = match (civil.year <= 0, dots) {
                    (true, true) => "B.C.",
                    (true, false) => "BC",
                    (false, true) => "A.D.",
                    (false, false) => "AD",
                };
                out.push_str(&if case == Case::Upper { text.to_string() } else { text.to_ascii_lowercase() });
            }
            K::MonthName if civil.month > 0 => pad(cased(name(&MONTHS, civil.month - 1), case), 9, out),
            K::MonthAbbreviation if civil.month > 0 => {
                out.push_str(&cased(short(name(&MONTHS, civil.month - 1)), case));
            }
            K::DayName if !self.interval => {
                pad(cased(name(&WEEKDAYS, weekday(civil.days())), case), 9, out);
            }
            K::DayAbbreviation if !self.interval => {
                out.push_str(&cased(short(name(&WEEKDAYS, weekday(civil.days()))), case));
            }
            K::RomanMonth if civil.month > 0 => {
                let roman = name(&ROMAN, civil.month - 1);
                let text = if case == Case::Upper { roman.to_string() } else { roman.to_ascii_lowercase() };
                pad(text, 4, out);
            }
            K::ZoneName => {
                if let Some((_, abbreviation)) = &self.zone {
                    out.push_str(&if case == Case::Lower {
                        abbreviation.to_ascii_lowercase()
                    } else {
                        abbreviation.clone()
                    });
                }
            }
            K::Offset => {
                let offset = self.zone.as_ref().map_or(0, |(offset, _)| *offset);
                put_offset(offset / 60 * 60, out);
            }
            _ => {}
        }
    }
}

/// Microseconds of the day a template's fields give.
pub(super) fn clock_micros(hours: i64, minutes: i64, seconds: i64, micros: i64) -> Option<i64> {
    let valid = (0..24).contains(&hours) && (0..60).contains(&minutes) && (0..60).contains(&seconds);
    (valid && micros < DAY).then(|| hours * HOUR + minutes * MINUTE + seconds * SECOND + micros)
}
