//! System information, settings, and the SQL constructs that look like functions.

use super::Function;
use super::args::{self, imm, typed};
use crate::compare;
use crate::context::EvalContext;
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use crate::text;
use crate::types::{ColumnType, Type as T};

fn version(context: &EvalContext<'_>) -> SqlResult<Datum> {
    let version = context.catalog.current_setting("server_version").unwrap_or_else(|| "15.0".to_string());
    Ok(Datum::text(format!(
        "PostgreSQL {version} on {}-unknown-linux-gnu, Dormouse {}, 64-bit",
        std::env::consts::ARCH,
        env!("CARGO_PKG_VERSION"),
    )))
}

/// The built-in schemas that the search path has without naming them.
fn schemas(context: &EvalContext<'_>, implicit: bool) -> Datum {
    let mut names = Vec::new();
    if implicit && !context.schemas.iter().any(|name| name == "pg_catalog") {
        names.push(Datum::text("pg_catalog"));
    }
    names.extend(context.schemas.iter().map(|name| Datum::text(name.as_str())));
    Datum::array(T::NAME, names)
}

fn setting(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<Datum> {
    let name = args::text(args, 0)?;
    match context.catalog.current_setting(name) {
        Some(value) => Ok(Datum::text(value)),
        None if args::optional(args, 1, args::bool)? == Some(true) => Ok(Datum::Null),
        None => Err(SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\""),
        )),
    }
}

fn set_config(context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<Datum> {
    let Some(name) = args::optional(args, 0, args::text)? else {
        return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "SET requires parameter name"));
    };
    let value = args::optional(args, 1, args::text)?;
    let local = args::optional(args, 2, args::bool)?.unwrap_or(false);
    Ok(Datum::text(context.catalog.set_config(name, value, local)?))
}

/// `to_regclass` and its kin: NULL where the cast would fail.
fn to_reg(context: &EvalContext<'_>, args: &[Datum], ty: T) -> SqlResult<Datum> {
    let name = args::text(args, 0)?;
    if name.bytes().all(|byte| byte.is_ascii_digit()) && ty != T::REGTYPE {
        return Ok(Datum::Null);
    }
    match text::parse(ColumnType::plain(ty), name, context) {
        Ok(value) => Ok(value),
        Err(error) if matches!(error.code, SqlState::INTERNAL) => Err(error),
        Err(_) => Ok(Datum::Null),
    }
}

/// `format_type(oid, typmod)`: the SQL name of a type with its modifier.
pub(crate) fn format_type(context: &EvalContext<'_>, ty: T, typmod: i32) -> String {
    if let Some(element) = ty.element()
        && !matches!(ty, T::INT2VECTOR | T::OIDVECTOR)
    {
        return format!("{}[]", format_type(context, element, typmod));
    }
    let name = match ty.info() {
        Some(info) => info.sql_name.to_string(),
        None => return context.catalog.type_name(ty).unwrap_or_else(|| "???".to_string()),
    };
    if typmod < 0 {
        return name;
    }
    match ty {
        T::VARCHAR | T::BPCHAR if typmod > 4 => format!("{name}({})", typmod - 4),
        T::NUMERIC if typmod > 4 => {
            let packed = typmod - 4;
            let scale = ((packed & 0x7ff) ^ 1024) - 1024;
            format!("numeric({},{scale})", (packed >> 16) & 0xffff)
        }
        T::TIME | T::TIMESTAMP | T::TIMESTAMPTZ => match name.split_once(' ') {
            Some((head, tail)) => format!("{head}({typmod}) {tail}"),
            None => name,
        },
        T::INTERVAL => {
            let fields = match (typmod >> 16) & 0x7fff {
                4 => " year",
                2 => " month",
                8 => " day",
                0x400 => " hour",
                0x800 => " minute",
                0x1000 => " second",
                6 => " year to month",
                0x408 => " day to hour",
                0xc08 => " day to minute",
                0x1c08 => " day to second",
                0xc00 => " hour to minute",
                0x1c00 => " hour to second",
                0x1800 => " minute to second",
                _ => "",
            };
            match typmod & 0xffff {
                0xffff => format!("interval{fields}"),
                precision => format!("interval{fields}({precision})"),
            }
        }
        _ => name,
    }
}

fn size_pretty(args: &[Datum]) -> SqlResult<Datum> {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let mut size = match args.first() {
        Some(Datum::Int8(size)) => i128::from(*size),
        _ => {
            let number = args::numeric(args, 0)?;
            number.trunc(0)?.to_i128().unwrap_or(i128::MAX).clamp(-i128::MAX, i128::MAX)
        }
    };
    // One bit is kept for rounding until the unit is found.
    let mut unit = 0;
    let limit = 10 * 1024;
    if size.abs() < limit {
        return Ok(Datum::text(format!("{size} bytes")));
    }
    size >>= 9;
    unit += 1;
    while size.abs() >= 20 * 1024 - 1 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    let rounded = if size < 0 { (size - 1) / 2 } else { (size + 1) / 2 };
    Ok(Datum::text(format!("{rounded} {}", UNITS[unit])))
}

