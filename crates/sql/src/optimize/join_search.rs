//! Looks for the order of inner joins that costs least, as the costs of their inputs and the rows of each result suggest.
//!
//! Up to [`MOST_EXHAUSTIVE`] inputs are joined in the cheapest of all orders, bushy ones included, found by
//! dynamic programming over sets of inputs (as in Moerkotte and Neumann, "Analysis of two existing and one new dynamic
//! programming algorithm", 2006, algorithm DPsub). More are joined greedily, each time the two that give the
//! fewest rows (Fegaras, "A new heuristic for optimizing large queries", 1998).

use super::access::Choice;
use super::cardinality::equal_share;
use super::implied::Equality;
use super::origin::Columns;
use super::selectivity::selectivity;
use super::{cost, join_method};
use crate::plan::{Expr, Plan, PlanKind};
use std::collections::HashMap;

/// More inputs than this are joined greedily.
pub const MOST_EXHAUSTIVE: usize = 9;
/// More inputs than this stay as written.
pub const MOST_INPUTS: usize = 63;
/// How much cheaper another order must be than the one as written.
const WORTHWHILE: f64 = 0.99;

/// Inputs, as bits.
pub type Set = u64;

/// One input of the joins, and where its columns are in the row as written.
pub struct Input {
    /// The input.
    pub plan: Plan,
    /// Where its columns begin in the row as written.
    pub start: usize,
    /// How many columns it has.
    pub width: usize,
}

impl Input {
    /// Whether a column of the row as written is one of its own.
    fn has(&self, index: usize) -> bool {
        (self.start..self.start + self.width).contains(&index)
    }
}

/// An order of joins.
#[derive(Debug)]
pub enum Tree {
    /// An input by its number.
    Input(usize),
    /// Left, right, and the rows of the result.
    Join(Box<Tree>, Box<Tree>, f64),
}

/// The way to a set of inputs: its cost, and the left side of its last join.
#[derive(Clone, Copy)]
struct Step {
    cost: f64,
    left: Set,
}

/// Columns that are equal.
#[derive(Default)]
struct Class {
    /// Pairs of inputs that conditions connect as written.
    written: Vec<Set>,
    /// Those that follow, with the share of pairs that each keeps, the largest first.
    following: Vec<(Set, f64)>,
}

/// Looks for a good order.
pub struct Search<'s> {
    inputs: &'s [Input],
    conjuncts: &'s [Expr],
    /// By condition: the inputs it reads.
    reads: Vec<Set>,
    /// Conditions that follow from others, with the inputs they read.
    implied: Vec<(Set, &'s Expr)>,
    /// By input: those that equalities connect it with.
    connected: Vec<Set>,
    /// By two inputs, the lower one first: the share of pairs that their equalities keep.
    pairs: HashMap<(usize, usize), f64>,
    /// Shares that other conditions keep, with the inputs they read.
    others: Vec<(Set, f64)>,
    /// Classes of equal columns.
    classes: Vec<Class>,
    /// By input and those that conditions on it read: how it is looked up.
    look_ups: HashMap<(usize, Set), Option<Choice>>,
}

impl<'s> Search<'s> {
    /// Of inputs, at most [`MOST_INPUTS`], and the conditions over the row as written, with what follows from them.
    pub fn new(inputs: &'s [Input], conjuncts: &'s [Expr], equalities: &'s [Equality]) -> Self {
        let reads: Vec<Set> = conjuncts.iter().map(|conjunct| read_by(conjunct, inputs)).collect();
        let mut search = Search {
            inputs,
            conjuncts,
            reads,
            connected: vec![0; inputs.len()],
            pairs: HashMap::new(),
            others: Vec::new(),
            classes: Vec::new(),
            implied: equalities.iter().filter_map(|one| Some((one.reads, one.implied.as_ref()?))).collect(),
            look_ups: HashMap::new(),
        };
        let mut keys: HashMap<(usize, usize), Vec<(Expr, Expr)>> = HashMap::new();
        let rows: Vec<(usize, &Plan)> = inputs.iter().map(|input| (input.start, &input.plan)).collect();
        for (conjunct, read) in conjuncts.iter().zip(&search.reads) {
            match equality(conjunct, *read, inputs) {
                Some((a, b, key)) => keys.entry((a, b)).or_default().push(key),
                None => search.others.push((*read, selectivity(conjunct, Columns::Row(&rows)))),
            }
        }
        for ((a, b), keys) in keys {
            search.connected[a] |= 1 << b;
            search.connected[b] |= 1 << a;
            search.pairs.insert((a, b), equal_share(&keys, &inputs[a].plan, &inputs[b].plan));
        }
        search.note_implied(equalities);
        search
    }

