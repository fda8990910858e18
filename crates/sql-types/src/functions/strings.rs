//! String functions.

use super::Function;
use super::args::{self, imm, typed};
use crate::context::EvalContext;
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::text::{self, quote_identifier};
use crate::types::Type as T;

/// Longest text made by a function, in bytes.
const MAX_LENGTH: usize = 1 << 28;

pub(super) fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT, "requested length too large")
}

fn string(value: impl Into<std::sync::Arc<str>>) -> SqlResult<Datum> {
    Ok(Datum::text(value))
}

fn int4(value: usize) -> SqlResult<Datum> {
    Ok(Datum::Int4(i32::try_from(value).unwrap_or(i32::MAX)))
}

fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Byte offset of the n-th character, the length if there are fewer.
fn offset(text: &str, characters: usize) -> usize {
    if text.is_ascii() {
        return characters.min(text.len());
    }
    text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
}

/// `substring(text from start [for length])`, in characters from 1.
fn substring(text: &str, start: i32, length: Option<i32>) -> SqlResult<&str> {
    let from = i64::from(start) - 1;
    let to = match length {
        Some(length) if length < 0 => {
            return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(length) => from + i64::from(length),
        None => i64::MAX,
    };
    if to <= 0 {
        return Ok("");
    }
    let start = offset(text, from.max(0) as usize);
    let rest = &text[start..];
    let end = offset(rest, usize::try_from(to - from.max(0)).unwrap_or(usize::MAX));
    Ok(&rest[..end])
}

fn substring_bytes(bytes: &bytes::Bytes, start: i32, length: Option<i32>) -> SqlResult<Datum> {
    let from = i64::from(start) - 1;
    let to = match length {
        Some(length) if length < 0 => {
            return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(length) => from + i64::from(length),
        None => i64::MAX,
    };
    let end = (to.max(0) as usize).min(bytes.len());
    let start = (from.max(0) as usize).min(end);
    Ok(Datum::Bytea(bytes.slice(start..end)))
}

/// Position of a text in another, in characters from 1; 0 if it is not there.
fn position(text: &str, wanted: &str) -> usize {
    text.find(wanted).map_or(0, |at| characters(&text[..at]) + 1)
}

fn pad(args: &[Datum], left: bool) -> SqlResult<Datum> {
    let text = args::text(args, 0)?;
    let length = args::int4(args, 1)?.max(0) as usize;
    let fill = if args.len() > 2 { args::text(args, 2)? } else { " " };
    let own = characters(text);
    if length <= own || fill.is_empty() {
        return string(&text[..offset(text, length)]);
    }
    let missing = length - own;
    let longest = fill.chars().map(char::len_utf8).max().unwrap_or(1);
    if missing.saturating_mul(longest) > MAX_LENGTH {
        return Err(too_long());
    }
    let padding: String = fill.chars().cycle().take(missing).collect();
    string(if left { padding + text } else { format!("{text}{padding}") })
}

fn repeat(text: &str, count: i32) -> SqlResult<Datum> {
    let count = count.max(0) as usize;
    match text.len().checked_mul(count) {
        Some(length) if length <= MAX_LENGTH => string(text.repeat(count)),
        _ => Err(too_long()),
    }
}

fn replace(text: &str, from: &str, to: &str) -> SqlResult<Datum> {
    if from.is_empty() || text.is_empty() {
        return string(text);
    }
    if to.len() > from.len() {
        let grown = text.len() as u128 + text.matches(from).count() as u128 * (to.len() - from.len()) as u128;
        if grown > MAX_LENGTH as u128 {
            return Err(too_long());
        }
    }
    string(text.replace(from, to))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Both,
}

fn trim(args: &[Datum], side: Side) -> SqlResult<Datum> {
    let text = args::text(args, 0)?;
    let set: Vec<char> = if args.len() > 1 { args::text(args, 1)?.chars().collect() } else { vec![' '] };
    let inside = |c: char| set.contains(&c);
    string(match side {
        Side::Left => text.trim_start_matches(inside),
        Side::Right => text.trim_end_matches(inside),
        Side::Both => text.trim_matches(inside),
    })
}

fn trim_bytes(args: &[Datum], side: Side) -> SqlResult<Datum> {
    let bytes = args::bytea(args, 0)?;
    let set = args::bytea(args, 1)?;
    let mut start = 0;
    let mut end = bytes.len();
    while side != Side::Right && start < end && set.contains(&bytes[start]) {
        start += 1;
    }
    while side != Side::Left && end > start && set.contains(&bytes[end - 1]) {
        end -= 1;
    }
    Ok(Datum::Bytea(bytes.slice(start..end)))
}

fn split_part(args: &[Datum]) -> SqlResult<Datum> {
    let (text, separator, index) = (args::text(args, 0)?, args::text(args, 1)?, args::int4(args, 2)?);
    if index == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, "field position must not be zero"));
    }
    if separator.is_empty() {
        return string(if index == 1 || index == -1 { text } else { "" });
    }
    let at = index.unsigned_abs() as usize - 1;
    string(
        if index > 0 { text.split(separator).nth(at) } else { text.rsplit(separator).nth(at) }.unwrap_or(""),
    )
}

