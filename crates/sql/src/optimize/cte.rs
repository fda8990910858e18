//! Puts common table expressions that are read once where they are read.

use crate::plan::{Plan, PlanKind};

/// Inlines common table expressions that are read exactly once and have no effects.
pub fn inline(plan: &mut Plan) {
    plan.for_each_child_mut(&mut |child, _| inline(child));
    let PlanKind::With { ctes, body } = &mut plan.kind else { return };
    let mut position = ctes.len();
    while position > 0 {
        position -= 1;
        let number = ctes[position].0;
        let uses = count(body, number)
            + ctes.iter().skip(position + 1).map(|(_, plan)| count(plan, number)).sum::<usize>();
        if uses > 1
            || ctes[position].1.is_volatile()
            || matches!(ctes[position].1.kind, PlanKind::Recursive { .. })
        {
            continue;
        }
        let (_, definition) = ctes.remove(position);
        if uses == 0 {
            continue;
        }
        let mut definition = Some(definition);
        for (_, plan) in ctes.iter_mut().skip(position) {
            substitute(plan, number, 0, &mut definition);
        }
        substitute(body, number, 0, &mut definition);
    }
    if ctes.is_empty() {
        let body = std::mem::replace(body.as_mut(), Plan::one_row());
        *plan = body;
    }
}

/// How often a plan reads a common table expression; once too often inside of what is run repeatedly.
fn count(plan: &Plan, number: usize) -> usize {
    let mut uses = usize::from(matches!(plan.kind, PlanKind::CteScan { cte } if cte == number));
    plan.for_each_child(&mut |child, repeated| {
        let inside = count(child, number);
        uses += if repeated { 2 * inside } else { inside };
    });
    if let PlanKind::Recursive { step, .. } = &plan.kind {
        uses += count(step, number);
    }
    uses
}

fn substitute(plan: &mut Plan, number: usize, level: usize, definition: &mut Option<Plan>) {
    if definition.is_none() {
        return;
    }
    if matches!(plan.kind, PlanKind::CteScan { cte } if cte == number) {
        if let Some(mut inner) = definition.take() {
            inner.shift_outer(0, level as isize);
            inner.columns = std::mem::take(&mut plan.columns);
            *plan = inner;
        }
        return;
    }
    plan.for_each_child_mut(&mut |child, inner| {
        substitute(child, number, level + usize::from(inner), definition);
    });
}
