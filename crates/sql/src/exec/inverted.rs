//! Scans of inverted indexes: the entries of several tokens, walked together in the order of the primary key.
//!
//! See [`crate::inverted`] for what clauses are and why it is right to give some up.

use super::eval::{EvalEnv, eval};
use super::scan::{Entry, Node};
use super::{ExecContext, kv};
use crate::inverted::condition::{Wanted, together, wanted as wanted_by};
use crate::inverted::tokens::Token;
use crate::table::IndexCodec;
use bytes::Bytes;
use kv_api::Span;
use kv_api::key::prefix_end;
use sql_types::{SqlError, SqlResult};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Entries kept of all tokens together, about.
const KEPT_ENTRIES: usize = 8192;
/// Entries of a page of one token at most.
const LARGEST_PAGE: usize = 1024;
/// Entries of a page of one token at least.
const SMALLEST_PAGE: usize = 32;
/// A clause of which so many times more entries were read than of another is given up.
const COMMON: usize = 4;

/// What a scan of an inverted index wants of the tokens of rows.
pub(super) fn wanted(node: Node<'_>, cx: &ExecContext<'_>, env: &EvalEnv<'_>) -> SqlResult<Wanted> {
    let codec = cx.codecs.get(node.table())?;
    let Some((class, _)) = &codec.index(node.index)?.inverted else {
        return Err(SqlError::internal("the plan looks for tokens in an index that has none"));
    };
    let conditions = &node.access.inverted;
    let of_each = conditions.iter().map(|condition| {
        let value = eval(&condition.value, &[], env)?;
        wanted_by(*class, condition.strategy, &value)
    });
    Ok(together(of_each.collect::<SqlResult<Vec<_>>>()?))
}

/// The entries of one token.
struct Stream {
    prefix: Bytes,
    /// Entries that were read and are not passed yet.
    page: VecDeque<Entry>,
    /// What is still to be read.
    rest: Option<Span>,
}

/// The entries of all tokens of a clause.
struct Clause {
    streams: Vec<Stream>,
    /// Entries that were read.
    loaded: usize,
}

/// A scan of the rows that have a token of each clause.
pub(super) struct InvertedScan {
    clauses: Vec<Clause>,
    /// Entries of a page.
    page: usize,
    started: bool,
    /// Primary keys before this one are passed.
    from: Bytes,
    ended: bool,
}

impl Stream {
    fn new(index: &IndexCodec, token: &Token) -> SqlResult<Self> {
        let prefix = index.token_prefix(token)?;
        let rest = Span::new(prefix.clone(), prefix_end(&prefix).unwrap_or_default());
        Ok(Stream { prefix, page: VecDeque::new(), rest: Some(rest) })
    }

    /// The primary key's bytes of an entry.
    fn primary<'e>(&self, entry: &'e Entry) -> &'e [u8] {
        entry.0.get(self.prefix.len()..).unwrap_or_default()
    }

    /// Passes entries before a primary key; the next one's primary key, if there is one.
    async fn seek(
        &mut self,
        cx: &ExecContext<'_>,
        target: &[u8],
        limit: usize,
        loaded: &mut usize,
    ) -> SqlResult<Option<Bytes>> {
        loop {
            let passed = self.page.partition_point(|entry| self.primary(entry) < target);
            self.page.drain(..passed);
            if let Some((key, _)) = self.page.front() {
                return Ok(Some(key.slice(self.prefix.len().min(key.len())..)));
            }
            let Some(mut rest) = self.rest.take() else { return Ok(None) };
            let wanted = [&self.prefix[..], target].concat();
            if wanted[..] > rest.start[..] {
                rest.start = wanted.into();
            }
            if rest.start >= rest.end {
                return Ok(None);
            }
            let page = kv::scan_page(cx, &rest, false, limit, None).await?;
            *loaded += page.rows.len();
            (self.page, self.rest) = (page.rows.into(), page.resume);
            cx.cancel.check()?;
        }
    }
}

