//! `to_char` and `to_number` of numbers.
//!
//! Missing: `RN`, `V` with `to_number`, and locales (`L`, `G` and `D` are those of the C locale).

use super::Function;
use super::args::{self, imm};
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use crate::types::Type as T;

/// An element of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// `9`, or `0` that is always shown.
    Digit {
        zero: bool,
    },
    Comma,
    Point,
    Sign(SignKind),
    Currency,
    Ordinal {
        upper: bool,
    },
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignKind {
    /// `S`: a sign always.
    Always,
    /// `MI`: a minus, or a blank.
    Minus,
    /// `PL`: a plus, or a blank.
    Plus,
    /// `SG`: plus or minus in this place.
    Here,
    /// `PR`: angle brackets around negative numbers.
    Brackets,
}

#[derive(Default)]
struct Template {
    nodes: Vec<Node>,
    fill: bool,
    /// Digits before and after the point.
    before: usize,
    after: usize,
    /// `V`: digits the number is shifted by.
    shift: usize,
    exponent: bool,
    roman: bool,
    has_point: bool,
}

fn syntax(message: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

fn parse(template: &str) -> SqlResult<Template> {
    let mut out = Template { fill: true, ..Template::default() };
    let mut rest = template;
    let mut shifting = false;
    let strip =
        |rest: &str, word: &str| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    while let Some(c) = rest.chars().next() {
        let mut used = c.len_utf8();
        let literal = |nodes: &mut Vec<Node>, text: &str| match nodes.last_mut() {
            Some(Node::Text(before)) => before.push_str(text),
            _ => nodes.push(Node::Text(text.to_string())),
        };
        if strip(rest, "FM") {
            out.fill = false;
            used = 2;
        } else if strip(rest, "EEEE") {
            out.exponent = true;
            used = 4;
        } else if strip(rest, "MI") || strip(rest, "PL") || strip(rest, "SG") || strip(rest, "PR") {
            let kind = match rest[..2].to_ascii_uppercase().as_str() {
                "MI" => SignKind::Minus,
                "PL" => SignKind::Plus,
                "SG" => SignKind::Here,
                _ => SignKind::Brackets,
            };
            out.nodes.push(Node::Sign(kind));
            used = 2;
        } else if strip(rest, "RN") {
            out.roman = true;
            used = 2;
        } else if strip(rest, "TH") {
            out.nodes.push(Node::Ordinal { upper: rest.starts_with('T') });
            used = 2;
        } else {
            match c {
                '9' | '0' => {
                    if shifting {
                        out.shift += 1;
                    } else if out.has_point {
                        out.after += 1;
                    } else {
                        out.before += 1;
                    }
                    out.nodes.push(Node::Digit { zero: c == '0' });
                }
                '.' | 'D' | 'd' => {
                    if out.has_point {
                        return Err(syntax("multiple decimal points"));
                    }
                    out.has_point = true;
                    out.nodes.push(Node::Point);
                }
                ',' | 'G' | 'g' => out.nodes.push(Node::Comma),
                'V' | 'v' => shifting = true,
                'S' | 's' => {
                    if out.nodes.iter().any(|node| matches!(node, Node::Sign(_))) {
                        return Err(syntax("cannot use \"S\" twice"));
                    }
                    out.nodes.push(Node::Sign(SignKind::Always));
                }
                'L' | 'l' => out.nodes.push(Node::Currency),
                'B' | 'b' => {}
                '"' => {
                    let body = &rest[1..];
                    let end = body.find('"').unwrap_or(body.len());
                    literal(&mut out.nodes, &body[..end]);
                    used = (end + 2).min(rest.len());
                }
                '\\' if rest.len() > 1 => {
                    let next = rest[1..].chars().next().unwrap_or('\\');
                    literal(&mut out.nodes, next.encode_utf8(&mut [0; 4]));
                    used = 1 + next.len_utf8();
                }
                c => literal(&mut out.nodes, c.encode_utf8(&mut [0; 4])),
            }
        }
        rest = &rest[used..];
    }
    Ok(out)
}

fn roman(value: i64) -> Option<String> {
    const PARTS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4000).contains(&value) {
        return None;
    }
    let mut rest = value;
    let mut out = String::new();
    for (size, letters) in PARTS {
        while rest >= size {
            out.push_str(letters);
            rest -= size;
        }
    }
    Some(out)
}

