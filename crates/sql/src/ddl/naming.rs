//! Names that the system chooses: constraints, indexes, sequences.

use super::DdlContext;
use crate::catalog::descriptor::TableDescriptor;
use sql_types::Oid;

/// Longest name in bytes.
const MOST: usize = 63;

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `first_second_label`, shortened to fit as PostgreSQL shortens it.
fn compose(first: &str, second: &str, label: &str) -> String {
    let joints = usize::from(!second.is_empty()) + 1;
    let room = MOST.saturating_sub(label.len() + joints);
    let (mut a, mut b) = (first.len(), second.len());
    while a + b > room {
        if a > b { a -= 1 } else { b -= 1 }
    }
    let first = cut(first, a);
    if second.is_empty() { format!("{first}_{label}") } else { format!("{first}_{}_{label}", cut(second, b)) }
}

/// A name that `taken` does not have yet, numbered if need be.
pub(super) fn free_name(first: &str, second: &str, label: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut name = compose(first, second, label);
    let mut number = 0;
    while taken(&name) {
        number += 1;
        name = compose(first, second, &format!("{label}{number}"));
    }
    name
}

impl DdlContext<'_> {
    /// A free relation name in a schema. `reserved` are names about to be taken.
    pub(super) fn relation_name(
        &self,
        schema: Oid,
        parts: (&str, &str, &str),
        reserved: &[String],
    ) -> String {
        free_name(parts.0, parts.1, parts.2, |name| {
            self.catalog.relation(self.database(), schema, name).is_some()
                || reserved.iter().any(|taken| taken == name)
        })
    }
}

/// A free constraint name of a table.
pub(super) fn constraint_name(table: &TableDescriptor, second: &str, label: &str) -> String {
    free_name(&table.name, second, label, |name| has_constraint(table, name))
}

/// Whether a table has a constraint of that name.
pub(super) fn has_constraint(table: &TableDescriptor, name: &str) -> bool {
    table.checks.iter().any(|check| check.name == name)
        || table.foreign_keys.iter().any(|key| key.name == name)
        || table.indexes.iter().any(|index| index.constraint && index.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_evenly() {
        assert_eq!(compose("t", "a_b", "key"), "t_a_b_key");
        assert_eq!(compose("t", "", "pkey"), "t_pkey");
        let long = compose(&"x".repeat(60), &"y".repeat(60), "fkey");
        assert_eq!(long.len(), MOST);
        assert!(long.ends_with("_fkey"));
        assert_eq!(free_name("t", "a", "key", |name| name == "t_a_key"), "t_a_key1");
    }
}
