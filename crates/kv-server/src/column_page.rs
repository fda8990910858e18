//! Scans that return columns: a program is run over what a scan finds.
//!
//! Rows come as chunks out of the cache where they are kept ([`crate::column_cache`]), are gathered into chunks that are kept from
//! then on, or are taken one by one.

use crate::column_cache::{ColumnCache, Gathering, Step};
use crate::read::{Budget, Page, Unread};
use crate::shard::key_after;
use bytes::{Bytes, BytesMut};
use kv_api::batch::{Response, Scan};
use kv_api::columns::{Chunk, Origin, Program, Reader};
use kv_api::key::TENANT_PREFIX_LEN;
use kv_api::{KvError, KvErrorKind, Span};
use storage::mvcc::View;
use storage::{Bounds, FirstKey, Space};

/// Bytes of columns, or of groups, at which a page ends. As a rule what is read ends it earlier, but a row that is short, or damaged, may
/// have many columns.
const MAX_COLUMN_BYTES: usize = 16 << 20;
/// After how many rows it is looked how many bytes there are.
const LOOK_EVERY: u64 = 64;
/// Bytes of a chunk's columns at which it ends; also without this it would when it has its rows.
const MAX_CHUNK_BYTES: usize = 2 << 20;

/// Evaluates one page of a scan with a program. What is read counts against the budget, wanted or not: it bounds the time
/// that a page takes. Of chunks their columns count.
///
/// # Errors
/// Storage errors, and [`KvErrorKind::InvalidRequest`] if the program makes no sense.
pub(crate) fn column_page(
    view: View<'_>,
    scan: &Scan,
    program: &Program,
    cache: Option<&ColumnCache>,
    budget: &mut Budget,
) -> Result<Page, Unread> {
    if budget.is_spent() {
        return Ok(Page::without_room(scan));
    }
    let reader =
        Reader::new(program).map_err(|error| KvError::new(KvErrorKind::InvalidRequest, error.to_string()))?;
    let mut page = Assembly { view, scan, reader, budget, may_have_newer: false, unfit: false };
    let rests = view.overlay.is_none_or(|overlay| overlay.is_empty()) && !scan.reverse && scan.limit == 0;
    let rest = match cache.filter(|_| rests) {
        Some(cache) => page.chunks(cache, &program.origins())?,
        None => page.rows(&scan.start, &scan.end)?,
    };
    let resume = rest.filter(|rest| !page.unfit && rest.start < rest.end);
    let columns = Some(Box::new(page.reader.finish(page.unfit)));
    Ok(Page {
        response: Response { columns, resume, ..Response::default() },
        may_have_newer: page.may_have_newer,
    })
}

/// A page that is put together.
struct Assembly<'a> {
    view: View<'a>,
    scan: &'a Scan,
    reader: Reader,
    budget: &'a mut Budget,
    may_have_newer: bool,
    /// It has come to a row that the program cannot read.
    unfit: bool,
}

