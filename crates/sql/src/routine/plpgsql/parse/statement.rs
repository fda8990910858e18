//! Statements that hold no others.

use super::super::ast::{Into, Raise, Source, Stmt, Target};
use super::super::conditions;
use super::text::message_parts;
use super::{Parser, invalid_sqlstate, unknown_condition};
use crate::routine::statements::Sql;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

impl Parser {
    pub(super) fn returning(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        if self.c.take("next") {
            let value = match self.c.peek() {
                Some(Token::SemiColon) => None,
                _ => Some(Sql::expression(&self.until_semicolon()?)?),
            };
            return Ok(Stmt::ReturnNext(value));
        }
        if self.c.take("query execute") {
            let query = Sql::expression(&self.until_one(&["using"], false)?)?;
            let using = if self.c.take("using") { self.expressions(&[])? } else { Vec::new() };
            return Ok(Stmt::ReturnQuery(Source::Execute(query, using)));
        }
        if self.c.take("query") {
            return Ok(Stmt::ReturnQuery(Source::Query(Sql::statement(&self.until_semicolon()?)?)));
        }
        if self.c.peek() == Some(&Token::SemiColon) {
            return Ok(Stmt::Return(None));
        }
        Ok(Stmt::Return(Some(Sql::expression(&self.until_semicolon()?)?)))
    }

