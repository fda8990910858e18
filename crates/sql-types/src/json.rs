//! The JSON parser and printer behind json and jsonb.
//!
//! json keeps its text as it was given once [`validate`] has accepted it; jsonb is parsed into a value
//! whose object keys are unique (the last one wins) and sorted as PostgreSQL sorts them: by length,
//! then by bytes. Numbers keep their digits: they are numerics.

use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: usize = 512;

#[cold]
fn too_deep() -> SqlError {
    SqlError::new(SqlState::TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint(format!("JSON may nest {MAX_DEPTH} levels deep."))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// jsonb: refuse what it cannot hold.
    binary: bool,
}

/// Checks JSON text.
pub fn validate(text: &str) -> SqlResult<()> {
    let mut parser = Parser { text, at: 0, depth: 0, binary: false };
    parser.check_value()?;
    parser.end()
}

/// Parses JSON text into jsonb's form.
pub fn parse(text: &str) -> SqlResult<Value> {
    let mut parser = Parser { text, at: 0, depth: 0, binary: true };
    let value = parser.value()?;
    parser.end()?;
    Ok(value)
}

impl Parser<'_> {
    fn invalid(&self, detail: String) -> SqlError {
        SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type json").with_detail(detail)
    }

    /// An error at the present place.
    fn unexpected(&self, expected: &str) -> SqlError {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return self.invalid("The input string ended unexpectedly.".to_string());
        };
        let length = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || !c.is_ascii()))
            .filter(|length| *length > 0)
            .unwrap_or(if first.is_alphanumeric() { rest.len() } else { first.len_utf8() });
        let token = &rest[..length];
        if first.is_alphabetic() && !matches!(token, "true" | "false" | "null") {
            return self.invalid(format!("Token \"{token}\" is invalid."));
        }
        self.invalid(if expected == "end of input" {
            format!("Expected end of input, but found \"{token}\".")
        } else {
            format!("Expected {expected}, but found \"{token}\".")
        })
    }

    fn skip_blanks(&mut self) {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.text.as_bytes().get(self.at).copied()
    }

    fn end(&mut self) -> SqlResult<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("end of input")),
        }
    }

    fn enter(&mut self) -> SqlResult<()> {
        self.depth += 1;
        self.at += 1;
        if self.depth > MAX_DEPTH { Err(too_deep()) } else { Ok(()) }
    }

    fn word(&mut self, word: &str) -> SqlResult<()> {
        let rest = &self.text[self.at..];
        let follows =
            rest.as_bytes().get(word.len()).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        if !rest.starts_with(word) || follows {
            return Err(self.unexpected("JSON value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn value(&mut self) -> SqlResult<Value> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b't') => self.word("true").map(|()| Value::Bool(true)),
            Some(b'f') => self.word("false").map(|()| Value::Bool(false)),
            Some(b'n') => self.word("null").map(|()| Value::Null),
            Some(b'-' | b'0'..=b'9') => {
                let text = self.number()?;
                numeric_value(&Numeric::parse(text)?)
            }
            _ => Err(self.unexpected("JSON value")),
        }
    }

    fn list(&mut self) -> SqlResult<Value> {
        self.enter()?;
        let mut values = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                values.push(self.value()?);
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b']') => {
                        self.at += 1;
                        break;
                    }
                    _ => return Err(self.unexpected("\",\" or \"]\"")),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Array(values))
    }

    fn object(&mut self) -> SqlResult<Value> {
        self.enter()?;
        let mut pairs = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                if self.peek() != Some(b'"') {
                    let expected = if pairs.is_empty() { "string or \"}\"" } else { "string" };
                    return Err(self.unexpected(expected));
                }
                let key = self.string()?;
                if self.peek() != Some(b':') {
                    return Err(self.unexpected("\":\""));
                }
                self.at += 1;
                pairs.push((key, self.value()?));
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => {
                        self.at += 1;
                        break;
                    }
                    _ => return Err(self.unexpected("\",\" or \"}\"")),
                }
            }
        }
        self.depth -= 1;
        Ok(object(pairs))
    }

    /// Checks a value without building it.
    fn check_value(&mut self) -> SqlResult<()> {
        match self.peek() {
            Some(open @ (b'{' | b'[')) => {
                self.enter()?;
                let (close, expected) =
                    if open == b'{' { (b'}', "\",\" or \"}\"") } else { (b']', "\",\" or \"]\"") };
                if self.peek() == Some(close) {
                    self.at += 1;
                    self.depth -= 1;
                    return Ok(());
                }
                let mut first = true;
                loop {
                    if open == b'{' {
                        if self.peek() != Some(b'"') {
                            return Err(self.unexpected(if first { "string or \"}\"" } else { "string" }));
                        }
                        self.string()?;
                        if self.peek() != Some(b':') {
                            return Err(self.unexpected("\":\""));
                        }
                        self.at += 1;
                    }
                    first = false;
                    self.check_value()?;
                    match self.peek() {
                        Some(b',') => self.at += 1,
                        Some(found) if found == close => {
                            self.at += 1;
                            self.depth -= 1;
                            return Ok(());
                        }
                        _ => return Err(self.unexpected(expected)),
                    }
                }
            }
            Some(b'"') => self.string().map(drop),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            _ => Err(self.unexpected("JSON value")),
        }
    }

    fn number(&mut self) -> SqlResult<&str> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at > from
        };
        let mut at = start + usize::from(bytes[start] == b'-');
        let leading_zero = bytes.get(at) == Some(&b'0');
        let mut valid = digits(&mut at);
        if leading_zero && at > start + usize::from(bytes[start] == b'-') + 1 {
            valid = false;
        }
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            valid &= digits(&mut at);
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            if matches!(bytes.get(at), Some(b'+' | b'-')) {
                at += 1;
            }
            valid &= digits(&mut at);
        }
        let follows = self.text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if !valid || follows {
            let end = self.text[start..]
                .find(|c: char| !(c.is_alphanumeric() || "+-._".contains(c)))
                .map_or(self.text.len(), |length| start + length);
            return Err(self.invalid(format!("Token \"{}\" is invalid.", &self.text[start..end])));
        }
        self.at = at;
        Ok(&self.text[start..at])
    }

    fn string(&mut self) -> SqlResult<String> {
        self.at += 1;
        let bytes = self.text.as_bytes();
        let mut out = String::new();
        loop {
            let start = self.at;
            while bytes.get(self.at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(control) => {
                    return Err(
                        self.invalid(format!("Character with value 0x{control:02x} must be escaped."))
                    );
                }
                None => {
                    let token = &self.text[start.saturating_sub(out.len() + 1).min(self.text.len())..];
                    let _ = token;
                    return Err(self.invalid("The input string ended unexpectedly.".to_string()));
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> SqlResult<()> {
        let plain = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(out),
            Some(_) => {
                let c = self.text[self.at + 1..].chars().next().unwrap_or('\\');
                return Err(self.invalid(format!("Escape sequence \"\\{c}\" is invalid.")));
            }
            None => return Err(self.invalid("The input string ended unexpectedly.".to_string())),
        };
        out.push(plain);
        self.at += 2;
        Ok(())
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }

    fn unicode_escape(&mut self, out: &mut String) -> SqlResult<()> {
        let Some(first) = self.hex4(self.at + 2) else {
            return Err(self.invalid("\"\\u\" must be followed by four hexadecimal digits.".to_string()));
        };
        self.at += 6;
        let code = match first {
            0 if self.binary => {
                return Err(SqlError::new(SqlState::UNTRANSLATABLE, "unsupported Unicode escape sequence")
                    .with_detail("\\u0000 cannot be converted to text."));
            }
            0xd800..=0xdbff => {
                let low = self.text[self.at..].starts_with("\\u").then(|| self.hex4(self.at + 2)).flatten();
                match low {
                    Some(low @ 0xdc00..=0xdfff) => {
                        self.at += 6;
                        0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00)
                    }
                    _ => {
                        return Err(self
                            .invalid("Unicode high surrogate must not follow a high surrogate.".into())
                            .with_detail("Unicode low surrogate must follow a high surrogate."));
                    }
                }
            }
            0xdc00..=0xdfff => {
                return Err(self.invalid("Unicode low surrogate must follow a high surrogate.".to_string()));
            }
            code => code,
        };
        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }
}

/// An object in jsonb's order; of equal keys the last one stays.
pub fn object(mut pairs: Vec<(String, Value)>) -> Value {
    pairs.sort_by(|left, right| key_order(&left.0, &right.0));
    let mut map = Map::with_capacity(pairs.len());
    for (key, value) in pairs {
        // The sort is stable, so that a later duplicate replaces an earlier one.
        map.insert(key, value);
    }
    Value::Object(map)
}

/// The order of keys in a jsonb object.
pub fn key_order(left: &str, right: &str) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.as_bytes().cmp(right.as_bytes()))
}

