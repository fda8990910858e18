//! Rewrites of the token stream for forms that `sqlparser` does not know.

use super::markers::{
    INFERENCE, INFERENCE_PART, INFERENCE_WHERE, MERGE_DEFAULTS, MERGE_NOTHING, ROWS_FROM, SYMMETRIC, VARIADIC,
};
use super::{Marks, clauses, is_keyword, is_word, targets};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Rewrites the tokens of one statement in place.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) -> Marks {
    let mut marks = Marks::default();
    split_operators(tokens);
    targets::rewrite(tokens);
    let mut index = 0;
    while index < tokens.len() {
        index += rewrite_at(tokens, index, &mut marks);
    }
    marks
}

pub(super) fn word_at(tokens: &[TokenWithSpan], index: usize, wanted: &str) -> bool {
    tokens.get(index).is_some_and(|token| is_word(&token.token, wanted))
}

/// Rewrites what starts at a token; returns how many tokens to go on.
fn rewrite_at(tokens: &mut Vec<TokenWithSpan>, index: usize, marks: &mut Marks) -> usize {
    let Some(Token::Word(word)) = tokens.get(index).map(|token| &token.token) else { return 1 };
    if word.quote_style.is_some() {
        return 1;
    }
    if let Some(further) = clauses::rewrite_at(tokens, index) {
        return further;
    }
    let Some(Token::Word(word)) = tokens.get(index).map(|token| &token.token) else { return 1 };
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
        Keyword::CONFLICT
            if index > 0
                && word_at(tokens, index - 1, "on")
                && tokens.get(index + 1).is_some_and(|token| token.token == Token::LParen) =>
        {
            inference(tokens, index + 1);
            1
        }
        Keyword::THEN
            if word_at(tokens, index + 1, "do")
                && word_at(tokens, index + 2, "nothing")
                && merges(tokens) =>
        {
            merge_nothing(tokens, index);
            1
        }
        Keyword::INSERT if word_at(tokens, index + 1, "default") && word_at(tokens, index + 2, "values") => {
            replace(tokens, index + 1..index + 3, &placeholder(MERGE_DEFAULTS));
            1
        }
        Keyword::BETWEEN if word_at(tokens, index + 1, "symmetric") => {
            symmetric(tokens, index + 1);
            1
        }
        Keyword::BETWEEN if word_at(tokens, index + 1, "asymmetric") => {
            tokens.remove(index + 1);
            1
        }
        // Functions that `sqlparser` has a form of its own for, and only without a schema.
        _ if word_at(tokens, index, "pg_catalog") && names_special_function(tokens, index) => {
            tokens.drain(index..index + 2);
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

/// Whether a statement is MERGE, perhaps behind WITH.
fn merges(tokens: &[TokenWithSpan]) -> bool {
    tokens.first().is_some_and(|token| is_word(&token.token, "merge") || is_word(&token.token, "with"))
}

/// `THEN DO NOTHING` becomes an update or insert of a column that no table has.
fn merge_nothing(tokens: &mut Vec<TokenWithSpan>, index: usize) {
    let when = tokens[..index].iter().rposition(|token| is_word(&token.token, "when")).unwrap_or(index);
    let keyword = Token::make_keyword;
    let action = if word_at(tokens, when + 1, "not") {
        let mut action = vec![keyword("INSERT")];
        action.extend(placeholder(MERGE_NOTHING));
        action
    } else {
        let one = Token::Number("1".into(), false);
        vec![keyword("UPDATE"), keyword("SET"), quoted(MERGE_NOTHING), Token::Eq, one]
    };
    replace(tokens, index + 1..index + 3, &action);
}

/// `("name") VALUES (1)`
fn placeholder(name: &str) -> Vec<Token> {
    let one = Token::Number("1".into(), false);
    let values = Token::make_keyword("VALUES");
    vec![Token::LParen, quoted(name), Token::RParen, values, Token::LParen, one, Token::RParen]
}

pub(super) fn replace(tokens: &mut Vec<TokenWithSpan>, range: std::ops::Range<usize>, with: &[Token]) {
    let Some(span) = tokens.get(range.start).map(|token| token.span) else { return };
    let with = with.iter().map(|token| TokenWithSpan { token: token.clone(), span });
    tokens.splice(range, with.collect::<Vec<_>>());
}

fn names_special_function(tokens: &[TokenWithSpan], index: usize) -> bool {
    const SPECIAL: [&str; 7] = ["substring", "position", "overlay", "trim", "extract", "ceil", "floor"];
    let at =
        |ahead: usize, wanted: Token| tokens.get(index + ahead).is_some_and(|token| token.token == wanted);
    at(1, Token::Period)
        && at(3, Token::LParen)
        && SPECIAL.iter().any(|name| word_at(tokens, index + 2, name))
}

/// A token as SQL text.
fn written(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text) => format!("'{}'", text.replace('\'', "''")),
        Token::EscapedStringLiteral(text) => {
            format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
        }
        other => other.to_string(),
    }
}

/// `ON CONFLICT (lower(a), b) WHERE c DO` becomes `ON CONFLICT ON CONSTRAINT marker DO`; columns alone
/// stay as they are.
fn inference(tokens: &mut Vec<TokenWithSpan>, start: usize) {
    let (mut depth, mut parts, mut part, mut plain) = (0usize, Vec::new(), Vec::new(), true);
    let mut end = None;
    for (position, token) in tokens.iter().enumerate().skip(start) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        match &token.token {
            _ if depth == 0 => {
                end = Some(position);
                break;
            }
            Token::LParen if depth == 1 && position == start => {}
            Token::Comma if depth == 1 => parts.push(std::mem::take(&mut part)),
            other => {
                plain &= matches!(other, Token::Word(_)) && part.is_empty();
                part.push(written(other));
            }
        }
    }
    let Some(end) = end else { return };
    parts.push(part);
    let filtered = word_at(tokens, end + 1, "where");
    if plain && !filtered {
        return;
    }
    let mut name = INFERENCE.to_string();
    for part in parts {
        name.push_str(INFERENCE_PART);
        name.push_str(&part.join(" "));
    }
    let mut until = end + 1;
    if filtered {
        let is_do = |token: &TokenWithSpan| is_word(&token.token, "do");
        let Some(length) = tokens[end + 2..].iter().position(is_do) else { return };
        until = end + 2 + length;
        let predicate: Vec<String> =
            tokens[end + 2..until].iter().map(|token| written(&token.token)).collect();
        name.push_str(INFERENCE_WHERE);
        name.push_str(&predicate.join(" "));
    }
    let span = tokens[start].span;
    let word =
        |value: &str, keyword| Token::Word(Word { value: value.to_string(), quote_style: None, keyword });
    let constraint = [word("ON", Keyword::ON), word("CONSTRAINT", Keyword::CONSTRAINT), quoted(&name)];
    tokens.splice(start..until, constraint.map(|token| TokenWithSpan { token, span }));
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

pub(super) fn quoted(name: &str) -> Token {
    Token::Word(Word { value: name.to_string(), quote_style: Some('"'), keyword: Keyword::NoKeyword })
}

/// `SYMMETRIC low AND` becomes `marker(low) AND`.
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

/// `f(a, VARIADIC b)` becomes `f(a, marker(b))`.
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
