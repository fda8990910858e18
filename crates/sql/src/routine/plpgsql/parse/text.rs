//! Where expressions end, and parts of texts.

use super::Parser;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// Puts blanks around the two dots of a range, which would be taken for parts of numbers.
pub(super) fn spread_dots(text: &str) -> String {
    if !text.contains("..") {
        return text.to_string();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut before) = (text, ' ');
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\'' => quoted(rest, matches!(before, 'e' | 'E')),
            '"' => quoted(rest, false),
            '$' if !before.is_alphanumeric() && before != '_' => dollar_quoted(rest).unwrap_or(1),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '.' if rest.starts_with("..") => {
                out.push_str(" . . ");
                (rest, before) = (rest.get(2..).unwrap_or_default(), ' ');
                continue;
            }
            other => other.len_utf8(),
        };
        let (part, left) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        out.push_str(part);
        (rest, before) = (left, part.chars().next_back().unwrap_or(' '));
    }
    out
}

/// Length of the quoted text that something begins with; `escapes`: with backslashes.
fn quoted(text: &str, escapes: bool) -> usize {
    let quote = text.chars().next();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, next)) = chars.next() {
        if escapes && next == '\\' {
            chars.next();
        } else if Some(next) == quote && chars.next_if(|(_, twice)| Some(*twice) == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// Length of the text between dollars that something begins with, if it is one.
fn dollar_quoted(text: &str) -> Option<usize> {
    let end = 1 + text.get(1..)?.find('$')?;
    let (tag, name) = (text.get(..=end)?, text.get(1..end)?);
    let is_name = name.chars().all(|next| next.is_alphanumeric() || next == '_');
    if !is_name || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let close = text.get(tag.len()..)?.find(tag)?;
    Some(close + 2 * tag.len())
}

impl Parser {
    /// The text up to a word outside of parentheses and CASE … END.
    pub(super) fn until_word(&mut self, word: &str) -> SqlResult<String> {
        self.until_one(&[word], false)
    }

    pub(super) fn until_semicolon(&mut self) -> SqlResult<String> {
        self.until_one(&[], false)
    }

    pub(super) fn until_comma_or_semicolon(&mut self) -> SqlResult<String> {
        self.until_one(&[], true)
    }

    /// The text up to one of these words, a semicolon or (`comma`) a comma.
    pub(super) fn until_one(&mut self, words: &[&str], comma: bool) -> SqlResult<String> {
        let start = self.c.position();
        let (mut depth, mut cases) = (0usize, 0usize);
        while let Some(token) = self.c.peek() {
            let outside = depth == 0 && cases == 0;
            match token {
                Token::SemiColon => break,
                Token::Comma if comma && outside => break,
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                Token::Word(_) => {
                    let word = self.c.word();
                    match word.as_deref() {
                        Some(word) if outside && words.contains(&word) => break,
                        Some("case") => cases += 1,
                        Some("end") => cases = cases.saturating_sub(1),
                        _ => {}
                    }
                }
                _ => {}
            }
            self.c.advance();
        }
        if start == self.c.position() {
            return Err(match self.c.is_end() {
                true => self.c.syntax_error(),
                false => {
                    let near = self.c.text(start, start + 1);
                    let message = format!("missing expression at or near \"{near}\"");
                    SqlError::new(SqlState::SYNTAX_ERROR, message)
                }
            });
        }
        Ok(self.c.text(start, self.c.position()))
    }

    /// The text before the two dots of a range, behind which the cursor stands then; `None` if there are none.
    pub(super) fn until_range(&mut self) -> SqlResult<Option<String>> {
        let start = self.c.position();
        let mut depth = 0usize;
        while let Some(token) = self.c.peek() {
            match token {
                Token::SemiColon => break,
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                Token::Word(_) if depth == 0 && self.c.at_words("loop") => break,
                Token::Period if depth == 0 => {
                    let at = self.c.position();
                    self.c.advance();
                    if self.c.take_token(&Token::Period) {
                        return Ok(Some(self.c.text(start, at)));
                    }
                    continue;
                }
                _ => {}
            }
            self.c.advance();
        }
        Ok(None)
    }
}

/// The parts of a message between its `%`; `%%` stands for the character.
pub(super) fn message_parts(format: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = format.chars().peekable();
    while let Some(next) = chars.next() {
        if next == '%' && chars.peek() != Some(&'%') {
            parts.push(String::new());
            continue;
        }
        if next == '%' {
            chars.next();
        }
        if let Some(last) = parts.last_mut() {
            last.push(next);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::spread_dots;

    #[test]
    fn dots_are_spread_where_they_are_no_text() {
        for (text, wanted) in [
            ("1..n", "1 . . n"),
            ("'a..b' ..", "'a..b'  . . "),
            ("'it''s..' ..", "'it''s..'  . . "),
            (r"E'it\'s..' ..", r"E'it\'s..'  . . "),
            ("\"a..b\"..", "\"a..b\" . . "),
            ("$$a..b$$..$1", "$$a..b$$ . . $1"),
            ("$q$'..$q$..", "$q$'..$q$ . . "),
            ("$1..$2", "$1 . . $2"),
            ("-- ..\n..", "-- ..\n . . "),
            ("/*..*/..", "/*..*/ . . "),
            ("'..", "'.."),
        ] {
            assert_eq!(spread_dots(text), wanted, "{text}");
        }
    }
}
