//! Operators of arrays.

use crate::compare::equal;
use crate::datum::{ArrayValue, Datum};

use crate::functions::Function;
use crate::functions::args::{self, imm, typed};
use crate::functions::arrays::{append, concat, prepend};
use crate::types::Type as T;

/// Whether every element of `inner` is in `outer`; NULLs are equal to nothing.
fn contains(outer: &ArrayValue, inner: &ArrayValue) -> bool {
    inner.values.iter().all(|wanted| {
        !wanted.is_null() && outer.values.iter().any(|value| !value.is_null() && equal(value, wanted))
    })
}

fn overlaps(left: &ArrayValue, right: &ArrayValue) -> bool {
    let mut values = left.values.iter().filter(|value| !value.is_null());
    values.any(|value| right.values.iter().any(|other| !other.is_null() && equal(value, other)))
}

pub(super) static TABLE: &[Function] = &[
    imm("@>", &[T::ANYARRAY, T::ANYARRAY], T::BOOL, |_, a| {
        Ok(Datum::Bool(contains(args::array(a, 0)?, args::array(a, 1)?)))
    }),
    imm("<@", &[T::ANYARRAY, T::ANYARRAY], T::BOOL, |_, a| {
        Ok(Datum::Bool(contains(args::array(a, 1)?, args::array(a, 0)?)))
    }),
    imm("&&", &[T::ANYARRAY, T::ANYARRAY], T::BOOL, |_, a| {
        Ok(Datum::Bool(overlaps(args::array(a, 0)?, args::array(a, 1)?)))
    }),
    imm("||", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLEARRAY], T::ANYCOMPATIBLEARRAY, |_, a| concat(a))
        .nonstrict(),
    typed("||", &[T::ANYCOMPATIBLEARRAY, T::ANYCOMPATIBLE], T::ANYCOMPATIBLEARRAY, |_, t, a| append(t, a))
        .nonstrict(),
    typed("||", &[T::ANYCOMPATIBLE, T::ANYCOMPATIBLEARRAY], T::ANYCOMPATIBLEARRAY, |_, t, a| prepend(t, a))
        .nonstrict(),
];
