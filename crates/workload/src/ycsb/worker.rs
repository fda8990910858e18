//! What one connection of `ycsb` does.

use super::choose::{Chooser, Operation, Rows};
use super::record::{FIELDS, field, key};
use crate::Worker;
use crate::errors::Failure;
use async_trait::async_trait;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

struct Statements {
    read: Statement,
    scan: Statement,
    insert: Statement,
    /// One for each field.
    updates: Vec<Statement>,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, Error> {
        let mut updates = Vec::with_capacity(FIELDS);
        for number in 0..FIELDS {
            let update = format!("UPDATE usertable SET field{number} = $2 WHERE ycsb_key = $1");
            updates.push(client.prepare(&update).await?);
        }
        let values: Vec<String> = (1..=FIELDS + 1).map(|number| format!("${number}")).collect();
        let insert = format!("INSERT INTO usertable VALUES ({})", values.join(", "));
        Ok(Self {
            read: client.prepare("SELECT * FROM usertable WHERE ycsb_key = $1").await?,
            scan: client
                .prepare("SELECT * FROM usertable WHERE ycsb_key >= $1 ORDER BY ycsb_key LIMIT $2")
                .await?,
            insert: client.prepare(&insert).await?,
            updates,
        })
    }
}

/// The worker.
pub struct YcsbWorker {
    chooser: Chooser,
    rows: Arc<Rows>,
    statements: Option<Arc<Statements>>,
    /// What was undone is done again: else what conflicts little would be done more often than it should.
    undone: Option<Operation>,
}

impl YcsbWorker {
    /// The worker of one connection.
    pub fn new(chooser: Chooser, rows: Arc<Rows>) -> Self {
        Self { chooser, rows, statements: None, undone: None }
    }

    async fn insert(&mut self, client: &Client, insert: &Statement, row: u64) -> Result<(), Failure> {
        let key = key(row);
        let fields: Vec<String> =
            (0..FIELDS).map(|number| field(&key, number, self.chooser.seed())).collect();
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&key];
        values.extend(fields.iter().map(|text| text as &(dyn ToSql + Sync)));
        let inserted = client.execute(insert, &values).await.map_err(Failure::of_commit);
        if !matches!(inserted, Err(Failure::Undone(_))) {
            // Where it is not known, reading finds it or does not.
            self.rows.end_insert(row);
        }
        inserted.map(drop)
    }

    async fn carry_out(
        &mut self,
        client: &mut Client,
        statements: &Statements,
        operation: Operation,
    ) -> Result<&'static str, Failure> {
        match operation {
            Operation::Read(row) => {
                client.query_opt(&statements.read, &[&key(row)]).await?;
                Ok("read")
            }
            Operation::Scan(row, rows) => {
                client.query(&statements.scan, &[&key(row), &rows]).await?;
                Ok("scan")
            }
            Operation::Update(row, field) => {
                update(client, statements, row, field, self.chooser.seed()).await?;
                Ok("update")
            }
            Operation::ReadModifyWrite(row, field) => {
                modify(client, statements, row, field, self.chooser.seed()).await?;
                Ok("modify")
            }
            Operation::Insert(row) => {
                self.insert(client, &statements.insert, row).await?;
                Ok("insert")
            }
        }
    }
}

async fn update(
    client: &Client,
    statements: &Statements,
    row: u64,
    number: usize,
    seed: u64,
) -> Result<(), Failure> {
    let Some(update) = statements.updates.get(number) else { return Ok(()) };
    let key = key(row);
    let text = field(&key, number, seed);
    client.execute(update, &[&key, &text]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn modify(
    client: &mut Client,
    statements: &Statements,
    row: u64,
    number: usize,
    seed: u64,
) -> Result<(), Failure> {
    let Some(update) = statements.updates.get(number) else { return Ok(()) };
    let key = key(row);
    let transaction = client.transaction().await?;
    transaction.query_opt(&statements.read, &[&key]).await?;
    transaction.execute(update, &[&key, &field(&key, number, seed)]).await?;
    transaction.commit().await.map_err(Failure::of_commit)
}

#[async_trait]
impl Worker for YcsbWorker {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        self.statements = Some(Arc::new(Statements::prepare(client).await?));
        Ok(())
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        if self.statements.is_none() {
            self.prepare(client).await?;
        }
        let Some(statements) = self.statements.clone() else { return Ok("read") };
        let operation = self.undone.take().unwrap_or_else(|| self.chooser.operation());
        let done = self.carry_out(client, &statements, operation).await;
        if matches!(done, Err(Failure::Undone(_))) {
            self.undone = Some(operation);
        }
        done
    }
}
