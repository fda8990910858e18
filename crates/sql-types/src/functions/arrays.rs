//! Functions of arrays.

use super::Function;
use super::args::{self, imm, typed};
use crate::array::{MAX_DIMENSIONS, MAX_ELEMENTS, too_large};
use crate::compare::equal;
use crate::context::EvalContext;
use crate::datum::{ArrayValue, Datum};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::text;
use crate::types::Type as T;
use std::sync::Arc;

fn array_of(value: ArrayValue) -> Datum {
    Datum::Array(Arc::new(value))
}

fn one_dimensional(array: &ArrayValue) -> SqlResult<()> {
    if array.dimensions.len() > 1 {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "argument must be empty or one-dimensional array",
        ));
    }
    Ok(())
}

/// The array argument, an empty one for NULL.
fn array_or_empty(value: Option<&Datum>, ty: Option<&T>) -> SqlResult<ArrayValue> {
    match value {
        Some(Datum::Array(array)) => Ok(ArrayValue::clone(array)),
        Some(Datum::Null) => {
            let element = ty.and_then(|ty| ty.element()).unwrap_or(T::TEXT);
            Ok(ArrayValue::one_dimension(element, Vec::new()))
        }
        _ => Err(SqlError::internal("not an array")),
    }
}

/// `array || element`
pub(super) fn append(types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let mut array = array_or_empty(args.first(), types.first())?;
    one_dimensional(&array)?;
    if array.values.len() >= MAX_ELEMENTS {
        return Err(too_large());
    }
    array.values.push(args.get(1).cloned().unwrap_or_default());
    match array.dimensions.first_mut() {
        Some((length, _)) => *length += 1,
        None => array.dimensions.push((1, 1)),
    }
    Ok(array_of(array))
}

/// `element || array`
pub(super) fn prepend(types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let mut array = array_or_empty(args.get(1), types.get(1))?;
    one_dimensional(&array)?;
    if array.values.len() >= MAX_ELEMENTS {
        return Err(too_large());
    }
    array.values.insert(0, args.first().cloned().unwrap_or_default());
    match array.dimensions.first_mut() {
        Some((length, _)) => *length += 1,
        None => array.dimensions.push((1, 1)),
    }
    Ok(array_of(array))
}

/// `array || array`
pub(super) fn concat(args: &[Datum]) -> SqlResult<Datum> {
    let (left, right) = match args {
        [Datum::Null, right] => return Ok(right.clone()),
        [left, Datum::Null] => return Ok(left.clone()),
        [Datum::Array(left), Datum::Array(right)] => (left, right),
        _ => return Err(SqlError::internal("not arrays")),
    };
    if left.values.is_empty() {
        return Ok(Datum::Array(right.clone()));
    }
    if right.values.is_empty() {
        return Ok(Datum::Array(left.clone()));
    }
    let incompatible = || {
        SqlError::new(SqlState::ARRAY_SUBSCRIPT, "cannot concatenate incompatible arrays")
            .with_detail("Arrays with differing dimensions are not compatible for concatenation.")
    };
    let lengths = |array: &ArrayValue| array.dimensions.iter().map(|(length, _)| *length).collect::<Vec<_>>();
    let (left_lengths, right_lengths) = (lengths(left), lengths(right));
    let mut dimensions = left.dimensions.clone();
    if left_lengths.len() == right_lengths.len() && left_lengths[1..] == right_lengths[1..] {
        dimensions[0].0 += right_lengths[0];
    } else if left_lengths.len() == right_lengths.len() + 1 && left_lengths[1..] == right_lengths[..] {
        dimensions[0].0 += 1;
    } else if left_lengths.len() + 1 == right_lengths.len() && left_lengths[..] == right_lengths[1..] {
        dimensions = right.dimensions.clone();
        dimensions[0].0 += 1;
    } else {
        return Err(incompatible());
    }
    let values: Vec<Datum> = left.values.iter().chain(&right.values).cloned().collect();
    if values.len() > MAX_ELEMENTS {
        return Err(too_large());
    }
    Ok(array_of(ArrayValue { element: left.element, dimensions, values }))
}

fn dimension(args: &[Datum]) -> SqlResult<Option<(usize, i32)>> {
    let array = args::array(args, 0)?;
    let index = args::int4(args, 1)?;
    Ok(usize::try_from(i64::from(index) - 1).ok().and_then(|index| array.dimensions.get(index)).copied())
}

fn positions(args: &[Datum]) -> SqlResult<Option<Vec<i32>>> {
    let array = match args.first() {
        Some(Datum::Null) => return Ok(None),
        _ => args::array(args, 0)?,
    };
    if array.dimensions.len() > 1 {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "searching for elements in multidimensional arrays is not supported",
        ));
    }
    let low = array.dimensions.first().map_or(1, |(_, low)| *low);
    let wanted = &args[1];
    let found = array.values.iter().enumerate().filter(|(_, value)| equal(value, wanted));
    Ok(Some(found.map(|(index, _)| low.saturating_add(index as i32)).collect()))
}

