//! A minimal evaluator of expressions: typed literals, calls, one operator at a time, casts.

use sql_types::cast::{cast, cast_kind};
use sql_types::functions::{EvalContext, Resolved, resolve, resolve_operator};
use sql_types::text;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};

pub fn evaluate(source: &str, context: &EvalContext<'_>) -> SqlResult<(Datum, Type)> {
    let mut parser = Parser { rest: source, context };
    let (value, ty) = parser.expression()?;
    assert!(parser.rest.trim().is_empty(), "junk after {source}: {}", parser.rest);
    if ty == Type::UNKNOWN { Ok((value, Type::TEXT)) } else { Ok((value, ty)) }
}

/// Name and arguments of a call, for functions that are no expressions.
pub fn arguments(source: &str, context: &EvalContext<'_>) -> SqlResult<(String, Vec<Typed>)> {
    let mut parser = Parser { rest: source, context };
    let name = parser.word();
    assert!(parser.accept("("), "a call: {source}");
    let mut args = Vec::new();
    while !parser.accept(")") {
        args.push(parser.expression()?);
        parser.accept(",");
    }
    Ok((name, args))
}

struct Parser<'a> {
    rest: &'a str,
    context: &'a EvalContext<'a>,
}

/// A value with its type.
pub type Typed = (Datum, Type);

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn accept(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn operator(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !"+-*/<>=~!@#%^&|?".contains(c)).unwrap_or(self.rest.len());
        let operator = self.rest[..end].to_string();
        self.rest = &self.rest[end..];
        (end > 0).then_some(operator)
    }

    fn expression(&mut self) -> SqlResult<Typed> {
        let left = self.unary()?;
        match self.operator() {
            None => Ok(left),
            Some(operator) => {
                let right = self.unary()?;
                let resolved = resolve_operator(&operator, Some(left.1), right.1)?;
                self.call(resolved, vec![left, right])
            }
        }
    }

    fn unary(&mut self) -> SqlResult<Typed> {
        match self.operator() {
            None => self.postfix(),
            Some(operator) => {
                let operand = self.unary()?;
                let resolved = resolve_operator(&operator, None, operand.1)?;
                self.call(resolved, vec![operand])
            }
        }
    }

    fn postfix(&mut self) -> SqlResult<Typed> {
        let mut value = self.primary()?;
        while self.accept("::") {
            let word = self.word();
            let to = self.type_name(&word);
            value = (self.cast(value, to)?, to.ty);
        }
        Ok(value)
    }

    fn cast(&self, (value, from): Typed, to: ColumnType) -> SqlResult<Datum> {
        if from == Type::UNKNOWN {
            let Datum::Text(string) = &value else { return Ok(Datum::Null) };
            let plain = text::parse(
                ColumnType { ty: to.ty, typmod: if to.ty == Type::INTERVAL { to.typmod } else { -1 } },
                string,
                self.context,
            )?;
            return cast(&plain, to.ty, to, true, self.context);
        }
        if cast_kind(from, to.ty).is_none() {
            return Err(SqlError::new(
                SqlState::CANNOT_COERCE,
                format!("cannot cast type {from} to {}", to.ty),
            ));
        }
        cast(&value, from, to, true, self.context)
    }

    fn word(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_string();
        self.rest = &self.rest[end..];
        word
    }

    /// The rest of a type: `(n)`, `(p,s)`, `[]`.
    fn type_name(&mut self, word: &str) -> ColumnType {
        let name = if word == "char" { "bpchar" } else { word };
        let mut ty = Type::by_name(name).unwrap_or_else(|| panic!("type {word}"));
        let mut typmod = -1;
        if self.rest.starts_with('(') {
            let end = self.rest.find(')').expect("a closing parenthesis");
            let numbers: Vec<i32> =
                self.rest[1..end].split(',').map(|n| n.trim().parse().expect("a number")).collect();
            self.rest = &self.rest[end + 1..];
            typmod = match (ty, numbers.as_slice()) {
                (Type::NUMERIC, [precision]) => (precision << 16) + 4,
                (Type::NUMERIC, [precision, scale]) => (precision << 16 | (scale & 0x7ff)) + 4,
                (Type::VARCHAR | Type::BPCHAR, [length]) => length + 4,
                (Type::INTERVAL, [precision]) => 0x7fff << 16 | precision,
                (_, [precision]) => *precision,
                _ => -1,
            };
        }
        while self.accept("[]") {
            ty = ty.array().expect("an array type");
        }
        ColumnType { ty, typmod }
    }

    fn literal(&mut self) -> String {
        assert!(self.accept("'"), "a literal at {}", self.rest);
        let mut out = String::new();
        loop {
            let end = self.rest.find('\'').expect("a closing quote");
            out.push_str(&self.rest[..end]);
            self.rest = &self.rest[end + 1..];
            if !self.rest.starts_with('\'') {
                return out;
            }
            out.push('\'');
            self.rest = &self.rest[1..];
        }
    }

    fn primary(&mut self) -> SqlResult<Typed> {
        match self.peek() {
            Some('(') => {
                self.accept("(");
                let value = self.expression()?;
                assert!(self.accept(")"), "a closing parenthesis at {}", self.rest);
                return Ok(value);
            }
            Some('\'') => return Ok((Datum::text(self.literal()), Type::UNKNOWN)),
            _ => {}
        }
        let word = self.word();
        if word == "null" {
            return Ok((Datum::Null, Type::UNKNOWN));
        }
        if self.rest.starts_with('(') && Type::by_name(&word).is_none() || self.rest.starts_with("((") {
            self.accept("(");
            let mut args = Vec::new();
            while !self.accept(")") {
                args.push(self.expression()?);
                self.accept(",");
            }
            let types: Vec<Type> = args.iter().map(|(_, ty)| *ty).collect();
            let resolved = resolve(&word, &types)?;
            return self.call(resolved, args);
        }
        let ty = self.type_name(&word);
        let text = self.literal();
        Ok((self.cast((Datum::text(text), Type::UNKNOWN), ty)?, ty.ty))
    }

    fn call(&self, resolved: Resolved, args: Vec<Typed>) -> SqlResult<Typed> {
        let values = args
            .into_iter()
            .zip(&resolved.arg_types)
            .map(|(arg, ty)| if arg.1 == *ty { Ok(arg.0) } else { self.cast(arg, ColumnType::plain(*ty)) })
            .collect::<SqlResult<Vec<_>>>()?;
        let value = resolved.function.call(self.context, &resolved.arg_types, &values)?;
        Ok((value, resolved.returns))
    }
}
