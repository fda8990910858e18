//! What one connection of `orders` does.

use super::Counts;
use super::plan::{Chooser, Customer, Line, Plan};
use crate::Worker;
use crate::errors::Failure;
use crate::isolation::Level;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio_postgres::{Client, Error, Statement, Transaction};
use uuid::Uuid;

struct Statements {
    tax: Statement,
    customer: Statement,
    next_order: Statement,
    order: Statement,
    price: Statement,
    deliver: Statement,
    line: Statement,
    pay_warehouse: Statement,
    pay_district: Statement,
    pay_customer: Statement,
    payment: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            tax: client.prepare("SELECT tax FROM orders_warehouses WHERE w = $1").await?,
            customer: client
                .prepare("SELECT discount FROM orders_customers WHERE w = $1 AND d = $2 AND c = $3")
                .await?,
            next_order: client
                .prepare(
                    "UPDATE orders_districts SET next_order = next_order + 1 WHERE w = $1 AND d = $2 \
                     RETURNING next_order - 1",
                )
                .await?,
            order: client
                .prepare("INSERT INTO orders_orders (w, d, o, c, lines) VALUES ($1, $2, $3, $4, $5)")
                .await?,
            price: client.prepare("SELECT price FROM orders_items WHERE i = $1").await?,
            deliver: client
                .prepare(
                    "UPDATE orders_stock SET delivered = delivered + $3, quantity = CASE \
                     WHEN quantity >= $3 + 10 THEN quantity - $3 ELSE quantity - $3 + 91 END \
                     WHERE w = $1 AND i = $2",
                )
                .await?,
            line: client
                .prepare(
                    "INSERT INTO orders_lines (w, d, o, line, i, supplier, quantity, amount) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                )
                .await?,
            pay_warehouse: client
                .prepare("UPDATE orders_warehouses SET paid = paid + $2 WHERE w = $1")
                .await?,
            pay_district: client
                .prepare("UPDATE orders_districts SET paid = paid + $3 WHERE w = $1 AND d = $2")
                .await?,
            pay_customer: client
                .prepare(
                    "UPDATE orders_customers SET paid = paid + $4, payments = payments + 1 \
                     WHERE w = $1 AND d = $2 AND c = $3",
                )
                .await?,
            payment: client
                .prepare("INSERT INTO orders_payments (id, w, d, amount) VALUES ($1, $2, $3, $4)")
                .await?,
        })
    }
}

/// The worker.
pub struct OrdersWorker {
    chooser: Chooser,
    isolation: Option<Level>,
    counts: Arc<Counts>,
    statements: Option<Arc<Statements>>,
    /// What was undone is done again: else what conflicts little would be done more often than it should.
    undone: Option<Plan>,
}

impl OrdersWorker {
    /// The worker of one connection.
    pub fn new(chooser: Chooser, isolation: Option<Level>, counts: Arc<Counts>) -> Self {
        Self { chooser, isolation, counts, statements: None, undone: None }
    }

    async fn carry_out(
        &self,
        client: &mut Client,
        statements: &Statements,
        plan: &Plan,
    ) -> Result<&'static str, Failure> {
        let transaction = client.transaction().await?;
        let kind = match plan {
            Plan::NewOrder { customer, lines, taken_back } => {
                new_order(&transaction, statements, *customer, lines).await?;
                if *taken_back {
                    transaction.rollback().await?;
                    self.counts.taken_back.fetch_add(1, Ordering::Relaxed);
                    return Ok("new-order");
                }
                "new-order"
            }
            Plan::Payment { id, at, customer, amount } => {
                payment(&transaction, statements, (*id, *at, *customer, *amount)).await?;
                "payment"
            }
        };
        transaction.commit().await.map_err(Failure::of_commit)?;
        self.counts.committed.fetch_add(1, Ordering::Relaxed);
        Ok(kind)
    }
}

async fn new_order(
    transaction: &Transaction<'_>,
    statements: &Statements,
    customer: Customer,
    lines: &[Line],
) -> Result<(), Error> {
    let Customer { warehouse, district, number } = customer;
    transaction.query_opt(&statements.tax, &[&warehouse]).await?;
    transaction.query_opt(&statements.customer, &[&warehouse, &district, &number]).await?;
    let row = transaction.query_one(&statements.next_order, &[&warehouse, &district]).await?;
    let order: i64 = row.try_get(0)?;
    let count = lines.len() as i64;
    transaction.execute(&statements.order, &[&warehouse, &district, &order, &number, &count]).await?;
    for (line, Line { item, supplier, quantity }) in (1i64..).zip(lines) {
        let price: i64 = transaction.query_one(&statements.price, &[item]).await?.try_get(0)?;
        transaction.execute(&statements.deliver, &[supplier, item, quantity]).await?;
        let amount = quantity.saturating_mul(price);
        transaction
            .execute(
                &statements.line,
                &[&warehouse, &district, &order, &line, item, supplier, quantity, &amount],
            )
            .await?;
    }
    Ok(())
}

async fn payment(
    transaction: &Transaction<'_>,
    statements: &Statements,
    (id, (warehouse, district), customer, amount): (Uuid, (i64, i64), Customer, i64),
) -> Result<(), Error> {
    let Customer { warehouse: home, district: part, number } = customer;
    transaction.execute(&statements.pay_warehouse, &[&warehouse, &amount]).await?;
    transaction.execute(&statements.pay_district, &[&warehouse, &district, &amount]).await?;
    transaction.execute(&statements.pay_customer, &[&home, &part, &number, &amount]).await?;
    transaction.execute(&statements.payment, &[&id, &warehouse, &district, &amount]).await?;
    Ok(())
}

#[async_trait]
impl Worker for OrdersWorker {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        if let Some(isolation) = self.isolation {
            isolation.set(client).await?;
        }
        self.statements = Some(Arc::new(Statements::prepare(client).await?));
        Ok(())
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        if self.statements.is_none() {
            self.prepare(client).await?;
        }
        let Some(statements) = self.statements.clone() else { return Ok("payment") };
        let plan = self.undone.take().unwrap_or_else(|| self.chooser.plan());
        let done = self.carry_out(client, &statements, &plan).await;
        if matches!(done, Err(Failure::Undone(_))) {
            self.undone = Some(plan);
        }
        done
    }
}
