//! Days to year, month, day and back.

use super::DAY;

/// A point of the calendar with its time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Astronomical year: 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// Microseconds since midnight.
    pub micros: i64,
}

/// Days from 2000-01-01 to 1970-01-01's era origin 0000-03-01.
const EPOCH_SHIFT: i64 = 719_468 + 10_957;

/// Days since 2000-01-01 of a date. Months and days beyond their range roll over linearly for days;
/// the month must be 1 to 12.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_index = (month + 9) % 12;
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - EPOCH_SHIFT
}

/// Year, month and day of a number of days since 2000-01-01.
pub(super) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_SHIFT;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day of the week, 0 for Sunday.
pub(super) fn weekday(days: i64) -> i64 {
    // 2000-01-01 was a Saturday.
    (days + 6).rem_euclid(7)
}

/// ISO 8601 year and week.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday of the week decides its year.
    let thursday = days - (weekday(days) + 6) % 7 + 3;
    let (year, _, _) = civil_from_days(thursday);
    let week = (thursday - days_from_civil(year, 1, 1)) / 7 + 1;
    (year, week)
}

/// The Monday that starts an ISO week.
pub(super) fn iso_week_start(year: i64, week: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (weekday(fourth) + 6) % 7 + (week - 1) * 7
}

impl Civil {
    /// Takes a finite timestamp apart.
    pub fn from_timestamp(micros: i64) -> Civil {
        let (year, month, day) = civil_from_days(micros.div_euclid(DAY));
        Civil { year, month, day, micros: micros.rem_euclid(DAY) }
    }

    /// Takes a date apart.
    pub fn from_date(days: i32) -> Civil {
        let (year, month, day) = civil_from_days(i64::from(days));
        Civil { year, month, day, micros: 0 }
    }

    /// Days since 2000-01-01.
    pub fn days(&self) -> i64 {
        days_from_civil(self.year, self.month, self.day)
    }

    /// The timestamp, `None` if it does not fit.
    pub fn timestamp(&self) -> Option<i64> {
        self.days().checked_mul(DAY)?.checked_add(self.micros)
    }

    /// Day of the year from 1.
    pub fn day_of_year(&self) -> i64 {
        self.days() - days_from_civil(self.year, 1, 1) + 1
    }
}
