//! The groups of a memo, and how a plan becomes them.

use super::associate::Splits;
use super::block::{self, Block, MOST_INPUTS, Set};
use super::commute::turned;
use super::explore::Alternatives;
use super::join::Sequence;
use super::merge;
use super::natural::natural_orders;
use super::order::{OrderId, Orders, Required, natural};
use super::rule::{Options, Rule};
use crate::optimize::access::Choice;
use crate::optimize::{cardinality, join_method};
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanKind};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::rc::Rc;

/// A group by its number.
pub type GroupId = usize;

/// What the rows of a group are.
#[derive(Clone, Copy)]
pub enum Logical<'p> {
    /// Those of a plan without joins.
    Leaf(&'p Plan),
    /// Those of an operator over groups: `inputs` of them from `first` on in [`Memo::inputs`].
    Operator { plan: &'p Plan, first: usize, inputs: usize },
    /// Those of a join that keeps its place: its number.
    Join(usize),
    /// Those of several inputs of a block joined.
    Joined { block: usize, set: Set },
    /// Those of one input of a block, as a part of its row.
    Input { start: usize, of: GroupId },
}

/// Plans that return the same rows, and the best ones found.
pub struct Group<'p> {
    /// What they return.
    pub logical: Logical<'p>,
    /// How many rows.
    pub rows: f64,
    /// A group that returns the same, made of another plan: the number of that, and the group.
    pub alternative: Option<(usize, GroupId)>,
    /// The best found, by what was asked for.
    pub winners: Vec<Winner>,
}

/// The best way to what was asked of a group.
#[derive(Clone, Copy, Debug)]
pub struct Winner {
    /// What was asked for.
    pub required: Required,
    /// What it costs to get the share of the rows that was asked for.
    pub cost: f64,
    /// How.
    pub how: How,
}

/// How a group does what it is asked.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Not at all.
    Impossible,
    /// A leaf by itself.
    Leaf,
    /// An operator of which the first input is asked for this; the operator itself may be left out.
    Operator { below: Required, replaces: bool },
    /// An input of a block as the group that it is.
    Input(Required),
    /// The rows in any order, sorted.
    Sorted(Required),
    /// The plan of the alternative.
    Instead,
    /// A join.
    Join {
        /// The left side, and what it is asked for.
        left: (GroupId, Required),
        /// The right side; nothing is asked of one that the method reads by itself.
        right: (GroupId, Option<Required>),
        /// How.
        method: super::join::Method,
        /// Whether its sides are turned.
        turned: bool,
    },
}

/// A join that keeps its place.
pub struct Fixed<'p> {
    /// It.
    pub plan: &'p Plan,
    /// Its kind.
    pub kind: JoinKind,
    /// Its sides.
    pub sides: [GroupId; 2],
    /// How many columns the left one has.
    pub width: usize,
    /// What is equal, as ascending orders by it of the left and of the right side.
    pub pairs: SmallVec<[(OrderId, OrderId); 4]>,
    /// Pairs of rows in which all of that is equal.
    pub matching: f64,
    /// See [`super::join::Sides::sequences`].
    pub sequences: Vec<Sequence>,
    /// How the right side is looked up.
    pub look_up: Option<Rc<Choice>>,
}

/// All groups of a plan.
pub struct Memo<'p> {
    /// The groups.
    pub groups: Vec<Group<'p>>,
    /// Inputs of operators.
    pub inputs: Vec<GroupId>,
    /// Joins that keep their places.
    pub joins: Vec<Fixed<'p>>,
    /// Blocks of inner joins, and how their inputs may be joined.
    pub blocks: Vec<(Block<'p>, Splits)>,
    /// Groups of sets of inputs of blocks.
    pub sets: HashMap<(usize, Set), GroupId>,
    /// The orders.
    pub orders: Orders,
    /// Which rules there are.
    pub options: Options,
    /// Rows of common table expressions.
    pub ctes: &'p [(usize, f64)],
}

impl<'p> Memo<'p> {
    /// An empty memo.
    pub fn new(options: Options, ctes: &'p [(usize, f64)]) -> Self {
        Memo {
            groups: Vec::new(),
            inputs: Vec::new(),
            joins: Vec::new(),
            blocks: Vec::new(),
            sets: HashMap::new(),
            orders: Orders::new(),
            options,
            ctes,
        }
    }

    fn group(&mut self, logical: Logical<'p>, rows: f64) -> GroupId {
        self.groups.push(Group { logical, rows, alternative: None, winners: Vec::new() });
        self.groups.len() - 1
    }

