//! Text to [`Block`]: blocks and declarations here, control structures in [`control`], other statements in
//! [`statement`], and where expressions end in [`text`].

mod control;
mod statement;
mod text;

use super::super::statements::Sql;
use super::ast::{Block, Declaration, Handler, Stmt, Target, VariableType};
use super::conditions;
use crate::ddl::tokens::Cursor;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;
use text::spread_dots;

/// How deep blocks and control structures nest.
pub const MOST_NESTING: usize = 100;

/// Reads a body.
///
/// # Errors
/// 42601 for what is no PL/pgSQL, 54001 for what is nested too deep, 0A000 naming what is not supported.
pub fn parse(text: &str) -> SqlResult<Block> {
    let mut parser = Parser { c: Cursor::new(&spread_dots(text))?, depth: 0, handling: 0 };
    let label = parser.label()?;
    let block = parser.block(label)?;
    parser.c.take_token(&Token::SemiColon);
    parser.c.expect_end()?;
    Ok(block)
}

/// A body that is being read.
struct Parser {
    c: Cursor,
    depth: usize,
    /// How many EXCEPTION clauses this is in.
    handling: usize,
}

/// Words that end a list of statements.
const ENDS: &[&str] = &["end", "elsif", "elseif", "else", "exception", "when"];

impl Parser {
    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> SqlResult<T>) -> SqlResult<T> {
        if self.depth >= MOST_NESTING {
            return Err(SqlError::new(
                SqlState::TOO_COMPLEX,
                "the body of the function is nested too deeply",
            ));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// `<<label>>`
    fn label(&mut self) -> SqlResult<Option<String>> {
        if !self.c.take_token(&Token::ShiftLeft) {
            return Ok(None);
        }
        let label = self.c.ident()?;
        self.c.expect_token(&Token::ShiftRight)?;
        Ok(Some(label))
    }

    fn block(&mut self, label: Option<String>) -> SqlResult<Block> {
        let mut block = Block { label, ..Block::default() };
        while self.c.take("declare") {
            while !self.c.at_words("begin") && !self.c.at_words("declare") {
                let declaration = self.declaration()?;
                if block.declarations.iter().any(|known| known.name == declaration.name) {
                    let message = format!("duplicate declaration at or near \"{}\"", declaration.name);
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                block.declarations.push(declaration);
            }
        }
        self.c.expect("begin")?;
        block.body = self.statements()?;
        if self.c.take("exception") {
            self.handling += 1;
            while self.c.take("when") {
                block.handlers.push(self.handler()?);
            }
            self.handling -= 1;
            if block.handlers.is_empty() {
                return Err(self.c.syntax_error());
            }
        }
        self.c.expect("end")?;
        self.end_label(block.label.as_deref())?;
        Ok(block)
    }

    /// The label after END, if there is one.
    fn end_label(&mut self, label: Option<&str>) -> SqlResult<()> {
        if self.c.is_end() || self.c.peek() == Some(&Token::SemiColon) {
            return Ok(());
        }
        let written = self.c.ident()?;
        match label {
            Some(label) if label == written => Ok(()),
            Some(label) => {
                let message = format!("end label \"{written}\" differs from block's label \"{label}\"");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
            None => {
                let message = format!("end label \"{written}\" specified for unlabeled block");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
        }
    }

    fn handler(&mut self) -> SqlResult<Handler> {
        let mut found = Vec::new();
        loop {
            if self.c.take("sqlstate") {
                let code = self.c.string()?;
                found.push(Some(conditions::state(&code).ok_or_else(invalid_sqlstate)?));
            } else {
                let name = self.c.ident()?;
                if name == "others" {
                    found.push(None);
                } else {
                    let named = conditions::named(&name);
                    if named.is_empty() {
                        return Err(unknown_condition(&name));
                    }
                    found.extend(named.into_iter().map(Some));
                }
            }
            if !self.c.take("or") {
                break;
            }
        }
        self.c.expect("then")?;
        Ok(Handler { conditions: found, body: self.statements()? })
    }

    fn declaration(&mut self) -> SqlResult<Declaration> {
        let name = self.c.ident()?;
        if self.c.take("alias for") {
            let of = match self.c.peek() {
                Some(Token::Placeholder(number)) => {
                    let number = number.clone();
                    self.c.advance();
                    number
                }
                _ => self.c.ident()?,
            };
            self.semicolon()?;
            let ty = VariableType::Alias(of);
            return Ok(Declaration { name, ty, constant: false, not_null: false, default: None });
        }
        let constant = self.c.take("constant");
        if self.c.at_words("cursor")
            || self.c.at_words("no scroll cursor")
            || self.c.at_words("scroll cursor")
        {
            return Err(SqlError::unsupported("a cursor in PL/pgSQL"));
        }
        let ty = self.variable_type()?;
        if self.c.take("collate") {
            self.c.name()?;
        }
        let not_null = self.c.take("not null");
        let default = if self.c.take("default") || self.assigns() {
            Some(Sql::expression(&self.until_semicolon()?)?)
        } else {
            None
        };
        if not_null && default.is_none() {
            let message =
                format!("variable \"{name}\" must have a default value, since it's declared NOT NULL");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        self.semicolon()?;
        Ok(Declaration { name, ty, constant, not_null, default })
    }

    fn variable_type(&mut self) -> SqlResult<VariableType> {
        if self.c.take("record") {
            return Ok(VariableType::Record);
        }
        if self.c.at_words("refcursor") {
            return Err(SqlError::unsupported("a cursor in PL/pgSQL"));
        }
        let start = self.c.position();
        if let Ok(first) = self.c.ident() {
            let mut parts = vec![first];
            while self.c.take_token(&Token::Period) {
                parts.push(self.c.ident()?);
            }
            if self.c.take_token(&Token::Mod) {
                if self.c.take("type") {
                    return Ok(VariableType::Like(parts));
                }
                self.c.expect("rowtype")?;
                return Ok(VariableType::Row(parts));
            }
        }
        self.c.rewind(start);
        Ok(VariableType::Named(Box::new(self.c.data_type()?)))
    }

    /// Takes `:=` or `=`.
    fn assigns(&mut self) -> bool {
        self.c.take_token(&Token::Assignment) || self.c.take_token(&Token::Eq)
    }

    fn semicolon(&mut self) -> SqlResult<()> {
        self.c.expect_token(&Token::SemiColon)
    }

    fn statements(&mut self) -> SqlResult<Vec<Stmt>> {
        let mut list = Vec::new();
        loop {
            let word = self.c.word();
            if self.c.is_end() || word.as_deref().is_some_and(|word| ENDS.contains(&word)) {
                return Ok(list);
            }
            list.push(self.deeper(Self::statement)?);
        }
    }

    fn statement(&mut self) -> SqlResult<Stmt> {
        let label = self.label()?;
        let word = self.c.word().unwrap_or_default();
        match word.as_str() {
            "declare" | "begin" => {
                let block = self.block(label)?;
                self.semicolon()?;
                return Ok(Stmt::Block(block));
            }
            "loop" | "while" | "for" | "foreach" => return self.looping(label),
            _ if label.is_some() => return Err(self.c.syntax_error()),
            _ => {}
        }
        if let Some(assignment) = self.assignment()? {
            return Ok(assignment);
        }
        let statement = match word.as_str() {
            "if" => return self.branching(),
            "case" => return self.case(),
            "null" => {
                self.c.advance();
                Stmt::Null
            }
            "exit" | "continue" => {
                self.c.advance();
                let at_end = |p: &Self| p.c.at_words("when") || p.c.peek() == Some(&Token::SemiColon);
                let label = if at_end(self) { None } else { Some(self.c.ident()?) };
                let when =
                    if self.c.take("when") { Some(Sql::expression(&self.until_semicolon()?)?) } else { None };
                Stmt::Leave { exit: word == "exit", label, when }
            }
            "return" => self.returning()?,
            "raise" => self.raise()?,
            "assert" => {
                self.c.advance();
                let condition = Sql::expression(&self.until_comma_or_semicolon()?)?;
                let message = if self.c.take_token(&Token::Comma) {
                    Some(Sql::expression(&self.until_semicolon()?)?)
                } else {
                    None
                };
                Stmt::Assert(condition, message)
            }
            "perform" => {
                self.c.advance();
                Stmt::Perform(Sql::statement(&format!("SELECT {}", self.until_semicolon()?))?)
            }
            "execute" => self.execute()?,
            "get" => self.diagnostics()?,
            "open" | "fetch" | "move" | "close" => {
                return Err(SqlError::unsupported("a cursor in PL/pgSQL"));
            }
            "commit" | "rollback" | "call" => {
                return Err(SqlError::unsupported(format!("{} in PL/pgSQL", word.to_uppercase())));
            }
            _ => self.sql()?,
        };
        self.semicolon()?;
        Ok(statement)
    }

    /// Goes behind `[…]…`; false if a bracket is not closed.
    fn skip_subscripts(&mut self) -> bool {
        let mut depth = 0usize;
        while let Some(token) = self.c.peek() {
            match token {
                Token::LBracket => depth += 1,
                Token::RBracket => depth = depth.saturating_sub(1),
                Token::SemiColon => return false,
                _ if depth == 0 => return true,
                _ => {}
            }
            self.c.advance();
        }
        false
    }

    fn assignment(&mut self) -> SqlResult<Option<Stmt>> {
        let start = self.c.position();
        let Ok(first) = self.c.ident() else {
            self.c.rewind(start);
            return Ok(None);
        };
        let mut parts = vec![first];
        while self.c.peek() == Some(&Token::Period) {
            self.c.advance();
            match self.c.ident() {
                Ok(part) => parts.push(part),
                Err(_) => {
                    self.c.rewind(start);
                    return Ok(None);
                }
            }
        }
        let element = self.c.peek() == Some(&Token::LBracket);
        if element && !self.skip_subscripts() {
            return Err(self.c.syntax_error());
        }
        let end = self.c.position();
        if !self.assigns() {
            self.c.rewind(start);
            return Ok(None);
        }
        let value = self.until_semicolon()?;
        let value = match element {
            true => Sql::assigned(&self.c.text(start, end), &value)?,
            false => Sql::expression(&value)?,
        };
        self.semicolon()?;
        Ok(Some(Stmt::Assign(Target(parts), value)))
    }
}

fn invalid_sqlstate() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "invalid SQLSTATE code")
}

fn unknown_condition(name: &str) -> SqlError {
    let message = format!("unrecognized exception condition \"{name}\"");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}
