//! The registry of functions, operators, aggregates, window and set-returning functions.
//!
//! # How a call is bound and run
//!
//! [`resolve()`] (or [`resolve_operator`], …) picks the overload for the types of the arguments as
//! PostgreSQL does, [`Type::UNKNOWN`] standing for an untyped literal. It returns the `&'static`
//! entry, the types each argument must be cast to (with [`crate::cast`]), and the type of the result.
//! At run time [`Function::call`] evaluates it.
//!
//! Functions are pure: time, randomness, settings and the catalog come in with [`EvalContext`].
//! Those whose `external` field is set have effects or wait (`nextval`, `pg_sleep`,
//! `pg_advisory_lock`): the executor runs them itself, and their entry here reaches
//! [`CatalogFunctions::call`].
//!
//! Variadic functions take their variadic arguments flat. `VARIADIC array` calls bind to a twin
//! entry that takes the array and spreads it.

mod aggregate;
mod args;
mod arrays;
mod casts;
mod catalog_functions;
mod digests;
mod enums;
mod json_path;
mod jsonpaths;
mod jsons;
mod math;
mod number_format;
mod operators;
mod pattern;
mod regex;
mod regexps;
mod registry;
mod resolve;
mod scalar;
mod set;
mod strings;
mod system;
#[cfg(test)]
mod tests;
mod times;
mod window;

pub(crate) use regex::compile as compile_regex;

pub use crate::context::{
    ByteaOutput, CatalogFunctions, DateOrder, DateStyle, EvalContext, IntervalStyle, NoCatalog, NoRandom,
    Random, RegKind, TextContext,
};
pub use catalog_functions::CATALOG_FUNCTIONS;
pub use registry::{all_aggregates, all_functions, all_operators, all_set_functions, all_window_functions};
pub use registry::{is_aggregate, is_function, is_set_function, is_window_function};
pub use resolve::{
    Resolved, ResolvedAggregate, ResolvedSet, ResolvedWindow, resolve, resolve_aggregate, resolve_operator,
    resolve_set_function, resolve_variadic, resolve_window,
};

use crate::datum::{Datum, Row};
use crate::error::SqlResult;
use crate::types::Type;
use std::fmt;
use std::ops::Range;

/// How far the result of a function is fixed by its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// Always the same: may be folded at bind time.
    Immutable,
    /// The same within a statement.
    Stable,
    /// May change from call to call.
    Volatile,
}

