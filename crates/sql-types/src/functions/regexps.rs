//! Functions of regular expressions and LIKE patterns.

use super::Function;
use super::args::{self, imm};
use super::{pattern, regex};
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Type as T;
use ::regex::{Captures, Regex};
use std::ops::Range;

fn flags(args: &[Datum], index: usize) -> SqlResult<&str> {
    if args.len() > index { args::text(args, index) } else { Ok("") }
}

fn compiled(args: &[Datum], flags: &str) -> SqlResult<Regex> {
    regex::compile(args::text(args, 1)?, flags)
}

/// The groups of a match, or the whole match if there are none.
pub(super) fn groups(captures: &Captures<'_>) -> Datum {
    let start = usize::from(captures.len() > 1);
    let values = captures
        .iter()
        .skip(start)
        .map(|group| group.map_or(Datum::Null, |group| Datum::text(group.as_str())));
    Datum::array(T::TEXT, values.collect())
}

fn without_global(flags: &str, function: &str, hint: &str) -> SqlResult<()> {
    if flags.contains('g') {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("{function} does not support the \"global\" option"),
        )
        .with_hint(hint.to_string()));
    }
    Ok(())
}

fn regexp_match(args: &[Datum]) -> SqlResult<Datum> {
    let flags = flags(args, 2)?;
    without_global(flags, "regexp_match()", "Use the regexp_matches function instead.")?;
    let regex = compiled(args, flags)?;
    Ok(regex.captures(args::text(args, 0)?).map_or(Datum::Null, |captures| groups(&captures)))
}

/// Every match, or the first without the flag `g`.
pub(super) fn all_matches(args: &[Datum]) -> SqlResult<Vec<Datum>> {
    let flags = flags(args, 2)?;
    let regex = compiled(args, flags)?;
    let text = args::text(args, 0)?;
    let limit = if flags.contains('g') { usize::MAX } else { 1 };
    Ok(regex.captures_iter(text).take(limit).map(|captures| groups(&captures)).collect())
}

/// Parts between matches; matches of nothing at the ends or right after another do not split.
pub(super) fn split(args: &[Datum]) -> SqlResult<Vec<Datum>> {
    let flags = flags(args, 2)?;
    let regex = compiled(args, flags)?;
    let text = args::text(args, 0)?;
    let mut parts = Vec::new();
    let mut last = 0;
    for found in regex.find_iter(text) {
        if found.is_empty() && (found.start() == last || found.start() == text.len()) {
            continue;
        }
        parts.push(Datum::text(&text[last..found.start()]));
        last = found.end();
    }
    parts.push(Datum::text(&text[last..]));
    Ok(parts)
}

/// Expands `\1`, `\&` and `\\` of a replacement.
fn expand(captures: &Captures<'_>, replacement: &str, out: &mut String) {
    let group = |index: usize| captures.get(index).map_or("", |group| group.as_str());
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.peek().copied() {
            Some(digit @ '1'..='9') => {
                chars.next();
                out.push_str(group(digit as usize - '0' as usize));
            }
            Some('&') => {
                chars.next();
                out.push_str(group(0));
            }
            Some('\\') => {
                chars.next();
                out.push('\\');
            }
            _ => out.push('\\'),
        }
    }
}

/// Replaces the n-th match after a start, or all from the start on if `n` is 0.
fn replace(text: &str, regex: &Regex, replacement: &str, start: usize, n: usize) -> SqlResult<Datum> {
    let mut out = String::with_capacity(text.len());
    let mut last = 0;
    for (index, captures) in
        regex.captures_iter(text).filter(|found| found.get(0).is_some_and(|m| m.start() >= start)).enumerate()
    {
        let Some(whole) = captures.get(0) else { continue };
        if n != 0 && index + 1 != n {
            continue;
        }
        out.push_str(&text[last..whole.start()]);
        expand(&captures, replacement, &mut out);
        last = whole.end();
        if out.len() > 1 << 28 {
            return Err(super::strings::too_long());
        }
        if n != 0 {
            break;
        }
    }
    out.push_str(&text[last..]);
    Ok(Datum::text(out))
}

fn regexp_replace(args: &[Datum]) -> SqlResult<Datum> {
    let flags = flags(args, 3)?;
    if flags.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("invalid regular expression option: \"{}\"", &flags[..1]),
        )
        .with_hint(
            "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
        ));
    }
    let regex = compiled(args, flags)?;
    replace(args::text(args, 0)?, &regex, args::text(args, 2)?, 0, usize::from(!flags.contains('g')))
}