fn to_char(number: &Numeric, template: &str) -> SqlResult<String> {
    let format = parse(template)?;
    if format.roman {
        let text = number.to_i64().and_then(roman).unwrap_or_else(|| "#".repeat(15));
        return Ok(if format.fill { format!("{text:>15}") } else { text });
    }
    if format.exponent {
        return scientific(number, &format);
    }
    let shifted = match format.shift {
        0 => number.clone(),
        shift => number.mul(&Numeric::from(10i64.checked_pow(shift as u32).unwrap_or(1)))?,
    };
    let rounded = shifted.round(format.after as i32)?;
    let negative = rounded.signum() < 0 && rounded.is_finite();
    let before = format.before + format.shift;
    let (mut whole, fraction) = match rounded.abs().to_string().split_once('.') {
        Some((whole, fraction)) => (whole.to_string(), fraction.to_string()),
        None => (rounded.abs().to_string(), String::new()),
    };
    if whole == "0" && (format.after > 0 || before == 0) {
        whole.clear();
    }
    let too_long = !rounded.is_finite() || whole.len() > before;
    let digits: Vec<char> = if too_long {
        vec!['#'; before + format.after]
    } else {
        let mut digits = vec![' '; before - whole.len()];
        digits.extend(whole.chars());
        digits.extend(fraction.chars());
        digits
    };
    Ok(Layout { format: &format, digits, before, negative, too_long, whole: &whole }.write())
}

struct Layout<'a> {
    format: &'a Template,
    /// One for each place; a blank where the number has none.
    digits: Vec<char>,
    before: usize,
    negative: bool,
    too_long: bool,
    whole: &'a str,
}

impl Layout<'_> {
    fn write(&self) -> String {
        let nodes = &self.format.nodes;
        let sign = nodes.iter().find_map(|node| match node {
            Node::Sign(kind) => Some(*kind),
            _ => None,
        });
        // Zeros begin at the first `0` of the template, or at the first digit of the number.
        let first_zero = nodes
            .iter()
            .filter(|node| matches!(node, Node::Digit { .. }))
            .position(|node| *node == Node::Digit { zero: true });
        let first_digit = self.digits.iter().position(|digit| *digit != ' ').unwrap_or(self.before);
        let start = first_zero.unwrap_or(usize::MAX).min(first_digit).min(self.before);
        let last_zero = nodes
            .iter()
            .filter(|node| matches!(node, Node::Digit { .. }))
            .collect::<Vec<_>>()
            .iter()
            .rposition(|node| **node == Node::Digit { zero: true });
        // Without filling, trailing zeros after the point go, as far as the template allows.
        let mut end = self.digits.len();
        if !self.format.fill && !self.too_long {
            while end > self.before
                && self.digits[end - 1] == '0'
                && last_zero.is_none_or(|zero| end - 1 > zero)
            {
                end -= 1;
            }
        }
        let anchored = matches!(sign, None | Some(SignKind::Always | SignKind::Brackets | SignKind::Plus));
        let sign_first = nodes
            .iter()
            .position(|node| *node == Node::Sign(SignKind::Always))
            .is_some_and(|at| nodes[at..].iter().any(|node| matches!(node, Node::Digit { .. })));
        let mut out = String::new();
        let mut sign_written = false;
        let put_sign = |out: &mut String| {
            let shown = match sign {
                None | Some(SignKind::Plus) => Some(if self.negative { '-' } else { ' ' }),
                Some(SignKind::Always) if sign_first => Some(if self.negative { '-' } else { '+' }),
                Some(SignKind::Brackets) => Some(if self.negative { '<' } else { ' ' }),
                _ => None,
            };
            match shown {
                Some(' ') if !self.format.fill => {}
                Some(c) => out.push(c),
                None => {}
            }
        };
        let mut place = 0;
        for node in nodes {
            match node {
                Node::Digit { .. } => {
                    if place >= start && !sign_written && anchored {
                        put_sign(&mut out);
                        sign_written = true;
                    }
                    let digit = self.digits.get(place).copied().unwrap_or('0');
                    let bare_zero = !self.format.fill
                        && place + 1 == self.before
                        && end == self.before
                        && self.format.has_point
                        && self.whole.is_empty();
                    if place < start && bare_zero {
                        put_sign(&mut out);
                        sign_written = true;
                        out.push('0');
                    } else if place < start {
                        if self.format.fill {
                            out.push(' ');
                        }
                    } else if place < end {
                        out.push(if digit == ' ' { '0' } else { digit });
                    }
                    place += 1;
                }
                Node::Comma => {
                    if place > start || (place == start && first_zero.is_some_and(|zero| zero < place)) {
                        out.push(',');
                    } else if self.format.fill {
                        out.push(' ');
                    }
                }
                Node::Point => {
                    if !sign_written && anchored {
                        put_sign(&mut out);
                        sign_written = true;
                    }
                    if self.format.fill || self.format.after > 0 || self.too_long {
                        out.push('.');
                    }
                }
                Node::Sign(SignKind::Minus) => match (self.negative, self.format.fill) {
                    (true, _) => out.push('-'),
                    (false, true) => out.push(' '),
                    _ => {}
                },
                Node::Sign(SignKind::Plus) => match (self.negative, self.format.fill) {
                    (false, _) => out.push('+'),
                    (true, true) => out.push(' '),
                    _ => {}
                },
                Node::Sign(SignKind::Here) => out.push(if self.negative { '-' } else { '+' }),
                Node::Sign(SignKind::Always) if !sign_first => {
                    out.push(if self.negative { '-' } else { '+' })
                }
                Node::Sign(SignKind::Brackets) => match (self.negative, self.format.fill) {
                    (true, _) => out.push('>'),
                    (false, true) => out.push(' '),
                    _ => {}
                },
                Node::Sign(SignKind::Always) => {}
                Node::Currency if self.format.fill => out.push(' '),
                Node::Currency => {}
                Node::Ordinal { upper } => {
                    if !self.negative && !self.too_long && self.format.after == 0 {
                        let value: i64 = self.whole.parse().unwrap_or(0);
                        let suffix = match (value % 100, value % 10) {
                            (11..=13, _) => "th",
                            (_, 1) => "st",
                            (_, 2) => "nd",
                            (_, 3) => "rd",
                            _ => "th",
                        };
                        out.push_str(&if *upper { suffix.to_uppercase() } else { suffix.to_string() });
                    }
                }
                Node::Text(text) => out.push_str(text),
            }
        }
        out
    }
}

