//! Implementation rule: both sides in the order of what must be equal, which an index, a join below or a sort gives them.
//! Left rows keep their order, also that by further keys.
//!
//! Where an order is asked for, that one is taken if it begins with what must be equal. Otherwise those are that
//! indexes of both sides have ([`sequences`]): to sort a side costs more than to make a hash table of it, so that only
//! without those ([`super::hash`]) the order as written is tried. All that must be equal takes part: rows that are equal
//! in a part of it may be very many.

use super::join::{Method, Proposal, Proposals, Sequence, Sides};
use super::order::{ANY, OrderId, Orders, Required, natural};
use crate::optimize::cost;
use crate::plan::{Expr, SortKey};

/// Proposes it.
pub fn propose(sides: &Sides, required: Required, orders: &mut Orders, proposals: &mut Proposals) {
    let mut push = |left: OrderId, right: OrderId, keys: usize| {
        let (left_rows, right_rows) = (sides.left_rows * required.share, sides.right_rows * required.share);
        proposals.push(Proposal {
            method: Method::Merge { left, right, keys },
            left: required.ordered(left),
            right: Some(required.ordered(right)),
            cost: cost::merge_join(left_rows, right_rows, sides.rows * required.share),
        });
    };
    match (sides.left_order, &sides.pairs[..]) {
        (None, _) | (_, []) => {}
        (Some(ANY), pairs) => {
            for sequence in &sides.sequences {
                let of_left = along(sequence, pairs.iter().map(|pair| pair.0), orders);
                let of_right = along(sequence, pairs.iter().map(|pair| pair.1), orders);
                if let (Some(left), Some(right)) = (of_left, of_right) {
                    push(left, right, sequence.len());
                }
            }
        }
        (Some(order), pairs) => {
            let mut sequence = leading(order, pairs, orders);
            let mut left = Some(order);
            if sequence.len() == orders.keys(order).len() {
                let missing = (0..pairs.len()).filter(|pair| sequence.iter().all(|(own, _)| own != pair));
                let missing: Vec<usize> = missing.collect();
                let mut keys = orders.keys(order).to_vec();
                for pair in missing {
                    keys.extend(key(pairs[pair].0, false, orders));
                    sequence.push((pair, false));
                }
                left = orders.number(keys);
            }
            if sequence.len() < pairs.len() {
                return;
            }
            let right = along(&sequence, pairs.iter().map(|pair| pair.1), orders);
            if let (Some(left), Some(right)) = (left, right) {
                push(left, right, sequence.len());
            }
        }
    }
}

/// The sequences of pairs by which both sides may come in order. `sides`: orders that indexes of the left and of the right
/// side have their rows in; without a hash table what is written is one of them.
pub fn sequences<'k>(
    pairs: &[(OrderId, OrderId)],
    sides: (impl Iterator<Item = &'k [(Expr, bool)]>, impl Iterator<Item = &'k [(Expr, bool)]>),
    sorts: bool,
    orders: &Orders,
) -> Vec<Sequence> {
    if let [(left, right)] = pairs {
        // The usual case, without lists.
        let leads = |keys: &[(Expr, bool)], order: OrderId| {
            let own = orders.keys(order).first();
            keys.first().zip(own).is_some_and(|((expr, _), own)| own.expr.same(expr))
        };
        let (mut of_left, mut of_right) = sides;
        let both = of_left.any(|keys| leads(keys, *left)) && of_right.any(|keys| leads(keys, *right));
        return if both || sorts { vec![vec![(0, false)]] } else { Vec::new() };
    }
    if pairs.is_empty() {
        return Vec::new();
    }
    let own = |of: fn(&(OrderId, OrderId)) -> OrderId| pairs.iter().map(of).collect::<Vec<OrderId>>();
    let (left, right) = (own(|pair| pair.0), own(|pair| pair.1));
    let complete = |sequence: &Sequence| sequence.len() == pairs.len();
    let left: Vec<Sequence> = sides.0.map(|keys| indexed(keys, &left, orders)).filter(complete).collect();
    let mut found: Vec<Sequence> = Vec::new();
    for one in sides.1.map(|keys| indexed(keys, &right, orders)).filter(complete) {
        // An index is read backwards as well.
        let turned: Sequence = one.iter().map(|(pair, descending)| (*pair, !descending)).collect();
        if !found.contains(&one)
            && !found.contains(&turned)
            && (left.contains(&one) || left.contains(&turned))
        {
            found.push(if turned.first().is_some_and(|(_, descending)| *descending) { one } else { turned });
        }
    }
    if sorts && found.is_empty() {
        found.push((0..pairs.len()).map(|pair| (pair, false)).collect());
    }
    found
}

/// The pairs by which an index has the rows of a side in order. `own`: by pair, the ascending order by what it is on that
/// side.
fn indexed(keys: &[(Expr, bool)], own: &[OrderId], orders: &Orders) -> Sequence {
    let mut found = Sequence::new();
    for (expr, descending) in keys {
        let is = |order: &OrderId| orders.keys(*order).first().is_some_and(|key| key.expr.same(expr));
        match own.iter().position(is) {
            Some(pair) if found.iter().all(|(known, _)| *known != pair) => found.push((pair, *descending)),
            _ => break,
        }
    }
    found
}

