//! Text to statements.
//!
//! [`parse`] splits a query string into statements, parses each with `sqlparser`'s PostgreSQL
//! dialect, and says of which kind it is. Forms of PostgreSQL's that `sqlparser` lacks are rewritten
//! in the token stream first ([`rewrite`], [`clauses`], [`targets`], [`joins`]), with names for what it has no place for ([`markers`]); a utility statement it cannot parse at all is passed on as
//! its tokens ([`Ast::Tokens`]) for the catalog code to try.
//!
//! # Rules
//!
//! * No text can exhaust the stack: nesting is bounded before parsing ([`MAX_NESTING`],
//!   [`MAX_CHAIN`]), a deeper statement fails with 54001.
//! * Errors carry PostgreSQL's words and the position in characters in the whole query string.
//! * Statements `sqlparser` knows from other databases (`USE`, `PRAGMA`, `SHOW TABLES`) are syntax
//!   errors here.
//!
//! # What is missing
//!
//! `SEARCH` and `CYCLE`, `TABLESAMPLE`, JSON_TABLE and XML.

mod as_of;
mod classify;
mod clauses;
mod dialect;
mod error;
mod joins;
mod limits;
pub(crate) mod markers;
mod normalize;
mod rewrite;
mod source;
mod targets;
#[cfg(test)]
mod tests;

use dialect::Postgres;

pub use as_of::AsOf;
pub use classify::StatementKind;
pub use limits::{MAX_CHAIN, MAX_NESTING};
pub use normalize::Normalized;
pub use source::Source;
pub(crate) use targets::subscripted;

use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};
use std::sync::{Arc, OnceLock};

/// Longest query string taken, in bytes.
pub const MAX_TEXT: usize = 64 << 20;

/// How deep the parser itself may recurse; nesting is bounded before.
const PARSER_DEPTH: usize = 4 * MAX_NESTING;

/// What was parsed.
#[derive(Clone, Debug)]
pub enum Ast {
    /// A statement.
    Sql(Box<ast::Statement>),
    /// The tokens (without blanks and comments) of a utility statement that `sqlparser` does not
    /// know, and the error to report if nobody else does either.
    Tokens(Vec<Token>, SqlError),
}

/// One statement of a query string.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its text, without the semicolon.
    pub text: Arc<str>,
    /// The query string it was part of, to which positions refer.
    pub source: Source,
    /// Its kind.
    pub kind: StatementKind,
    /// What it says.
    pub ast: Ast,
    /// Markers that the AST has no place for.
    pub marks: Marks,
    /// When a query reads, if it says so.
    pub as_of: Option<Arc<AsOf>>,
    /// Number of the highest parameter (`$n`).
    pub parameters: usize,
    normalized: OnceLock<Normalized>,
}

/// What [`rewrite`] took out of the token stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `OVERRIDING SYSTEM VALUE` (`Some(true)`) or `OVERRIDING USER VALUE` of an INSERT.
    pub overriding: Option<bool>,
    /// `DEFERRABLE` of a transaction.
    pub deferrable: bool,
}

impl Statement {
    /// What it has in common with statements that differ in constants only.
    pub fn normalized(&self) -> &Normalized {
        self.normalized.get_or_init(|| normalize::normalize(&self.text, self.parameters))
    }

    /// The AST, or the error that `sqlparser` had.
    pub fn sql(&self) -> SqlResult<&ast::Statement> {
        match &self.ast {
            Ast::Sql(statement) => Ok(statement),
            Ast::Tokens(_, error) => Err(error.clone()),
        }
    }
}

/// Parses a query string into its statements; none for blanks and comments.
pub fn parse(text: &str) -> SqlResult<Vec<Statement>> {
    if text.contains('\0') {
        return Err(SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    parse_marked(text)
}

/// Parses text that may have [`markers`].
fn parse_marked(text: &str) -> SqlResult<Vec<Statement>> {
    if text.len() > MAX_TEXT {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "query string is too long")
            .with_detail(format!("It has {} bytes; {MAX_TEXT} are allowed.", text.len())));
    }
    let source = Source::new(text);
    let tokens = tokenize(&source)?;
    let mut statements = Vec::new();
    let mut cursor = source::Cursor::new(&source);
    for segment in split(tokens) {
        let text = cursor.slice(&segment);
        statements.push(parse_segment(&source, text, segment)?);
    }
    Ok(statements)
}

/// Parses a query string that must hold exactly one statement.
pub fn parse_one(text: &str) -> SqlResult<Statement> {
    only(parse(text)?)
}

/// Parses a query for what a variable is after an assignment to an element of it.
pub(crate) fn parse_assigned(element: &str, value: &str) -> SqlResult<Statement> {
    only(parse_marked(&format!("SELECT \"{}\"({element}, ({value}\n))", markers::ASSIGNED))?)
}

