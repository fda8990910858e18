//! Concatenation and pattern matching.

use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::args::{self, imm, typed};
use crate::functions::{EvalContext, Function};
use crate::functions::{pattern, regex};
use crate::text as text_format;
use crate::types::Type;

/// Longest text or bytea, in bytes.
const MAX_LENGTH: usize = 1 << 28;

/// Joins two texts, bounded.
fn concat_text(left: &str, right: &str) -> SqlResult<Datum> {
    if left.len() + right.len() > MAX_LENGTH {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "result of concatenation is too long"));
    }
    let mut joined = String::with_capacity(left.len() + right.len());
    joined.push_str(left);
    joined.push_str(right);
    Ok(Datum::text(joined))
}

/// `text || anything`: the other operand in its text form (a boolean in full).
fn concat_any(context: &EvalContext<'_>, types: &[Type], args: &[Datum]) -> SqlResult<Datum> {
    let mut out = String::new();
    for (value, ty) in args.iter().zip(types) {
        match value {
            Datum::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            value => text_format::format(value, *ty, context, &mut out),
        }
    }
    concat_text(&out, "")
}

fn like(args: &[Datum], fold: bool, negate: bool) -> SqlResult<Datum> {
    let matched = if fold {
        pattern::like(&args::text(args, 0)?.to_lowercase(), &args::text(args, 1)?.to_lowercase())?
    } else {
        pattern::like(args::text(args, 0)?, args::text(args, 1)?)?
    };
    Ok(Datum::Bool(matched != negate))
}

fn like_bytes(args: &[Datum], negate: bool) -> SqlResult<Datum> {
    let matched = pattern::like_bytes(args::bytea(args, 0)?, args::bytea(args, 1)?)?;
    Ok(Datum::Bool(matched != negate))
}

fn matches(args: &[Datum], flags: &str, negate: bool) -> SqlResult<Datum> {
    let regex = regex::compile(args::text(args, 1)?, flags)?;
    Ok(Datum::Bool(regex.is_match(args::text(args, 0)?) != negate))
}

macro_rules! table {
    (strings { $($s:ident)* } $($rest:expr,)*) => {
        &[
            $(
                imm("~~", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| like(a, false, false)),
                imm("!~~", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| like(a, false, true)),
                imm("~~*", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| like(a, true, false)),
                imm("!~~*", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| like(a, true, true)),
                imm("~", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| matches(a, "", false)),
                imm("!~", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| matches(a, "", true)),
                imm("~*", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| matches(a, "i", false)),
                imm("!~*", &[Type::$s, Type::TEXT], Type::BOOL, |_, a| matches(a, "i", true)),
            )*
            $($rest,)*
        ]
    };
}

pub(super) static TABLE: &[Function] = table! {
    strings { TEXT NAME BPCHAR }
    imm("~~", &[Type::BYTEA, Type::BYTEA], Type::BOOL, |_, a| like_bytes(a, false)),
    imm("!~~", &[Type::BYTEA, Type::BYTEA], Type::BOOL, |_, a| like_bytes(a, true)),
    imm("^@", &[Type::TEXT, Type::TEXT], Type::BOOL, |_, a| {
        Ok(Datum::Bool(args::text(a, 0)?.starts_with(args::text(a, 1)?)))
    }),
    imm("||", &[Type::TEXT, Type::TEXT], Type::TEXT, |_, a| concat_text(args::text(a, 0)?, args::text(a, 1)?)),
    typed("||", &[Type::TEXT, Type::ANYNONARRAY], Type::TEXT, concat_any).stable(),
    typed("||", &[Type::ANYNONARRAY, Type::TEXT], Type::TEXT, concat_any).stable(),
    imm("||", &[Type::BYTEA, Type::BYTEA], Type::BYTEA, |_, a| {
        let (left, right) = (args::bytea(a, 0)?, args::bytea(a, 1)?);
        if left.len() + right.len() > MAX_LENGTH {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "result of concatenation is too long"));
        }
        Ok(Datum::Bytea([&left[..], &right[..]].concat().into()))
    }),
};
