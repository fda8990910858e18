//! Joins within joins that are written without parentheses: `a JOIN b JOIN c ON … ON …`.
//!
//! `sqlparser` takes joins as they come, so that the second of these conditions has no join. A join whose condition comes
//! after further joins is one with all of them: its right side gets the parentheses that PostgreSQL's grammar implies.

use super::is_word;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A join whose condition has not come yet.
struct Open {
    /// The first token of its right side.
    right: usize,
    /// Whether that has joins itself.
    nested: bool,
}

/// Puts parentheses around the right sides of joins that have joins in them. Returns whether there are any; they may nest
/// as deep as there are joins.
pub(super) fn parenthesize(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let around = right_sides(tokens);
    if around.is_empty() {
        return false;
    }
    // Where several begin or end they do so around each other, so their order does not matter.
    let mut added: Vec<(usize, Token)> =
        around.into_iter().flat_map(|(start, end)| [(start, Token::LParen), (end, Token::RParen)]).collect();
    added.sort_by_key(|(position, _)| *position);
    let mut added = added.into_iter().peekable();
    let mut result = Vec::with_capacity(tokens.len() + 2 * added.len());
    for (position, token) in std::mem::take(tokens).into_iter().enumerate() {
        while let Some((_, parenthesis)) = added.next_if(|(at, _)| *at == position) {
            result.push(TokenWithSpan { token: parenthesis, span: token.span });
        }
        result.push(token);
    }
    *tokens = result;
    true
}

/// The right sides that have joins: first token, and the one behind the last.
fn right_sides(tokens: &[TokenWithSpan]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // By parentheses that are open: joins that have no condition yet.
    let mut levels: Vec<Vec<Open>> = vec![Vec::new()];
    for (position, token) in tokens.iter().enumerate() {
        let Some(open) = levels.last_mut() else { return found };
        match &token.token {
            Token::LParen => levels.push(Vec::new()),
            Token::RParen => {
                levels.pop();
                if levels.is_empty() {
                    levels.push(Vec::new());
                }
            }
            Token::Comma => open.clear(),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::JOIN => {
                    open.iter_mut().for_each(|join| join.nested = true);
                    if is_conditional(tokens, position) {
                        open.push(Open { right: position + 1, nested: false });
                    }
                }
                Keyword::ON | Keyword::USING => {
                    if let Some(Open { right, nested: true }) = open.pop() {
                        found.push((right, position));
                    }
                }
                Keyword::WHERE | Keyword::GROUP | Keyword::ORDER | Keyword::SELECT | Keyword::SET => {
                    open.clear()
                }
                _ => {}
            },
            _ => {}
        }
    }
    found
}

/// Whether a join has a condition: all but CROSS JOIN and NATURAL JOIN, also of a kind, do.
fn is_conditional(tokens: &[TokenWithSpan], join: usize) -> bool {
    let kinds = ["inner", "left", "right", "full", "outer"];
    let is_kind = |token: &&TokenWithSpan| kinds.iter().any(|kind| is_word(&token.token, kind));
    let before = tokens[..join].iter().rev().find(|token| !is_kind(token));
    !before.is_some_and(|token| is_word(&token.token, "cross") || is_word(&token.token, "natural"))
}
