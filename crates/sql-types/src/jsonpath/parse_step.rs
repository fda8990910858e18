//! The steps of an expression.

use super::lex::Token;
use super::parse::Parser;
use super::{Method, Node, Step};
use crate::error::{SqlError, SqlResult};

impl Parser<'_> {
    /// The step that comes next, if there is one.
    pub(super) fn step(&mut self) -> SqlResult<Option<Step>> {
        if self.take("[") {
            return self.subscript().map(Some);
        }
        if self.take("?") {
            self.expect("(")?;
            self.filters += 1;
            let predicate = self.predicate();
            self.filters -= 1;
            let predicate = predicate?;
            self.expect(")")?;
            return Ok(Some(Step::Filter(predicate)));
        }
        if !self.take(".") {
            return Ok(None);
        }
        if self.take("*") {
            return Ok(Some(Step::AnyKey));
        }
        if self.take("**") {
            return self.levels().map(Some);
        }
        let token = self.peek().cloned();
        self.at += 1;
        match token {
            Some(Token::String(key)) => Ok(Some(Step::Key(key))),
            Some(Token::Word(word)) => {
                if self.at_symbol("(")
                    && let Some(method) = method_named(&word)
                {
                    self.at += 1;
                    if method == Method::Datetime && !self.at_symbol(")") {
                        return Err(SqlError::unsupported("a template of jsonpath's datetime()"));
                    }
                    self.expect(")")?;
                    return Ok(Some(Step::Method(method)));
                }
                Ok(Some(Step::Key(word)))
            }
            _ => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    fn subscript(&mut self) -> SqlResult<Step> {
        if self.take("*") {
            self.expect("]")?;
            return Ok(Step::AnyElement);
        }
        self.subscripts += 1;
        let list = self.subscript_list();
        self.subscripts -= 1;
        let list = list?;
        self.expect("]")?;
        Ok(Step::Elements(list))
    }

    fn subscript_list(&mut self) -> SqlResult<Vec<(Node, Option<Node>)>> {
        let mut list = Vec::new();
        loop {
            let from = self.or()?;
            let from = self.as_node(from)?;
            let to = if self.take_word("to") {
                let to = self.or()?;
                Some(self.as_node(to)?)
            } else {
                None
            };
            list.push((from, to));
            if !self.take(",") {
                return Ok(list);
            }
        }
    }

    /// `{1}`, `{1 to last}`, or nothing.
    fn levels(&mut self) -> SqlResult<Step> {
        if !self.take("{") {
            return Ok(Step::Any(Some(0), None));
        }
        let first = self.level()?;
        let last = if self.take_word("to") { self.level()? } else { first };
        self.expect("}")?;
        Ok(Step::Any(first, last))
    }

    fn level(&mut self) -> SqlResult<Option<u32>> {
        if self.take_word("last") {
            return Ok(None);
        }
        match self.peek() {
            Some(Token::Number(text)) => {
                let level = text.parse().map_err(|_| self.unexpected())?;
                self.at += 1;
                Ok(Some(level))
            }
            _ => Err(self.unexpected()),
        }
    }
}

fn method_named(word: &str) -> Option<Method> {
    let methods = [
        Method::Type,
        Method::Size,
        Method::Double,
        Method::Ceiling,
        Method::Floor,
        Method::Abs,
        Method::Datetime,
        Method::KeyValue,
    ];
    methods.into_iter().find(|method| method.name().eq_ignore_ascii_case(word))
}
