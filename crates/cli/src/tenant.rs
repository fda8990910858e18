//! `dormouse tenant`: create, list, show, suspend, resume, drop, set.

use crate::api::{Api, escape, pages};
use crate::data_dir::DataDirArgs;
use crate::duration::{self, IdleTimeout};
use crate::error::{Failure, Outcome};
use crate::locality;
use crate::output::{Format, OutputArgs, line, note, print_json, rows, spinner, table};
use control::placement::{GC_TTL, REPLICAS};
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write, stdin, stdout};
use std::time::Duration;

/// Columns of a table of tenants, and the fields they show.
const COLUMNS: [(&str, &str); 7] = [
    ("NAME", "name"),
    ("ID", "id"),
    ("STATE", "state"),
    ("CONNECTIONS", "connections"),
    ("SQL NODE", "node"),
    ("IDLE TIMEOUT", "idle_timeout"),
    ("CREATED", "created_at"),
];

/// Further columns where there is one tenant to show.
const PLACEMENT: [(&str, &str); 4] = [
    ("REPLICAS", "wanted"),
    ("CONSTRAINTS", "constraints"),
    ("LEASE PREFERENCES", "lease_preferences"),
    ("GC TTL", "gc_ttl"),
];

/// Arguments of `dormouse tenant`.
#[derive(Debug, clap::Args)]
pub(crate) struct TenantArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a tenant and print the URL to connect with
    Create {
        /// Its name: a-z, 0-9 and -, beginning with a letter
        name: String,
        /// Suspend it after this time without connections, or never [default: as the system]
        #[arg(long, value_name = "TIME", value_parser = duration::parse_idle)]
        idle_timeout: Option<IdleTimeout>,
        /// Most connections at a time [default: no limit of its own]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        max_connections: Option<u32>,
    },
    /// List all tenants
    List,
    /// Show one tenant
    Show {
        /// Its name
        name: String,
    },
    /// Put a tenant to sleep now
    Suspend {
        /// Its name
        name: String,
        /// Disconnect its clients
        #[arg(long)]
        force: bool,
    },
    /// Wake a tenant now
    Resume {
        /// Its name
        name: String,
    },
    /// Delete a tenant and all its data
    Drop {
        /// Its name
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Change a tenant's settings
    Set {
        /// Its name
        name: String,
        #[command(flatten)]
        changes: SetArgs,
    },
}

/// What `dormouse tenant set` changes.
#[derive(Debug, clap::Args)]
struct SetArgs {
    /// Suspend it after this time without connections, never, or as the system does: default
    #[arg(long, value_name = "TIME", value_parser = changed_idle)]
    idle_timeout: Option<Changed<IdleTimeout>>,
    /// Most connections at a time; default for no limit of its own
    #[arg(long, value_name = "NUMBER", value_parser = changed_connections)]
    max_connections: Option<Changed<u32>>,
    /// Replicas of its data, 1 to 7, or default
    #[arg(long, value_name = "NUMBER", value_parser = changed_replicas)]
    replicas: Option<Changed<u32>>,
    /// Replicas only on nodes with this in their locality; repeat it for more. Replaces those of before
    #[arg(long = "constraint", value_name = "KEY=VALUE", value_parser = locality::parse_pair)]
    constraints: Vec<String>,
    /// Replicas on any node
    #[arg(long, conflicts_with = "constraints")]
    no_constraints: bool,
    /// The lease on a node with this in its locality, if there is one; repeat it for others, the dearest
    /// first. Replaces those of before
    #[arg(long = "lease-preference", value_name = "KEY=VALUE", value_parser = locality::parse_pair)]
    lease_preferences: Vec<String>,
    /// The lease on any node
    #[arg(long, conflicts_with = "lease_preferences")]
    no_lease_preferences: bool,
    /// How long replaced versions of rows are kept, 1m to 30d, or default
    #[arg(long, value_name = "TIME", value_parser = changed_gc_ttl)]
    gc_ttl: Option<Changed<u64>>,
}

