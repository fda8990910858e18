//! The driver against a server that fails as a test tells it to.

mod server;

use async_trait::async_trait;
use indicatif::ProgressBar;
use pg_client::Target;
use server::{Answer, FakeServer};
use std::time::Duration;
use tokio_postgres::{Client, Error};
use workload::driver::{Measured, Plan, run};
use workload::report::CheckReport;
use workload::{Failure, Worker, Workload};

/// Sends `work` and `commit`, and asks the server after each whether there is more to do.
struct TwoSteps;

#[async_trait]
impl Workload for TwoSteps {
    fn name(&self) -> &'static str {
        "two-steps"
    }

    async fn init(&self, _: &mut Client, _: &ProgressBar) -> anyhow::Result<()> {
        Ok(())
    }

    fn worker(&self, _: u32) -> anyhow::Result<Box<dyn Worker>> {
        Ok(Box::new(Self))
    }

    async fn check(&self, _: &mut Client) -> anyhow::Result<CheckReport> {
        Ok(CheckReport::new("two-steps"))
    }
}

#[async_trait]
impl Worker for TwoSteps {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        client.batch_execute("prepare").await
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        client.batch_execute("work").await?;
        client.batch_execute("commit").await.map_err(Failure::of_commit)?;
        Ok("two-steps")
    }
}

/// One connection until the server's script is at its end, which fails the run, or the time is over.
async fn drive(script: Vec<(&'static str, Answer)>, milliseconds: u64) -> (anyhow::Result<Measured>, usize) {
    let server = FakeServer::start(script).await;
    let target =
        Target::parse(&format!("postgresql://u@{}/db?sslmode=disable", server.address), "test").unwrap();
    let plan = Plan { connections: 1, duration: Duration::from_millis(milliseconds), progress: false };
    let measured = run(&TwoSteps, &target, &plan).await;
    (measured, server.connections())
}

#[tokio::test]
async fn serialization_failures_are_repeated() {
    let script = vec![("work", Answer::Error("40001")), ("commit", Answer::Error("40P01"))];
    let (measured, connections) = drive(script, 1500).await;
    let measured = measured.unwrap();
    assert_eq!((measured.retries, measured.reconnects, measured.ambiguous), (2, 0, 0));
    assert!(measured.latencies.count() > 0);
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn a_connection_lost_before_the_commit_is_made_anew() {
    let (measured, connections) = drive(vec![("work", Answer::HangUp)], 1500).await;
    let measured = measured.unwrap();
    assert_eq!((measured.retries, measured.reconnects, measured.ambiguous), (0, 1, 0));
    assert!(measured.latencies.count() > 0);
    assert_eq!(connections, 2);
}

#[tokio::test]
async fn a_connection_lost_during_the_commit_is_ambiguous() {
    let script = vec![("commit", Answer::HangUp), ("commit", Answer::Fatal("57P01"))];
    let (measured, connections) = drive(script, 1500).await;
    let measured = measured.unwrap();
    assert_eq!((measured.reconnects, measured.ambiguous), (2, 2));
    assert_eq!(connections, 3);
}

#[tokio::test]
async fn a_connection_lost_while_preparing_again_is_made_anew_too() {
    let script = vec![
        ("prepare", Answer::Ok),
        ("work", Answer::HangUp),
        ("prepare", Answer::HangUp),
        ("prepare", Answer::Ok),
    ];
    let (measured, connections) = drive(script, 1500).await;
    assert!(measured.unwrap().latencies.count() > 0);
    assert_eq!(connections, 3);
}

#[tokio::test]
async fn an_error_that_stays_ends_the_run() {
    let (measured, _) = drive(vec![("work", Answer::Error("23505"))], 60_000).await;
    let error = format!("{:#}", measured.unwrap_err());
    assert!(error.contains("23505"), "{error}");
}

#[tokio::test]
async fn a_server_that_refuses_for_good_ends_the_run_at_once() {
    let (measured, connections) = drive(vec![("startup", Answer::Fatal("28P01"))], 60_000).await;
    assert!(measured.is_err());
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn a_server_that_is_starting_is_waited_for() {
    let (measured, connections) = drive(vec![("startup", Answer::Fatal("57P03"))], 1500).await;
    assert!(measured.unwrap().latencies.count() > 0);
    assert_eq!(connections, 2);
}