fn position_from(args: &[Datum]) -> SqlResult<Datum> {
    let start = match args.get(2) {
        None => i32::MIN,
        Some(Datum::Null) => {
            return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "initial position must not be null"));
        }
        Some(_) => args::int4(args, 2)?,
    };
    let found = positions(args)?.and_then(|found| found.into_iter().find(|at| *at >= start));
    Ok(found.map_or(Datum::Null, Datum::Int4))
}

fn remove(args: &[Datum]) -> SqlResult<Datum> {
    let Some(Datum::Array(array)) = args.first() else { return Ok(Datum::Null) };
    if array.dimensions.len() > 1 {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "removing elements from multidimensional arrays is not supported",
        ));
    }
    let kept: Vec<Datum> = array.values.iter().filter(|value| !equal(value, &args[1])).cloned().collect();
    Ok(Datum::array(array.element, kept))
}

fn replace(args: &[Datum]) -> SqlResult<Datum> {
    let Some(Datum::Array(array)) = args.first() else { return Ok(Datum::Null) };
    let mut array = ArrayValue::clone(array);
    for value in &mut array.values {
        if equal(value, &args[1]) {
            *value = args[2].clone();
        }
    }
    Ok(array_of(array))
}

fn dims(args: &[Datum]) -> SqlResult<Datum> {
    let array = args::array(args, 0)?;
    if array.dimensions.is_empty() {
        return Ok(Datum::Null);
    }
    let shown: String = array
        .dimensions
        .iter()
        .map(|(length, low)| format!("[{low}:{}]", i64::from(*low) + *length as i64 - 1))
        .collect();
    Ok(Datum::text(shown))
}

/// `array_fill(value, lengths[, lower bounds])`
fn fill(types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let integers = |index: usize| -> SqlResult<Vec<i32>> {
        match args.get(index) {
            Some(Datum::Array(array)) => array
                .values
                .iter()
                .map(|value| match value {
                    Datum::Int4(value) => Ok(*value),
                    _ => Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "dimension values cannot be null")),
                })
                .collect(),
            Some(Datum::Null) => Err(SqlError::new(
                SqlState::NULL_NOT_ALLOWED,
                "dimension array or low bound array cannot be null",
            )),
            _ => Ok(Vec::new()),
        }
    };
    let lengths = integers(1)?;
    let lows = integers(2)?;
    if lengths.len() > MAX_DIMENSIONS {
        return Err(too_large());
    }
    let mut total = 1usize;
    let mut dimensions = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        let length = usize::try_from(*length).map_err(|_| too_large())?;
        total =
            total.checked_mul(length).filter(|total| *total <= MAX_ELEMENTS / 16).ok_or_else(too_large)?;
        dimensions.push((length, lows.get(index).copied().unwrap_or(1)));
    }
    let element = types.first().copied().unwrap_or(T::TEXT);
    if total == 0 || lengths.is_empty() {
        return Ok(Datum::array(element, Vec::new()));
    }
    Ok(array_of(ArrayValue { element, dimensions, values: vec![args[0].clone(); total] }))
}

fn to_text(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<Datum> {
    let (Some(Datum::Array(array)), Some(Datum::Text(separator))) = (args.first(), args.get(1)) else {
        return Ok(Datum::Null);
    };
    let null = args::optional(args, 2, args::text)?;
    let mut out = String::new();
    let mut first = true;
    for value in &array.values {
        let start = out.len();
        if !first {
            out.push_str(separator);
        }
        match (value, null) {
            (Datum::Null, Some(null)) => out.push_str(null),
            (Datum::Null, None) => {
                out.truncate(start);
                continue;
            }
            (value, _) => text::format(value, array.element, context, &mut out),
        }
        first = false;
    }
    Ok(Datum::text(out))
}

/// Parts of a text between separators; every character on its own if the separator is NULL.
pub(super) fn split(args: &[Datum]) -> SqlResult<Option<Vec<Datum>>> {
    let Some(Datum::Text(string)) = args.first() else { return Ok(None) };
    let null = args::optional(args, 2, args::text)?;
    let value = |part: &str| if Some(part) == null { Datum::Null } else { Datum::text(part) };
    if string.is_empty() {
        return Ok(Some(Vec::new()));
    }
    Ok(Some(match args.get(1) {
        Some(Datum::Text(separator)) if separator.is_empty() => vec![value(string)],
        Some(Datum::Text(separator)) => string.split(&**separator).map(value).collect(),
        _ => string.chars().map(|c| value(c.encode_utf8(&mut [0; 4]))).collect(),
    }))
}

fn from_text(args: &[Datum]) -> SqlResult<Datum> {
    Ok(split(args)?.map_or(Datum::Null, |parts| Datum::array(T::TEXT, parts)))
}

fn trim(args: &[Datum]) -> SqlResult<Datum> {
    let array = args::array(args, 0)?;
    let count = args::int4(args, 1)?;
    let length = array.dimensions.first().map_or(0, |(length, _)| *length);
    let bad = || {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT,
            format!("number of elements to trim must be between 0 and {length}"),
        )
    };
    let count = usize::try_from(count).ok().filter(|count| *count <= length).ok_or_else(bad)?;
    let Some((_, low)) = array.dimensions.first() else { return Ok(Datum::Array(Arc::new(array.clone()))) };
    if count == length {
        return Ok(Datum::array(array.element, Vec::new()));
    }
    let high = i64::from(*low) + (length - count) as i64 - 1;
    Ok(array_of(array.slice(&[(None, Some(high as i32))])))
}

