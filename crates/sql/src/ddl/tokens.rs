//! A cursor over the tokens of a statement, from which utility statements are read.
//!
//! Expressions, types and queries inside of them are taken as text, to be parsed by [`crate::parse`]
//! when they are bound: that is also how they are stored.

use crate::bind::ident_name;
use crate::parse::Source;
use crate::system::is_column_name;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{ArrayElemTypeDef, DataType, Ident};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// How deep the parser of an expression may recurse; nesting was bounded when the statement was parsed.
const PARSER_DEPTH: usize = 400;

/// A possibly qualified name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub schema: Option<String>,
    pub name: String,
    pub position: Option<u32>,
}

impl Name {
    /// As it is written, without quotes.
    pub(crate) fn written(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// A cursor over the tokens of one statement.
pub(crate) struct Cursor {
    source: Source,
    tokens: Vec<TokenWithSpan>,
    at: usize,
}

impl Cursor {
    /// A cursor at the beginning of a statement's text.
    pub(crate) fn new(text: &str) -> SqlResult<Cursor> {
        let source = Source::new(text);
        let dialect = PostgreSqlDialect {};
        let mut tokens = Tokenizer::new(&dialect, text)
            .tokenize_with_location()
            .map_err(|error| SqlError::new(SqlState::SYNTAX_ERROR, error.message))?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        Ok(Cursor { source, tokens, at: 0 })
    }

    pub(crate) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.token)
    }

