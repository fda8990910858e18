//! Rows to CSV: the server writes them, here they are cut into files.

use super::parts::Parts;
use crate::args::ExportArgs;
use crate::csv::{LARGEST_RECORD, Scanner};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::store::cannot;
use futures::StreamExt;
use std::io::{BufWriter, Write};
use std::pin::pin;
use tempfile::NamedTempFile;
use tokio::task::block_in_place;
use tokio_postgres::Client;

/// Bytes between two looks at how far it is.
const STEP: u64 = 1 << 20;

/// Exports a query; the files are complete and have no names yet.
pub async fn export(
    args: &ExportArgs,
    client: &Client,
    query: &str,
    parts: Parts,
    progress: &Progress,
) -> Result<Parts> {
    let dialect = args.common.dialect(&args.places.last().cloned().unwrap_or_default())?;
    let header = if dialect.header { ", HEADER" } else { "" };
    let statement = format!("COPY ({query}\n) TO STDOUT WITH ({}{header})", dialect.copy_options());
    let mut stream = pin!(client.copy_out(&statement).await?);
    let mut writer = Writer::new(parts, dialect.header, progress)?;
    let mut scanner = Scanner::new(&dialect);
    // A record that has not ended; servers send whole ones, but need not.
    let mut rest = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        let mut data = &chunk[..];
        while let Some(end) = scanner.end(data) {
            let (record, after) = data.split_at(end);
            rest.extend_from_slice(record);
            writer.record(&rest)?;
            rest.clear();
            data = after;
        }
        rest.extend_from_slice(data);
        if rest.len() > LARGEST_RECORD {
            return Err(Error::new(format!(
                "row {} is longer than {} MiB",
                writer.rows_done + 1,
                LARGEST_RECORD >> 20
            )));
        }
    }
    if !rest.is_empty() {
        return Err(Error::new("the server's data ends within a row"));
    }
    writer.finish()
}

struct Writer<'p> {
    parts: Parts,
    progress: &'p Progress,
    file: BufWriter<NamedTempFile>,
    /// The first record, which every file begins with; none if it is still to come or there is none.
    header: Option<Vec<u8>>,
    expects_header: bool,
    /// Of the file that is being written.
    rows: u64,
    bytes: u64,
    rows_done: u64,
    /// What the progress does not know of yet.
    news: (u64, u64),
}

impl<'p> Writer<'p> {
    fn new(parts: Parts, expects_header: bool, progress: &'p Progress) -> Result<Self> {
        let file = BufWriter::new(parts.begin()?);
        Ok(Self {
            parts,
            progress,
            file,
            header: None,
            expects_header,
            rows: 0,
            bytes: 0,
            rows_done: 0,
            news: (0, 0),
        })
    }

    fn record(&mut self, record: &[u8]) -> Result<()> {
        if self.expects_header && self.header.is_none() {
            self.header = Some(record.to_vec());
            return self.write(record);
        }
        let is_full = |largest: u64| self.bytes + record.len() as u64 > largest;
        if self.rows > 0 && self.parts.largest.is_some_and(is_full) {
            self.next_file()?;
        }
        self.write(record)?;
        self.rows += 1;
        self.rows_done += 1;
        self.news.0 += 1;
        if self.news.1 >= STEP {
            self.tell();
        }
        Ok(())
    }

    fn write(&mut self, record: &[u8]) -> Result<()> {
        self.bytes += record.len() as u64;
        self.news.1 += record.len() as u64;
        self.file.write_all(record).map_err(|error| cannot("write", self.file.get_ref().path(), &error))
    }

    fn tell(&mut self) {
        let (rows, bytes) = std::mem::take(&mut self.news);
        self.progress.add(rows, bytes);
    }

    fn next_file(&mut self) -> Result<()> {
        let next = BufWriter::new(self.parts.begin()?);
        self.end_file(next)?;
        let header = self.header.clone().unwrap_or_default();
        self.write(&header)
    }

    fn end_file(&mut self, next: BufWriter<NamedTempFile>) -> Result<()> {
        let file = std::mem::replace(&mut self.file, next).into_inner();
        let file = file.map_err(|error| Error::new(format!("cannot write: {}", error.error())))?;
        block_in_place(|| self.parts.end(file, self.rows))?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    fn finish(mut self) -> Result<Parts> {
        self.tell();
        let Self { file, mut parts, rows, .. } = self;
        let file =
            file.into_inner().map_err(|error| Error::new(format!("cannot write: {}", error.error())))?;
        block_in_place(|| parts.end(file, rows))?;
        Ok(parts)
    }
}