fn only(mut statements: Vec<Statement>) -> SqlResult<Statement> {
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "exactly one statement is expected")),
    }
}

/// Parses a scalar expression, as defaults and CHECK constraints are stored.
pub fn parse_expr(text: &str) -> SqlResult<ast::Expr> {
    let source = Source::new(text);
    let mut tokens = tokenize(&source)?;
    limits::check(&tokens)?;
    rewrite::rewrite(&mut tokens);
    let mut parser = parser(tokens);
    let expr = parser.parse_expr().map_err(|error| error::syntax(&source, error))?;
    expect_end(&source, &parser)?;
    Ok(expr)
}

/// Parses the name of a type, as in `CAST`.
pub fn parse_type(text: &str) -> SqlResult<ast::DataType> {
    let source = Source::new(text);
    let mut tokens = tokenize(&source)?;
    limits::check(&tokens)?;
    rewrite::rewrite(&mut tokens);
    let mut parser = parser(tokens);
    let ty = parser.parse_data_type().map_err(|error| error::syntax(&source, error))?;
    expect_end(&source, &parser)?;
    Ok(ty)
}

fn tokenize(source: &Source) -> SqlResult<Vec<TokenWithSpan>> {
    let mut tokens = Vec::with_capacity(source.text().len() / 4);
    Tokenizer::new(&Postgres, source.text())
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| error::token(source, &error))?;
    refuse_trailing_junk(source, &tokens)?;
    join_literals(source, tokens)
}

/// Takes blanks and comments out. Literals with a line end between them are one, on one line they are an error.
fn join_literals(source: &Source, tokens: Vec<TokenWithSpan>) -> SqlResult<Vec<TokenWithSpan>> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut line_ended = false;
    for token in tokens {
        if let Token::Whitespace(blank) = &token.token {
            line_ended |= matches!(blank, Whitespace::Newline | Whitespace::SingleLineComment { .. });
            continue;
        }
        if let Token::SingleQuotedString(more) = &token.token
            && let Some(before) = joined.last_mut()
            && let Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) = &mut before.token
        {
            if !line_ended {
                return Err(error::near(source, &token));
            }
            text.push_str(more);
            before.span.end = token.span.end;
        } else {
            joined.push(token);
            unescape(&mut joined);
        }
        line_ended = false;
    }
    Ok(joined)
}

/// `U&'…' UESCAPE 'c'` is a string, of which the tokens so far may end with the whole. Without UESCAPE the tokenizer has
/// done all.
fn unescape(tokens: &mut Vec<TokenWithSpan>) {
    let [.., text, word, escape] = &tokens[..] else { return };
    let (Token::UnicodeStringLiteral(text), Token::SingleQuotedString(escape)) = (&text.token, &escape.token)
    else {
        return;
    };
    let mut escapes = escape.chars();
    let (Some(escape), None) = (escapes.next(), escapes.next()) else { return };
    if !is_word(&word.token, "uescape") || escape.is_ascii_hexdigit() || " +'\"".contains(escape) {
        return;
    }
    let Some(decoded) = decode(text, escape) else { return };
    let end = tokens.last().map(|token| token.span.end);
    tokens.truncate(tokens.len() - 2);
    if let (Some(token), Some(end)) = (tokens.last_mut(), end) {
        token.token = Token::UnicodeStringLiteral(decoded);
        token.span.end = end;
    }
}

/// Replaces `!XXXX` and `!+XXXXXX`, where `!` is the escape character, which twice stands for itself.
fn decode(text: &str, escape: char) -> Option<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut units = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != escape || rest.starts_with(escape) {
            flush(&mut units, &mut decoded)?;
            decoded.push(c);
            rest = if c == escape { &rest[c.len_utf8()..] } else { rest };
            continue;
        }
        let (digits, behind) = match rest.strip_prefix('+') {
            Some(rest) => (rest.get(..6)?, rest.get(6..)?),
            None => (rest.get(..4)?, rest.get(4..)?),
        };
        let code = u32::from_str_radix(digits, 16).ok()?;
        match u16::try_from(code) {
            Ok(unit) => units.push(unit),
            Err(_) => {
                flush(&mut units, &mut decoded)?;
                decoded.push(char::from_u32(code)?);
            }
        }
        rest = behind;
    }
    flush(&mut units, &mut decoded)?;
    Some(decoded)
}

/// Adds what UTF-16 units stand for; surrogates come in pairs.
fn flush(units: &mut Vec<u16>, decoded: &mut String) -> Option<()> {
    decoded.push_str(&String::from_utf16(units).ok()?);
    units.clear();
    Some(())
}

