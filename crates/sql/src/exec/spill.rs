//! [`Spill`]: the directory of a node for what does not fit into the memory of its statements.
//!
//! Files are made, removed from the directory at once and read through their handle, so that they go with the process;
//! DataFusion's go with the statement. What a process that was killed left is removed when the next one opens the
//! directory. How much is written altogether is bounded. Files are written without waiting for the disk: they are small
//! steps into the page cache between two pauses of the statement.

use bytes::BytesMut;
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder, DiskManagerMode};
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState, Type, encoding};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 18;

/// A directory of one node.
#[derive(Debug)]
pub struct Spill {
    directory: PathBuf,
    disk: Arc<DiskManager>,
    limit: u64,
    used: Arc<AtomicU64>,
    files: AtomicU64,
}

impl Spill {
    /// Bytes a node spills at most unless it is told otherwise: the row engine that many, DataFusion as many again.
    pub const DEFAULT_BYTES: u64 = 8 << 30;

    /// Makes the directory, of which nothing is left of before.
    ///
    /// # Errors
    /// If that fails.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Self> {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::DirBuilder::new().mode(0o700).create(directory)?;
        let mode = DiskManagerMode::Directories(vec![directory.to_owned()]);
        let disk = DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(limit);
        let disk = Arc::new(disk.build().map_err(io::Error::other)?);
        let directory = directory.to_owned();
        Ok(Spill { directory, disk, limit, used: Arc::default(), files: AtomicU64::new(0) })
    }

    /// Files made since the directory was opened.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// For DataFusion.
    pub(crate) fn disk(&self) -> Arc<DiskManager> {
        self.disk.clone()
    }

    /// Begins a file of rows, which are written whenever this many bytes have gathered.
    ///
    /// # Errors
    /// 58030 if there cannot be one.
    pub(crate) fn begin(&self, buffer_bytes: usize) -> SqlResult<RunWriter> {
        let path = self.directory.join(format!("run-{}", self.files.fetch_add(1, Ordering::Relaxed)));
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        std::fs::remove_file(&path).map_err(failed)?;
        let run = Run { file, bytes: 0, used: self.used.clone() };
        Ok(RunWriter { run, limit: self.limit, buffer_bytes, buffer: BytesMut::new(), row: BytesMut::new() })
    }

    /// Writes rows to a file of their own. Their values have types for which [`can_spill`] holds.
    ///
    /// # Errors
    /// 53100 if there is no room, 58030 if the file cannot be written.
    pub(crate) fn write<'r>(&self, rows: impl Iterator<Item = &'r Row>) -> SqlResult<Run> {
        let mut writer = self.begin(WRITE_BYTES)?;
        for row in rows {
            writer.push(row)?;
        }
        writer.finish()
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Writes rows to a file.
#[derive(Debug)]
pub(crate) struct RunWriter {
    run: Run,
    /// Bytes that all files of the node may have.
    limit: u64,
    buffer_bytes: usize,
    buffer: BytesMut,
    row: BytesMut,
}

impl RunWriter {
    /// Adds a row, whose values have types for which [`can_spill`] holds.
    ///
    /// # Errors
    /// 53100 if there is no room, 58030 if the file cannot be written.
    pub fn push<'v>(&mut self, row: impl IntoIterator<Item = &'v Datum>) -> SqlResult<()> {
        self.row.clear();
        for value in row {
            encoding::encode_value(value, &mut self.row)?;
        }
        self.buffer.extend_from_slice(&(self.row.len() as u64).to_le_bytes());
        self.buffer.extend_from_slice(&self.row);
        if self.buffer.len() >= self.buffer_bytes { self.append() } else { Ok(()) }
    }

    fn append(&mut self) -> SqlResult<()> {
        let count = self.buffer.len() as u64;
        self.run.bytes += count;
        if self.run.used.fetch_add(count, Ordering::Relaxed) + count > self.limit {
            let message = "the temporary files of this SQL node have reached their limit";
            return Err(SqlError::new(SqlState::DISK_FULL, message));
        }
        self.run.file.write_all(&self.buffer).map_err(failed)?;
        self.buffer.clear();
        Ok(())
    }

    /// The rows, to be read from the first on.
    ///
    /// # Errors
    /// As for [`RunWriter::push`].
    pub fn finish(mut self) -> SqlResult<Run> {
        self.append()?;
        self.run.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(self.run)
    }
}

/// Rows in a file.
#[derive(Debug)]
pub(crate) struct Run {
    file: File,
    bytes: u64,
    used: Arc<AtomicU64>,
}

impl Run {
    /// Whether there is no row in it.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads rows of a file.
#[derive(Debug)]
pub(crate) struct RunReader {
    input: BufReader<Run>,
    types: Arc<[Type]>,
    row: Vec<u8>,
}

impl Read for Run {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(into)
    }
}

impl RunReader {
    /// Of rows whose values have these types.
    pub fn new(run: Run, types: Arc<[Type]>, buffer: usize) -> Self {
        RunReader { input: BufReader::with_capacity(buffer, run), types, row: Vec::new() }
    }

    /// The next row.
    ///
    /// # Errors
    /// 58030 if the file cannot be read.
    pub fn next(&mut self) -> SqlResult<Option<Row>> {
        let mut length = [0; 8];
        match self.input.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(failed)?,
        }
        self.row.clear();
        let length = u64::from_le_bytes(length);
        let read = (&mut self.input).take(length).read_to_end(&mut self.row).map_err(failed)?;
        if read as u64 != length {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut rest = &self.row[..];
        self.types
            .iter()
            .map(|ty| encoding::decode_value(*ty, &mut rest))
            .collect::<SqlResult<Row>>()
            .map(Some)
    }
}

/// Whether values of a type are the same after they were written and read.
pub(crate) fn can_spill(ty: Type) -> bool {
    matches!(
        ty,
        Type::BOOL
            | Type::INT2
            | Type::INT4
            | Type::INT8
            | Type::FLOAT4
            | Type::FLOAT8
            | Type::NUMERIC
            | Type::TEXT
            | Type::VARCHAR
            | Type::BPCHAR
            | Type::NAME
            | Type::BYTEA
            | Type::UUID
            | Type::DATE
            | Type::TIME
            | Type::TIMESTAMP
            | Type::TIMESTAMPTZ
            | Type::INTERVAL
            | Type::JSON
            | Type::JSONB
    )
}

fn failed(error: io::Error) -> SqlError {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqlState::DISK_FULL,
        _ => SqlState::IO_ERROR,
    };
    SqlError::new(code, "a temporary file cannot be used").with_detail(error.to_string())
}