    fn peek_at(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|token| &token.token)
    }

    pub(crate) fn is_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(crate) fn advance(&mut self) {
        self.at += 1;
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn rewind(&mut self, position: usize) {
        self.at = position;
    }

    fn word_at(&self, ahead: usize) -> Option<String> {
        match self.peek_at(ahead)? {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
            _ => None,
        }
    }

    /// The unquoted word here, in lower case.
    pub(crate) fn word(&self) -> Option<String> {
        self.word_at(0)
    }

    /// Whether these words (lower case, separated by blanks) come next.
    pub(crate) fn at_words(&self, words: &str) -> bool {
        words.split(' ').enumerate().all(|(ahead, word)| self.word_at(ahead).as_deref() == Some(word))
    }

    /// Takes these words if they come next.
    pub(crate) fn take(&mut self, words: &str) -> bool {
        let found = self.at_words(words);
        if found {
            self.at += words.split(' ').count();
        }
        found
    }

    /// Takes these words, or fails.
    pub(crate) fn expect(&mut self, words: &str) -> SqlResult<()> {
        if self.take(words) { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// Takes one of these words and says which.
    pub(crate) fn take_one<'w>(&mut self, words: &[&'w str]) -> Option<&'w str> {
        words.iter().copied().find(|word| self.take(word))
    }

    pub(crate) fn take_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.at += 1;
        }
        found
    }

    pub(crate) fn expect_token(&mut self, token: &Token) -> SqlResult<()> {
        if self.take_token(token) { Ok(()) } else { Err(self.syntax_error()) }
    }

    pub(crate) fn expect_end(&self) -> SqlResult<()> {
        if self.is_end() { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// The position of the next token in characters.
    pub(crate) fn here(&self) -> Option<u32> {
        self.source.position(self.tokens.get(self.at)?.span.start)
    }

    /// `syntax error at or near …` at the next token.
    pub(crate) fn syntax_error(&self) -> SqlError {
        match self.tokens.get(self.at) {
            None => {
                let end = self.source.text().chars().count() + 1;
                SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(end as u32)
            }
            Some(token) => {
                let text = self.source.between(token.span.start, token.span.end);
                let text = text.map_or_else(|| token.token.to_string(), str::to_string);
                let error =
                    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{text}\""));
                match self.here() {
                    Some(position) => error.at(position),
                    None => error,
                }
            }
        }
    }

    /// An identifier.
    pub(crate) fn ident(&mut self) -> SqlResult<String> {
        match self.peek() {
            Some(Token::Word(word)) if word.value.is_empty() => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier"))
            }
            Some(Token::Word(word)) => {
                let ident = Ident {
                    value: word.value.clone(),
                    quote_style: word.quote_style,
                    span: sqlparser::tokenizer::Span::empty(),
                };
                self.at += 1;
                Ok(ident_name(&ident).into_owned())
            }
            _ => Err(self.syntax_error()),
        }
    }

    /// An identifier that names a column or table, which unquoted is no reserved word.
    pub(crate) fn column_ident(&mut self) -> SqlResult<String> {
        if let Some(Token::Word(word)) = self.peek()
            && word.quote_style.is_none()
            && !is_column_name(&word.value.to_ascii_lowercase())
        {
            return Err(self.syntax_error());
        }
        self.ident()
    }

    /// A name with at most a schema and a database in front.
    pub(crate) fn name(&mut self) -> SqlResult<Name> {
        let position = self.here();
        let mut parts = vec![self.column_ident()?];
        while self.take_token(&Token::Period) {
            parts.push(self.ident()?);
        }
        if parts.len() > 3 {
            let message = format!("improper qualified name (too many dotted names): {}", parts.join("."));
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let name = parts.pop().unwrap_or_default();
        Ok(Name { schema: parts.pop(), name, position })
    }

    /// `column`, `table.column` or `schema.table.column`.
    pub(crate) fn column_name(&mut self) -> SqlResult<(Option<Name>, String)> {
        let position = self.here();
        let mut parts = vec![self.ident()?];
        while self.take_token(&Token::Period) {
            parts.push(self.ident()?);
        }
        let column = parts.pop().unwrap_or_default();
        let table = parts.pop();
        Ok((table.map(|name| Name { schema: parts.pop(), name, position }), column))
    }

    /// Names separated by commas.
    pub(crate) fn names(&mut self) -> SqlResult<Vec<Name>> {
        let mut names = vec![self.name()?];
        while self.take_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    /// `(a, b, …)`
    pub(crate) fn ident_list(&mut self) -> SqlResult<Vec<String>> {
        self.expect_token(&Token::LParen)?;
        let mut list = vec![self.column_ident()?];
        while self.take_token(&Token::Comma) {
            list.push(self.column_ident()?);
        }
        self.expect_token(&Token::RParen)?;
        Ok(list)
    }

    /// A string constant.
    pub(crate) fn string(&mut self) -> SqlResult<String> {
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            _ => return Err(self.syntax_error()),
        };
        self.at += 1;
        Ok(text)
    }

    pub(crate) fn at_string(&self) -> bool {
        matches!(
            self.peek(),
            Some(
                Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) | Token::DollarQuotedString(_)
            )
        )
    }

    /// A possibly negative number, as text.
    pub(crate) fn number(&mut self) -> SqlResult<String> {
        let start = self.at;
        let negative = self.take_token(&Token::Minus);
        if !negative {
            self.take_token(&Token::Plus);
        }
        match self.peek() {
            Some(Token::Number(text, _)) => {
                let text = if negative { format!("-{text}") } else { text.clone() };
                self.at += 1;
                Ok(text)
            }
            _ => {
                self.at = start;
                Err(self.syntax_error())
            }
        }
    }

    pub(crate) fn integer(&mut self) -> SqlResult<i64> {
        let error = self.syntax_error();
        self.number()?.parse().map_err(|_| error)
    }

    fn start(&self, index: usize) -> Option<Location> {
        self.tokens.get(index).map(|token| token.span.start)
    }

    /// The text of the tokens from one index to before another.
    pub(crate) fn text(&self, from: usize, to: usize) -> String {
        let (Some(start), Some(last)) =
            (self.start(from), to.checked_sub(1).and_then(|last| self.tokens.get(last)))
        else {
            return String::new();
        };
        self.source.between(start, last.span.end).unwrap_or_default().to_string()
    }

    /// Everything that is left, as text.
    pub(crate) fn rest(&mut self) -> String {
        let text = self.text(self.at, self.tokens.len());
        self.at = self.tokens.len();
        text
    }

    fn with_parser<T>(
        &mut self,
        parse: impl FnOnce(&mut Parser<'_>) -> Result<T, sqlparser::parser::ParserError>,
    ) -> SqlResult<(T, String)> {
        const DIALECT: PostgreSqlDialect = PostgreSqlDialect {};
        let rest = self.tokens.get(self.at..).unwrap_or_default().to_vec();
        let mut parser =
            Parser::new(&DIALECT).with_recursion_limit(PARSER_DEPTH).with_tokens_with_locations(rest);
        let parsed = parse(&mut parser);
        let taken = parser.index();
        match parsed {
            Ok(value) => {
                let text = self.text(self.at, self.at + taken);
                self.at += taken;
                Ok((value, text))
            }
            Err(_) => {
                self.at = (self.at + taken.saturating_sub(1)).min(self.tokens.len());
                Err(self.syntax_error())
            }
        }
    }

    /// An expression, as text.
    pub(crate) fn expr(&mut self) -> SqlResult<String> {
        self.with_parser(|parser| parser.parse_expr()).map(|(_, text)| text)
    }

    /// An expression as DEFAULT takes it: `IS`, `NOT`, `AND` and `OR` only in parentheses, since a
    /// constraint such as NOT NULL may follow.
    pub(crate) fn default_expr(&mut self) -> SqlResult<String> {
        let is = PostgreSqlDialect {}.prec_value(Precedence::Is);
        self.with_parser(|parser| parser.parse_subexpr(is)).map(|(_, text)| text)
    }

    /// A type; an array of it may be written with the word ARRAY.
    pub(crate) fn data_type(&mut self) -> SqlResult<DataType> {
        let (ty, _) = self.with_parser(|parser| parser.parse_data_type())?;
        let array = self.take("array");
        if array && self.take_token(&Token::LBracket) {
            // The size says nothing.
            self.advance();
            self.expect_token(&Token::RBracket)?;
        }
        Ok(if array { DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(ty), None)) } else { ty })
    }

    /// `( … )` with anything inside: its text without the parentheses.
    pub(crate) fn parenthesized(&mut self) -> SqlResult<String> {
        self.expect_token(&Token::LParen)?;
        let start = self.at;
        let mut depth = 1;
        while let Some(token) = self.peek() {
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let text = self.text(start, self.at);
                self.at += 1;
                return Ok(text);
            }
            self.at += 1;
        }
        Err(self.syntax_error())
    }
}

/// A name as SQL text, quoted where it must be.
pub(crate) fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'$')
        && !crate::system::is_reserved_word(name);
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A string constant as SQL text.
pub(crate) fn quote_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}
