//! Casts written as function calls: `date(now())`, `int4(1.5)`.

use super::Function;
use super::args::typed;
use crate::cast;
use crate::context::EvalContext;
use crate::datum::Datum;
use crate::error::SqlResult;
use crate::types::{ColumnType, Type as T};

fn convert(context: &EvalContext<'_>, types: &[T], args: &[Datum], to: T) -> SqlResult<Datum> {
    let (Some(value), Some(from)) = (args.first(), types.first()) else { return Ok(Datum::Null) };
    cast::cast(value, *from, ColumnType::plain(to), true, context)
}

macro_rules! casts {
    ($($name:literal $from:ident $to:ident;)*) => {
        &[$(typed($name, &[T::$from], T::$to, |c, t, a| convert(c, t, a, T::$to)).stable(),)*]
    };
}

pub(super) static TABLE: &[Function] = casts! {
    "int2" INT4 INT2;
    "int2" INT8 INT2;
    "int2" FLOAT8 INT2;
    "int2" NUMERIC INT2;
    "int4" BOOL INT4;
    "int4" INT2 INT4;
    "int4" INT8 INT4;
    "int4" FLOAT4 INT4;
    "int4" FLOAT8 INT4;
    "int4" NUMERIC INT4;
    "int4" JSONB INT4;
    "int8" INT2 INT8;
    "int8" INT4 INT8;
    "int8" FLOAT4 INT8;
    "int8" FLOAT8 INT8;
    "int8" NUMERIC INT8;
    "int8" OID INT8;
    "float4" INT4 FLOAT4;
    "float4" FLOAT8 FLOAT4;
    "float4" NUMERIC FLOAT4;
    "float8" INT4 FLOAT8;
    "float8" INT8 FLOAT8;
    "float8" FLOAT4 FLOAT8;
    "float8" NUMERIC FLOAT8;
    "numeric" INT4 NUMERIC;
    "numeric" INT8 NUMERIC;
    "numeric" FLOAT4 NUMERIC;
    "numeric" FLOAT8 NUMERIC;
    "bool" INT4 BOOL;
    "text" BPCHAR TEXT;
    "text" NAME TEXT;
    "text" CHAR TEXT;
    "text" BOOL TEXT;
    "text" INET TEXT;
    "name" TEXT NAME;
    "name" BPCHAR NAME;
    "bpchar" NAME BPCHAR;
    "varchar" NAME VARCHAR;
    "date" TIMESTAMP DATE;
    "date" TIMESTAMPTZ DATE;
    "time" TIMESTAMP TIME;
    "time" TIMESTAMPTZ TIME;
    "time" INTERVAL TIME;
    "timestamp" DATE TIMESTAMP;
    "timestamp" TIMESTAMPTZ TIMESTAMP;
    "timestamptz" DATE TIMESTAMPTZ;
    "timestamptz" TIMESTAMP TIMESTAMPTZ;
    "interval" TIME INTERVAL;
    "oid" INT8 OID;
    "regclass" TEXT REGCLASS;
};
