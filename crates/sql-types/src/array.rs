//! Array values and their text form.

use crate::context::TextContext;
use crate::datum::{ArrayValue, Datum};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::text;
use crate::types::{ColumnType, Type};

/// Most dimensions of an array.
pub const MAX_DIMENSIONS: usize = 6;
/// Most elements of an array.
pub const MAX_ELEMENTS: usize = 134_217_727;

fn malformed(text: &str, detail: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("malformed array literal: \"{text}\"")).with_detail(detail)
}

/// `array size exceeds the maximum allowed`.
#[cold]
pub fn too_large() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT, format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})"))
}

/// Reads `{1,2,{3}}` with elements of a type; `element` carries the modifier of the array's type.
pub fn parse(element: ColumnType, input: &str, context: &TextContext<'_>) -> SqlResult<ArrayValue> {
    let mut rest = input.trim_matches(is_blank);
    let mut bounds: Vec<(i32, i32)> = Vec::new();
    while rest.starts_with('[') {
        let end = rest.find(']').ok_or_else(|| malformed(input, "Missing \"]\" after array dimensions."))?;
        bounds.push(parse_bounds(&rest[1..end], input)?);
        rest = rest[end + 1..].trim_start_matches(is_blank);
        if bounds.len() > MAX_DIMENSIONS {
            return Err(too_many_dimensions(bounds.len()));
        }
    }
    if !bounds.is_empty() {
        rest = rest
            .strip_prefix('=')
            .ok_or_else(|| malformed(input, "Missing \"=\" after array dimensions."))?
            .trim_start_matches(is_blank);
    }
    if !rest.starts_with('{') {
        let detail = if bounds.is_empty() {
            "Array value must start with \"{\" or dimension information."
        } else {
            "Array contents must start with \"{\"."
        };
        return Err(malformed(input, detail));
    }
    let mut parser = Parser { input, rest, element, context, values: Vec::new(), lengths: Vec::new() };
    parser.level(0)?;
    if !parser.rest.trim_matches(is_blank).is_empty() {
        return Err(malformed(input, "Junk after closing right brace."));
    }
    if parser.values.is_empty() {
        return Ok(ArrayValue { element: element.ty, dimensions: Vec::new(), values: Vec::new() });
    }
    let lengths: Vec<usize> = parser.lengths.iter().map(|length| length.unwrap_or(0)).collect();
    let dimensions = if bounds.is_empty() {
        lengths.iter().map(|length| (*length, 1)).collect()
    } else {
        let sizes: Vec<i64> =
            bounds.iter().map(|(low, high)| i64::from(*high) - i64::from(*low) + 1).collect();
        if sizes.len() != lengths.len()
            || sizes.iter().zip(&lengths).any(|(size, length)| *size != *length as i64)
        {
            return Err(malformed(input, "Specified array dimensions do not match array contents."));
        }
        lengths.iter().zip(&bounds).map(|(length, (low, _))| (*length, *low)).collect()
    };
    Ok(ArrayValue { element: element.ty, dimensions, values: parser.values })
}

/// `number of array dimensions exceeds the maximum allowed`.
pub(crate) fn too_many_dimensions(count: usize) -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT,
        format!("number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})"),
    )
}

fn parse_bounds(text: &str, input: &str) -> SqlResult<(i32, i32)> {
    let bad = || malformed(input, "\"[\" must introduce explicitly-specified array dimensions.");
    let (low, high) = match text.split_once(':') {
        Some((low, high)) => (
            low.trim_matches(is_blank).parse().map_err(|_| bad())?,
            high.trim_matches(is_blank).parse().map_err(|_| bad())?,
        ),
        None => (1, text.trim_matches(is_blank).parse().map_err(|_| bad())?),
    };
    if high < low {
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, "upper bound cannot be less than lower bound"));
    }
    Ok((low, high))
}

struct Parser<'a, 'b> {
    input: &'a str,
    rest: &'a str,
    element: ColumnType,
    context: &'b TextContext<'b>,
    values: Vec<Datum>,
    /// Length of each dimension once one sub-array of it has ended.
    lengths: Vec<Option<usize>>,
}

impl Parser<'_, '_> {
    fn mismatch(&self) -> SqlError {
        malformed(self.input, "Multidimensional arrays must have sub-arrays with matching dimensions.")
    }

