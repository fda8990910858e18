//! Days, times of day and moments as ISO 8601 text that PostgreSQL reads, over its whole range.
//!
//! The calendar is the proleptic Gregorian one; the conversion is that of Howard Hinnant's `civil_from_days`.

use std::io::Write;

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;
/// Days from 1970-01-01, where Parquet begins to count, to 2000-01-01, where PostgreSQL does.
pub const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// Year (0 is 1 BC), month and day of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    // Both are small by construction.
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

/// A day without its era, and whether that is BC.
fn push_day(days: i64, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil(days);
    let before = year <= 0;
    let year = if before { 1 - year } else { year };
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
    before
}

/// A day counted from 1970-01-01.
pub fn push_date(days: i32, out: &mut Vec<u8>) {
    if push_day(i64::from(days), out) {
        out.extend_from_slice(b" BC");
    }
}

/// A time of day in units of which there are `per_second` in a second: a power of ten.
pub fn push_time(units: i64, per_second: i64, out: &mut Vec<u8>) {
    let seconds = units.div_euclid(per_second);
    let fraction = units.rem_euclid(per_second);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        let digits = per_second.ilog10() as usize;
        let _ = write!(out, ".{fraction:0digits$}");
    }
}

/// A moment counted from 1970-01-01T00:00:00, in UTC if `utc`.
pub fn push_timestamp(units: i64, per_second: i64, utc: bool, out: &mut Vec<u8>) {
    let per_day = 86_400 * per_second;
    let before = push_day(units.div_euclid(per_day), out);
    out.push(b' ');
    push_time(units.rem_euclid(per_day), per_second, out);
    if utc {
        out.extend_from_slice(b"+00");
    }
    if before {
        out.extend_from_slice(b" BC");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates() {
        for (days, wanted) in [
            (0, "1970-01-01"),
            (EPOCH_DAYS, "2000-01-01"),
            (11_016, "2000-02-29"),
            (-719_162, "0001-01-01"),
            (-719_163, "0001-12-31 BC"),
            // The first and the last day that PostgreSQL has.
            (-2_440_588, "4714-11-24 BC"),
            (2_145_042_905, "5874897-12-31"),
        ] {
            assert_eq!(text(|out| push_date(days, out)), wanted);
        }
    }

    #[test]
    fn moments() {
        assert_eq!(text(|out| push_timestamp(-1, 1_000_000, true, out)), "1969-12-31 23:59:59.999999+00");
        assert_eq!(text(|out| push_timestamp(1_500, 1_000, false, out)), "1970-01-01 00:00:01.500");
        assert_eq!(text(|out| push_timestamp(-62_135_596_801, 1, true, out)), "0001-12-31 23:59:59+00 BC");
        assert_eq!(text(|out| push_time(5_000_000_007, 1_000_000_000, out)), "00:00:05.000000007");
        // No number is too large.
        for units in [i64::MIN, i64::MAX] {
            text(|out| push_timestamp(units, 1_000, true, out));
        }
        text(|out| push_date(i32::MIN, out));
    }
}
