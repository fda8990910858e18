//! What one terminal of `tpcc` does.

use super::Counts;
use super::plan::{Chooser, Plan};
use super::statements::Statements;
use super::transactions::{Nobody, Terminal};
use crate::Worker;
use crate::errors::Failure;
use crate::isolation::Level;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_postgres::{Client, Error};

/// The worker.
pub struct TpccWorker {
    chooser: Chooser,
    isolation: Option<Level>,
    think: bool,
    counts: Arc<Counts>,
    statements: Option<Arc<Statements>>,
    /// What is done next. What was undone is done again: else what conflicts little would be done more often than it
    /// should.
    next: Option<Plan>,
    /// How long the user thinks about what was done last.
    thinking: Duration,
}

/// How a transaction is to be ended.
enum End {
    Commit,
    Rollback,
    /// It did nothing, for its customer does not exist.
    Nothing,
}

impl TpccWorker {
    /// The worker of one connection.
    pub fn new(chooser: Chooser, isolation: Option<Level>, think: bool, counts: Arc<Counts>) -> Self {
        Self { chooser, isolation, think, counts, statements: None, next: None, thinking: Duration::ZERO }
    }

    /// False: another plan is to be made.
    async fn carry_out(
        &self,
        client: &mut Client,
        statements: &Statements,
        plan: &Plan,
    ) -> Result<bool, Failure> {
        let transaction = client.transaction().await?;
        let terminal = Terminal { transaction: &transaction, statements, warehouse: self.chooser.home };
        match self.statements_of(&terminal, plan).await? {
            End::Commit => transaction.commit().await.map_err(Failure::of_commit)?,
            End::Rollback => {
                transaction.rollback().await?;
                self.counts.rolled_back.fetch_add(1, Ordering::Relaxed);
            }
            End::Nothing => {
                transaction.rollback().await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn statements_of(&self, terminal: &Terminal<'_>, plan: &Plan) -> Result<End, Error> {
        let of_customer = |done: Result<(), Nobody>| if done.is_ok() { End::Commit } else { End::Nothing };
        Ok(match plan {
            Plan::NewOrder { district, customer, lines } => {
                match terminal.new_order(*district, *customer, lines).await? {
                    true => End::Commit,
                    false => End::Rollback,
                }
            }
            Plan::Payment { district, customer, amount } => {
                of_customer(terminal.payment(*district, customer, *amount).await?)
            }
            Plan::OrderStatus { customer } => of_customer(terminal.order_status(customer).await?),
            Plan::Delivery { carrier } => {
                let skipped = terminal.delivery(*carrier).await?;
                self.counts.skipped_deliveries.fetch_add(skipped, Ordering::Relaxed);
                End::Commit
            }
            Plan::StockLevel { threshold } => {
                terminal.stock_level(self.chooser.district, *threshold).await?;
                End::Commit
            }
        })
    }
}

#[async_trait]
impl Worker for TpccWorker {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        if let Some(isolation) = self.isolation {
            isolation.set(client).await?;
        }
        self.statements = Some(Arc::new(Statements::prepare(client).await?));
        Ok(())
    }

    fn pause(&mut self) -> Duration {
        if !self.think || self.next.is_some() {
            return Duration::ZERO;
        }
        let plan = self.chooser.plan();
        let (keying, thinking) = self.chooser.times(&plan);
        self.next = Some(plan);
        keying + std::mem::replace(&mut self.thinking, thinking)
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        if self.statements.is_none() {
            self.prepare(client).await?;
        }
        let Some(statements) = self.statements.clone() else { return Ok("none") };
        loop {
            let plan = self.next.take().unwrap_or_else(|| self.chooser.plan());
            match self.carry_out(client, &statements, &plan).await {
                Ok(true) => return Ok(plan.name()),
                Ok(false) => {}
                Err(failure) => {
                    if matches!(failure, Failure::Undone(_)) {
                        self.next = Some(plan);
                    }
                    return Err(failure);
                }
            }
        }
    }
}
