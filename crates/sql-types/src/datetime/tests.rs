//! What dates and times promise, beyond the golden files.

use super::calendar::civil_from_days;
use super::*;
use crate::context::{IntervalStyle, TextContext};
use crate::datum::Interval;
use proptest::prelude::*;

#[test]
fn the_calendar_is_its_own_inverse() {
    for days in (-2_451_545..3_000_000).step_by(97) {
        let (year, month, day) = civil_from_days(days);
        assert_eq!(days_from_civil(year, month, day), days);
    }
    assert_eq!(days_from_civil(2000, 1, 1), 0);
    assert_eq!(days_from_civil(1970, 1, 1), -10_957);
}

#[test]
fn zones_change_their_offset() {
    let zone = TimeZone::find("Europe/Berlin").unwrap();
    let at = |text: &str| parse_timestamp(text, -1, &TextContext::plain()).unwrap();
    assert_eq!(zone.offset_at_local(at("2024-01-01")), 3600);
    assert_eq!(zone.offset_at_local(at("2024-07-01")), 7200);
    // Skipped: read with the offset before. Twice: read with the offset after.
    assert_eq!(zone.offset_at_local(at("2024-03-31 02:30:00")), 3600);
    assert_eq!(zone.offset_at_local(at("2024-10-27 02:30:00")), 3600);
    // Far beyond the tables the rules stay in force.
    assert_eq!(zone.offset_at_local(at("2500-07-01")), 7200);
    assert!(TimeZone::find("Nowhere/Land").is_none());
}

proptest! {
    #[test]
    fn timestamps_round_trip_through_text(micros in MIN_TIMESTAMP..END_TIMESTAMP) {
        let context = TextContext::plain();
        let mut out = String::new();
        format_timestamp(micros, &context, &mut out);
        prop_assert_eq!(parse_timestamp(&out, -1, &context).unwrap(), micros);
        out.clear();
        format_timestamptz(micros, &context, &mut out);
        prop_assert_eq!(parse_timestamptz(&out, -1, &context).unwrap(), micros);
    }

    #[test]
    fn dates_round_trip_through_text(days in MIN_DATE..END_DATE) {
        let context = TextContext::plain();
        let mut out = String::new();
        format_date(days, &context, &mut out);
        prop_assert_eq!(parse_date(&out, &context).unwrap(), days);
    }

    #[test]
    fn intervals_round_trip_through_text(months in -2_000_000i32..2_000_000, days: i32, micros in -1_000_000_000_000_000i64..1_000_000_000_000_000) {
        let value = Interval { months, days, micros };
        for style in [IntervalStyle::Postgres, IntervalStyle::PostgresVerbose, IntervalStyle::Iso8601] {
            let mut out = String::new();
            format_interval(value, style, &mut out);
            prop_assert_eq!(parse_interval(&out, -1).unwrap(), value, "{}", out);
        }
    }

    #[test]
    fn random_text_never_panics(text in "[-+0-9:./ TZAaMmPpJBCDdyshoun@,éE]{0,30}", template in "[-HMISYDQWJTFUOCRaemonthdyx:./ \"\\\\éB0-9,]{0,20}", micros: i64) {
        let context = TextContext::plain();
        let _ = parse_date(&text, &context);
        let _ = parse_time(&text, 3, &context);
        let _ = parse_timestamp(&text, 2, &context);
        let _ = parse_timestamptz(&text, -1, &context);
        let _ = parse_interval(&text, -1);
        let _ = to_timestamp(&text, &template, &TimeZone::UTC);
        let _ = to_date(&text, &template);
        let _ = TimeZone::find(&text);
        let _ = TimeZone::parse_setting(&text);
        let _ = timestamp_to_char(micros, Some((&TimeZone::UTC, micros)), &template);
        let _ = interval_to_char(Interval { months: 5, days: -3, micros }, &template);
    }
}
