//! [`Scale`]: how much data a workload has.

use std::str::FromStr;

/// Size of the data, in units of the workload. It may be a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(f64);

impl Scale {
    /// The largest one.
    const LARGEST: f64 = 100_000.0;

    /// The number itself.
    pub fn factor(self) -> f64 {
        self.0
    }

    /// How many rows it makes of so many per unit: a whole number, at least one.
    pub fn rows(self, per_unit: u32) -> u32 {
        // Conversions from floats saturate.
        (self.0 * f64::from(per_unit)).round().max(1.0) as u32
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(scale) if scale > 0.0 && scale <= Self::LARGEST => Ok(Self(scale)),
            _ => Err(format!("a scale is a number above 0 and at most {}", Self::LARGEST)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole() {
        for (text, per_unit, rows) in [
            ("1", 10_000, 10_000),
            ("0.01", 1_000, 10),
            ("0.01", 1, 1),
            ("2.6", 1, 3),
            ("1e5", 100_000, u32::MAX),
        ] {
            assert_eq!(text.parse::<Scale>().unwrap().rows(per_unit), rows, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["0", "-1", "nan", "inf", "100001", "", "one"] {
            assert!(text.parse::<Scale>().is_err(), "{text}");
        }
    }
}
