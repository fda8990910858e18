//! Casts: the rules ([`cast_kind`], [`common_type`]) and the conversions ([`cast`], [`apply_typmod`]).

mod convert;
mod rules;
mod typmod;

pub use convert::cast;
pub use rules::{CastKind, can_coerce, cast_kind, common_type, select_common_type};
pub use typmod::apply_typmod;
