//! `= <> < <= > >=` of every type that has an order.

use crate::compare::{compare, compare_bpchar};
use crate::datetime;
use crate::datum::Datum;
use crate::error::SqlResult;
use crate::functions::args::{self, imm};
use crate::functions::{EvalContext, Function};
use crate::types::Type;
use std::cmp::Ordering;

type Compare = SqlResult<Ordering>;

fn plain(_: &EvalContext<'_>, args: &[Datum]) -> Compare {
    match args {
        [left, right] => Ok(compare(left, right)),
        _ => Ok(Ordering::Equal),
    }
}

fn blank_padded(_: &EvalContext<'_>, args: &[Datum]) -> Compare {
    Ok(compare_bpchar(args::text(args, 0)?, args::text(args, 1)?))
}

/// A date, timestamp or timestamptz as a local timestamp, saturating: only for comparing.
fn as_local(context: &EvalContext<'_>, value: &Datum) -> i64 {
    match value {
        Datum::Date(days) => {
            datetime::date_to_timestamp(*days).unwrap_or(if *days < 0 { i64::MIN + 1 } else { i64::MAX - 1 })
        }
        Datum::Timestamptz(utc) => {
            datetime::timestamptz_to_timestamp(*utc, context.time_zone).unwrap_or(*utc)
        }
        Datum::Timestamp(local) => *local,
        _ => 0,
    }
}

fn as_instant(context: &EvalContext<'_>, value: &Datum) -> i64 {
    match value {
        Datum::Timestamptz(utc) => *utc,
        other => {
            let local = as_local(context, other);
            datetime::timestamp_to_timestamptz(local, context.time_zone).unwrap_or(local)
        }
    }
}

fn local_times(context: &EvalContext<'_>, args: &[Datum]) -> Compare {
    Ok(match args {
        [left, right] => as_local(context, left).cmp(&as_local(context, right)),
        _ => Ordering::Equal,
    })
}

fn instants(context: &EvalContext<'_>, args: &[Datum]) -> Compare {
    Ok(match args {
        [left, right] => as_instant(context, left).cmp(&as_instant(context, right)),
        _ => Ordering::Equal,
    })
}

macro_rules! comparisons {
    ($($left:ident $right:ident $compare:ident $($how:ident)?;)*) => {
        &[$(
            imm("=", &[Type::$left, Type::$right], Type::BOOL, |c, a| Ok(Datum::Bool($compare(c, a)?.is_eq())))$(.$how())?,
            imm("<>", &[Type::$left, Type::$right], Type::BOOL, |c, a| Ok(Datum::Bool($compare(c, a)?.is_ne())))$(.$how())?,
            imm("<", &[Type::$left, Type::$right], Type::BOOL, |c, a| Ok(Datum::Bool($compare(c, a)?.is_lt())))$(.$how())?,
            imm("<=", &[Type::$left, Type::$right], Type::BOOL, |c, a| Ok(Datum::Bool($compare(c, a)?.is_le())))$(.$how())?,
            imm(">", &[Type::$left, Type::$right], Type::BOOL, |c, a| Ok(Datum::Bool($compare(c, a)?.is_gt())))$(.$how())?,
            imm(">=", &[Type::$left, Type::$right], Type::BOOL, |c, a| Ok(Datum::Bool($compare(c, a)?.is_ge())))$(.$how())?,
        )*
            imm("=", &[Type::XID, Type::XID], Type::BOOL, |c, a| Ok(Datum::Bool(plain(c, a)?.is_eq()))),
            imm("<>", &[Type::XID, Type::XID], Type::BOOL, |c, a| Ok(Datum::Bool(plain(c, a)?.is_ne()))),
            imm("=", &[Type::XID, Type::INT4], Type::BOOL, |c, a| Ok(Datum::Bool(plain(c, a)?.is_eq()))),
            imm("=", &[Type::CID, Type::CID], Type::BOOL, |c, a| Ok(Datum::Bool(plain(c, a)?.is_eq()))),
            imm("=", &[Type::ACLITEM, Type::ACLITEM], Type::BOOL, |c, a| Ok(Datum::Bool(plain(c, a)?.is_eq()))),
        ]
    };
}

pub(super) static TABLE: &[Function] = comparisons! {
    BOOL BOOL plain;
    INT2 INT2 plain;
    INT4 INT4 plain;
    INT8 INT8 plain;
    INT2 INT4 plain;
    INT4 INT2 plain;
    INT2 INT8 plain;
    INT8 INT2 plain;
    INT4 INT8 plain;
    INT8 INT4 plain;
    FLOAT4 FLOAT4 plain;
    FLOAT8 FLOAT8 plain;
    FLOAT4 FLOAT8 plain;
    FLOAT8 FLOAT4 plain;
    NUMERIC NUMERIC plain;
    OID OID plain;
    TEXT TEXT plain;
    NAME NAME plain;
    NAME TEXT plain;
    TEXT NAME plain;
    CHAR CHAR plain;
    BPCHAR BPCHAR blank_padded;
    BYTEA BYTEA plain;
    DATE DATE plain;
    TIME TIME plain;
    TIMESTAMP TIMESTAMP plain;
    TIMESTAMPTZ TIMESTAMPTZ plain;
    DATE TIMESTAMP local_times;
    TIMESTAMP DATE local_times;
    DATE TIMESTAMPTZ instants stable;
    TIMESTAMPTZ DATE instants stable;
    TIMESTAMP TIMESTAMPTZ instants stable;
    TIMESTAMPTZ TIMESTAMP instants stable;
    INTERVAL INTERVAL plain;
    UUID UUID plain;
    JSONB JSONB plain;
    INET INET plain;
    PG_LSN PG_LSN plain;
    XID8 XID8 plain;
    TID TID plain;
    ANYENUM ANYENUM plain;
    ANYARRAY ANYARRAY plain;
    RECORD RECORD plain;
    OIDVECTOR OIDVECTOR plain;
};
