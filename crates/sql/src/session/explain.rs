//! EXPLAIN.

use super::command::{Command, ExplainFlags};
use super::portal::Portal;
use super::prepared::{self, CachedPlan};
use super::run::Environment;
use super::view::{Times, now_micros};
use super::{Session, Statement};
use crate::analytic::partial_aggregate_applies;
use crate::exec::context::PlanStats;
use crate::exec::eval::EvalEnv;
use crate::exec::execute;
use crate::explain::{Actual, ExplainFormat, ExplainOptions, Summary, describe, render};
use crate::plan::{Plan, PlanKind, ScanFence};
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a future, and measures the processor time that it takes on whichever threads it runs.
async fn with_cpu_time<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = std::pin::pin!(future);
    let mut used = Duration::ZERO;
    let output = std::future::poll_fn(|task| {
        let before = thread_cpu_time();
        let polled = future.as_mut().poll(task);
        used += thread_cpu_time().saturating_sub(before);
        polled
    });
    let output = output.await;
    (output, used)
}

/// Processor time that this thread has used.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How policies decide on rows of a plan's scans; by operators above one of them, if there is such a scan.
fn fence(plan: &Plan) -> ScanFence {
    let mut found = match &plan.kind {
        PlanKind::Scan { fence, .. } => *fence,
        _ => ScanFence::None,
    };
    plan.for_each_child(&mut |child, _| {
        let below = fence(child);
        if found == ScanFence::None || below == ScanFence::Part {
            found = below;
        }
    });
    found
}

impl Session {
    /// The plan an EXPLAIN is about, with the values of its parameters, and how long that took once the statement
    /// was read. With `analyze` it is to be run: its transaction is open then.
    pub(super) async fn explained(
        &mut self,
        statement: &Arc<Statement>,
        params: &[Datum],
        types: &[Type],
        analyze: bool,
    ) -> SqlResult<(Arc<CachedPlan>, Vec<Datum>, Duration)> {
        let command = prepared::command_of(statement)?;
        let start = Instant::now();
        let (prepared, params) = match &*command {
            Command::Execute { name, args } => {
                let (prepared, params) = self.execute_params(name, args)?;
                (Some(prepared), params)
            }
            _ => (None, params.to_vec()),
        };
        let explained = match (&*command, &prepared) {
            (Command::Planned, _) => Some(statement),
            (Command::Declare { statement, .. }, _) => Some(statement),
            (_, Some(prepared)) => prepared.statement.as_ref(),
            _ => {
                let message = "EXPLAIN needs a query or a statement that changes rows";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        };
        let statement = explained.ok_or_else(|| SqlError::internal("an empty statement"))?;
        if analyze {
            self.enter(statement.as_of.as_ref()).await?;
        }
        let plan = match &prepared {
            // The one that EXECUTE would take.
            Some(prepared) => self.current_plan(prepared)?,
            None => prepared::plan(&self.view, statement, types, false)?,
        };
        Ok((plan, params, start.elapsed()))
    }

    /// EXPLAIN: the lines.
    pub(super) async fn explain(
        &mut self,
        flags: ExplainFlags,
        statement: &Arc<Statement>,
        portal: &Portal,
    ) -> SqlResult<Vec<Row>> {
        let options = ExplainOptions {
            analyze: flags.analyze,
            verbose: flags.verbose,
            costs: flags.costs.unwrap_or(true),
            timing: flags.timing.unwrap_or(true),
            summary: flags.summary.unwrap_or(flags.analyze),
            format: if flags.json { ExplainFormat::Json } else { ExplainFormat::Text },
        };
        let (plan, params, planning) =
            self.explained(statement, &portal.params, &portal.prepared.param_types, flags.analyze).await?;
        let mut summary = Summary { planning_ms: Some(planning.as_secs_f64() * 1e3), ..Summary::default() };
        let mut stats = None;
        let hidden = fence(&plan.plan);
        if flags.analyze {
            let start = Instant::now();
            let (did, cpu) = with_cpu_time(self.analyzed(&plan, &params, portal)).await;
            let did = did?;
            summary.execution_ms = Some(start.elapsed().as_secs_f64() * 1e3);
            if hidden == ScanFence::None {
                summary.facts.push(("KV Requests".into(), did.requests().to_string()));
                summary.facts.push(("KV Bytes Read".into(), did.bytes().to_string()));
            }
            if options.timing {
                summary.facts.push(("SQL CPU Time".into(), format!("{:.3} ms", cpu.as_secs_f64() * 1e3)));
            }
            stats = Some(did);
        }
        let root: &Plan = &plan.plan;
        let times = Times { transaction: now_micros(), statement: now_micros() };
        let eval = self.view.eval(times);
        let env = EvalEnv { eval: &eval, params: &params, outer: None };
        let (choice, codecs) = (self.view.derived.partial_aggregates, &self.shared.engine.codecs);
        let partial = |plan: &Plan| match &stats {
            Some(stats) => stats.of(plan).partial,
            None => partial_aggregate_applies(plan, choice, codecs, &env),
        };
        let actual = |plan: &Plan| {
            // Below the conditions of policies, rows are counted that they hide.
            let shown = stats.as_ref().filter(|_| hidden != ScanFence::Part || std::ptr::eq(plan, root));
            shown.map(|stats: &PlanStats| {
                let did = stats.of(plan);
                Actual {
                    rows: did.rows,
                    loops: did.loops,
                    time_ms: did.time.as_secs_f64() * 1e3,
                    removed: if hidden == ScanFence::None { did.removed } else { 0 },
                    memory: did.memory,
                }
            })
        };
        let node = describe(root, &options, &actual, &partial);
        let lines = render(&node, &options, &summary).into_iter();
        Ok(lines.map(|line| vec![Datum::text(self.view.explained(line))]).collect())
    }

    async fn analyzed(
        &mut self,
        plan: &CachedPlan,
        params: &[Datum],
        portal: &Portal,
    ) -> SqlResult<PlanStats> {
        self.lock_as_planned(plan).await?;
        self.admit(plan).await?;
        let view = self.view.clone();
        let stats = PlanStats::default();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::internal("no transaction"));
        };
        let environment = Environment {
            view: &view,
            times: Times { transaction: open.started, statement: now_micros() },
            params,
            memory: &portal.memory,
            implicit_commit: false,
            stats: Some(&stats),
        };
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        let mut stream = execute(&plan.plan, &cx)?;
        stream.finish(&cx).await?;
        drop(stream);
        open.used = true;
        Ok(stats)
    }
}
