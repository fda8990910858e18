//! `array[i] = value` and `array[from:to] = values`.

use crate::array::{MAX_DIMENSIONS, MAX_ELEMENTS, too_large, too_many_dimensions};
use crate::{ArrayValue, Datum, SqlError, SqlResult, SqlState};

/// The ends of one dimension of a slice, both inclusive; `None` is where the array ends.
pub type Ends = (Option<i32>, Option<i32>);

/// Most elements that an array may have after an assignment that makes it longer.
const MAX_EXTENDED: usize = MAX_ELEMENTS / 16;

fn wrong(message: &str) -> SqlError {
    SqlError::new(SqlState::ARRAY_SUBSCRIPT, message)
}

fn too_few() -> SqlError {
    wrong("source array too small")
}

/// An array with one element replaced. One of one dimension grows to where the element is, with NULLs between; an empty
/// one begins there.
///
/// # Errors
/// 2202E for subscripts that the array has not, 54000 for an array that becomes too large.
pub fn element(array: ArrayValue, subscripts: &[i32], value: Datum) -> SqlResult<ArrayValue> {
    if subscripts.len() > MAX_DIMENSIONS {
        return Err(too_many_dimensions(subscripts.len()));
    }
    if array.dimensions.is_empty() {
        let dimensions = subscripts.iter().map(|at| bounded(1, *at)).collect::<SqlResult<_>>()?;
        return Ok(ArrayValue { dimensions, values: vec![value], ..array });
    }
    if array.dimensions.len() != subscripts.len() {
        return Err(wrong("wrong number of array subscripts"));
    }
    let mut array = array;
    if let ([_], [at]) = (&array.dimensions[..], subscripts) {
        extend(&mut array, *at, *at)?;
    }
    let mut offset = 0;
    for (at, (length, lower)) in subscripts.iter().zip(&array.dimensions) {
        let within = position(*at, *lower, *length).ok_or_else(|| wrong("array subscript out of range"))?;
        offset = offset * length + within;
    }
    if let Some(slot) = array.values.get_mut(offset) {
        *slot = value;
    }
    Ok(array)
}

/// An array with a slice replaced by the first elements of another one, which must have enough of them.
///
/// # Errors
/// As for [`element`], and 2202E for ends that are missing or the wrong way round, or too few elements.
pub fn slice(array: ArrayValue, ends: &[Ends], from: &ArrayValue) -> SqlResult<ArrayValue> {
    if ends.len() > MAX_DIMENSIONS {
        return Err(too_many_dimensions(ends.len()));
    }
    if array.dimensions.is_empty() {
        return of_slice(array, ends, from);
    }
    if array.dimensions.len() < ends.len() {
        return Err(wrong("wrong number of array subscripts"));
    }
    let mut array = array;
    let mut resolved = Vec::with_capacity(array.dimensions.len());
    for (dimension, (length, lower)) in array.dimensions.iter().enumerate() {
        let (low, high) = ends.get(dimension).copied().unwrap_or((None, None));
        let last = i64::from(*lower) + *length as i64 - 1;
        let (low, high) = (low.unwrap_or(*lower), high.unwrap_or(last.min(i64::from(i32::MAX)) as i32));
        if low > high {
            return Err(wrong("upper bound cannot be less than lower bound"));
        }
        resolved.push((low, high));
    }
    if let ([_], [(low, high)]) = (&array.dimensions[..], &resolved[..]) {
        let wanted = i64::from(*high) - i64::from(*low) + 1;
        if (from.values.len() as i64) < wanted {
            return Err(too_few());
        }
        extend(&mut array, *low, *high)?;
    }
    let mut windows = Vec::with_capacity(resolved.len());
    for ((low, high), (length, lower)) in resolved.iter().zip(&array.dimensions) {
        let out = || wrong("array subscript out of range");
        let low = position(*low, *lower, *length).ok_or_else(out)?;
        windows.push((low, position(*high, *lower, *length).ok_or_else(out)?));
    }
    let wanted: usize = windows.iter().map(|(low, high)| high - low + 1).product();
    if from.values.len() < wanted {
        return Err(too_few());
    }
    let mut values = from.values.iter();
    fill(&mut array, &windows, 0, 0, &mut values);
    Ok(array)
}

/// What an assignment to a slice makes of an empty array.
fn of_slice(array: ArrayValue, ends: &[Ends], from: &ArrayValue) -> SqlResult<ArrayValue> {
    let mut dimensions = Vec::with_capacity(ends.len());
    for end in ends {
        let (Some(low), Some(high)) = *end else {
            let detail = "When assigning to a slice of an empty array value, slice boundaries must be fully specified.";
            return Err(wrong("array slice subscript must provide both boundaries").with_detail(detail));
        };
        let length = i64::from(high) - i64::from(low) + 1;
        dimensions.push((usize::try_from(length).map_err(|_| too_large())?, low));
    }
    let count = dimensions.iter().try_fold(1_usize, |count, (length, _)| count.checked_mul(*length));
    let count = count.filter(|count| *count <= MAX_ELEMENTS).ok_or_else(too_large)?;
    if from.values.len() < count {
        return Err(too_few());
    }
    if count == 0 {
        return Ok(array);
    }
    let dimensions =
        dimensions.into_iter().map(|(length, low)| bounded(length, low)).collect::<SqlResult<_>>()?;
    Ok(ArrayValue { dimensions, values: from.values[..count].to_vec(), ..array })
}

/// Makes an array of one dimension long enough for both ends.
fn extend(array: &mut ArrayValue, low: i32, high: i32) -> SqlResult<()> {
    let [(length, lower)] = &mut array.dimensions[..] else { return Ok(()) };
    let before = usize::try_from(i64::from(*lower) - i64::from(low)).unwrap_or(0);
    let end = i64::from(*lower) + *length as i64;
    let after = usize::try_from(i64::from(high) - end + 1).unwrap_or(0);
    if before + after == 0 {
        return Ok(());
    }
    let total = *length + before + after;
    if total > MAX_EXTENDED {
        return Err(too_large());
    }
    (*length, *lower) = bounded(total, low.min(*lower))?;
    array.values.splice(..0, std::iter::repeat_n(Datum::Null, before));
    array.values.resize(total, Datum::Null);
    Ok(())
}

/// A dimension, whose last subscript must be an integer too.
fn bounded(length: usize, lower: i32) -> SqlResult<(usize, i32)> {
    if i64::from(lower) + length as i64 > i64::from(i32::MAX) {
        return Err(SqlError::new(
            SqlState::PROGRAM_LIMIT,
            format!("array lower bound is too large: {lower}"),
        ));
    }
    Ok((length, lower))
}

fn position(at: i32, lower: i32, length: usize) -> Option<usize> {
    usize::try_from(i64::from(at) - i64::from(lower)).ok().filter(|within| *within < length)
}

fn fill<'v>(
    array: &mut ArrayValue,
    windows: &[(usize, usize)],
    dimension: usize,
    offset: usize,
    values: &mut impl Iterator<Item = &'v Datum>,
) {
    let Some(((low, high), inner)) = windows.split_first() else { return };
    let length = array.dimensions.get(dimension).map_or(0, |(length, _)| *length);
    for index in *low..=*high {
        let at = offset * length + index;
        if !inner.is_empty() {
            fill(array, inner, dimension + 1, at, values);
        } else if let (Some(slot), Some(value)) = (array.values.get_mut(at), values.next()) {
            *slot = value.clone();
        }
    }
}
