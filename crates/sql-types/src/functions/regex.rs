//! Regular expressions: PostgreSQL's advanced ones translated for the `regex` crate, which runs in
//! linear time.
//!
//! Missing, and refused with `0A000`: look-around and back references. Alternatives match the first
//! that fits, where PostgreSQL takes the longest.

use crate::error::{SqlError, SqlResult, SqlState};
use regex::{Regex, RegexBuilder};
use std::cell::RefCell;

/// Bytes a compiled expression may take.
const SIZE_LIMIT: usize = 1 << 20;
/// Compiled expressions kept by each thread.
const CACHED: usize = 8;

/// The largest repetition that PostgreSQL takes.
const LARGEST_BOUND: u64 = 255;

struct Cached {
    pattern: String,
    flags: String,
    regex: Regex,
}

thread_local! {
    static CACHE: RefCell<Vec<Cached>> = const { RefCell::new(Vec::new()) };
}

/// Compiles an expression, or takes it from the thread's cache. Flags are those of `regexp_match`;
/// `g` is left to the caller.
pub(crate) fn compile(pattern: &str, flags: &str) -> SqlResult<Regex> {
    CACHE.with_borrow_mut(|cache| {
        if let Some(at) = cache.iter().position(|entry| entry.pattern == pattern && entry.flags == flags) {
            let entry = cache.remove(at);
            let regex = entry.regex.clone();
            cache.insert(0, entry);
            return Ok(regex);
        }
        let regex = build(pattern, flags)?;
        cache.truncate(CACHED - 1);
        let entry = Cached { pattern: pattern.to_string(), flags: flags.to_string(), regex: regex.clone() };
        cache.insert(0, entry);
        Ok(regex)
    })
}

fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGEX, format!("invalid regular expression: {message}"))
}

struct Options {
    fold: bool,
    /// `.` and `[^…]` stop at line ends.
    dot_stops: bool,
    /// `^` and `$` match at line ends.
    anchors_at_lines: bool,
    extended: bool,
    literal: bool,
}

