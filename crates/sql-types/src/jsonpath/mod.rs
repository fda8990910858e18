//! jsonpath: the path language of SQL/JSON, as PostgreSQL 15 has it.
//!
//! [`parse()`] reads an expression into a [`Path`], whose `Display` is the form in which values of type jsonpath are
//! stored and shown; [`query`], [`first`] and [`exists`] evaluate it. `$."a"[*]?(@ > 1)` is a [`Head`] (`$`) with three
//! [`Step`]s.
//!
//! # Rules
//!
//! * In lax mode arrays are unwrapped where a step wants something else, other values count as arrays of one, and what
//!   is missing is skipped; in strict mode these are errors.
//! * A predicate is true, false or unknown; an error in one of its operands makes it unknown.
//! * Nesting is bounded by [`MAX_DEPTH`] (54001), and the steps of an evaluation, counted by item, at ten million
//!   (54000).
//!
//! # What is missing
//!
//! `datetime()` with a template, and times with time zones. The ids that `keyvalue()` gives to objects other than the
//! root number them as they are met; PostgreSQL's are offsets into its storage.

mod compare;
mod eval;
mod item;
mod lex;
mod methods;
mod parse;
mod parse_step;
mod predicate;
mod show;
#[cfg(test)]
mod tests;

pub use eval::{Call, exists, first, matches, query};
pub use parse::parse;

use crate::error::SqlResult;
use crate::numeric::Numeric;
use std::cell::RefCell;
use std::rc::Rc;

/// How deep expressions may nest.
pub const MAX_DEPTH: usize = 128;
/// How many steps an evaluation may take: `$.**.**.**` multiplies the items of its target.
const MAX_STEPS: u64 = 10_000_000;
/// Parsed paths kept by each thread.
const CACHED: usize = 8;

/// A jsonpath expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Lax mode, or strict.
    pub lax: bool,
    /// The expression.
    pub root: Node,
}

/// An expression: where it starts, and the steps from there.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it starts.
    pub head: Head,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Where an expression starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// `$`
    Root,
    /// `@`
    Current,
    /// `last`
    Last,
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number.
    Number(Numeric),
    /// A string.
    String(String),
    /// `$name`
    Variable(String),
    /// An arithmetic operator between two expressions.
    Arithmetic(Arithmetic, Box<Node>, Box<Node>),
    /// `-` (true) or `+` before an expression.
    Sign(bool, Box<Node>),
    /// A predicate.
    Predicate(Box<Predicate>),
}

/// Arithmetic operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Mod,
}

/// A step to other items.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.name`
    Key(String),
    /// `.*`
    AnyKey,
    /// `[*]`
    AnyElement,
    /// `[1, 3 to last]`: each with the end of its range.
    Elements(Vec<(Node, Option<Node>)>),
    /// `.**{2 to last}`: levels; `None` stands for `last`.
    Any(Option<u32>, Option<u32>),
    /// `? (…)`
    Filter(Predicate),
    /// `.size()` and the like.
    Method(Method),
}

/// Item methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `type()`
    Type,
    /// `size()`
    Size,
    /// `double()`
    Double,
    /// `ceiling()`
    Ceiling,
    /// `floor()`
    Floor,
    /// `abs()`
    Abs,
    /// `datetime()`
    Datetime,
    /// `keyvalue()`
    KeyValue,
}

/// Comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`, `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A predicate.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// `a && b`
    And(Box<Predicate>, Box<Predicate>),
    /// `a || b`
    Or(Box<Predicate>, Box<Predicate>),
    /// `!(a)`
    Not(Box<Predicate>),
    /// `(a) is unknown`
    IsUnknown(Box<Predicate>),
    /// `exists (a)`
    Exists(Node),
    /// `a == b`
    Compare(Comparison, Node, Node),
    /// `a starts with b`
    StartsWith(Node, Node),
    /// `a like_regex "pattern" flag "i"`
    LikeRegex {
        /// What is searched.
        value: Node,
        /// The regular expression.
        pattern: String,
        /// The flags, in the order `ismq`.
        flags: String,
    },
}

thread_local! {
    static CACHE: RefCell<Vec<(String, Rc<Path>)>> = const { RefCell::new(Vec::new()) };
}

/// As [`parse()`], keeping what the thread parsed last.
///
/// # Errors
/// As there.
pub fn cached(text: &str) -> SqlResult<Rc<Path>> {
    CACHE.with_borrow_mut(|cache| {
        if let Some(at) = cache.iter().position(|(known, _)| known == text) {
            let entry = cache.remove(at);
            let path = entry.1.clone();
            cache.insert(0, entry);
            return Ok(path);
        }
        let path = Rc::new(parse(text)?);
        cache.truncate(CACHED - 1);
        cache.insert(0, (text.to_string(), path.clone()));
        Ok(path)
    })
}
