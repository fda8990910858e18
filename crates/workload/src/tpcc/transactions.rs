//! The five transactions of TPC-C (clauses 2.4 to 2.8).
//!
//! Statements that need nothing of each other are sent together, and the lines of an order are read and written as one, as
//! a terminal's program would.

use super::plan::{Customer, DISTRICTS, Line, Who};
use super::statements::Statements;
use futures::future::{try_join, try_join_all};
use std::collections::HashMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Transaction};

/// A parameter of a statement.
type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The last name of nobody: a customer that a name finds none of.
#[derive(Debug, PartialEq, Eq)]
pub struct Nobody;

/// What a transaction works with.
pub struct Terminal<'a> {
    /// The transaction, which the caller ends.
    pub transaction: &'a Transaction<'a>,
    /// Prepared on its connection.
    pub statements: &'a Statements,
    /// The terminal's warehouse.
    pub warehouse: i32,
}

impl Terminal<'_> {
    /// New-Order. False: one of the items does not exist, and the transaction is to be rolled back.
    pub async fn new_order(&self, district: i32, customer: i32, lines: &[Line]) -> Result<bool, Error> {
        let (w, statements, count) = (self.warehouse, self.statements, lines.len() as i32);
        let local = i32::from(lines.iter().all(|line| line.supplier == w));
        let of_customer: [Parameter<'_>; 3] = [&w, &district, &customer];
        let (who, next) = try_join(
            self.transaction.query_one(&statements.order_customer, &of_customer),
            self.transaction.query_one(&statements.next_order, &[&w, &district]),
        )
        .await?;
        let order: i32 = next.try_get(0)?;
        try_join(
            self.transaction.execute(&statements.order, &[&order, &district, &w, &customer, &count, &local]),
            self.transaction.execute(&statements.new_order, &[&order, &district, &w]),
        )
        .await?;
        let prices = self.prices(lines).await?;
        let there: Vec<(&Line, i64)> =
            lines.iter().filter_map(|line| Some((line, *prices.get(&line.item)?))).collect();
        let mut taken = Vec::with_capacity(there.len());
        for (line, _) in &there {
            taken.push(self.take(line, district));
        }
        let places = try_join_all(taken).await?;
        let amounts: Vec<i64> = there.iter().map(|(line, price)| price * i64::from(line.quantity)).collect();
        self.new_lines((order, district), &there, &amounts, &places).await?;
        let _ = self.to_pay(amounts.iter().sum(), &who, &next)?;
        Ok(there.len() == lines.len())
    }

    /// What the customer sees: the total with taxes and less the discount, in cents.
    fn to_pay(&self, total: i64, who: &Row, next: &Row) -> Result<i64, Error> {
        let (discount, of_warehouse, of_district): (i32, i32, i32) =
            (who.try_get(2)?, who.try_get(3)?, next.try_get(1)?);
        let taxed = total * i64::from(10_000 + of_warehouse + of_district) / 10_000;
        Ok(taxed * i64::from(10_000 - discount) / 10_000)
    }

    /// The prices of the items that there are.
    async fn prices(&self, lines: &[Line]) -> Result<HashMap<i32, i64>, Error> {
        let items: Vec<i32> = lines.iter().map(|line| line.item).collect();
        let rows = self.transaction.query(&self.statements.items, &[&items]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Takes a line out of stock; what the supplier writes down for the district.
    async fn take(&self, line: &Line, district: i32) -> Result<String, Error> {
        let remote = i32::from(line.supplier != self.warehouse);
        let parameters: [Parameter<'_>; 4] = [&line.supplier, &line.item, &line.quantity, &remote];
        let row = self.transaction.query_one(&self.statements.stock, &parameters).await?;
        // Quantity and data come before the ten districts.
        row.try_get(district as usize + 1)
    }

    async fn new_lines(
        &self,
        (order, district): (i32, i32),
        lines: &[(&Line, i64)],
        amounts: &[i64],
        places: &[String],
    ) -> Result<u64, Error> {
        let numbers: Vec<i32> = (1..).take(lines.len()).collect();
        let column = |of: fn(&Line) -> i32| lines.iter().map(|(line, _)| of(line)).collect::<Vec<i32>>();
        let (items, suppliers) = (column(|line| line.item), column(|line| line.supplier));
        let quantities = column(|line| line.quantity);
        let parameters: [Parameter<'_>; 9] = [
            &order,
            &district,
            &self.warehouse,
            &numbers,
            &items,
            &suppliers,
            &quantities,
            &amounts,
            &places,
        ];
        self.transaction.execute(&self.statements.new_lines, &parameters).await
    }

    /// Payment.
    pub async fn payment(
        &self,
        district: i32,
        customer: &Customer,
        amount: i64,
    ) -> Result<Result<(), Nobody>, Error> {
        let (w, statements) = (self.warehouse, self.statements);
        let Some(number) = self.number_of(customer).await? else { return Ok(Err(Nobody)) };
        let Customer { warehouse: home, district: part, .. } = customer;
        let payer: [Parameter<'_>; 4] = [home, part, &number, &amount];
        let row = self.transaction.query_one(&statements.pay_customer, &payer).await?;
        if row.try_get::<_, &str>(10)? == "BC" {
            let note = format!("{number} {part} {home} {district} {w} {}|", dollars(amount));
            self.transaction.query_one(&statements.bad_credit, &[home, part, &number, &note]).await?;
        }
        // What everybody wants comes last, and is kept for the shortest time.
        let (of_district, of_warehouse) = try_join(
            self.transaction.query_one(&statements.pay_district, &[&w, &district, &amount]),
            self.transaction.query_one(&statements.pay_warehouse, &[&w, &amount]),
        )
        .await?;
        let note =
            format!("{}    {}", of_warehouse.try_get::<_, &str>(0)?, of_district.try_get::<_, &str>(0)?);
        self.transaction
            .execute(&statements.history, &[&number, part, home, &district, &w, &amount, &note])
            .await?;
        Ok(Ok(()))
    }

    /// Order-Status.
    pub async fn order_status(&self, customer: &Customer) -> Result<Result<(), Nobody>, Error> {
        let Some(number) = self.number_of(customer).await? else { return Ok(Err(Nobody)) };
        let Customer { warehouse, district, .. } = customer;
        let of_customer: [Parameter<'_>; 3] = [warehouse, district, &number];
        let (_, last) = try_join(
            self.transaction.query_one(&self.statements.customer, &of_customer),
            self.transaction.query_opt(&self.statements.last_order, &of_customer),
        )
        .await?;
        if let Some(last) = last {
            let order: i32 = last.try_get(0)?;
            self.transaction.query(&self.statements.lines, &[warehouse, district, &order]).await?;
        }
        Ok(Ok(()))
    }

    /// Delivery, of all districts at once; in how many there was nothing to deliver.
    pub async fn delivery(&self, carrier: i32) -> Result<u64, Error> {
        let mut skipped = 0;
        for district in 1..=DISTRICTS {
            skipped += u64::from(!self.deliver(district, carrier).await?);
        }
        Ok(skipped)
    }

    async fn deliver(&self, district: i32, carrier: i32) -> Result<bool, Error> {
        let (w, statements) = (self.warehouse, self.statements);
        let Some(row) = self.transaction.query_opt(&statements.oldest, &[&w, &district]).await? else {
            return Ok(false);
        };
        let order: i32 = row.try_get(0)?;
        let of_order: [Parameter<'_>; 3] = [&w, &district, &order];
        let ((_, carried), lines) = try_join(
            try_join(
                self.transaction.execute(&statements.not_new, &of_order),
                self.transaction.query_one(&statements.carry, &[&w, &district, &order, &carrier]),
            ),
            self.transaction.query(&statements.deliver, &of_order),
        )
        .await?;
        let amounts = lines.iter().map(|line| line.try_get::<_, i64>(0));
        let total: i64 = amounts.sum::<Result<_, _>>()?;
        let customer: i32 = carried.try_get(0)?;
        self.transaction.execute(&statements.owe, &[&w, &district, &customer, &total]).await?;
        Ok(true)
    }

    /// Stock-Level.
    pub async fn stock_level(&self, district: i32, threshold: i32) -> Result<i64, Error> {
        let next =
            self.transaction.query_one(&self.statements.upcoming, &[&self.warehouse, &district]).await?;
        let next: i32 = next.try_get(0)?;
        let parameters: [Parameter<'_>; 4] = [&self.warehouse, &district, &next, &threshold];
        self.transaction.query_one(&self.statements.low_stock, &parameters).await?.try_get(0)
    }

    /// The number of a customer; none if nobody has that name.
    async fn number_of(&self, customer: &Customer) -> Result<Option<i32>, Error> {
        let name = match &customer.who {
            Who::Number(number) => return Ok(Some(*number)),
            Who::LastName(name) => name,
        };
        let parameters: [Parameter<'_>; 3] = [&customer.warehouse, &customer.district, name];
        let found = self.transaction.query(&self.statements.by_name, &parameters).await?;
        // The one in the middle; of an even number the first of the two.
        let middle = found.len().saturating_sub(1) / 2;
        found.get(middle).map(|row| row.try_get(0)).transpose()
    }
}

/// An amount of cents.
fn dollars(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