impl Clause {
    /// The least primary key, of those not before another, of which the clause has an entry.
    async fn seek(&mut self, cx: &ExecContext<'_>, target: &[u8], limit: usize) -> SqlResult<Option<Bytes>> {
        let mut least: Option<Bytes> = None;
        for stream in &mut self.streams {
            let found = stream.seek(cx, target, limit, &mut self.loaded).await?;
            least = match (least, found) {
                (Some(least), Some(found)) => Some(least.min(found)),
                (least, found) => least.or(found),
            };
        }
        Ok(least)
    }

    /// The entry of a primary key, which was just sought.
    fn entry(&self, primary: &[u8]) -> Option<Entry> {
        let mut first = self.streams.iter().filter_map(|stream| Some((stream, stream.page.front()?)));
        first.find(|(stream, entry)| stream.primary(entry) == primary).map(|(_, entry)| entry.clone())
    }

    /// Whether all its entries were read.
    fn is_complete(&self) -> bool {
        self.streams.iter().all(|stream| stream.rest.is_none())
    }
}

impl InvertedScan {
    pub fn new(index: &IndexCodec, clauses: &[Vec<Token>]) -> SqlResult<Self> {
        let clause = |tokens: &Vec<Token>| {
            let streams = tokens.iter().map(|token| Stream::new(index, token));
            Ok(Clause { streams: streams.collect::<SqlResult<_>>()?, loaded: 0 })
        };
        let streams = clauses.iter().map(Vec::len).sum::<usize>().max(1);
        Ok(InvertedScan {
            clauses: clauses.iter().map(clause).collect::<SqlResult<_>>()?,
            page: (KEPT_ENTRIES / streams).clamp(SMALLEST_PAGE, LARGEST_PAGE),
            started: false,
            from: Bytes::new(),
            ended: false,
        })
    }

    /// Further entries, one of each row, at most `limit`; empty at the end.
    pub async fn next(&mut self, cx: &ExecContext<'_>, limit: usize) -> SqlResult<Vec<Entry>> {
        if !self.started {
            self.start(cx).await?;
        }
        let mut found = Vec::new();
        while !self.ended && found.len() < limit.max(1) {
            match self.next_entry(cx).await? {
                Some(entry) => found.push(entry),
                None => self.ended = true,
            }
        }
        Ok(found)
    }

    /// Reads the first page of each token. If that is all there is of a clause, clauses of which there is more are given
    /// up.
    async fn start(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        let streams = || self.clauses.iter().flat_map(|clause| &clause.streams);
        let spans: Vec<Span> = streams().filter_map(|stream| stream.rest.clone()).collect();
        let mut pages = kv::scan_many(cx, &spans, false, self.page, None).await?.into_iter();
        for clause in &mut self.clauses {
            for (stream, page) in clause.streams.iter_mut().zip(pages.by_ref()) {
                clause.loaded += page.rows.len();
                (stream.page, stream.rest) = (page.rows.into(), page.resume);
            }
        }
        if self.clauses.iter().any(Clause::is_complete) {
            self.clauses.retain(Clause::is_complete);
        }
        self.started = true;
        Ok(())
    }

    /// Gives up clauses of which much more was read than of another.
    fn give_up_common(&mut self) {
        let least = self.clauses.iter().map(|clause| clause.loaded).min().unwrap_or(0);
        let most = COMMON * (least + self.page);
        self.clauses.retain(|clause| clause.loaded <= most);
    }

    /// An entry of the next row that every clause has.
    async fn next_entry(&mut self, cx: &ExecContext<'_>) -> SqlResult<Option<Entry>> {
        let mut target = std::mem::take(&mut self.from);
        let mut agreed = 0;
        while agreed < self.clauses.len() {
            let Some(clause) = self.clauses.get_mut(agreed) else { break };
            let Some(found) = clause.seek(cx, &target, self.page).await? else { return Ok(None) };
            match found.cmp(&target) {
                Ordering::Equal => agreed += 1,
                // The clauses before have to agree with this one.
                _ => {
                    (target, agreed) = (found, 0);
                    self.give_up_common();
                }
            }
        }
        self.from = [&target[..], &[0]].concat().into();
        Ok(self.clauses.first().and_then(|clause| clause.entry(&target)))
    }
}
