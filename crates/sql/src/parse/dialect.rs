//! PostgreSQL's grammar as `sqlparser` asks for it: its own dialect for PostgreSQL, with PostgreSQL's precedence of
//! operators and its reserved words.

use super::is_keyword;
use super::markers::SUBSCRIPTS;
use crate::system::is_column_name;
use sqlparser::ast::{Expr, Ident, ObjectNamePart};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::any::{Any, TypeId};

/// The dialect that all text is read in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Postgres;

const BASE: PostgreSqlDialect = PostgreSqlDialect {};

/// Methods that answer what [`BASE`] does.
macro_rules! as_base {
    ($($method:ident($($argument:ident: $ty:ty),*) -> $result:ty;)*) => {
        $(fn $method(&self, $($argument: $ty),*) -> $result {
            BASE.$method($($argument),*)
        })*
    };
}

impl Dialect for Postgres {
    /// `sqlparser` asks in places whether it reads PostgreSQL's dialect.
    fn dialect(&self) -> TypeId {
        BASE.type_id()
    }

    as_base! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        is_reserved_for_identifier(keyword: Keyword) -> bool;
        prec_value(precedence: Precedence) -> u8;
        supports_unicode_string_literal() -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_named_fn_args_with_expr_name() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
    }

    /// The subscripts of what is assigned to are a part of its name.
    fn is_identifier_generating_function_name(&self, ident: &Ident, _: &[ObjectNamePart]) -> bool {
        ident.value == SUBSCRIPTS
    }

    fn is_table_factor_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser) -> bool {
        let named =
            *keyword == Keyword::NoKeyword || is_column_name(&format!("{keyword:?}").to_ascii_lowercase());
        named && (explicit || self.is_table_alias(keyword, parser))
    }

    /// Operators that are none of arithmetic and comparison have one precedence, between the two.
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk => Some(Ok(self.prec_value(Precedence::PgOther))),
            Token::Word(word) if word.keyword == Keyword::OPERATOR => {
                Some(Ok(self.prec_value(Precedence::PgOther)))
            }
            _ => BASE.get_next_precedence(parser),
        }
    }

    /// Words that begin or part clauses begin no expression.
    ///
    /// `(VALUES …)` is a subquery, like `(SELECT …)`.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if parser.peek_token_ref().token == Token::LParen
            && is_keyword(&parser.peek_nth_token_ref(1).token, Keyword::VALUES)
        {
            parser.next_token();
            let query = parser.parse_query();
            return Some(query.and_then(|query| {
                parser.expect_token(&Token::RParen)?;
                Ok(Expr::Subquery(query))
            }));
        }
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        if word.quote_style.is_some() || !begins_no_expression(word.keyword) {
            return None;
        }
        Some(parser.expected_ref("an expression", parser.peek_token_ref()))
    }
}

fn begins_no_expression(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::AND
            | Keyword::EXCEPT
            | Keyword::FROM
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::INTERSECT
            | Keyword::OR
            | Keyword::ORDER
            | Keyword::SELECT
            | Keyword::UNION
            | Keyword::WHERE
    )
}
