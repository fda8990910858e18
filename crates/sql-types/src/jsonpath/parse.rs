//! Text to [`Path`], by recursive descent.

use super::lex::{Token, syntax, tokens};
use super::{Arithmetic, Comparison, Head, MAX_DEPTH, Node, Path, Predicate};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::compile_regex;
use crate::numeric::Numeric;

/// What an expression turned out to be.
pub(super) enum Parsed {
    Node(Node),
    Predicate(Predicate),
    /// A predicate in parentheses, which steps or `is unknown` may follow.
    Delimited(Predicate),
}

pub(super) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, usize)>,
    pub(super) at: usize,
    depth: usize,
    /// How many filters are around, in which `@` means something.
    pub(super) filters: usize,
    /// How many subscripts are around, in which `last` means something.
    pub(super) subscripts: usize,
}

/// Reads a jsonpath expression.
///
/// # Errors
/// 42601 for what is none, 2201B for a wrong regular expression in it, 54001 if it nests too deeply.
pub fn parse(text: &str) -> SqlResult<Path> {
    let mut parser = Parser { text, tokens: tokens(text)?, at: 0, depth: 0, filters: 0, subscripts: 0 };
    if parser.tokens.is_empty() {
        let message = format!("invalid input syntax for type jsonpath: \"{text}\"");
        return Err(SqlError::new(SqlState::INVALID_TEXT, message));
    }
    let strict = parser.take_word("strict");
    let lax = !strict && {
        parser.take_word("lax");
        true
    };
    let root = parser.any()?;
    if parser.at < parser.tokens.len() {
        return Err(parser.unexpected());
    }
    Ok(Path { lax, root })
}

