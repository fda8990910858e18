//! Rows to Parquet: the server sends them in binary form.

use super::Column;
use super::parts::Parts;
use crate::args::{Compression, ExportArgs};
use crate::error::{Error, Result};
use crate::name;
use crate::parquet::{ColumnPlan, FileWriter, plan};
use crate::progress::Progress;
use futures::StreamExt;
use std::io::BufWriter;
use std::pin::pin;
use tempfile::NamedTempFile;
use tokio::task::block_in_place;
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::types::{FromSql, Type};

/// Longest value, in bytes.
const LARGEST_VALUE: usize = 64 << 20;

/// Exports a query with the given columns; the files are complete and have no names yet.
pub async fn export(
    args: &ExportArgs,
    client: &Client,
    query: &str,
    columns: &[Column],
    parts: Parts,
    progress: &Progress,
) -> Result<Parts> {
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    name::check_columns(&names)
        .map_err(|error| error.hint("Give the columns of the query names of their own: AS."))?;
    let types = types(client, columns).await?;
    let plans: Vec<ColumnPlan> =
        columns.iter().map(|column| plan(&column.name, &column.ty, column.modifier)).collect();
    let statement = format!("COPY ({}\n) TO STDOUT WITH (FORMAT binary)", as_text(query, &plans));
    let stream = client.copy_out(&statement).await?;
    let sent: Vec<Type> = columns.iter().map(|column| column.ty.clone()).collect();
    let mut rows = pin!(BinaryCopyOutStream::new(stream, &sent));
    let mut writer = Writer::new(parts, &plans, &types, args.compression, progress)?;
    while let Some(row) = rows.next().await {
        let row = row?;
        for position in 0..plans.len() {
            let value: Option<Raw<'_>> = row.try_get(position)?;
            writer.value(position, value.map(|raw| raw.0))?;
        }
        writer.end_row()?;
    }
    writer.finish()
}

/// The query with the columns written as text that have to be.
fn as_text(query: &str, plans: &[ColumnPlan]) -> String {
    if !plans.iter().any(|plan| plan.as_text) {
        return query.to_owned();
    }
    let column = |plan: &ColumnPlan| {
        let name = name::identifier(&plan.name);
        if plan.as_text { format!("{name}::text") } else { name }
    };
    let columns: Vec<String> = plans.iter().map(column).collect();
    format!("SELECT {} FROM ({query}\n) AS exported", columns.join(", "))
}

/// The names of the columns' types, as SQL writes them.
async fn types(client: &Client, columns: &[Column]) -> Result<Vec<String>> {
    let mut types = Vec::with_capacity(columns.len());
    for column in columns {
        let row =
            client.query_one("SELECT format_type($1, $2)", &[&column.ty.oid(), &column.modifier]).await?;
        types.push(row.try_get(0)?);
    }
    Ok(types)
}

/// A value in its binary form.
struct Raw<'v>(&'v [u8]);

impl<'v> FromSql<'v> for Raw<'v> {
    fn from_sql(
        _: &Type,
        raw: &'v [u8],
    ) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

type File = FileWriter<BufWriter<NamedTempFile>>;

struct Writer<'p> {
    parts: Parts,
    plans: &'p [ColumnPlan],
    types: &'p [String],
    compression: Compression,
    progress: &'p Progress,
    file: File,
    /// Rows of the file, of the row group in it, and of all.
    rows: u64,
    group_rows: u64,
    rows_done: u64,
}

impl<'p> Writer<'p> {
    fn new(
        parts: Parts,
        plans: &'p [ColumnPlan],
        types: &'p [String],
        compression: Compression,
        progress: &'p Progress,
    ) -> Result<Self> {
        let file = begin(&parts, plans, types, compression)?;
        Ok(Self { parts, plans, types, compression, progress, file, rows: 0, group_rows: 0, rows_done: 0 })
    }

    fn value(&mut self, column: usize, value: Option<&[u8]>) -> Result<()> {
        let number = self.rows_done + 1;
        if value.is_some_and(|value| value.len() > LARGEST_VALUE) {
            let message = format!("row {number} has a value longer than {} MiB", LARGEST_VALUE >> 20);
            return Err(Error::new(message));
        }
        self.file.push(column, value).map_err(|error| error.at(format_args!("row {number}")))
    }

    fn end_row(&mut self) -> Result<()> {
        self.rows += 1;
        self.group_rows += 1;
        self.rows_done += 1;
        if !self.file.is_group_full() {
            return Ok(());
        }
        let (before, group) = self.file.size();
        block_in_place(|| self.file.end_group())?;
        let (after, _) = self.file.size();
        self.progress.add(std::mem::take(&mut self.group_rows), after.saturating_sub(before));
        // Another row group would take no more than this one did before it was encoded.
        if self.parts.largest.is_some_and(|largest| after + group > largest) {
            let next = begin(&self.parts, self.plans, self.types, self.compression)?;
            let file = std::mem::replace(&mut self.file, next);
            let rows = std::mem::take(&mut self.rows);
            block_in_place(|| end(&mut self.parts, file, rows))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Parts> {
        let Self { mut parts, file, rows, group_rows, progress, .. } = self;
        progress.add(group_rows, 0);
        // A split may have come right behind the last row.
        if rows > 0 || parts.is_empty() {
            block_in_place(|| end(&mut parts, file, rows))?;
        }
        Ok(parts)
    }
}

fn begin(parts: &Parts, plans: &[ColumnPlan], types: &[String], compression: Compression) -> Result<File> {
    FileWriter::new(BufWriter::new(parts.begin()?), plans, types, compression, parts.largest)
}

fn end(parts: &mut Parts, file: File, rows: u64) -> Result<()> {
    let file = file.finish()?.into_inner();
    let file = file.map_err(|error| Error::new(format!("cannot write: {}", error.error())))?;
    parts.end(file, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_columns_that_need_it_are_written_as_text() {
        let plans = [plan("a", &Type::INT4, -1), plan("b\"", &Type::INTERVAL, -1)];
        assert_eq!(
            as_text("SELECT 1", &plans),
            "SELECT \"a\", \"b\"\"\"::text FROM (SELECT 1\n) AS exported"
        );
        assert_eq!(as_text("SELECT 1", &plans[..1]), "SELECT 1");
    }
}
