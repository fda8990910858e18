//! Which range holds a key.

use super::walks::Trip;
use super::{Place, Router, SendError, miss};
use crate::located::Located;
use bytes::Bytes;
use kv_api::batch::{BatchRequest, RequestKind};
use kv_api::{KvError, KvResult, Span};
use std::time::Duration;

/// How long it is waited for the directory to hear of a split, from one look to the next, in milliseconds.
const SPLIT_PAUSES: [u64; 8] = [10, 20, 50, 100, 200, 400, 800, 0];
/// Bytes of `0xff` behind a key that stands for all keys below another.
const BELOW: usize = 64;

impl Router {
    /// The range that holds `key` or, if `before`, the keys right below it. What is not known is looked up.
    ///
    /// # Errors
    /// What keeps the KV layer from answering. Keys are whole ones.
    pub async fn locate(&self, key: &Bytes, before: bool) -> KvResult<Located> {
        let known = {
            let ranges = &self.routing.lock().ranges;
            if before { ranges.locate_before(key) } else { ranges.locate(key) }
        };
        match known {
            Some(known) => Ok(known),
            None if before => Box::pin(self.find_before(key)).await,
            None => Box::pin(self.find(key)).await,
        }
    }

    /// Looks the range of a key up, until the time is up.
    async fn find(&self, key: &Bytes) -> KvResult<Located> {
        let mut trip = self.trip(false);
        loop {
            self.look_up_if_due(&mut trip, key).await.map_err(told)?;
            if let Some(found) = self.found(&trip, key) {
                return Ok(found);
            }
            self.pause(&mut trip).await.map_err(told)?;
            trip.look_again();
        }
    }

    fn found(&self, trip: &Trip, key: &Bytes) -> Option<Located> {
        let mut routing = self.routing.lock();
        let found = routing.ranges.locate(key)?;
        if let Some(directory) = &trip.directory {
            routing.directory = Some(directory.connection.address.clone());
        }
        Some(found)
    }

    /// The same for the keys right below `end`.
    async fn find_before(&self, end: &Bytes) -> KvResult<Located> {
        // There is no largest key below another. Few are above this one, and a range that ends between the two
        // is followed by the one looked for.
        let mut key = self.below(end);
        loop {
            let known = self.routing.lock().ranges.locate(&key);
            let found = match known {
                Some(known) => known,
                None => self.find(&key).await?,
            };
            if found.holds_before(end) || found.end.is_empty() || found.end <= key {
                return Ok(found);
            }
            key = found.end;
        }
    }

    /// A key of the tenant a little below another one, or the tenant's end.
    fn below(&self, end: &Bytes) -> Bytes {
        let last = [0xff; BELOW];
        let below = match end.split_last() {
            Some((0, rest)) => Bytes::copy_from_slice(rest),
            Some((byte, rest)) => [rest, &[byte - 1], &last].concat().into(),
            None => Bytes::new(),
        };
        if below.starts_with(&self.prefix) { below } else { [&self.prefix[..], &last].concat().into() }
    }

    /// Whether a range that a node does not have, or not for all keys of a batch, was split: asks the directory, which
    /// hears of it a moment after the node. Where the node has no replica of it any more there is nothing to wait for.
    /// One that leads the range knows what it says, also if the directory does not come to hear of it.
    pub(super) async fn was_split(
        &self,
        batch: &BatchRequest,
        place: &Place,
        key: &Bytes,
        said: &KvError,
    ) -> bool {
        said.span.is_some() | self.directory_says_split(batch, place, key).await
    }

