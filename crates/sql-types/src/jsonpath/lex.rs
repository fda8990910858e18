//! The tokens of jsonpath.

use crate::error::{SqlError, SqlResult, SqlState};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name without quotes: a key or a keyword.
    Word(String),
    /// A string in double quotes.
    String(String),
    /// `$name` or `$"name"`
    Variable(String),
    /// A number without sign.
    Number(String),
    /// An operator or bracket.
    Symbol(&'static str),
}

const SYMBOLS: [&str; 28] = [
    "&&", "||", "==", "!=", "<>", "<=", ">=", "**", "$", "@", ".", "*", "[", "]", "(", ")", "{", "}", "?",
    ",", "+", "-", "/", "%", "<", ">", "!", "=",
];

/// `42601` at a place of the text.
pub(super) fn syntax(found: Option<&str>) -> SqlError {
    let message = match found {
        Some(found) => format!("syntax error at or near \"{found}\" of jsonpath input"),
        None => "syntax error at end of jsonpath input".to_string(),
    };
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("{message} of jsonpath input"))
}

/// Splits an expression; each token with where it starts.
pub(super) fn tokens(text: &str) -> SqlResult<Vec<(Token, usize)>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

/// Whether a character can be part of a name.
fn is_name(c: char) -> bool {
    !(c.is_ascii_whitespace() || "?%$.[]{}()|&!=<>@#,*:-+/\"\\".contains(c))
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_blanks(&mut self) -> SqlResult<()> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
            self.at += rest.len() - trimmed.len();
            if !self.rest().starts_with("/*") {
                return Ok(());
            }
            let end = self.rest().find("*/").ok_or_else(|| invalid("unexpected end of comment at end"))?;
            self.at += end + 2;
        }
    }

    fn next(&mut self) -> SqlResult<Option<(Token, usize)>> {
        self.skip_blanks()?;
        let start = self.at;
        let Some(first) = self.peek() else { return Ok(None) };
        let second = self.rest().chars().nth(1);
        let token = match first {
            '"' => Token::String(self.string()?),
            '$' if second == Some('"') => {
                self.at += 1;
                Token::Variable(self.string()?)
            }
            '$' if second.is_some_and(|c| is_name(c) || c == '\\') => {
                self.at += 1;
                Token::Variable(self.name()?)
            }
            '0'..='9' => Token::Number(self.number()?),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => Token::Number(self.number()?),
            c if is_name(c) || c == '\\' => Token::Word(self.name()?),
            _ => {
                let found = SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol));
                let symbol = found.ok_or_else(|| syntax(Some(&first.to_string())))?;
                self.at += symbol.len();
                Token::Symbol(symbol)
            }
        };
        Ok(Some((token, start)))
    }

    fn name(&mut self) -> SqlResult<String> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            if c == '\\' {
                self.escape(&mut name)?;
            } else if is_name(c) {
                name.push(c);
                self.at += c.len_utf8();
            } else {
                break;
            }
        }
        Ok(name)
    }

    fn number(&mut self) -> SqlResult<String> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |at: &mut usize| {
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
        };
        let mut at = start;
        digits(&mut at);
        let leading_zero = at > start + 1 && bytes[start] == b'0';
        if bytes.get(at) == Some(&b'.') && bytes.get(at + 1) != Some(&b'*') {
            at += 1;
            digits(&mut at);
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let mut exponent = at + 1;
            if matches!(bytes.get(exponent), Some(b'+' | b'-')) {
                exponent += 1;
            }
            let from = exponent;
            digits(&mut exponent);
            if exponent > from {
                at = exponent;
            }
        }
        self.at = at;
        if leading_zero || self.peek().is_some_and(|c| is_name(c) || c == '\\') {
            return Err(invalid(&format!(
                "trailing junk after numeric literal at or near \"{}\"",
                &self.text[start..]
            )));
        }
        Ok(self.text[start..at].to_string())
    }

    fn string(&mut self) -> SqlResult<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            match self.peek() {
                None => return Err(invalid("unterminated quoted string at end")),
                Some('"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some('\\') => self.escape(&mut out)?,
                Some(c) => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> SqlResult<()> {
        let Some(c) = self.rest().chars().nth(1) else {
            return Err(invalid("unexpected end after backslash at end"));
        };
        self.at += 1 + c.len_utf8();
        match c {
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            'x' => {
                let code = self.hex(2).ok_or_else(|| invalid("invalid hexadecimal character sequence"))?;
                self.push_code(code, out)?;
            }
            'u' => {
                let code = self.unicode()?;
                self.push_code(code, out)?;
            }
            other => out.push(other),
        }
        Ok(())
    }

    fn push_code(&self, code: u32, out: &mut String) -> SqlResult<()> {
        if code == 0 {
            return Err(SqlError::new(SqlState::UNTRANSLATABLE, "unsupported Unicode escape sequence")
                .with_detail("\\u0000 cannot be converted to text."));
        }
        out.push(char::from_u32(code).ok_or_else(|| invalid("invalid Unicode escape sequence"))?);
        Ok(())
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text = self.text.get(self.at..self.at + digits)?;
        let code =
            text.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(text, 16).ok())??;
        self.at += digits;
        Some(code)
    }

    /// What follows `\u`: four digits, perhaps with the other half of a surrogate pair, or `{…}`.
    fn unicode(&mut self) -> SqlResult<u32> {
        let wrong = || invalid("invalid Unicode escape sequence");
        if let Some(rest) = self.rest().strip_prefix('{') {
            let length = rest.find('}').filter(|length| (1..=6).contains(length)).ok_or_else(wrong)?;
            self.at += 1;
            let code = self.hex(length).ok_or_else(wrong)?;
            self.at += 1;
            return Ok(code);
        }
        let high = self.hex(4).ok_or_else(wrong)?;
        if !(0xd800..0xdc00).contains(&high) {
            return Ok(high);
        }
        if !self.rest().starts_with("\\u") {
            return Err(wrong());
        }
        self.at += 2;
        let low = self.hex(4).filter(|low| (0xdc00..0xe000).contains(low)).ok_or_else(wrong)?;
        Ok(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    }
}
