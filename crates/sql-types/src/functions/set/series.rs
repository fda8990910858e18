//! `generate_series`: rows are made as they are asked for.

use super::{SetRows, set};
use crate::context::EvalContext;
use crate::datetime::{self, TimeZone};
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::SetFunction;
use crate::functions::args;
use crate::numeric::Numeric;
use crate::types::Type as T;

fn zero_step() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, "step size cannot equal zero")
}

fn integers(args: &[Datum]) -> SqlResult<SetRows> {
    let at = |index: usize| match args.get(index) {
        Some(Datum::Int4(value)) => Ok(i64::from(*value)),
        _ => args::int8(args, index),
    };
    let (start, stop) = (at(0)?, at(1)?);
    let step = if args.len() > 2 { at(2)? } else { 1 };
    if step == 0 {
        return Err(zero_step());
    }
    let narrow = matches!(args.first(), Some(Datum::Int4(_)));
    let mut next = Some(start);
    Ok(Box::new(std::iter::from_fn(move || {
        let value = next.filter(|value| if step > 0 { *value <= stop } else { *value >= stop })?;
        next = value.checked_add(step);
        Some(Ok(vec![if narrow { Datum::Int4(value as i32) } else { Datum::Int8(value) }]))
    })))
}

fn numerics(args: &[Datum]) -> SqlResult<SetRows> {
    let (start, stop) = (args::numeric(args, 0)?.clone(), args::numeric(args, 1)?.clone());
    let step = if args.len() > 2 { args::numeric(args, 2)?.clone() } else { Numeric::ONE };
    for (number, what) in [(&start, "start"), (&stop, "stop"), (&step, "step")] {
        if !number.is_finite() {
            let shown = if number.is_nan() { "NaN" } else { "infinity" };
            let subject = if what == "step" { "step size" } else { what };
            let noun = if what == "step" { "" } else { " value" };
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("{subject}{noun} cannot be {shown}"),
            ));
        }
    }
    if step.is_zero() {
        return Err(zero_step());
    }
    let grows = step.signum() > 0;
    let mut next = Some(start);
    Ok(Box::new(std::iter::from_fn(move || {
        let value = next.take().filter(|value| if grows { *value <= stop } else { *value >= stop })?;
        match value.add(&step) {
            Ok(following) => next = Some(following),
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(vec![Datum::Numeric(value)]))
    })))
}

fn step_sign(step: Interval) -> SqlResult<bool> {
    match datetime::interval_compare_key(step).signum() {
        0 => Err(zero_step()),
        sign => Ok(sign > 0),
    }
}

fn timestamps(args: &[Datum], zone: Option<TimeZone>) -> SqlResult<SetRows> {
    let (start, stop, step) = match &zone {
        Some(_) => (args::timestamptz(args, 0)?, args::timestamptz(args, 1)?, args::interval(args, 2)?),
        None => (args::timestamp(args, 0)?, args::timestamp(args, 1)?, args::interval(args, 2)?),
    };
    let grows = step_sign(step)?;
    let mut next = Some(start);
    Ok(Box::new(std::iter::from_fn(move || {
        let value = next.take().filter(|value| if grows { *value <= stop } else { *value >= stop })?;
        let following = match &zone {
            Some(zone) => datetime::timestamptz_plus_interval(value, step, zone),
            None => datetime::timestamp_plus_interval(value, step),
        };
        match following {
            // An infinite start would repeat itself for ever.
            Ok(following) if following != value => next = Some(following),
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
        let datum = if zone.is_some() { Datum::Timestamptz(value) } else { Datum::Timestamp(value) };
        Some(Ok(vec![datum]))
    })))
}

fn in_session_zone(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<SetRows> {
    timestamps(args, Some(context.time_zone.clone()))
}

const NAME: &str = "generate_series";

pub(super) static TABLE: &[SetFunction] = &[
    set(NAME, &[T::INT4, T::INT4], &[(NAME, T::INT4)], |_, _, a| integers(a)),
    set(NAME, &[T::INT4, T::INT4, T::INT4], &[(NAME, T::INT4)], |_, _, a| integers(a)),
    set(NAME, &[T::INT8, T::INT8], &[(NAME, T::INT8)], |_, _, a| integers(a)),
    set(NAME, &[T::INT8, T::INT8, T::INT8], &[(NAME, T::INT8)], |_, _, a| integers(a)),
    set(NAME, &[T::NUMERIC, T::NUMERIC], &[(NAME, T::NUMERIC)], |_, _, a| numerics(a)),
    set(NAME, &[T::NUMERIC, T::NUMERIC, T::NUMERIC], &[(NAME, T::NUMERIC)], |_, _, a| numerics(a)),
    set(NAME, &[T::TIMESTAMP, T::TIMESTAMP, T::INTERVAL], &[(NAME, T::TIMESTAMP)], |_, _, a| {
        timestamps(a, None)
    }),
    set(NAME, &[T::TIMESTAMPTZ, T::TIMESTAMPTZ, T::INTERVAL], &[(NAME, T::TIMESTAMPTZ)], |c, _, a| {
        in_session_zone(c, a)
    }),
];
