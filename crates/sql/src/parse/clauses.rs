//! Rewrites of clauses that `sqlparser` does not know.

use super::markers::{
    EXCLUDE_CURRENT_ROW, EXCLUDE_GROUP, EXCLUDE_TIES, GROUP_DISTINCT, JOIN_ALIAS, LIKE_ALL, ONE_ROW,
    WITH_TIES,
};
use super::rewrite::{quoted, replace, word_at};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

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
        Keyword::USING => ordering(tokens, index).or_else(|| join_alias(tokens, index + 1)),
        Keyword::ARRAY if index > 0 && names_type(tokens, index - 1) => {
            array_type(tokens, index);
            Some(0)
        }
        Keyword::ARRAY if is(tokens, index + 1, &Token::LParen) && word_at(tokens, index + 2, "values") => {
            array_of_values(tokens, index + 2)
        }
        Keyword::INTERVAL => interval(tokens, index),
        Keyword::FETCH if one_of(tokens, index + 1, &["first", "next"]) => fetch(tokens, index),
        Keyword::TRIM if is(tokens, index + 1, &Token::LParen) => trimmed_blanks(tokens, index + 2),
        Keyword::SUBSTRING if is(tokens, index + 1, &Token::LParen) => similar(tokens, index + 1),
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

/// `GROUP BY DISTINCT a` becomes `GROUP BY marker, a`; ALL is what is meant anyway.
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

/// `… ROWS frame EXCLUDE TIES` becomes `… ORDER BY …, marker ROWS frame`.
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
        quoted(ONE_ROW),
    ];
    tokens.splice(index..index, from.map(|token| TokenWithSpan { token, span }));
}

/// `LIKE ALL (array)` becomes `LIKE ANY (marker((array)))`.
fn like_all(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let end = closing(tokens, index + 1)?;
    let span = tokens.get(index)?.span;
    // Twice, for what is within may be a subquery.
    let close = || TokenWithSpan { token: Token::RParen, span };
    tokens.splice(end..end, [close(), close()]);
    replace(tokens, index..index + 1, &[keyword("ANY"), Token::LParen, quoted(LIKE_ALL), Token::LParen]);
    Some(1)
}

/// `JOIN … USING (a, b) AS name` becomes `JOIN … USING (a, b, marker.name)`.
fn join_alias(tokens: &mut Vec<TokenWithSpan>, open: usize) -> Option<usize> {
    let end = if is(tokens, open, &Token::LParen) { closing(tokens, open)? } else { return None };
    let is_name = |index: usize| matches!(tokens.get(index).map(|token| &token.token), Some(Token::Word(_)));
    let columns = (open + 1..end).all(|index| match (index - open) % 2 {
        1 => is_name(index),
        _ => is(tokens, index, &Token::Comma),
    });
    let joined = tokens.get(..open)?.iter().rev().take(512).any(|token| super::is_word(&token.token, "join"));
    if !columns || !joined || !word_at(tokens, end + 1, "as") || !is_name(end + 2) {
        return None;
    }
    let name = tokens.get(end + 2)?.token.clone();
    tokens.drain(end + 1..end + 3);
    let span = tokens.get(end)?.span;
    let added = [Token::Comma, quoted(JOIN_ALIAS), Token::Period, name];
    tokens.splice(end..end, added.map(|token| TokenWithSpan { token, span }));
    Some(1)
}

/// Whether a token may end the name of a type, and nothing else that ARRAY can follow.
fn names_type(tokens: &[TokenWithSpan], index: usize) -> bool {
    const TYPES: [&str; 27] = [
        "bigint",
        "bool",
        "boolean",
        "bytea",
        "char",
        "character",
        "date",
        "decimal",
        "float",
        "float4",
        "float8",
        "int",
        "int2",
        "int4",
        "int8",
        "integer",
        "interval",
        "json",
        "jsonb",
        "numeric",
        "precision",
        "real",
        "smallint",
        "text",
        "time",
        "timestamp",
        "varchar",
    ];
    match tokens.get(index).map(|token| &token.token) {
        Some(Token::Word(word)) => {
            word.quote_style.is_some()
                || (word.keyword == Keyword::NoKeyword && !word_at(tokens, index, "variadic"))
                || one_of(tokens, index, &TYPES)
                || one_of(tokens, index, &["uuid", "timestamptz", "varying", "zone", "name", "oid"])
        }
        // varchar(3) array
        Some(Token::RParen) => {
            matches!(tokens.get(index.wrapping_sub(1)).map(|token| &token.token), Some(Token::Number(..)))
                && [Token::LParen, Token::Comma]
                    .iter()
                    .any(|before| is(tokens, index.wrapping_sub(2), before))
        }
        _ => false,
    }
}

