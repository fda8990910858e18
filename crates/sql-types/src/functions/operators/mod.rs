//! Operators: entries named by their symbol, with one argument (prefix) or two.

mod arrays;
mod comparison;
mod json;
mod numbers;
mod strings;
mod times;

pub(super) use numbers::{integer_out_of_range, power_float8};
pub(super) use times::at_time_zone;

use super::Function;

pub(super) static TABLES: &[&[Function]] = &[
    comparison::TABLE,
    numbers::TABLE,
    strings::TABLE,
    times::TABLE,
    json::TABLE,
    arrays::TABLE,
    super::jsonpaths::OPERATORS,
];
