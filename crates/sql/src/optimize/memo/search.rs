//! The search: the best way to what is asked of a group, found once and remembered.
//!
//! It goes from the top down: what is asked of a group says what its inputs are asked for. What rules propose is not looked
//! into further if its cost with that of its inputs in any order is not below that of the best way so far: an
//! order never makes it cheaper (branch and bound).

use super::block::Set;
use super::commute;
use super::group::{GroupId, How, Logical, Memo, Winner};
use super::join::{Method, Proposals, Sides};
use super::order::{ANY, OrderId, Required};
use super::rule::Rule;
use super::{hash, look_up, merge, nested_loop, pass_order, read, sort};
use crate::optimize::join_method::look_ups_cost;
use crate::plan::{JoinKind, Plan};

/// How much cheaper another order of joins must be than the one as written.
const WORTHWHILE: f64 = 0.99;

/// The best so far.
struct Best {
    /// Its cost, a little less for what is preferred.
    rank: f64,
    cost: f64,
    how: How,
}

impl Best {
    fn new() -> Self {
        Best { rank: f64::INFINITY, cost: f64::INFINITY, how: How::Impossible }
    }

    fn offer(&mut self, cost: f64, handicap: f64, how: How) {
        if cost * handicap < self.rank {
            *self = Best { rank: cost * handicap, cost, how };
        }
    }
}

/// The sides of a join, whatever it is of.
#[derive(Clone, Copy)]
struct Place {
    left: GroupId,
    right: GroupId,
    turned: bool,
    handicap: f64,
}

impl<'p> Memo<'p> {
    /// What it costs to get what is asked of a group; infinite if it cannot be.
    pub fn best(&mut self, group: GroupId, required: Required) -> f64 {
        let known = self.groups[group].winners.iter().find(|winner| winner.required == required);
        if let Some(winner) = known {
            return winner.cost;
        }
        let Best { cost, how, .. } = self.search(group, required);
        self.groups[group].winners.push(Winner { required, cost, how });
        cost
    }

    fn search(&mut self, group: GroupId, required: Required) -> Best {
        let mut best = Best::new();
        let (logical, rows) = (self.groups[group].logical, self.groups[group].rows);
        if let Logical::Input { start, of } = logical {
            if let Some(order) = self.orders.moved(required.order, |index| index.checked_sub(start)) {
                let required = Required { order, ..required };
                best.offer(self.best(of, required), 1.0, How::Input(required));
            }
            return best;
        }
        if let Some((below, cost)) = sort::enforce(required, rows) {
            let cost = cost + self.options.penalty(Rule::Sort);
            best.offer(self.best(group, below) + cost, 1.0, How::Sorted(below));
        }
        match logical {
            Logical::Leaf(plan) => {
                if let Some(cost) = read::cost(plan, required, &self.orders, self.ctes) {
                    best.offer(cost, 1.0, How::Leaf);
                }
            }
            Logical::Operator { plan, first, inputs } => {
                self.operator(plan, first..first + inputs, required, &mut best);
            }
            Logical::Join(number) => self.fixed(number, required, &mut best),
            Logical::Joined { block, set } => self.joined(block, set, required, &mut best),
            Logical::Input { .. } => {}
        }
        if let Some((_, other)) = self.groups[group].alternative {
            best.offer(self.best(other, required), 1.0, How::Instead);
        }
        best
    }

    fn operator(
        &mut self,
        plan: &'p Plan,
        inputs: std::ops::Range<usize>,
        required: Required,
        best: &mut Best,
    ) {
        let Some(below) = pass_order::below(plan, required, &mut self.orders) else { return };
        // The inputs beyond the first are estimated only, as they are the same whatever is asked for.
        let (mut work, mut before) = (plan.cost, None);
        plan.for_each_child(&mut |child, _| work -= before.replace(child.cost).map_or(child.cost, |_| 0.0));
        let share = if below.required == Required::ALL { 1.0 } else { required.share };
        let own = if below.replaces || matches!(plan.kind, crate::plan::PlanKind::Limit { .. }) {
            0.0
        } else {
            work.max(0.0) * share
        };
        let input = inputs.start;
        let Some(input) = self.inputs.get(input).copied().filter(|_| !inputs.is_empty()) else { return };
        let how = How::Operator { below: below.required, replaces: below.replaces };
        best.offer(own + self.best(input, below.required), 1.0, how);
    }

