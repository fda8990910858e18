//! Pure window functions.

use super::{EvalContext, WindowFunction, WindowRows};
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Type as T;

const fn window(
    name: &'static str,
    args: &'static [T],
    returns: T,
    eval: fn(&EvalContext<'_>, &dyn WindowRows) -> SqlResult<Datum>,
) -> WindowFunction {
    WindowFunction { name, args, returns, eval }
}

fn int8(value: usize) -> SqlResult<Datum> {
    Ok(Datum::Int8(value as i64))
}

fn integer(value: Datum) -> Option<i64> {
    match value {
        Datum::Int4(value) => Some(i64::from(value)),
        Datum::Int8(value) => Some(value),
        _ => None,
    }
}

fn ntile(rows: &dyn WindowRows) -> SqlResult<Datum> {
    let Some(buckets) = integer(rows.arg(rows.current(), 0)?) else { return Ok(Datum::Null) };
    if buckets <= 0 {
        return Err(SqlError::new(SqlState("22014"), "argument of ntile must be greater than zero"));
    }
    let (row, total) = (rows.current() as i64, rows.len() as i64);
    // The first `extra` buckets hold one row more.
    let (size, extra) = (total / buckets, total % buckets);
    let bucket = if row < extra * (size + 1) {
        row / (size + 1)
    } else {
        extra + (row - extra * (size + 1)) / size.max(1)
    };
    Ok(Datum::Int4((bucket + 1) as i32))
}

/// `lag` and `lead`: the value some rows away, or a default.
fn neighbour(rows: &dyn WindowRows, forward: bool) -> SqlResult<Datum> {
    let current = rows.current();
    let offset = if rows.args() > 1 {
        match integer(rows.arg(current, 1)?) {
            Some(offset) => offset,
            None => return Ok(Datum::Null),
        }
    } else {
        1
    };
    let target = (current as i64).checked_add(if forward { offset } else { offset.saturating_neg() });
    match target.and_then(|target| usize::try_from(target).ok()).filter(|target| *target < rows.len()) {
        Some(target) => rows.arg(target, 0),
        None if rows.args() > 2 => rows.arg(current, 2),
        None => Ok(Datum::Null),
    }
}

fn in_frame(rows: &dyn WindowRows, n: Option<usize>) -> SqlResult<Datum> {
    match n.and_then(|n| rows.frame_row(n)) {
        Some(row) => rows.arg(row, 0),
        None => Ok(Datum::Null),
    }
}

fn nth_value(rows: &dyn WindowRows) -> SqlResult<Datum> {
    let Some(n) = integer(rows.arg(rows.current(), 1)?) else { return Ok(Datum::Null) };
    if n <= 0 {
        return Err(SqlError::new(SqlState("22016"), "argument of nth_value must be greater than zero"));
    }
    in_frame(rows, usize::try_from(n - 1).ok())
}

pub(super) static TABLE: &[WindowFunction] = &[
    window("row_number", &[], T::INT8, |_, rows| int8(rows.current() + 1)),
    window("rank", &[], T::INT8, |_, rows| int8(rows.peers().start + 1)),
    window("dense_rank", &[], T::INT8, |_, rows| int8(rows.peer_group() + 1)),
    window("percent_rank", &[], T::FLOAT8, |_, rows| {
        let others = rows.len().saturating_sub(1);
        Ok(Datum::Float8(if others == 0 { 0.0 } else { rows.peers().start as f64 / others as f64 }))
    }),
    window("cume_dist", &[], T::FLOAT8, |_, rows| {
        Ok(Datum::Float8(rows.peers().end as f64 / rows.len().max(1) as f64))
    }),
    window("ntile", &[T::INT4], T::INT4, |_, rows| ntile(rows)),
    window("lag", &[T::ANYELEMENT], T::ANYELEMENT, |_, rows| neighbour(rows, false)),
    window("lag", &[T::ANYELEMENT, T::INT4], T::ANYELEMENT, |_, rows| neighbour(rows, false)),
    window("lag", &[T::ANYCOMPATIBLE, T::INT4, T::ANYCOMPATIBLE], T::ANYCOMPATIBLE, |_, rows| {
        neighbour(rows, false)
    }),
    window("lead", &[T::ANYELEMENT], T::ANYELEMENT, |_, rows| neighbour(rows, true)),
    window("lead", &[T::ANYELEMENT, T::INT4], T::ANYELEMENT, |_, rows| neighbour(rows, true)),
    window("lead", &[T::ANYCOMPATIBLE, T::INT4, T::ANYCOMPATIBLE], T::ANYCOMPATIBLE, |_, rows| {
        neighbour(rows, true)
    }),
    window("first_value", &[T::ANYELEMENT], T::ANYELEMENT, |_, rows| in_frame(rows, Some(0))),
    window("last_value", &[T::ANYELEMENT], T::ANYELEMENT, |_, rows| {
        in_frame(rows, rows.frame_len().checked_sub(1))
    }),
    window("nth_value", &[T::ANYELEMENT, T::INT4], T::ANYELEMENT, |_, rows| nth_value(rows)),
];