/// Byte offset of the character a search starts at, from 1.
fn start_offset(text: &str, start: i32) -> SqlResult<usize> {
    if start < 1 {
        return Err(invalid_value("start", start));
    }
    Ok(text.char_indices().nth(start as usize - 1).map_or(text.len(), |(at, _)| at))
}

fn regexp_replace_from(args: &[Datum]) -> SqlResult<Datum> {
    let text = args::text(args, 0)?;
    let start = start_offset(text, args::int4(args, 3)?)?;
    let n = if args.len() > 4 { args::int4(args, 4)? } else { 1 };
    if n < 0 {
        return Err(invalid_value("n", n));
    }
    let regex = compiled(args, flags(args, 5)?)?;
    replace(text, &regex, args::text(args, 2)?, start, n as usize)
}

fn regexp_count(args: &[Datum]) -> SqlResult<Datum> {
    let text = args::text(args, 0)?;
    let start = if args.len() > 2 { start_offset(text, args::int4(args, 2)?)? } else { 0 };
    let regex = compiled(args, flags(args, 3)?)?;
    Ok(Datum::Int4(regex.find_iter(text).filter(|found| found.start() >= start).count() as i32))
}

/// A positive argument, 1 if it is left out.
fn ordinal(args: &[Datum], index: usize, name: &str) -> SqlResult<usize> {
    let value = if args.len() > index { args::int4(args, index)? } else { 1 };
    usize::try_from(value).ok().filter(|value| *value > 0).ok_or_else(|| invalid_value(name, value))
}

fn invalid_value(name: &str, value: i32) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, format!("invalid value for parameter \"{name}\": {value}"))
}

/// Where a group (0: all of it) of the n-th match after a start lies.
fn nth_match(args: &[Datum], flags: &str, group: i32) -> SqlResult<Option<Range<usize>>> {
    let text = args::text(args, 0)?;
    let start = if args.len() > 2 { start_offset(text, args::int4(args, 2)?)? } else { 0 };
    let n = ordinal(args, 3, "n")?;
    let group = usize::try_from(group).map_err(|_| invalid_value("subexpr", group))?;
    let regex = compiled(args, flags)?;
    let mut found = regex.captures_iter(text).filter(|m| m.get(0).is_some_and(|m| m.start() >= start));
    Ok(found.nth(n - 1).and_then(|captures| captures.get(group).map(|group| group.range())))
}

fn regexp_instr(args: &[Datum]) -> SqlResult<Datum> {
    let end = if args.len() > 4 { args::int4(args, 4)? } else { 0 };
    if !(0..=1).contains(&end) {
        return Err(invalid_value("endoption", end));
    }
    let group = if args.len() > 6 { args::int4(args, 6)? } else { 0 };
    let found = nth_match(args, flags(args, 5)?, group)?;
    let text = args::text(args, 0)?;
    let place = |range: Range<usize>| {
        let at = if end == 1 { range.end } else { range.start };
        text[..at].chars().count() as i32 + 1
    };
    Ok(Datum::Int4(found.map_or(0, place)))
}

fn regexp_substr(args: &[Datum]) -> SqlResult<Datum> {
    let group = if args.len() > 5 { args::int4(args, 5)? } else { 0 };
    let found = nth_match(args, flags(args, 4)?, group)?;
    let text = args::text(args, 0)?;
    Ok(found.map_or(Datum::Null, |range| Datum::text(&text[range])))
}

/// `substring(text from pattern)`: the first group, or the whole match.
fn substring(args: &[Datum]) -> SqlResult<Datum> {
    let regex = compiled(args, "")?;
    let Some(captures) = regex.captures(args::text(args, 0)?) else { return Ok(Datum::Null) };
    let group = if captures.len() > 1 { captures.get(1) } else { captures.get(0) };
    Ok(group.map_or(Datum::Null, |group| Datum::text(group.as_str())))
}

/// `substring(text similar pattern escape e)`: the part between the two separators of the pattern.
fn substring_similar(args: &[Datum]) -> SqlResult<Datum> {
    let pattern = pattern::similar_to_regex(args::text(args, 1)?, Some(args::text(args, 2)?))?;
    substring(&[args.first().cloned().unwrap_or_default(), Datum::text(pattern)])
}

