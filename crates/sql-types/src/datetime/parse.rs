//! Text input of dates, times and timestamps.
//!
//! Accepts what PostgreSQL accepts of ISO 8601, the outputs of every `DateStyle`, dates with month
//! names, packed forms (`20200131T120000`), Julian days, BC, AM/PM, zone names, abbreviations and
//! offsets, and the special words `now`, `today`, `tomorrow`, `yesterday`, `epoch`, `infinity`.
//!
//! Missing: `y2020m01d31`-style fields.

use super::calendar::{Civil, civil_from_days, days_from_civil, days_in_month, is_leap};
use super::format::{MONTHS, WEEKDAYS};
use super::zone::{MAX_OFFSET, TimeZone, parse_offset};
use super::{DAY, HOUR, MINUTE, SECOND, UNIX_EPOCH_OFFSET, check_timestamp, out_of_range, round_micros};
use crate::context::{DateOrder, TextContext};
use crate::error::{SqlError, SqlResult, SqlState};

/// Why input is refused.
enum Refusal {
    Syntax,
    Field,
    /// A field that would have made sense with another `DateStyle`.
    MonthOrDay,
    Displacement,
    UnknownZone(String),
}

impl Refusal {
    fn error(self, ty: &str, text: &str) -> SqlError {
        let field = || {
            SqlError::new(
                SqlState::DATETIME_OVERFLOW,
                format!("date/time field value out of range: \"{text}\""),
            )
        };
        match self {
            Refusal::Syntax => SqlError::new(
                SqlState::INVALID_DATETIME,
                format!("invalid input syntax for type {ty}: \"{text}\""),
            ),
            Refusal::Field => field(),
            Refusal::MonthOrDay => field().with_hint("Perhaps you need a different \"datestyle\" setting."),
            Refusal::Displacement => SqlError::new(
                SqlState::INVALID_TIME_ZONE,
                format!("time zone displacement out of range: \"{text}\""),
            ),
            Refusal::UnknownZone(zone) => {
                SqlError::new(SqlState::INVALID_PARAMETER, format!("time zone \"{zone}\" not recognized"))
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    Now,
    Today,
    Tomorrow,
    Yesterday,
    Epoch,
    Infinity,
    NegInfinity,
}

enum Token<'a> {
    /// Digits, possibly with a decimal part.
    Number(&'a str),
    /// `hh:mm[:ss[.f]]`
    Time(&'a str),
    /// Up to three parts joined by `-`, `/` or `.`
    Date(Vec<&'a str>),
    Word(&'a str),
    /// A sign and an offset.
    Offset(bool, &'a str),
    /// A zone name with a slash.
    Zone(&'a str),
    /// `J` and a number.
    Julian(&'a str),
    NegInfinity,
}

fn scan(text: &str, mut inside: impl FnMut(u8) -> bool) -> usize {
    text.bytes().position(|byte| !inside(byte)).unwrap_or(text.len())
}

fn tokenize(text: &str) -> Result<Vec<Token<'_>>, Refusal> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(&first) = rest.as_bytes().first() {
        if tokens.len() > 25 {
            return Err(Refusal::Syntax);
        }
        let end;
        match first {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b',' | b'.' | b';' => end = 1,
            b'0'..=b'9' => {
                let (token, length) = digits_token(rest);
                tokens.push(token);
                end = length;
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                let (token, length) = word_token(rest);
                tokens.push(token);
                end = length;
            }
            b'+' | b'-' => {
                let length =
                    1 + scan(&rest[1..], |byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'));
                if length > 1 {
                    tokens.push(Token::Offset(first == b'-', &rest[1..length]));
                    end = length;
                } else if rest[1..].to_ascii_lowercase().starts_with("infinity") {
                    tokens.push(if first == b'-' { Token::NegInfinity } else { Token::Word("infinity") });
                    end = 9;
                } else if first == b'-' {
                    end = 1;
                } else {
                    return Err(Refusal::Syntax);
                }
            }
            _ => return Err(Refusal::Syntax),
        }
        rest = &rest[end..];
    }
    Ok(tokens)
}

fn digits_token(text: &str) -> (Token<'_>, usize) {
    let end = scan(text, |byte| byte.is_ascii_digit());
    match text.as_bytes().get(end) {
        Some(b':') => {
            let end = scan(text, |byte| byte.is_ascii_digit() || byte == b':' || byte == b'.');
            (Token::Time(&text[..end]), end)
        }
        Some(b'.') => {
            let all = scan(text, |byte| byte.is_ascii_digit() || byte == b'.');
            let named_month = text[end + 1..].starts_with(|c: char| c.is_ascii_alphabetic());
            if named_month || text[..all].matches('.').count() >= 2 {
                date_token(text, b'.')
            } else {
                (Token::Number(&text[..all]), all)
            }
        }
        Some(&separator @ (b'-' | b'/')) => date_token(text, separator),
        _ => (Token::Number(&text[..end]), end),
    }
}

/// Parts of digits or of letters, joined by one separator.
fn date_token(text: &str, separator: u8) -> (Token<'_>, usize) {
    let mut parts = Vec::with_capacity(3);
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let length = match rest.as_bytes().first() {
            Some(byte) if byte.is_ascii_digit() => scan(rest, |byte| byte.is_ascii_digit()),
            _ => scan(rest, |byte| byte.is_ascii_alphabetic()),
        };
        if length == 0 {
            // Not a part: leave the separator to what follows.
            at -= usize::from(at > 0);
            break;
        }
        parts.push(&rest[..length]);
        at += length;
        if parts.len() == 3 || text.as_bytes().get(at) != Some(&separator) {
            break;
        }
        at += 1;
    }
    (Token::Date(parts), at)
}

fn word_token(text: &str) -> (Token<'_>, usize) {
    let end = scan(text, |byte| byte.is_ascii_alphabetic());
    let word = &text[..end];
    match text.as_bytes().get(end) {
        Some(&separator @ (b'-' | b'/' | b'.')) if month(word).is_some() => date_token(text, separator),
        Some(b'/' | b'_') => {
            let end = scan(text, |byte| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte));
            (Token::Zone(&text[..end]), end)
        }
        Some(byte) if byte.is_ascii_digit() && word.eq_ignore_ascii_case("j") => {
            let end = 1 + scan(&text[1..], |byte| byte.is_ascii_digit());
            (Token::Julian(&text[1..end]), end)
        }
        _ => (Token::Word(word), end),
    }
}

fn named(word: &str, names: &[&str], least: usize) -> Option<i64> {
    let index = names.iter().position(|name| {
        word.len() >= least && (name.eq_ignore_ascii_case(word) || name[..3].eq_ignore_ascii_case(word))
    })?;
    Some(index as i64)
}

fn month(word: &str) -> Option<i64> {
    if word.eq_ignore_ascii_case("sept") {
        return Some(9);
    }
    named(word, &MONTHS, 3).map(|index| index + 1)
}

fn is_weekday(word: &str) -> bool {
    named(word, &WEEKDAYS, 3).is_some()
        || ["tues", "wednes", "weds", "thur", "thurs"].iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// What has been read.
#[derive(Default)]
struct Fields<'a> {
    /// Numbers of the date, in order of appearance.
    numbers: Vec<&'a str>,
    /// Month by name.
    month: Option<i64>,
    /// A whole date.
    date: Option<(i64, i64, i64)>,
    two_digit_year: bool,
    time: Option<i64>,
    zone: Option<TimeZone>,
    special: Option<Special>,
    bc: bool,
    afternoon: Option<bool>,
    expect_time: bool,
}

impl<'a> Fields<'a> {
    fn read(text: &'a str, context: &TextContext<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::default();
        for token in tokenize(text)? {
            fields.take(token)?;
        }
        fields.settle(context)?;
        Ok(fields)
    }

    fn take(&mut self, token: Token<'a>) -> Result<(), Refusal> {
        match token {
            Token::Time(text) => self.set_time(parse_clock(text)?),
            Token::Number(text) => self.take_number(text),
            Token::Date(parts) => {
                if self.date.is_some() || self.numbers.len() + parts.len() > 3 {
                    return Err(Refusal::Syntax);
                }
                for part in parts {
                    match month(part) {
                        Some(month) if self.month.is_none() => self.month = Some(month),
                        _ if part.bytes().all(|byte| byte.is_ascii_digit()) => self.numbers.push(part),
                        _ => return Err(Refusal::Syntax),
                    }
                }
                Ok(())
            }
            Token::Offset(negative, text) => {
                if text.contains('.') {
                    return Err(Refusal::Syntax);
                }
                let seconds = parse_offset(text, 99).ok_or(Refusal::Displacement)?;
                if seconds >= MAX_OFFSET {
                    return Err(Refusal::Displacement);
                }
                if self.time.is_none() && self.date_is_missing() {
                    return Err(Refusal::Syntax);
                }
                if self.zone.is_some() {
                    return Err(Refusal::Syntax);
                }
                self.zone = Some(TimeZone::fixed(if negative { -seconds } else { seconds }));
                Ok(())
            }
            Token::Zone(name) => {
                let zone =
                    TimeZone::find(name).ok_or_else(|| Refusal::UnknownZone(name.to_ascii_lowercase()))?;
                self.set_zone(zone)
            }
            Token::Julian(text) => {
                let days = text.parse::<i64>().map_err(|_| Refusal::Field)?;
                if days > i64::from(i32::MAX) {
                    return Err(Refusal::Field);
                }
                self.date = Some(civil_from_days(days + i64::from(super::MIN_DATE)));
                Ok(())
            }
            Token::NegInfinity => self.set_special(Special::NegInfinity),
            Token::Word(word) => self.take_word(word),
        }
    }

    fn date_is_missing(&self) -> bool {
        self.date.is_none() && self.numbers.is_empty() && self.month.is_none()
    }

    fn set_time(&mut self, micros: i64) -> Result<(), Refusal> {
        self.expect_time = false;
        match self.time.replace(micros) {
            None => Ok(()),
            Some(_) => Err(Refusal::Syntax),
        }
    }

    fn set_zone(&mut self, zone: TimeZone) -> Result<(), Refusal> {
        match self.zone.replace(zone) {
            None => Ok(()),
            Some(_) => Err(Refusal::Syntax),
        }
    }

    fn set_special(&mut self, special: Special) -> Result<(), Refusal> {
        match self.special.replace(special) {
            None => Ok(()),
            Some(_) => Err(Refusal::Syntax),
        }
    }

    fn take_number(&mut self, text: &'a str) -> Result<(), Refusal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let date_known = self.date.is_some() || self.numbers.len() + usize::from(self.month.is_some()) >= 3;
        let number = |range: std::ops::Range<usize>| {
            whole.get(range).and_then(|part| part.parse::<i64>().ok()).ok_or(Refusal::Syntax)
        };
        if self.expect_time || date_known {
            // Packed time: hh, hhmm or hhmmss.
            let (hours, minutes, seconds) = match whole.len() {
                2 if self.expect_time => (number(0..2)?, 0, 0),
                4 => (number(0..2)?, number(2..4)?, 0),
                6 => (number(0..2)?, number(2..4)?, number(4..6)?),
                _ => return Err(Refusal::Syntax),
            };
            let micros = clock(hours, minutes, seconds, parse_fraction(fraction)?)?;
            return self.set_time(micros);
        }
        if !fraction.is_empty() {
            // `2020.123`: a year and the day of it.
            let day = fraction.parse::<i64>().map_err(|_| Refusal::Syntax)?;
            let year = whole.parse::<i64>().map_err(|_| Refusal::Syntax)?;
            if whole.len() != 4 || !(1..=366).contains(&day) || (day == 366 && !is_leap(year)) {
                return Err(Refusal::Field);
            }
            self.date = Some(civil_from_days(days_from_civil(year, 1, 1) + day - 1));
            return Ok(());
        }
        if self.numbers.is_empty() && self.month.is_none() {
            if whole.len() >= 8 {
                let split = whole.len() - 4;
                self.date =
                    Some((number(0..split)?, number(split..split + 2)?, number(split + 2..split + 4)?));
                return Ok(());
            }
            if whole.len() == 6 {
                self.date = Some((number(0..2)?, number(2..4)?, number(4..6)?));
                self.two_digit_year = true;
                return Ok(());
            }
        }
        self.numbers.push(text);
        Ok(())
    }

    fn take_word(&mut self, word: &str) -> Result<(), Refusal> {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "now" => self.set_special(Special::Now),
            "today" => self.set_special(Special::Today),
            "tomorrow" => self.set_special(Special::Tomorrow),
            "yesterday" => self.set_special(Special::Yesterday),
            "epoch" => self.set_special(Special::Epoch),
            "infinity" => self.set_special(Special::Infinity),
            "allballs" => {
                self.set_time(0)?;
                self.set_zone(TimeZone::UTC)
            }
            "bc" => {
                self.bc = true;
                Ok(())
            }
            "ad" | "at" | "on" | "dst" => Ok(()),
            "am" | "pm" if self.time.is_some() || !self.date_is_missing() => {
                self.afternoon = Some(lower == "pm");
                Ok(())
            }
            "t" if !self.date_is_missing() && self.time.is_none() => {
                self.expect_time = true;
                Ok(())
            }
            _ => {
                if let Some(month) = month(&lower) {
                    if self.month.replace(month).is_some() {
                        return Err(Refusal::Syntax);
                    }
                    return Ok(());
                }
                if is_weekday(&lower) {
                    return Ok(());
                }
                if self.time.is_none() && self.date_is_missing() && self.special.is_none() {
                    return Err(Refusal::Syntax);
                }
                match TimeZone::find(word) {
                    Some(zone) => self.set_zone(zone),
                    None => Err(Refusal::Syntax),
                }
            }
        }
    }

    /// Turns the numbers into a date, and applies BC and AM/PM.
    fn settle(&mut self, context: &TextContext<'_>) -> Result<(), Refusal> {
        if let Some(afternoon) = self.afternoon {
            let time = self.time.ok_or(Refusal::Syntax)?;
            let hour = time / HOUR;
            if hour > 12 {
                return Err(Refusal::Field);
            }
            self.time = Some(time % (12 * HOUR) + if afternoon { 12 * HOUR } else { 0 });
        }
        let from_numbers = self.date.is_none();
        if from_numbers && !self.date_is_missing() {
            self.assign(context.date_order)?;
        }
        let Some((mut year, month, day)) = self.date else {
            return if self.bc { Err(Refusal::Syntax) } else { Ok(()) };
        };
        if self.bc {
            if year <= 0 {
                return Err(Refusal::Field);
            }
            year = 1 - year;
        } else if self.two_digit_year && (0..100).contains(&year) {
            year += if year < 70 { 2000 } else { 1900 };
        } else if year <= 0 && from_numbers {
            return Err(Refusal::Field);
        }
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(Refusal::MonthOrDay);
        }
        if day > days_in_month(year, month) || year > 6_000_000 {
            return Err(Refusal::Field);
        }
        self.date = Some((year, month, day));
        Ok(())
    }

    fn assign(&mut self, order: DateOrder) -> Result<(), Refusal> {
        let long = |text: &str| text.len() >= 3;
        let (year, month, day): (&str, Option<&str>, &str) = match (self.month, self.numbers.as_slice()) {
            (Some(_), [first, second]) if long(first) => (first, None, second),
            (Some(_), [first, second]) if order == DateOrder::Ymd && !long(second) => (first, None, second),
            (Some(_), [first, second]) => (second, None, first),
            (None, [first, second, third]) if long(first) || order == DateOrder::Ymd => {
                (first, Some(second), third)
            }
            (None, [first, second, third]) if order == DateOrder::Dmy => (third, Some(second), first),
            (None, [first, second, third]) => (third, Some(first), second),
            _ => return Err(Refusal::Syntax),
        };
        let number = |text: &str| text.parse::<i64>().map_err(|_| Refusal::Field);
        self.two_digit_year = year.len() <= 2;
        let month = match month {
            Some(text) => number(text)?,
            None => self.month.ok_or(Refusal::Syntax)?,
        };
        self.date = Some((number(year)?, month, number(day)?));
        Ok(())
    }

    /// The special word's value in local time; `None` without one.
    fn special_local(&self, context: &TextContext<'_>, special: Special) -> i64 {
        let now = context.time_zone.to_local(context.transaction_micros).unwrap_or(0);
        let today = now.div_euclid(DAY) * DAY;
        match special {
            Special::Now => now,
            Special::Today => today + self.time.unwrap_or(0),
            Special::Tomorrow => today + DAY + self.time.unwrap_or(0),
            Special::Yesterday => today - DAY + self.time.unwrap_or(0),
            Special::Epoch => -UNIX_EPOCH_OFFSET,
            Special::Infinity => i64::MAX,
            Special::NegInfinity => i64::MIN,
        }
    }
}

fn parse_fraction(text: &str) -> Result<i64, Refusal> {
    if text.is_empty() {
        return Ok(0);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::Syntax);
    }
    if text.len() <= 6 {
        let value: i64 = text.parse().map_err(|_| Refusal::Syntax)?;
        return Ok(value * 10i64.pow(6 - text.len() as u32));
    }
    let value: f64 = format!("0.{text}").parse().map_err(|_| Refusal::Syntax)?;
    Ok((value * SECOND as f64).round_ties_even() as i64)
}

fn clock(hours: i64, minutes: i64, seconds: i64, fraction: i64) -> Result<i64, Refusal> {
    let micros = hours * HOUR + minutes * MINUTE + seconds * SECOND + fraction;
    if hours > 24 || minutes > 59 || seconds > 60 || micros > DAY {
        return Err(Refusal::Field);
    }
    Ok(micros)
}

/// `hh:mm[:ss[.f]]`
fn parse_clock(text: &str) -> Result<i64, Refusal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let mut next = || -> Result<i64, Refusal> {
        match parts.next() {
            Some(part) if part.len() > 9 => Err(Refusal::Field),
            Some("") | None => Err(Refusal::Syntax),
            Some(part) => part.parse().map_err(|_| Refusal::Syntax),
        }
    };
    let hours = next()?;
    let minutes = next()?;
    let seconds = match whole.matches(':').count() {
        1 if fraction.is_empty() => 0,
        2 => next()?,
        _ => return Err(Refusal::Syntax),
    };
    clock(hours, minutes, seconds, parse_fraction(fraction)?)
}

/// `YYYY-MM-DD`, `YYYY-MM-DD HH:MM:SS[.ffffff]`: what nearly all input looks like, read without
/// splitting it up first. `None` sends the text the long way.
fn iso_fast(text: &str) -> Option<(i64, i64)> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
    let pair = |at: usize| Some(i64::from(digit(at)?) * 10 + i64::from(digit(at + 1)?));
    if bytes.len() < 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (pair(0)? * 100 + pair(2)?, pair(5)?, pair(8)?);
    if year == 0 || !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    if bytes.len() == 10 {
        return Some((days, 0));
    }
    if bytes.len() < 19 || !matches!(bytes[10], b' ' | b'T') || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    let (hours, minutes, seconds) = (pair(11)?, pair(14)?, pair(17)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let mut micros = 0;
    if bytes.len() > 19 {
        if bytes[19] != b'.' || bytes.len() > 26 {
            return None;
        }
        for at in 20..26 {
            micros = micros * 10 + if at < bytes.len() { i64::from(digit(at)?) } else { 0 };
        }
    }
    Some((days, hours * HOUR + minutes * MINUTE + seconds * SECOND + micros))
}

/// Reads a date; a time and a zone after it are ignored.
pub fn parse_date(text: &str, context: &TextContext<'_>) -> SqlResult<i32> {
    if let Some((days, _)) = iso_fast(text) {
        return Ok(days as i32);
    }
    let fields = Fields::read(text, context).map_err(|refusal| refusal.error("date", text))?;
    match (fields.special, fields.date) {
        (Some(Special::Infinity), _) => Ok(i32::MAX),
        (Some(Special::NegInfinity), _) => Ok(i32::MIN),
        (Some(special), None) => Ok(fields.special_local(context, special).div_euclid(DAY) as i32),
        (None, Some((year, month, day))) => {
            super::check_date(days_from_civil(year, month, day)).map_err(|_| out_of_range_text("date", text))
        }
        _ => Err(Refusal::Syntax.error("date", text)),
    }
}

#[cold]
fn out_of_range_text(what: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, format!("{what} out of range: \"{text}\""))
}

/// Reads a time of day; a date before it is ignored.
pub fn parse_time(text: &str, typmod: i32, context: &TextContext<'_>) -> SqlResult<i64> {
    let refuse = |refusal: Refusal| refusal.error("time", text);
    let mut fields = Fields { expect_time: false, ..Fields::default() };
    let tokens = tokenize(text).map_err(refuse)?;
    // `040506` and `0405` alone are times here.
    if let [Token::Number(text), ..] = tokens[..]
        && scan(text, |byte| byte.is_ascii_digit()) > 2
    {
        fields.expect_time = true;
    }
    for token in tokens {
        if let Token::Offset(..) = token
            && fields.time.is_none()
        {
            return Err(refuse(Refusal::Syntax));
        }
        fields.take(token).map_err(refuse)?;
    }
    fields.settle(context).map_err(refuse)?;
    let micros = match (fields.special, fields.time) {
        (Some(Special::Now), None) => fields.special_local(context, Special::Now).rem_euclid(DAY),
        (None, Some(micros)) => micros,
        _ => return Err(refuse(Refusal::Syntax)),
    };
    round_micros(micros, typmod).ok_or_else(|| out_of_range_text("time", text))
}

/// Reads a timestamp; a zone after it is ignored.
pub fn parse_timestamp(text: &str, typmod: i32, context: &TextContext<'_>) -> SqlResult<i64> {
    let (local, _) = read_timestamp(text, "timestamp", context)?;
    finish(local, typmod, text)
}

/// Reads a timestamp with time zone; without a zone it is in the session's.
pub fn parse_timestamptz(text: &str, typmod: i32, context: &TextContext<'_>) -> SqlResult<i64> {
    let (local, zone) = read_timestamp(text, "timestamp with time zone", context)?;
    if super::is_infinite_timestamp(local) {
        return Ok(local);
    }
    let utc = match zone {
        Zone::Utc => Some(local),
        Zone::Session => context.time_zone.to_utc(local),
        Zone::Given(zone) => zone.to_utc(local),
    };
    finish(utc.ok_or_else(|| out_of_range_text("timestamp", text))?, typmod, text)
}

enum Zone {
    Utc,
    Session,
    Given(TimeZone),
}

fn finish(micros: i64, typmod: i32, text: &str) -> SqlResult<i64> {
    if super::is_infinite_timestamp(micros) {
        return Ok(micros);
    }
    round_micros(micros, typmod)
        .and_then(|micros| check_timestamp(micros).ok())
        .ok_or_else(|| out_of_range_text("timestamp", text))
}

fn read_timestamp(text: &str, ty: &str, context: &TextContext<'_>) -> SqlResult<(i64, Zone)> {
    if let Some((days, micros)) = iso_fast(text) {
        return Ok((days * DAY + micros, Zone::Session));
    }
    let refuse = |refusal: Refusal| refusal.error(ty, text);
    let fields = Fields::read(text, context).map_err(refuse)?;
    match (fields.special, fields.date) {
        (Some(special), None) => {
            let local = fields.special_local(context, special);
            // `now` and `epoch` are instants, whatever the zone.
            let zone = match special {
                Special::Epoch => Zone::Utc,
                Special::Now if ty != "timestamp" => return Ok((context.transaction_micros, Zone::Utc)),
                _ => fields.zone.map_or(Zone::Session, Zone::Given),
            };
            Ok((local, zone))
        }
        (None, Some((year, month, day))) => {
            let civil = Civil { year, month, day, micros: fields.time.unwrap_or(0) };
            let local = civil.timestamp().ok_or_else(|| out_of_range_text("timestamp", text))?;
            Ok((local, fields.zone.map_or(Zone::Session, Zone::Given)))
        }
        _ => Err(refuse(Refusal::Syntax)),
    }
}

/// The date of a date-only value at midnight, as a timestamp.
pub(super) fn midnight(days: i32) -> SqlResult<i64> {
    i64::from(days).checked_mul(DAY).ok_or_else(|| out_of_range("timestamp"))
}
