//! The suites in `tests/slt`: what SQL statements return, as PostgreSQL 15 has it.
//!
//! Every file is a script in the format of the public runner `sqllogictest`, run from top to bottom in a database of
//! its own: `statement ok`, `statement count ROWS`, `statement error (SQLSTATE)`, and `query TYPES [rowsort]` with
//! rows below `----`. [`column::Column`] has the letters of the types, [`cell`] how values are written.
//!
//! Each file runs three times: the row engine answers everything, then the analytical engine what it can, and then KV nodes
//! aggregate wherever they can. How many queries that were is printed (`--nocapture`) and must not fall.
//!
//! | variable | effect |
//! |---|---|
//! | `DORMOUSE_SLT_FILES` | only files whose path contains this |
//! | `DORMOUSE_SLT_POSTGRESQL` | a PostgreSQL 15 to run them on, too: `host=… user=… dbname=…`, role a superuser, locale C |
//! | `DORMOUSE_SLT_UPDATE` | if set, what that PostgreSQL returns is written into the files |
//!
//! So to add a case: write the statement as `statement ok` or `query T`, run with both variables, and look at the
//! difference. A statement that Dormouse refuses by name has `skipif dormouse`, and a second record with
//! `onlyif dormouse` that expects `0A000`.

mod cell;
mod column;
mod dormouse;
mod postgresql;
mod report;

use column::Column;
use dormouse::{Dormouse, Place};
use postgresql::PostgreSql;
use report::Report;
use sqllogictest::{AsyncDB, MakeConnection, Runner, strict_column_validator};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Statements that the suites have together, at least.
const LEAST_STATEMENTS: usize = 5_000;
/// Queries among them that the analytical engine answers, in whole or in part, at least.
const LEAST_ANALYTIC: usize = 200;
/// Queries among them for which KV nodes aggregate, at least.
const LEAST_PARTIAL: usize = 200;

#[test]
fn the_row_engine_answers_as_postgresql_does() {
    let report = run_on_dormouse("row", "off");
    assert_eq!((report.analytic(), report.partial()), (0, 0), "the row engine ran everything");
}

#[test]
fn partial_aggregates_of_kv_nodes_answer_as_postgresql_does() {
    let report = run_on_dormouse("row", "on");
    if env::var_os("DORMOUSE_SLT_FILES").is_none() {
        assert!(report.partial() >= LEAST_PARTIAL, "KV nodes aggregated for {} queries", report.partial());
    }
}

#[test]
fn the_analytical_engine_answers_as_postgresql_does() {
    let report = run_on_dormouse("analytic", "off");
    if env::var_os("DORMOUSE_SLT_FILES").is_none() {
        assert!(
            report.analytic() >= LEAST_ANALYTIC,
            "{} queries ran on the analytical engine",
            report.analytic()
        );
    }
}

/// Runs where `DORMOUSE_SLT_POSTGRESQL` names one: the expectations are PostgreSQL's.
#[test]
fn postgresql_answers_as_the_suites_say() {
    let Ok(server) = env::var("DORMOUSE_SLT_POSTGRESQL") else { return };
    let update = env::var_os("DORMOUSE_SLT_UPDATE").is_some();
    let files = files();
    let report = Arc::new(Report::default());
    for file in &files {
        let connect = || PostgreSql::connect(server.clone(), database_name(file), Arc::clone(&report));
        if update {
            block_on(update_file(file, connect));
        } else {
            block_on(run_file(file, connect, &report));
        }
    }
    report.conclude("PostgreSQL");
}

fn run_on_dormouse(engine: &'static str, partial_aggregates: &'static str) -> Arc<Report> {
    let files = files();
    let report = Arc::new(Report::default());
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let place = Place { engine, partial_aggregates, report: Arc::clone(&report) };
                    block_on(run_file(file, || Dormouse::open(place.clone()), &report));
                }
            });
        }
    });
    report.conclude(if partial_aggregates == "on" { "partial aggregates" } else { engine });
    if env::var_os("DORMOUSE_SLT_FILES").is_none() {
        assert!(report.statements() >= LEAST_STATEMENTS, "{} statements", report.statements());
    }
    report
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Runs all of a file: what follows an unexpected answer is run as well.
async fn run_file<D, M>(file: &Path, connect: M, report: &Report)
where
    D: AsyncDB<ColumnType = Column>,
    M: MakeConnection<Conn = D>,
{
    let mut runner = prepare(connect);
    let records = sqllogictest::parse_file::<Column>(file).unwrap_or_else(|error| panic!("{error}"));
    for record in records {
        if let Err(error) = runner.run_async(record).await {
            report.failure(format!("{}", error.display(false)));
        }
    }
    runner.shutdown_async().await;
}

/// Writes into a file what the server returns.
async fn update_file<D, M>(file: &Path, connect: M)
where
    D: AsyncDB<ColumnType = Column>,
    M: MakeConnection<Conn = D>,
{
    let mut runner = prepare(connect);
    let updated = runner
        .update_test_file(file, cell::SEPARATOR, cell::same_rows, cell::normalize, strict_column_validator)
        .await;
    updated.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    runner.shutdown_async().await;
}

fn prepare<D, M>(connect: M) -> Runner<D, M>
where
    D: AsyncDB<ColumnType = Column>,
    M: MakeConnection<Conn = D>,
{
    let mut runner = Runner::new(connect);
    runner.with_validator(cell::same_rows);
    runner.with_normalizer(cell::normalize);
    runner.with_column_validator(strict_column_validator);
    runner
}

/// All suites, the largest first: they are run several at a time.
fn files() -> Vec<PathBuf> {
    let wanted = env::var("DORMOUSE_SLT_FILES").unwrap_or_default();
    let mut files = Vec::new();
    collect(&root(), &mut files);
    files.retain(|file| file.to_string_lossy().contains(&wanted));
    files.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).map_or(0, |metadata| metadata.len())));
    assert!(!files.is_empty(), "there are no suites");
    files
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt")
}

/// The name of a file's database: its path, with what a plain identifier may have.
fn database_name(file: &Path) -> String {
    let path = file.strip_prefix(root()).unwrap_or(file).with_extension("");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("slt_{}", path.to_string_lossy().chars().map(plain).collect::<String>())
}
