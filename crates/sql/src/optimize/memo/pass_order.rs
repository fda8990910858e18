//! Implementation rule: what an operator above joins asks of its input so that its own rows come as they are wanted. Those
//! that hand on rows as they come pass an order on; a sort is nothing but an order asked of its input.

use super::order::{ANY, OrderId, Orders, Required};
use crate::optimize::access::UNKNOWN_LIMIT;
use crate::optimize::estimate::expected_limit;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanKind, SortKey};
use sql_types::functions::Volatility;

/// What an operator asks of its first input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Below {
    /// It.
    pub required: Required,
    /// Whether the operator itself is left out: its input does all that it would.
    pub replaces: bool,
}

/// What an operator asks for; `None` if its rows cannot come as they are wanted.
pub fn below(plan: &Plan, required: Required, orders: &mut Orders) -> Option<Below> {
    let own = |required| Some(Below { required, replaces: false });
    match &plan.kind {
        PlanKind::Sort { keys, .. } => match order_of(keys, orders) {
            Some(order) if required.order == ANY || orders.gives(order, required.order) => {
                Some(Below { required: Required { order, ..required }, replaces: true })
            }
            None if required.order == ANY => own(Required::ALL),
            _ => None,
        },
        PlanKind::Limit { input, limit, offset } => {
            let rows = limit.as_ref().map(|limit| expected_limit(limit, UNKNOWN_LIMIT));
            let skipped = offset.as_ref().map_or(0.0, |offset| expected_limit(offset, UNKNOWN_LIMIT));
            let share = rows.map_or(1.0, |rows| ((rows + skipped) / input.rows.max(1.0)).min(1.0));
            own(Required { order: required.order, share: share * required.share, cut: limit.is_some() })
        }
        PlanKind::Project { exprs, .. } => {
            let order = through(required.order, exprs, orders)?;
            own(Required { order, ..required })
        }
        PlanKind::Filter { .. } | PlanKind::Fence { .. } => own(Required { cut: false, ..required }),
        PlanKind::Apply { input, .. } => {
            let width = input.columns.len();
            let order = orders.moved(required.order, |index| (index < width).then_some(index))?;
            own(Required { order, ..required })
        }
        PlanKind::Join { kind, method: JoinMethod::Lateral, left, .. } => {
            let width = left.columns.len();
            let order = orders.moved(required.order, |index| (index < width).then_some(index))?;
            let keeps = !matches!(kind, JoinKind::Right | JoinKind::Full);
            own(Required { order, cut: false, ..required }).filter(|_| keeps || order == ANY)
        }
        _ if required.order == ANY => own(Required::ALL),
        _ => None,
    }
}

/// The order that a sort makes, if it can be asked of others.
fn order_of(keys: &[SortKey], orders: &mut Orders) -> Option<OrderId> {
    let plain = keys.iter().all(|key| key.expr.volatility() == Volatility::Immutable);
    plain.then(|| orders.number(keys.to_vec())).flatten()
}

/// The order below a projection.
fn through(order: OrderId, exprs: &[Expr], orders: &mut Orders) -> Option<OrderId> {
    if order == ANY {
        return Some(ANY);
    }
    let mut keys = orders.keys(order).to_vec();
    for key in &mut keys {
        let mut known = true;
        key.expr.columns(&mut |index| {
            known &= exprs.get(index).is_some_and(|expr| expr.volatility() == Volatility::Immutable);
        });
        if !known {
            return None;
        }
        key.expr.replace(&mut |part| match part {
            Expr::Column(index, _) => exprs.get(*index).cloned(),
            _ => None,
        });
    }
    orders.number(keys)
}

#[cfg(test)]
mod tests {
    use super::super::order::natural;
    use super::*;
    use crate::plan::PlanColumn;
    use sql_types::{Datum, Type};

    fn column(index: usize) -> Expr {
        Expr::Column(index, Type::INT4)
    }

    fn input(rows: f64) -> Box<Plan> {
        let columns = (0..3).map(|_| PlanColumn::new("c", Type::INT4)).collect();
        let mut plan = Plan::new(PlanKind::CteScan { cte: 1 }, columns);
        plan.rows = rows;
        Box::new(plan)
    }

    fn plan(kind: PlanKind) -> Plan {
        Plan::new(kind, input(1.0).columns)
    }

    #[test]
    fn a_sort_is_an_order_asked_of_its_input() {
        let mut orders = Orders::new();
        let keys = vec![natural(column(1), false), natural(column(0), true)];
        let sort = plan(PlanKind::Sort { input: input(10.0), keys: keys.clone(), limit: None });
        let whole = orders.number(keys.clone()).unwrap();
        let first = orders.number(keys[..1].to_vec()).unwrap();
        let second = orders.number(keys[1..].to_vec()).unwrap();
        let found = below(&sort, Required::ALL, &mut orders).unwrap();
        assert_eq!((found.required.order, found.replaces), (whole, true));
        assert_eq!(below(&sort, Required::ALL.ordered(first), &mut orders), Some(found));
        assert_eq!(below(&sort, Required::ALL.ordered(second), &mut orders), None);
    }

    #[test]
    fn a_limit_asks_for_a_share() {
        let limit = Some(Expr::Const(Datum::Int8(10), Type::INT8));
        let limit = plan(PlanKind::Limit { input: input(1000.0), limit, offset: None });
        let found = below(&limit, Required::ALL.ordered(4), &mut Orders::new()).unwrap();
        assert_eq!(found.required, Required { order: 4, share: 0.01, cut: true });
    }

    #[test]
    fn a_projection_passes_on_what_its_columns_are() {
        let mut orders = Orders::new();
        let project = plan(PlanKind::Project { input: input(1.0), exprs: vec![column(2), column(0)] });
        let outside = orders.number(vec![natural(column(0), false)]).unwrap();
        let inside = orders.number(vec![natural(column(2), false)]).unwrap();
        let found = below(&project, Required::ALL.ordered(outside), &mut orders).unwrap();
        assert_eq!(found.required.order, inside);
        assert_eq!(below(&project, Required::ALL.ordered(inside), &mut orders), None);
    }

    #[test]
    fn what_mixes_rows_passes_no_order_on() {
        let mut orders = Orders::new();
        let order = orders.number(vec![natural(column(0), false)]).unwrap();
        let distinct = plan(PlanKind::Distinct { input: input(1.0), on: Vec::new() });
        assert_eq!(below(&distinct, Required::ALL.ordered(order), &mut orders), None);
        let some = Required { share: 0.1, ..Required::ALL };
        assert_eq!(below(&distinct, some, &mut orders).unwrap().required, Required::ALL);
    }
}