    fn note_implied(&mut self, equalities: &[Equality]) {
        for one in equalities {
            if self.classes.len() <= one.class {
                self.classes.resize_with(one.class + 1, Default::default);
            }
            let class = &mut self.classes[one.class];
            let Some(implied) = &one.implied else {
                class.written.push(one.reads);
                continue;
            };
            let Some((a, b, key)) = equality(implied, one.reads, self.inputs) else { continue };
            self.connected[a] |= 1 << b;
            self.connected[b] |= 1 << a;
            let share = equal_share(&[key], &self.inputs[a].plan, &self.inputs[b].plan);
            class.following.push((one.reads, share));
        }
        for class in &mut self.classes {
            class.following.sort_by(|left, right| right.1.total_cmp(&left.1));
        }
    }

    /// The share of rows of a set that equalities keep which follow from conditions that read others, too.
    fn implied_share(&self, set: Set) -> f64 {
        let mut kept = 1.0;
        for class in self.classes.iter().filter(|class| !class.following.is_empty()) {
            // What is equal already: sets of inputs.
            let mut groups: Vec<Set> = Vec::new();
            let mut join = |pair: Set| {
                if groups.iter().any(|group| group & pair == pair) {
                    return false;
                }
                let mut joined = pair;
                groups.retain(|group| {
                    let apart = group & pair == 0;
                    joined |= if apart { 0 } else { *group };
                    apart
                });
                groups.push(joined);
                true
            };
            for pair in class.written.iter().filter(|pair| **pair & !set == 0) {
                join(*pair);
            }
            for (pair, share) in class.following.iter().filter(|(pair, _)| pair & !set == 0) {
                if join(*pair) {
                    kept *= share;
                }
            }
        }
        kept
    }

    /// The order found.
    pub fn tree(&mut self) -> Tree {
        if self.inputs.len() <= MOST_EXHAUSTIVE { self.exhaustive() } else { self.greedy() }
    }

    /// Rows of the join of a set of inputs.
    fn rows(&self, set: Set) -> f64 {
        let rows: f64 = members(set).map(|input| self.inputs[input].plan.rows.max(1.0)).product();
        let inside = |(a, b): &(usize, usize)| set >> a & set >> b & 1 == 1;
        let equal: f64 = self.pairs.iter().filter(|(pair, _)| inside(pair)).map(|(_, share)| share).product();
        let kept: f64 =
            self.others.iter().filter(|(read, _)| read & !set == 0).map(|(_, share)| share).product();
        rows * equal * kept * self.implied_share(set)
    }

    /// The cost of the last join of two sets, whose own costs are known.
    fn join_cost(
        &mut self,
        (left, left_cost): (Set, f64),
        (right, right_cost): (Set, f64),
        rows: [f64; 3],
    ) -> f64 {
        let [left_rows, right_rows, out] = rows.map(|rows| rows.max(1.0));
        let connected = members(left).any(|input| self.connected[input] & right != 0);
        let once = match connected {
            true => cost::hash_join(left_rows, right_rows, out),
            false => cost::nested_loop(left_rows, right_rows, out),
        };
        let once = left_cost + right_cost + once;
        match self.look_up_cost(left, right, left_rows) {
            Some(looked_up) => once.min(left_cost + looked_up + out * cost::ROW),
            None => once,
        }
    }

    /// The cost of looking up a single input for rows of others, if an index serves their conditions.
    fn look_up_cost(&mut self, left: Set, right: Set, left_rows: f64) -> Option<f64> {
        if right.count_ones() != 1 {
            return None;
        }
        let number = right.trailing_zeros() as usize;
        let (inputs, conjuncts) = (self.inputs, self.conjuncts);
        let input = &inputs[number];
        let serves = |read: &Set| read & right != 0 && read & !(left | right) == 0;
        let implied = self.implied.iter().map(|(read, _)| read);
        let used: Set =
            self.reads.iter().chain(implied).filter(|read| serves(read)).fold(0, |used, read| used | read);
        let (reads, implied) = (&self.reads, &self.implied);
        let choice = self.look_ups.entry((number, used)).or_insert_with(|| {
            let PlanKind::Scan { filter, .. } = &input.plan.kind else { return None };
            let own = filter.clone().map_or_else(Vec::new, Expr::into_conjuncts);
            let mut all: Vec<Expr> = own.into_iter().map(|own| join_method::inward(own, 0)).collect();
            let served = conjuncts.iter().zip(reads).filter(|(_, read)| serves(read));
            all.extend(served.map(|(conjunct, _)| seen_from(input, conjunct.clone())));
            let following = implied.iter().filter(|(read, _)| serves(read) && !reads.contains(read));
            all.extend(following.map(|(_, conjunct)| seen_from(input, Expr::clone(conjunct))));
            join_method::look_up(&input.plan, all)
        });
        join_method::look_ups_cost(&input.plan, choice.as_ref()?, left_rows)
    }

