//! `array[…]`: elements and slices, read and assigned.

use super::eval::{EvalEnv, eval};
use crate::plan::Expr;
use crate::plan::expr::SubscriptRange;
use sql_types::assignment::{self, Step};
use sql_types::{ArrayValue, Datum, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// A value after an assignment to an element or a slice of it.
///
/// # Errors
/// 22004 for a subscript that is NULL, and those of [`assignment`].
pub fn assign(
    container: Datum,
    ranges: &[SubscriptRange],
    value: Datum,
    ty: Type,
    row: &[Datum],
    env: &EvalEnv<'_>,
) -> SqlResult<Datum> {
    if ty == Type::JSONB {
        return assign_json(container, ranges, value, row, env);
    }
    let array = match container {
        Datum::Array(array) => Arc::unwrap_or_clone(array),
        Datum::Null => ArrayValue::one_dimension(ty.element().unwrap_or(Type::UNKNOWN), Vec::new()),
        _ => return Err(SqlError::internal("an element is assigned of something that is not an array")),
    };
    let given = |expr: &Expr| {
        let subscript = integer(expr, row, env)?.ok_or_else(|| null_subscript("array"))?;
        i32::try_from(subscript).map_err(|_| SqlError::new(SqlState::OUT_OF_RANGE, "integer out of range"))
    };
    if ranges.iter().all(|range| matches!(range, SubscriptRange::Index(_))) {
        let index = |range: &SubscriptRange| match range {
            SubscriptRange::Index(expr) => given(expr),
            SubscriptRange::Slice(..) => Err(SqlError::internal("a slice among subscripts")),
        };
        let subscripts = ranges.iter().map(index).collect::<SqlResult<Vec<_>>>()?;
        return Ok(Datum::Array(Arc::new(assignment::element(array, &subscripts, value)?)));
    }
    let mut slices = Vec::with_capacity(ranges.len());
    for range in ranges {
        slices.push(match range {
            SubscriptRange::Index(expr) => (Some(1), Some(given(expr)?)),
            SubscriptRange::Slice(from, to) => {
                (from.as_ref().map(given).transpose()?, to.as_ref().map(given).transpose()?)
            }
        });
    }
    match value {
        Datum::Array(values) => Ok(Datum::Array(Arc::new(assignment::slice(array, &slices, &values)?))),
        // NULL changes nothing.
        _ => Ok(Datum::Array(Arc::new(array))),
    }
}

fn assign_json(
    container: Datum,
    ranges: &[SubscriptRange],
    value: Datum,
    row: &[Datum],
    env: &EvalEnv<'_>,
) -> SqlResult<Datum> {
    let old = match container {
        Datum::Jsonb(old) => Some(Arc::unwrap_or_clone(old)),
        Datum::Null => None,
        _ => return Err(SqlError::internal("a key is assigned of something that is not jsonb")),
    };
    let new = match value {
        Datum::Jsonb(new) => Arc::unwrap_or_clone(new),
        _ => serde_json::Value::Null,
    };
    let step = |range: &SubscriptRange| {
        let SubscriptRange::Index(expr) = range else {
            return Err(SqlError::internal("a slice of jsonb"));
        };
        match eval(expr, row, env)? {
            Datum::Int4(index) => Ok(Step::Index(index)),
            Datum::Text(key) => Ok(Step::Key(key.to_string())),
            Datum::Null => Err(null_subscript("jsonb")),
            _ => Err(SqlError::internal("a subscript of jsonb is neither an integer nor text")),
        }
    };
    let path = ranges.iter().map(step).collect::<SqlResult<Vec<_>>>()?;
    Ok(Datum::Jsonb(Arc::new(assignment::json(old, &path, new)?)))
}

fn null_subscript(of: &str) -> SqlError {
    let message = format!("{of} subscript in assignment must not be null");
    SqlError::new(SqlState::NULL_NOT_ALLOWED, message)
}

/// One end of a slice; `None` is open, NULL makes the whole result NULL.
type Ends = (Option<i64>, Option<i64>);

/// The element or slice of an array; NULL outside of it.
pub fn subscript(
    array: &Datum,
    ranges: &[SubscriptRange],
    _ty: Type,
    row: &[Datum],
    env: &EvalEnv<'_>,
) -> SqlResult<Datum> {
    let array = match array {
        Datum::Array(array) => array,
        Datum::Null => return Ok(Datum::Null),
        _ => return Err(SqlError::internal("a subscript of something that is not an array")),
    };
    if ranges.iter().all(|range| matches!(range, SubscriptRange::Index(_))) {
        return element(array, ranges, row, env);
    }
    let mut slices = Vec::with_capacity(ranges.len());
    for range in ranges {
        let ends: Option<Ends> = match range {
            // In a slice, a plain subscript n means 1:n.
            SubscriptRange::Index(expr) => integer(expr, row, env)?.map(|end| (Some(1), Some(end))),
            SubscriptRange::Slice(from, to) => ends(from.as_ref(), to.as_ref(), row, env)?,
        };
        match ends {
            Some(ends) => slices.push(ends),
            None => return Ok(Datum::Null),
        }
    }
    Ok(slice(array, &slices))
}

fn integer(expr: &Expr, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Option<i64>> {
    match eval(expr, row, env)? {
        Datum::Int2(value) => Ok(Some(i64::from(value))),
        Datum::Int4(value) => Ok(Some(i64::from(value))),
        Datum::Int8(value) => Ok(Some(value)),
        Datum::Null => Ok(None),
        _ => Err(SqlError::internal("an array subscript is not an integer")),
    }
}

fn ends(from: Option<&Expr>, to: Option<&Expr>, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Option<Ends>> {
    let mut both = [None, None];
    for (end, expr) in both.iter_mut().zip([from, to]) {
        if let Some(expr) = expr {
            match integer(expr, row, env)? {
                Some(value) => *end = Some(value),
                None => return Ok(None),
            }
        }
    }
    Ok(Some((both[0], both[1])))
}

fn element(
    array: &ArrayValue,
    ranges: &[SubscriptRange],
    row: &[Datum],
    env: &EvalEnv<'_>,
) -> SqlResult<Datum> {
    if ranges.len() != array.dimensions.len() {
        return Ok(Datum::Null);
    }
    let mut offset = 0_usize;
    for (range, (len, lower)) in ranges.iter().zip(&array.dimensions) {
        let SubscriptRange::Index(expr) = range else { return Ok(Datum::Null) };
        let Some(index) = integer(expr, row, env)? else { return Ok(Datum::Null) };
        let within = index - i64::from(*lower);
        match usize::try_from(within) {
            Ok(within) if within < *len => offset = offset * len + within,
            _ => return Ok(Datum::Null),
        }
    }
    Ok(array.values.get(offset).cloned().unwrap_or_default())
}

fn slice(array: &ArrayValue, slices: &[Ends]) -> Datum {
    let empty = || Datum::array(array.element, Vec::new());
    if slices.len() > array.dimensions.len() {
        return empty();
    }
    // Half-open ranges of positions, one per dimension.
    let mut windows = Vec::with_capacity(array.dimensions.len());
    for (position, (len, lower)) in array.dimensions.iter().enumerate() {
        let lower = i64::from(*lower);
        let (from, to) = slices.get(position).copied().unwrap_or((None, None));
        let from = from.map_or(0, |from| (from - lower).clamp(0, *len as i64)) as usize;
        let to = to.map_or(*len, |to| (to - lower + 1).clamp(0, *len as i64) as usize);
        if from >= to {
            return empty();
        }
        windows.push((from, to));
    }
    let mut values = Vec::new();
    collect(array, &windows, 0, 0, &mut values);
    let dimensions = windows.iter().map(|(from, to)| (to - from, 1)).collect();
    Datum::Array(Arc::new(ArrayValue { element: array.element, dimensions, values }))
}

fn collect(
    array: &ArrayValue,
    windows: &[(usize, usize)],
    level: usize,
    offset: usize,
    out: &mut Vec<Datum>,
) {
    let Some((from, to)) = windows.get(level) else {
        out.extend(array.values.get(offset).cloned());
        return;
    };
    for index in *from..*to {
        collect(array, windows, level + 1, offset * array.dimensions[level].0 + index, out);
    }
}
