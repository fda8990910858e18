//! A block: inner joins directly below each other, as the inputs and the conditions that they have. Each set of inputs is a
//! group of the memo, whatever the order in which they are joined.

use super::natural::natural_orders;
use super::order::{ANY, OrderId, Orders, natural};
use crate::optimize::access::Choice;
use crate::optimize::cardinality::equal_share;
use crate::optimize::implied::{Equality, equalities};
use crate::optimize::join_method;
use crate::optimize::origin::Columns;
use crate::optimize::selectivity::of_joined;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanKind};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::rc::Rc;

/// More inputs than this stay as written.
pub const MOST_INPUTS: usize = 63;

/// Inputs, as bits.
pub type Set = u64;

/// One input of the joins, and where its columns are in the row as written.
pub struct Input<'p> {
    /// The input.
    pub plan: &'p Plan,
    /// Where its columns begin in the row as written.
    pub start: usize,
    /// How many columns it has.
    pub width: usize,
}

impl Input<'_> {
    /// Whether a column of the row as written is one of its own.
    fn has(&self, index: usize) -> bool {
        (self.start..self.start + self.width).contains(&index)
    }
}

/// Columns that are equal.
#[derive(Default)]
struct Class {
    /// Pairs of inputs that conditions connect as written.
    written: Vec<Set>,
    /// Those that follow, with the share of pairs that each keeps, the largest first.
    following: Vec<(Set, f64)>,
}

/// An equality that a join can be by.
struct Equal {
    /// The inputs that one side of it reads, and the ascending order by it.
    one: (Set, OrderId),
    /// The same of the other side.
    other: (Set, OrderId),
    /// Its class, where it is of columns.
    class: Option<usize>,
    /// Whether it follows from others.
    follows: bool,
}

/// Inner joins directly below each other.
pub struct Block<'p> {
    /// The inputs, at most [`MOST_INPUTS`].
    pub inputs: Vec<Input<'p>>,
    /// What is equal, and follows from others.
    pub equalities: Rc<[Equality]>,
    /// Conditions over the row as written.
    conjuncts: Vec<Expr>,
    /// By condition: the inputs it reads.
    reads: Vec<Set>,
    /// What joins can be by.
    equal: Vec<Equal>,
    /// By input: orders that an index has its rows in, over the row as written, with whether descending.
    natural: Vec<Vec<Vec<(Expr, bool)>>>,
    /// By input: those that equalities connect it with.
    connected: Vec<Set>,
    /// By two inputs, the lower one first: the share of pairs that their equalities keep.
    pairs: HashMap<(usize, usize), f64>,
    /// Shares that other conditions keep, with the inputs they read.
    others: Vec<(Set, f64)>,
    /// Classes of equal columns.
    classes: Vec<Class>,
    /// By input and those that conditions on it read: how it is looked up.
    look_ups: HashMap<(usize, Set), Option<Rc<Choice>>>,
}

/// Whether a plan is an inner join that can be done in another order.
pub fn is_inner(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Join { kind: JoinKind::Inner, method: JoinMethod::NestedLoop, .. })
}

/// How many inputs directly nested inner joins have.
pub fn count_inputs(plan: &Plan) -> usize {
    match &plan.kind {
        PlanKind::Join { left, right, .. } if is_inner(plan) => count_inputs(left) + count_inputs(right),
        _ => 1,
    }
}

impl<'p> Block<'p> {
    /// Of inner joins with at most [`MOST_INPUTS`] inputs.
    pub fn of(plan: &'p Plan, orders: &mut Orders) -> Self {
        let (mut inputs, mut conjuncts) = (Vec::new(), Vec::new());
        flatten(plan, 0, &mut inputs, &mut conjuncts);
        let equalities: Rc<[Equality]> = equalities(&conjuncts, &inputs).into();
        let reads: Vec<Set> = conjuncts.iter().map(|conjunct| read_by(conjunct, &inputs)).collect();
        let mut block = Block {
            reads,
            connected: vec![0; inputs.len()],
            pairs: HashMap::new(),
            others: Vec::new(),
            classes: Vec::new(),
            equal: Vec::new(),
            natural: inputs.iter().map(|input| natural_orders(input.plan, input.start)).collect(),
            look_ups: HashMap::new(),
            inputs,
            conjuncts,
            equalities,
        };
        block.note_written();
        block.note_implied();
        block.note_equal(orders);
        block
    }

