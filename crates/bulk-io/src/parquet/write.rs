//! Writes Parquet files of row groups of bounded size.

use super::TYPES_KEY;
use super::columns::Column;
use super::plan::ColumnPlan;
use crate::args::Compression;
use crate::error::Result;
use parquet::basic::ZstdLevel;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type as Schema;
use std::io::Write;
use std::sync::Arc;

/// Size of a row group before it is encoded, in bytes, and in rows.
const GROUP_BYTES: usize = 32 << 20;
const GROUP_ROWS: usize = 1_000_000;

/// A file that is being written; a row group at a time is in memory.
pub struct FileWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
    group_bytes: usize,
}

impl<W: Write + Send> FileWriter<W> {
    /// A file of some columns. `types` are their types in PostgreSQL; `largest` is the size the file must not exceed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(
        out: W,
        plans: &[ColumnPlan],
        types: &[String],
        compression: Compression,
        largest: Option<u64>,
    ) -> Result<Self> {
        let fields = plans.iter().map(ColumnPlan::schema).collect::<Result<Vec<_>>>()?;
        let schema = Schema::group_type_builder("row").with_fields(fields).build()?;
        let file = SerializedFileWriter::new(out, Arc::new(schema), properties(types, compression)?)?;
        // A file has to hold several groups to come close to its size without exceeding it.
        let share = largest.map_or(GROUP_BYTES, |largest| usize::try_from(largest / 4).unwrap_or(usize::MAX));
        let columns = plans.iter().cloned().map(Column::new).collect();
        Ok(Self { file, columns, rows: 0, bytes: 0, group_bytes: share.clamp(1, GROUP_BYTES) })
    }

    /// Adds the next value of a column, and a row with its last one.
    ///
    /// # Errors
    /// If Parquet has no such value.
    pub fn push(&mut self, column: usize, value: Option<&[u8]>) -> Result<()> {
        if let Some(found) = self.columns.get_mut(column) {
            self.bytes += found.push(value)?;
        }
        self.rows += usize::from(column + 1 == self.columns.len());
        Ok(())
    }

    /// Whether the row group is as large as it may become.
    pub fn is_group_full(&self) -> bool {
        self.bytes >= self.group_bytes || self.rows >= GROUP_ROWS
    }

    /// Bytes of the file, and of the row group that is not written yet, before it is encoded.
    pub fn size(&self) -> (u64, u64) {
        (self.file.bytes_written() as u64, self.bytes as u64)
    }

    /// Encodes and writes the row group.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            if let Some(writer) = group.next_column()? {
                column.write(writer)?;
            }
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<W> {
        self.end_group()?;
        Ok(self.file.into_inner()?)
    }
}

fn properties(types: &[String], compression: Compression) -> Result<WriterPropertiesPtr> {
    let compression = match compression {
        Compression::None => parquet::basic::Compression::UNCOMPRESSED,
        Compression::Snappy => parquet::basic::Compression::SNAPPY,
        Compression::Zstd => parquet::basic::Compression::ZSTD(ZstdLevel::try_new(3)?),
    };
    let types = serde_json::Value::from(types.to_vec()).to_string();
    let properties = WriterProperties::builder()
        .set_created_by("dormouse".to_owned())
        .set_compression(compression)
        .set_key_value_metadata(Some(vec![KeyValue::new(TYPES_KEY.to_owned(), types)]))
        .build();
    Ok(Arc::new(properties))
}