fn size_bytes(args: &[Datum]) -> SqlResult<Datum> {
    let input = args::text(args, 0)?;
    let bad = || SqlError::new(SqlState::INVALID_PARAMETER, format!("invalid size: \"{input}\""));
    let body = input.trim();
    let end = body.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E').unwrap_or(body.len());
    let number = Numeric::parse(body[..end].trim()).map_err(|_| bad())?;
    let factor: i64 = match body[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 1,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        "tb" => 1 << 40,
        "pb" => 1 << 50,
        _ => {
            return Err(bad()
                .with_detail(format!("Invalid size unit: \"{}\".", body[end..].trim()))
                .with_hint("Valid units are \"bytes\", \"B\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\"."));
        }
    };
    let bytes = number.mul(&Numeric::from(factor))?.to_i64();
    bytes.map(Datum::Int8).ok_or_else(|| super::operators::integer_out_of_range(T::INT8))
}

fn random_uuid(context: &EvalContext<'_>) -> Datum {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&context.random.next_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&context.random.next_u64().to_be_bytes());
    // Version 4, variant 1.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Datum::Uuid(bytes)
}

/// The greatest (or least) of the arguments that are not NULL.
fn extreme(args: &[Datum], greatest: bool) -> Datum {
    let mut best: Option<&Datum> = None;
    for value in args.iter().filter(|value| !value.is_null()) {
        best = match best {
            None => Some(value),
            Some(before) => {
                let order = compare::compare(value, before);
                Some(if (greatest && order.is_gt()) || (!greatest && order.is_lt()) { value } else { before })
            }
        };
    }
    best.cloned().unwrap_or_default()
}

fn count_nulls(args: &[Datum], nulls: bool) -> SqlResult<Datum> {
    Ok(Datum::Int4(args.iter().filter(|value| value.is_null() == nulls).count() as i32))
}

fn count_nulls_in(args: &[Datum], nulls: bool) -> SqlResult<Datum> {
    match args.last() {
        Some(Datum::Array(array)) => count_nulls(&array.values, nulls),
        _ => Ok(Datum::Null),
    }
}

fn column_size(args: &[Datum]) -> SqlResult<Datum> {
    let mut out = bytes::BytesMut::new();
    crate::encoding::encode_value(&args[0], &mut out)?;
    Ok(Datum::Int4(out.len() as i32))
}

fn encoding_name(args: &[Datum]) -> SqlResult<Datum> {
    Ok(Datum::text(match args::int4(args, 0)? {
        0 => "SQL_ASCII",
        6 => "UTF8",
        8 => "LATIN1",
        _ => "",
    }))
}

/// The names of types, as `pg_proc.proargtypes` lists them.
fn oidvector_types(context: &EvalContext<'_>, arguments: &[Datum]) -> SqlResult<Datum> {
    let [Datum::Array(types)] = arguments else { return Ok(Datum::Null) };
    let names = types.values.iter().map(|ty| match ty {
        Datum::Oid(oid) => format_type(context, T(*oid), -1),
        _ => String::new(),
    });
    Ok(Datum::text(names.collect::<Vec<_>>().join(", ")))
}

/// An address without the length of its network.
fn without_mask(address: &str) -> &str {
    address.split_once('/').map_or(address, |(host, _)| host)
}

fn name(value: &str) -> SqlResult<Datum> {
    Ok(Datum::text(value))
}