    fn note_written(&mut self) {
        let mut keys: HashMap<(usize, usize), Vec<(Expr, Expr)>> = HashMap::new();
        let rows: Vec<(usize, &Plan)> = self.inputs.iter().map(|input| (input.start, input.plan)).collect();
        for (conjunct, read) in self.conjuncts.iter().zip(&self.reads) {
            match equality(conjunct, *read, &self.inputs) {
                Some((a, b, key)) => keys.entry((a, b)).or_default().push(key),
                None => self.others.push((*read, self.kept_by(conjunct, *read, Columns::Row(&rows)))),
            }
        }
        for ((a, b), keys) in keys {
            self.connected[a] |= 1 << b;
            self.connected[b] |= 1 << a;
            self.pairs.insert((a, b), equal_share(&keys, self.inputs[a].plan, self.inputs[b].plan));
        }
    }

    /// The share of rows that a condition keeps beyond what its alternatives asked of each input.
    fn kept_by(&self, conjunct: &Expr, read: Set, columns: Columns<'_>) -> f64 {
        let of_input = |number: usize| move |expr: &Expr| read_by(expr, &self.inputs) == 1 << number;
        let inputs: Vec<_> = members(read).map(of_input).collect();
        let sides: Vec<&dyn Fn(&Expr) -> bool> = inputs.iter().map(|input| input as _).collect();
        of_joined([conjunct], columns, &sides)
    }

    fn note_implied(&mut self) {
        for one in self.equalities.iter() {
            if self.classes.len() <= one.class {
                self.classes.resize_with(one.class + 1, Default::default);
            }
            let class = &mut self.classes[one.class];
            let Some(implied) = &one.implied else {
                class.written.push(one.reads);
                continue;
            };
            let Some((a, b, key)) = equality(implied, one.reads, &self.inputs) else { continue };
            self.connected[a] |= 1 << b;
            self.connected[b] |= 1 << a;
            let share = equal_share(&[key], self.inputs[a].plan, self.inputs[b].plan);
            class.following.push((one.reads, share));
        }
        for class in &mut self.classes {
            class.following.sort_by(|left, right| right.1.total_cmp(&left.1));
        }
    }

    fn note_equal(&mut self, orders: &mut Orders) {
        let follows = self.equalities.iter().filter_map(|one| Some((one.implied.as_ref()?, Some(one.class))));
        let written = self.conjuncts.iter().map(|conjunct| {
            let same = |one: &&Equality| one.implied.is_none() && one.is(conjunct);
            (conjunct, self.equalities.iter().find(same).map(|one| one.class))
        });
        let all = written.map(|one| (one, false)).chain(follows.map(|one| (one, true)));
        for ((conjunct, class), follows) in all {
            let Some((one, other)) = join_method::equal_values(conjunct) else { continue };
            let reads = [&one, &other].map(|side| read_by(side, &self.inputs));
            if reads[0] == 0 || reads[1] == 0 || reads[0] & reads[1] != 0 {
                continue;
            }
            let [one, other] = [one, other].map(|side| orders.number(vec![natural(side, false)]));
            let (Some(one), Some(other)) = (one, other) else { continue };
            self.equal.push(Equal { one: (reads[0], one), other: (reads[1], other), class, follows });
        }
    }

    /// All inputs.
    pub fn all(&self) -> Set {
        (1 << self.inputs.len()) - 1
    }

    /// Whether an equality connects two sets.
    pub fn connects(&self, left: Set, right: Set) -> bool {
        members(left).any(|input| self.connected[input] & right != 0)
    }

