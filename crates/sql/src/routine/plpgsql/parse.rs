//! Text to [`Block`].

use super::super::statements::Sql;
use super::ast::{Block, Declaration, Handler, Into, Raise, Source, Stmt, Target, VariableType};
use super::conditions;
use crate::ddl::tokens::Cursor;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

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

/// Puts blanks around the two dots of a range, which would be taken for parts of numbers.
fn spread_dots(text: &str) -> String {
    if !text.contains("..") {
        return text.to_string();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\'' | '"' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '.' if rest.starts_with("..") => {
                out.push_str(" . . ");
                rest = &rest[2..];
                continue;
            }
            other => other.len_utf8(),
        };
        let (part, left) = rest.split_at(taken);
        out.push_str(part);
        rest = left;
    }
    out
}

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
            Some(Sql::expression(&self.until_token(&Token::SemiColon)?)?)
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
                let when = if self.c.take("when") {
                    Some(Sql::expression(&self.until_token(&Token::SemiColon)?)?)
                } else {
                    None
                };
                Stmt::Leave { exit: word == "exit", label, when }
            }
            "return" => self.returning()?,
            "raise" => self.raise()?,
            "assert" => {
                self.c.advance();
                let condition = Sql::expression(&self.until_comma_or_semicolon()?)?;
                let message = if self.c.take_token(&Token::Comma) {
                    Some(Sql::expression(&self.until_token(&Token::SemiColon)?)?)
                } else {
                    None
                };
                Stmt::Assert(condition, message)
            }
            "perform" => {
                self.c.advance();
                Stmt::Perform(Sql::statement(&format!("SELECT {}", self.until_token(&Token::SemiColon)?))?)
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
        if self.c.peek() == Some(&Token::LBracket) {
            return Err(SqlError::unsupported("an assignment to an element of an array"));
        }
        if !self.assigns() {
            self.c.rewind(start);
            return Ok(None);
        }
        let value = Sql::expression(&self.until_token(&Token::SemiColon)?)?;
        self.semicolon()?;
        Ok(Some(Stmt::Assign(Target(parts), value)))
    }

    fn branching(&mut self) -> SqlResult<Stmt> {
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

    fn case(&mut self) -> SqlResult<Stmt> {
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

    fn looping(&mut self, label: Option<String>) -> SqlResult<Stmt> {
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

    fn loop_body(&mut self, label: Option<&str>) -> SqlResult<Vec<Stmt>> {
        let body = self.statements()?;
        self.c.expect("end loop")?;
        self.end_label(label)?;
        self.semicolon()?;
        Ok(body)
    }

    fn returning(&mut self) -> SqlResult<Stmt> {
        self.c.advance();
        if self.c.at_words("next") || self.c.at_words("query") {
            return Err(SqlError::unsupported("a function that returns a set"));
        }
        if self.c.peek() == Some(&Token::SemiColon) {
            return Ok(Stmt::Return(None));
        }
        Ok(Stmt::Return(Some(Sql::expression(&self.until_token(&Token::SemiColon)?)?)))
    }

    fn raise(&mut self) -> SqlResult<Stmt> {
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

    fn execute(&mut self) -> SqlResult<Stmt> {
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
    fn expressions(&mut self, ends: &[&str]) -> SqlResult<Vec<Sql>> {
        let mut list = Vec::new();
        loop {
            list.push(Sql::expression(&self.until_one(ends, true)?)?);
            if !self.c.take_token(&Token::Comma) {
                return Ok(list);
            }
        }
    }

    fn diagnostics(&mut self) -> SqlResult<Stmt> {
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

    fn target(&mut self) -> SqlResult<Target> {
        let mut parts = vec![self.c.ident()?];
        while self.c.take_token(&Token::Period) {
            parts.push(self.c.ident()?);
        }
        if self.c.peek() == Some(&Token::LBracket) {
            return Err(SqlError::unsupported("an assignment to an element of an array"));
        }
        Ok(Target(parts))
    }

    fn targets(&mut self) -> SqlResult<Vec<Target>> {
        let mut targets = vec![self.target()?];
        while self.c.take_token(&Token::Comma) {
            targets.push(self.target()?);
        }
        Ok(targets)
    }

    fn into(&mut self) -> SqlResult<Into> {
        let strict = self.c.take("strict");
        Ok(Into { strict, targets: self.targets()? })
    }

    /// An SQL statement, perhaps with INTO.
    fn sql(&mut self) -> SqlResult<Stmt> {
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

    /// The text up to a word outside of parentheses and CASE … END.
    fn until_word(&mut self, word: &str) -> SqlResult<String> {
        self.until_one(&[word], false)
    }

    fn until_token(&mut self, _semicolon: &Token) -> SqlResult<String> {
        self.until_one(&[], false)
    }

    fn until_comma_or_semicolon(&mut self) -> SqlResult<String> {
        self.until_one(&[], true)
    }

    /// The text up to one of these words, a semicolon or (`comma`) a comma.
    fn until_one(&mut self, words: &[&str], comma: bool) -> SqlResult<String> {
        let start = self.c.position();
        let (mut depth, mut cases) = (0usize, 0usize);
        while let Some(token) = self.c.peek() {
            let outside = depth == 0 && cases == 0;
            match token {
                Token::SemiColon => break,
                Token::Comma if comma && outside => break,
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                Token::Word(_) => {
                    let word = self.c.word();
                    match word.as_deref() {
                        Some(word) if outside && words.contains(&word) => break,
                        Some("case") => cases += 1,
                        Some("end") => cases = cases.saturating_sub(1),
                        _ => {}
                    }
                }
                _ => {}
            }
            self.c.advance();
        }
        if start == self.c.position() {
            return Err(match self.c.is_end() {
                true => self.c.syntax_error(),
                false => {
                    let near = self.c.text(start, start + 1);
                    let message = format!("missing expression at or near \"{near}\"");
                    SqlError::new(SqlState::SYNTAX_ERROR, message)
                }
            });
        }
        Ok(self.c.text(start, self.c.position()))
    }

    /// The text before the two dots of a range, behind which the cursor stands then; `None` if there are none.
    fn until_range(&mut self) -> SqlResult<Option<String>> {
        let start = self.c.position();
        let mut depth = 0usize;
        while let Some(token) = self.c.peek() {
            match token {
                Token::SemiColon => break,
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                Token::Word(_) if depth == 0 && self.c.at_words("loop") => break,
                Token::Period if depth == 0 => {
                    let at = self.c.position();
                    self.c.advance();
                    if self.c.take_token(&Token::Period) {
                        return Ok(Some(self.c.text(start, at)));
                    }
                    continue;
                }
                _ => {}
            }
            self.c.advance();
        }
        Ok(None)
    }
}

fn invalid_sqlstate() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "invalid SQLSTATE code")
}

fn unknown_condition(name: &str) -> SqlError {
    let message = format!("unrecognized exception condition \"{name}\"");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// The parts of a message between its `%`; `%%` stands for the character.
fn message_parts(format: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = format.chars().peekable();
    while let Some(next) = chars.next() {
        if next == '%' && chars.peek() != Some(&'%') {
            parts.push(String::new());
            continue;
        }
        if next == '%' {
            chars.next();
        }
        if let Some(last) = parts.last_mut() {
            last.push(next);
        }
    }
    parts
}