    async fn directory_says_split(&self, batch: &BatchRequest, place: &Place, key: &Bytes) -> bool {
        let keys = extent(batch, key);
        for pause in SPLIT_PAUSES {
            let mut trip = self.trip(false);
            trip.version = self.version(&keys.start);
            trip.look_again();
            // Without an answer, who asks finds out by asking the range again.
            let _ = self.look_up_if_due(&mut trip, &keys.start).await;
            {
                let routing = self.routing.lock();
                let Some(found) = routing.ranges.locate(&keys.start) else { return false };
                if found.range_id != place.range_id || !found.holds_all(&keys) {
                    return true;
                }
                let range = routing.ranges.find(&keys.start);
                if !range.is_some_and(|range| range.has_replica_at(&place.connection.address)) {
                    return false;
                }
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        false
    }
}

/// What a lookup fails with; it is sent to whoever answers.
fn told(error: SendError) -> KvError {
    match error {
        SendError::Kv(error) => error,
        SendError::Lost | SendError::OtherConnection | SendError::Moved | SendError::Split => {
            miss::unavailable(None)
        }
    }
}

/// A span that holds all keys of a batch, of whose range `key` is one.
pub(super) fn extent(batch: &BatchRequest, key: &Bytes) -> Span {
    let mut extent = Extent::default();
    batch.header.refresh_spans.iter().for_each(|span| extent.add(&span.start, &span.end));
    for request in &batch.requests {
        match &request.kind {
            Some(RequestKind::Get(get)) => extent.add(&get.key, b""),
            Some(RequestKind::Scan(scan)) => extent.add(&scan.start, &scan.end),
            Some(RequestKind::Put(put)) => extent.add(&put.key, b""),
            Some(RequestKind::ConditionalPut(put)) => extent.add(&put.key, b""),
            Some(RequestKind::Delete(delete)) => extent.add(&delete.key, b""),
            Some(RequestKind::DeleteRange(delete)) => extent.add(&delete.start, &delete.end),
            Some(RequestKind::ClearRange(clear)) => extent.add(&clear.start, &clear.end),
            Some(RequestKind::ListContention(list)) => extent.add(&list.start, &list.end),
            Some(RequestKind::Increment(increment)) => extent.add(&increment.key, b""),
            _ => {}
        }
    }
    extent.span(key)
}

/// The first and the last key seen; the last one may be the first after a span.
#[derive(Default)]
struct Extent<'a> {
    first: Option<&'a [u8]>,
    last_key: &'a [u8],
    last_end: &'a [u8],
}

impl<'a> Extent<'a> {
    fn add(&mut self, start: &'a [u8], end: &'a [u8]) {
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        if end.is_empty() {
            self.last_key = self.last_key.max(start);
        } else {
            self.last_end = self.last_end.max(end);
        }
    }

    fn span(&self, key: &Bytes) -> Span {
        let Some(first) = self.first else { return Span::point(key.clone()) };
        let start = Bytes::copy_from_slice(first);
        if self.last_end.is_empty() && self.last_key == first {
            return Span::point(start);
        }
        let end = if self.last_key >= self.last_end {
            [self.last_key, &[0]].concat().into()
        } else {
            Bytes::copy_from_slice(self.last_end)
        };
        Span::new(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::Header;
    use kv_api::batch::{Get, Refresh, Scan};

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn batch(spans: &[(&str, &str)], gets: &[&str], scans: &[(&str, &str)]) -> BatchRequest {
        let span = |(start, end): &(&str, &str)| Span::new(bytes(start), bytes(end));
        let get = |key: &&str| RequestKind::Get(Get { key: bytes(key), lock: 0 }).into();
        let scan = |(start, end): &(&str, &str)| {
            RequestKind::Scan(Scan { start: bytes(start), end: bytes(end), ..Scan::default() }).into()
        };
        BatchRequest {
            header: Header { refresh_spans: spans.iter().map(span).collect(), ..Header::default() },
            requests: gets.iter().map(get).chain(scans.iter().map(scan)).collect(),
        }
    }

    #[test]
    fn the_extent_of_a_batch_holds_all_its_keys() {
        let extent = |batch: BatchRequest| extent(&batch, &bytes("k"));
        let span = |start, end| Span::new(bytes(start), bytes(end));
        assert_eq!(extent(batch(&[], &["d"], &[])), span("d", ""));
        assert_eq!(extent(batch(&[], &["d", "b"], &[])), span("b", "d\0"));
        assert_eq!(extent(batch(&[], &["d"], &[("b", "c")])), span("b", "d\0"));
        assert_eq!(extent(batch(&[("a", ""), ("x", "z")], &["d"], &[("b", "c")])), span("a", "z"));
        assert_eq!(extent(batch(&[("x", "z")], &["z"], &[])), span("x", "z\0"));
        let mut refresh = batch(&[], &[], &[]);
        refresh.requests.push(RequestKind::Refresh(Refresh::default()).into());
        assert_eq!(extent(refresh), span("k", ""));
    }
}