    /// Reads from `{` to its `}`.
    fn level(&mut self, depth: usize) -> SqlResult<()> {
        if depth >= MAX_DIMENSIONS {
            return Err(too_many_dimensions(depth + 1));
        }
        if self.lengths.len() <= depth {
            if !self.values.is_empty() || self.lengths.last().is_some_and(Option::is_some) {
                return Err(self.mismatch());
            }
            self.lengths.push(None);
        }
        self.rest = self.rest[1..].trim_start_matches(is_blank);
        let mut count = 0;
        let mut nested = None;
        if let Some(after) = self.rest.strip_prefix('}') {
            if depth > 0 && !self.values.is_empty() {
                return Err(self.mismatch());
            }
            self.rest = after;
            return Ok(());
        }
        loop {
            self.rest = self.rest.trim_start_matches(is_blank);
            let is_nested = self.rest.starts_with('{');
            if *nested.get_or_insert(is_nested) != is_nested || (!is_nested && self.lengths.len() > depth + 1)
            {
                return Err(self.mismatch());
            }
            if is_nested {
                self.level(depth + 1)?;
            } else {
                self.element()?;
            }
            count += 1;
            self.rest = self.rest.trim_start_matches(is_blank);
            match self.rest.chars().next() {
                Some(',') => self.rest = &self.rest[1..],
                Some('}') => {
                    self.rest = &self.rest[1..];
                    break;
                }
                Some(c) => {
                    return Err(malformed(self.input, &format!("Unexpected array element near \"{c}\".")));
                }
                None => return Err(malformed(self.input, "Unexpected end of input.")),
            }
        }
        match self.lengths[depth].replace(count) {
            Some(before) if before != count => Err(self.mismatch()),
            _ => Ok(()),
        }
    }

    fn element(&mut self) -> SqlResult<()> {
        if self.values.len() >= MAX_ELEMENTS {
            return Err(too_large());
        }
        let mut text = String::new();
        let mut quoted = false;
        let mut chars = self.rest.char_indices();
        // Blanks after the last significant character do not count.
        let mut significant = 0;
        let end = loop {
            let Some((at, c)) = chars.next() else {
                return Err(malformed(self.input, "Unexpected end of input."));
            };
            match c {
                ',' | '}' => break at,
                '"' => {
                    if quoted || !text.trim_matches(is_blank).is_empty() {
                        return Err(malformed(self.input, "Unexpected array element."));
                    }
                    quoted = true;
                    text.clear();
                    loop {
                        match chars.next() {
                            Some((_, '\\')) => {
                                let Some((_, escaped)) = chars.next() else {
                                    return Err(malformed(self.input, "Unexpected end of input."));
                                };
                                text.push(escaped);
                            }
                            Some((_, '"')) => break,
                            Some((_, c)) => text.push(c),
                            None => return Err(malformed(self.input, "Unexpected end of input.")),
                        }
                    }
                    significant = text.len();
                }
                '\\' if !quoted => {
                    let Some((_, escaped)) = chars.next() else {
                        return Err(malformed(self.input, "Unexpected end of input."));
                    };
                    text.push(escaped);
                    significant = text.len();
                }
                '{' => return Err(malformed(self.input, "Unexpected \"{\" character.")),
                c if is_blank(c) => {
                    if !quoted {
                        text.push(c);
                    }
                }
                _ if quoted => return Err(malformed(self.input, "Unexpected array element.")),
                c => {
                    text.push(c);
                    significant = text.len();
                }
            }
        };
        text.truncate(significant);
        let escaped = self.rest[..end].contains('\\');
        self.rest = &self.rest[end..];
        if !quoted && text.is_empty() {
            return Err(malformed(self.input, "Unexpected \",\" or \"}\" character."));
        }
        let value = if !quoted && !escaped && text.eq_ignore_ascii_case("null") {
            Datum::Null
        } else {
            text::parse(self.element, &text, self.context)?
        };
        self.values.push(value);
        Ok(())
    }
}

/// Appends the text form.
pub fn format(array: &ArrayValue, context: &TextContext<'_>, out: &mut String) {
    if array.dimensions.is_empty() || array.values.is_empty() {
        return out.push_str("{}");
    }
    if array.dimensions.iter().any(|(_, low)| *low != 1) {
        for (length, low) in &array.dimensions {
            let high = i64::from(*low) + *length as i64 - 1;
            out.push_str(&format!("[{low}:{high}]"));
        }
        out.push('=');
    }
    let mut values = array.values.iter();
    format_level(&array.dimensions, &mut values, array.element, context, out);
}

fn format_level<'a>(
    dimensions: &[(usize, i32)],
    values: &mut impl Iterator<Item = &'a Datum>,
    element: Type,
    context: &TextContext<'_>,
    out: &mut String,
) {
    let Some(((length, _), inner)) = dimensions.split_first() else { return };
    out.push('{');
    for index in 0..*length {
        if index > 0 {
            out.push(',');
        }
        if !inner.is_empty() {
            format_level(inner, values, element, context, out);
            continue;
        }
        match values.next() {
            None | Some(Datum::Null) => out.push_str("NULL"),
            Some(value) => format_element(value, element, context, out),
        }
    }
    out.push('}');
}

