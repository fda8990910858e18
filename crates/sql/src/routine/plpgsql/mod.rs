//! PL/pgSQL: [`parse`] reads a body, [`machine`] runs it.
//!
//! The parser is pure. Expressions are not parsed here: each is the query `SELECT expression`.

pub(crate) mod ast;
pub(crate) mod conditions;
pub(crate) mod frame;
pub(crate) mod machine;
pub mod parse;
mod raise;
#[cfg(test)]
mod tests;
