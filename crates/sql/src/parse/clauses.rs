//! Rewrites of clauses that `sqlparser` does not know.

use super::rewrite::{quoted, replace, word_at};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// The ORDER BY item of a window that `EXCLUDE CURRENT ROW` becomes.
pub(crate) const EXCLUDE_CURRENT_ROW: &str = "exclude current row";
/// The ORDER BY item of a window that `EXCLUDE GROUP` becomes.
pub(crate) const EXCLUDE_GROUP: &str = "exclude group";
/// The ORDER BY item of a window that `EXCLUDE TIES` becomes.
pub(crate) const EXCLUDE_TIES: &str = "exclude ties";
/// The first item of a `GROUP BY DISTINCT`.
pub(crate) const GROUP_DISTINCT: &str = "group by distinct";
/// The function that `LIKE ALL (array)` puts around the array.
pub(crate) const LIKE_ALL: &str = "like all";

/// Rewrites a clause that starts at an unquoted word; returns how many tokens to go on, or nothing if there is none.
pub(super) fn rewrite_at(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let Some(Token::Word(word)) = tokens.get(index).map(|token| &token.token) else { return None };
    match word.keyword {
        _ if word_at(tokens, index, "isnull") && follows_operand(tokens, index) => {
            replace(tokens, index..index + 1, &[keyword("IS"), keyword("NULL")]);
            Some(2)
        }
        Keyword::NOTNULL if follows_operand(tokens, index) => {
            replace(tokens, index..index + 1, &[keyword("IS"), keyword("NOT"), keyword("NULL")]);
            Some(3)
        }
        Keyword::USING => ordering(tokens, index),
        Keyword::BY if index > 0 && word_at(tokens, index - 1, "group") => group_by(tokens, index + 1),
        Keyword::EXCLUDE => exclusion(tokens, index),
        Keyword::TABLE if begins_query(tokens, index) => {
            replace(tokens, index..index + 1, &[keyword("SELECT"), Token::Mul, keyword("FROM")]);
            // The star is not in the text, where a view would have it spelled out.
            if let Some(star) = tokens.get_mut(index + 1) {
                star.span = Span::empty();
            }
            Some(3)
        }
        Keyword::LIKE | Keyword::ILIKE
            if word_at(tokens, index + 1, "all") && is(tokens, index + 2, &Token::LParen) =>
        {
            like_all(tokens, index + 1)
        }
        Keyword::SELECT if ends_query(tokens, index + 1) => {
            nothing(tokens, index + 1);
            Some(1)
        }
        _ => None,
    }
}

fn keyword(word: &str) -> Token {
    Token::make_keyword(word)
}

fn is(tokens: &[TokenWithSpan], index: usize, wanted: &Token) -> bool {
    tokens.get(index).is_some_and(|token| token.token == *wanted)
}

fn one_of(tokens: &[TokenWithSpan], index: usize, words: &[&str]) -> bool {
    words.iter().any(|word| word_at(tokens, index, word))
}

/// `ISNULL` and `NOTNULL` behind an operand; as names of functions and behind AS they are something else.
fn follows_operand(tokens: &[TokenWithSpan], index: usize) -> bool {
    index > 0
        && !is(tokens, index + 1, &Token::LParen)
        && !is(tokens, index - 1, &Token::Period)
        && !word_at(tokens, index - 1, "as")
}

/// `ORDER BY x USING <` is ASC, `USING >` is DESC.
fn ordering(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let direction = match tokens.get(index + 1)?.token {
        Token::Lt => "ASC",
        Token::Gt => "DESC",
        _ => return None,
    };
    replace(tokens, index..index + 2, &[keyword(direction)]);
    Some(1)
}

/// `GROUP BY DISTINCT a` becomes `GROUP BY "group by distinct", a`; ALL is what is meant anyway.
fn group_by(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    if word_at(tokens, index, "distinct") {
        replace(tokens, index..index + 1, &[quoted(GROUP_DISTINCT), Token::Comma]);
    } else if word_at(tokens, index, "all") && tokens.len() > index + 1 {
        tokens.remove(index);
    } else {
        return None;
    }
    Some(1)
}

