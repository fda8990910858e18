//! Where values lie among those of a column.

use super::ColumnStatistics;
use sql_types::{Datum, compare};

/// A larger share of rows whose values are neither among the most common ones nor in a histogram makes guesses of them
/// useless.
pub const UNSEEN: f64 = 0.05;

impl ColumnStatistics {
    /// Share of rows that have one of the most common values.
    pub fn common_share(&self) -> f64 {
        self.most_common.iter().map(|(_, share)| share).sum()
    }

    /// Share of rows that are neither NULL nor have one of the most common values.
    pub fn rest_share(&self) -> f64 {
        (1.0 - self.null_fraction - self.common_share()).max(0.0)
    }

    /// Share of rows whose value is less than a value, or equal if `inclusive`; `None` if too little is known.
    pub fn below(&self, value: &Datum, inclusive: bool) -> Option<f64> {
        let is_below = |other: &Datum| {
            let order = compare::compare(other, value);
            order.is_lt() || inclusive && order.is_eq()
        };
        let common: f64 =
            self.most_common.iter().filter(|(value, _)| is_below(value)).map(|(_, share)| share).sum();
        let rest = self.rest_share();
        let bounds = &self.histogram;
        let passed = bounds.partition_point(is_below);
        let fraction = match (passed.checked_sub(1).and_then(|at| bounds.get(at)), bounds.get(passed)) {
            (None, None) if rest > UNSEEN => return None,
            (None, _) => 0.0,
            (Some(_), None) => 1.0,
            (Some(from), Some(to)) => {
                ((passed - 1) as f64 + within(from, to, value)) / (bounds.len() - 1) as f64
            }
        };
        Some(common + rest * fraction)
    }
}

/// Where a value lies between two others, from 0 to 1.
fn within(from: &Datum, to: &Datum, value: &Datum) -> f64 {
    let numbers = match (from, to, value) {
        (Datum::Text(from), Datum::Text(to), Datum::Text(value)) => Some(text_numbers([from, to, value])),
        _ => number(from).zip(number(to)).zip(number(value)).map(|((from, to), value)| [from, to, value]),
    };
    match numbers {
        Some([from, to, value]) if to > from => ((value - from) / (to - from)).clamp(0.0, 1.0),
        _ => 0.5,
    }
}

/// Texts as numbers that order alike: what follows the beginning of the first two, as digits of a system that has those
/// bytes as digits that occur, or all of a kind of which one does.
fn text_numbers(texts: [&str; 3]) -> [f64; 3] {
    let [from, to, _] = texts;
    let shared = from.bytes().zip(to.bytes()).take_while(|(from, to)| from == to).count();
    let tail = |text: &'_ str| -> Vec<u8> { text.bytes().skip(shared).take(DIGITS).collect() };
    let tails = texts.map(tail);
    let (mut least, mut most) = (u8::MAX, u8::MIN);
    for byte in tails.iter().flatten() {
        let kinds = [b'0'..=b'9', b'A'..=b'Z', b'a'..=b'z'];
        let kind = kinds.into_iter().find(|kind| kind.contains(byte)).unwrap_or(*byte..=*byte);
        (least, most) = (least.min(*kind.start()), most.max(*kind.end()));
    }
    let base = f64::from(most.saturating_sub(least)) + 2.0;
    tails.map(|tail| {
        // The end of a text comes before any digit.
        let digits = tail.iter().map(|byte| f64::from(byte - least) + 1.0);
        digits.fold((0.0, 1.0), |(sum, weight), digit| (sum + digit * weight / base, weight / base)).0
    })
}

/// Bytes of a text that matter for where it lies.
const DIGITS: usize = 8;

/// A value as a number that orders alike.
fn number(value: &Datum) -> Option<f64> {
    Some(match value {
        Datum::Bool(value) => f64::from(u8::from(*value)),
        Datum::Int2(value) => f64::from(*value),
        Datum::Int4(value) | Datum::Date(value) => f64::from(*value),
        Datum::Int8(value) | Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
            *value as f64
        }
        Datum::Float4(value) => f64::from(*value),
        Datum::Float8(value) => *value,
        Datum::Numeric(value) => value.to_f64(),
        Datum::Oid(value) => f64::from(*value),
        Datum::Enum(value) => value.rank as f64,
        _ => return None,
    })
}
