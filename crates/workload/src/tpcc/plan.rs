//! What a terminal of TPC-C asks for next, by chance (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 and 5.2). Pure.

use super::random::Random;
use rand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;
/// An item that there is not.
pub const NO_ITEM: i32 = -1;

/// Of a hundred new orders, so many name an item that there is not.
const WRONG_ITEMS: i32 = 1;
/// Of a hundred lines, so many are delivered by another warehouse.
const REMOTE_LINES: i32 = 1;
/// Of a hundred payments, so many are of a customer of another warehouse.
const REMOTE_PAYMENTS: i32 = 15;
/// Of a hundred customers, so many are looked up by their last name.
const BY_NAME: i32 = 60;

/// Which customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The one of this number.
    Number(i32),
    /// The one in the middle of those with this last name, by first name.
    LastName(String),
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customer {
    /// Its warehouse.
    pub warehouse: i32,
    /// Its district.
    pub district: i32,
    /// Which of the district's.
    pub who: Who,
}

/// A line of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// What is ordered.
    pub item: i32,
    /// The warehouse that delivers it.
    pub supplier: i32,
    /// How many.
    pub quantity: i32,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// A customer orders something.
    NewOrder {
        /// District of the customer.
        district: i32,
        /// Number of the customer.
        customer: i32,
        /// What, in the order of warehouses and items, each once; an item that there is not comes last.
        lines: Vec<Line>,
    },
    /// A customer pays.
    Payment {
        /// The district where it is paid.
        district: i32,
        /// Who pays.
        customer: Customer,
        /// Cents.
        amount: i64,
    },
    /// A customer asks for the last order.
    OrderStatus {
        /// Who asks.
        customer: Customer,
    },
    /// The oldest order of each district is delivered.
    Delivery {
        /// Who carries it.
        carrier: i32,
    },
    /// How many of the items sold last are nearly gone.
    StockLevel {
        /// From which quantity on they are not.
        threshold: i32,
    },
}

impl Plan {
    /// What reports call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NewOrder { .. } => "new-order",
            Self::Payment { .. } => "payment",
            Self::OrderStatus { .. } => "order-status",
            Self::Delivery { .. } => "delivery",
            Self::StockLevel { .. } => "stock-level",
        }
    }

    /// Seconds that its keys take, and the mean of those that its user thinks afterwards (clause 5.2.5.7).
    fn pace(&self) -> (f64, f64) {
        match self {
            Self::NewOrder { .. } => (18.0, 12.0),
            Self::Payment { .. } => (3.0, 12.0),
            Self::OrderStatus { .. } => (2.0, 10.0),
            Self::Delivery { .. } | Self::StockLevel { .. } => (2.0, 5.0),
        }
    }
}

/// Chooses transactions.
#[derive(Debug)]
pub struct Chooser {
    warehouses: i32,
    /// The terminal's warehouse.
    pub home: i32,
    /// The terminal's district.
    pub district: i32,
    random: Random,
}

impl Chooser {
    /// Of a terminal, which belongs to one of the warehouses and to one of its districts.
    pub fn new(warehouses: i32, number: u32, random: Random) -> Self {
        let (warehouses, number) = (warehouses.max(1), i32::try_from(number).unwrap_or(i32::MAX));
        let (home, district) = (number % warehouses + 1, number / warehouses % DISTRICTS + 1);
        Self { warehouses, home, district, random }
    }

    /// The next transaction.
    pub fn plan(&mut self) -> Plan {
        // The least shares that clause 5.2.3 allows, and what is left.
        match self.random.within(1, 100) {
            1..=45 => self.new_order(),
            46..=88 => self.payment(),
            89..=92 => Plan::OrderStatus { customer: self.customer(self.home, None) },
            93..=96 => Plan::Delivery { carrier: self.random.within(1, 10) },
            _ => Plan::StockLevel { threshold: self.random.within(10, 20) },
        }
    }

    /// How long the keys of a transaction take, and how long its user thinks afterwards.
    pub fn times(&mut self, plan: &Plan) -> (Duration, Duration) {
        let (keying, mean) = plan.pace();
        // Exponentially distributed, and at most ten times the mean (clause 5.2.5.4).
        let thinking = -f64::ln(1.0 - self.random.0.random::<f64>()) * mean;
        (Duration::from_secs_f64(keying), Duration::from_secs_f64(thinking.min(10.0 * mean)))
    }

    fn new_order(&mut self) -> Plan {
        let (district, customer) = (self.random.within(1, DISTRICTS), self.random.customer());
        let mut lines = BTreeMap::new();
        let count = self.random.within(5, 15);
        while (lines.len() as i32) < count {
            let supplier = if self.random.percent(REMOTE_LINES) { self.other() } else { self.home };
            lines.insert((supplier, self.random.item()), self.random.within(1, 10));
        }
        // Sorted, so that two orders never wait for each other.
        let line = |((supplier, item), quantity)| Line { item, supplier, quantity };
        let mut lines: Vec<Line> = lines.into_iter().map(line).collect();
        if self.random.percent(WRONG_ITEMS)
            && let Some(last) = lines.last_mut()
        {
            last.item = NO_ITEM;
        }
        Plan::NewOrder { district, customer, lines }
    }

