//! Carrying out transactions, and writing down what they saw.

use super::plan::{Chooser, Plan, Road, Step, Way, alias};
use super::recorder::{Record, Recorder};
use crate::Worker;
use crate::errors::Failure;
use async_trait::async_trait;
use histories::{Isolation, Op, Outcome};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::{Client, Error, GenericClient, IsolationLevel, Statement};

/// A value that nobody writes, for what is no value: reading it is an anomaly.
const NO_VALUE: u64 = u64::MAX;

/// A list as the table holds it.
pub(super) fn list_of(text: &str) -> Vec<u64> {
    text.split_terminator(',').map(|value| value.parse().unwrap_or(NO_VALUE)).collect()
}

/// A number as the tables hold it.
pub(super) fn register_of(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(NO_VALUE)
}

/// A number for the tables. Keys and values count from zero and do not get that far.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

struct Statements {
    read: Statement,
    read_by_alias: Statement,
    read_and_lock: Statement,
    scan: Statement,
    append: Statement,
    append_by_alias: Statement,
    upsert: Statement,
    replace: Statement,
    read_register: Statement,
    write_register: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            read: client.prepare("SELECT vals FROM append_lists WHERE k = $1").await?,
            read_by_alias: client.prepare("SELECT vals FROM append_lists WHERE alias = $1").await?,
            read_and_lock: client.prepare("SELECT vals FROM append_lists WHERE k = $1 FOR UPDATE").await?,
            scan: client.prepare("SELECT k, vals FROM append_lists WHERE k >= $1 AND k < $2").await?,
            append: client.prepare("UPDATE append_lists SET vals = vals || $2::text WHERE k = $1").await?,
            append_by_alias: client
                .prepare("UPDATE append_lists SET vals = vals || $2::text WHERE alias = $1")
                .await?,
            upsert: client
                .prepare(
                    "INSERT INTO append_lists (k, alias, vals) VALUES ($1, $2, $3) \
                     ON CONFLICT (k) DO UPDATE SET vals = append_lists.vals || excluded.vals",
                )
                .await?,
            replace: client.prepare("UPDATE append_lists SET vals = $2 WHERE k = $1").await?,
            read_register: client.prepare("SELECT v FROM append_registers WHERE k = $1").await?,
            write_register: client
                .prepare(
                    "INSERT INTO append_registers (k, v) VALUES ($1, $2) \
                     ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                )
                .await?,
        })
    }
}

/// What one connection does.
pub(super) struct AppendWorker {
    number: u32,
    chooser: Chooser,
    recorder: Arc<Recorder>,
    follower_reads: bool,
    statements: Option<Arc<Statements>>,
}

impl AppendWorker {
    pub(super) fn new(number: u32, chooser: Chooser, recorder: Arc<Recorder>, follower_reads: bool) -> Self {
        Self { number, chooser, recorder, follower_reads, statements: None }
    }
}

#[async_trait]
impl Worker for AppendWorker {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        let level = match self.chooser.default_isolation() {
            Isolation::Serializable => "serializable",
            Isolation::ReadCommitted => "read committed",
        };
        client.batch_execute(&format!("SET default_transaction_isolation = '{level}'")).await?;
        if self.follower_reads {
            client.batch_execute("SET follower_reads = on").await?;
        }
        self.statements = Some(Arc::new(Statements::prepare(client).await?));
        Ok(())
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        if self.statements.is_none() {
            self.prepare(client).await?;
        }
        let Some(statements) = self.statements.clone() else { return Ok("rollback") };
        let plan = self.chooser.plan();
        let mut record = self.recorder.begin(self.number, plan.isolation);
        let done = carry_out(&plan, client, &statements, &mut record).await;
        record.end(outcome(&plan, &done));
        done.map(|()| kind(&plan))
    }

    fn is_done(&self) -> bool {
        self.recorder.is_full()
    }
}

/// What the latencies of a transaction are counted as.
fn kind(plan: &Plan) -> &'static str {
    match plan {
        Plan { gives_up: true, .. } => "rollback",
        Plan { read_only: true, .. } => "read-only",
        Plan { explicit: false, .. } => "statement",
        _ => "read-write",
    }
}

fn outcome(plan: &Plan, done: &Result<(), Failure>) -> Outcome {
    match done {
        Ok(()) if plan.gives_up => Outcome::Aborted,
        Ok(()) => Outcome::Committed,
        Err(Failure::Undone(_)) => Outcome::Aborted,
        Err(Failure::Ambiguous(_)) => Outcome::Unknown,
    }
}

/// A failure of what commits. Unlike [`Failure::of_commit`], what the server did not say itself is ambiguous,
/// whatever it is.
fn of_commit(error: Error) -> Failure {
    if error.as_db_error().is_none() { Failure::Ambiguous(error) } else { Failure::of_commit(error) }
}

