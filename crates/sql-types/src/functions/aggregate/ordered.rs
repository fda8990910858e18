//! Ordered-set aggregates: the values arrive sorted.
//!
//! Hypothetical-set aggregates (`rank(…) WITHIN GROUP`) are not among them: they are bound to counts.

use super::size_of;
use crate::compare;
use crate::datetime;
use crate::datum::{ArrayValue, Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{Accumulator, AggregateFunction, EvalContext};
use crate::types::Type as T;
use std::sync::Arc;

const fn ordered(
    name: &'static str,
    args: &'static [T],
    returns: T,
    accumulator: fn(&[T]) -> Box<dyn Accumulator>,
) -> AggregateFunction {
    AggregateFunction {
        name,
        args,
        returns,
        strict: false,
        ordered_set: true,
        direct_args: args.len() - 1,
        accumulator,
    }
}

struct Percentile {
    fraction: Datum,
    values: Vec<Datum>,
    size: usize,
    continuous: bool,
    returns: T,
}

fn check(fraction: f64) -> SqlResult<f64> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(SqlError::new(
            SqlState::OUT_OF_RANGE,
            format!("percentile value {fraction} is not between 0 and 1"),
        ));
    }
    Ok(fraction)
}

impl Percentile {
    fn at(&self, fraction: f64) -> SqlResult<Datum> {
        let fraction = check(fraction)?;
        let count = self.values.len();
        if count == 0 {
            return Ok(Datum::Null);
        }
        if !self.continuous {
            let row = (fraction * count as f64).ceil().max(1.0) as usize - 1;
            return Ok(self.values.get(row).cloned().unwrap_or_default());
        }
        let position = fraction * (count - 1) as f64;
        let (low, high) = (position.floor() as usize, position.ceil() as usize);
        let share = position - low as f64;
        Ok(match (self.values.get(low), self.values.get(high)) {
            (Some(Datum::Float8(low)), Some(Datum::Float8(high))) => {
                Datum::Float8(low + (high - low) * share)
            }
            (Some(Datum::Interval(low)), Some(Datum::Interval(high))) => {
                let distance = datetime::interval_sum(*high, datetime::interval_negate(*low)?)?;
                let part: Interval = datetime::interval_mul(distance, share)?;
                Datum::Interval(datetime::interval_sum(*low, part)?)
            }
            (Some(value), _) => value.clone(),
            _ => Datum::Null,
        })
    }
}

impl Accumulator for Percentile {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let [fraction, value] = args else { return Ok(()) };
        if self.fraction.is_null() {
            self.fraction = fraction.clone();
        }
        if !value.is_null() {
            self.size += size_of(value);
            self.values.push(value.clone());
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        match &self.fraction {
            Datum::Float8(fraction) => self.at(*fraction),
            Datum::Array(fractions) => {
                let values = fractions
                    .values
                    .iter()
                    .map(|fraction| match fraction {
                        Datum::Float8(fraction) => self.at(*fraction),
                        _ => Ok(Datum::Null),
                    })
                    .collect::<SqlResult<Vec<_>>>()?;
                Ok(Datum::Array(Arc::new(ArrayValue {
                    element: self.returns,
                    dimensions: fractions.dimensions.clone(),
                    values,
                })))
            }
            _ => Ok(Datum::Null),
        }
    }
    fn size(&self) -> usize {
        self.size
    }
}

/// The most frequent value; of several the first.
#[derive(Default)]
struct Mode {
    best: Datum,
    best_count: u64,
    current: Datum,
    count: u64,
}

impl Accumulator for Mode {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let Some(value) = args.last().filter(|value| !value.is_null()) else { return Ok(()) };
        if self.count > 0 && compare::equal(value, &self.current) {
            self.count += 1;
        } else {
            self.current = value.clone();
            self.count = 1;
        }
        if self.count > self.best_count {
            self.best = self.current.clone();
            self.best_count = self.count;
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.best.clone())
    }
    fn size(&self) -> usize {
        size_of(&self.best) + size_of(&self.current)
    }
}

fn percentile(types: &[T], continuous: bool) -> Box<dyn Accumulator> {
    let returns = types.last().copied().unwrap_or(T::FLOAT8);
    Box::new(Percentile { fraction: Datum::Null, values: Vec::new(), size: 0, continuous, returns })
}

fn continuous(types: &[T]) -> Box<dyn Accumulator> {
    percentile(types, true)
}

fn discrete(types: &[T]) -> Box<dyn Accumulator> {
    percentile(types, false)
}

pub(super) static TABLE: &[AggregateFunction] = &[
    ordered("percentile_cont", &[T::FLOAT8, T::FLOAT8], T::FLOAT8, continuous),
    ordered("percentile_cont", &[T::FLOAT8, T::INTERVAL], T::INTERVAL, continuous),
    ordered("percentile_cont", &[T::FLOAT8_ARRAY, T::FLOAT8], T::FLOAT8_ARRAY, continuous),
    ordered("percentile_cont", &[T::FLOAT8_ARRAY, T::INTERVAL], T::INTERVAL_ARRAY, continuous),
    ordered("percentile_disc", &[T::FLOAT8, T::ANYELEMENT], T::ANYELEMENT, discrete),
    ordered("percentile_disc", &[T::FLOAT8_ARRAY, T::ANYELEMENT], T::ANYARRAY, discrete),
    ordered("mode", &[T::ANYELEMENT], T::ANYELEMENT, |_| Box::new(Mode::default())),
];
