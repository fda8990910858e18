//! What the search found, without the groups: how each part of a plan is to be made anew.

use super::block::Set;
use super::group::{GroupId, How, Logical, Memo, Winner};
use super::join::Method;
use super::order::{OrderId, Required};
use super::read;
use crate::optimize::access::Wanted;
use crate::optimize::implied::Equality;
use crate::plan::{Expr, SortKey};
use std::rc::Rc;

/// How a plan is made anew.
pub enum Recipe {
    /// As it is, which nothing better was found for.
    Kept,
    /// A scan that the join above it reads by itself.
    LookedUp,
    /// A plan without joins, with the order wanted and the rows that will be read.
    Leaf(Option<Wanted>, Option<f64>),
    /// An operator over its inputs.
    Operator(Vec<Recipe>),
    /// The input of a sort, which comes in its order.
    Unsorted(Box<Recipe>),
    /// Sorted.
    Sorted(Vec<SortKey>, Box<Recipe>),
    /// An alternative plan, by its number.
    Instead(usize, Box<Recipe>),
    /// A join that keeps its place.
    Join { method: JoinBy, turned: bool, left: Box<Recipe>, right: Box<Recipe> },
    /// Inner joins, with the equalities of their columns.
    Block(Box<Tree>, Rc<[Equality]>),
}

/// How inner joins are done. Expressions are over the row as written.
pub enum Tree {
    /// An input by its number.
    Input(usize, Recipe),
    /// Sorted.
    Sorted(Vec<SortKey>, Box<Tree>),
    /// A join.
    Join { method: JoinBy, left: Box<Tree>, right: Box<Tree> },
}

/// A method of joining.
pub enum JoinBy {
    /// Every pair of rows.
    NestedLoop,
    /// Look-ups in an index of the right side.
    LookUp,
    /// A hash table of the right side.
    Hash,
    /// By what is equal, in order: of the left side, of the right side, and whether descending.
    Merge(Vec<(Expr, Expr, bool)>),
}

impl Memo<'_> {
    /// The recipe for what was asked of a group.
    pub fn recipe(&mut self, group: GroupId, required: Required) -> Recipe {
        let Winner { how, .. } = self.winner(group, required);
        match how {
            How::Impossible => Recipe::Kept,
            How::Input(below) => match self.groups[group].logical {
                Logical::Input { of, .. } => self.recipe(of, below),
                _ => Recipe::Kept,
            },
            How::Leaf => {
                let (wanted, limit) = read::wanted(required, self.groups[group].rows, &self.orders);
                Recipe::Leaf(wanted, limit)
            }
            How::Operator { below, replaces } => self.operator_recipe(group, below, replaces),
            How::Instead => match self.groups[group].alternative {
                Some((number, other)) => Recipe::Instead(number, Box::new(self.recipe(other, required))),
                None => Recipe::Kept,
            },
            How::Sorted(_) | How::Join { .. }
                if matches!(self.groups[group].logical, Logical::Joined { .. }) =>
            {
                let Logical::Joined { block, .. } = self.groups[group].logical else { return Recipe::Kept };
                let equalities = self.blocks[block].0.equalities.clone();
                Recipe::Block(Box::new(self.tree(group, required)), equalities)
            }
            How::Sorted(below) => {
                let keys = self.orders.keys(required.order).to_vec();
                Recipe::Sorted(keys, Box::new(self.recipe(group, below)))
            }
            How::Join { left, right, method, turned } => Recipe::Join {
                method: self.join_by(method),
                turned,
                left: Box::new(self.recipe(left.0, left.1)),
                right: Box::new(right.1.map_or(Recipe::LookedUp, |asked| self.recipe(right.0, asked))),
            },
        }
    }

    fn winner(&mut self, group: GroupId, required: Required) -> Winner {
        let cost = self.best(group, required);
        let known = self.groups[group].winners.iter().find(|winner| winner.required == required);
        known.copied().unwrap_or(Winner { required, cost, how: How::Impossible })
    }

    fn operator_recipe(&mut self, group: GroupId, below: Required, replaces: bool) -> Recipe {
        let Logical::Operator { first, inputs, .. } = self.groups[group].logical else { return Recipe::Kept };
        let inputs = self.inputs[first..first + inputs].to_vec();
        let mut made: Vec<Recipe> = Vec::with_capacity(inputs.len());
        for (at, input) in inputs.into_iter().enumerate() {
            made.push(self.recipe(input, if at == 0 { below } else { Required::ALL }));
        }
        match replaces {
            true => Recipe::Unsorted(Box::new(made.pop().unwrap_or(Recipe::Kept))),
            false => Recipe::Operator(made),
        }
    }

    fn tree(&mut self, group: GroupId, required: Required) -> Tree {
        if let Logical::Input { .. } = self.groups[group].logical {
            return Tree::Input(self.number_of(group), self.recipe(group, required));
        }
        match self.winner(group, required).how {
            How::Sorted(below) => {
                let keys = self.orders.keys(required.order).to_vec();
                Tree::Sorted(keys, Box::new(self.tree(group, below)))
            }
            How::Join { left, right, method, .. } => Tree::Join {
                method: self.join_by(method),
                left: Box::new(self.tree(left.0, left.1)),
                right: Box::new(match right.1 {
                    Some(asked) => self.tree(right.0, asked),
                    None => Tree::Input(self.number_of(right.0), Recipe::LookedUp),
                }),
            },
            // Some split can always be done by a nested loop in any order, and sorted.
            _ => match self.any_split(group) {
                Some((left, right)) => Tree::Join {
                    method: JoinBy::NestedLoop,
                    left: Box::new(self.tree(left, Required::ALL)),
                    right: Box::new(self.tree(right, Required::ALL)),
                },
                None => Tree::Input(self.number_of(group), Recipe::Kept),
            },
        }
    }

    fn any_split(&mut self, group: GroupId) -> Option<(GroupId, GroupId)> {
        let Logical::Joined { block, set } = self.groups[group].logical else { return None };
        let left = self.blocks[block].1.lefts(set).next()?;
        Some((self.set(block, left), self.set(block, set & !left)))
    }

    /// The number of an input in its block.
    fn number_of(&self, group: GroupId) -> usize {
        let of = |((_, set), known): (&(usize, Set), &GroupId)| (*known == group).then_some(*set);
        self.sets.iter().find_map(of).map_or(0, |set| set.trailing_zeros() as usize)
    }

    fn join_by(&self, method: Method) -> JoinBy {
        let keys = |order: OrderId| self.orders.keys(order).iter();
        match method {
            Method::NestedLoop => JoinBy::NestedLoop,
            Method::LookUp => JoinBy::LookUp,
            Method::Hash => JoinBy::Hash,
            Method::Merge { left, right, keys: count } => JoinBy::Merge(
                keys(left)
                    .zip(keys(right))
                    .take(count)
                    .map(|(left, right)| (left.expr.clone(), right.expr.clone(), left.descending))
                    .collect(),
            ),
        }
    }
}
