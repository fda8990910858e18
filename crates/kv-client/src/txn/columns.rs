//! Scans that return columns.
//!
//! A KV node runs the program, unless the transaction has written to what is read and not sent it yet: then rows are
//! read, the writes laid over them, and the program is run here.

use super::options::{ColumnPage, ScanOptions, ScanPage};
use super::read::{MAX_SPLITS, parts_of, scan_begin, scan_request};
use super::state::State;
use super::{Txn, aborted_if_lost, split_without_end};
use crate::router::SendError;
use kv_api::batch::{Request, RequestKind, Response};
use kv_api::columns::{BadProgram, Program, Reader};
use kv_api::{KvError, KvErrorKind, KvResult, Span};

/// Bytes of rows that are read for a page.
const PAGE_BYTES: u64 = 4 << 20;
/// Parts that a span is taken apart into at most; the last one is the rest.
const MAX_PARTS: usize = 1_000;

impl Txn {
    /// Reads a page of a span as columns, in the order of the keys. A page ends where a range ends. One that ends before a
    /// row that the program cannot read says so, and is the last.
    ///
    /// # Errors
    /// As for [`Txn::get`]; `InvalidRequest` if the program makes no sense.
    pub async fn scan_columns(&self, span: &Span, program: &Program) -> KvResult<ColumnPage> {
        let options = ScanOptions { target_bytes: PAGE_BYTES, ..ScanOptions::default() };
        let full = self.client.full_span(span);
        self.state.lock().check_open()?;
        if full.start >= full.end {
            return Ok(ColumnPage::default());
        }
        for _ in 0..MAX_SPLITS {
            let range = self.locate(scan_begin(&full, &options), false).await?;
            let Some((here, touched)) = self.part_to_read(range, &full) else { continue };
            if touched {
                let page = self.scan(span, options).await?;
                return over_rows(page, program).map_err(bad_program);
            }
            let request = with_program(scan_request(&here, &options), program);
            let read =
                self.read(range, vec![request], options.read, options.target_bytes, |state, response| {
                    let found = response.responses.into_iter().next().unwrap_or_default();
                    self.column_page(state, range, [&full, &here], found)
                });
            match read.await {
                Err(SendError::Split) => self.forget_range(range)?,
                // It was written to while it was read.
                Ok(None) => {}
                read => return Ok(read.map_err(aborted_if_lost)?.unwrap_or_default()),
            }
        }
        Err(split_without_end())
    }

    /// The parts of a span that lie in one range each, as far as is known now: so that they can be read side by side.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn parts_by_range(&self, span: &Span) -> KvResult<Vec<Span>> {
        let mut left = self.client.full_span(span);
        let mut parts = Vec::new();
        while left.start < left.end && parts.len() < MAX_PARTS {
            let range = self.locate(&left.start, false).await?;
            let part = self.state.lock().parts.get(range).and_then(|part| part.at.clip(&left));
            let Some(part) = part.filter(|part| part.end > left.start) else { break };
            left.start = part.end.clone();
            parts.extend(self.stripped(part));
        }
        parts.extend(self.stripped(left));
        Ok(parts)
    }

    /// What lies in a range of a span, and whether the transaction has written there.
    fn part_to_read(&self, range: u64, full: &Span) -> Option<(Span, bool)> {
        let state = self.state.lock();
        let here = state.parts.get(range)?.at.clip(full)?;
        let touched = state.buffer.touches(&here.start, &here.end);
        Some((here, touched))
    }

    fn column_page(
        &self,
        state: &mut State,
        range: u64,
        [full, here]: [&Span; 2],
        found: Response,
    ) -> Option<ColumnPage> {
        let (covered, left) = parts_of(full, here, &found.resume, false);
        if state.buffer.touches(&covered.start, &covered.end) {
            return None;
        }
        if covered.start < covered.end {
            self.note_read(state, range, &covered, ScanOptions::default().read, 0);
        }
        let columns = found.columns.map(|columns| *columns).unwrap_or_default();
        Some(ColumnPage { columns, resume: self.stripped(left) })
    }
}

fn with_program(mut request: Request, program: &Program) -> Request {
    if let Some(RequestKind::Scan(scan)) = &mut request.kind {
        scan.program = Some(Box::new(program.clone()));
    }
    request
}

fn bad_program(error: BadProgram) -> KvError {
    KvError::new(KvErrorKind::InvalidRequest, error.to_string())
}

/// Runs a program over rows.
fn over_rows(page: ScanPage, program: &Program) -> Result<ColumnPage, BadProgram> {
    let mut reader = Reader::new(program)?;
    for (key, value) in &page.rows {
        if reader.take(key, value).is_err() {
            return Ok(ColumnPage { columns: reader.finish(true), resume: None });
        }
    }
    Ok(ColumnPage { columns: reader.finish(false), resume: page.resume })
}