/// `int ARRAY[3]` becomes `int[3]`, and `int ARRAY` `int[]`.
fn array_type(tokens: &mut Vec<TokenWithSpan>, index: usize) {
    match is(tokens, index + 1, &Token::LBracket) {
        true => drop(tokens.remove(index)),
        false => replace(tokens, index..index + 1, &[Token::LBracket, Token::RBracket]),
    }
}

/// `ARRAY(VALUES …)` becomes `ARRAY(SELECT * FROM (VALUES …) marker)`.
fn array_of_values(tokens: &mut Vec<TokenWithSpan>, start: usize) -> Option<usize> {
    let end = closing(tokens, start - 1)?;
    let span = tokens.get(start)?.span;
    let with_span = |token| TokenWithSpan { token, span };
    tokens.splice(end..end, [Token::RParen, quoted(ONE_ROW)].map(with_span));
    let select = [keyword("SELECT"), Token::Mul, keyword("FROM"), Token::LParen];
    tokens.splice(start..start, select.map(with_span));
    Some(2)
}

/// `interval(2) '…'` becomes `CAST('…' AS interval(2))`.
fn interval(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let at = |ahead: usize| tokens.get(index + ahead).map(|token| &token.token);
    let (
        Some(Token::LParen),
        Some(Token::Number(..)),
        Some(Token::RParen),
        Some(Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)),
    ) = (at(1), at(2), at(3), at(4))
    else {
        return None;
    };
    let text = tokens.remove(index + 4);
    let span = text.span;
    let with_span = |token| TokenWithSpan { token, span };
    tokens.insert(index + 4, with_span(Token::RParen));
    let cast = [keyword("CAST"), Token::LParen, text.token, keyword("AS")];
    tokens.splice(index..index, cast.map(with_span));
    Some(9)
}

/// `FETCH FIRST (n) ROWS ONLY` becomes `LIMIT (n)`, and with `WITH TIES` it becomes `LIMIT marker((n))`.
fn fetch(tokens: &mut Vec<TokenWithSpan>, index: usize) -> Option<usize> {
    let end = if is(tokens, index + 2, &Token::LParen) { closing(tokens, index + 2)? } else { return None };
    if !one_of(tokens, end + 1, &["row", "rows"]) {
        return None;
    }
    let span = tokens.get(index)?.span;
    if word_at(tokens, end + 2, "only") {
        tokens.drain(end + 1..end + 3);
        replace(tokens, index..index + 2, &[keyword("LIMIT")]);
    } else if word_at(tokens, end + 2, "with") && word_at(tokens, end + 3, "ties") {
        tokens.drain(end + 1..end + 4);
        tokens.insert(end + 1, TokenWithSpan { token: Token::RParen, span });
        replace(tokens, index..index + 2, &[keyword("LIMIT"), quoted(WITH_TIES), Token::LParen]);
    } else {
        return None;
    }
    Some(1)
}

/// `TRIM(LEADING FROM a)` becomes `TRIM(LEADING ' ' FROM a)`, and `TRIM(FROM a)` becomes `TRIM(a)`.
fn trimmed_blanks(tokens: &mut Vec<TokenWithSpan>, start: usize) -> Option<usize> {
    if word_at(tokens, start, "from") {
        tokens.remove(start);
        return Some(1);
    }
    let side = one_of(tokens, start, &["leading", "trailing", "both"]);
    if !side || !word_at(tokens, start + 1, "from") {
        return None;
    }
    let span = tokens.get(start)?.span;
    let blank = Token::SingleQuotedString(" ".into());
    tokens.insert(start + 1, TokenWithSpan { token: blank, span });
    Some(1)
}

/// `SUBSTRING(a SIMILAR b ESCAPE c)` becomes `SUBSTRING(a, b, c)`.
fn similar(tokens: &mut [TokenWithSpan], open: usize) -> Option<usize> {
    let end = closing(tokens, open)?;
    let mut depth = 0usize;
    let (mut pattern, mut escape) = (None, None);
    for index in open + 1..end {
        match &tokens.get(index)?.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ if word_at(tokens, index, "similar") && !word_at(tokens, index + 1, "to") => {
                pattern = Some(index)
            }
            _ if word_at(tokens, index, "escape") => escape = Some(index),
            _ => {}
        }
    }
    for index in [pattern?, escape?] {
        tokens.get_mut(index)?.token = Token::Comma;
    }
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
