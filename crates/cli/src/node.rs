//! `dormouse node`: the nodes of the cluster.

use crate::api::Api;
use crate::data_dir::DataDirArgs;
use crate::error::{Failure, Outcome};
use crate::output::{Format, OutputArgs, line, print_json, rows, table};
use serde_json::{Value, json};
use std::time::Duration;

/// Between two looks at a node that is drained.
const DRAIN_POLL: Duration = Duration::from_millis(500);
/// How many times in a row it may be listed as if it were not being drained: whoever lists it may not have heard yet.
const STALE_LISTINGS: u32 = 5;

/// Arguments of `dormouse node`.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List KV nodes, or SQL nodes
    List {
        /// List SQL nodes instead
        #[arg(long)]
        sql: bool,
    },
    /// Move everything away from a KV node, and wait until it can be stopped without anybody noticing
    Drain {
        /// Number of the node
        id: u64,
        /// Let the node take part again instead
        #[arg(long)]
        undo: bool,
    },
}

/// Runs the command.
pub(crate) fn run(args: &NodeArgs) -> Outcome {
    let api = Api::of(&args.data_dir)?;
    match args.command {
        Command::List { sql } => list(&api, sql, args.output.output),
        Command::Drain { id, undo } => drain(&api, id, undo, args.output.output),
    }
}

fn list(api: &Api, sql: bool, format: Format) -> Outcome {
    let (path, columns): (&str, &[(&str, &str)]) = if sql {
        let columns = &[
            ("NAME", "name"),
            ("STATE", "state"),
            ("TENANT ID", "tenant_id"),
            ("CONNECTIONS", "connections"),
            ("PID", "pid"),
        ];
        ("/sql-nodes", columns)
    } else {
        let columns = &[
            ("ID", "id"),
            ("ADDRESS", "address"),
            ("LOCALITY", "locality"),
            ("STATE", "state"),
            ("REPLICAS", "replicas"),
            ("LEASES", "leases"),
            ("PID", "pid"),
        ];
        ("/nodes", columns)
    };
    let nodes = api.get(path)?["nodes"].take();
    match (format, nodes) {
        (Format::Table, Value::Array(nodes)) => {
            let (headings, fields): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
            table(&headings, rows(&nodes, &fields))
        }
        (_, nodes) => print_json(&nodes),
    }
}

/// Begins to drain a node and, unless that is undone, follows it to the end. Whoever stops waiting stops
/// nothing else.
fn drain(api: &Api, id: u64, undo: bool, format: Format) -> Outcome {
    let mut node = api.post(&format!("/nodes/{id}/drain"), &json!({ "undo": undo }))?;
    let (mut said, mut live) = (String::new(), 0);
    while !undo && !is_drained(&node) {
        let progress = progress(&node);
        if format == Format::Table && said != progress {
            line(format_args!("node {id}: {progress}"))?;
            said = progress;
        }
        std::thread::sleep(DRAIN_POLL);
        let nodes = api.get("/nodes")?["nodes"].take();
        let listed = nodes.as_array().and_then(|nodes| nodes.iter().find(|node| node["id"] == id));
        node = listed.cloned().ok_or_else(|| Failure::new(format!("node {id} is no longer listed")))?;
        live = if node["state"] == "live" { live + 1 } else { 0 };
        if live > STALE_LISTINGS {
            return Err(Failure::new(format!("node {id} is no longer being drained"))
                .hint("Somebody else ended it with --undo."));
        }
    }
    match format {
        Format::Json => print_json(&node),
        Format::Table if undo => line(format_args!("node {id} takes part again")),
        Format::Table => {
            line(format_args!("node {id} has neither leases nor replicas: it can be stopped safely"))
        }
    }
}

/// Whether a node has nothing left that anybody would miss.
fn is_drained(node: &Value) -> bool {
    node["leaseholder"] == false && node["leases"] == 0 && node["replicas"] == 0
}

/// What a node still has, for people.
fn progress(node: &Value) -> String {
    let counted = |field: &str, one: &str| {
        let count = node[field].as_u64().unwrap_or_default();
        format!("{count} {one}{}", if count == 1 { "" } else { "s" })
    };
    let state = node["state"].as_str().unwrap_or_default();
    format!("{state}, {}, {}", counted("leases", "lease"), counted("replicas", "replica"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_drained_when_it_has_neither_lease_nor_replicas() {
        let node = |leases: u64, replicas: u64| {
            let leaseholder = leases > 0;
            json!({ "state": "draining", "leaseholder": leaseholder, "leases": leases, "replicas": replicas })
        };
        assert!(is_drained(&node(0, 0)));
        assert!(!is_drained(&node(1, 0)) && !is_drained(&node(0, 1)));
        assert!(!is_drained(&json!({})), "an answer that says nothing promises nothing");
        assert_eq!(progress(&node(1, 2)), "draining, 1 lease, 2 replicas");
        assert_eq!(progress(&node(0, 1)), "draining, 0 leases, 1 replica");
    }
}
