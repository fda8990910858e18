//! A table, or the result of a query, to files.

mod csv;
mod parquet;
mod parts;

use crate::args::{ExportArgs, Format, Output};
use crate::error::{Error, Result};
use crate::name;
use crate::print;
use crate::progress::{Progress, rate};
use crate::store::Location;
use indicatif::{HumanBytes, HumanCount};
use parts::{Part, Parts};
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// A column of what is exported.
struct Column {
    name: String,
    ty: Type,
    modifier: i32,
}

/// Exports what is asked for and prints a summary. To be called on a runtime with several threads.
///
/// # Errors
/// What is wrong with the arguments or the query, or where files cannot be written. There are no files then.
pub async fn export(args: &ExportArgs) -> Result<()> {
    let (table, destination) = places(args)?;
    let destination = Location::parse(destination)?;
    let format = args.common.format_of(&destination.to_string())?;
    let target = args.common.target()?;
    let parts = tokio::task::block_in_place(|| {
        Parts::new(args.common.store(), destination, args.max_file_bytes, args.overwrite)
    })?;
    let connected = target.reconnect().await;
    let (client, _connection) =
        connected.map_err(|error| Error::new(format!("cannot connect: {error:#}")))?;
    begin(&client, args.as_of.as_deref()).await?;
    let query = match (&args.query, table) {
        (Some(query), _) => query.trim().trim_end_matches(';').to_owned(),
        (None, table) => table_query(&client, table.unwrap_or_default()).await?,
    };
    let columns = columns(&client, &query).await?;
    let progress = Progress::new(args.common.quiet, None);
    let work = async {
        let parts = match format {
            Format::Csv => csv::export(args, &client, &query, parts, &progress).await?,
            Format::Parquet => parquet::export(args, &client, &query, &columns, parts, &progress).await?,
        };
        // What a transaction has read holds when it commits.
        client.batch_execute("COMMIT").await?;
        tokio::task::block_in_place(|| parts.finish())
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        // What was written has temporary names, and is removed when it is dropped.
        _ = tokio::signal::ctrl_c() => Err(Error::new("interrupted")),
    };
    progress.finish();
    report(args, &outcome?, &progress);
    Ok(())
}

/// The table, unless there is a query, and the destination.
fn places(args: &ExportArgs) -> Result<(Option<&str>, &str)> {
    match (args.places.as_slice(), &args.query) {
        ([table, destination], None) => Ok((Some(table), destination)),
        ([destination], Some(_)) => Ok((None, destination)),
        ([_], None) => Err(Error::new("a table or --query, and a destination are needed")
            .hint("dormouse export TABLE DEST, or dormouse export --query SQL DEST")),
        _ => Err(Error::new("a table and --query cannot both be exported")),
    }
}

/// Begins the transaction whose snapshot is exported.
async fn begin(client: &Client, as_of: Option<&str>) -> Result<()> {
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    if let Some(time) = as_of {
        let statement = format!("SET TRANSACTION AS OF SYSTEM TIME {}", name::literal(time));
        client.batch_execute(&statement).await.map_err(|error| Error::from(error).at("--as-of"))?;
    }
    Ok(())
}

/// The query that exports a table: its columns but for generated ones, which nothing can be imported into.
async fn table_query(client: &Client, table: &str) -> Result<String> {
    let table = name::table(table)?;
    let catalog = "SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 \
                   AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum";
    let rows = client.query(catalog, &[&table]).await?;
    let names = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<String>, _>>()?;
    if names.is_empty() {
        return Err(Error::new(format!("relation {table} does not exist or has no columns")));
    }
    Ok(format!("SELECT {} FROM {table}", name::identifiers(&names)))
}

/// The columns of a query's result.
async fn columns(client: &Client, query: &str) -> Result<Vec<Column>> {
    let statement = client.prepare(query).await?;
    let column = |column: &tokio_postgres::Column| Column {
        name: column.name().to_owned(),
        ty: column.type_().clone(),
        modifier: column.type_modifier(),
    };
    match statement.columns() {
        [] => Err(Error::new("the query has no columns")),
        _ if !statement.params().is_empty() => Err(Error::new("the query has parameters")),
        columns => Ok(columns.iter().map(column).collect()),
    }
}

fn report(args: &ExportArgs, parts: &[Part], progress: &Progress) {
    let rows: u64 = parts.iter().map(|part| part.rows).sum();
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    let elapsed = progress.elapsed();
    match args.common.output {
        Output::Json => {
            let files = parts.iter().map(
                |part| json!({ "file": part.location.to_string(), "rows": part.rows, "bytes": part.bytes }),
            );
            let summary = json!({
                "rows": rows,
                "bytes": bytes,
                "seconds": elapsed.as_secs_f64(),
                "rows_per_second": rate(rows, elapsed),
                "files": files.collect::<Vec<_>>(),
            });
            print(format_args!("{summary:#}"));
        }
        Output::Table => {
            let (count, plural) = (parts.len(), if parts.len() == 1 { "" } else { "s" });
            let (seconds, rate) = (elapsed.as_secs_f64(), HumanCount(rate(rows, elapsed)));
            let (rows, bytes) = (HumanCount(rows), HumanBytes(bytes));
            print(format_args!(
                "{rows} rows in {count} file{plural}, {bytes}, in {seconds:.1} s, {rate} rows/s"
            ));
            parts.iter().for_each(|part| print(&part.location));
        }
    }
}
