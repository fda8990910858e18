//! Elements as targets of assignments: `SET a[1] = …`, `INSERT INTO t (a[1], …)`.
//!
//! `sqlparser` takes names there and nothing else. A part of a name may be a call, though, so that `a[1][2:3]` becomes the
//! name ``a."subscripts"("value"[1][2:3])``, both markers, of which [`subscripted`] makes the parts again.

use super::markers::{SUBSCRIPTED, SUBSCRIPTS};
use super::rewrite::{quoted, word_at};
use sqlparser::ast::{self, AccessExpr, ObjectName, ObjectNamePart};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The name and the subscripts of what is assigned to, if there are any.
pub(crate) fn subscripted(name: &ObjectName) -> Option<(ObjectName, &[AccessExpr])> {
    let (last, parts) = name.0.split_last()?;
    let ObjectNamePart::Function(call) = last else { return None };
    let [
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::CompoundFieldAccess {
            access_chain,
            ..
        })),
    ] = &call.args[..]
    else {
        return None;
    };
    Some((ObjectName(parts.to_vec()), access_chain))
}

/// What is written where a walk over the tokens is, within one pair of parentheses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// No assignment.
    Elsewhere,
    /// The target of one.
    Target,
    /// The value of one.
    Value,
}

/// Rewrites the targets that follow SET, or those in the parentheses that follow INSERT or its table.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.iter().any(|token| token.token == Token::LBracket) {
        return;
    }
    let found = subscripted_targets(tokens);
    if found.is_empty() {
        return;
    }
    let mut found = found.into_iter().peekable();
    let mut result = Vec::with_capacity(tokens.len() + 5 * found.len());
    let mut closes = Vec::new();
    for (position, token) in std::mem::take(tokens).into_iter().enumerate() {
        let span = token.span;
        if closes.last() == Some(&position) {
            closes.pop();
            result.push(TokenWithSpan { token: Token::RParen, span });
        }
        if let Some((_, end)) = found.next_if(|(start, _)| *start == position) {
            let call = [Token::Period, quoted(SUBSCRIPTS), Token::LParen, quoted(SUBSCRIPTED)];
            result.extend(call.map(|token| TokenWithSpan { token, span }));
            closes.push(end);
        }
        result.push(token);
    }
    // A target that ends the text is no assignment, and the parser says so.
    *tokens = result;
}

/// The subscripts of targets: their first token and the one behind the last, one after the other.
fn subscripted_targets(tokens: &[TokenWithSpan]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut places = vec![Place::Elsewhere];
    let mut position = 0;
    while let Some(token) = tokens.get(position) {
        let place = places.last().copied().unwrap_or(Place::Elsewhere);
        let mut next = position + 1;
        let mut becomes = place;
        match &token.token {
            Token::LParen if place == Place::Target => {
                next = list(tokens, position, &mut found);
                becomes = Place::Value;
            }
            Token::Word(_) if place == Place::Target => {
                next = target(tokens, position, &mut found);
                becomes = Place::Value;
            }
            Token::LParen | Token::LBracket => {
                places.push(Place::Elsewhere);
                position = next;
                continue;
            }
            Token::RParen | Token::RBracket => {
                places.pop();
                if places.is_empty() {
                    places.push(Place::Elsewhere);
                }
                position = next;
                continue;
            }
            Token::Comma if place == Place::Value => becomes = Place::Target,
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::SET if position > 0 => becomes = Place::Target,
                Keyword::INSERT => next = insert(tokens, position + 1, &mut found),
                Keyword::WHERE | Keyword::RETURNING | Keyword::WHEN if place == Place::Value => {
                    // WHEN is a part of CASE as well.
                    let of_merge = word_at(tokens, position + 1, "matched")
                        || (word_at(tokens, position + 1, "not") && word_at(tokens, position + 2, "matched"));
                    let ends = word.keyword != Keyword::WHEN || of_merge;
                    becomes = if ends { Place::Elsewhere } else { Place::Value };
                }
                Keyword::FROM if place == Place::Value && !word_at(tokens, position - 1, "distinct") => {
                    becomes = Place::Elsewhere;
                }
                _ => {}
            },
            _ => {}
        }
        if let Some(last) = places.last_mut() {
            *last = becomes;
        }
        position = next;
    }
    found
}

fn is(tokens: &[TokenWithSpan], index: usize, wanted: &Token) -> bool {
    tokens.get(index).is_some_and(|token| token.token == *wanted)
}

fn is_name(tokens: &[TokenWithSpan], index: usize) -> bool {
    matches!(tokens.get(index).map(|token| &token.token), Some(Token::Word(_)))
}

/// The columns of an INSERT, which stand behind the table and its alias, and in MERGE behind INSERT; returns the position
/// behind them.
fn insert(tokens: &[TokenWithSpan], start: usize, found: &mut Vec<(usize, usize)>) -> usize {
    let mut position = start;
    if word_at(tokens, position, "into") {
        position += 1;
        while is_name(tokens, position) && is(tokens, position + 1, &Token::Period) {
            position += 2;
        }
        position += 1;
        if word_at(tokens, position, "as") {
            position += 2;
        }
    }
    let queries = ["select", "with", "values", "table"];
    if is(tokens, position, &Token::LParen)
        && is_name(tokens, position + 1)
        && !queries.iter().any(|word| word_at(tokens, position + 1, word))
    {
        return list(tokens, position, found);
    }
    start
}

/// Targets in parentheses; returns the position behind them.
fn list(tokens: &[TokenWithSpan], open: usize, found: &mut Vec<(usize, usize)>) -> usize {
    let mut position = open + 1;
    while is_name(tokens, position) {
        position = target(tokens, position, found);
        if !is(tokens, position, &Token::Comma) {
            break;
        }
        position += 1;
    }
    if is(tokens, position, &Token::RParen) { position + 1 } else { position }
}

/// One target; returns the position behind it.
fn target(tokens: &[TokenWithSpan], start: usize, found: &mut Vec<(usize, usize)>) -> usize {
    let mut position = start + 1;
    while is(tokens, position, &Token::Period) && is_name(tokens, position + 1) {
        position += 2;
    }
    let first = position;
    while is(tokens, position, &Token::LBracket) {
        match closing(tokens, position) {
            Some(end) => position = end + 1,
            None => return position,
        }
    }
    if position > first {
        found.push((first, position));
    }
    position
}

/// The bracket that closes the one at a position.
fn closing(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().enumerate().skip(start).find_map(|(position, token)| {
        match token.token {
            Token::LBracket => depth += 1,
            Token::RBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(position)
    })
}