/// `left`: all but the last |n| characters if n is negative; `right`: all but the first.
fn left_or_right(args: &[Datum], left: bool) -> SqlResult<Datum> {
    let (text, count) = (args::text(args, 0)?, args::int4(args, 1)?);
    let magnitude = count.unsigned_abs() as usize;
    let total = characters(text);
    let kept = if count < 0 { total.saturating_sub(magnitude) } else { magnitude.min(total) };
    string(if left { &text[..offset(text, kept)] } else { &text[offset(text, total - kept)..] })
}

fn initcap(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphanumeric();
    }
    out
}

fn translate(text: &str, from: &str, to: &str) -> String {
    let to: Vec<char> = to.chars().collect();
    text.chars()
        .filter_map(|c| match from.chars().position(|candidate| candidate == c) {
            Some(index) => to.get(index).copied(),
            None => Some(c),
        })
        .collect()
}

fn overlay(args: &[Datum]) -> SqlResult<Datum> {
    let (text, new, start) = (args::text(args, 0)?, args::text(args, 1)?, args::int4(args, 2)?);
    if start <= 0 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let length = if args.len() > 3 { args::int4(args, 3)? } else { characters(new) as i32 };
    let before = substring(text, 1, Some(start - 1))?;
    let after = substring(text, start.saturating_add(length), None)?;
    string([before, new, after].concat())
}

/// `overlay` of bytes.
fn overlay_bytes(args: &[Datum]) -> SqlResult<Datum> {
    let (bytes, new, start) = (args::bytea(args, 0)?, args::bytea(args, 1)?, args::int4(args, 2)?);
    if start <= 0 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let length =
        if args.len() > 3 { args::int4(args, 3)? } else { i32::try_from(new.len()).unwrap_or(i32::MAX) };
    let clamped = |at: i64| usize::try_from(at).unwrap_or(0).min(bytes.len());
    let (before, after) = (clamped(i64::from(start) - 1), clamped(i64::from(start) - 1 + i64::from(length)));
    Ok(Datum::Bytea([&bytes[..before], new, &bytes[after..]].concat().into()))
}

fn chr(code: i32) -> SqlResult<Datum> {
    if code == 0 {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "null character not permitted"));
    }
    let Ok(code) = u32::try_from(code) else {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, "character number must be positive"));
    };
    let c = char::from_u32(code).ok_or_else(|| {
        SqlError::new(
            SqlState::PROGRAM_LIMIT,
            std::format!("requested character too large for encoding: {code}"),
        )
    })?;
    string(c.to_string())
}

fn quote_literal(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if text.contains('\\') {
        format!(" E'{}'", escaped.replace('\\', "\\\\")).trim_start().to_string()
    } else {
        format!("'{escaped}'")
    }
}

/// Appends a value of any type as `concat` shows it.
fn append(context: &EvalContext<'_>, ty: T, value: &Datum, out: &mut String) {
    text::format(value, ty, context, out);
}

fn type_at(types: &[T], index: usize) -> T {
    types.get(index).copied().unwrap_or(T::TEXT)
}

