//! What commands print: tables for people, JSON for programs.

use crate::error::{Failure, Outcome};
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::{self, Write};
use std::time::Duration;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The choice of a format, shared by all commands that print results.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OutputArgs {
    /// How to print the result
    #[arg(long, global = true, value_enum, default_value = "table")]
    pub output: Format,
}

/// Prints a line. Whoever reads may stop reading, as `head` does: that is no error.
pub(crate) fn line(text: impl std::fmt::Display) -> Outcome {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells a person something that is not the result. Nobody may be listening.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints JSON.
pub(crate) fn print_json(value: &Value) -> Outcome {
    line(format_args!("{value:#}"))
}

/// Prints rows under a heading.
pub(crate) fn table(heading: &[&str], rows: Vec<Vec<String>>) -> Outcome {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for row in table.lines() {
        line(row.trim_end())?;
    }
    Ok(())
}

/// Shows that something is being done, if it takes long enough for a person to wonder.
pub(crate) fn spinner<T>(doing: &'static str, work: impl FnOnce() -> T) -> T {
    // Draws on standard error, and only if that is a terminal.
    let bar = ProgressBar::new_spinner().with_message(doing);
    bar.enable_steady_tick(Duration::from_millis(150));
    let result = work();
    bar.finish_and_clear();
    result
}

/// Shows how much of something is done, to a person at a terminal.
pub(crate) fn progress_bar(doing: &'static str, count: usize) -> ProgressBar {
    // Draws on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(u64::try_from(count).unwrap_or(u64::MAX)).with_message(doing);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A field of a JSON object as a cell.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".into(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The fields of objects as rows.
pub(crate) fn rows(objects: &[Value], fields: &[&str]) -> Vec<Vec<String>> {
    objects.iter().map(|object| fields.iter().map(|field| cell(&object[*field])).collect()).collect()
}
