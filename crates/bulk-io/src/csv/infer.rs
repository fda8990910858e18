//! Types for columns of which only text is known.
//!
//! A column gets the narrowest type that takes every value seen without changing it: a number with leading zeros is
//! text, because it is a code and not a count; a number with a fraction is numeric and not a double. Nothing at all is
//! text. The rows seen are the first ones, so a later value may not fit: its row is refused then, and `--types text`
//! helps.

/// What is known of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Guess {
    seen: bool,
    /// One bit per candidate that still fits.
    misfits: u16,
}

type Candidate = (&'static str, fn(&str) -> bool);

/// From narrow to wide; text is what is left.
const CANDIDATES: [Candidate; 8] = [
    ("boolean", is_boolean),
    ("bigint", is_bigint),
    ("numeric", is_numeric),
    ("double precision", is_double),
    ("date", is_date),
    ("timestamp", is_timestamp),
    ("timestamptz", is_timestamptz),
    ("uuid", is_uuid),
];

impl Guess {
    /// Takes note of a value; NULL says nothing.
    pub fn see(&mut self, value: Option<&str>) {
        let Some(value) = value else { return };
        self.seen = true;
        for (bit, (_, fits)) in CANDIDATES.iter().enumerate() {
            if self.misfits >> bit & 1 == 0 && !fits(value) {
                self.misfits |= 1 << bit;
            }
        }
    }

    /// The type to make the column of.
    pub fn name(&self) -> &'static str {
        let fitting = (0..).zip(CANDIDATES).find(|(bit, _)| self.misfits >> bit & 1 == 0);
        match fitting {
            Some((_, (name, _))) if self.seen => name,
            _ => "text",
        }
    }
}

fn is_boolean(text: &str) -> bool {
    matches!(text, "t" | "f" | "true" | "false" | "TRUE" | "FALSE" | "True" | "False")
}

/// Digits without leading zeros, after a minus if there is one.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    is_digits(digits) && (digits == "0" || !digits.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_bigint(text: &str) -> bool {
    is_whole(text) && text.parse::<i64>().is_ok()
}

fn is_numeric(text: &str) -> bool {
    match text.split_once('.') {
        Some((whole, fraction)) => is_whole(whole) && is_digits(fraction) && text.len() <= 100,
        None => is_whole(text) && text.len() <= 100,
    }
}

fn is_double(text: &str) -> bool {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    // What is infinite as a double was not so in the text.
    is_numeric(number) && is_digits(exponent) && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// `2024-02-29`.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number =
        |from: usize, to: usize| text.get(from..to).filter(|part| is_digits(part))?.parse::<u32>().ok();
    match (number(0, 4), number(5, 7), number(8, 10)) {
        (Some(year @ 1..), Some(month @ 1..=12), Some(day @ 1..)) => day <= days_of(year, month),
        _ => false,
    }
}

fn days_of(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `12:30:00` or `12:30:00.123456`.
fn is_time(text: &str) -> bool {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.split(':');
    let mut within = |limit: u32| {
        let part = parts.next().filter(|part| part.len() == 2 && is_digits(part));
        part.and_then(|part| part.parse::<u32>().ok()).is_some_and(|number| number < limit)
    };
    within(24)
        && within(60)
        && within(60)
        && parts.next().is_none()
        && is_digits(fraction)
        && fraction.len() <= 6
}

fn is_timestamp(text: &str) -> bool {
    text.get(..10).is_some_and(is_date)
        && text.get(10..).and_then(|rest| rest.strip_prefix(['T', ' '])).is_some_and(is_time)
}

/// A timestamp with `Z`, `+02` or `+02:00` behind it.
fn is_timestamptz(text: &str) -> bool {
    if let Some(moment) = text.strip_suffix('Z') {
        return is_timestamp(moment);
    }
    let Some(at) = text.rfind(['+', '-']).filter(|at| *at > 10) else { return false };
    let (moment, zone) = text.split_at(at);
    let (hours, minutes) = zone[1..].split_once(':').unwrap_or((&zone[1..], "00"));
    let small = |part: &str, limit: u32| {
        part.len() == 2 && is_digits(part) && part.parse::<u32>().is_ok_and(|n| n < limit)
    };
    is_timestamp(moment) && small(hours, 16) && small(minutes, 60)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_type_that_changes_nothing() {
        for (values, wanted) in [
            (&["1", "-5", "0"][..], "bigint"),
            (&["1", "0"], "bigint"),
            (&["007"], "text"),
            (&["1", "x"], "text"),
            (&["9223372036854775807"], "bigint"),
            (&["9223372036854775808"], "numeric"),
            (&["1.50", "2"], "numeric"),
            (&["1e5", "2.5"], "double precision"),
            (&["1e999"], "text"),
            (&["+1"], "text"),
            (&["1,5"], "text"),
            (&["t", "false"], "boolean"),
            (&["true", "1"], "text"),
            (&["2024-02-29"], "date"),
            (&["2023-02-29"], "text"),
            (&["0000-01-01"], "text"),
            (&["2024-02-29", "2024-02-29 12:00:00"], "text"),
            (&["2024-02-29T12:00:00.5"], "timestamp"),
            (&["2024-02-29 12:00:00+02", "2024-02-29T12:00:00Z"], "timestamptz"),
            (&["2024-02-29 12:00:60"], "text"),
            (&["123e4567-e89b-12d3-a456-426614174000"], "uuid"),
            (&[""], "text"),
            (&["ä-ö-ü-ß-é-"], "text"),
            (&[], "text"),
        ] {
            let mut guess = Guess::default();
            guess.see(None);
            values.iter().for_each(|value| guess.see(Some(value)));
            assert_eq!(guess.name(), wanted, "{values:?}");
        }
    }
}
