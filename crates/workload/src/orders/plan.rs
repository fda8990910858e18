//! What a worker of `orders` does next, by chance, with the shares of TPC-C. Pure.

use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Districts of a warehouse.
pub const DISTRICTS: i64 = 10;
/// Customers of a district.
pub const CUSTOMERS: i64 = 300;
/// Items, each of which every warehouse has in stock.
pub const ITEMS: i64 = 1_000;

/// Of a hundred transactions, so many are new orders: 45 to 43 in TPC-C.
const NEW_ORDERS: u32 = 51;
/// Of a hundred new orders, so many are taken back at their end.
const TAKEN_BACK: u32 = 1;
/// Of a hundred lines, so many are delivered by another warehouse.
const REMOTE_LINES: u32 = 1;
/// Of a hundred payments, so many are of a customer of another warehouse.
const REMOTE_PAYMENTS: u32 = 15;
/// Cents of the largest payment.
const LARGEST_PAYMENT: i64 = 500_000;

/// A customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Customer {
    /// Its warehouse.
    pub warehouse: i64,
    /// Its district.
    pub district: i64,
    /// Its number there.
    pub number: i64,
}

/// A line of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// What is ordered.
    pub item: i64,
    /// The warehouse that delivers it.
    pub supplier: i64,
    /// How many.
    pub quantity: i64,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// A customer orders something.
    NewOrder {
        /// Who.
        customer: Customer,
        /// What, in the order of items and warehouses, each once.
        lines: Vec<Line>,
        /// Whether it is rolled back at its end.
        taken_back: bool,
    },
    /// A customer pays.
    Payment {
        /// Its number, chosen by the client.
        id: Uuid,
        /// The warehouse and the district where it is paid.
        at: (i64, i64),
        /// Who pays.
        customer: Customer,
        /// Cents.
        amount: i64,
    },
}

/// Chooses transactions.
#[derive(Debug)]
pub struct Chooser {
    warehouses: i64,
    home: i64,
    random: StdRng,
}

impl Chooser {
    /// Of a worker, which belongs to one of the warehouses.
    pub fn new(warehouses: i64, number: u32, random: StdRng) -> Self {
        let warehouses = warehouses.max(1);
        Self { warehouses, home: i64::from(number) % warehouses + 1, random }
    }

    /// The next transaction.
    pub fn plan(&mut self) -> Plan {
        if self.percent(NEW_ORDERS) {
            let lines = self.lines();
            return Plan::NewOrder {
                customer: self.customer(self.home),
                lines,
                taken_back: self.percent(TAKEN_BACK),
            };
        }
        let warehouse = if self.percent(REMOTE_PAYMENTS) { self.other() } else { self.home };
        Plan::Payment {
            id: Uuid::from_u128(self.random.random()),
            at: (self.home, self.random.random_range(1..=DISTRICTS)),
            customer: self.customer(warehouse),
            amount: self.random.random_range(100..=LARGEST_PAYMENT),
        }
    }

    /// Sorted, so that two orders never wait for each other.
    fn lines(&mut self) -> Vec<Line> {
        let mut lines = BTreeMap::new();
        for _ in 0..self.random.random_range(5..=15) {
            let supplier = if self.percent(REMOTE_LINES) { self.other() } else { self.home };
            let item = self.random.random_range(1..=ITEMS);
            lines.insert((supplier, item), self.random.random_range(1..=10));
        }
        lines.into_iter().map(|((supplier, item), quantity)| Line { item, supplier, quantity }).collect()
    }

    fn customer(&mut self, warehouse: i64) -> Customer {
        let district = self.random.random_range(1..=DISTRICTS);
        Customer { warehouse, district, number: self.random.random_range(1..=CUSTOMERS) }
    }

    /// Another warehouse than the worker's own, if there is one.
    fn other(&mut self) -> i64 {
        if self.warehouses == 1 {
            return self.home;
        }
        (self.home - 1 + self.random.random_range(1..self.warehouses)) % self.warehouses + 1
    }

    fn percent(&mut self, share: u32) -> bool {
        self.random.random_range(0..100) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn plans_are_of_what_there_is() {
        let mut chooser = Chooser::new(3, 4, StdRng::seed_from_u64(1));
        let (mut orders, mut back, mut remote) = (0, 0, 0);
        for _ in 0..10_000 {
            match chooser.plan() {
                Plan::NewOrder { customer, lines, taken_back } => {
                    assert_eq!(customer.warehouse, 2);
                    assert!((1..=15).contains(&lines.len()));
                    assert!(lines.is_sorted_by_key(|line| (line.supplier, line.item)));
                    assert!(lines.iter().all(|line| (1..=3).contains(&line.supplier)
                        && (1..=ITEMS).contains(&line.item)
                        && (1..=10).contains(&line.quantity)));
                    (orders, back) = (orders + 1, back + usize::from(taken_back));
                }
                Plan::Payment { at, customer, amount, .. } => {
                    assert!(at.0 == 2 && (1..=DISTRICTS).contains(&at.1) && amount > 0);
                    assert!((1..=CUSTOMERS).contains(&customer.number));
                    remote += usize::from(customer.warehouse != 2);
                }
            }
        }
        assert!((4900..5300).contains(&orders) && (20..90).contains(&back) && (600..850).contains(&remote));
    }

    #[test]
    fn the_only_warehouse_has_no_other() {
        let mut chooser = Chooser::new(1, 7, StdRng::seed_from_u64(2));
        assert!((0..1000).all(|_| match chooser.plan() {
            Plan::NewOrder { lines, .. } => lines.iter().all(|line| line.supplier == 1),
            Plan::Payment { customer, .. } => customer.warehouse == 1,
        }));
    }
}
