//! `LIKE`, `ILIKE` and the translation of `SIMILAR TO`.

use crate::error::{SqlError, SqlResult, SqlState};

fn dangling_escape() -> SqlError {
    SqlError::new(SqlState::INVALID_ESCAPE, "LIKE pattern must not end with escape character")
}

/// Length of the UTF-8 character that starts with a byte.
fn character_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

/// Whether text matches a LIKE pattern: `%` any characters, `_` one, `\` takes the next literally.
pub(super) fn like(text: &str, pattern: &str) -> SqlResult<bool> {
    matches(text.as_bytes(), pattern.as_bytes(), true)
}

/// The same for bytes.
pub(super) fn like_bytes(text: &[u8], pattern: &[u8]) -> SqlResult<bool> {
    matches(text, pattern, false)
}

/// Goes forward, and back only to the last `%`: linear but for patterns with many of them.
fn matches(text: &[u8], pattern: &[u8], utf8: bool) -> SqlResult<bool> {
    let step = |at: usize| if utf8 { character_length(text[at]) } else { 1 };
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let advanced = match pattern.get(p) {
            Some(b'%') => {
                p += 1;
                if p == pattern.len() {
                    return Ok(true);
                }
                retry = Some((p, t));
                continue;
            }
            Some(b'_') if t < text.len() => {
                t += step(t);
                p += 1;
                true
            }
            Some(b'_') => false,
            Some(b'\\') => {
                // A pattern that ends here is noticed only where there is text left to match.
                let literal = pattern.get(p + 1);
                if literal.is_none() && t < text.len() {
                    return Err(dangling_escape());
                }
                let same = literal.is_some() && text.get(t) == literal;
                if same {
                    t += 1;
                    p += 2;
                }
                same
            }
            Some(literal) => {
                let same = text.get(t) == Some(literal);
                if same {
                    t += 1;
                    p += 1;
                }
                same
            }
            None => t >= text.len(),
        };
        if advanced && p >= pattern.len() && t >= text.len() {
            return Ok(true);
        }
        if !advanced {
            match &mut retry {
                Some((after, from)) if *from < text.len() => {
                    *from += step(*from);
                    p = *after;
                    t = *from;
                }
                _ => return Ok(false),
            }
        }
    }
}

/// Rewrites a pattern with another escape character (none, if empty) into one with `\`.
pub(super) fn with_escape(pattern: &str, escape: &str) -> SqlResult<String> {
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return Err(SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            out.push('\\');
            match chars.next() {
                Some(next) => out.push(next),
                None => return Err(dangling_escape()),
            }
        } else {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
        }
    }
    Ok(out)
}

/// Turns a `SIMILAR TO` pattern into a regular expression. Two separators (the escape character and a double quote) part
/// it into three, of which the second is a group; the first matches as little as it can.
///
/// # Errors
/// 22025 for an escape string of several characters, 2200C for more than two separators.
pub(super) fn similar_to_regex(pattern: &str, escape: Option<&str>) -> SqlResult<String> {
    let escape = match escape {
        None => Some('\\'),
        Some(text) => {
            let mut characters = text.chars();
            let first = characters.next();
            if characters.next().is_some() {
                return Err(SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
                    .with_hint("Escape string must be empty or one character."));
            }
            first
        }
    };
    let mut out = String::from("^(?:");
    let mut in_brackets = false;
    let mut separators = 0;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape && !in_brackets && chars.as_str().starts_with('"') {
            chars.next();
            separators += 1;
            match separators {
                1 => out = format!("^(?U:{})(", out.strip_prefix("^(?:").unwrap_or_default()),
                2 => out.push_str(")(?:"),
                _ => {
                    let message =
                        "SQL regular expression may not contain more than two escape-double-quote separators";
                    return Err(SqlError::new(SqlState("2200C"), message));
                }
            }
            continue;
        }
        if Some(c) == escape {
            if let Some(next) = chars.next() {
                if !next.is_alphanumeric() {
                    out.push('\\');
                }
                out.push(next);
            }
            continue;
        }
        match c {
            ']' if in_brackets => {
                in_brackets = false;
                out.push(c);
            }
            '\\' => out.push_str("\\\\"),
            c if in_brackets => out.push(c),
            '[' => {
                in_brackets = true;
                out.push(c);
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}
