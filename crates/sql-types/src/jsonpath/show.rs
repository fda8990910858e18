//! [`Path`] as text.

use super::{Arithmetic, Comparison, Head, Method, Node, Path, Predicate, Step};
use crate::json;
use std::fmt::{self, Display, Formatter};

impl Method {
    /// Its name, without parentheses.
    pub fn name(self) -> &'static str {
        match self {
            Method::Type => "type",
            Method::Size => "size",
            Method::Double => "double",
            Method::Ceiling => "ceiling",
            Method::Floor => "floor",
            Method::Abs => "abs",
            Method::Datetime => "datetime",
            Method::KeyValue => "keyvalue",
        }
    }
}

impl Arithmetic {
    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Sub => "-",
            Arithmetic::Mul => "*",
            Arithmetic::Div => "/",
            Arithmetic::Mod => "%",
        }
    }
}

impl Comparison {
    fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

/// How tightly what stands at the head of an expression binds; what has steps binds most tightly.
fn priority(node: &Node) -> u8 {
    match &node.head {
        _ if !node.steps.is_empty() => 6,
        Head::Arithmetic(Arithmetic::Add | Arithmetic::Sub, ..) => 3,
        Head::Arithmetic(..) => 4,
        Head::Sign(..) => 5,
        Head::Predicate(predicate) => predicate_priority(predicate),
        _ => 6,
    }
}

fn predicate_priority(predicate: &Predicate) -> u8 {
    match predicate {
        Predicate::Or(..) => 0,
        Predicate::And(..) => 1,
        Predicate::Compare(..) | Predicate::StartsWith(..) => 2,
        _ => 6,
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    json::escape(text, &mut out);
    out
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.lax {
            f.write_str("strict ")?;
        }
        node(&self.root, true, f)
    }
}

fn node(shown: &Node, brackets: bool, f: &mut Formatter<'_>) -> fmt::Result {
    let brackets = brackets || !shown.steps.is_empty();
    let between = |f: &mut Formatter<'_>, write: &dyn Fn(&mut Formatter<'_>) -> fmt::Result| {
        if brackets {
            f.write_str("(")?;
        }
        write(f)?;
        if brackets { f.write_str(")") } else { Ok(()) }
    };
    match &shown.head {
        Head::Root => f.write_str("$")?,
        Head::Current => f.write_str("@")?,
        Head::Last => f.write_str("last")?,
        Head::Null => f.write_str("null")?,
        Head::Bool(value) => write!(f, "{value}")?,
        // A number before a step would run into the point.
        Head::Number(number) if !shown.steps.is_empty() => write!(f, "({number})")?,
        Head::Number(number) => write!(f, "{number}")?,
        Head::String(text) => f.write_str(&quoted(text))?,
        Head::Variable(name) => write!(f, "${}", quoted(name))?,
        Head::Arithmetic(operator, left, right) => between(f, &|f| {
            let own = if matches!(operator, Arithmetic::Add | Arithmetic::Sub) { 3 } else { 4 };
            node(left, priority(left) <= own, f)?;
            write!(f, " {} ", operator.symbol())?;
            node(right, priority(right) <= own, f)
        })?,
        Head::Sign(negative, operand) => between(f, &|f| {
            f.write_str(if *negative { "-" } else { "+" })?;
            node(operand, priority(operand) <= 5, f)
        })?,
        Head::Predicate(inner) => predicate(inner, brackets, f)?,
    }
    shown.steps.iter().try_for_each(|shown| step(shown, f))
}

fn level(level: Option<u32>, f: &mut Formatter<'_>) -> fmt::Result {
    match level {
        Some(level) => write!(f, "{level}"),
        None => f.write_str("last"),
    }
}

fn step(shown: &Step, f: &mut Formatter<'_>) -> fmt::Result {
    match shown {
        Step::Key(key) => write!(f, ".{}", quoted(key)),
        Step::AnyKey => f.write_str(".*"),
        Step::AnyElement => f.write_str("[*]"),
        Step::Elements(list) => {
            f.write_str("[")?;
            for (index, (from, to)) in list.iter().enumerate() {
                if index > 0 {
                    f.write_str(",")?;
                }
                node(from, false, f)?;
                if let Some(to) = to {
                    f.write_str(" to ")?;
                    node(to, false, f)?;
                }
            }
            f.write_str("]")
        }
        Step::Any(Some(0), None) => f.write_str(".**"),
        Step::Any(first, last) => {
            f.write_str(".**{")?;
            level(*first, f)?;
            if first != last {
                f.write_str(" to ")?;
                level(*last, f)?;
            }
            f.write_str("}")
        }
        Step::Filter(inner) => {
            f.write_str("?(")?;
            predicate(inner, false, f)?;
            f.write_str(")")
        }
        Step::Method(method) => write!(f, ".{}()", method.name()),
    }
}

fn predicate(shown: &Predicate, brackets: bool, f: &mut Formatter<'_>) -> fmt::Result {
    let own = predicate_priority(shown);
    let brackets = brackets && (own < 6 || matches!(shown, Predicate::LikeRegex { .. }));
    if brackets {
        f.write_str("(")?;
    }
    match shown {
        Predicate::And(left, right) | Predicate::Or(left, right) => {
            predicate(left, predicate_priority(left) <= own, f)?;
            f.write_str(if own == 1 { " && " } else { " || " })?;
            predicate(right, predicate_priority(right) <= own, f)?;
        }
        Predicate::Not(inner) => {
            f.write_str("!(")?;
            predicate(inner, false, f)?;
            f.write_str(")")?;
        }
        Predicate::IsUnknown(inner) => {
            f.write_str("(")?;
            predicate(inner, false, f)?;
            f.write_str(") is unknown")?;
        }
        Predicate::Exists(inner) => {
            f.write_str("exists (")?;
            node(inner, false, f)?;
            f.write_str(")")?;
        }
        Predicate::Compare(operator, left, right) => {
            node(left, priority(left) <= own, f)?;
            write!(f, " {} ", operator.symbol())?;
            node(right, priority(right) <= own, f)?;
        }
        Predicate::StartsWith(left, right) => {
            node(left, priority(left) <= own, f)?;
            f.write_str(" starts with ")?;
            node(right, priority(right) <= own, f)?;
        }
        Predicate::LikeRegex { value, pattern, flags } => {
            node(value, false, f)?;
            write!(f, " like_regex {}", quoted(pattern))?;
            if !flags.is_empty() {
                write!(f, " flag \"{flags}\"")?;
            }
        }
    }
    if brackets { f.write_str(")") } else { Ok(()) }
}