/// The pairs that an order of the left side begins with.
fn leading(order: OrderId, pairs: &[(OrderId, OrderId)], orders: &Orders) -> Sequence {
    let mut sequence = Sequence::new();
    for wanted in orders.keys(order) {
        let is = |pair: &(OrderId, OrderId)| {
            orders.keys(pair.0).first().is_some_and(|own| own.expr.same(&wanted.expr))
        };
        match pairs.iter().position(is) {
            Some(pair) if sequence.iter().all(|(own, _)| *own != pair) => {
                sequence.push((pair, wanted.descending));
            }
            _ => break,
        }
    }
    sequence
}

/// The order of one side by a sequence of pairs. `sides`: by pair, the ascending order by what it is on this side.
fn along(
    sequence: &Sequence,
    sides: impl Iterator<Item = OrderId> + Clone,
    orders: &mut Orders,
) -> Option<OrderId> {
    if let [(pair, false)] = sequence[..] {
        return sides.clone().nth(pair);
    }
    let keys = sequence
        .iter()
        .map(|(pair, descending)| key(sides.clone().nth(*pair)?, *descending, orders))
        .collect::<Option<Vec<_>>>()?;
    orders.number(keys)
}

fn key(ascending: OrderId, descending: bool, orders: &Orders) -> Option<SortKey> {
    Some(natural(orders.keys(ascending).first()?.expr.clone(), descending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql_types::Type;

    fn column(index: usize, descending: bool) -> SortKey {
        natural(Expr::Column(index, Type::INT4), descending)
    }

    /// Columns 0 and 1 equal 10 and 11.
    fn sides(orders: &mut Orders) -> Sides {
        let mut sides = Sides::plain(100.0, 10.0);
        for at in [0, 1] {
            let mut one = |index| orders.number(vec![column(index, false)]).unwrap();
            sides.pairs.push((one(at), one(10 + at)));
        }
        sides
    }

    fn proposed(sides: &Sides, required: Required, orders: &mut Orders) -> Vec<String> {
        let mut proposals = Proposals::new();
        propose(sides, required, orders, &mut proposals);
        let text = |order: OrderId| {
            let keys = orders.keys(order).iter().map(|key| {
                let Expr::Column(index, _) = key.expr else { panic!("a column") };
                format!("{index}{}", if key.descending { "-" } else { "" })
            });
            keys.collect::<Vec<_>>().join(",")
        };
        let shown = |one: &Proposal| {
            let Method::Merge { left, right, keys } = one.method else { panic!("a merge join") };
            assert_eq!((one.left.order, one.right.unwrap().order), (left, right));
            format!("{} = {} by {keys}", text(left), text(right))
        };
        proposals.iter().map(shown).collect()
    }

    #[test]
    fn orders_that_both_sides_may_have_are_tried() {
        let mut orders = Orders::new();
        let mut sides = sides(&mut orders);
        sides.sequences = vec![vec![(1, true), (0, false)]];
        assert_eq!(proposed(&sides, Required::ALL, &mut orders), ["1-,0 = 11-,10 by 2"]);
        sides.sequences.clear();
        assert!(proposed(&sides, Required::ALL, &mut orders).is_empty());
    }

    #[test]
    fn indexes_of_both_sides_say_which_orders_these_are() {
        let mut orders = Orders::new();
        let pairs = sides(&mut orders).pairs;
        let key = |index: usize, descending| (Expr::Column(index, Type::INT4), descending);
        let found = |left: &[(Expr, bool)], right: &[(Expr, bool)], sorts| {
            sequences(&pairs, ([left].into_iter(), [right].into_iter()), sorts, &orders)
        };
        let (left, right) = ([key(1, false), key(0, true)], [key(11, false), key(10, true), key(12, true)]);
        assert_eq!(found(&left, &right, false), [vec![(1, false), (0, true)]]);
        let backwards = [key(11, true), key(10, false)];
        assert_eq!(found(&left, &backwards, false), [vec![(1, false), (0, true)]]);
        // The directions do not go together, a part is missing.
        assert!(found(&left, &[key(11, true), key(10, true)], false).is_empty());
        assert!(found(&left, &[key(11, false), key(12, true), key(10, true)], false).is_empty());
        assert_eq!(found(&left, &[], true), [vec![(0, false), (1, false)]]);
    }

    #[test]
    fn an_order_asked_for_is_taken_as_far_as_it_goes() {
        let mut orders = Orders::new();
        let mut sides = sides(&mut orders);
        let mut wanted = |keys: Vec<SortKey>| {
            let order = orders.number(keys).unwrap();
            sides.left_order = Some(order);
            proposed(&sides, Required::ALL.ordered(order), &mut orders)
        };
        assert_eq!(wanted(vec![column(1, true)]), ["1-,0 = 11-,10 by 2"]);
        let longer = vec![column(1, false), column(0, true), column(5, false)];
        assert_eq!(wanted(longer), ["1,0-,5 = 11,10- by 2"]);
        assert!(wanted(vec![column(1, false), column(5, false)]).is_empty());
        assert!(wanted(vec![column(5, false), column(1, false)]).is_empty());
        sides.left_order = None;
        assert!(proposed(&sides, Required::ALL, &mut orders).is_empty());
    }
}
