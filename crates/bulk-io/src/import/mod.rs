//! Files to a table.

mod batch;
mod journal;
mod load;
mod source;
mod state;

use crate::args::{ImportArgs, Output};
use crate::error::{Error, Result};
use crate::name;
use crate::print;
use crate::progress::Progress;
use crate::store::Store;
use batch::Batch;
use journal::Journal;
use load::{Job, Session};
use source::Source;
use state::State;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinSet, block_in_place, spawn_blocking};

/// How long to go on waiting for connections after the first one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Loads files into a table and prints a summary. To be called on a runtime with several threads.
///
/// # Errors
/// What is wrong with the arguments, a file or a row. What was loaded before stays, unless all is one transaction, and
/// the error says what that is.
pub async fn import(args: &ImportArgs) -> Result<()> {
    let target = args.common.target()?;
    let table = name::table(&args.table)?;
    let store = Arc::new(args.common.store());
    let sources = block_in_place(|| sources(args, &store))?;
    let journal = match &args.resume {
        Some(path) => Journal::open(path, &table)?,
        None => Journal::default(),
    };
    let mut session = Session::open(&target).await?;
    if args.atomic {
        session.client.batch_execute("BEGIN").await?;
    }
    let created = create(args, &session, &table, &store, &sources).await?;
    let total = sources.iter().map(|source| source.bytes).sum();
    let state = State::new(&sources, journal);
    let job = Arc::new(Job {
        statements: sources.iter().map(|source| source.statement(&table)).collect(),
        sources,
        target,
        atomic: args.atomic,
        progress: Progress::new(args.common.quiet, Some(total)),
        state,
    });
    run(args, &job, &store, &mut session).await;
    job.progress.finish();
    report(args, &job, &table, created.as_deref())
}

/// The files, looked at.
fn sources(args: &ImportArgs, store: &Store) -> Result<Vec<Source>> {
    let locations = store.expand(&args.files)?;
    let open = |location| Source::open(store, location, &args.common, &args.columns);
    let sources = locations.into_iter().map(open).collect::<Result<Vec<_>>>()?;
    let mut seen = std::collections::HashSet::new();
    match sources.iter().find(|source| !seen.insert(&source.location)) {
        Some(twice) => Err(Error::new(format!("{} is given twice", twice.location))),
        None => Ok(sources),
    }
}

/// Makes the table if it is missing and that is wanted; the statement that did.
async fn create(
    args: &ImportArgs,
    session: &Session,
    table: &str,
    store: &Store,
    sources: &[Source],
) -> Result<Option<String>> {
    let found = session.client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?;
    if found.try_get(0)? {
        return Ok(None);
    }
    let Some(first) = sources.first().filter(|_| args.create) else {
        return Err(Error::new(format!("relation {table} does not exist")).hint("--create makes it."));
    };
    let columns = block_in_place(|| first.describe(store, args.types))?;
    let statement = create_statement(table, &columns, &args.primary_key)?;
    session.client.batch_execute(&statement).await.map_err(|error| Error::from(error).at(&statement))?;
    Ok(Some(statement))
}

fn create_statement(table: &str, columns: &source::Columns, primary_key: &[String]) -> Result<String> {
    let mut parts: Vec<String> =
        columns.iter().map(|(name, ty)| format!("{} {ty}", name::identifier(name))).collect();
    if let Some(missing) = primary_key.iter().find(|key| !columns.iter().any(|(name, _)| name == *key)) {
        return Err(Error::new(format!("the primary key has the column {missing}, which the file has not")));
    }
    if !primary_key.is_empty() {
        parts.push(format!("PRIMARY KEY ({})", name::identifiers(primary_key)));
    }
    Ok(format!("CREATE TABLE {table} ({})", parts.join(", ")))
}

/// Loads everything; what went wrong is in the state.
async fn run(args: &ImportArgs, job: &Arc<Job>, store: &Arc<Store>, session: &mut Session) {
    let jobs = if args.atomic { 1 } else { usize::from(args.jobs) };
    let (sender, receiver) = mpsc::channel(jobs);
    let batches = Arc::new(Mutex::new(receiver));
    let reader = spawn_blocking({
        let (job, store, most_rows) = (Arc::clone(job), Arc::clone(store), args.batch_rows);
        move || read(&job, &store, most_rows, &sender)
    });
    let interrupted = tokio::spawn({
        let job = Arc::clone(job);
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                job.state.fail(Error::new("interrupted"));
            }
        }
    });
    let mut others = JoinSet::new();
    for _ in 1..jobs {
        let (job, batches) = (Arc::clone(job), Arc::clone(&batches));
        others.spawn(async move {
            // Without it the first connection goes on alone; if there is something wrong that one says so.
            if let Ok(Ok(mut session)) = tokio::time::timeout(PATIENCE, Session::open(&job.target)).await {
                session.work(&job, &batches).await;
            }
        });
    }
    session.work(job, &batches).await;
    while others.join_next().await.is_some() {}
    // Whoever still reads has nobody to give it to.
    batches.lock().await.close();
    while batches.lock().await.recv().await.is_some() {}
    if reader.await.is_err() {
        job.state.fail(Error::new("the files could not be read to their end"));
    }
    interrupted.abort();
    if args.atomic {
        end(job, session).await;
    }
}

/// Reads all files, one after the other.
fn read(job: &Job, store: &Store, most_rows: u32, sender: &mpsc::Sender<Batch>) {
    for (number, source) in job.sources.iter().enumerate() {
        let done = job.state.done(number);
        let mut stopped = false;
        let outcome = source.batches(store, number, most_rows, &done, &mut |batch| {
            if job.state.is_failed() || sender.blocking_send(batch).is_err() {
                stopped = true;
                return Err(Error::new("stopped"));
            }
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(_) if stopped => return,
            Err(error) => {
                job.state.fail(error);
                return;
            }
        }
    }
}

/// Ends the one transaction of an atomic import.
async fn end(job: &Job, session: &Session) {
    if job.state.is_failed() {
        job.state.forget();
        let _ = session.client.batch_execute("ROLLBACK").await;
        return;
    }
    if let Err(error) = session.client.batch_execute("COMMIT").await {
        job.state.forget();
        job.state.fail(Error::from(error).at("COMMIT"));
    }
}

fn report(args: &ImportArgs, job: &Job, table: &str, created: Option<&str>) -> Result<()> {
    let summary = job.state.summary(
        table,
        created.filter(|_| !(args.atomic && job.state.is_failed())),
        job.progress.elapsed(),
    );
    match args.common.output {
        Output::Json => print(format_args!("{:#}", summary.json())),
        Output::Table if !job.state.is_failed() => print(summary.text()),
        Output::Table => {}
    }
    match job.state.failure() {
        None => Ok(()),
        Some(error) if args.atomic => Err(error.hint("Nothing was loaded: --atomic.")),
        Some(error) => Err(error.hint(summary.what_stays(args.resume.as_deref()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_made_of_columns() {
        let columns = vec![("id".to_owned(), "bigint".to_owned()), ("a\"b".to_owned(), "text".to_owned())];
        assert_eq!(
            create_statement("\"t\"", &columns, &["id".to_owned()]).unwrap(),
            "CREATE TABLE \"t\" (\"id\" bigint, \"a\"\"b\" text, PRIMARY KEY (\"id\"))"
        );
        assert!(create_statement("\"t\"", &columns, &["x".to_owned()]).is_err());
    }
}
