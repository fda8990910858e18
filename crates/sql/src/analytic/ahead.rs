//! Reading ahead: while the engine works on a page of a column scan, KV nodes work on the next ones.

use super::column_scan::{ColumnScan, PageRead};
use crate::exec::ExecContext;
use futures::FutureExt;
use kv_client::ColumnPage;
use sql_types::SqlResult;
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// Pages of one scan that are under way, or here and not taken yet, at most.
const MOST_PAGES: usize = 2;

/// Reads of one scan. They may be dropped at any time: the scan goes on with what was not taken.
#[derive(Default)]
pub(super) struct Ahead<'c> {
    under_way: Vec<PageRead<'c>>,
    here: VecDeque<(usize, SqlResult<ColumnPage>)>,
}

impl<'c> Ahead<'c> {
    /// Asks for pages that were not asked for yet. They come in any order.
    pub fn start(&mut self, scan: &mut ColumnScan, cx: &'c ExecContext<'_>) {
        // The first read of a transaction brings the snapshot of the others.
        let most = if cx.txn.read_timestamp().is_some() { MOST_PAGES } else { 1 };
        while self.under_way.len() + self.here.len() < most
            && let Some(read) = scan.read(cx)
        {
            self.under_way.push(read);
        }
    }

    /// Goes on with what is under way; whether there is a page, or none will come.
    pub fn poll(&mut self, task: &mut Context<'_>) -> bool {
        let here = &mut self.here;
        self.under_way.retain_mut(|read| match read.poll_unpin(task) {
            Poll::Ready(page) => {
                here.push_back(page);
                false
            }
            Poll::Pending => true,
        });
        !self.here.is_empty() || self.under_way.is_empty()
    }

    /// Takes a page that is here, with the number of its part.
    pub fn take(&mut self) -> SqlResult<Option<(usize, ColumnPage)>> {
        self.here.pop_front().map(|(number, page)| Ok((number, page?))).transpose()
    }
}
