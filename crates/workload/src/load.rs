//! Filling tables by COPY.

use bytes::Bytes;
use futures::SinkExt;
use indicatif::ProgressBar;
use std::fmt::{Display, Write};
use tokio_postgres::{Client, Error};

/// Rows of one COPY. Each is a transaction, so that none is large.
const ROWS_PER_COPY: usize = 5_000;
/// Bytes of one message, roughly.
const MESSAGE_BYTES: usize = 64 << 10;

/// Appends rows to a table, some thousands in each transaction, and says how many there were. `statement` is a `COPY …
/// FROM STDIN`; a row is a line of its data, without the line's end.
///
/// # Errors
/// What the server says. What was appended before stays.
pub async fn copy_rows<R: Display>(
    client: &Client,
    statement: &str,
    rows: impl Iterator<Item = R> + Send,
    progress: &ProgressBar,
) -> Result<u64, Error> {
    let mut rows = rows.peekable();
    let mut copied = 0;
    while has_next(&mut rows) {
        let sink = client.copy_in(statement).await?;
        let mut sink = std::pin::pin!(sink);
        let mut room = ROWS_PER_COPY;
        while let Some(message) = next_message(&mut rows, &mut room) {
            sink.send(message).await?;
        }
        let count = sink.finish().await?;
        progress.inc(count);
        copied += count;
    }
    Ok(copied)
}

/// In a function of its own, so that no row is held while the server is waited for.
fn has_next<R>(rows: &mut std::iter::Peekable<impl Iterator<Item = R>>) -> bool {
    rows.peek().is_some()
}

/// The next rows, at most `room` of them; none at the end, or if there is no room.
fn next_message<R: Display>(rows: &mut impl Iterator<Item = R>, room: &mut usize) -> Option<Bytes> {
    let mut text = String::new();
    while *room > 0 && text.len() < MESSAGE_BYTES {
        let Some(row) = rows.next() else { break };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{row}");
        *room -= 1;
    }
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_with_the_room_the_bytes_or_the_rows() {
        let long = "x".repeat(MESSAGE_BYTES / 2);
        let mut rows = vec!["a", "b", "c", &long, &long, "d"].into_iter();
        let mut room = 2;
        assert_eq!(next_message(&mut rows, &mut room).unwrap(), "a\nb\n");
        assert_eq!((room, next_message(&mut rows, &mut room)), (0, None));
        room = 10;
        assert_eq!(next_message(&mut rows, &mut room).unwrap(), format!("c\n{long}\n{long}\n"));
        assert_eq!(next_message(&mut rows, &mut room).unwrap(), "d\n");
        assert_eq!((room, next_message(&mut rows, &mut room)), (6, None));
    }
}