fn predicate_node(predicate: Predicate) -> Node {
    Node { head: Head::Predicate(Box::new(predicate)), steps: Vec::new() }
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    pub(super) fn unexpected(&self) -> SqlError {
        let Some((_, start)) = self.tokens.get(self.at) else { return syntax(None) };
        let end = self.tokens.get(self.at + 1).map_or(self.text.len(), |(_, next)| *next);
        syntax(Some(self.text[*start..end].trim_end()))
    }

    pub(super) fn at_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol)
    }

    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, symbol: &str) -> SqlResult<()> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes a keyword; those of JSON itself are lower case only.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> SqlResult<T>) -> SqlResult<T> {
        if self.depth >= MAX_DEPTH {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "stack depth limit exceeded")
                .with_detail("The jsonpath expression is nested too deeply."));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// An expression or predicate, as an expression.
    fn any(&mut self) -> SqlResult<Node> {
        Ok(match self.or()? {
            Parsed::Node(node) => node,
            Parsed::Predicate(predicate) | Parsed::Delimited(predicate) => predicate_node(predicate),
        })
    }

    pub(super) fn predicate(&mut self) -> SqlResult<Predicate> {
        let parsed = self.or()?;
        self.as_predicate(parsed)
    }

    fn as_predicate(&self, parsed: Parsed) -> SqlResult<Predicate> {
        match parsed {
            Parsed::Predicate(predicate) | Parsed::Delimited(predicate) => Ok(predicate),
            Parsed::Node(_) => Err(self.unexpected()),
        }
    }

    pub(super) fn as_node(&self, parsed: Parsed) -> SqlResult<Node> {
        match parsed {
            Parsed::Node(node) => Ok(node),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn or(&mut self) -> SqlResult<Parsed> {
        self.deeper(|p| {
            let mut left = p.and()?;
            while p.at_symbol("||") {
                let first = p.as_predicate(left)?;
                p.at += 1;
                let second = p.and()?;
                let second = p.as_predicate(second)?;
                left = Parsed::Predicate(Predicate::Or(Box::new(first), Box::new(second)));
            }
            Ok(left)
        })
    }

    fn and(&mut self) -> SqlResult<Parsed> {
        let mut left = self.not()?;
        while self.at_symbol("&&") {
            let first = self.as_predicate(left)?;
            self.at += 1;
            let second = self.not()?;
            let second = self.as_predicate(second)?;
            left = Parsed::Predicate(Predicate::And(Box::new(first), Box::new(second)));
        }
        Ok(left)
    }

    fn not(&mut self) -> SqlResult<Parsed> {
        if !self.take("!") {
            return self.comparison();
        }
        let negated = if self.take_word("exists") {
            self.exists()?
        } else {
            self.expect("(")?;
            let inner = self.predicate()?;
            self.expect(")")?;
            inner
        };
        Ok(Parsed::Predicate(Predicate::Not(Box::new(negated))))
    }

    fn exists(&mut self) -> SqlResult<Predicate> {
        self.expect("(")?;
        let parsed = self.or()?;
        let node = self.as_node(parsed)?;
        self.expect(")")?;
        Ok(Predicate::Exists(node))
    }

    fn comparison(&mut self) -> SqlResult<Parsed> {
        if self.take_word("exists") {
            return Ok(Parsed::Delimited(self.exists()?));
        }
        let left = self.sum()?;
        let operators = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<>", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        if let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.at_symbol(symbol)) {
            let first = self.as_node(left)?;
            self.at += 1;
            let second = self.sum()?;
            let second = self.as_node(second)?;
            return Ok(Parsed::Predicate(Predicate::Compare(*operator, first, second)));
        }
        if self.take_word("starts") {
            let value = self.as_node(left)?;
            if !self.take_word("with") {
                return Err(self.unexpected());
            }
            let head = match self.peek() {
                Some(Token::String(text)) => Head::String(text.clone()),
                Some(Token::Variable(name)) => Head::Variable(name.clone()),
                _ => return Err(self.unexpected()),
            };
            self.at += 1;
            return Ok(Parsed::Predicate(Predicate::StartsWith(value, Node { head, steps: Vec::new() })));
        }
        if self.take_word("like_regex") {
            let value = self.as_node(left)?;
            return self.like_regex(value).map(Parsed::Predicate);
        }
        Ok(left)
    }

    fn string(&mut self) -> SqlResult<String> {
        match self.peek() {
            Some(Token::String(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn like_regex(&mut self, value: Node) -> SqlResult<Predicate> {
        let pattern = self.string()?;
        let written = if self.take_word("flag") { self.string()? } else { String::new() };
        if let Some(wrong) = written.chars().find(|c| !"ismxq".contains(*c)) {
            let detail = format!("Unrecognized flag character \"{wrong}\" in LIKE_REGEX predicate.");
            let message = "invalid input syntax for type jsonpath";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).with_detail(detail));
        }
        if written.contains('x') && !written.contains('q') {
            return Err(SqlError::unsupported("XQuery \"x\" flag (expanded regular expressions)"));
        }
        let flags: String = "ismxq".chars().filter(|flag| written.contains(*flag)).collect();
        compile_regex(&pattern, &regex_flags(&flags))?;
        Ok(Predicate::LikeRegex { value, pattern, flags })
    }

    fn sum(&mut self) -> SqlResult<Parsed> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some(Token::Symbol("+")) => Arithmetic::Add,
                Some(Token::Symbol("-")) => Arithmetic::Sub,
                _ => return Ok(left),
            };
            let first = self.as_node(left)?;
            self.at += 1;
            let second = self.product()?;
            let second = self.as_node(second)?;
            left = Parsed::Node(arithmetic(operator, first, second));
        }
    }

    fn product(&mut self) -> SqlResult<Parsed> {
        let mut left = self.signed()?;
        loop {
            let operator = match self.peek() {
                Some(Token::Symbol("*")) => Arithmetic::Mul,
                Some(Token::Symbol("/")) => Arithmetic::Div,
                Some(Token::Symbol("%")) => Arithmetic::Mod,
                _ => return Ok(left),
            };
            let first = self.as_node(left)?;
            self.at += 1;
            let second = self.signed()?;
            let second = self.as_node(second)?;
            left = Parsed::Node(arithmetic(operator, first, second));
        }
    }

    fn signed(&mut self) -> SqlResult<Parsed> {
        let negative = match self.peek() {
            Some(Token::Symbol("-")) => true,
            Some(Token::Symbol("+")) => false,
            _ => return self.path(),
        };
        self.at += 1;
        let operand = self.deeper(Self::signed)?;
        let operand = self.as_node(operand)?;
        if let (Head::Number(number), true) = (&operand.head, operand.steps.is_empty()) {
            let number = if negative { number.neg() } else { number.clone() };
            return Ok(Parsed::Node(Node { head: Head::Number(number), steps: Vec::new() }));
        }
        Ok(Parsed::Node(Node { head: Head::Sign(negative, Box::new(operand)), steps: Vec::new() }))
    }

    /// A primary with its steps.
    fn path(&mut self) -> SqlResult<Parsed> {
        let parsed = self.primary()?;
        let mut node = match parsed {
            Parsed::Delimited(predicate) => {
                if self.take_word("is") {
                    if !self.take_word("unknown") {
                        return Err(self.unexpected());
                    }
                    return Ok(Parsed::Predicate(Predicate::IsUnknown(Box::new(predicate))));
                }
                if !(self.at_symbol(".") || self.at_symbol("[") || self.at_symbol("?")) {
                    return Ok(Parsed::Delimited(predicate));
                }
                predicate_node(predicate)
            }
            Parsed::Node(node) => node,
            other => return Ok(other),
        };
        while let Some(step) = self.step()? {
            node.steps.push(step);
        }
        Ok(Parsed::Node(node))
    }

    fn primary(&mut self) -> SqlResult<Parsed> {
        let Some(token) = self.peek().cloned() else { return Err(syntax(None)) };
        let head = match token {
            Token::Symbol("(") => {
                self.at += 1;
                let inner = self.or()?;
                self.expect(")")?;
                return Ok(match inner {
                    Parsed::Node(node) => Parsed::Node(node),
                    Parsed::Predicate(predicate) | Parsed::Delimited(predicate) => {
                        Parsed::Delimited(predicate)
                    }
                });
            }
            Token::Symbol("$") => Head::Root,
            Token::Symbol("@") if self.filters > 0 => Head::Current,
            Token::Symbol("@") => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "@ is not allowed in root expressions"));
            }
            Token::String(text) => Head::String(text),
            Token::Variable(name) => Head::Variable(name),
            Token::Number(text) => Head::Number(Numeric::parse(&text)?),
            Token::Word(word) => match word.as_str() {
                "null" => Head::Null,
                "true" => Head::Bool(true),
                "false" => Head::Bool(false),
                word if word.eq_ignore_ascii_case("last") => {
                    if self.subscripts == 0 {
                        let message = "LAST is allowed only in array subscripts";
                        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                    }
                    Head::Last
                }
                _ => return Err(self.unexpected()),
            },
            Token::Symbol(_) => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(Parsed::Node(Node { head, steps: Vec::new() }))
    }
}

fn arithmetic(operator: Arithmetic, left: Node, right: Node) -> Node {
    Node { head: Head::Arithmetic(operator, Box::new(left), Box::new(right)), steps: Vec::new() }
}

/// The flags of `like_regex` as those of PostgreSQL's regular expressions.
pub(super) fn regex_flags(flags: &str) -> String {
    let mut out = String::new();
    if flags.contains('i') {
        out.push('i');
    }
    out.push(match (flags.contains('q'), flags.contains('s'), flags.contains('m')) {
        (true, ..) => 'q',
        (_, false, false) => 'p',
        (_, false, true) => 'n',
        (_, true, false) => 's',
        (_, true, true) => 'w',
    });
    out
}