/// A number as JSON; NaN and the infinities, which JSON has not, become strings.
pub fn numeric_value(number: &Numeric) -> SqlResult<Value> {
    let text = number.to_string();
    if !number.is_finite() {
        return Ok(Value::String(text));
    }
    serde_json::from_str::<Number>(&text)
        .map(Value::Number)
        .map_err(|_| SqlError::internal("a number is no JSON number"))
}

/// The number in a JSON value.
pub fn as_numeric(value: &Value) -> Option<Numeric> {
    match value {
        Value::Number(number) => Numeric::parse(number.as_str()).ok(),
        _ => None,
    }
}

/// Appends jsonb's text form: a blank after `:` and `,`.
pub fn format(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(number.as_str()),
        Value::String(text) => escape(text, out),
        Value::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                format(value, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                escape(key, out);
                out.push_str(": ");
                format(value, out);
            }
            out.push('}');
        }
    }
}

/// Appends `jsonb_pretty`'s form.
pub fn format_pretty(value: &Value, indent: usize, out: &mut String) {
    let line = |out: &mut String, indent: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent * 4));
    };
    match value {
        Value::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line(out, indent + 1);
                format_pretty(value, indent + 1, out);
            }
            line(out, indent);
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                line(out, indent + 1);
                escape(key, out);
                out.push_str(": ");
                format_pretty(value, indent + 1, out);
            }
            line(out, indent);
            out.push('}');
        }
        scalar => format(scalar, out),
    }
}

