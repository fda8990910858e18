//! Makes a plan anew, as a recipe says.

use super::assemble;
use super::commute::turned;
use super::explore::Alternatives;
use super::order::strip;
use super::recipe::{JoinBy, Recipe};
use crate::optimize::access;
use crate::optimize::join_method::{self, split_equalities};
use crate::plan::{Expr, IndexAccess, JoinKind, JoinMethod, MergeKey, Plan, PlanKind, SortKey};

/// A plan made anew.
pub fn build(mut plan: Plan, recipe: Recipe, others: &mut Alternatives) -> Plan {
    match recipe {
        Recipe::Kept => {
            access::choose(&mut plan);
            plan
        }
        Recipe::LookedUp => plan,
        Recipe::Leaf(wanted, limit) => {
            access::choose_ordered(&mut plan, wanted, limit);
            plan
        }
        Recipe::Operator(inputs) => {
            let mut inputs = inputs.into_iter();
            plan.for_each_child_mut(&mut |child, _| {
                let taken = std::mem::replace(child, Plan::one_row());
                *child = build(taken, inputs.next().unwrap_or(Recipe::Kept), others);
            });
            plan
        }
        Recipe::Unsorted(input) => match plan.kind {
            PlanKind::Sort { input: below, .. } => {
                let mut below = build(*below, *input, others);
                below.columns = plan.columns;
                below
            }
            kind => Plan { kind, ..plan },
        },
        Recipe::Sorted(keys, input) => sorted(build(plan, *input, others), keys),
        Recipe::Instead(number, recipe) => match others.take(number) {
            Some(other) => build(other, *recipe, others),
            None => plan,
        },
        Recipe::Join { method, turned, left, right } => {
            let columns = plan.columns;
            let PlanKind::Join { kind, left: own_left, right: own_right, on, .. } = plan.kind else {
                return Plan { columns, ..plan };
            };
            let (left, right) = match turned {
                false => (build(*own_left, *left, others), build(*own_right, *right, others)),
                true => (build(*own_left, *right, others), build(*own_right, *left, others)),
            };
            match turned {
                false => Plan { columns, ..join(kind, &method, left, right, on) },
                true => turned_join(kind, &method, (left, right), on, columns),
            }
        }
        Recipe::Block(tree, equalities) => assemble::assemble(plan, *tree, &equalities, others),
    }
}

/// Rows sorted.
pub fn sorted(input: Plan, keys: Vec<SortKey>) -> Plan {
    let columns = input.columns.clone();
    Plan::new(PlanKind::Sort { input: Box::new(input), keys, limit: None }, columns)
}

/// A join by a method. What a merge join is by is over the row of the left side followed by that of the right one where it
/// is of the left side, and over that of the right one by itself otherwise.
pub fn join(kind: JoinKind, by: &JoinBy, left: Plan, right: Plan, on: Option<Expr>) -> Plan {
    let width = left.columns.len();
    let mut columns = left.columns.clone();
    if !matches!(kind, JoinKind::Semi | JoinKind::Anti) {
        columns.extend(right.columns.iter().cloned());
    }
    let (method, right, on) = match by {
        JoinBy::NestedLoop => (JoinMethod::NestedLoop, right, on),
        JoinBy::LookUp => (JoinMethod::Lateral, looked_up(right, on, width), None),
        JoinBy::Hash => {
            let (keys, rest) = split_equalities(on, width);
            (JoinMethod::Hash(keys), right, Expr::conjunction(rest))
        }
        JoinBy::Merge(by) => {
            let (keys, rest) = split_equalities(on, width);
            (JoinMethod::Merge(merge_keys(keys, by)), right, Expr::conjunction(rest))
        }
    };
    let (left, right) = (Box::new(left), Box::new(right));
    Plan::new(PlanKind::Join { kind, method, left, right, on }, columns)
}

/// Keys in the order in which a merge join is by them.
fn merge_keys(mut keys: Vec<(Expr, Expr)>, by: &[(Expr, Expr, bool)]) -> Vec<MergeKey> {
    let mut found = Vec::with_capacity(keys.len());
    for (of_left, of_right, descending) in by {
        let same = |own: &Expr, wanted: &Expr| {
            let mut own = own.clone();
            strip(&mut own);
            own.same(wanted)
        };
        let is = |(left, right): &(Expr, Expr)| same(left, of_left) && same(right, of_right);
        if let Some(at) = keys.iter().position(is) {
            let (left, right) = keys.remove(at);
            found.push(MergeKey { left, right, descending: *descending });
        }
    }
    found
}

/// A scan with the conditions of a join, for a left row.
fn looked_up(right: Plan, on: Option<Expr>, width: usize) -> Plan {
    let Plan { kind, columns: own, .. } = right;
    let PlanKind::Scan { table, index, columns, filter, reverse, lock, fence, .. } = kind else {
        return Plan::new(kind, own);
    };
    let conditions = filter.map_or_else(Vec::new, Expr::into_conjuncts);
    let mut all: Vec<Expr> = conditions.into_iter().map(|one| join_method::inward(one, 0)).collect();
    let joined = on.map_or_else(Vec::new, Expr::into_conjuncts);
    all.extend(joined.into_iter().map(|one| join_method::inward(one, width)));
    let filter = Expr::conjunction(all);
    let access = IndexAccess::default();
    let kind = PlanKind::Scan { table, index, access, columns, filter, reverse, lock, limit: None, fence };
    let mut scan = Plan::new(kind, own);
    access::choose(&mut scan);
    scan
}

/// A join with its sides turned, below a projection that puts the columns in order.
fn turned_join(
    kind: JoinKind,
    by: &JoinBy,
    (left, right): (Plan, Plan),
    mut on: Option<Expr>,
    columns: Vec<crate::plan::PlanColumn>,
) -> Plan {
    let (width, right_width) = (left.columns.len(), right.columns.len());
    let place = |index: usize| if index < width { index + right_width } else { index - width };
    if let Some(on) = &mut on {
        on.replace(&mut |part| match part {
            Expr::Column(index, ty) => Some(Expr::Column(place(*index), *ty)),
            _ => None,
        });
    }
    let joined = join(turned(kind).unwrap_or(kind), by, right, left, on);
    let exprs = (0..).zip(&columns).map(|(index, column)| Expr::Column(place(index), column.ty.ty)).collect();
    joined.projected(exprs, columns)
}
