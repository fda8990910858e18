//! What rules make of whole operators, before there are groups: each operator has at most one other plan, which
//! returns the same, and what is in that has none.

use super::rule::{Options, Rule};
use super::semi_as_inner;
use crate::optimize::estimate::estimate_within;
use crate::plan::Plan;
use std::collections::HashMap;

/// Other plans of the operators of a plan.
#[derive(Default)]
pub struct Alternatives {
    plans: Vec<Option<Plan>>,
    /// By the operator's address: the number of its other plan.
    numbers: HashMap<usize, usize>,
}

fn address(plan: &Plan) -> usize {
    std::ptr::from_ref(plan) as usize
}

impl Alternatives {
    /// Those of an estimated plan, which stays where it is.
    pub fn explore(plan: &Plan, options: Options, ctes: &[(usize, f64)]) -> Self {
        let mut found = Alternatives::default();
        found.visit(plan, options, ctes);
        found
    }

    fn visit(&mut self, plan: &Plan, options: Options, ctes: &[(usize, f64)]) {
        plan.for_each_child(&mut |child, _| self.visit(child, options, ctes));
        if let Some(mut other) = semi_as_inner::alternative(plan).filter(|_| options.has(Rule::SemiAsInner)) {
            estimate_within(&mut other, false, ctes.to_vec());
            self.numbers.insert(address(plan), self.plans.len());
            self.plans.push(Some(other));
        }
    }

    /// The other plan of an operator, with its number.
    pub fn of(&self, plan: &Plan) -> Option<(usize, &Plan)> {
        let number = *self.numbers.get(&address(plan))?;
        Some((number, self.plans.get(number)?.as_ref()?))
    }

    /// Takes an other plan out.
    pub fn take(&mut self, number: usize) -> Option<Plan> {
        self.plans.get_mut(number)?.take()
    }
}
