//! What a hash join looks for, known before the side that is probed is read.
//!
//! Once the hash table is there, rows of the other side whose key is not in it need not be read at all. So the join tells the
//! operators below ([`super::operator::Operator::narrow`]) which values it looks for in a column, and a scan whose KV nodes
//! filter lets them drop the other rows: semi-join reduction, by a list of the values or by a filter of them
//! ([`kv_api::columns::Comparison::Sought`]). What they let through is still joined; so it is never needed for the
//! result that anybody heeds it.

use crate::plan::Expr;
use kv_api::columns::{Comparison, Condition, Constant, MAX_SOUGHT, sought};
use sql_types::{Datum, Type};
use std::collections::HashSet;

/// Values up to which they are sent as a list.
const LONGEST_LIST: usize = 64;

/// Integers that are looked for in a column: rows with others, or with NULL, will not be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sought {
    comparison: Comparison,
    constants: Vec<Constant>,
}

impl Sought {
    /// As a condition on a wanted column of a program.
    pub fn condition(&self, column: u32) -> Condition {
        let (comparison, constants) = (self.comparison as i32, self.constants.clone());
        Condition { column, comparison, constants, other: None }
    }
}

/// The column that an expression is, perhaps as an integer of another size.
pub(crate) fn same_integer(expr: &Expr) -> Option<usize> {
    let is_integer = |ty| [Type::INT2, Type::INT4, Type::INT8].contains(&ty);
    match expr {
        Expr::Column(index, ty) => is_integer(*ty).then_some(*index),
        Expr::Cast { expr: inner, .. } if is_integer(expr.ty()) => same_integer(inner),
        _ => None,
    }
}

/// Values that come by and by.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    values: HashSet<i64>,
    /// Whether they are too many, or no integers.
    useless: bool,
}

impl Gathered {
    /// Adds one.
    pub fn add(&mut self, value: i64) {
        if !self.useless {
            self.values.insert(value);
            if self.values.len() > MAX_SOUGHT {
                self.give_up();
            }
        }
    }

    /// Adds a value of the row engine. NULL is never looked for.
    pub fn add_datum(&mut self, value: &Datum) {
        match value {
            Datum::Int2(value) => self.add(i64::from(*value)),
            Datum::Int4(value) => self.add(i64::from(*value)),
            Datum::Int8(value) => self.add(*value),
            Datum::Null => {}
            _ => self.give_up(),
        }
    }

    /// There will be nothing to look for.
    pub fn give_up(&mut self) {
        (self.useless, self.values) = (true, HashSet::new());
    }

    /// Whether no more values need be added.
    pub fn is_useless(&self) -> bool {
        self.useless
    }

    /// What is to be looked for, if that can be said.
    pub fn finish(self) -> Option<Sought> {
        if self.useless {
            return None;
        }
        let mut values: Vec<i64> = self.values.into_iter().collect();
        values.sort_unstable();
        if values.len() <= LONGEST_LIST {
            let constants = values.into_iter().map(|integer| Constant { integer, ..Constant::default() });
            return Some(Sought { comparison: Comparison::In, constants: constants.collect() });
        }
        let constant = Constant { bytes: sought(&values)?, ..Constant::default() };
        Some(Sought { comparison: Comparison::Sought, constants: vec![constant] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_a_list_many_a_filter_and_too_many_nothing() {
        let of = |count: i64| {
            let mut gathered = Gathered::default();
            (0..count).for_each(|value| gathered.add_datum(&Datum::Int4(value as i32 / 2)));
            gathered.add_datum(&Datum::Null);
            gathered.finish()
        };
        assert_eq!(of(0).unwrap().condition(3).constants.len(), 0);
        let list = of(20).unwrap().condition(3);
        assert_eq!((list.column, list.comparison(), list.constants.len()), (3, Comparison::In, 10));
        assert_eq!(of(1_000).unwrap().condition(0).comparison(), Comparison::Sought);
        assert_eq!(of(2 * MAX_SOUGHT as i64 + 2), None);
        let mut texts = Gathered::default();
        texts.add(1);
        texts.add_datum(&Datum::text("1"));
        assert!(texts.is_useless() && texts.finish().is_none());
    }
}