    /// Rows of the join of a set of inputs.
    pub fn rows(&self, set: Set) -> f64 {
        let rows: f64 = members(set).map(|input| self.inputs[input].plan.rows.max(1.0)).product();
        let inside = |(a, b): &(usize, usize)| set >> a & set >> b & 1 == 1;
        let equal: f64 = self.pairs.iter().filter(|(pair, _)| inside(pair)).map(|(_, share)| share).product();
        let kept: f64 =
            self.others.iter().filter(|(read, _)| read & !set == 0).map(|(_, share)| share).product();
        rows * equal * kept * self.implied_share(set)
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

    /// What two sets can be joined by, as ascending orders of the left and of the right one: what is written, and of each
    /// class of equal columns of which nothing is, one that follows.
    pub fn joined_by(&self, left: Set, right: Set) -> SmallVec<[(OrderId, OrderId); 4]> {
        let mut found = SmallVec::new();
        let mut classes: SmallVec<[usize; 4]> = SmallVec::new();
        // Those that follow come last.
        for equal in &self.equal {
            let within = |a: (Set, OrderId), b: (Set, OrderId)| a.0 & !left == 0 && b.0 & !right == 0;
            let pair = match (equal.one, equal.other) {
                (one, other) if within(one, other) => (one.1, other.1),
                (one, other) if within(other, one) => (other.1, one.1),
                _ => continue,
            };
            if equal.follows && equal.class.is_some_and(|class| classes.contains(&class)) {
                continue;
            }
            classes.extend(equal.class);
            found.push(pair);
        }
        found
    }

    /// Orders that an index has the rows of one of some inputs in.
    pub fn natural(&self, set: Set) -> impl Iterator<Item = &[(Expr, bool)]> {
        members(set).flat_map(|input| self.natural[input].iter().map(Vec::as_slice))
    }

    /// An order of a set of inputs as one of the left ones of them; `None` if it is by what they do not have. What is
    /// equal to something of theirs is as good, and has no NULLs.
    pub fn left_order(
        &self,
        order: OrderId,
        left: Set,
        pairs: &[(OrderId, OrderId)],
        orders: &mut Orders,
    ) -> Option<OrderId> {
        if order == ANY {
            return Some(ANY);
        }
        let mut keys = orders.keys(order).to_vec();
        for key in &mut keys {
            let is = |order: OrderId| orders.keys(order).first().is_some_and(|own| own.expr.same(&key.expr));
            match pairs.iter().find(|(own, other)| is(*own) || is(*other)) {
                Some((own, _)) => {
                    let descending = key.descending;
                    *key = natural(orders.keys(*own).first()?.expr.clone(), descending);
                }
                None if read_by(&key.expr, &self.inputs) & !left != 0 => return None,
                None => {}
            }
        }
        orders.number(keys)
    }

    /// How a single input is looked up for rows of others, if an index serves their conditions.
    pub fn look_up(&mut self, left: Set, right: Set) -> Option<Rc<Choice>> {
        if right.count_ones() != 1 {
            return None;
        }
        let number = right.trailing_zeros() as usize;
        let input = self.inputs.get(number)?;
        let PlanKind::Scan { filter, .. } = &input.plan.kind else { return None };
        let serves = |read: Set| read & right != 0 && read & !(left | right) == 0;
        let written = self.conjuncts.iter().zip(self.reads.iter().copied());
        let written = written.filter(|(_, read)| serves(*read));
        let following = self.equalities.iter().filter_map(|one| Some((one.implied.as_ref()?, one.reads)));
        let following = following.filter(|(_, read)| serves(*read) && !self.reads.contains(read));
        let used = written.clone().chain(following.clone()).fold(0, |used, (_, read)| used | read);
        let found = self.look_ups.entry((number, used)).or_insert_with(|| {
            let own = filter.clone().map_or_else(Vec::new, Expr::into_conjuncts);
            let mut all: Vec<Expr> = own.into_iter().map(|own| join_method::inward(own, 0)).collect();
            let conditions = written.chain(following).map(|(conjunct, _)| conjunct);
            let conditions: Vec<Expr> = conditions.cloned().collect();
            if !join_method::may_look_up(input.plan, &conditions) {
                return None;
            }
            all.extend(conditions.into_iter().map(|conjunct| seen_from(input, conjunct)));
            join_method::look_up(input.plan, all).map(Rc::new)
        });
        found.clone()
    }
}

fn flatten<'p>(plan: &'p Plan, start: usize, inputs: &mut Vec<Input<'p>>, conjuncts: &mut Vec<Expr>) {
    match &plan.kind {
        PlanKind::Join { left, right, on, .. } if is_inner(plan) => {
            flatten(left, start, inputs, conjuncts);
            flatten(right, start + left.columns.len(), inputs, conjuncts);
            for mut conjunct in on.clone().map_or_else(Vec::new, Expr::into_conjuncts) {
                conjunct.shift_columns(start as isize);
                conjuncts.push(conjunct);
            }
        }
        _ => inputs.push(Input { plan, start, width: plan.columns.len() }),
    }
}

/// The inputs of a set.
pub fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize).filter(move |bit| set >> bit & 1 == 1)
}

/// The inputs that a condition over the row as written reads.
pub fn read_by(conjunct: &Expr, inputs: &[Input<'_>]) -> Set {
    let mut read = 0;
    conjunct.columns(&mut |index| {
        for (number, input) in inputs.iter().enumerate() {
            read |= Set::from(input.has(index)) << number;
        }
    });
    read
}

/// An equality between two inputs: those, the lower one first, and what is equal, each over the row of its own input.
fn equality(conjunct: &Expr, read: Set, inputs: &[Input<'_>]) -> Option<(usize, usize, (Expr, Expr))> {
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
fn seen_from(input: &Input<'_>, mut conjunct: Expr) -> Expr {
    conjunct.replace(&mut |part| match part {
        Expr::Column(index, ty) if input.has(*index) => Some(Expr::Column(index - input.start, *ty)),
        Expr::Column(index, ty) => Some(Expr::Outer { depth: 0, index: *index, ty: *ty }),
        Expr::Outer { depth, index, ty } => Some(Expr::Outer { depth: depth + 1, index: *index, ty: *ty }),
        _ => None,
    });
    conjunct
}
