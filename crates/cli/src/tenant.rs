//! `dormouse tenant`: create, list, show, suspend, resume, drop, set.

use crate::api::{Api, escape};
use crate::data_dir::DataDirArgs;
use crate::duration::{self, IdleTimeout};
use crate::error::{Failure, Outcome};
use crate::output::{Format, OutputArgs, line, note, print_json, rows, spinner, table};
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write, stdin, stdout};

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
        /// Suspend it after this time without connections, never, or as the system does: default
        #[arg(long, value_name = "TIME", value_parser = changed_idle)]
        idle_timeout: Option<Changed<IdleTimeout>>,
        /// Most connections at a time; default for no limit of its own
        #[arg(long, value_name = "NUMBER", value_parser = changed_connections)]
        max_connections: Option<Changed<u32>>,
    },
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
            let tenants = list(&api)?;
            match format {
                Format::Json => print_json(&Value::Array(tenants)),
                Format::Table => print_tenants(tenants),
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
        Command::Set { name, idle_timeout, max_connections } => {
            let mut body = Map::new();
            body.extend(
                idle_timeout.map(|t| ("idle_timeout_ms".to_owned(), json!(t.0.map(IdleTimeout::as_ms)))),
            );
            body.extend(max_connections.map(|most| ("max_connections".to_owned(), json!(most.0))));
            if body.is_empty() {
                return Err(
                    Failure::usage("nothing to set").hint("Give --idle-timeout or --max-connections.")
                );
            }
            print_one(api.patch(&path(name, ""), &Value::Object(body))?, format)
        }
    }
}

fn path(name: &str, action: &str) -> String {
    format!("/tenants/{}{action}", escape(name))
}

/// All tenants, page by page.
fn list(api: &Api) -> Outcome<Vec<Value>> {
    let mut tenants = Vec::new();
    let mut query = String::new();
    loop {
        let mut page = api.get(&format!("/tenants{query}"))?;
        if let Value::Array(found) = page["tenants"].take() {
            tenants.extend(found);
        }
        match page["next"].as_str() {
            Some(after) => query = format!("?after={}", escape(after)),
            None => return Ok(tenants),
        }
    }
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
        Format::Table => print_tenants(vec![tenant]),
    }
}

fn print_tenants(mut tenants: Vec<Value>) -> Outcome {
    for tenant in &mut tenants {
        tenant["idle_timeout"] = match tenant["idle_timeout_ms"].as_u64() {
            None => json!("default"),
            Some(0) => json!("never"),
            Some(ms) => json!(IdleTimeout(Some(std::time::Duration::from_millis(ms))).to_string()),
        };
        tenant["created_at"] = json!(timestamp(tenant["created"].as_u64().unwrap_or(0)));
    }
    table(&COLUMNS.map(|(heading, _)| heading), rows(&tenants, &COLUMNS.map(|(_, field)| field)))
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

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00Z");
        assert_eq!(timestamp(951_782_399), "2000-02-28 23:59:59Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(timestamp(4_107_542_400), "2100-03-01 00:00:00Z");
        assert_eq!(timestamp(1_704_067_199), "2023-12-31 23:59:59Z");
    }
}
