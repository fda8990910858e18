//! Which type casts to which, and how freely.

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Type;

/// How freely a cast is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastKind {
    /// Anywhere.
    Implicit,
    /// When storing into a column.
    Assignment,
    /// Only where the user writes it.
    Explicit,
}

use CastKind::{Assignment as A, Explicit as E, Implicit as I};

/// How `from` may be cast to `to`; `None` if it cannot. A type casts to itself implicitly, and
/// [`Type::UNKNOWN`] (an untyped literal) to everything.
pub fn cast_kind(from: Type, to: Type) -> Option<CastKind> {
    if from == to || from == Type::UNKNOWN {
        return Some(I);
    }
    if to == Type::UNKNOWN {
        return None;
    }
    if let Some(kind) = scalar_kind(from, to) {
        return Some(kind);
    }
    if let (Some(from_element), Some(to_element)) = (from.element(), to.element())
        && !is_vector(to)
    {
        if is_vector(from) {
            return (from_element == to_element || from_element == Type::OID && to_element.is_reg())
                .then_some(I);
        }
        return cast_kind(from_element, to_element);
    }
    // Everything converts through its text: freely enough to be stored in a string column, and out
    // of a string when the user says so.
    if to.category() == 'S' && from.category() != 'P' || to.category() == 'S' && from == Type::RECORD {
        return Some(A);
    }
    if from.category() == 'S' && to.category() != 'P' {
        return Some(E);
    }
    None
}

fn is_vector(ty: Type) -> bool {
    matches!(ty, Type::INT2VECTOR | Type::OIDVECTOR)
}

fn scalar_kind(from: Type, to: Type) -> Option<CastKind> {
    if let (Some(from_rank), Some(to_rank)) = (number_rank(from), number_rank(to)) {
        return Some(if from_rank < to_rank { I } else { A });
    }
    if let Some(kind) = oid_kind(from, to) {
        return Some(kind);
    }
    Some(match (from, to) {
        (Type::INT4, Type::BOOL) | (Type::BOOL, Type::INT4) => E,
        (Type::TEXT, Type::BPCHAR | Type::VARCHAR | Type::NAME) => I,
        (Type::BPCHAR, Type::TEXT | Type::VARCHAR | Type::NAME) => I,
        (Type::VARCHAR, Type::TEXT | Type::BPCHAR | Type::NAME) => I,
        (Type::NAME | Type::CHAR, Type::TEXT) => I,
        (Type::NAME | Type::CHAR, Type::BPCHAR | Type::VARCHAR) => A,
        (Type::TEXT | Type::BPCHAR | Type::VARCHAR, Type::CHAR) => A,
        (Type::CHAR, Type::INT4) | (Type::INT4, Type::CHAR) => E,
        (Type::DATE, Type::TIMESTAMP | Type::TIMESTAMPTZ) => I,
        (Type::TIME, Type::INTERVAL) => I,
        (Type::TIMESTAMP, Type::DATE | Type::TIME) => A,
        (Type::TIMESTAMP, Type::TIMESTAMPTZ) => I,
        (Type::TIMESTAMPTZ, Type::DATE | Type::TIME | Type::TIMESTAMP) => A,
        (Type::INTERVAL, Type::TIME) => A,
        (Type::JSON, Type::JSONB) | (Type::JSONB, Type::JSON) => A,
        (Type::JSONB, Type::BOOL) => E,
        (Type::JSONB, to) if to.is_numeric() => E,
        (Type::PG_NODE_TREE, Type::TEXT) => I,
        (Type::XID8, Type::XID) => E,
        _ => return None,
    })
}

/// The order in which numbers widen. Integers and numeric reach floats implicitly.
fn number_rank(ty: Type) -> Option<u8> {
    Some(match ty {
        Type::INT2 => 0,
        Type::INT4 => 1,
        Type::INT8 => 2,
        Type::NUMERIC => 3,
        Type::FLOAT4 => 4,
        Type::FLOAT8 => 5,
        _ => return None,
    })
}

fn oid_kind(from: Type, to: Type) -> Option<CastKind> {
    let integer = |ty| matches!(ty, Type::INT2 | Type::INT4 | Type::INT8);
    let named = |ty: Type| ty == Type::OID || ty.is_reg();
    if integer(from) && named(to) {
        return Some(I);
    }
    if named(from) && matches!(to, Type::INT4 | Type::INT8) {
        return Some(A);
    }
    if (from == Type::OID && to.is_reg()) || (from.is_reg() && to == Type::OID) {
        return Some(I);
    }
    match (from, to) {
        (Type::REGPROC, Type::REGPROCEDURE) | (Type::REGPROCEDURE, Type::REGPROC) => Some(I),
        (Type::TEXT | Type::VARCHAR, Type::REGCLASS) => Some(I),
        _ => None,
    }
}

/// Whether an argument of type `from` is accepted where `to` is wanted.
pub fn can_coerce(from: Type, to: Type) -> bool {
    cast_kind(from, to) == Some(I)
}

/// The type that values of all these types are cast to (UNION, CASE, COALESCE, IN, ARRAY, VALUES);
/// text if all are untyped literals, `None` if there is none.
pub fn common_type(types: &[Type]) -> Option<Type> {
    let mut known = types.iter().copied().filter(|ty| *ty != Type::UNKNOWN);
    let Some(mut common) = known.next() else {
        return Some(Type::TEXT);
    };
    for ty in known {
        if ty == common {
            continue;
        }
        if ty.category() != common.category() {
            return None;
        }
        if !common.is_preferred() && can_coerce(common, ty) && !can_coerce(ty, common) {
            common = ty;
        }
    }
    types.iter().all(|ty| can_coerce(*ty, common)).then_some(common)
}

/// [`common_type`], or the error PostgreSQL gives; `context` is `UNION`, `CASE`, `COALESCE`, `IN`, …
pub fn select_common_type(types: &[Type], context: &str) -> SqlResult<Type> {
    common_type(types).ok_or_else(|| {
        let mut known = types.iter().filter(|ty| **ty != Type::UNKNOWN);
        let first = known.next().copied().unwrap_or(Type::TEXT);
        let apart = known.clone().find(|ty| ty.category() != first.category());
        let other = apart.or_else(|| known.find(|ty| **ty != first)).copied().unwrap_or(first);
        SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!("{context} types {first} and {other} cannot be matched"),
        )
    })
}