impl SetArgs {
    /// The fields to change. Of what is a list, the new one whole.
    fn body(&self) -> Map<String, Value> {
        let idle = self.idle_timeout.map(|time| json!(time.0.map(IdleTimeout::as_ms)));
        let list = |pairs: &Vec<String>, none: bool| (none || !pairs.is_empty()).then(|| json!(pairs));
        let fields = [
            ("idle_timeout_ms", idle),
            ("max_connections", self.max_connections.map(|most| json!(most.0))),
            ("replicas", self.replicas.map(|replicas| json!(replicas.0))),
            ("constraints", list(&self.constraints, self.no_constraints)),
            ("lease_preferences", list(&self.lease_preferences, self.no_lease_preferences)),
            ("gc_ttl_s", self.gc_ttl.map(|ttl| json!(ttl.0))),
        ];
        fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect()
    }
}

/// A new value, or the return to the default.
#[derive(Debug, Clone, Copy)]
struct Changed<T>(Option<T>);

fn changed_idle(text: &str) -> Result<Changed<IdleTimeout>, String> {
    if text == "default" { Ok(Changed(None)) } else { duration::parse_idle(text).map(|t| Changed(Some(t))) }
}

fn changed_connections(text: &str) -> Result<Changed<u32>, String> {
    match text {
        "default" => Ok(Changed(None)),
        text => match text.parse() {
            Ok(0) | Err(_) => Err("write a number greater than 0, or default".into()),
            Ok(number) => Ok(Changed(Some(number))),
        },
    }
}

fn changed_replicas(text: &str) -> Result<Changed<u32>, String> {
    match text {
        "default" => Ok(Changed(None)),
        text => match text.parse() {
            Ok(replicas) if REPLICAS.contains(&replicas) => Ok(Changed(Some(replicas))),
            _ => Err(format!("write a number from {} to {}, or default", REPLICAS.start(), REPLICAS.end())),
        },
    }
}

/// In whole seconds.
fn changed_gc_ttl(text: &str) -> Result<Changed<u64>, String> {
    match text {
        "default" => Ok(Changed(None)),
        text => match duration::parse(text)? {
            ttl if GC_TTL.contains(&ttl) && ttl.subsec_nanos() == 0 => Ok(Changed(Some(ttl.as_secs()))),
            _ => Err(format!(
                "write whole seconds, minutes, hours or days from {} to {}, or default",
                duration::text(*GC_TTL.start()),
                duration::text(*GC_TTL.end())
            )),
        },
    }
}

/// Runs the command.
pub(crate) fn run(args: &TenantArgs) -> Outcome {
    let api = Api::of(&args.data_dir)?;
    let format = args.output.output;
    match &args.command {
        Command::Create { name, idle_timeout, max_connections } => {
            let mut body = Map::from_iter([("name".to_owned(), json!(name))]);
            body.extend(idle_timeout.map(|timeout| ("idle_timeout_ms".to_owned(), json!(timeout.as_ms()))));
            body.extend(max_connections.map(|most| ("max_connections".to_owned(), json!(most))));
            let tenant = spinner("creating", || api.post("/tenants", &Value::Object(body)))?;
            print_created(&tenant, format)
        }
        Command::List => {
            let tenants = pages(&api, "/tenants", &[], "tenants", None)?;
            match format {
                Format::Json => print_json(&Value::Array(tenants)),
                Format::Table => print_tenants(tenants, &COLUMNS),
            }
        }
        Command::Show { name } => print_one(api.get(&path(name, ""))?, format),
        Command::Suspend { name, force } => {
            let body = json!({ "force": force });
            print_one(spinner("suspending", || api.post(&path(name, "/suspend"), &body))?, format)
        }
        Command::Resume { name } => {
            print_one(spinner("waking", || api.post(&path(name, "/resume"), &json!({})))?, format)
        }
        Command::Drop { name, yes } => {
            if !yes {
                confirm_drop(name)?;
            }
            spinner("dropping", || api.delete(&path(name, "")))?;
            match format {
                Format::Json => print_json(&json!({ "name": name, "dropped": true })),
                Format::Table => line(format_args!("tenant {name} was dropped")),
            }
        }
        Command::Set { name, changes } => {
            let body = changes.body();
            if body.is_empty() {
                return Err(Failure::usage("nothing to set")
                    .hint("\"dormouse tenant set --help\" lists what can be."));
            }
            print_one(api.patch(&path(name, ""), &Value::Object(body))?, format)
        }
    }
}

fn path(name: &str, action: &str) -> String {
    format!("/tenants/{}{action}", escape(name))
}