impl Options {
    fn apply(&mut self, flags: &str) -> SqlResult<()> {
        for flag in flags.chars() {
            match flag {
                'i' => self.fold = true,
                'c' => self.fold = false,
                'n' | 'm' => (self.dot_stops, self.anchors_at_lines) = (true, true),
                'p' => (self.dot_stops, self.anchors_at_lines) = (true, false),
                'w' => (self.dot_stops, self.anchors_at_lines) = (false, true),
                's' => (self.dot_stops, self.anchors_at_lines) = (false, false),
                'x' => self.extended = true,
                't' => self.extended = false,
                'q' => self.literal = true,
                'e' | 'b' | 'g' => {}
                other => {
                    return Err(SqlError::new(
                        SqlState::INVALID_PARAMETER,
                        format!("invalid regular expression option: \"{other}\""),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn build(pattern: &str, flags: &str) -> SqlResult<Regex> {
    let mut options =
        Options { fold: false, dot_stops: false, anchors_at_lines: false, extended: false, literal: false };
    options.apply(flags)?;
    let mut body = pattern;
    if let Some(literal) = body.strip_prefix("***=") {
        options.literal = true;
        body = literal;
    } else if let Some(advanced) = body.strip_prefix("***:") {
        body = advanced;
    }
    if let Some(rest) = body.strip_prefix("(?")
        && let Some(end) = rest.find(')')
        && end > 0
        && rest[..end].bytes().all(|byte| byte.is_ascii_lowercase())
    {
        options.apply(&rest[..end]).map_err(|_| invalid("invalid embedded option"))?;
        body = &rest[end + 1..];
    }
    let translated = if options.literal { regex::escape(body) } else { translate(body)? };
    RegexBuilder::new(&translated)
        .case_insensitive(options.fold)
        .dot_matches_new_line(!options.dot_stops)
        .multi_line(options.anchors_at_lines)
        .ignore_whitespace(options.extended)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .nest_limit(200)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => invalid("regular expression is too complex"),
            regex::Error::Syntax(text) if text.contains("look-around") => {
                SqlError::unsupported("look-around in regular expressions")
            }
            regex::Error::Syntax(text) => invalid(explain(&text)),
            _ => invalid("invalid syntax"),
        })
}

/// PostgreSQL's words for what the parser found.
fn explain(text: &str) -> &str {
    let reasons = [
        ("unclosed group", "parentheses () not balanced"),
        ("unopened group", "parentheses () not balanced"),
        ("unclosed character class", "brackets [] not balanced"),
        ("repetition operator missing expression", "quantifier operand invalid"),
        ("invalid character class range", "invalid character range"),
        ("repetition quantifier", "invalid repetition count(s)"),
        ("unrecognized escape", "invalid escape \\ sequence"),
    ];
    let known = reasons.iter().find(|(marker, _)| text.contains(marker));
    known.map_or_else(|| text.lines().last().unwrap_or("invalid syntax"), |(_, reason)| reason)
}

fn translate(pattern: &str) -> SqlResult<String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    // Whether the last thing read was a quantifier, which another one may not follow.
    let mut quantified = false;
    while let Some(c) = chars.next() {
        let repetition = c == '{' && chars.peek().is_some_and(char::is_ascii_digit);
        let quantifier = matches!(c, '*' | '+') || repetition || (c == '?' && !out.ends_with('('));
        if quantified && quantifier {
            return Err(invalid("quantifier operand invalid"));
        }
        quantified = quantifier;
        if repetition {
            out.push(c);
            let start = out.len();
            while let Some(bound) = chars.next_if(|c| c.is_ascii_digit() || *c == ',') {
                out.push(bound);
            }
            let too_large = |bound: &str| bound.parse().is_ok_and(|bound: u64| bound > LARGEST_BOUND);
            if out[start..].split(',').any(too_large) {
                return Err(invalid("invalid repetition count(s)"));
            }
            if chars.next() != Some('}') {
                return Err(invalid("invalid repetition count(s)"));
            }
            out.push('}');
        }
        // A question mark after a quantifier makes it lazy.
        if quantifier {
            if !repetition {
                out.push(c);
            }
            if let Some(lazy) = chars.next_if_eq(&'?') {
                out.push(lazy);
            }
            continue;
        }
        match c {
            '\\' => {
                let Some(next) = chars.next() else {
                    return Err(invalid("invalid escape \\ sequence"));
                };
                escape(next, &mut chars, &mut out)?;
            }
            '[' => bracket(&mut chars, &mut out)?,
            '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn take_hex(chars: &mut Chars<'_>, most: usize) -> Option<char> {
    let mut digits = String::new();
    while digits.len() < most
        && let Some(digit) = chars.next_if(char::is_ascii_hexdigit)
    {
        digits.push(digit);
    }
    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
}

fn push_literal(c: char, out: &mut String) {
    out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

fn escape(next: char, chars: &mut Chars<'_>, out: &mut String) -> SqlResult<()> {
    match next {
        'm' => out.push_str("\\b{start}"),
        'M' => out.push_str("\\b{end}"),
        'y' => out.push_str("\\b"),
        'Y' => out.push_str("\\B"),
        'A' => out.push_str("\\A"),
        'Z' => out.push_str("\\z"),
        'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'n' | 'r' | 't' | 'v' | 'f' | 'a' => {
            out.push('\\');
            out.push(next);
        }
        'e' => out.push_str("\\x1b"),
        'b' => out.push_str("\\x08"),
        'B' => out.push_str("\\\\"),
        '0' => out.push_str("\\x00"),
        'u' => push_literal(take_hex(chars, 4).ok_or_else(|| invalid("invalid escape \\ sequence"))?, out),
        'U' => push_literal(take_hex(chars, 8).ok_or_else(|| invalid("invalid escape \\ sequence"))?, out),
        'x' => push_literal(take_hex(chars, 8).ok_or_else(|| invalid("invalid escape \\ sequence"))?, out),
        '1'..='9' => return Err(SqlError::unsupported("a back reference in a regular expression")),
        c if c.is_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
        c => push_literal(c, out),
    }
    Ok(())
}

/// The classes of characters, as they are written after `[`.
const CLASSES: &[&str] = &[
    ":alnum:]",
    ":alpha:]",
    ":blank:]",
    ":cntrl:]",
    ":digit:]",
    ":graph:]",
    ":lower:]",
    ":print:]",
    ":punct:]",
    ":space:]",
    ":upper:]",
    ":word:]",
    ":xdigit:]",
];

/// A bracket expression, after its `[`.
fn bracket(chars: &mut Chars<'_>, out: &mut String) -> SqlResult<()> {
    let unbalanced = || invalid("brackets [] not balanced");
    // Word boundaries written as classes.
    let ahead: String = chars.clone().take(6).collect();
    for (written, boundary) in [("[:<:]]", "\\b{start}"), ("[:>:]]", "\\b{end}")] {
        if ahead == written {
            (0..6).for_each(|_| {
                chars.next();
            });
            out.push_str(boundary);
            return Ok(());
        }
    }
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let c = chars.next().ok_or_else(unbalanced)?;
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(());
            }
            ']' => out.push_str("\\]"),
            '[' => match chars.peek() {
                Some(':') => {
                    out.push('[');
                    let start = out.len();
                    loop {
                        let inner = chars.next().ok_or_else(unbalanced)?;
                        out.push(inner);
                        if inner == ']' {
                            break;
                        }
                    }
                    if !CLASSES.contains(&&out[start..]) {
                        return Err(invalid("invalid character class"));
                    }
                }
                Some(&kind @ ('.' | '=')) => {
                    chars.next();
                    let member = chars.next().ok_or_else(unbalanced)?;
                    push_literal(member, out);
                    if chars.next() != Some(kind) || chars.next() != Some(']') {
                        return Err(invalid("invalid collating element"));
                    }
                }
                _ => out.push_str("\\["),
            },
            '\\' => {
                let next = chars.next().ok_or_else(unbalanced)?;
                match next {
                    'd' | 'D' | 's' | 'S' | 'w' | 'W' => {
                        out.push('\\');
                        out.push(next);
                    }
                    'm' | 'M' | 'y' | 'Y' | 'A' | 'Z' => return Err(invalid("invalid escape \\ sequence")),
                    other => escape(other, chars, out)?,
                }
            }
            '-' => {
                // A hyphen first, last or doubled stands for itself.
                let literal = first || chars.peek() == Some(&']');
                out.push_str(if literal { "\\-" } else { "-" });
            }
            '&' | '~' | '^' => {
                out.push('\\');
                out.push(c);
            }
            ' ' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        first = false;
    }
}
