//! Bounds on how deep a statement may nest, checked on the tokens so that neither the parser, nor the
//! tree it builds, nor whoever walks the tree, can exhaust the stack.

use super::{error, is_keyword};
use sql_types::SqlResult;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// How deep parentheses, brackets and CASE may nest.
pub const MAX_NESTING: usize = 128;
/// How many operators may follow each other in one expression (they build a tree that leans left).
pub const MAX_CHAIN: usize = 2000;

/// How many prefix operators may stand before an operand.
const MAX_PREFIXES: usize = 64;

/// What was counted within one pair of parentheses.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Operators since the last comma.
    chain: usize,
    /// Joins and set operations, which commas do not end.
    joined: usize,
}

/// Fails with 54001 beyond the bounds.
pub(super) fn check(tokens: &[TokenWithSpan]) -> SqlResult<()> {
    let mut levels = vec![Level::default()];
    let mut prefixes = 0;
    for token in tokens {
        prefixes = if is_prefix(&token.token) { prefixes + 1 } else { 0 };
        count(&token.token, &mut levels);
        let level = levels.last().copied().unwrap_or_default();
        if prefixes > MAX_PREFIXES
            || levels.len() > MAX_NESTING
            || level.chain > MAX_CHAIN
            || level.joined > MAX_CHAIN
        {
            return Err(error::too_complex());
        }
    }
    Ok(())
}

fn count(token: &Token, levels: &mut Vec<Level>) {
    if *token == Token::RParen || *token == Token::RBracket || is_keyword(token, Keyword::END) {
        if levels.len() > 1 {
            levels.pop();
        }
        return;
    }
    let Some(level) = levels.last_mut() else { return };
    match token {
        Token::Comma => level.chain = 0,
        _ if joins(token) => level.joined += 1,
        _ if counts(token) => level.chain += 1,
        _ => {}
    }
    if *token == Token::LParen || *token == Token::LBracket || is_keyword(token, Keyword::CASE) {
        levels.push(Level::default());
    }
}

fn joins(token: &Token) -> bool {
    [Keyword::JOIN, Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT]
        .iter()
        .any(|keyword| is_keyword(token, *keyword))
}

fn is_prefix(token: &Token) -> bool {
    is_keyword(token, Keyword::NOT)
        || matches!(
            token,
            Token::Minus
                | Token::Plus
                | Token::Tilde
                | Token::AtSign
                | Token::ExclamationMark
                | Token::PGSquareRoot
        )
}

/// Whether a token makes the tree deeper: everything that is neither a value nor a separator.
fn counts(token: &Token) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_none() => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::IN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::BETWEEN
                | Keyword::COLLATE
                | Keyword::AT
                | Keyword::OPERATOR
                | Keyword::NOTNULL
        ),
        Token::Word(_)
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::Period
        | Token::EOF
        | Token::DollarQuotedString(_)
        | Token::EscapedStringLiteral(_) => false,
        _ => true,
    }
}
