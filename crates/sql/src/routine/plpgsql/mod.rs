//! PL/pgSQL: [`parse`] reads a body, [`machine`] runs it, with [`declare`], [`loops`], [`values`], [`rows`] and
//! [`raise`].
//!
//! The parser is pure. Expressions are not parsed here: each is the query `SELECT expression`.

pub(crate) mod ast;
pub(crate) mod conditions;
mod declare;
pub(crate) mod frame;
mod loops;
pub(crate) mod machine;
pub mod parse;
mod raise;
pub(crate) mod rows;
#[cfg(test)]
mod tests;
mod values;