    pub(super) fn raise(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        if self.c.peek() == Some(&Token::SemiColon) {
            return Ok(Stmt::RaiseAgain);
        }
        let level = self.c.take_one(&["debug", "log", "info", "notice", "warning", "exception"]);
        let severity = match level {
            Some("debug") => Some("DEBUG"),
            Some("log") => Some("LOG"),
            Some("info") => Some("INFO"),
            Some("notice") => Some("NOTICE"),
            Some("warning") => Some("WARNING"),
            _ => None,
        };
        let mut raise = Raise { severity, ..Raise::default() };
        if self.c.at_string() {
            let parts = message_parts(&self.c.string()?);
            while self.c.take_token(&Token::Comma) {
                raise.arguments.push(Sql::expression(&self.until_one(&["using"], true)?)?);
            }
            let wanted = parts.len() - 1;
            if raise.arguments.len() != wanted {
                let few = if raise.arguments.len() < wanted { "few" } else { "many" };
                let message = format!("too {few} parameters specified for RAISE");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            raise.message = Some(parts);
        } else if self.c.take("sqlstate") {
            let code = self.c.string()?;
            raise.code = Some(conditions::state(&code).ok_or_else(invalid_sqlstate)?);
            raise.condition = Some(code);
        } else if !self.c.at_words("using") {
            let name = self.c.ident()?;
            let code = conditions::named(&name).into_iter().next();
            raise.code = Some(code.ok_or_else(|| unknown_condition(&name))?);
            raise.condition = Some(name);
        }
        if self.c.take("using") {
            loop {
                let option = self.c.ident()?;
                const OPTIONS: &[&str] = &[
                    "errcode",
                    "message",
                    "detail",
                    "hint",
                    "column",
                    "constraint",
                    "datatype",
                    "table",
                    "schema",
                ];
                if !OPTIONS.contains(&option.as_str()) {
                    let message = format!("unrecognized RAISE statement option at or near \"{option}\"");
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                if !self.assigns() {
                    return Err(self.c.syntax_error());
                }
                let value = self.until_comma_or_semicolon()?;
                raise.using.push((option, Sql::expression(&value)?));
                if !self.c.take_token(&Token::Comma) {
                    break;
                }
            }
        }
        Ok(Stmt::Raise(raise))
    }

    pub(super) fn execute(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        let query = Sql::expression(&self.until_one(&["into", "using"], false)?)?;
        let (mut into, mut using) = (None, Vec::new());
        loop {
            if into.is_none() && self.c.take("into") {
                into = Some(self.into()?);
            } else if using.is_empty() && self.c.take("using") {
                using = self.expressions(&["into"])?;
            } else {
                return Ok(Stmt::Execute { query, into, using });
            }
        }
    }

    /// Expressions separated by commas, up to one of these words or the semicolon.
    pub(super) fn expressions(&mut self, ends: &[&str]) -> SqlResult<Vec<Sql>> {
        let mut list = Vec::new();
        loop {
            list.push(Sql::expression(&self.until_one(ends, true)?)?);
            if !self.c.take_token(&Token::Comma) {
                return Ok(list);
            }
        }
    }

    pub(super) fn diagnostics(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        let stacked = self.c.take("stacked");
        if stacked && self.handling == 0 {
            let message = "GET STACKED DIAGNOSTICS cannot be used outside an exception handler";
            return Err(SqlError::new(SqlState("0Z002"), message));
        }
        self.c.take("current");
        self.c.expect("diagnostics")?;
        let mut items = Vec::new();
        loop {
            let target = self.target()?;
            if !self.assigns() {
                return Err(self.c.syntax_error());
            }
            let item = self.c.ident()?;
            const STACKED: &[&str] = &[
                "returned_sqlstate",
                "message_text",
                "pg_exception_detail",
                "pg_exception_hint",
                "pg_exception_context",
                "column_name",
                "constraint_name",
                "pg_datatype_name",
                "table_name",
                "schema_name",
            ];
            let known = if stacked { STACKED } else { &["row_count", "pg_context"] };
            if !known.contains(&item.as_str()) {
                let message = format!("unrecognized GET DIAGNOSTICS item at or near \"{item}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            if item == "pg_context" {
                return Err(SqlError::unsupported("PG_CONTEXT"));
            }
            items.push((target, item));
            if !self.c.take_token(&Token::Comma) {
                return Ok(Stmt::Diagnostics(items));
            }
        }
    }

    pub(super) fn target(&mut self) -> SqlResult<Target> {
        let mut parts = vec![self.c.ident()?];
        while self.c.take_token(&Token::Period) {
            parts.push(self.c.ident()?);
        }
        if self.c.peek() == Some(&Token::LBracket) {
            return Err(SqlError::unsupported("an assignment to an element of an array"));
        }
        Ok(Target(parts))
    }

    pub(super) fn targets(&mut self) -> SqlResult<Vec<Target>> {
        let mut targets = vec![self.target()?];
        while self.c.take_token(&Token::Comma) {
            targets.push(self.target()?);
        }
        Ok(targets)
    }

    pub(super) fn into(&mut self) -> SqlResult<Into> {
        let strict = self.c.take("strict");
        Ok(Into { strict, targets: self.targets()? })
    }

    /// An SQL statement, perhaps with INTO.
    pub(super) fn sql(&mut self) -> SqlResult<Stmt> {
        let start = self.c.position();
        let word = self.c.word();
        // The INTO of the statement itself is not that of PL/pgSQL.
        let mut own = matches!(word.as_deref(), Some("insert" | "merge" | "import"));
        let may_have = matches!(
            word.as_deref(),
            Some("select" | "insert" | "update" | "delete" | "with" | "merge" | "values" | "table")
        );
        let mut depth = 0usize;
        let mut into = None;
        let mut before = String::new();
        let mut from = start;
        while let Some(token) = self.c.peek() {
            match token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                Token::SemiColon if depth == 0 => break,
                _ => {}
            }
            let word = if depth == 0 { self.c.word() } else { None };
            match word.as_deref() {
                // The statement of a WITH begins here.
                Some("insert" | "merge") => own = true,
                Some("into") if own => own = false,
                Some("into") if may_have && into.is_none() => {
                    before = self.c.text(start, self.c.position());
                    self.c.advance();
                    into = Some(self.into()?);
                    from = self.c.position();
                    continue;
                }
                _ => {}
            }
            self.c.advance();
        }
        if self.c.is_end() && into.is_none() && start == self.c.position() {
            return Err(self.c.syntax_error());
        }
        let rest = self.c.text(from, self.c.position());
        let text = if into.is_some() { format!("{before} {rest}") } else { rest };
        Ok(Stmt::Sql(Sql::statement(&text)?, into))
    }
}