/// Appends a JSON string literal.
pub fn escape(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// jsonb's btree order: Object > Array > Boolean > Number > String > Null; bigger containers are
/// greater than smaller ones.
pub fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Value::Number(left), Value::Number(right)) => {
            match (Numeric::parse(left.as_str()), Numeric::parse(right.as_str())) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                _ => left.as_str().cmp(right.as_str()),
            }
        }
        (Value::Array(left), Value::Array(right)) => left.len().cmp(&right.len()).then_with(|| {
            left.iter()
                .zip(right)
                .map(|(l, r)| compare(l, r))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        }),
        (Value::Object(left), Value::Object(right)) => left.len().cmp(&right.len()).then_with(|| {
            left.iter()
                .zip(right)
                .map(|((lk, lv), (rk, rv))| key_order(lk, rk).then_with(|| compare(lv, rv)))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        }),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        // PostgreSQL sorts the empty array before every scalar.
        Value::Array(values) if values.is_empty() => 0,
        Value::Null => 1,
        Value::String(_) => 2,
        Value::Number(_) => 3,
        Value::Bool(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

/// `json_typeof`.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `@>`: whether `inner` is contained in `outer`.
pub fn contains(outer: &Value, inner: &Value) -> bool {
    match (outer, inner) {
        (Value::Array(outer), Value::Array(inner)) => contains_all(outer, inner),
        // A top-level array contains a scalar that is one of its elements.
        (Value::Array(outer), scalar) if !scalar.is_object() => {
            outer.iter().any(|value| compare(value, scalar).is_eq())
        }
        _ => contains_nested(outer, inner),
    }
}

fn contains_all(outer: &[Value], inner: &[Value]) -> bool {
    inner.iter().all(|wanted| outer.iter().any(|value| contains_nested(value, wanted)))
}

fn contains_nested(outer: &Value, inner: &Value) -> bool {
    match (outer, inner) {
        (Value::Object(outer), Value::Object(inner)) => inner
            .iter()
            .all(|(key, wanted)| outer.get(key).is_some_and(|value| contains_nested(value, wanted))),
        (Value::Array(outer), Value::Array(inner)) => contains_all(outer, inner),
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
        (outer, inner) => compare(outer, inner).is_eq(),
    }
}
