//! Whether the books of `orders` agree with each other.

use super::plan::DISTRICTS;
use crate::report::CheckReport;
use std::collections::BTreeMap;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, Error, Row};

/// What stands in the tables, in cents and pieces.
#[derive(Debug, Default, Clone)]
pub struct Books {
    /// Paid at each warehouse.
    pub warehouses: BTreeMap<i64, i64>,
    /// The number of each district's next order, and what was paid there.
    pub districts: BTreeMap<(i64, i64), (i64, i64)>,
    /// Numbers of each district's orders: how many there are, the largest, and the lines they should have.
    pub orders: BTreeMap<(i64, i64), (i64, i64, i64)>,
    /// The lines that each district's orders have.
    pub lines: BTreeMap<(i64, i64), i64>,
    /// Paid in each district, by the single payments.
    pub payments: BTreeMap<(i64, i64), i64>,
    /// What customers have paid, and how often.
    pub customers: (i64, i64),
    /// How many payments there are.
    pub payment_count: i64,
    /// Pieces that warehouses delivered.
    pub delivered: i64,
    /// Pieces ordered.
    pub ordered: i64,
}

fn cell<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Error> {
    row.try_get(column)
}

impl Books {
    /// Reads them, in one transaction of the caller.
    ///
    /// # Errors
    /// What the server says.
    pub async fn read(client: &Client) -> Result<Self, Error> {
        let mut books = Self::default();
        for row in client.query("SELECT w, paid FROM orders_warehouses", &[]).await? {
            books.warehouses.insert(cell(&row, 0)?, cell(&row, 1)?);
        }
        for row in client.query("SELECT w, d, next_order, paid FROM orders_districts", &[]).await? {
            books.districts.insert((cell(&row, 0)?, cell(&row, 1)?), (cell(&row, 2)?, cell(&row, 3)?));
        }
        let orders = "SELECT w, d, count(*), max(o), sum(lines)::bigint FROM orders_orders GROUP BY w, d";
        for row in client.query(orders, &[]).await? {
            let found = (cell(&row, 2)?, cell(&row, 3)?, cell(&row, 4)?);
            books.orders.insert((cell(&row, 0)?, cell(&row, 1)?), found);
        }
        let lines = "SELECT w, d, count(*), sum(quantity)::bigint FROM orders_lines GROUP BY w, d";
        for row in client.query(lines, &[]).await? {
            books.lines.insert((cell(&row, 0)?, cell(&row, 1)?), cell(&row, 2)?);
            books.ordered = books.ordered.wrapping_add(cell(&row, 3)?);
        }
        let payments = "SELECT w, d, sum(amount)::bigint, count(*) FROM orders_payments GROUP BY w, d";
        for row in client.query(payments, &[]).await? {
            books.payments.insert((cell(&row, 0)?, cell(&row, 1)?), cell(&row, 2)?);
            books.payment_count = books.payment_count.wrapping_add(cell(&row, 3)?);
        }
        let customers = "SELECT sum(paid)::bigint, sum(payments)::bigint FROM orders_customers";
        let row = client.query_one(customers, &[]).await?;
        let sum = |column| Ok(cell::<Option<i64>>(&row, column)?.unwrap_or_default());
        books.customers = (sum(0)?, sum(1)?);
        let row = client.query_one("SELECT sum(delivered)::bigint FROM orders_stock", &[]).await?;
        books.delivered = cell::<Option<i64>>(&row, 0)?.unwrap_or_default();
        Ok(books)
    }

    /// Compares them.
    pub fn compare(&self, warehouses: i64, report: &mut CheckReport) {
        let expected = warehouses.saturating_mul(DISTRICTS);
        if self.districts.len() as i64 != expected {
            report.problem(format_args!("{} districts instead of {expected}", self.districts.len()));
        }
        for (place @ (w, d), (next_order, paid)) in &self.districts {
            let (count, last, lines) = self.orders.get(place).copied().unwrap_or_default();
            if count != next_order - 1 || last != next_order - 1 {
                let wanted = next_order - 1;
                report.problem(format_args!(
                    "district {w}/{d} has {count} orders up to {last}, and numbered {wanted}"
                ));
            }
            let found = self.lines.get(place).copied().unwrap_or_default();
            if found != lines {
                report.problem(format_args!(
                    "orders of district {w}/{d} have {found} lines instead of {lines}"
                ));
            }
            let single = self.payments.get(place).copied().unwrap_or_default();
            if single != *paid {
                report
                    .problem(format_args!("district {w}/{d} was paid {paid}; single payments make {single}"));
            }
        }
        for (w, paid) in &self.warehouses {
            let of_districts: i64 =
                self.districts.iter().filter(|((of, _), _)| of == w).map(|(_, (_, paid))| paid).sum();
            if of_districts != *paid {
                report.problem(format_args!("warehouse {w} was paid {paid}, its districts {of_districts}"));
            }
        }
        self.compare_sums(report);
        report.fact("orders", self.orders.values().map(|(count, ..)| count).sum::<i64>());
        report.fact("lines", self.lines.values().sum::<i64>());
        report.fact("payments", self.payment_count);
    }

    fn compare_sums(&self, report: &mut CheckReport) {
        let paid: i64 = self.warehouses.values().sum();
        if self.customers != (paid, self.payment_count) {
            let (of_customers, times) = self.customers;
            let count = self.payment_count;
            report.problem(format_args!(
                "customers paid {of_customers} in {times} payments, warehouses got {paid} in {count}"
            ));
        }
        if self.delivered != self.ordered {
            let (delivered, ordered) = (self.delivered, self.ordered);
            report.problem(format_args!("{delivered} pieces were delivered and {ordered} ordered"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Books {
        let mut books = Books::default();
        books.warehouses.insert(1, 30);
        for d in 1..=DISTRICTS {
            books.districts.insert((1, d), (1, 0));
        }
        books.districts.insert((1, 1), (3, 30));
        books.orders.insert((1, 1), (2, 2, 12));
        books.lines.insert((1, 1), 12);
        books.payments.insert((1, 1), 30);
        (books.customers, books.payment_count, books.delivered, books.ordered) = ((30, 2), 2, 50, 50);
        books
    }

    fn problems(books: &Books) -> bool {
        let mut report = CheckReport::new("orders");
        books.compare(1, &mut report);
        !report.ok()
    }

    #[test]
    fn books_that_agree_are_fine_and_others_are_not() {
        assert!(!problems(&good()));
        let wrong: [fn(&mut Books); 8] = [
            |books| _ = books.districts.remove(&(1, 7)),
            |books| books.districts.get_mut(&(1, 2)).unwrap().0 += 1,
            |books| books.orders.get_mut(&(1, 1)).unwrap().0 -= 1,
            |books| *books.lines.get_mut(&(1, 1)).unwrap() += 1,
            |books| *books.payments.get_mut(&(1, 1)).unwrap() += 1,
            |books| *books.warehouses.get_mut(&1).unwrap() += 1,
            |books| books.customers.1 += 1,
            |books| books.delivered += 1,
        ];
        for (number, change) in wrong.iter().enumerate() {
            let mut books = good();
            change(&mut books);
            assert!(problems(&books), "{number}");
        }
    }
}
