//! Rewrites of the token stream for forms that `sqlparser` does not know.

use super::{Marks, is_keyword, is_word};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// The function that `BETWEEN SYMMETRIC` puts around its lower bound.
pub(crate) const SYMMETRIC: &str = "between symmetric";
/// The function that `VARIADIC` puts around the last argument of a call.
pub(crate) const VARIADIC: &str = "variadic argument";
/// The table function that `ROWS FROM (…)` becomes.
pub(crate) const ROWS_FROM: &str = "rows from";

/// Rewrites the tokens of one statement in place.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) -> Marks {
    let mut marks = Marks::default();
    split_operators(tokens);
    let mut index = 0;
    while index < tokens.len() {
        index += rewrite_at(tokens, index, &mut marks);
    }
    marks
}

fn word_at(tokens: &[TokenWithSpan], index: usize, wanted: &str) -> bool {
    tokens.get(index).is_some_and(|token| is_word(&token.token, wanted))
}

/// Rewrites what starts at a token; returns how many tokens to go on.
fn rewrite_at(tokens: &mut Vec<TokenWithSpan>, index: usize, marks: &mut Marks) -> usize {
    let Some(Token::Word(word)) = tokens.get(index).map(|token| &token.token) else { return 1 };
    if word.quote_style.is_some() {
        return 1;
    }
    match word.keyword {
        // FOR NO KEY UPDATE and FOR KEY SHARE lock as their stronger kin.
        Keyword::FOR => {
            if word_at(tokens, index + 1, "no") && word_at(tokens, index + 2, "key") {
                tokens.drain(index + 1..index + 3);
            } else if word_at(tokens, index + 1, "key") && word_at(tokens, index + 2, "share") {
                tokens.drain(index + 1..index + 2);
            }
            split_lock(tokens, index);
            1
        }
        Keyword::ONLY if index > 0 && names_table(tokens, index) => {
            tokens.remove(index);
            0
        }
        _ if word_at(tokens, index, "overriding")
            && (word_at(tokens, index + 1, "system") || word_at(tokens, index + 1, "user"))
            && word_at(tokens, index + 2, "value") =>
        {
            marks.overriding = Some(word_at(tokens, index + 1, "system"));
            tokens.drain(index..index + 3);
            0
        }
        Keyword::DEFERRABLE if is_transaction(tokens) => {
            let negated = index > 0 && word_at(tokens, index - 1, "not");
            marks.deferrable = !negated;
            let mut start = if negated { index - 1 } else { index };
            if start > 0 && tokens[start - 1].token == Token::Comma {
                start -= 1;
            }
            tokens.drain(start..=index);
            0
        }
        Keyword::BETWEEN if word_at(tokens, index + 1, "symmetric") => {
            symmetric(tokens, index + 1);
            1
        }
        Keyword::BETWEEN if word_at(tokens, index + 1, "asymmetric") => {
            tokens.remove(index + 1);
            1
        }
        _ if word_at(tokens, index, "variadic")
            && index > 0
            && matches!(tokens[index - 1].token, Token::LParen | Token::Comma) =>
        {
            variadic(tokens, index);
            1
        }
        Keyword::ROWS
            if word_at(tokens, index + 1, "from")
                && tokens.get(index + 2).is_some_and(|token| token.token == Token::LParen) =>
        {
            tokens.remove(index + 1);
            tokens[index].token = quoted(ROWS_FROM);
            1
        }
        _ => 1,
    }
}

/// `FOR UPDATE OF a, b` becomes `FOR UPDATE OF a FOR UPDATE OF b`.
fn split_lock(tokens: &mut Vec<TokenWithSpan>, index: usize) {
    if !(word_at(tokens, index + 1, "update") || word_at(tokens, index + 1, "share"))
        || !word_at(tokens, index + 2, "of")
    {
        return;
    }
    let clause: Vec<TokenWithSpan> = tokens[index..index + 3].to_vec();
    let mut position = index + 4;
    while tokens.get(position).is_some_and(|token| token.token == Token::Comma) {
        tokens.splice(position..position + 1, clause.clone());
        position += clause.len() + 1;
    }
}

/// Whether `ONLY` stands before the name of a table. There is no inheritance, so it says nothing.
fn names_table(tokens: &[TokenWithSpan], index: usize) -> bool {
    let before =
        ["from", "join", "update", "into", "using"].iter().any(|word| word_at(tokens, index - 1, word));
    before && matches!(tokens.get(index + 1).map(|token| &token.token), Some(Token::Word(_)))
}

fn is_transaction(tokens: &[TokenWithSpan]) -> bool {
    tokens.first().is_some_and(|token| {
        is_keyword(&token.token, Keyword::BEGIN)
            || is_keyword(&token.token, Keyword::START)
            || is_keyword(&token.token, Keyword::SET)
    })
}

fn quoted(name: &str) -> Token {
    Token::Word(Word { value: name.to_string(), quote_style: Some('"'), keyword: Keyword::NoKeyword })
}

/// `SYMMETRIC low AND` becomes `"between symmetric"(low) AND`.
fn symmetric(tokens: &mut Vec<TokenWithSpan>, index: usize) {
    let mut depth = 0usize;
    let end = tokens.iter().enumerate().skip(index).find_map(|(position, token)| {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            word if depth == 0 && is_keyword(word, Keyword::AND) => return Some(position),
            _ => {}
        }
        None
    });
    let Some(end) = end else { return };
    let span = tokens[index].span;
    tokens[index].token = quoted(SYMMETRIC);
    tokens.insert(index + 1, TokenWithSpan { token: Token::LParen, span });
    tokens.insert(end + 1, TokenWithSpan { token: Token::RParen, span });
}

/// `f(a, VARIADIC b)` becomes `f(a, "variadic argument"(b))`.
fn variadic(tokens: &mut Vec<TokenWithSpan>, index: usize) {
    let mut depth = 0usize;
    let end = tokens.iter().enumerate().skip(index).find_map(|(position, token)| {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen if depth == 0 => return Some(position),
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        None
    });
    let Some(end) = end else { return };
    let span = tokens[index].span;
    tokens[index].token = quoted(VARIADIC);
    tokens.insert(end, TokenWithSpan { token: Token::RParen, span });
    tokens.insert(index + 1, TokenWithSpan { token: Token::LParen, span });
}

/// PostgreSQL ends an operator before a trailing `-` or `+` unless it holds a character no standard
/// operator has: `a<-1` is `a < -1`.
fn split_operators(tokens: &mut Vec<TokenWithSpan>) {
    let mut index = 0;
    while index < tokens.len() {
        if let Token::CustomBinaryOperator(symbol) = &tokens[index].token
            && symbol.len() > 1
            && symbol.ends_with(['-', '+'])
            && !symbol.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'])
        {
            let sign = if symbol.ends_with('-') { Token::Minus } else { Token::Plus };
            let head = standard(&symbol[..symbol.len() - 1]);
            let span = tokens[index].span;
            tokens[index].token = head;
            tokens.insert(index + 1, TokenWithSpan { token: sign, span });
            continue;
        }
        index += 1;
    }
}

fn standard(symbol: &str) -> Token {
    match symbol {
        "<" => Token::Lt,
        ">" => Token::Gt,
        "=" => Token::Eq,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "*" => Token::Mul,
        "/" => Token::Div,
        "+" => Token::Plus,
        "-" => Token::Minus,
        other => Token::CustomBinaryOperator(other.to_string()),
    }
}