    fn exhaustive(&mut self) -> Tree {
        let count = self.inputs.len();
        let all: Set = (1 << count) - 1;
        let rows: Vec<f64> = (0..=all).map(|set| self.rows(set)).collect();
        let mut steps = vec![Step { cost: f64::INFINITY, left: 0 }; rows.len()];
        for (number, input) in self.inputs.iter().enumerate() {
            steps[1 << number].cost = input.plan.cost;
        }
        for set in 1..=all {
            if set.count_ones() < 2 {
                continue;
            }
            let written = set & !(1 << (Set::BITS - 1 - set.leading_zeros()));
            let mut best = Step { cost: f64::INFINITY, left: 0 };
            let mut left = set;
            while let Some(next) =
                (left & set).checked_sub(1).map(|next| next & set).filter(|next| *next != 0)
            {
                left = next;
                let right = set & !left;
                let (left_step, right_step) = (steps[left as usize], steps[right as usize]);
                let sizes = [rows[left as usize], rows[right as usize], rows[set as usize]];
                let cost = self.join_cost((left, left_step.cost), (right, right_step.cost), sizes);
                let handicap = if left == written { WORTHWHILE } else { 1.0 };
                if cost * handicap < best.cost {
                    best = Step { cost: cost * handicap, left };
                }
            }
            if best.left == written {
                best.cost /= WORTHWHILE;
            }
            steps[set as usize] = best;
        }
        tree_of(all, &steps, &rows)
    }

    fn greedy(&mut self) -> Tree {
        let mut parts: Vec<(Set, f64, Tree)> = (0..self.inputs.len())
            .map(|number| (1 << number, self.inputs[number].plan.cost, Tree::Input(number)))
            .collect();
        while parts.len() > 1 {
            let mut best: Option<(bool, f64, usize, usize)> = None;
            for (a, (left, ..)) in parts.iter().enumerate() {
                for (b, (right, ..)) in parts.iter().enumerate().skip(a + 1) {
                    let apart = members(*left).all(|input| self.connected[input] & right == 0);
                    let found = (apart, self.rows(left | right), a, b);
                    if best.is_none_or(|best| (found.0, found.1) < (best.0, best.1)) {
                        best = Some(found);
                    }
                }
            }
            let Some((_, rows, a, b)) = best else { break };
            let (right, right_cost, right_tree) = parts.remove(b);
            let (left, left_cost, left_tree) = parts.remove(a);
            let (left_rows, right_rows) = (self.rows(left), self.rows(right));
            let as_is = self.join_cost((left, left_cost), (right, right_cost), [left_rows, right_rows, rows]);
            let turned =
                self.join_cost((right, right_cost), (left, left_cost), [right_rows, left_rows, rows]);
            let (left_tree, right_tree) =
                if turned < as_is * WORTHWHILE { (right_tree, left_tree) } else { (left_tree, right_tree) };
            let tree = Tree::Join(Box::new(left_tree), Box::new(right_tree), rows);
            parts.push((left | right, as_is.min(turned), tree));
        }
        parts.pop().map_or(Tree::Input(0), |(_, _, tree)| tree)
    }
}

fn tree_of(set: Set, steps: &[Step], rows: &[f64]) -> Tree {
    let left = steps[set as usize].left;
    if left == 0 {
        return Tree::Input(set.trailing_zeros() as usize);
    }
    let (left, right) = (tree_of(left, steps, rows), tree_of(set & !left, steps, rows));
    Tree::Join(Box::new(left), Box::new(right), rows[set as usize])
}

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize).filter(move |bit| set >> bit & 1 == 1)
}

/// The inputs that a condition over the row as written reads.
pub fn read_by(conjunct: &Expr, inputs: &[Input]) -> Set {
    let mut read = 0;
    conjunct.columns(&mut |index| {
        for (number, input) in inputs.iter().enumerate() {
            read |= Set::from(input.has(index)) << number;
        }
    });
    read
}

/// An equality between two inputs: those, the lower one first, and what is equal, each over the row of its own input.
fn equality(conjunct: &Expr, read: Set, inputs: &[Input]) -> Option<(usize, usize, (Expr, Expr))> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    let [x, y] = &args[..] else { return None };
    if function.name != "=" || read.count_ones() != 2 {
        return None;
    }
    let (of_x, of_y) = (read_by(x, inputs), read_by(y, inputs));
    if of_x.count_ones() != 1 || of_y.count_ones() != 1 {
        return None;
    }
    let local = |expr: &Expr, number: usize| {
        let mut expr = expr.clone();
        expr.shift_columns(-(inputs[number].start as isize));
        expr
    };
    let (a, b) = (of_x.trailing_zeros() as usize, of_y.trailing_zeros() as usize);
    let (x, y) = (local(x, a), local(y, b));
    Some(if a < b { (a, b, (x, y)) } else { (b, a, (y, x)) })
}

/// A condition over the row as written as one of an input for rows of the others.
fn seen_from(input: &Input, mut conjunct: Expr) -> Expr {
    conjunct.replace(&mut |part| match part {
        Expr::Column(index, ty) if input.has(*index) => Some(Expr::Column(index - input.start, *ty)),
        Expr::Column(index, ty) => Some(Expr::Outer { depth: 0, index: *index, ty: *ty }),
        Expr::Outer { depth, index, ty } => Some(Expr::Outer { depth: depth + 1, index: *index, ty: *ty }),
        _ => None,
    });
    conjunct
}
