//! Generated queries, answered by Dormouse and by PostgreSQL: rows, SQLSTATEs and types of columns must be
//! the same, with either engine.
//!
//! The query of a seed is always the same. `DORMOUSE_DIFFERENTIAL=FIRST..END` runs other seeds than those of the test
//! (`make differential SEEDS=…`); a failure names the seed, so `FIRST..FIRST+1` runs it again.
//!
//! Where one system reports an error of evaluation (class 22, 21 or 53) and the other returns rows the query
//! counts as undecided, unless it is a mere list of expressions: SQL leaves open what is evaluated first.

mod expressions;
pub mod postgresql;
mod queries;
mod schema;

use crate::client::{config, connect};
use crate::cluster::Cluster;
use postgresql::PostgreSql;
use queries::Query;
use std::env;
use std::ops::Range;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// Seeds of `make test`.
const SEEDS: Range<u64> = 0..600;
/// Failures that are printed.
const PRINTED: usize = 25;

/// What a system said to a query.
#[derive(Debug, PartialEq)]
enum Answer {
    /// Types of the columns, and the rows as text.
    Rows(Vec<String>, Vec<Vec<Option<String>>>),
    /// SQLSTATE and message.
    Error(String, String),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn generated_queries_have_postgresqls_answers() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let dormouse = connect(&cluster, &config(&cluster, &cluster.create("app"))).await.unwrap();
    let server = PostgreSql::start();
    let postgresql = server.connect().await;
    for client in [&postgresql, &dormouse] {
        client.batch_execute("set timezone = 'America/New_York'").await.unwrap();
        for statement in schema::statements() {
            client.batch_execute(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
    let (mut failures, mut undecided, mut errors) = (Vec::new(), 0, 0);
    for seed in seeds() {
        let query = queries::query(seed);
        let expected = answer(&postgresql, &query).await;
        errors += usize::from(matches!(expected, Answer::Error(..)));
        for engine in ["row", "analytic"] {
            dormouse.batch_execute(&format!("set engine = '{engine}'")).await.unwrap();
            let actual = answer(&dormouse, &query).await;
            match verdict(&query, &expected, &actual) {
                Verdict::Same => {}
                Verdict::Undecided => undecided += 1,
                Verdict::Different(how) => failures.push(format!(
                    "seed {seed}, engine {engine}: {how}\n  {}\n  again: DORMOUSE_DIFFERENTIAL={seed}..{}",
                    query.text,
                    seed + 1
                )),
            }
        }
    }
    println!("{} queries, {errors} of them errors, {undecided} answers undecided", seeds().count());
    drop((dormouse, postgresql));
    drop(server);
    cluster.stop();
    let shown = failures.len().min(PRINTED);
    assert!(failures.is_empty(), "{} differences\n\n{}", failures.len(), failures[..shown].join("\n\n"));
}

fn seeds() -> Range<u64> {
    let Ok(text) = env::var("DORMOUSE_DIFFERENTIAL") else { return SEEDS };
    let (first, end) = text.split_once("..").expect("FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

async fn answer(client: &Client, query: &Query) -> Answer {
    match ask(client, query).await {
        Ok(answer) => answer,
        Err(error) => {
            let database = error.as_db_error().unwrap_or_else(|| panic!("{}: {error}", query.text));
            Answer::Error(database.code().code().to_string(), database.message().to_string())
        }
    }
}

/// Rows as text come by the simple protocol, types of columns by the extended one.
async fn ask(client: &Client, query: &Query) -> Result<Answer, Error> {
    let prepared = client.prepare(&query.text).await?;
    let types = prepared.columns().iter().map(|column| column.type_().name().to_string()).collect();
    let mut rows = Vec::new();
    for message in client.simple_query(&query.text).await? {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|index| row.get(index).map(str::to_string)).collect());
        }
    }
    if !query.ordered {
        rows.sort();
    }
    Ok(Answer::Rows(types, rows))
}

enum Verdict {
    Same,
    /// SQL allows both.
    Undecided,
    Different(String),
}

fn verdict(query: &Query, expected: &Answer, actual: &Answer) -> Verdict {
    match (expected, actual) {
        (Answer::Error(want, _), Answer::Error(have, _)) if want == have => Verdict::Same,
        (Answer::Rows(..), Answer::Rows(..)) if expected == actual => Verdict::Same,
        (Answer::Rows(want, _), Answer::Rows(have, _)) if want != have => {
            Verdict::Different(format!("types {have:?} instead of {want:?}"))
        }
        (Answer::Rows(_, want), Answer::Rows(_, have)) => Verdict::Different(first_difference(want, have)),
        (Answer::Error(state, _), other) | (other, Answer::Error(state, _))
            if !query.straight && of_evaluation(state) && of_evaluation_or_rows(other) =>
        {
            Verdict::Undecided
        }
        (Answer::Error(..), _) | (_, Answer::Error(..)) => {
            Verdict::Different(format!("{} instead of {}", brief(actual), brief(expected)))
        }
    }
}

fn of_evaluation(state: &str) -> bool {
    ["22", "21", "53"].iter().any(|class| state.starts_with(class))
}

fn of_evaluation_or_rows(answer: &Answer) -> bool {
    match answer {
        Answer::Rows(..) => true,
        Answer::Error(state, _) => of_evaluation(state),
    }
}

fn brief(answer: &Answer) -> String {
    match answer {
        Answer::Rows(_, rows) => format!("{} rows", rows.len()),
        Answer::Error(state, message) => format!("{state} ({message})"),
    }
}

fn first_difference(want: &[Vec<Option<String>>], have: &[Vec<Option<String>>]) -> String {
    if want.len() != have.len() {
        return format!("{} rows instead of {}", have.len(), want.len());
    }
    let different = want.iter().zip(have).find(|(want, have)| want != have);
    different.map_or_else(String::new, |(want, have)| format!("row {have:?} instead of {want:?}"))
}