/// `… ROWS frame EXCLUDE TIES` becomes `… ORDER BY …, "exclude ties" ROWS frame`.
fn exclusion(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let (count, marker) = if word_at(tokens, index + 1, "current") && word_at(tokens, index + 2, "row") {
        (3, Some(EXCLUDE_CURRENT_ROW))
    } else if word_at(tokens, index + 1, "no") && word_at(tokens, index + 2, "others") {
        (3, None)
    } else if word_at(tokens, index + 1, "group") {
        (2, Some(EXCLUDE_GROUP))
    } else if word_at(tokens, index + 1, "ties") {
        (2, Some(EXCLUDE_TIES))
    } else {
        return None;
    };
    let (mut depth, mut units, mut ordered) = (0usize, None, false);
    for position in (0..index).rev() {
        match &tokens.get(position)?.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => break,
            Token::LParen => depth -= 1,
            _ if depth > 0 => {}
            _ if units.is_none() && one_of(tokens, position, &["rows", "range", "groups"]) => {
                units = Some(position);
            }
            _ => {
                ordered |= word_at(tokens, position, "order") && word_at(tokens, position + 1, "by");
            }
        }
    }
    let units = units?;
    tokens.drain(index..index + count);
    let Some(marker) = marker else { return Some(0) };
    let span = tokens.get(units)?.span;
    let added = match ordered {
        true => vec![Token::Comma, quoted(marker)],
        false => vec![keyword("ORDER"), keyword("BY"), quoted(marker)],
    };
    let length = added.len();
    tokens.splice(units..units, added.into_iter().map(|token| TokenWithSpan { token, span }));
    Some(length)
}

/// Whether `TABLE name` stands where a query begins.
fn begins_query(tokens: &[TokenWithSpan], index: usize) -> bool {
    let named = matches!(tokens.get(index + 1).map(|token| &token.token), Some(Token::Word(_)));
    let Some(before) = index.checked_sub(1) else { return named };
    let behind = matches!(tokens.get(before).map(|token| &token.token), Some(Token::LParen | Token::RParen))
        || one_of(tokens, before, &["union", "except", "intersect", "as"])
        || (one_of(tokens, before, &["all", "distinct"])
            && before > 0
            && one_of(tokens, before - 1, &["union", "except", "intersect"]));
    named && behind
}

/// Whether a SELECT has no list, and no FROM either.
fn ends_query(tokens: &[TokenWithSpan], index: usize) -> bool {
    const CLAUSES: [&str; 11] = [
        "where",
        "group",
        "having",
        "window",
        "union",
        "except",
        "intersect",
        "order",
        "limit",
        "offset",
        "fetch",
    ];
    match tokens.get(index).map(|token| &token.token) {
        None | Some(Token::RParen) => true,
        Some(_) => one_of(tokens, index, &CLAUSES),
    }
}

/// A SELECT without a list and without FROM reads one row that has no columns worth a name.
fn nothing(tokens: &mut Vec<TokenWithSpan>, index: usize) {
    let Some(span) = index.checked_sub(1).and_then(|before| tokens.get(before)).map(|token| token.span)
    else {
        return;
    };
    let one = Token::Number("1".into(), false);
    let from = [
        keyword("FROM"),
        Token::LParen,
        keyword("VALUES"),
        Token::LParen,
        one,
        Token::RParen,
        Token::RParen,
        quoted("one row"),
    ];
    tokens.splice(index..index, from.map(|token| TokenWithSpan { token, span }));
}

/// `LIKE ALL (array)` becomes `LIKE ANY ("like all"((array)))`.
fn like_all(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let end = closing(tokens, index + 1)?;
    let span = tokens.get(index)?.span;
    // Twice, for what is within may be a subquery.
    let close = || TokenWithSpan { token: Token::RParen, span };
    tokens.splice(end..end, [close(), close()]);
    replace(tokens, index..index + 1, &[keyword("ANY"), Token::LParen, quoted(LIKE_ALL), Token::LParen]);
    Some(1)
}

/// The parenthesis that closes the one at a position.
fn closing(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().enumerate().skip(start).find_map(|(position, token)| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(position)
    })
}
