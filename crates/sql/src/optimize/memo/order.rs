//! Orders of rows, and the other physical properties that are asked of a group.

use crate::plan::{Expr, SortKey};
use sql_types::Type;

/// A key of an order as an index has it read forwards: NULLs last, and first where it is descending.
pub fn natural(expr: Expr, descending: bool) -> SortKey {
    SortKey { expr, descending, nulls_first: descending }
}

fn same(a: &SortKey, b: &SortKey) -> bool {
    a.descending == b.descending && a.nulls_first == b.nulls_first && a.expr.same(&b.expr)
}

/// An order among those of a memo.
pub type OrderId = u16;

/// Any order will do.
pub const ANY: OrderId = 0;

/// Most orders of a memo: what asks for further ones is not proposed.
const MOST_ORDERS: usize = 512;

/// What a group is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Required {
    /// The order of its rows.
    pub order: OrderId,
    /// The share of its rows that will be read: less than 1 below a limit.
    pub share: f64,
    /// Whether a limit cuts just these rows, so that a sort can forget the others.
    pub cut: bool,
}

impl Required {
    /// All rows in any order.
    pub const ALL: Required = Required { order: ANY, share: 1.0, cut: false };

    /// The same share of rows in any order.
    pub fn unordered(self) -> Self {
        Required { order: ANY, share: self.share, cut: false }
    }

    /// The same share of rows in an order.
    pub fn ordered(self, order: OrderId) -> Self {
        Required { order, share: self.share, cut: false }
    }
}

/// The orders of a memo.
#[derive(Debug)]
pub struct Orders {
    known: Vec<Vec<SortKey>>,
}

impl Orders {
    /// None but [`ANY`].
    pub fn new() -> Self {
        Orders { known: vec![Vec::new()] }
    }

    /// The number of an order; `None` if there are too many.
    pub fn number(&mut self, mut keys: Vec<SortKey>) -> Option<OrderId> {
        for key in &mut keys {
            strip(&mut key.expr);
        }
        let known = |known: &Vec<SortKey>| {
            known.len() == keys.len() && known.iter().zip(&keys).all(|(a, b)| same(a, b))
        };
        let found = self.known.iter().position(known).unwrap_or_else(|| {
            self.known.push(keys);
            self.known.len() - 1
        });
        if self.known.len() > MOST_ORDERS {
            self.known.pop();
            return None;
        }
        OrderId::try_from(found).ok()
    }

    /// The keys of an order.
    pub fn keys(&self, order: OrderId) -> &[SortKey] {
        self.known.get(usize::from(order)).map_or(&[], Vec::as_slice)
    }

    /// Whether rows in an order are in another one, too, whose keys are the first of its.
    pub fn gives(&self, order: OrderId, wanted: OrderId) -> bool {
        let (order, wanted) = (self.keys(order), self.keys(wanted));
        order.len() >= wanted.len() && order.iter().zip(wanted).all(|(a, b)| same(a, b))
    }

    /// An order over other columns; `None` if it reads one that there is not.
    pub fn moved(&mut self, order: OrderId, mut to: impl FnMut(usize) -> Option<usize>) -> Option<OrderId> {
        if order == ANY {
            return Some(ANY);
        }
        let mut known = true;
        let mut keys = self.keys(order).to_vec();
        for key in &mut keys {
            key.expr.replace(&mut |part| match part {
                Expr::Column(index, ty) => {
                    let moved = to(*index);
                    known &= moved.is_some();
                    Some(Expr::Column(moved.unwrap_or(*index), *ty))
                }
                _ => None,
            });
        }
        known.then(|| self.number(keys)).flatten()
    }
}

/// Takes off casts that do not change the order.
pub fn strip(expr: &mut Expr) {
    while let Expr::Cast { expr: inner, to, .. } = expr
        && to.typmod == -1
        && keeps_order(inner.ty(), to.ty)
    {
        *expr = std::mem::replace(inner, Expr::Param(0, Type::BOOL));
    }
}

fn keeps_order(from: Type, to: Type) -> bool {
    matches!(
        (from, to),
        (Type::VARCHAR, Type::TEXT) | (Type::INT2, Type::INT4 | Type::INT8) | (Type::INT4, Type::INT8)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(column: usize) -> SortKey {
        natural(Expr::Column(column, Type::INT4), false)
    }

    #[test]
    fn an_order_gives_those_that_it_begins_with() {
        let mut orders = Orders::new();
        let long = orders.number(vec![key(1), key(2)]).unwrap();
        let short = orders.number(vec![key(1)]).unwrap();
        let other = orders.number(vec![natural(Expr::Column(1, Type::INT4), true)]).unwrap();
        assert!(orders.gives(long, short) && orders.gives(long, ANY) && orders.gives(long, long));
        assert!(!orders.gives(short, long) && !orders.gives(long, other));
        assert_eq!(orders.number(vec![key(1)]), Some(short));
    }

    #[test]
    fn an_order_moves_with_its_columns() {
        let mut orders = Orders::new();
        let order = orders.number(vec![key(3), key(4)]).unwrap();
        let moved = orders.moved(order, |column| column.checked_sub(2)).unwrap();
        assert!(matches!(orders.keys(moved)[0].expr, Expr::Column(1, _)));
        assert_eq!(orders.moved(order, |column| column.checked_sub(4)), None);
    }

    #[test]
    fn widening_casts_are_no_other_order() {
        let mut orders = Orders::new();
        let wide = |from: Type, to: Type| {
            let expr = Box::new(Expr::Column(1, from));
            natural(Expr::Cast { expr, to: to.into(), explicit: false }, false)
        };
        let plain = orders.number(vec![key(1)]).unwrap();
        assert_eq!(orders.number(vec![wide(Type::INT4, Type::INT8)]), Some(plain));
        assert_ne!(orders.number(vec![wide(Type::INT4, Type::TEXT)]), Some(plain));
    }

    #[test]
    fn orders_are_bounded() {
        let mut orders = Orders::new();
        let numbers: Vec<_> = (0..1000).map(|column| orders.number(vec![key(column)])).collect();
        assert_eq!(numbers.iter().flatten().count(), MOST_ORDERS - 1);
    }
}
