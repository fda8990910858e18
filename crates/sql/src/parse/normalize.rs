//! Statements with their constants taken out, so that those that differ in nothing else are one.

use super::source::Cursor;
use super::{Source, tokenize};
use sqlparser::tokenizer::Token;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Most of a statement's text that is kept, in bytes.
const LONGEST: usize = 4096;

/// What a statement has in common with those that differ in constants, blanks and comments only.
#[derive(Clone, Debug)]
pub struct Normalized {
    /// A hash of the tokens, the same in every process of one build.
    pub id: i64,
    /// The text with `$n` for each constant, counted on from the parameters, cut after 4 KiB.
    pub text: Arc<str>,
}

/// Normalizes a statement whose highest parameter has this number.
pub(super) fn normalize(text: &str, parameters: usize) -> Normalized {
    let source = Source::new(text);
    let mut hasher = DefaultHasher::new();
    let mut shown = String::with_capacity(text.len().min(LONGEST));
    let mut next = parameters;
    let mut cursor = Cursor::new(&source);
    let mut behind = 0;
    for token in tokenize(&source).unwrap_or_default() {
        let (Some(start), Some(end)) = (cursor.byte(token.span.start), cursor.byte(token.span.end)) else {
            continue;
        };
        if start > behind && !shown.is_empty() {
            shown.push(' ');
        }
        behind = end;
        if is_constant(&token.token) {
            next += 1;
            "$".hash(&mut hasher);
            // Writing to a string does not fail.
            let _ = write!(shown, "${next}");
        } else {
            match &token.token {
                Token::Word(word) if word.quote_style.is_none() => {
                    word.value.to_lowercase().hash(&mut hasher);
                }
                other => other.to_string().hash(&mut hasher),
            }
            if shown.len() < LONGEST {
                shown.push_str(text.get(start..end).unwrap_or_default());
            }
        }
        if shown.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|end| shown.is_char_boundary(*end)).unwrap_or(0);
            shown.truncate(end);
        }
    }
    Normalized { id: hasher.finish().cast_signed(), text: shown.into() }
}

fn is_constant(token: &Token) -> bool {
    matches!(
        token,
        Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DollarQuotedString(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_blanks_make_no_difference() {
        let alike = [
            (
                "select a from t where b = 1",
                "SELECT  a FROM t /* x */ where b='it''s'",
                "select a from t where b = $1",
            ),
            ("select $1, 2, 'x'", "select $1,2 , E'\\n'", "select $1, $2, $3"),
            ("set a = 'x'", "set a = 5", "set a = $1"),
        ];
        for (one, other, shown) in alike {
            let parameters = usize::from(one.contains("$1"));
            let (first, second) = (normalize(one, parameters), normalize(other, parameters));
            assert_eq!((first.id, &*first.text), (second.id, shown), "{one} and {other}");
        }
        for (one, other) in
            [("select a", "select b"), ("select a", "select \"A\""), ("select 1", "select 1, 2")]
        {
            assert_ne!(normalize(one, 0).id, normalize(other, 0).id, "{one} and {other}");
        }
        let long = format!("select {}", "'ä', aä, ".repeat(10_000));
        assert!(normalize(&long, 0).text.len() <= LONGEST);
    }
}
