//! Scans that return columns: a program is run over what a scan finds.

use crate::read::{Budget, Page, Unread, resume_after};
use bytes::{Bytes, BytesMut};
use kv_api::batch::{Response, Scan};
use kv_api::columns::{Program, Reader};
use kv_api::key::TENANT_PREFIX_LEN;
use kv_api::{KvError, KvErrorKind};
use storage::mvcc::View;

/// Bytes of columns, or of groups, at which a page ends. As a rule what is read ends it earlier, but a row that is short, or damaged, may
/// have many columns.
const MAX_COLUMN_BYTES: usize = 16 << 20;
/// After how many rows it is looked how many bytes there are.
const LOOK_EVERY: u64 = 64;

/// Evaluates one page of a scan with a program. What is read counts against the budget, wanted or not: it bounds the time
/// that a page takes.
///
/// # Errors
/// Storage errors, and [`KvErrorKind::InvalidRequest`] if the program makes no sense.
pub fn column_page(
    view: View<'_>,
    scan: &Scan,
    program: &Program,
    budget: &mut Budget,
) -> Result<Page, Unread> {
    if budget.is_spent() {
        return Ok(Page::without_room(scan));
    }
    let mut reader =
        Reader::new(program).map_err(|error| KvError::new(KvErrorKind::InvalidRequest, error.to_string()))?;
    let mut scanner = view.scan(&scan.start, &scan.end, scan.reverse);
    let mut scratch = BytesMut::new();
    let (mut resume, mut unfit) = (None, false);
    let mut take = |key: &[u8], value: &[u8]| -> Result<Option<Bytes>, KvError> {
        if reader.take(key.get(TENANT_PREFIX_LEN..).unwrap_or_default(), value).is_err() {
            unfit = true;
            return Ok(Some(Bytes::new()));
        }
        budget.take_row(key.len() + value.len())?;
        let is_full = scan.limit > 0 && reader.rows() >= scan.limit;
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
    if let Some(last) = last.filter(|_| !unfit)
        && !scanner.is_exhausted()?
    {
        resume = resume_after(scan, &last);
    }
    let may_have_newer = scanner.may_have_newer();
    let columns = Some(Box::new(reader.finish(unfit)));
    Ok(Page { response: Response { columns, resume, ..Response::default() }, may_have_newer })
}
