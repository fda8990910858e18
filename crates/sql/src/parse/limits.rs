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

/// Fails with 54001 beyond the bounds.
pub(super) fn check(tokens: &[TokenWithSpan]) -> SqlResult<()> {
    let mut chains = vec![0usize];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => chains.push(0),
            Token::RParen | Token::RBracket => pop(&mut chains),
            Token::Comma => restart(&mut chains),
            word if is_keyword(word, Keyword::CASE) => chains.push(0),
            word if is_keyword(word, Keyword::END) => pop(&mut chains),
            other if counts(other) => {
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                    if *chain > MAX_CHAIN {
                        return Err(error::too_complex());
                    }
                }
            }
            _ => {}
        }
        if chains.len() > MAX_NESTING {
            return Err(error::too_complex());
        }
    }
    Ok(())
}

fn pop(chains: &mut Vec<usize>) {
    if chains.len() > 1 {
        chains.pop();
    }
}

fn restart(chains: &mut [usize]) {
    if let Some(chain) = chains.last_mut() {
        *chain = 0;
    }
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
                | Keyword::JOIN
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
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