    fn fixed(&mut self, number: usize, required: Required, best: &mut Best) {
        let join = &self.joins[number];
        let (kind, [left, right], width) = (join.kind, join.sides, join.width);
        let rows = [left, right].map(|side| self.groups[side].rows.max(1.0));
        let out = join.plan.rows.max(1.0);
        let (pairs, sequences, plan) = (join.pairs.clone(), join.sequences.clone(), join.plan);
        let matching = join.matching;
        let found = join.look_up.clone();
        let looked_up = found.and_then(|choice| {
            let crate::plan::PlanKind::Join { right, .. } = &plan.kind else { return None };
            look_ups_cost(right, &choice, rows[0] * required.share)
        });
        let of_left = self.orders.moved(required.order, |index| (index < width).then_some(index));
        let sides = Sides {
            left_rows: rows[0],
            right_rows: rows[1],
            rows: out,
            hashes_left: kind.hashes_left(rows[0], rows[1]),
            found: kind.found(rows[0], rows[1], matching),
            pairs,
            sequences,
            left_order: in_turn(kind, of_left),
            look_up: looked_up,
        };
        self.propose(&sides, required, Place { left, right, turned: false, handicap: 1.0 }, best);
        let Some(kind) = self.turned(kind) else { return };
        let of_right = self.orders.moved(required.order, |index| index.checked_sub(width));
        let sides = Sides {
            left_rows: rows[1],
            right_rows: rows[0],
            rows: out,
            hashes_left: kind.hashes_left(rows[1], rows[0]),
            found: kind.found(rows[1], rows[0], matching),
            pairs: sides.pairs.iter().map(|(left, right)| (*right, *left)).collect(),
            sequences: sides.sequences,
            left_order: in_turn(kind, of_right),
            look_up: None,
        };
        self.propose(&sides, required, Place { left: right, right: left, turned: true, handicap: 1.0 }, best);
    }

    fn joined(&mut self, block: usize, set: Set, required: Required, best: &mut Best) {
        let written = set & !(1 << (Set::BITS - 1 - set.leading_zeros()));
        let lefts: Vec<Set> = self.blocks[block].1.lefts(set).collect();
        let rows = self.groups[self.sets[&(block, set)]].rows.max(1.0);
        let commutes = self.options.has(Rule::Commute);
        for left in lefts {
            let right = set & !left;
            // As written the side with the first input is the left one.
            if !commutes && left.trailing_zeros() > right.trailing_zeros() {
                continue;
            }
            let handicap = if left == written { WORTHWHILE } else { 1.0 };
            self.split(block, (left, right), rows, required, handicap, best);
        }
    }

    fn split(
        &mut self,
        block: usize,
        (left, right): (Set, Set),
        rows: f64,
        required: Required,
        handicap: f64,
        best: &mut Best,
    ) {
        let (left_group, right_group) = (self.set(block, left), self.set(block, right));
        // Whatever the method, all left rows are read.
        if self.best(left_group, required.unordered()) * handicap >= best.rank {
            return;
        }
        let of = &mut self.blocks[block].0;
        let pairs = of.joined_by(left, right);
        let left_order = of.left_order(required.order, left, &pairs, &mut self.orders);
        if left_order.is_none() {
            return;
        }
        let left_rows = self.groups[left_group].rows.max(1.0);
        let look_up = of.look_up(left, right).and_then(|choice| {
            let input = of.inputs.get(right.trailing_zeros() as usize)?;
            look_ups_cost(input.plan, &choice, left_rows * required.share)
        });
        let sequences = match required.order {
            ANY => {
                let sorts = !self.options.has(Rule::HashJoin);
                merge::sequences(&pairs, (of.natural(left), of.natural(right)), sorts, &self.orders)
            }
            _ => Vec::new(),
        };
        let sides = Sides {
            left_rows,
            right_rows: self.groups[right_group].rows.max(1.0),
            rows,
            hashes_left: false,
            found: rows,
            pairs,
            sequences,
            left_order,
            look_up,
        };
        let place = Place { left: left_group, right: right_group, turned: false, handicap };
        self.propose(&sides, required, place, best);
    }

    /// Takes the best of what the rules propose for a join.
    fn propose(&mut self, sides: &Sides, required: Required, place: Place, best: &mut Best) {
        let mut proposals = Proposals::new();
        look_up::propose(sides, required, &mut proposals);
        hash::propose(sides, required, &mut proposals);
        nested_loop::propose(sides, required, &mut proposals);
        merge::propose(sides, required, &mut self.orders, &mut proposals);
        let above = if place.turned { commute::projection(sides.rows * required.share) } else { 0.0 };
        for proposal in proposals {
            let (left, right) = (place.left, place.right);
            let own = proposal.cost + above + self.penalty(proposal.method);
            let ask = |right: Option<Required>| right.map(Required::unordered);
            let least = own
                + self.best(left, proposal.left.unordered())
                + ask(proposal.right).map_or(0.0, |asked| self.best(right, asked));
            if least * place.handicap >= best.rank {
                continue;
            }
            let cost = own
                + self.best(left, proposal.left)
                + proposal.right.map_or(0.0, |asked| self.best(right, asked));
            let how = How::Join {
                left: (left, proposal.left),
                right: (right, proposal.right),
                method: proposal.method,
                turned: place.turned,
            };
            best.offer(cost, place.handicap, how);
        }
    }

    fn penalty(&self, method: Method) -> f64 {
        self.options.penalty(match method {
            Method::NestedLoop => Rule::NestedLoop,
            Method::LookUp => Rule::LookUp,
            Method::Hash => Rule::HashJoin,
            Method::Merge { .. } => Rule::MergeJoin,
        })
    }
}

/// An order of the left rows of a join as one of its result; right rows without a partner are in none.
fn in_turn(kind: JoinKind, order: Option<OrderId>) -> Option<OrderId> {
    order.filter(|order| *order == ANY || !matches!(kind, JoinKind::Right | JoinKind::Full))
}
