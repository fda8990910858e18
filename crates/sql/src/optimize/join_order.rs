//! Inner joins are taken apart and put together in the order that [`super::join_search`] finds.

use super::implied::{Equality, equalities};
use super::join_search::{Input, MOST_INPUTS, Search, Set, Tree};
use super::{cost, pushdown::sides};
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind};

/// Reorders the inner joins of a plan.
pub fn reorder(plan: &mut Plan) {
    semi_as_inner(plan);
    if is_inner(plan) && count_inputs(plan) <= MOST_INPUTS {
        let joined = std::mem::replace(plan, Plan::one_row());
        *plan = reorder_joins(joined);
        return;
    }
    plan.for_each_child_mut(&mut |child, _| reorder(child));
}

/// A semi-join of a large table with few values becomes an inner join with the distinct values, so
/// that the table can be looked up by them.
fn semi_as_inner(plan: &mut Plan) {
    let PlanKind::Join {
        kind: kind @ JoinKind::Semi,
        method: JoinMethod::NestedLoop,
        left,
        right,
        on: Some(on),
    } = &mut plan.kind
    else {
        return;
    };
    if right.rows * 10.0 > left.rows || !matches!(left.kind, PlanKind::Scan { .. }) {
        return;
    }
    let width = left.columns.len();
    let mut keys = Vec::new();
    for conjunct in conjuncts(on) {
        match value_of(conjunct, width) {
            Some(column) => keys.push(column),
            None => return,
        }
    }
    let columns: Vec<PlanColumn> = keys.iter().map(|key| right.columns[*key - width].clone()).collect();
    let exprs =
        keys.iter().zip(&columns).map(|(key, column)| Expr::Column(key - width, column.ty.ty)).collect();
    let values = std::mem::replace(right.as_mut(), Plan::one_row()).projected(exprs, columns.clone());
    let (rows, cost) = (values.rows, values.cost);
    **right = Plan::new(PlanKind::Distinct { input: Box::new(values), on: Vec::new() }, columns);
    (right.rows, right.cost) = (rows, cost);
    on.replace(&mut |part| match part {
        Expr::Column(index, ty) => {
            keys.iter().position(|key| key == index).map(|place| Expr::Column(width + place, *ty))
        }
        _ => None,
    });
    *kind = JoinKind::Inner;
    let columns = plan.columns.clone();
    plan.columns.extend(right.columns.iter().cloned());
    let exprs = columns.iter().enumerate().map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
    let mut join = std::mem::replace(plan, Plan::one_row());
    reorder(&mut join);
    *plan = join.projected(exprs, columns);
}

fn conjuncts(on: &Expr) -> Vec<&Expr> {
    match on {
        Expr::And(parts) => parts.iter().collect(),
        other => vec![other],
    }
}

/// The column of the right side that an equality with something of the left side determines.
fn value_of(conjunct: &Expr, width: usize) -> Option<usize> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    let [a, b] = &args[..] else { return None };
    if function.name != "=" || a.ty() != b.ty() {
        return None;
    }
    match (a, b) {
        (other, Expr::Column(index, _)) | (Expr::Column(index, _), other)
            if *index >= width && sides(other, width) == (true, false) =>
        {
            Some(*index)
        }
        _ => None,
    }
}

fn is_inner(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Join { kind: JoinKind::Inner, method: JoinMethod::NestedLoop, .. })
}

/// How many inputs directly nested inner joins have.
fn count_inputs(plan: &Plan) -> usize {
    match &plan.kind {
        PlanKind::Join { left, right, .. } if is_inner(plan) => count_inputs(left) + count_inputs(right),
        _ => 1,
    }
}

