//! `enum_first`, `enum_last`, `enum_range`: arguments tell the type, and may be NULL.

use super::args::typed;
use super::{EvalContext, Function};
use crate::datum::{Datum, EnumValue};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Type as T;

fn type_of(types: &[T]) -> SqlResult<T> {
    let found = types.iter().copied().find(|ty| ty.is_enum());
    found
        .ok_or_else(|| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "could not determine actual enum type"))
}

fn end(value: Option<&EnumValue>, ty: T) -> SqlResult<Datum> {
    value
        .copied()
        .map(Datum::Enum)
        .ok_or_else(|| SqlError::new(SqlState::OBJECT_STATE, format!("enum {ty} contains no values")))
}

/// The values between two, both of which may be open (NULL).
fn range(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let ty = type_of(types)?;
    let bound = |index: usize, open: i64| match args.get(index) {
        Some(Datum::Enum(value)) if args.len() == 2 => value.rank,
        _ => open,
    };
    let (low, high) = (bound(0, i64::MIN), bound(1, i64::MAX));
    let values = context.catalog.enum_values(ty).into_iter();
    Ok(Datum::array(ty, values.filter(|v| (low..=high).contains(&v.rank)).map(Datum::Enum).collect()))
}

pub(super) static TABLE: &[Function] = &[
    typed("enum_first", &[T::ANYENUM], T::ANYENUM, |c, t, _| {
        let ty = type_of(t)?;
        end(c.catalog.enum_values(ty).first(), ty)
    })
    .stable()
    .nonstrict(),
    typed("enum_last", &[T::ANYENUM], T::ANYENUM, |c, t, _| {
        let ty = type_of(t)?;
        end(c.catalog.enum_values(ty).last(), ty)
    })
    .stable()
    .nonstrict(),
    typed("enum_range", &[T::ANYENUM], T::ANYARRAY, range).stable().nonstrict(),
    typed("enum_range", &[T::ANYENUM, T::ANYENUM], T::ANYARRAY, range).stable().nonstrict(),
];
