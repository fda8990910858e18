//! `dormouse debug ranges`: whose ranges there are, and where they are.

use crate::api::{Api, pages};
use crate::error::Outcome;
use crate::output::{Format, print_json, rows, table};
use serde_json::Value;

/// Columns of a table of ranges, and the fields they show.
const COLUMNS: [(&str, &str); 8] = [
    ("ID", "id"),
    ("TENANT ID", "tenant_id"),
    ("TENANT", "tenant"),
    ("REPLICAS", "replicas"),
    ("LEASEHOLDER", "leaseholder"),
    ("GENERATION", "generation"),
    ("CONSTRAINTS", "constraints"),
    ("LEASE PREFERENCES", "lease_preferences"),
];

/// Arguments of `dormouse debug ranges`.
#[derive(Debug, clap::Args)]
pub(crate) struct RangesArgs {
    /// Only those of this tenant; system is where control keeps its records
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Most ranges to list [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// Runs the command.
pub(crate) fn run(api: &Api, args: &RangesArgs, format: Format) -> Outcome {
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    let ranges = list(api, args.tenant.as_deref(), limit)?;
    match format {
        Format::Json => print_json(&Value::Array(ranges)),
        Format::Table => {
            table(&COLUMNS.map(|(heading, _)| heading), rows(&ranges, &COLUMNS.map(|(_, field)| field)))
        }
    }
}

/// The ranges of a tenant, or all, in the order of their keys.
pub(crate) fn list(api: &Api, tenant: Option<&str>, limit: Option<usize>) -> Outcome<Vec<Value>> {
    let filter: Vec<_> = tenant.map(|name| ("tenant", name)).into_iter().collect();
    pages(api, "/ranges", &filter, "ranges", limit)
}