fn concat(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let mut out = String::new();
    for (index, value) in args.iter().enumerate() {
        append(context, type_at(types, index), value, &mut out);
        if out.len() > MAX_LENGTH {
            return Err(too_long());
        }
    }
    string(out)
}

fn concat_ws(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let Some(separator) = args::optional(args, 0, args::text)? else { return Ok(Datum::Null) };
    let mut out = String::new();
    let mut first = true;
    for (index, value) in args.iter().enumerate().skip(1) {
        if value.is_null() {
            continue;
        }
        if !first {
            out.push_str(separator);
        }
        first = false;
        append(context, type_at(types, index), value, &mut out);
        if out.len() > MAX_LENGTH {
            return Err(too_long());
        }
    }
    string(out)
}

/// Spreads the array in the last place and calls the variadic function.
pub(super) fn spread(
    context: &EvalContext<'_>,
    types: &[T],
    args: &[Datum],
    function: super::TypedEval,
) -> SqlResult<Datum> {
    let Some((last, fixed)) = args.split_last() else { return Ok(Datum::Null) };
    let mut types = types.to_vec();
    let last_type = types.pop();
    let mut flat = fixed.to_vec();
    match last {
        Datum::Array(array) => {
            types.extend(std::iter::repeat_n(array.element, array.values.len()));
            flat.extend(array.values.iter().cloned());
        }
        Datum::Null => return Ok(Datum::Null),
        other => {
            types.extend(last_type);
            flat.push(other.clone());
        }
    }
    function(context, &types, &flat)
}

