//! [`JobRecord`]: what is durable of a change in steps, beside the descriptor.

use crate::catalog::store::{self, Section};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kv_api::Span;
use serde::{Deserialize, Serialize};
use sql_types::{Oid, SqlError, SqlResult, SqlState};

/// The version that is written.
const VERSION: u32 = 1;

/// What is being done with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobKind {
    /// It is built.
    Build,
    /// It is dropped.
    Drop,
}

/// A change in steps that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    /// Of this form.
    version: u32,
    /// What is being done.
    pub kind: JobKind,
    /// The table.
    pub table: Oid,
    /// The index.
    pub index: Oid,
    /// The keys of rows that have still to get entries, from the first to behind the last, in base64; `None` before
    /// that has begun.
    #[serde(default)]
    rest: Option<(String, String)>,
    /// Rows that have got entries.
    #[serde(default)]
    pub rows: u64,
    /// Batches that were committed.
    #[serde(default)]
    pub batches: u64,
    /// The instance that does it (`crate::instances`); 0 if none has said so.
    #[serde(default)]
    pub instance: u64,
}

fn damaged(what: &str) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("the record of a schema change is damaged: {what}"))
}

impl JobRecord {
    /// A job that begins.
    pub fn new(kind: JobKind, table: Oid, index: Oid, instance: u64) -> Self {
        JobRecord { version: VERSION, kind, table, index, rest: None, rows: 0, batches: 0, instance }
    }

    /// Where it is stored.
    pub fn key(&self) -> Bytes {
        Self::key_of(self.table, self.index)
    }

    /// Where that of a job is stored.
    pub fn key_of(table: Oid, index: Oid) -> Bytes {
        store::record_key(Section::Job, &[u64::from(table), u64::from(index)])
    }

    /// Reads a record.
    ///
    /// # Errors
    /// XX001 if it is damaged or of a later version.
    pub fn decode(value: &[u8]) -> SqlResult<Self> {
        let record: JobRecord = store::decode(value)?;
        if record.version > VERSION {
            return Err(damaged("it was written by a later version"));
        }
        Ok(record)
    }

    /// The record as it is stored.
    ///
    /// # Errors
    /// XX000 if it cannot be written as JSON.
    pub fn encode(&self) -> SqlResult<Bytes> {
        store::encode(self)
    }

    /// The keys of the rows that are left; `None` before the backfill has begun.
    ///
    /// # Errors
    /// XX001 if they cannot be read.
    pub fn rest(&self) -> SqlResult<Option<Span>> {
        let Some((start, end)) = &self.rest else { return Ok(None) };
        let bytes = |text: &str| STANDARD.decode(text).map(Bytes::from).map_err(|_| damaged("a key"));
        Ok(Some(Span::new(bytes(start)?, bytes(end)?)))
    }

    /// Notes what is left.
    pub fn set_rest(&mut self, start: &[u8], end: &[u8]) {
        self.rest = Some((STANDARD.encode(start), STANDARD.encode(end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_not_if_they_are_of_the_future() {
        let mut record = JobRecord::new(JobKind::Build, 16400, 16410, 7);
        assert_eq!(record.rest().unwrap(), None);
        record.set_rest(b"\x00\xffa", b"b");
        (record.rows, record.batches) = (7, 2);
        let read = JobRecord::decode(&record.encode().unwrap()).unwrap();
        assert_eq!(read, record);
        let rest = read.rest().unwrap().unwrap();
        assert_eq!((&rest.start[..], &rest.end[..]), (&b"\x00\xffa"[..], &b"b"[..]));
        record.version += 1;
        assert_eq!(JobRecord::decode(&record.encode().unwrap()).unwrap_err().code, SqlState::DATA_CORRUPTED);
        record.version = VERSION;
        record.rest = Some(("!".into(), String::new()));
        assert_eq!(record.rest().unwrap_err().code, SqlState::DATA_CORRUPTED);
    }
}