async fn carry_out(
    plan: &Plan,
    client: &mut Client,
    statements: &Statements,
    record: &mut Record,
) -> Result<(), Failure> {
    if !plan.explicit {
        let mut session = Session { client, statements, record };
        return session.steps(&plan.steps).await.map_err(of_commit);
    }
    let level = match plan.isolation {
        Isolation::Serializable => IsolationLevel::Serializable,
        Isolation::ReadCommitted => IsolationLevel::ReadCommitted,
    };
    let builder = client.build_transaction().isolation_level(level);
    let transaction = builder.read_only(plan.read_only).start().await?;
    let mut session = Session { client: &transaction, statements, record };
    for step in &plan.steps {
        match step {
            Step::Savepoint { steps, stays } => session.savepoint(steps, *stays).await?,
            step => session.step(step).await?,
        }
    }
    if plan.gives_up {
        return Ok(transaction.rollback().await?);
    }
    transaction.commit().await.map_err(of_commit)
}

/// A connection, in a transaction or not.
struct Session<'a, C: GenericClient> {
    client: &'a C,
    statements: &'a Statements,
    record: &'a mut Record,
}

impl<C: GenericClient> Session<'_, C> {
    async fn steps(&mut self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            self.step(step).await?;
        }
        Ok(())
    }

    async fn savepoint(&mut self, steps: &[Step], stays: bool) -> Result<(), Error> {
        self.client.batch_execute("SAVEPOINT here").await?;
        let mark = self.record.mark();
        let done = self.steps(steps).await;
        if !stays {
            self.record.undo(mark);
        }
        done?;
        let end = if stays { "RELEASE SAVEPOINT here" } else { "ROLLBACK TO SAVEPOINT here" };
        self.client.batch_execute(end).await
    }

    async fn step(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::ReadList(key, road) => self.read_list(*key, *road).await,
            Step::Scan(first, count) => self.scan(*first, *count).await,
            Step::Append(key, way) => self.append(*key, *way).await,
            Step::Read(key) => self.read(*key).await,
            Step::Write(key) => self.write(*key).await,
            // They are not nested.
            Step::Savepoint { .. } => Ok(()),
        }
    }

    async fn read_list(&mut self, key: u64, road: Road) -> Result<(), Error> {
        let (statement, name) = match road {
            Road::Key => (&self.statements.read, key),
            Road::Index => (&self.statements.read_by_alias, alias(key)),
        };
        let mut values = Vec::new();
        // A second row would be an anomaly: its values show as wrong ones.
        for row in self.client.query(statement, &[&number(name)]).await? {
            values.extend(list_of(row.try_get(0)?));
        }
        self.record.add(Op::ReadList { key, values });
        Ok(())
    }

    async fn scan(&mut self, first: u64, count: u64) -> Result<(), Error> {
        let end = first.saturating_add(count);
        let mut lists: HashMap<u64, Vec<u64>> = HashMap::new();
        for row in self.client.query(&self.statements.scan, &[&number(first), &number(end)]).await? {
            let list = lists.entry(register_of(row.try_get(0)?)).or_default();
            list.extend(list_of(row.try_get(1)?));
        }
        for key in first..end {
            self.record.add(Op::ReadList { key, values: lists.remove(&key).unwrap_or_default() });
        }
        Ok(())
    }

    async fn append(&mut self, key: u64, way: Way) -> Result<(), Error> {
        let value = self.record.value();
        let text = format!("{value},");
        let found = match way {
            Way::Update(road) => {
                self.record.add(Op::Append { key, value });
                let (statement, name) = match road {
                    Road::Key => (&self.statements.append, key),
                    Road::Index => (&self.statements.append_by_alias, alias(key)),
                };
                self.client.execute(statement, &[&number(name), &text]).await? > 0
            }
            Way::Upsert => {
                self.record.add(Op::Append { key, value });
                false
            }
            Way::ReadThenWrite { lock } => self.read_then_write(key, value, lock).await?,
        };
        if !found {
            let (key, alias) = (number(key), number(alias(key)));
            self.client.execute(&self.statements.upsert, &[&key, &alias, &text]).await?;
        }
        Ok(())
    }

    /// False if there was nothing to read, and so nothing was written.
    async fn read_then_write(&mut self, key: u64, value: u64, lock: bool) -> Result<bool, Error> {
        let read = if lock { &self.statements.read_and_lock } else { &self.statements.read };
        let row = self.client.query_opt(read, &[&number(key)]).await?;
        let held: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        let values = held.as_deref().map(list_of).unwrap_or_default();
        self.record.add(Op::ReadList { key, values });
        self.record.add(Op::Append { key, value });
        let Some(held) = held else { return Ok(false) };
        let text = format!("{held}{value},");
        Ok(self.client.execute(&self.statements.replace, &[&number(key), &text]).await? > 0)
    }

    async fn read(&mut self, key: u64) -> Result<(), Error> {
        let row = self.client.query_opt(&self.statements.read_register, &[&number(key)]).await?;
        let value: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
        self.record.add(Op::Read { key, value: value.map(register_of) });
        Ok(())
    }

    async fn write(&mut self, key: u64) -> Result<(), Error> {
        let value = self.record.value();
        self.record.add(Op::Write { key, value });
        self.client.execute(&self.statements.write_register, &[&number(key), &number(value)]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        assert!(list_of("").is_empty());
        assert_eq!(list_of("5,"), [5]);
        assert_eq!(list_of("5,67,"), [5, 67]);
    }

    #[test]
    fn what_is_no_value_shows() {
        assert_eq!(list_of("5,x,7,"), [5, NO_VALUE, 7]);
        assert_eq!(register_of(-3), NO_VALUE);
    }
}
