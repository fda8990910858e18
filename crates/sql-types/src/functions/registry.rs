//! Look-up by name: one list of references per kind, sorted by name once, searched by halves.

use super::{AggregateFunction, Function, SetFunction, WindowFunction};
use std::sync::OnceLock;

fn sorted<T: Sync>(
    cell: &'static OnceLock<Vec<&'static T>>,
    tables: &[&'static [T]],
    name: fn(&T) -> &'static str,
) -> &'static [&'static T] {
    cell.get_or_init(|| {
        let mut entries: Vec<&'static T> = tables.iter().flat_map(|table| table.iter()).collect();
        entries.sort_by_key(|entry| name(entry));
        entries.shrink_to_fit();
        entries
    })
}

fn named<T>(
    entries: &'static [&'static T],
    wanted: &str,
    name: fn(&T) -> &'static str,
) -> &'static [&'static T] {
    let start = entries.partition_point(|entry| name(entry) < wanted);
    let len = entries[start..].partition_point(|entry| name(entry) == wanted);
    &entries[start..start + len]
}

/// Every scalar function, sorted by name.
pub fn all_functions() -> &'static [&'static Function] {
    static CELL: OnceLock<Vec<&'static Function>> = OnceLock::new();
    sorted(&CELL, super::scalar::TABLES, |function| function.name)
}

/// Every operator, sorted by symbol. Prefix operators take one argument.
pub fn all_operators() -> &'static [&'static Function] {
    static CELL: OnceLock<Vec<&'static Function>> = OnceLock::new();
    sorted(&CELL, super::operators::TABLES, |function| function.name)
}

/// Every aggregate function, sorted by name.
pub fn all_aggregates() -> &'static [&'static AggregateFunction] {
    static CELL: OnceLock<Vec<&'static AggregateFunction>> = OnceLock::new();
    sorted(&CELL, super::aggregate::TABLES, |function| function.name)
}

/// Every pure window function, sorted by name.
pub fn all_window_functions() -> &'static [&'static WindowFunction] {
    static CELL: OnceLock<Vec<&'static WindowFunction>> = OnceLock::new();
    sorted(&CELL, &[super::window::TABLE], |function| function.name)
}

/// Every set-returning function, sorted by name.
pub fn all_set_functions() -> &'static [&'static SetFunction] {
    static CELL: OnceLock<Vec<&'static SetFunction>> = OnceLock::new();
    sorted(&CELL, super::set::TABLES, |function| function.name)
}

pub(super) fn functions(name: &str) -> &'static [&'static Function] {
    named(all_functions(), name, |function| function.name)
}

pub(super) fn operators(name: &str) -> &'static [&'static Function] {
    named(all_operators(), name, |function| function.name)
}

pub(super) fn aggregates(name: &str) -> &'static [&'static AggregateFunction] {
    named(all_aggregates(), name, |function| function.name)
}

pub(super) fn window_functions(name: &str) -> &'static [&'static WindowFunction] {
    named(all_window_functions(), name, |function| function.name)
}

pub(super) fn set_functions(name: &str) -> &'static [&'static SetFunction] {
    named(all_set_functions(), name, |function| function.name)
}

/// Whether there is a scalar function of that name, whatever its arguments.
pub fn is_function(name: &str) -> bool {
    !functions(name).is_empty()
}

/// Whether there is an aggregate of that name.
pub fn is_aggregate(name: &str) -> bool {
    !aggregates(name).is_empty()
}

/// Whether there is a pure window function of that name.
pub fn is_window_function(name: &str) -> bool {
    !window_functions(name).is_empty()
}

/// Whether there is a set-returning function of that name.
pub fn is_set_function(name: &str) -> bool {
    !set_functions(name).is_empty()
}