/// A word that begins where a number ends is no alias.
fn refuse_trailing_junk(source: &Source, tokens: &[TokenWithSpan]) -> SqlResult<()> {
    for pair in tokens.windows(2) {
        if let [number, word] = pair
            && matches!(number.token, Token::Number(..))
            && matches!(&word.token, Token::Word(word) if word.quote_style.is_none())
        {
            return Err(error::junk_after_number(source, number, word));
        }
    }
    Ok(())
}

fn split(tokens: Vec<TokenWithSpan>) -> Vec<Vec<TokenWithSpan>> {
    let mut segments = Vec::new();
    let mut segment = Vec::new();
    for token in tokens {
        if token.token == Token::SemiColon {
            segments.push(std::mem::take(&mut segment));
        } else {
            segment.push(token);
        }
    }
    segments.push(segment);
    segments.retain(|segment| !segment.is_empty());
    segments
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    Parser::new(&Postgres).with_recursion_limit(PARSER_DEPTH).with_tokens_with_locations(tokens)
}

fn expect_end(source: &Source, parser: &Parser<'_>) -> SqlResult<()> {
    let next = parser.peek_token();
    if next.token == Token::EOF { Ok(()) } else { Err(error::near(source, &next)) }
}

fn parse_segment(source: &Source, text: Arc<str>, mut tokens: Vec<TokenWithSpan>) -> SqlResult<Statement> {
    limits::check(&tokens)?;
    if let Some(query) = classify::short_form(&tokens) {
        tokens = tokenize(&Source::new(query))?;
    }
    let kind = classify::classify(&tokens).ok_or_else(|| error::near(source, &tokens[0]))?;
    let parameters = highest_parameter(&tokens)?;
    let as_of = as_of::take(source, kind, &mut tokens)?;
    let marks = rewrite::rewrite(&mut tokens);
    if joins::parenthesize(&mut tokens) {
        limits::check(&tokens)?;
    }
    let ast = match classify::shortcut(kind, &tokens) {
        Some(statement) => Ast::Sql(Box::new(statement)),
        None => parse_tokens(source, kind, tokens)?,
    };
    let normalized = OnceLock::new();
    Ok(Statement { text, source: source.clone(), kind, ast, marks, as_of, parameters, normalized })
}

fn parse_tokens(source: &Source, kind: StatementKind, mut tokens: Vec<TokenWithSpan>) -> SqlResult<Ast> {
    if matches!(kind, StatementKind::Vacuum | StatementKind::Do | StatementKind::Utility) {
        let error = error::near(source, &tokens[0]);
        return Ok(Ast::Tokens(tokens.into_iter().map(|token| token.token).collect(), error));
    }
    if kind == StatementKind::Move {
        tokens[0].token = Token::make_keyword("FETCH");
    }
    if kind == StatementKind::Copy {
        spell_out_switches(&mut tokens);
    }
    let kept = kind.is_utility().then(|| tokens.iter().map(|token| token.token.clone()).collect());
    let mut parser = parser(tokens);
    let statement = match kind {
        StatementKind::Query => parser.parse_query().map(ast::Statement::Query),
        _ => parser.parse_statement(),
    };
    let parsed = statement
        .map_err(|error| error::syntax(source, error))
        .and_then(|statement| expect_end(source, &parser).map(|()| statement));
    match (parsed, kept) {
        (Ok(statement), _) => Ok(Ast::Sql(Box::new(statement))),
        (Err(error), Some(tokens)) if error.code == SqlState::SYNTAX_ERROR => Ok(Ast::Tokens(tokens, error)),
        (Err(error), _) => Err(error),
    }
}

/// Writes ON and OFF among the options of COPY (the last parenthesis) as TRUE and FALSE, which is all
/// that `sqlparser` takes.
fn spell_out_switches(tokens: &mut [TokenWithSpan]) {
    let Some(start) = tokens.iter().rposition(|token| token.token == Token::LParen) else { return };
    for token in &mut tokens[start..] {
        if is_word(&token.token, "on") {
            token.token = Token::make_keyword("TRUE");
        } else if is_word(&token.token, "off") {
            token.token = Token::make_keyword("FALSE");
        }
    }
}

fn highest_parameter(tokens: &[TokenWithSpan]) -> SqlResult<usize> {
    let mut highest = 0;
    for token in tokens {
        if let Token::Placeholder(name) = &token.token {
            highest = highest.max(parameter_number(name)?);
        }
    }
    Ok(highest)
}

/// The number of a parameter `$n`, from 1.
pub fn parameter_number(name: &str) -> SqlResult<usize> {
    name.strip_prefix('$')
        .and_then(|digits| digits.parse::<usize>().ok())
        .filter(|number| (1..=65535).contains(number))
        .ok_or_else(|| SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}")))
}

/// Whether a token is this keyword, unquoted.
fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

/// Whether a token is this word (given in lower case), unquoted.
fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}