/// Asks a person, not a program: without a terminal there is nobody to ask.
fn confirm_drop(name: &str) -> Outcome {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Ok(());
    }
    print!("This deletes all data of tenant {name}. Type its name to go on: ");
    // If the question cannot be shown, the answer will not fit.
    let _ = stdout().flush();
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    match read {
        Ok(_) if answer.trim() == name => Ok(()),
        _ => Err(Failure::new("nothing was dropped").hint("--yes does not ask.")),
    }
}

fn print_created(tenant: &Value, format: Format) -> Outcome {
    match format {
        Format::Json => print_json(tenant),
        Format::Table => {
            line(tenant["url"].as_str().unwrap_or_default())?;
            note("The password in this URL is not shown again.");
            Ok(())
        }
    }
}

fn print_one(tenant: Value, format: Format) -> Outcome {
    match format {
        Format::Json => print_json(&tenant),
        Format::Table => print_tenants(vec![tenant], &[&COLUMNS[..], &PLACEMENT[..]].concat()),
    }
}

fn print_tenants(mut tenants: Vec<Value>, columns: &[(&str, &str)]) -> Outcome {
    for tenant in &mut tenants {
        tenant["idle_timeout"] = match tenant["idle_timeout_ms"].as_u64() {
            None => json!("default"),
            Some(0) => json!("never"),
            Some(ms) => json!(duration::text(Duration::from_millis(ms))),
        };
        tenant["wanted"] = tenant["replicas"].as_u64().map_or_else(|| json!("default"), Value::from);
        tenant["gc_ttl"] = match tenant["gc_ttl_s"].as_u64() {
            None => json!("default"),
            Some(ttl) => json!(duration::text(Duration::from_secs(ttl))),
        };
        tenant["created_at"] = json!(timestamp(tenant["created"].as_u64().unwrap_or(0)));
    }
    let (headings, fields): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
    table(&headings, rows(&tenants, &fields))
}

/// Seconds since 1970 as a date and time in UTC.
fn timestamp(unix_s: u64) -> String {
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 0000-03-01, in eras of 400 years, with the year beginning in March.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(flags: &[&str]) -> Result<Value, clap::Error> {
        #[derive(clap::Parser)]
        struct Parsed {
            #[command(flatten)]
            changes: SetArgs,
        }
        let parsed = <Parsed as clap::Parser>::try_parse_from([&["set"], flags].concat())?;
        Ok(Value::Object(parsed.changes.body()))
    }

    #[test]
    fn settings_are_sent_as_they_are_written() {
        let all = ["--idle-timeout", "never", "--max-connections", "9", "--replicas", "5", "--constraint"];
        let more =
            ["region=eu", "--constraint", "disk=ssd", "--lease-preference", "zone=a", "--gc-ttl", "1h"];
        let sent = json!({
            "idle_timeout_ms": 0, "max_connections": 9, "replicas": 5, "constraints": ["region=eu", "disk=ssd"],
            "lease_preferences": ["zone=a"], "gc_ttl_s": 3600,
        });
        assert_eq!(changes(&[&all[..], &more[..]].concat()).unwrap(), sent);
        assert_eq!(changes(&[]).unwrap(), json!({}));
        let cleared =
            ["--no-constraints", "--no-lease-preferences", "--replicas", "default", "--gc-ttl", "default"];
        let sent = json!({ "constraints": [], "lease_preferences": [], "replicas": null, "gc_ttl_s": null });
        assert_eq!(changes(&cleared).unwrap(), sent);
    }

    #[test]
    fn settings_that_cannot_be_are_wrong_usage() {
        for bad in [
            &["--replicas", "0"][..],
            &["--replicas", "8"],
            &["--gc-ttl", "59s"],
            &["--gc-ttl", "31d"],
            &["--gc-ttl", "60500ms"],
            &["--gc-ttl", "60"],
            &["--constraint", "zone"],
            &["--constraint", "region=eu,zone=a"],
            &["--lease-preference", "=a"],
            &["--constraint", "zone=a", "--no-constraints"],
            &["--lease-preference", "zone=a", "--no-lease-preferences"],
        ] {
            assert!(changes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00Z");
        assert_eq!(timestamp(951_782_399), "2000-02-28 23:59:59Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(timestamp(4_107_542_400), "2100-03-01 00:00:00Z");
        assert_eq!(timestamp(1_704_067_199), "2023-12-31 23:59:59Z");
    }
}