fn format_element(value: &Datum, element: Type, context: &TextContext<'_>, out: &mut String) {
    let start = out.len();
    text::format(value, element, context, out);
    let shown = &out[start..];
    let plain = !shown.is_empty()
        && !shown.eq_ignore_ascii_case("null")
        && !shown
            .bytes()
            .any(|b| matches!(b, b'"' | b'\\' | b'{' | b'}' | b',') || b.is_ascii_whitespace() || b == 0x0b);
    if !plain {
        let quoted = quote(shown);
        out.truncate(start);
        out.push_str(&quoted);
    }
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

impl ArrayValue {
    /// Offset of an element by its subscripts; `None` outside of the bounds or with another number
    /// of subscripts than dimensions.
    pub fn offset(&self, subscripts: &[i32]) -> Option<usize> {
        if subscripts.len() != self.dimensions.len() || subscripts.is_empty() {
            return None;
        }
        let mut offset = 0usize;
        for (subscript, (length, low)) in subscripts.iter().zip(&self.dimensions) {
            let index = usize::try_from(i64::from(*subscript) - i64::from(*low)).ok()?;
            if index >= *length {
                return None;
            }
            offset = offset * length + index;
        }
        Some(offset)
    }

    /// The element at subscripts, NULL if there is none.
    pub fn get(&self, subscripts: &[i32]) -> Datum {
        self.offset(subscripts).and_then(|offset| self.values.get(offset)).cloned().unwrap_or_default()
    }

    /// `array[a:b][c:d]`: the sub-array of elements within the bounds (missing ones are the array's
    /// own), with lower bounds 1; empty if there are none.
    pub fn slice(&self, ranges: &[(Option<i32>, Option<i32>)]) -> ArrayValue {
        let empty = ArrayValue { element: self.element, dimensions: Vec::new(), values: Vec::new() };
        if ranges.len() > self.dimensions.len() || self.dimensions.is_empty() {
            return empty;
        }
        let mut bounds = Vec::with_capacity(self.dimensions.len());
        for (index, (length, low)) in self.dimensions.iter().enumerate() {
            let (low, high) = (i64::from(*low), i64::from(*low) + *length as i64 - 1);
            let (from, to) = ranges.get(index).copied().unwrap_or((None, None));
            let from = from.map_or(low, i64::from).max(low);
            let to = to.map_or(high, i64::from).min(high);
            if from > to {
                return empty;
            }
            bounds.push(((from - low) as usize, (to - low) as usize));
        }
        let mut values = Vec::new();
        self.collect(&bounds, 0, &mut values);
        let dimensions = bounds.iter().map(|(from, to)| (to - from + 1, 1)).collect();
        ArrayValue { element: self.element, dimensions, values }
    }

    fn collect(&self, bounds: &[(usize, usize)], offset: usize, out: &mut Vec<Datum>) {
        let depth = self.dimensions.len() - bounds.len();
        let Some(((from, to), inner)) = bounds.split_first() else { return };
        let length = self.dimensions[depth].0;
        for index in *from..=*to {
            let at = offset * length + index;
            if inner.is_empty() {
                out.push(self.values.get(at).cloned().unwrap_or_default());
            } else {
                self.collect(inner, at, out);
            }
        }
    }

    /// `ARRAY[a, b]` of arrays: one more dimension. All must have the same dimensions.
    pub fn nest(element: Type, parts: &[Datum]) -> SqlResult<ArrayValue> {
        let mismatch = || {
            SqlError::new(
                SqlState::ARRAY_SUBSCRIPT,
                "multidimensional arrays must have array expressions with matching dimensions",
            )
        };
        let mut dimensions: Option<Vec<(usize, i32)>> = None;
        let mut values = Vec::new();
        for part in parts {
            let (own, elements) = match part {
                Datum::Array(array) => (array.dimensions.clone(), array.values.as_slice()),
                Datum::Null => (Vec::new(), &[][..]),
                _ => return Err(SqlError::internal("an array of arrays is made of something else")),
            };
            match &dimensions {
                None => dimensions = Some(own),
                Some(before) if *before != own => return Err(mismatch()),
                Some(_) => {}
            }
            values.extend_from_slice(elements);
        }
        let inner = dimensions.unwrap_or_default();
        if inner.is_empty() {
            return Ok(ArrayValue { element, dimensions: Vec::new(), values: Vec::new() });
        }
        if inner.len() >= MAX_DIMENSIONS {
            return Err(too_many_dimensions(inner.len() + 1));
        }
        let mut all = vec![(parts.len(), 1)];
        all.extend(inner);
        Ok(ArrayValue { element, dimensions: all, values })
    }
}

/// Blanks as the array syntax knows them: PostgreSQL's ASCII ones, not Unicode's.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}