pub(super) static TABLE: &[Function] = &[
    imm("regexp_match", &[T::TEXT, T::TEXT], T::TEXT_ARRAY, |_, a| regexp_match(a)),
    imm("regexp_match", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT_ARRAY, |_, a| regexp_match(a)),
    imm("regexp_like", &[T::TEXT, T::TEXT], T::BOOL, |_, a| {
        Ok(Datum::Bool(compiled(a, "")?.is_match(args::text(a, 0)?)))
    }),
    imm("regexp_like", &[T::TEXT, T::TEXT, T::TEXT], T::BOOL, |_, a| {
        Ok(Datum::Bool(compiled(a, args::text(a, 2)?)?.is_match(args::text(a, 0)?)))
    }),
    imm("regexp_replace", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT, |_, a| regexp_replace(a)),
    imm("regexp_replace", &[T::TEXT, T::TEXT, T::TEXT, T::TEXT], T::TEXT, |_, a| regexp_replace(a)),
    imm("regexp_replace", &[T::TEXT, T::TEXT, T::TEXT, T::INT4], T::TEXT, |_, a| regexp_replace_from(a)),
    imm("regexp_replace", &[T::TEXT, T::TEXT, T::TEXT, T::INT4, T::INT4], T::TEXT, |_, a| {
        regexp_replace_from(a)
    }),
    imm("regexp_replace", &[T::TEXT, T::TEXT, T::TEXT, T::INT4, T::INT4, T::TEXT], T::TEXT, |_, a| {
        regexp_replace_from(a)
    }),
    imm("regexp_split_to_array", &[T::TEXT, T::TEXT], T::TEXT_ARRAY, |_, a| {
        Ok(Datum::array(T::TEXT, split(a)?))
    }),
    imm("regexp_split_to_array", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT_ARRAY, |_, a| {
        Ok(Datum::array(T::TEXT, split(a)?))
    }),
    imm("regexp_count", &[T::TEXT, T::TEXT], T::INT4, |_, a| regexp_count(a)),
    imm("regexp_count", &[T::TEXT, T::TEXT, T::INT4], T::INT4, |_, a| regexp_count(a)),
    imm("regexp_count", &[T::TEXT, T::TEXT, T::INT4, T::TEXT], T::INT4, |_, a| regexp_count(a)),
    imm("regexp_instr", &[T::TEXT, T::TEXT], T::INT4, |_, a| regexp_instr(a)),
    imm("regexp_instr", &[T::TEXT, T::TEXT, T::INT4], T::INT4, |_, a| regexp_instr(a)),
    imm("regexp_instr", &[T::TEXT, T::TEXT, T::INT4, T::INT4], T::INT4, |_, a| regexp_instr(a)),
    imm("regexp_instr", &[T::TEXT, T::TEXT, T::INT4, T::INT4, T::INT4], T::INT4, |_, a| regexp_instr(a)),
    imm("regexp_instr", &[T::TEXT, T::TEXT, T::INT4, T::INT4, T::INT4, T::TEXT], T::INT4, |_, a| {
        regexp_instr(a)
    }),
    imm("regexp_instr", &[T::TEXT, T::TEXT, T::INT4, T::INT4, T::INT4, T::TEXT, T::INT4], T::INT4, |_, a| {
        regexp_instr(a)
    }),
    imm("regexp_substr", &[T::TEXT, T::TEXT], T::TEXT, |_, a| regexp_substr(a)),
    imm("regexp_substr", &[T::TEXT, T::TEXT, T::INT4], T::TEXT, |_, a| regexp_substr(a)),
    imm("regexp_substr", &[T::TEXT, T::TEXT, T::INT4, T::INT4], T::TEXT, |_, a| regexp_substr(a)),
    imm("regexp_substr", &[T::TEXT, T::TEXT, T::INT4, T::INT4, T::TEXT], T::TEXT, |_, a| regexp_substr(a)),
    imm("regexp_substr", &[T::TEXT, T::TEXT, T::INT4, T::INT4, T::TEXT, T::INT4], T::TEXT, |_, a| {
        regexp_substr(a)
    }),
    imm("substring", &[T::TEXT, T::TEXT], T::TEXT, |_, a| substring(a)),
    imm("substring", &[T::TEXT, T::TEXT, T::TEXT], T::TEXT, |_, a| substring_similar(a)),
    imm("like_escape", &[T::TEXT, T::TEXT], T::TEXT, |_, a| {
        Ok(Datum::text(pattern::with_escape(args::text(a, 0)?, args::text(a, 1)?)?))
    }),
    imm("similar_to_escape", &[T::TEXT], T::TEXT, |_, a| {
        Ok(Datum::text(pattern::similar_to_regex(args::text(a, 0)?, None)?))
    }),
    imm("similar_to_escape", &[T::TEXT, T::TEXT], T::TEXT, |_, a| {
        Ok(Datum::text(pattern::similar_to_regex(args::text(a, 0)?, Some(args::text(a, 1)?))?))
    }),
    imm("like", &[T::TEXT, T::TEXT], T::BOOL, |_, a| {
        Ok(Datum::Bool(pattern::like(args::text(a, 0)?, args::text(a, 1)?)?))
    }),
];
