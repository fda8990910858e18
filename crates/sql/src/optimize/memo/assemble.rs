//! Inner joins are taken apart and put together in the order that was found.

use super::block::{self, Set};
use super::build::{build, join, sorted};
use super::explore::Alternatives;
use super::recipe::{JoinBy, Tree};
use crate::optimize::implied::Equality;
use crate::plan::{Expr, JoinKind, Plan, PlanKind, SortKey};

/// Inner joins put together as a tree says.
pub fn assemble(plan: Plan, tree: Tree, equalities: &[Equality], others: &mut Alternatives) -> Plan {
    let columns = plan.columns.clone();
    let (mut inputs, mut conjuncts) = (Vec::new(), Vec::new());
    take_apart(plan, 0, &mut inputs, &mut conjuncts);
    let mut assembly =
        Assembly { inputs: inputs.into_iter().map(Some).collect(), conjuncts, equalities, others };
    let (mut plan, layout, _) = assembly.put_together(tree);
    let above = assembly.conjuncts.into_iter().map(|conjunct| moved(conjunct, &layout)).collect();
    if let Some(predicate) = Expr::conjunction(above) {
        let columns = plan.columns.clone();
        plan = Plan::new(PlanKind::Filter { input: Box::new(plan), predicate }, columns);
    }
    if layout.iter().copied().eq(0..columns.len()) {
        plan.columns = columns;
        return plan;
    }
    let position = |index: usize| layout.iter().position(|written| *written == index).unwrap_or(index);
    let exprs = (0..).zip(&columns).map(|(at, column)| Expr::Column(position(at), column.ty.ty)).collect();
    plan.projected(exprs, columns)
}

/// An input, and where its columns begin in the row as written.
type Part = (Plan, usize);

/// What joins make of their inputs.
struct Assembly<'a> {
    inputs: Vec<Option<Part>>,
    /// Conditions over the row as written that no join has yet.
    conjuncts: Vec<Expr>,
    /// Equalities of columns among them, and those that follow.
    equalities: &'a [Equality],
    others: &'a mut Alternatives,
}

impl Assembly<'_> {
    /// The joined plan, the position in the row as written of each of its columns, and which inputs it has.
    fn put_together(&mut self, tree: Tree) -> (Plan, Vec<usize>, Set) {
        match tree {
            Tree::Input(number, recipe) => match self.inputs.get_mut(number).and_then(Option::take) {
                Some((input, start)) => {
                    let layout = (start..start + input.columns.len()).collect();
                    (build(input, recipe, self.others), layout, 1 << number)
                }
                None => (Plan::one_row(), Vec::new(), 0),
            },
            Tree::Sorted(keys, below) => {
                let (plan, layout, inputs) = self.put_together(*below);
                let key = |key: SortKey| SortKey { expr: moved(key.expr, &layout), ..key };
                let keys = keys.into_iter().map(key).collect();
                (sorted(plan, keys), layout, inputs)
            }
            Tree::Join { method, left, right } => {
                let (left, left_layout, left_inputs) = self.put_together(*left);
                let (right, right_layout, right_inputs) = self.put_together(*right);
                let by = match method {
                    JoinBy::Merge(keys) => JoinBy::Merge(
                        keys.into_iter()
                            .map(|(one, other, descending)| {
                                (moved(one, &left_layout), moved(other, &right_layout), descending)
                            })
                            .collect(),
                    ),
                    other => other,
                };
                let mut layout = left_layout;
                layout.extend(right_layout);
                let following = self.following(left_inputs, right_inputs);
                let (ready, later): (Vec<Expr>, Vec<Expr>) = std::mem::take(&mut self.conjuncts)
                    .into_iter()
                    .partition(|conjunct| covered(conjunct, &layout));
                self.conjuncts = later;
                let on =
                    ready.into_iter().chain(following).map(|conjunct| moved(conjunct, &layout)).collect();
                let joined = join(JoinKind::Inner, &by, left, right, Expr::conjunction(on));
                (joined, layout, left_inputs | right_inputs)
            }
        }
    }

    /// Of each class of equal columns that no condition as written connects two sides by, an equality that follows.
    fn following(&self, left: Set, right: Set) -> Vec<Expr> {
        let crosses = |one: &&Equality| {
            one.reads & left != 0 && one.reads & right != 0 && one.reads & !(left | right) == 0
        };
        let mut classes = Vec::new();
        let written = self.equalities.iter().filter(crosses).filter(|one| one.implied.is_none());
        classes.extend(written.map(|one| one.class));
        let mut found = Vec::new();
        for one in self.equalities.iter().filter(crosses) {
            if let Some(implied) = &one.implied
                && !classes.contains(&one.class)
            {
                classes.push(one.class);
                found.push(implied.clone());
            }
        }
        found
    }
}

fn covered(conjunct: &Expr, layout: &[usize]) -> bool {
    let mut all = true;
    conjunct.columns(&mut |index| all &= layout.contains(&index));
    all
}

fn moved(mut conjunct: Expr, layout: &[usize]) -> Expr {
    conjunct.replace(&mut |part| match part {
        Expr::Column(index, ty) => {
            layout.iter().position(|written| written == index).map(|position| Expr::Column(position, *ty))
        }
        _ => None,
    });
    conjunct
}

fn take_apart(plan: Plan, start: usize, inputs: &mut Vec<Part>, conjuncts: &mut Vec<Expr>) {
    if !block::is_inner(&plan) {
        inputs.push((plan, start));
        return;
    }
    let PlanKind::Join { left, right, on, .. } = plan.kind else { return };
    let width = left.columns.len();
    take_apart(*left, start, inputs, conjuncts);
    take_apart(*right, start + width, inputs, conjuncts);
    for mut conjunct in on.map_or_else(Vec::new, Expr::into_conjuncts) {
        conjunct.shift_columns(start as isize);
        conjuncts.push(conjunct);
    }
}