/// `format(template, …)`: `%s`, `%I`, `%L`, `%%`, with position, width and `-`.
fn format(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let Some(template) = args::optional(args, 0, args::text)? else { return Ok(Datum::Null) };
    let bad = |message: &str| SqlError::new(SqlState::INVALID_PARAMETER, message);
    let few = || bad("too few arguments for format()");
    let unterminated =
        || bad("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".");
    let mut out = String::new();
    let mut next = 1;
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> SqlResult<Option<usize>> {
            let mut value: Option<usize> = None;
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                let digit = digit.to_digit(10).unwrap_or(0) as usize;
                let grown = value.unwrap_or(0) * 10 + digit;
                if grown > i32::MAX as usize {
                    return Err(SqlError::new(SqlState::OUT_OF_RANGE, "number is out of range"));
                }
                value = Some(grown);
            }
            Ok(value)
        };
        let mut width = None;
        let mut left = false;
        if let Some(value) = number(&mut chars)? {
            if chars.next_if_eq(&'$').is_some() {
                if value == 0 {
                    return Err(bad("format specifies argument 0, but arguments are numbered from 1"));
                }
                next = value;
            } else {
                width = Some(value);
            }
        }
        if width.is_none() {
            while chars.next_if_eq(&'-').is_some() {
                left = true;
            }
            if chars.next_if_eq(&'*').is_some() {
                let at = match number(&mut chars)? {
                    Some(at) => {
                        if chars.next_if_eq(&'$').is_none() {
                            return Err(bad("width argument position must be ended by \"$\""));
                        }
                        at
                    }
                    None => {
                        next += 1;
                        next - 1
                    }
                };
                let value = match args.get(at).ok_or_else(few)? {
                    Datum::Int4(value) => i64::from(*value),
                    Datum::Int2(value) => i64::from(*value),
                    Datum::Int8(value) => *value,
                    _ => 0,
                };
                left |= value < 0;
                width = Some(value.unsigned_abs() as usize);
            } else {
                width = number(&mut chars)?;
            }
        }
        let kind = chars.next().ok_or_else(unterminated)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(bad(&std::format!("unrecognized format() type specifier \"{kind}\""))
                .with_hint("For a single \"%\" use \"%%\"."));
        }
        let value = args.get(next).ok_or_else(few)?;
        let mut shown = String::new();
        append(context, type_at(types, next), value, &mut shown);
        next += 1;
        let shown = match kind {
            's' => shown,
            'I' if value.is_null() => {
                return Err(SqlError::new(
                    SqlState::NULL_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            'I' => quote_identifier(&shown),
            _ if value.is_null() => "NULL".to_string(),
            _ => quote_literal(&shown),
        };
        let missing = width.unwrap_or(0).saturating_sub(characters(&shown));
        if out.len() + missing + shown.len() > MAX_LENGTH {
            return Err(too_long());
        }
        let blanks = " ".repeat(missing);
        if left {
            out.push_str(&shown);
            out.push_str(&blanks);
        } else {
            out.push_str(&blanks);
            out.push_str(&shown);
        }
    }
    string(out)
}

fn quote_nullable(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    match args.first() {
        None | Some(Datum::Null) => string("NULL"),
        Some(value) => string(quote_literal(&text::to_string(value, type_at(types, 0), context))),
    }
}

fn parse_identifier(input: &str, strict: bool) -> SqlResult<Datum> {
    let bad = |detail: &str| {
        let error = SqlError::new(
            SqlState::INVALID_PARAMETER,
            std::format!("string is not a valid identifier: \"{input}\""),
        );
        if detail.is_empty() { error } else { error.with_detail(detail) }
    };
    let mut parts = Vec::new();
    let mut rest = input.trim_start();
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut chars = quoted.char_indices().peekable();
            let end = loop {
                match chars.next() {
                    Some((_, '"')) if chars.peek().is_some_and(|(_, c)| *c == '"') => {
                        chars.next();
                        name.push('"');
                    }
                    Some((at, '"')) => break at,
                    Some((_, c)) => name.push(c),
                    None => return Err(bad("String has unclosed double quotes.")),
                }
            };
            if name.is_empty() {
                return Err(bad("Quoted identifier must not be empty."));
            }
            parts.push(Datum::text(name));
            rest = &quoted[end + 1..];
        } else {
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
            if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit() || c == '$') {
                let detail = match (rest.starts_with('.'), parts.is_empty()) {
                    (true, _) => "No valid identifier before \".\".",
                    (false, false) => "No valid identifier after \".\".",
                    _ => "",
                };
                return Err(bad(detail));
            }
            parts.push(Datum::text(rest[..end].to_ascii_lowercase()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('.') {
            rest = after.trim_start();
        } else if rest.is_empty() || !strict {
            return Ok(Datum::array(T::TEXT, parts));
        } else {
            return Err(bad(""));
        }
    }
}

pub(super) static TABLE: &[Function] = &[
    imm("length", &[T::TEXT], T::INT4, |_, a| int4(characters(args::text(a, 0)?))),
    imm("length", &[T::BPCHAR], T::INT4, |_, a| int4(characters(args::text(a, 0)?.trim_end_matches(' ')))),
    imm("length", &[T::BYTEA], T::INT4, |_, a| int4(args::bytea(a, 0)?.len())),
    imm("char_length", &[T::TEXT], T::INT4, |_, a| int4(characters(args::text(a, 0)?))),
    imm("char_length", &[T::BPCHAR], T::INT4, |_, a| {
        int4(characters(args::text(a, 0)?.trim_end_matches(' ')))
    }),
    imm("character_length", &[T::TEXT], T::INT4, |_, a| int4(characters(args::text(a, 0)?))),
    imm("character_length", &[T::BPCHAR], T::INT4, |_, a| {
        int4(characters(args::text(a, 0)?.trim_end_matches(' ')))
    }),
    imm("octet_length", &[T::TEXT], T::INT4, |_, a| int4(args::text(a, 0)?.len())),
    imm("octet_length", &[T::BPCHAR], T::INT4, |_, a| int4(args::text(a, 0)?.len())),
    imm("octet_length", &[T::BYTEA], T::INT4, |_, a| int4(args::bytea(a, 0)?.len())),
    imm("bit_length", &[T::TEXT], T::INT4, |_, a| int4(args::text(a, 0)?.len() * 8)),
    imm("bit_length", &[T::BYTEA], T::INT4, |_, a| int4(args::bytea(a, 0)?.len() * 8)),
    imm("lower", &[T::TEXT], T::TEXT, |_, a| string(args::text(a, 0)?.to_lowercase())),
    imm("upper", &[T::TEXT], T::TEXT, |_, a| string(args::text(a, 0)?.to_uppercase())),
    imm("initcap", &[T::TEXT], T::TEXT, |_, a| string(initcap(args::text(a, 0)?))),
    imm("reverse", &[T::TEXT], T::TEXT, |_, a| string(args::text(a, 0)?.chars().rev().collect::<String>())),
    imm("substring", &[T::TEXT, T::INT4], T::TEXT, |_, a| {
        string(substring(args::text(a, 0)?, args::int4(a, 1)?, None)?)
    }),
    imm("substring", &[T::TEXT, T::INT4, T::INT4], T::TEXT, |_, a| {
        string(substring(args::text(a, 0)?, args::int4(a, 1)?, Some(args::int4(a, 2)?))?)
    }),
    imm("substr", &[T::TEXT, T::INT4], T::TEXT, |_, a| {
        string(substring(args::text(a, 0)?, args::int4(a, 1)?, None)?)
    }),
    imm("substr", &[T::TEXT, T::INT4, T::INT4], T::TEXT, |_, a| {
        string(substring(args::text(a, 0)?, args::int4(a, 1)?, Some(args::int4(a, 2)?))?)
    }),
    imm("substring", &[T::BYTEA, T::INT4], T::BYTEA, |_, a| {
        substring_bytes(args::bytea(a, 0)?, args::int4(a, 1)?, None)
    }),
    imm("substring", &[T::BYTEA, T::INT4, T::INT4], T::BYTEA, |_, a| {
        substring_bytes(args::bytea(a, 0)?, args::int4(a, 1)?, Some(args::int4(a, 2)?))
    }),
    imm("substr", &[T::BYTEA, T::INT4], T::BYTEA, |_, a| {
        substring_bytes(args::bytea(a, 0)?, args::int4(a, 1)?, None)
    }),
    imm("substr", &[T::BYTEA, T::INT4, T::INT4], T::BYTEA, |_, a| {
        substring_bytes(args::bytea(a, 0)?, args::int4(a, 1)?, Some(args::int4(a, 2)?))
    }),
    imm("position", &[T::TEXT, T::TEXT], T::INT4, |_, a| {
        int4(position(args::text(a, 0)?, args::text(a, 1)?))
    }),
    imm("strpos", &[T::TEXT, T::TEXT], T::INT4, |_, a| int4(position(args::text(a, 0)?, args::text(a, 1)?))),
    imm("position", &[T::BYTEA, T::BYTEA], T::INT4, |_, a| {
        let (bytes, wanted) = (args::bytea(a, 0)?, args::bytea(a, 1)?);
        if wanted.is_empty() {
            return int4(1);
        }
        int4(bytes.windows(wanted.len()).position(|window| window == &wanted[..]).map_or(0, |at| at + 1))
    }),
    imm("starts_with", &[T::TEXT, T::TEXT], T::BOOL, |_, a| {
        Ok(Datum::Bool(args::text(a, 0)?.starts_with(args::text(a, 1)?)))
    }),
    imm("replace", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT, |_, a| {
        replace(args::text(a, 0)?, args::text(a, 1)?, args::text(a, 2)?)
    }),
    imm("translate", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT, |_, a| {
        string(translate(args::text(a, 0)?, args::text(a, 1)?, args::text(a, 2)?))
    }),
    imm("btrim", &[T::TEXT], T::TEXT, |_, a| trim(a, Side::Both)),
    imm("btrim", &[T::TEXT, T::TEXT], T::TEXT, |_, a| trim(a, Side::Both)),
    imm("ltrim", &[T::TEXT], T::TEXT, |_, a| trim(a, Side::Left)),
    imm("ltrim", &[T::TEXT, T::TEXT], T::TEXT, |_, a| trim(a, Side::Left)),
    imm("rtrim", &[T::TEXT], T::TEXT, |_, a| trim(a, Side::Right)),
    imm("rtrim", &[T::TEXT, T::TEXT], T::TEXT, |_, a| trim(a, Side::Right)),
    imm("btrim", &[T::BYTEA, T::BYTEA], T::BYTEA, |_, a| trim_bytes(a, Side::Both)),
    imm("ltrim", &[T::BYTEA, T::BYTEA], T::BYTEA, |_, a| trim_bytes(a, Side::Left)),
    imm("rtrim", &[T::BYTEA, T::BYTEA], T::BYTEA, |_, a| trim_bytes(a, Side::Right)),
    imm("lpad", &[T::TEXT, T::INT4], T::TEXT, |_, a| pad(a, true)),
    imm("lpad", &[T::TEXT, T::INT4, T::TEXT], T::TEXT, |_, a| pad(a, true)),
    imm("rpad", &[T::TEXT, T::INT4], T::TEXT, |_, a| pad(a, false)),
    imm("rpad", &[T::TEXT, T::INT4, T::TEXT], T::TEXT, |_, a| pad(a, false)),
    imm("split_part", &[T::TEXT, T::TEXT, T::INT4], T::TEXT, |_, a| split_part(a)),
    imm("left", &[T::TEXT, T::INT4], T::TEXT, |_, a| left_or_right(a, true)),
    imm("right", &[T::TEXT, T::INT4], T::TEXT, |_, a| left_or_right(a, false)),
    imm("repeat", &[T::TEXT, T::INT4], T::TEXT, |_, a| repeat(args::text(a, 0)?, args::int4(a, 1)?)),
    imm("overlay", &[T::TEXT, T::TEXT, T::INT4], T::TEXT, |_, a| overlay(a)),
    imm("overlay", &[T::TEXT, T::TEXT, T::INT4, T::INT4], T::TEXT, |_, a| overlay(a)),
    imm("overlay", &[T::BYTEA, T::BYTEA, T::INT4], T::BYTEA, |_, a| overlay_bytes(a)),
    imm("overlay", &[T::BYTEA, T::BYTEA, T::INT4, T::INT4], T::BYTEA, |_, a| overlay_bytes(a)),
    imm("ascii", &[T::TEXT], T::INT4, |_, a| {
        Ok(Datum::Int4(args::text(a, 0)?.chars().next().map_or(0, |c| c as i32)))
    }),
    imm("chr", &[T::INT4], T::TEXT, |_, a| chr(args::int4(a, 0)?)),
    imm("to_hex", &[T::INT4], T::TEXT, |_, a| string(std::format!("{:x}", args::int4(a, 0)?))),
    imm("to_hex", &[T::INT8], T::TEXT, |_, a| string(std::format!("{:x}", args::int8(a, 0)?))),
    imm("quote_ident", &[T::TEXT], T::TEXT, |_, a| string(quote_identifier(args::text(a, 0)?))),
    imm("quote_literal", &[T::TEXT], T::TEXT, |_, a| string(quote_literal(args::text(a, 0)?))),
    typed("quote_literal", &[T::ANYELEMENT], T::TEXT, quote_nullable).stable(),
    imm("quote_nullable", &[T::TEXT], T::TEXT, |_, a| {
        string(args::optional(a, 0, args::text)?.map_or_else(|| "NULL".to_string(), quote_literal))
    })
    .nonstrict(),
    typed("quote_nullable", &[T::ANYELEMENT], T::TEXT, quote_nullable).stable().nonstrict(),
    imm("parse_ident", &[T::TEXT], T::TEXT_ARRAY, |_, a| parse_identifier(args::text(a, 0)?, true)),
    imm("parse_ident", &[T::TEXT, T::BOOL], T::TEXT_ARRAY, |_, a| {
        parse_identifier(args::text(a, 0)?, args::bool(a, 1)?)
    }),
    typed("concat", &[T::ANY], T::TEXT, concat).variadic().nonstrict().stable(),
    typed("concat", &[T::ANYARRAY], T::TEXT, |c, t, a| spread(c, t, a, concat))
        .spreading()
        .nonstrict()
        .stable(),
    typed("concat_ws", &[T::TEXT, T::ANY], T::TEXT, concat_ws).variadic().nonstrict().stable(),
    typed("concat_ws", &[T::TEXT, T::ANYARRAY], T::TEXT, |c, t, a| spread(c, t, a, concat_ws))
        .spreading()
        .nonstrict()
        .stable(),
    typed("format", &[T::TEXT], T::TEXT, format).nonstrict().stable(),
    typed("format", &[T::TEXT, T::ANY], T::TEXT, format).variadic().nonstrict().stable(),
    typed("format", &[T::TEXT, T::ANYARRAY], T::TEXT, |c, t, a| spread(c, t, a, format))
        .spreading()
        .nonstrict()
        .stable(),
];