    fn payment(&mut self) -> Plan {
        let district = self.random.within(1, DISTRICTS);
        let amount = i64::from(self.random.within(100, 500_000));
        let customer = if self.warehouses > 1 && self.random.percent(REMOTE_PAYMENTS) {
            let other = self.other();
            self.customer(other, None)
        } else {
            self.customer(self.home, Some(district))
        };
        Plan::Payment { district, customer, amount }
    }

    /// A customer of a warehouse, of any district if none is given.
    fn customer(&mut self, warehouse: i32, district: Option<i32>) -> Customer {
        let district = district.unwrap_or_else(|| self.random.within(1, DISTRICTS));
        let who = if self.random.percent(BY_NAME) {
            Who::LastName(self.random.last_name())
        } else {
            Who::Number(self.random.customer())
        };
        Customer { warehouse, district, who }
    }

    /// Another warehouse than the terminal's own, if there is one.
    fn other(&mut self) -> i32 {
        if self.warehouses == 1 {
            return self.home;
        }
        (self.home - 1 + self.random.within(1, self.warehouses - 1)) % self.warehouses + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::random::{CUSTOMERS, ITEMS};
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn chooser(warehouses: i32, number: u32) -> Chooser {
        Chooser::new(warehouses, number, Random(StdRng::seed_from_u64(1)))
    }

    #[test]
    fn shares_are_those_of_the_specification() {
        const TRANSACTIONS: usize = 100_000;
        let mut chooser = chooser(3, 4);
        let (mut kinds, mut wrong, mut lines_of, mut remote_lines) = (BTreeMap::new(), 0, 0, 0);
        let (mut remote, mut named) = (0, 0);
        for _ in 0..TRANSACTIONS {
            let plan = chooser.plan();
            *kinds.entry(plan.name()).or_insert(0) += 1;
            match plan {
                Plan::NewOrder { customer, lines, .. } => {
                    assert!((1..=CUSTOMERS).contains(&customer) && (5..=15).contains(&lines.len()));
                    let (last, others) = lines.split_last().unwrap();
                    assert!(others.iter().all(|line| (1..=ITEMS).contains(&line.item)));
                    assert!(others.is_sorted_by_key(|line| (line.supplier, line.item)));
                    wrong += usize::from(last.item == NO_ITEM);
                    lines_of += lines.len();
                    remote_lines += lines.iter().filter(|line| line.supplier != 2).count();
                }
                Plan::Payment { district, customer, amount } => {
                    assert!((100..=500_000).contains(&amount));
                    let is_remote = customer.warehouse != 2;
                    assert!(is_remote || customer.district == district);
                    remote += usize::from(is_remote);
                    named += usize::from(matches!(customer.who, Who::LastName(_)));
                }
                _ => {}
            }
        }
        let percent = |part: usize, of: usize| part as f64 * 100.0 / of as f64;
        let of = |name: &str| *kinds.get(name).unwrap();
        for (found, wanted) in [
            (percent(of("new-order"), TRANSACTIONS), 45.0),
            (percent(of("payment"), TRANSACTIONS), 43.0),
            (percent(of("order-status"), TRANSACTIONS), 4.0),
            (percent(of("delivery"), TRANSACTIONS), 4.0),
            (percent(of("stock-level"), TRANSACTIONS), 4.0),
            (percent(wrong, of("new-order")), 1.0),
            (percent(remote_lines, lines_of), 1.0),
            (percent(remote, of("payment")), 15.0),
            (percent(named, of("payment")), 60.0),
        ] {
            assert!((found - wanted).abs() < wanted * 0.15, "{found} instead of {wanted}");
        }
    }

    #[test]
    fn terminals_are_spread_over_warehouses_and_districts() {
        for (number, home, district) in [(0, 1, 1), (4, 2, 2), (5, 3, 2), (30, 1, 1)] {
            let chooser = chooser(3, number);
            assert_eq!((chooser.home, chooser.district), (home, district), "{number}");
        }
        let mut alone = chooser(1, 7);
        assert!((0..1000).all(|_| match alone.plan() {
            Plan::NewOrder { lines, .. } => lines.iter().all(|line| line.supplier == 1),
            Plan::Payment { customer, .. } => customer.warehouse == 1,
            _ => true,
        }));
    }

    #[test]
    fn users_think_as_long_as_they_should_on_average() {
        let mut chooser = chooser(1, 0);
        let plan = Plan::StockLevel { threshold: 10 };
        let thinking: f64 = (0..10_000).map(|_| chooser.times(&plan).1.as_secs_f64()).sum();
        assert!((thinking / 10_000.0 - 5.0).abs() < 0.25, "{thinking}");
    }
}
