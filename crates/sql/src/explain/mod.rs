//! EXPLAIN: plans as text or JSON, in PostgreSQL's shape.
//!
//! [`mod@options`] reads the options of the statement, [`describe`] makes a tree of [`Node`]s of a plan
//! (with what the operators did, for ANALYZE), and [`render`] writes it. Projections and filters are
//! shown with the operator below them, as PostgreSQL does.

mod deparse;
mod node;
mod options;
#[cfg(test)]
mod tests;
mod text;

pub use deparse::{Names, expr_text};
pub use node::{Actual, Node, describe};
pub use options::{ExplainFormat, ExplainOptions, options};
pub use text::{Summary, render};