fn reorder_joins(plan: Plan) -> Plan {
    let columns = plan.columns.clone();
    let (mut inputs, mut conjuncts) = (Vec::new(), Vec::new());
    flatten(plan, 0, &mut inputs, &mut conjuncts);
    for input in &mut inputs {
        reorder(&mut input.plan);
    }
    let equalities = equalities(&conjuncts, &inputs);
    let tree = Search::new(&inputs, &conjuncts, &equalities).tree();
    let mut assembly = Assembly { inputs: inputs.into_iter().map(Some).collect(), conjuncts, equalities };
    let (mut plan, layout, _) = assembly.assemble(&tree);
    let above = assembly.conjuncts.into_iter().map(|conjunct| moved(conjunct, &layout)).collect();
    if let Some(predicate) = Expr::conjunction(above) {
        let (columns, rows, cost) = (plan.columns.clone(), plan.rows, plan.cost);
        plan = Plan::new(PlanKind::Filter { input: Box::new(plan), predicate }, columns);
        (plan.rows, plan.cost) = (rows, cost);
    }
    if layout.iter().copied().eq(0..columns.len()) {
        plan.columns = columns;
        return plan;
    }
    let position = |index: usize| layout.iter().position(|written| *written == index).unwrap_or(index);
    let exprs = (0..).zip(&columns).map(|(at, column)| Expr::Column(position(at), column.ty.ty)).collect();
    plan.projected(exprs, columns)
}

/// What joins make of their inputs.
struct Assembly {
    inputs: Vec<Option<Input>>,
    /// Conditions over the row as written that no join has yet.
    conjuncts: Vec<Expr>,
    /// Equalities of columns among them, and those that follow.
    equalities: Vec<Equality>,
}

impl Assembly {
    /// The joined plan, the position in the row as written of each of its columns, and which inputs it has.
    fn assemble(&mut self, tree: &Tree) -> (Plan, Vec<usize>, Set) {
        match tree {
            Tree::Input(number) => match self.inputs.get_mut(*number).and_then(Option::take) {
                Some(input) => (input.plan, (input.start..input.start + input.width).collect(), 1 << *number),
                None => (Plan::one_row(), Vec::new(), 0),
            },
            Tree::Join(left, right, rows) => {
                let (left, mut layout, left_inputs) = self.assemble(left);
                let (right, added, right_inputs) = self.assemble(right);
                layout.extend(added);
                let following = self.following(left_inputs, right_inputs);
                let (ready, later): (Vec<Expr>, Vec<Expr>) = std::mem::take(&mut self.conjuncts)
                    .into_iter()
                    .partition(|conjunct| covered(conjunct, &layout));
                self.conjuncts = later;
                let on =
                    ready.into_iter().chain(following).map(|conjunct| moved(conjunct, &layout)).collect();
                (join(left, right, Expr::conjunction(on), *rows), layout, left_inputs | right_inputs)
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

fn join(left: Plan, right: Plan, on: Option<Expr>, rows: f64) -> Plan {
    let mut columns = left.columns.clone();
    columns.extend(right.columns.iter().cloned());
    let cost = left.cost + right.cost + cost::hash_join(left.rows, right.rows, rows);
    let kind = PlanKind::Join {
        kind: JoinKind::Inner,
        method: JoinMethod::NestedLoop,
        left: Box::new(left),
        right: Box::new(right),
        on,
    };
    let mut plan = Plan::new(kind, columns);
    (plan.rows, plan.cost) = (rows.max(1.0), cost);
    plan
}

fn flatten(plan: Plan, start: usize, inputs: &mut Vec<Input>, conjuncts: &mut Vec<Expr>) {
    if !is_inner(&plan) {
        let width = plan.columns.len();
        inputs.push(Input { plan, start, width });
        return;
    }
    let PlanKind::Join { left, right, on, .. } = plan.kind else { return };
    let width = left.columns.len();
    flatten(*left, start, inputs, conjuncts);
    flatten(*right, start + width, inputs, conjuncts);
    for mut conjunct in on.map_or_else(Vec::new, Expr::into_conjuncts) {
        conjunct.shift_columns(start as isize);
        conjuncts.push(conjunct);
    }
}