pub(super) static TABLE: &[Function] = &[
    imm("version", &[], T::TEXT, |c, _| version(c)).stable(),
    imm("current_database", &[], T::NAME, |c, _| name(c.database)).stable(),
    imm("current_catalog", &[], T::NAME, |c, _| name(c.database)).stable(),
    imm("current_schema", &[], T::NAME, |c, _| {
        Ok(c.schemas.first().map_or(Datum::Null, |name| Datum::text(name.as_str())))
    })
    .stable(),
    imm("current_schemas", &[T::BOOL], T::NAME_ARRAY, |c, a| Ok(schemas(c, args::bool(a, 0)?))).stable(),
    imm("current_user", &[], T::NAME, |c, _| name(c.user)).stable(),
    imm("current_role", &[], T::NAME, |c, _| name(c.user)).stable(),
    imm("user", &[], T::NAME, |c, _| name(c.user)).stable(),
    imm("session_user", &[], T::NAME, |c, _| name(c.session_user)).stable(),
    imm("pg_backend_pid", &[], T::INT4, |c, _| Ok(Datum::Int4(c.process_id))).stable(),
    typed("pg_typeof", &[T::ANY], T::REGTYPE, |_, t, _| Ok(Datum::Oid(t.first().map_or(0, |ty| ty.0))))
        .stable()
        .nonstrict(),
    imm("format_type", &[T::OID, T::INT4], T::TEXT, |c, a| {
        let Some(oid) = args::optional(a, 0, args::oid)? else { return Ok(Datum::Null) };
        let typmod = args::optional(a, 1, args::int4)?.unwrap_or(-1);
        name(&if oid == 0 { "-".to_string() } else { format_type(c, T(oid), typmod) })
    })
    .stable()
    .nonstrict(),
    imm("current_setting", &[T::TEXT], T::TEXT, setting).stable(),
    imm("current_setting", &[T::TEXT, T::BOOL], T::TEXT, setting).stable(),
    imm("set_config", &[T::TEXT, T::TEXT, T::BOOL], T::TEXT, set_config).volatile().nonstrict(),
    imm("to_regclass", &[T::TEXT], T::REGCLASS, |c, a| to_reg(c, a, T::REGCLASS)).stable(),
    imm("to_regtype", &[T::TEXT], T::REGTYPE, |c, a| to_reg(c, a, T::REGTYPE)).stable(),
    imm("to_regnamespace", &[T::TEXT], T::REGNAMESPACE, |c, a| to_reg(c, a, T::REGNAMESPACE)).stable(),
    imm("to_regrole", &[T::TEXT], T::REGROLE, |c, a| to_reg(c, a, T::REGROLE)).stable(),
    imm("to_regproc", &[T::TEXT], T::REGPROC, |c, a| to_reg(c, a, T::REGPROC)).stable(),
    imm("to_regprocedure", &[T::TEXT], T::REGPROCEDURE, |c, a| to_reg(c, a, T::REGPROCEDURE)).stable(),
    imm("pg_encoding_to_char", &[T::INT4], T::NAME, |_, a| encoding_name(a)).stable(),
    imm("pg_char_to_encoding", &[T::NAME], T::INT4, |_, a| {
        let name = args::text(a, 0)?.to_ascii_uppercase();
        Ok(Datum::Int4(match name.as_str() {
            "UTF8" | "UTF-8" | "UNICODE" => 6,
            "SQL_ASCII" => 0,
            "LATIN1" => 8,
            _ => -1,
        }))
    })
    .stable(),
    imm("pg_client_encoding", &[], T::NAME, |_, _| name("UTF8")).stable(),
    imm("getdatabaseencoding", &[], T::NAME, |_, _| name("UTF8")).stable(),
    imm("pg_is_in_recovery", &[], T::BOOL, |_, _| Ok(Datum::Bool(false))).volatile(),
    imm("pg_is_wal_replay_paused", &[], T::BOOL, |_, _| Ok(Datum::Bool(false))).volatile(),
    imm("oidvectortypes", &[T::OIDVECTOR], T::TEXT, oidvector_types).stable(),
    imm("host", &[T::INET], T::TEXT, |_, a| name(without_mask(args::text(a, 0)?))),
    imm("pg_jit_available", &[], T::BOOL, |_, _| Ok(Datum::Bool(false))).volatile(),
    imm("pg_size_pretty", &[T::INT8], T::TEXT, |_, a| size_pretty(a)),
    imm("pg_size_pretty", &[T::NUMERIC], T::TEXT, |_, a| size_pretty(a)),
    imm("pg_size_bytes", &[T::TEXT], T::INT8, |_, a| size_bytes(a)),
    imm("pg_column_size", &[T::ANY], T::INT4, |_, a| column_size(a)).stable(),
    imm("pg_collation_for", &[T::ANY], T::TEXT, |_, _| name("\"default\"")).stable(),
    imm("gen_random_uuid", &[], T::UUID, |c, _| Ok(random_uuid(c))).volatile(),
    imm("uuid_generate_v4", &[], T::UUID, |c, _| Ok(random_uuid(c))).volatile(),
    imm("greatest", &[T::ANYCOMPATIBLE], T::ANYCOMPATIBLE, |_, a| Ok(extreme(a, true)))
        .variadic()
        .nonstrict(),
    imm("least", &[T::ANYCOMPATIBLE], T::ANYCOMPATIBLE, |_, a| Ok(extreme(a, false))).variadic().nonstrict(),
    imm("nullif", &[T::ANYCOMPATIBLE, T::ANYCOMPATIBLE], T::ANYCOMPATIBLE, |_, a| {
        let [left, right] = a else { return Ok(Datum::Null) };
        let same = !left.is_null() && !right.is_null() && compare::equal(left, right);
        Ok(if same { Datum::Null } else { left.clone() })
    })
    .nonstrict(),
    imm("num_nulls", &[T::ANY], T::INT4, |_, a| count_nulls(a, true)).variadic().nonstrict(),
    imm("num_nulls", &[T::ANYARRAY], T::INT4, |_, a| count_nulls_in(a, true)).spreading().nonstrict(),
    imm("num_nonnulls", &[T::ANY], T::INT4, |_, a| count_nulls(a, false)).variadic().nonstrict(),
    imm("num_nonnulls", &[T::ANYARRAY], T::INT4, |_, a| count_nulls_in(a, false)).spreading().nonstrict(),
];