fn scientific(number: &Numeric, format: &Template) -> SqlResult<String> {
    if !number.is_finite() {
        let width = format.before + format.after + 5;
        return Ok(format!(
            " {}.{}",
            "#".repeat(format.before),
            "#".repeat(width.saturating_sub(format.before))
        ));
    }
    let text = number.abs().to_string();
    let digits: String = text.chars().filter(|c| *c != '.').collect();
    let point = text.find('.').unwrap_or(text.len()) as i32;
    let first = digits.find(|c| c != '0');
    let mut exponent = first.map_or(0, |first| point - 1 - first as i32);
    let mantissa = |exponent: i32| -> SqlResult<Numeric> {
        let scaled = Numeric::parse(&format!("{text}e{}", -exponent))?;
        scaled.round(format.after as i32)
    };
    let mut value = mantissa(exponent)?;
    if value >= Numeric::from(10) {
        exponent += 1;
        value = mantissa(exponent)?;
    }
    let sign = if number.signum() < 0 {
        "-"
    } else if format.fill {
        " "
    } else {
        ""
    };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    Ok(format!("{sign}{value}e{exponent_sign}{:02}", exponent.abs()))
}

fn to_number(text: &str, template: &str) -> SqlResult<Datum> {
    parse(template)?;
    let mut out = String::new();
    let mut negative = false;
    let mut pattern = template.to_ascii_uppercase();
    if let Some(rest) = pattern.strip_prefix("FM") {
        pattern = rest.to_string();
    }
    let after_point = pattern.split(['.', 'D']).nth(1).map(|tail| tail.matches(['9', '0']).count());
    let whole_digits = pattern.split(['.', 'D']).next().map_or(0, |head| head.matches(['9', '0']).count());
    let mut seen_point = false;
    let mut fraction = 0;
    for c in text.chars() {
        match c {
            '-' | '<' => negative = true,
            '0'..='9' => {
                if seen_point {
                    if after_point.is_some_and(|limit| fraction >= limit) {
                        break;
                    }
                    fraction += 1;
                } else if out.len() >= whole_digits {
                    break;
                }
                out.push(c);
            }
            '.' if !seen_point && after_point.is_some() => {
                seen_point = true;
                out.push('.');
            }
            '.' => break,
            _ => {}
        }
    }
    if out.is_empty() || out == "." {
        return Err(SqlError::new(
            SqlState::INVALID_TEXT,
            format!("invalid input syntax for type numeric: \"{text}\""),
        ));
    }
    let number = Numeric::parse(&out)?;
    Ok(Datum::Numeric(if negative { number.neg() } else { number }))
}

fn shown(number: &Numeric, args: &[Datum]) -> SqlResult<Datum> {
    Ok(Datum::text(to_char(number, args::text(args, 1)?)?))
}

pub(super) static TABLE: &[Function] = &[
    imm("to_char", &[T::INT4, T::TEXT], T::TEXT, |_, a| shown(&Numeric::from(args::int4(a, 0)?), a)).stable(),
    imm("to_char", &[T::INT8, T::TEXT], T::TEXT, |_, a| shown(&Numeric::from(args::int8(a, 0)?), a)).stable(),
    imm("to_char", &[T::NUMERIC, T::TEXT], T::TEXT, |_, a| shown(args::numeric(a, 0)?, a)).stable(),
    imm("to_char", &[T::FLOAT8, T::TEXT], T::TEXT, |_, a| shown(&Numeric::from_f64(args::float8(a, 0)?)?, a))
        .stable(),
    imm("to_char", &[T::FLOAT4, T::TEXT], T::TEXT, |_, a| shown(&Numeric::from_f32(args::float4(a, 0)?)?, a))
        .stable(),
    imm("to_number", &[T::TEXT, T::TEXT], T::NUMERIC, |_, a| to_number(args::text(a, 0)?, args::text(a, 1)?))
        .stable(),
];