fn int_or_null(value: Option<i64>) -> Datum {
    value.and_then(|value| i32::try_from(value).ok()).map_or(Datum::Null, Datum::Int4)
}

pub(super) static TABLE: &[Function] = &[
    imm("array_length", &[T::ANYARRAY, T::INT4], T::INT4, |_, a| {
        Ok(int_or_null(dimension(a)?.map(|(length, _)| length as i64)))
    }),
    imm("array_lower", &[T::ANYARRAY, T::INT4], T::INT4, |_, a| {
        Ok(int_or_null(dimension(a)?.map(|(_, low)| i64::from(low))))
    }),
    imm("array_upper", &[T::ANYARRAY, T::INT4], T::INT4, |_, a| {
        Ok(int_or_null(dimension(a)?.map(|(length, low)| i64::from(low) + length as i64 - 1)))
    }),
    imm("array_ndims", &[T::ANYARRAY], T::INT4, |_, a| {
        let count = args::array(a, 0)?.dimensions.len();
        Ok(int_or_null(Some(count as i64).filter(|count| *count > 0)))
    }),
    imm("array_dims", &[T::ANYARRAY], T::TEXT, |_, a| dims(a)),
    imm("cardinality", &[T::ANYARRAY], T::INT4, |_, a| {
        Ok(int_or_null(Some(args::array(a, 0)?.values.len() as i64)))
    }),
    typed("array_append", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE], T::ANYCOMPATIBLEARRAY, |_, t, a| {
        append(t, a)
    })
    .nonstrict(),
    typed("array_prepend", &[T::ANYCOMPATIBLE, T::ANYCOMPATIBLEARRAY], T::ANYCOMPATIBLEARRAY, |_, t, a| {
        prepend(t, a)
    })
    .nonstrict(),
    imm("array_cat", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLEARRAY], T::ANYCOMPATIBLEARRAY, |_, a| {
        concat(a)
    })
    .nonstrict(),
    imm("array_position", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE], T::INT4, |_, a| position_from(a))
        .nonstrict(),
    imm("array_position", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE, T::INT4], T::INT4, |_, a| {
        position_from(a)
    })
    .nonstrict(),
    imm("array_positions", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE], T::INT4_ARRAY, |_, a| {
        Ok(positions(a)?
            .map_or(Datum::Null, |found| Datum::array(T::INT4, found.into_iter().map(Datum::Int4).collect())))
    })
    .nonstrict(),
    imm("array_remove", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE], T::ANYCOMPATIBLEARRAY, |_, a| remove(a))
        .nonstrict(),
    imm(
        "array_replace",
        &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE, T::ANYCOMPATIBLE],
        T::ANYCOMPATIBLEARRAY,
        |_, a| replace(a),
    )
    .nonstrict(),
    typed("array_fill", &[T::ANYELEMENT, T::INT4_ARRAY], T::ANYARRAY, |_, t, a| fill(t, a)).nonstrict(),
    typed("array_fill", &[T::ANYELEMENT, T::INT4_ARRAY, T::INT4_ARRAY], T::ANYARRAY, |_, t, a| fill(t, a))
        .nonstrict(),
    imm("array_to_string", &[T::ANYARRAY, T::TEXT], T::TEXT, to_text).stable(),
    imm("array_to_string", &[T::ANYARRAY, T::TEXT, T::TEXT], T::TEXT, to_text).stable().nonstrict(),
    imm("string_to_array", &[T::TEXT, T::TEXT], T::TEXT_ARRAY, |_, a| from_text(a)).nonstrict(),
    imm("string_to_array", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT_ARRAY, |_, a| from_text(a)).nonstrict(),
    imm("trim_array", &[T::ANYARRAY, T::INT4], T::ANYARRAY, |_, a| trim(a)),
];
