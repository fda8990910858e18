//! `dormouse node list`: the nodes of the cluster.

use crate::api::Api;
use crate::data_dir::DataDirArgs;
use crate::error::Outcome;
use crate::output::{Format, OutputArgs, print_json, rows, table};
use serde_json::Value;

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
}

/// Runs the command.
pub(crate) fn run(args: &NodeArgs) -> Outcome {
    let Command::List { sql } = args.command;
    let api = Api::of(&args.data_dir)?;
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
            ("PID", "pid"),
        ];
        ("/nodes", columns)
    };
    let nodes = api.get(path)?["nodes"].take();
    match (args.output.output, nodes) {
        (Format::Table, Value::Array(nodes)) => {
            let (headings, fields): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
            table(&headings, rows(&nodes, &fields))
        }
        (_, nodes) => print_json(&nodes),
    }
}
