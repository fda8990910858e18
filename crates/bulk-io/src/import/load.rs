//! Connections that load batches.

use super::batch::Batch;
use super::source::Source;
use super::state::State;
use crate::error::{Error, Result};
use crate::progress::Progress;
use bytes::Bytes;
use futures::SinkExt;
use pg_client::{Connection, Kind, Target};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::Client;

/// Bytes in one message.
const MESSAGE_BYTES: usize = 128 << 10;
/// How often a batch is loaded that others were in the way of, and how long to wait the first time.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Classes of errors that are about a row: what is in it, constraints, what triggers say, limits.
const ABOUT_ROWS: [&str; 6] = ["22", "23", "44", "54", "P0", "21"];

/// What all connections work on.
pub struct Job {
    /// The files.
    pub sources: Vec<Source>,
    /// For each file the statement that takes its rows.
    pub statements: Vec<String>,
    /// The database.
    pub target: Target,
    /// Whether everything is one transaction.
    pub atomic: bool,
    /// How far it is.
    pub progress: Progress,
    /// What is done.
    pub state: State,
}

/// Why a batch is not in.
enum Attempt {
    /// It certainly is not.
    Undone(tokio_postgres::Error),
    /// The connection ended while it was committed.
    Unknown(tokio_postgres::Error),
}

/// A connection.
pub struct Session {
    /// To ask with.
    pub client: Client,
    _connection: Connection,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// If the server refuses, or stays away.
    pub async fn open(target: &Target) -> Result<Self> {
        let opened = target.reconnect().await;
        let (client, _connection) =
            opened.map_err(|error| match error.downcast::<tokio_postgres::Error>() {
                Ok(error) => Error::from(error).at("cannot connect"),
                Err(error) => Error::new(format!("cannot connect: {error:#}")),
            })?;
        Ok(Self { client, _connection })
    }

    /// Loads batches until there are no more, or something went wrong.
    pub async fn work(&mut self, job: &Job, batches: &Mutex<mpsc::Receiver<Batch>>) {
        while !job.state.is_failed() {
            let Some(batch) = batches.lock().await.recv().await else { return };
            if let Err(error) = self.load(job, &batch).await {
                job.state.fail(error);
            }
        }
    }

    async fn load(&mut self, job: &Job, batch: &Batch) -> Result<()> {
        let (Some(source), Some(statement)) = (job.sources.get(batch.file), job.statements.get(batch.file))
        else {
            return Ok(());
        };
        let mut pause = FIRST_PAUSE;
        for left in (0..TRIES).rev() {
            if job.atomic {
                self.client.batch_execute("SAVEPOINT batch").await?;
            }
            let error = match self.copy(statement, batch.data.clone()).await {
                Ok(rows) => {
                    job.state.loaded(batch, rows);
                    job.progress.add(rows, batch.share);
                    return Ok(());
                }
                Err(Attempt::Unknown(error)) if !job.atomic => {
                    job.state.unknown(batch);
                    return Err(Error::from(error).at(batch.places()).at(&source.location));
                }
                Err(Attempt::Undone(error) | Attempt::Unknown(error)) => error,
            };
            match Kind::of(&error) {
                Kind::Retry if left > 0 && !job.atomic => {}
                Kind::Lost if left > 0 && !job.atomic => *self = Self::open(&job.target).await?,
                _ => return Err(self.located(job, source, statement, batch, error).await),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    /// Sends rows as one COPY; how many the server counted.
    async fn copy(&self, statement: &str, mut data: Bytes) -> std::result::Result<u64, Attempt> {
        let sink = self.client.copy_in::<_, Bytes>(statement).await.map_err(Attempt::Undone)?;
        let mut sink = pin!(sink);
        while !data.is_empty() {
            let message = data.split_to(data.len().min(MESSAGE_BYTES));
            sink.feed(message).await.map_err(Attempt::Undone)?;
        }
        sink.finish().await.map_err(|error| {
            // 40003: the server says itself that it does not know.
            let unknown = error.code().is_some_and(|code| code.code() == "40003");
            if unknown || Kind::of(&error) == Kind::Lost {
                Attempt::Unknown(error)
            } else {
                Attempt::Undone(error)
            }
        })
    }

    /// An error with the place of the row that it is about, if it is about one.
    async fn located(
        &self,
        job: &Job,
        source: &Source,
        statement: &str,
        batch: &Batch,
        error: tokio_postgres::Error,
    ) -> Error {
        let about_rows =
            error.code().is_some_and(|code| ABOUT_ROWS.iter().any(|class| code.code().starts_with(class)));
        let before = if about_rows { self.rows_before(job, source, statement, batch).await } else { None };
        let error = Error::from(error);
        match before {
            Some(rows) => error.at(batch.place(rows, &source.encoding)).at(&source.location),
            None => error.at(batch.places()).at(&source.location),
        }
    }

    /// How many rows of a batch come before the one that makes it fail: what is certain is that as many load and one
    /// more does not. None if no row does, as with a constraint that is checked at the end.
    async fn rows_before(&self, job: &Job, source: &Source, statement: &str, batch: &Batch) -> Option<u64> {
        let fails = async |rows: u64| {
            let (begin, end) = match job.atomic {
                true => ("ROLLBACK TO SAVEPOINT batch", "ROLLBACK TO SAVEPOINT batch"),
                false => ("BEGIN", "ROLLBACK"),
            };
            self.client.batch_execute(begin).await.ok()?;
            let outcome = self.copy(statement, batch.prefix(rows, &source.encoding)).await;
            self.client.batch_execute(end).await.ok()?;
            Some(outcome.is_err())
        };
        let (mut good, mut bad) = (0, batch.rows);
        if fails(good).await? || !fails(bad).await? {
            return None;
        }
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if fails(middle).await? { bad = middle } else { good = middle }
        }
        Some(good)
    }
}
