//! Parser and tokenizer errors in PostgreSQL's words.

use super::Source;
use sql_types::{SqlError, SqlState};
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, TokenizerError};

fn place(error: SqlError, source: &Source, location: Location) -> SqlError {
    match source.position(location) {
        Some(position) => error.at(position),
        None => error,
    }
}

/// `syntax error at or near` a token.
pub(super) fn near(source: &Source, token: &TokenWithSpan) -> SqlError {
    if token.token == Token::EOF {
        return at_end(source);
    }
    let written = source.between(token.span.start, token.span.end).map(str::trim);
    let text =
        written.filter(|text| !text.is_empty()).map_or_else(|| token.token.to_string(), str::to_string);
    let error = SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{text}\""));
    place(error, source, token.span.start)
}

/// A number that runs into a word.
pub(super) fn junk_after_number(source: &Source, number: &TokenWithSpan, word: &TokenWithSpan) -> SqlError {
    let text = source.between(number.span.start, word.span.end).unwrap_or_default();
    let message = format!("trailing junk after numeric literal at or near \"{text}\"");
    place(SqlError::new(SqlState::SYNTAX_ERROR, message), source, number.span.start)
}

fn at_end(source: &Source) -> SqlError {
    let end = u32::try_from(source.text().chars().count()).unwrap_or(u32::MAX - 1);
    SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(end + 1)
}

/// 54001.
pub(super) fn too_complex() -> SqlError {
    SqlError::new(SqlState::TOO_COMPLEX, "statement is too complex")
        .with_detail("Its expressions or subqueries are nested too deeply.")
        .with_hint("Split the statement, or pass long lists as an array parameter.")
}

/// An error of the parser.
pub(super) fn syntax(source: &Source, error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => too_complex(),
        ParserError::TokenizerError(message) => SqlError::new(SqlState::SYNTAX_ERROR, message),
        ParserError::ParserError(message) => parser_message(source, &message),
    }
}

fn parser_message(source: &Source, message: &str) -> SqlError {
    let (body, location) = split_location(message);
    let Some((expected, found)) = body.rsplit_once("found: ") else {
        let error = SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {body}"));
        return location.map_or(error.clone(), |location| place(error, source, location));
    };
    if found.trim() == "EOF" {
        return at_end(source);
    }
    let error =
        SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{}\"", found.trim()));
    let error = match expected.trim_end_matches([',', ' ']).strip_prefix("Expected: ") {
        Some(expected) => error.with_detail(format!("Expected {expected}.")),
        None => error,
    };
    location.map_or(error.clone(), |location| place(error, source, location))
}

/// Splits ` at Line: 1, Column: 2` off.
fn split_location(message: &str) -> (&str, Option<Location>) {
    let Some((body, place)) = message.rsplit_once(" at Line: ") else { return (message, None) };
    let location = place.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
    });
    (body, location)
}

/// An error of the tokenizer.
pub(super) fn token(source: &Source, error: &TokenizerError) -> SqlError {
    let rest = source
        .position(error.location)
        .map(|position| source.text().chars().skip(position as usize - 1).collect::<String>())
        .unwrap_or_default();
    let lower = error.message.to_ascii_lowercase();
    let what = if lower.contains("unterminated string") || lower.contains("unterminated encoded") {
        "unterminated quoted string"
    } else if lower.contains("unterminated dollar") {
        "unterminated dollar-quoted string"
    } else if lower.contains("comment") {
        "unterminated /* comment"
    } else if lower.contains("close delimiter") {
        "unterminated quoted identifier"
    } else {
        "syntax error"
    };
    place(
        SqlError::new(SqlState::SYNTAX_ERROR, format!("{what} at or near \"{rest}\"")),
        source,
        error.location,
    )
}
