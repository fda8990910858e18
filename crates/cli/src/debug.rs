//! `dormouse debug`: what a system on this machine is made of.

use crate::api::Api;
use crate::check_replicas;
use crate::data_dir::{DataDirArgs, Paths, not_running};
use crate::error::Outcome;
use crate::kv_load;
use crate::output::{Format, OutputArgs, line, print_json, rows, table};
use crate::ranges;
use crate::supervisor::parent;
use process::metrics::Usage;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// Arguments of `dormouse debug`.
#[derive(Debug, clap::Args)]
pub(crate) struct DebugArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Memory and CPU time of every process of the system
    Processes,
    /// List ranges: whose they are, and where they are
    Ranges(ranges::RangesArgs),
    /// Split the range that holds a key, so that the key is the first of a new one
    Split {
        /// The key, in hexadecimal digits as "dormouse debug ranges" shows keys
        key: String,
    },
    /// Have a range absorb the one that follows it, if both are of one tenant, kept alike and not too large
    Merge {
        /// The number of the range, as "dormouse debug ranges" shows it
        range: u64,
    },
    /// Compare the replicas of every range; fails if any disagree
    CheckReplicas(check_replicas::CheckArgs),
    /// Put the KV layer under load, without SQL, and show what it costs
    KvLoad(kv_load::KvLoadArgs),
}

/// Runs the command.
pub(crate) fn run(args: &DebugArgs) -> Outcome {
    let format = args.output.output;
    match &args.command {
        Command::Processes => list_processes(&args.data_dir, format),
        Command::Ranges(ranges) => ranges::run(&Api::of(&args.data_dir)?, ranges, format),
        Command::Split { key } => split(&Api::of(&args.data_dir)?, key, format),
        Command::Merge { range } => merge(&Api::of(&args.data_dir)?, *range, format),
        Command::CheckReplicas(check) => check_replicas::run(&Api::of(&args.data_dir)?, check, format),
        Command::KvLoad(load) => kv_load::run(&args.data_dir, load, format),
    }
}

fn split(api: &Api, key: &str, format: Format) -> Outcome {
    api.post_and_wait("/ranges/split", &json!({ "key": key }))?;
    match format {
        Format::Json => print_json(&json!({ "split_at": key })),
        Format::Table => line(format!("a range begins at {key}")),
    }
}

fn merge(api: &Api, range: u64, format: Format) -> Outcome {
    api.post_and_wait(&format!("/ranges/{range}/merge"), &json!({}))?;
    match format {
        Format::Json => print_json(&json!({ "merged": range })),
        Format::Table => line(format!("range {range} has absorbed the one that followed it")),
    }
}

fn list_processes(data_dir: &DataDirArgs, format: Format) -> Outcome {
    let paths = data_dir.paths();
    let supervisor = paths.read_addresses()?.pid;
    let processes = processes(&paths, supervisor);
    if processes.is_empty() {
        return Err(not_running(paths.root()));
    }
    match format {
        Format::Json => print_json(&Value::Array(processes)),
        Format::Table => print_processes(processes),
    }
}

/// The supervisor and everything below it.
fn processes(paths: &Paths, supervisor: u32) -> Vec<Value> {
    let mut found: Vec<Value> = tree(supervisor).into_iter().filter_map(|pid| describe(paths, pid)).collect();
    found.sort_by_key(|process| process["pid"].as_u64());
    found
}

/// A process and its descendants.
fn tree(root: u32) -> HashSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: HashMap<u32, u32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut tree: HashSet<u32> = parents.contains_key(&root).then_some(root).into_iter().collect();
    loop {
        let before = tree.len();
        tree.extend(
            parents
                .iter()
                .filter(|(_, parent)| tree.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if tree.len() == before {
            return tree;
        }
    }
}

/// What a process is and uses; `None` if it has ended meanwhile.
fn describe(paths: &Paths, pid: u32) -> Option<Value> {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let arguments: Vec<String> =
        arguments.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let usage = Usage::of(&pid.to_string()).ok()?;
    let value = |flag| arguments.iter().position(|text| text == flag).and_then(|at| arguments.get(at + 1));
    // A KV node goes by the name of its directory.
    let store = value("--store").and_then(|store| Path::new(store).file_name()?.to_str().map(str::to_owned));
    let node = value("--node").cloned().or(store);
    Some(json!({
        "pid": pid,
        "role": arguments.get(1)?,
        "node": node,
        "tenant_id": node.as_ref().and_then(|node| tenant_of(paths, node)),
        "private_bytes": usage.private_bytes,
        "pss_bytes": usage.pss_bytes,
        "rss_bytes": usage.rss_bytes,
        "cpu_ms": usage.cpu_ms,
    }))
}

/// The tenant that control noted for a SQL node.
fn tenant_of(paths: &Paths, node: &str) -> Option<u64> {
    let note = fs::read_to_string(paths.run().join(format!("{node}.pid"))).ok()?;
    note.split_whitespace().nth(1)?.parse().ok()
}

fn print_processes(mut processes: Vec<Value>) -> Outcome {
    for process in &mut processes {
        for field in ["private_bytes", "pss_bytes", "rss_bytes"] {
            let bytes = process[field].as_f64().unwrap_or(0.0);
            process[field] = json!(format!("{:.1}", bytes / 1_048_576.0));
        }
        let cpu_ms = process["cpu_ms"].as_f64().unwrap_or(0.0);
        process["cpu_ms"] = json!(format!("{:.2}", cpu_ms / 1000.0));
    }
    table(
        &["PID", "ROLE", "NODE", "TENANT ID", "PRIVATE MiB", "PSS MiB", "RSS MiB", "CPU s"],
        rows(
            &processes,
            &["pid", "role", "node", "tenant_id", "private_bytes", "pss_bytes", "rss_bytes", "cpu_ms"],
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_its_own_tree() {
        assert!(tree(std::process::id()).contains(&std::process::id()));
        assert!(tree(u32::MAX).is_empty());
    }
}