    /// The group of an estimated plan.
    pub fn add(&mut self, plan: &'p Plan, alternatives: &'p Alternatives) -> GroupId {
        if !crate::optimize::has_join(plan) {
            return self.group(Logical::Leaf(plan), plan.rows);
        }
        let group = match &plan.kind {
            PlanKind::Join { .. } if block::is_inner(plan) && block::count_inputs(plan) <= MOST_INPUTS => {
                self.add_block(plan, alternatives)
            }
            PlanKind::Join { kind, method: JoinMethod::NestedLoop, left, right, on } => {
                let sides = [self.add(left, alternatives), self.add(right, alternatives)];
                self.add_join(plan, *kind, sides, on.as_ref())
            }
            _ => {
                let mut own: SmallVec<[GroupId; 2]> = SmallVec::new();
                plan.for_each_child(&mut |child, _| own.push(self.add(child, alternatives)));
                let first = self.inputs.len();
                self.inputs.extend_from_slice(&own);
                self.group(Logical::Operator { plan, first, inputs: own.len() }, plan.rows)
            }
        };
        if let Some((number, other)) = alternatives.of(plan) {
            self.groups[group].alternative = Some((number, self.add(other, alternatives)));
        }
        group
    }

    fn add_block(&mut self, plan: &'p Plan, alternatives: &'p Alternatives) -> GroupId {
        let block = Block::of(plan, &mut self.orders);
        let number = self.blocks.len();
        let all = block.all();
        let inputs: Vec<(&'p Plan, usize)> =
            block.inputs.iter().map(|input| (input.plan, input.start)).collect();
        let rows = block.rows(all);
        let splits = Splits::of(&block, self.options.has(Rule::Associate));
        self.blocks.push((block, splits));
        for (at, (input, start)) in inputs.into_iter().enumerate() {
            let of = self.add(input, alternatives);
            let group = self.group(Logical::Input { start, of }, input.rows);
            self.sets.insert((number, 1 << at), group);
        }
        let group = self.group(Logical::Joined { block: number, set: all }, rows);
        self.sets.insert((number, all), group);
        group
    }

    /// The group of a set of inputs of a block.
    pub fn set(&mut self, block: usize, set: Set) -> GroupId {
        if let Some(known) = self.sets.get(&(block, set)) {
            return *known;
        }
        let rows = self.blocks[block].0.rows(set);
        let group = self.group(Logical::Joined { block, set }, rows);
        self.sets.insert((block, set), group);
        group
    }

    fn add_join(
        &mut self,
        plan: &'p Plan,
        kind: JoinKind,
        sides: [GroupId; 2],
        on: Option<&Expr>,
    ) -> GroupId {
        let PlanKind::Join { left, right, .. } = &plan.kind else {
            return self.group(Logical::Leaf(plan), plan.rows);
        };
        let width = left.columns.len();
        let (keys, _) = join_method::split_equalities(on.cloned(), width);
        let matching = left.rows * right.rows * cardinality::equal_share(&keys, left, right);
        let mut pairs: SmallVec<[(OrderId, OrderId); 4]> = SmallVec::new();
        for (one, other) in keys {
            let [one, other] = [one, other].map(|side| self.orders.number(vec![natural(side, false)]));
            pairs.extend(one.zip(other));
        }
        let (of_left, of_right) = (natural_orders(left, 0), natural_orders(right, 0));
        let natural = (of_left.iter().map(Vec::as_slice), of_right.iter().map(Vec::as_slice));
        let sorts = !self.options.has(Rule::HashJoin);
        let sequences = merge::sequences(&pairs, natural, sorts, &self.orders);
        let look_up = match kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti => look_up(right, on, width),
            JoinKind::Right | JoinKind::Full => None,
        };
        let look_up = look_up.map(Rc::new);
        self.joins.push(Fixed { plan, kind, sides, width, pairs, matching, sequences, look_up });
        self.group(Logical::Join(self.joins.len() - 1), plan.rows)
    }

    /// The kind of a join that keeps its place with its sides turned, if that is tried.
    pub fn turned(&self, kind: JoinKind) -> Option<JoinKind> {
        turned(kind).filter(|_| self.options.has(Rule::Commute))
    }
}

/// How the right side of a join that keeps its place is looked up.
fn look_up(right: &Plan, on: Option<&Expr>, width: usize) -> Option<Choice> {
    let PlanKind::Scan { filter, .. } = &right.kind else { return None };
    let conditions = on?.clone().into_conjuncts();
    if !join_method::may_look_up(right, &conditions) {
        return None;
    }
    let own = filter.clone().map_or_else(Vec::new, Expr::into_conjuncts);
    let mut all: Vec<Expr> = own.into_iter().map(|one| join_method::inward(one, 0)).collect();
    all.extend(conditions.into_iter().map(|one| join_method::inward(one, width)));
    join_method::look_up(right, all)
}