impl Assembly<'_> {
    /// Takes rows one by one. Returns what is left if the page ends earlier.
    fn rows(&mut self, start: &[u8], end: &[u8]) -> Result<Option<Span>, Unread> {
        let mut scanner = self.view.scan(start, end, self.scan.reverse);
        let mut scratch = BytesMut::new();
        let (limit, reader, budget, unfit) =
            (self.scan.limit, &mut self.reader, &mut *self.budget, &mut self.unfit);
        let mut take = |key: &[u8], value: &[u8]| -> Result<Option<Bytes>, KvError> {
            if reader.take(behind_tenant(key), value).is_err() {
                *unfit = true;
                return Ok(Some(Bytes::new()));
            }
            budget.take_row(key.len() + value.len())?;
            let is_full = limit > 0 && reader.rows() >= limit;
            let is_large = reader.seen().is_multiple_of(LOOK_EVERY) && reader.bytes() >= MAX_COLUMN_BYTES;
            let stops = budget.is_spent() || is_full || is_large || reader.is_full();
            Ok(stops.then(|| Bytes::copy_from_slice(key)))
        };
        let last = loop {
            match scanner.visit(&mut scratch, &mut take)? {
                None => break None,
                Some(taken) => {
                    if let Some(last) = taken? {
                        break Some(last);
                    }
                }
            }
        };
        self.may_have_newer |= scanner.may_have_newer();
        let Some(last) = last else { return Ok(None) };
        if self.unfit || scanner.is_exhausted()? {
            return Ok(None);
        }
        Ok(Some(match self.scan.reverse {
            true => Span::new(self.scan.start.clone(), last),
            false => Span::new(key_after(&last), self.scan.end.clone()),
        }))
    }

    /// Takes chunk after chunk. Returns what is left if the page ends earlier.
    fn chunks(&mut self, cache: &ColumnCache, columns: &[Origin]) -> Result<Option<Span>, Unread> {
        let end = &self.scan.end;
        let mut at = self.scan.start.clone();
        while at < *end && !self.unfit {
            if self.is_at_end(cache.config().chunk_rows) {
                return Ok(Some(Span::new(at, end.clone())));
            }
            // Locks before data: see `storage::mvcc`.
            let unlocked = self.unlocked_until(cache, &at)?;
            let until = match cache.step(&at, end, columns, self.view.timestamp) {
                Step::Kept(chunk, next) if unlocked.as_ref().is_none_or(|unlocked| next <= *unlocked) => {
                    match self.kept(&chunk) {
                        true => {
                            at = next;
                            continue;
                        }
                        // It is too much for the budget; there may be room for some of it.
                        false if self.reader.seen() == 0 => next,
                        false => return Ok(Some(Span::new(at, end.clone()))),
                    }
                }
                Step::Gather(gathering) if unlocked.is_none() => {
                    at = self.gather(&at, gathering, cache, columns)?;
                    continue;
                }
                Step::Kept(_, until) | Step::Read(until) => until,
                Step::Gather(gathering) => gathering.until().clone(),
            };
            if let Some(rest) = self.rows(&at, &until)? {
                return Ok(Some(rest));
            }
            at = until;
        }
        Ok(None)
    }

    /// Whether the page ends here, which may only be behind a chunk or before the first one.
    fn is_at_end(&self, chunk_rows: usize) -> bool {
        let no_groups = self.reader.groups_left().is_some_and(|left| left < chunk_rows as u64);
        self.budget.is_spent()
            || no_groups && self.reader.seen() > 0
            || self.reader.bytes() >= MAX_COLUMN_BYTES
    }

    /// Up to where it is known that nobody has locks, if there are any at all: the end of the segment that begins here, or
    /// here.
    fn unlocked_until(&self, cache: &ColumnCache, at: &Bytes) -> Result<Option<Bytes>, Unread> {
        if self.view.intents.is_empty() {
            return Ok(None);
        }
        let Some(end) = cache.end_at(at) else { return Ok(Some(at.clone())) };
        let first = self.view.reader.first_key(Space::Locks, Bounds::new(at, &end))?;
        Ok(Some(if first == FirstKey::Nothing { end } else { at.clone() }))
    }

    /// Takes a chunk that is kept; false, and nothing is taken, if it is too much for the budget.
    fn kept(&mut self, chunk: &Chunk) -> bool {
        let fits = self.budget.take_columns(chunk.bytes());
        if fits {
            self.unfit = self.reader.take_chunk(chunk).is_err();
        }
        fits
    }

    /// Gathers a chunk, takes it, and has it kept. Returns where the next one begins.
    fn gather(
        &mut self,
        at: &Bytes,
        gathering: Gathering<'_>,
        cache: &ColumnCache,
        columns: &[Origin],
    ) -> Result<Bytes, Unread> {
        let until = gathering.until().clone();
        let most = cache.config().chunk_rows;
        let mut scanner = self.view.scan(at, &until, false);
        let mut scratch = BytesMut::new();
        let (reader, budget, unfit) = (&mut self.reader, &mut *self.budget, &mut self.unfit);
        let mut gather = |key: &[u8], value: &[u8]| -> Result<Option<Bytes>, KvError> {
            if reader.gather(behind_tenant(key), value).is_err() {
                *unfit = true;
                return Ok(Some(Bytes::new()));
            }
            budget.take_row(key.len() + value.len())?;
            let (rows, bytes) = reader.gathered();
            let stops = budget.is_spent() || rows >= most || bytes >= MAX_CHUNK_BYTES;
            Ok(stops.then(|| key_after(key)))
        };
        let next = loop {
            match scanner.visit(&mut scratch, &mut gather)? {
                None => break until.clone(),
                Some(taken) => {
                    if let Some(next) = taken? {
                        break next;
                    }
                }
            }
        };
        let may_have_newer = scanner.may_have_newer();
        self.may_have_newer |= may_have_newer;
        let chunk = self.reader.take_gathered();
        let is_whole = !self.unfit;
        self.unfit |= self.reader.take_chunk(&chunk).is_err();
        if is_whole && !may_have_newer && chunk.rows >= cache.config().least_rows {
            gathering.keep(next.clone(), scanner.newest(), columns.to_vec(), &chunk);
        }
        Ok(next)
    }
}

fn behind_tenant(key: &[u8]) -> &[u8] {
    key.get(TENANT_PREFIX_LEN..).unwrap_or_default()
}
