//! `AS OF SYSTEM TIME …`, the clause of CockroachDB's that reads the past and that `sqlparser` does not know.
//!
//! It stands behind the FROM list of the outermost SELECT, or at its end, and says when all tables of the statement are
//! read. [`take`] takes it out of the tokens; what it says is found out when the statement runs, for most of what may
//! stand there depends on the present. `BEGIN` and `SET TRANSACTION` have the clause among their modes.

use super::{StatementKind, error, is_word, parser};
use crate::parse::Source;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Expr;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;

/// Most clauses in one statement.
const MOST_CLAUSES: usize = 100;
const WORDS: [&str; 4] = ["as", "of", "system", "time"];

/// When a statement or a transaction reads.
#[derive(Clone, Debug)]
pub struct AsOf {
    /// The expression.
    pub expr: Expr,
    /// Where it stands, in characters from 1.
    pub position: Option<u32>,
}

impl AsOf {
    /// An error about what the clause says.
    pub fn error(&self, code: SqlState, message: impl Into<String>) -> SqlError {
        let error = SqlError::new(code, message);
        match self.position {
            Some(position) => error.at(position),
            None => error,
        }
    }
}

/// Takes the clauses of a statement out of its tokens, and returns what they say if they are for the statement itself.
///
/// # Errors
/// 42601 if none of them belongs to the outermost SELECT, 0A000 if they differ, hold a parameter, or stand in a statement
/// that is not a query.
pub(super) fn take(
    source: &Source,
    kind: StatementKind,
    tokens: &mut Vec<TokenWithSpan>,
) -> SqlResult<Option<Arc<AsOf>>> {
    use StatementKind::{Begin, Declare, Explain, Prepare, Query, Set};
    if matches!(kind, Begin | Set) || !(0..tokens.len()).any(|index| begins_at(tokens, index)) {
        return Ok(None);
    }
    // A query in parentheses is as good as one without.
    let outermost = tokens.iter().take_while(|token| token.token == Token::LParen).count();
    let (mut first, mut top, mut count): (Option<AsOf>, _, _) = (None, false, 0);
    let (mut index, mut depth) = (0, 0usize);
    while let Some(token) = tokens.get(index) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        if !begins_at(tokens, index) {
            index += 1;
            continue;
        }
        count += 1;
        if count > MOST_CLAUSES {
            return Err(error::too_complex());
        }
        let clause = clause_at(source, tokens, index)?;
        top |= depth <= outermost;
        match &first {
            Some(first) if first.expr.to_string() != clause.expr.to_string() => {
                let message = "cannot specify AS OF SYSTEM TIME with different timestamps";
                return Err(clause.error(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            Some(_) => {}
            None => first = Some(clause),
        }
    }
    let Some(clause) = first else { return Ok(None) };
    match kind {
        Query if top => Ok(Some(Arc::new(clause))),
        // The statement inside is parsed by itself.
        Explain | Prepare | Declare => Ok(None),
        Query => {
            let message = "AS OF SYSTEM TIME must be provided on a top-level statement";
            Err(clause.error(SqlState::SYNTAX_ERROR, message))
        }
        _ => {
            let message = "AS OF SYSTEM TIME is for queries only";
            Err(clause.error(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

fn begins_at(tokens: &[TokenWithSpan], index: usize) -> bool {
    let found = |(ahead, word): (usize, &&str)| {
        tokens.get(index + ahead).is_some_and(|token| is_word(&token.token, word))
    };
    WORDS.iter().enumerate().all(found)
}

/// Takes out the clause that begins at a token.
fn clause_at(source: &Source, tokens: &mut Vec<TokenWithSpan>, index: usize) -> SqlResult<AsOf> {
    let start = index + WORDS.len();
    let mut parser = parser(tokens.get(start..).unwrap_or_default().to_vec());
    let expr = parser.parse_expr().map_err(|error| error::syntax(source, error))?;
    let end = (start + parser.index()).min(tokens.len());
    let position = tokens.get(start).and_then(|token| source.position(token.span.start));
    let clause = AsOf { expr, position };
    if tokens.drain(index..end).any(|token| matches!(token.token, Token::Placeholder(_))) {
        return Err(clause.error(SqlState::FEATURE_NOT_SUPPORTED, "AS OF SYSTEM TIME cannot be a parameter"));
    }
    Ok(clause)
}