/// Evaluates a function over its arguments.
pub type Eval = fn(&EvalContext<'_>, &[Datum]) -> SqlResult<Datum>;
/// Evaluates a function that must know the types of its arguments.
pub type TypedEval = fn(&EvalContext<'_>, &[Type], &[Datum]) -> SqlResult<Datum>;

/// A scalar function or operator.
pub struct Function {
    /// Its name; an operator's is its symbol.
    pub name: &'static str,
    /// Types of its arguments, possibly polymorphic. The last one of a variadic function is the type
    /// of each variadic argument.
    pub args: &'static [Type],
    /// Whether the last argument may be repeated (one or more times).
    pub variadic: bool,
    /// Whether this is the entry for calls with `VARIADIC array`.
    pub spreads: bool,
    /// Type of the result, possibly polymorphic.
    pub returns: Type,
    /// Whether a NULL argument makes the result NULL without evaluation.
    pub strict: bool,
    /// How far the result is fixed.
    pub volatility: Volatility,
    /// Has effects or waits: the executor runs it itself, by name.
    pub external: bool,
    /// The body. Prefer [`Function::call`], which also minds `strict` and `eval_typed`.
    pub eval: Eval,
    /// The body, if it must know the types of the arguments; `eval` then guesses them from the values.
    pub eval_typed: Option<TypedEval>,
}

impl Function {
    /// Evaluates the function. `types` are the (resolved) types of the arguments; they are looked at
    /// only where [`Function::needs_types`].
    pub fn call(&self, context: &EvalContext<'_>, types: &[Type], args: &[Datum]) -> SqlResult<Datum> {
        if self.strict && args.iter().any(Datum::is_null) {
            return Ok(Datum::Null);
        }
        match self.eval_typed {
            Some(eval) => eval(context, types, args),
            None => (self.eval)(context, args),
        }
    }

    /// Whether [`Function::call`] looks at `types`.
    pub fn needs_types(&self) -> bool {
        self.eval_typed.is_some()
    }

    /// Whether it is an operator.
    pub fn is_operator(&self) -> bool {
        self.name.starts_with(|first: char| !first.is_ascii_alphabetic() && first != '_')
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.args)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// The state of an aggregate over one group.
pub trait Accumulator: Send {
    /// Takes in one row: the arguments of the call; for ordered-set aggregates the direct arguments
    /// and then the sorted value, in order. NULLs are passed unless the aggregate is strict.
    fn add(&mut self, context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()>;
    /// The result so far. May be called again after more rows (running aggregates in windows).
    fn finish(&mut self, context: &EvalContext<'_>) -> SqlResult<Datum>;
    /// Bytes held beyond the fixed size, roughly: for memory bounds.
    fn size(&self) -> usize {
        0
    }
}

/// An aggregate function.
pub struct AggregateFunction {
    /// Its name.
    pub name: &'static str,
    /// Types of its arguments, possibly polymorphic; for ordered-set aggregates the direct ones and
    /// then the type of the ORDER BY expression.
    pub args: &'static [Type],
    /// Type of the result, possibly polymorphic.
    pub returns: Type,
    /// Whether rows with a NULL argument are skipped. The caller does this.
    pub strict: bool,
    /// `WITHIN GROUP (ORDER BY …)` is required.
    pub ordered_set: bool,
    /// How many of `args` are direct, for ordered-set aggregates.
    pub direct_args: usize,
    /// Makes the state of a group, given the resolved types of the arguments.
    pub accumulator: fn(&[Type]) -> Box<dyn Accumulator>,
}

impl fmt::Debug for AggregateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.args)
    }
}

/// The window of one row, as window functions see it. Rows are numbered from 0 in window order
/// within the partition.
pub trait WindowRows {
    /// Number of rows of the partition.
    fn len(&self) -> usize;
    /// Whether the partition has no rows (it never has none while a function is evaluated).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The current row.
    fn current(&self) -> usize;
    /// The rows that are peers of the current row, itself included.
    fn peers(&self) -> Range<usize>;
    /// Which group of peers the current row belongs to, from 0.
    fn peer_group(&self) -> usize;
    /// Number of rows in the frame.
    fn frame_len(&self) -> usize;
    /// The n-th row of the frame, from 0.
    fn frame_row(&self, n: usize) -> Option<usize>;
    /// The value of the n-th argument at a row of the partition.
    fn arg(&self, row: usize, n: usize) -> SqlResult<Datum>;
    /// How many arguments the call has.
    fn args(&self) -> usize;
}

/// A pure window function.
pub struct WindowFunction {
    /// Its name.
    pub name: &'static str,
    /// Types of its arguments, possibly polymorphic.
    pub args: &'static [Type],
    /// Type of the result, possibly polymorphic.
    pub returns: Type,
    /// Evaluates it for one row.
    pub eval: fn(&EvalContext<'_>, &dyn WindowRows) -> SqlResult<Datum>,
}

impl fmt::Debug for WindowFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.args)
    }
}

/// Rows of a set-returning function, made as they are asked for.
pub type SetRows = Box<dyn Iterator<Item = SqlResult<Row>> + Send>;

/// What a set-returning function is told about its call.
#[derive(Clone, Copy, Debug)]
pub struct SetCall<'a> {
    /// Resolved types of the arguments.
    pub arg_types: &'a [Type],
    /// Names and types of the columns wanted, for functions with `dynamic_columns`.
    pub columns: &'a [(String, Type)],
}

/// A set-returning function.
pub struct SetFunction {
    /// Its name.
    pub name: &'static str,
    /// Types of its arguments, possibly polymorphic.
    pub args: &'static [Type],
    /// Whether the last argument may be repeated.
    pub variadic: bool,
    /// Names and types of the columns, possibly polymorphic.
    pub columns: &'static [(&'static str, Type)],
    /// The columns come from the column definition list of the call (`jsonb_to_recordset`).
    pub dynamic_columns: bool,
    /// Whether a NULL argument makes the set empty without evaluation. The caller does this, or uses
    /// [`SetFunction::call`].
    pub strict: bool,
    /// Starts the set.
    pub eval: fn(&EvalContext<'_>, SetCall<'_>, &[Datum]) -> SqlResult<SetRows>,
}

impl SetFunction {
    /// Starts the set; empty if the function is strict and an argument is NULL.
    pub fn call(&self, context: &EvalContext<'_>, call: SetCall<'_>, args: &[Datum]) -> SqlResult<SetRows> {
        if self.strict && args.iter().any(Datum::is_null) {
            return Ok(Box::new(std::iter::empty()));
        }
        (self.eval)(context, call, args)
    }
}

impl fmt::Debug for SetFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.args)
    }
}
