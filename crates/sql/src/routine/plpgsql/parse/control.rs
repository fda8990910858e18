//! IF, CASE and loops.

use super::super::ast::{Source, Stmt, Target};
use super::Parser;
use crate::routine::statements::Sql;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

impl Parser {
    pub(super) fn branching(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let condition = Sql::expression(&self.until_word("then")?)?;
            self.c.expect("then")?;
            branches.push((condition, self.statements()?));
            if self.c.take("elsif") || self.c.take("elseif") {
                continue;
            }
            if self.c.take("else") {
                otherwise = self.statements()?;
            }
            self.c.expect("end if")?;
            self.semicolon()?;
            return Ok(Stmt::If(branches, otherwise));
        }
    }

    pub(super) fn case(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        let operand =
            if self.c.at_words("when") { None } else { Some(Sql::expression(&self.until_word("when")?)?) };
        let mut branches = Vec::new();
        while self.c.take("when") {
            let mut tests = Vec::new();
            let mut text = self.until_one(&["then"], operand.is_some())?;
            loop {
                tests.push(Sql::expression(&text)?);
                if !self.c.take_token(&Token::Comma) {
                    break;
                }
                text = self.until_one(&["then"], true)?;
            }
            self.c.expect("then")?;
            branches.push((tests, self.statements()?));
        }
        if branches.is_empty() {
            return Err(self.c.syntax_error());
        }
        let otherwise = if self.c.take("else") { Some(self.statements()?) } else { None };
        self.c.expect("end case")?;
        self.semicolon()?;
        Ok(Stmt::Case { operand, branches, otherwise })
    }

    pub(super) fn looping(&mut self, label: Option<String>) -> SqlResult<Stmt> {
        if self.c.take("loop") {
            let body = self.loop_body(label.as_deref())?;
            return Ok(Stmt::Loop(label, body));
        }
        if self.c.take("while") {
            let condition = Sql::expression(&self.until_word("loop")?)?;
            self.c.expect("loop")?;
            let body = self.loop_body(label.as_deref())?;
            return Ok(Stmt::While(label, condition, body));
        }
        let each = self.c.take("foreach");
        if !each {
            self.c.expect("for")?;
        }
        let targets = self.targets()?;
        if each {
            if self.c.take("slice") {
                return Err(SqlError::unsupported("SLICE in FOREACH"));
            }
            self.c.expect("in array")?;
            let array = Sql::expression(&self.until_word("loop")?)?;
            self.c.expect("loop")?;
            let body = self.loop_body(label.as_deref())?;
            let target = targets.into_iter().next().unwrap_or(Target(Vec::new()));
            return Ok(Stmt::ForEach { label, target, array, body });
        }
        self.c.expect("in")?;
        if self.c.take("execute") {
            let query = Sql::expression(&self.until_one(&["loop", "using"], false)?)?;
            let using = if self.c.take("using") { self.expressions(&["loop"])? } else { Vec::new() };
            self.c.expect("loop")?;
            let body = self.loop_body(label.as_deref())?;
            return Ok(Stmt::ForRows { label, targets, source: Source::Execute(query, using), body });
        }
        let start = self.c.position();
        let reverse = self.c.take("reverse");
        if let Some(from) = self.until_range()? {
            let from = Sql::expression(&from)?;
            let to = Sql::expression(&self.until_one(&["loop", "by"], false)?)?;
            let by = if self.c.take("by") { Some(Sql::expression(&self.until_word("loop")?)?) } else { None };
            self.c.expect("loop")?;
            let body = self.loop_body(label.as_deref())?;
            let variable = match targets.as_slice() {
                [Target(parts)] if parts.len() == 1 => parts.first().cloned().unwrap_or_default(),
                _ => {
                    let message = "integer FOR loop must have only one target variable";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
            };
            return Ok(Stmt::ForInteger { label, variable, from, to, by, reverse, body });
        }
        self.c.rewind(start);
        let query = Sql::statement(&self.until_word("loop")?)?;
        self.c.expect("loop")?;
        let body = self.loop_body(label.as_deref())?;
        Ok(Stmt::ForRows { label, targets, source: Source::Query(query), body })
    }

    pub(super) fn loop_body(&mut self, label: Option<&str>) -> SqlResult<Vec<Stmt>> {
        let body = self.statements()?;
        self.c.expect("end loop")?;
        self.end_label(label)?;
        self.semicolon()?;
        Ok(body)
    }
}
