//! Where messages begin and end in a stream of them, without looking inside or keeping any bytes.
//!
//! [`Frames`] follows one direction of a session over chunks cut anywhere. The relay needs it for three
//! things: an error of the proxy's own may only be put between two messages (in the middle of a row it
//! would become part of the row); a node that closes after a Terminate or after a FATAL error has said
//! everything; and the first ReadyForQuery ends the start of a session.
//!
//! [`KeyFilter`] stands on it for the time until that ReadyForQuery and replaces the eight bytes of
//! BackendKeyData in place, so that even there nothing is buffered.
//!
//! A stream that is not made of messages (a length below four) is marked broken and no longer followed:
//! it is for the peer to refuse it.

use crate::startup::CancelKey;

/// Type of the message an error travels in.
const ERROR_RESPONSE: u8 = b'E';
/// How an ErrorResponse that ends the session begins.
const FATAL: &[u8] = b"SFATAL\0";

/// Follows the messages of one direction.
#[derive(Debug, Default, Clone)]
pub struct Frames {
    header: [u8; 5],
    header_length: u8,
    /// Type of the message last begun; 0 before the first.
    kind: u8,
    body_length: u32,
    body_left: u32,
    /// Bytes of [`FATAL`] that the body of the current ErrorResponse matched so far.
    fatal_matched: u8,
    broken: bool,
}

/// A part of a chunk.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Header(usize),
    Body { kind: u8, offset: u32, length: usize },
}

impl Frames {
    /// Follows a chunk.
    pub fn advance(&mut self, mut chunk: &[u8]) {
        while let Some(part) = self.take(chunk) {
            let length = match part {
                Part::Header(length) | Part::Body { length, .. } => length,
            };
            chunk = chunk.get(length..).unwrap_or_default();
        }
    }

    /// Whether everything seen so far is whole messages.
    pub fn at_boundary(&self) -> bool {
        !self.broken && self.header_length == 0 && self.body_left == 0
    }

    /// Type of the message last begun, 0 before the first.
    pub fn last_kind(&self) -> u8 {
        self.kind
    }

    /// Whether the last message was an ErrorResponse that ends the session.
    pub fn ended_fatally(&self) -> bool {
        self.kind == ERROR_RESPONSE && usize::from(self.fatal_matched) == FATAL.len()
    }

    /// Whether the stream turned out not to be made of messages.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes the next part off the front of `chunk`.
    fn take(&mut self, chunk: &[u8]) -> Option<Part> {
        if chunk.is_empty() || self.broken {
            return None;
        }
        if self.body_left > 0 {
            return Some(self.take_body(chunk));
        }
        if self.header_length == 0
            && let Some(header) = chunk.first_chunk::<5>()
        {
            self.begin(*header);
            return Some(Part::Header(5));
        }
        Some(Part::Header(self.take_header(chunk)))
    }

    /// A header in pieces.
    fn take_header(&mut self, chunk: &[u8]) -> usize {
        let mut taken = 0;
        for byte in chunk {
            if let Some(slot) = self.header.get_mut(usize::from(self.header_length)) {
                *slot = *byte;
            }
            self.header_length = self.header_length.saturating_add(1);
            taken += 1;
            if self.header_length == 5 {
                self.header_length = 0;
                self.begin(self.header);
                break;
            }
        }
        taken
    }

    fn begin(&mut self, [kind, length @ ..]: [u8; 5]) {
        self.kind = kind;
        self.fatal_matched = 0;
        match u32::from_be_bytes(length).checked_sub(4) {
            Some(body) if body <= i32::MAX.unsigned_abs() => {
                self.body_length = body;
                self.body_left = body;
            }
            _ => self.broken = true,
        }
    }

    fn take_body(&mut self, chunk: &[u8]) -> Part {
        let offset = self.body_length - self.body_left;
        let length = chunk.len().min(usize::try_from(self.body_left).unwrap_or(usize::MAX));
        self.body_left -= u32::try_from(length).unwrap_or(self.body_left);
        if self.kind == ERROR_RESPONSE {
            self.match_fatal(offset, chunk);
        }
        Part::Body { kind: self.kind, offset, length }
    }

    fn match_fatal(&mut self, offset: u32, chunk: &[u8]) {
        let matched = usize::from(self.fatal_matched);
        if usize::try_from(offset) != Ok(matched) {
            return;
        }
        let rest = FATAL.get(matched..).unwrap_or_default();
        let same = rest.iter().zip(chunk).take_while(|(a, b)| a == b).count();
        self.fatal_matched = self.fatal_matched.saturating_add(u8::try_from(same).unwrap_or(0));
    }
}

const BACKEND_KEY_DATA: u8 = b'K';
const READY_FOR_QUERY: u8 = b'Z';
const KEY_LENGTH: u32 = 8;

/// Follows what a node says until its first ReadyForQuery and exchanges the session's cancel key.
#[derive(Debug)]
pub struct KeyFilter {
    frames: Frames,
    ours: [u8; 8],
    theirs: [u8; 8],
    ready: bool,
}

/// What a chunk contained.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// The node's own key, complete with this chunk.
    pub key: Option<CancelKey>,
}

/// The node sent a key that is not eight bytes long, or no messages at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the SQL node sent a malformed message at the start of a session")]
pub struct Malformed;

impl KeyFilter {
    /// A filter that shows the client `ours`.
    pub fn new(ours: CancelKey) -> Self {
        Self { frames: Frames::default(), ours: ours.to_bytes(), theirs: [0; 8], ready: false }
    }

    /// Whether the first ReadyForQuery went by.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The state of the stream, for following it further.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Follows a chunk and replaces what it holds of a key.
    pub fn filter(&mut self, chunk: &mut [u8]) -> Result<Filtered, Malformed> {
        let mut filtered = Filtered::default();
        let mut rest = chunk;
        while let Some(part) = self.frames.take(rest) {
            let length = match part {
                Part::Header(length) => {
                    self.check_header()?;
                    length
                }
                Part::Body { kind: BACKEND_KEY_DATA, offset, length } if !self.ready => {
                    filtered.key = self.exchange(offset, rest.get_mut(..length).unwrap_or_default());
                    length
                }
                Part::Body { kind, length, .. } => {
                    self.ready |= kind == READY_FOR_QUERY && self.frames.at_boundary();
                    length
                }
            };
            rest = rest.get_mut(length..).unwrap_or_default();
        }
        if self.frames.broken { Err(Malformed) } else { Ok(filtered) }
    }

    /// A key of another length cannot be exchanged in place.
    fn check_header(&self) -> Result<(), Malformed> {
        let begun = self.frames.header_length == 0;
        let odd = self.frames.kind == BACKEND_KEY_DATA && self.frames.body_length != KEY_LENGTH;
        if begun && odd && !self.ready { Err(Malformed) } else { Ok(()) }
    }

    fn exchange(&mut self, offset: u32, bytes: &mut [u8]) -> Option<CancelKey> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let pairs = self.theirs.iter_mut().zip(self.ours).skip(start);
        for (byte, (theirs, ours)) in bytes.iter_mut().zip(pairs) {
            *theirs = std::mem::replace(byte, ours);
        }
        self.frames.at_boundary().then(|| CancelKey::from_bytes(self.theirs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ClientError, message};
    use proptest::prelude::*;

    const OURS: CancelKey = CancelKey { process_id: 0x0102_0304, secret: 0x0506_0708 };
    const THEIRS: CancelKey = CancelKey { process_id: 0xa1a2_a3a4, secret: 0xb1b2_b3b4 };

    fn session_start() -> Vec<u8> {
        let mut bytes = message(b'R', &[0, 0, 0, 0]);
        bytes.extend(message(b'S', b"TimeZone\0UTC\0"));
        bytes.extend(message(b'K', &THEIRS.to_bytes()));
        bytes.extend(message(b'Z', b"I"));
        bytes
    }

    fn filter_in_pieces(cuts: &[usize]) -> (Vec<u8>, Option<CancelKey>, bool) {
        let mut filter = KeyFilter::new(OURS);
        let (mut out, mut key) = (Vec::new(), None);
        let mut bytes = session_start();
        let (mut start, length) = (0, bytes.len());
        for end in cuts.iter().map(|c| c % length).chain([length]) {
            if end < start {
                continue;
            }
            let filtered = filter.filter(&mut bytes[start..end]).unwrap();
            key = filtered.key.or(key);
            start = end;
        }
        out.append(&mut bytes);
        (out, key, filter.is_ready())
    }

    #[test]
    fn exchanges_the_key() {
        let (out, key, ready) = filter_in_pieces(&[]);
        assert_eq!(key, Some(THEIRS));
        assert!(ready);
        let position = out.windows(8).position(|w| w == OURS.to_bytes()).unwrap();
        assert_eq!(out[position - 5], b'K');
        assert_eq!(out.len(), session_start().len());
        assert!(!out.windows(8).any(|w| w == THEIRS.to_bytes()));
    }

    #[test]
    fn a_key_of_another_length_is_malformed() {
        let mut bytes = message(b'K', &[1; 36]);
        assert_eq!(KeyFilter::new(OURS).filter(&mut bytes), Err(Malformed));
        let mut bytes = message(b'K', &[]);
        assert_eq!(KeyFilter::new(OURS).filter(&mut bytes), Err(Malformed));
    }

    #[test]
    fn after_the_start_nothing_is_touched() {
        let mut filter = KeyFilter::new(OURS);
        filter.filter(&mut session_start()).unwrap();
        let mut later = message(b'K', &[1; 36]);
        let before = later.clone();
        filter.filter(&mut later).unwrap();
        assert_eq!(later, before);
    }

    #[test]
    fn boundaries_and_fatal_errors_are_seen() {
        let mut frames = Frames::default();
        assert!(frames.at_boundary());
        frames.advance(b"D\0\0");
        assert!(!frames.at_boundary());
        frames.advance(b"\0\x06x");
        assert!(!frames.at_boundary());
        frames.advance(b"y");
        assert!(frames.at_boundary() && !frames.ended_fatally());
        let fatal = ClientError::new("57P01", "bye").encode();
        frames.advance(&fatal[..9]);
        frames.advance(&fatal[9..]);
        assert!(frames.at_boundary() && frames.ended_fatally());
        frames.advance(&message(b'E', b"SERROR\0C22012\0\0"));
        assert!(!frames.ended_fatally());
        frames.advance(&message(b'X', b""));
        assert_eq!(frames.last_kind(), b'X');
    }

    #[test]
    fn nonsense_is_broken_not_followed() {
        let mut frames = Frames::default();
        frames.advance(b"Q\0\0\0\x03");
        assert!(frames.is_broken() && !frames.at_boundary());
        let mut frames = Frames::default();
        frames.advance(b"Q\xff\xff\xff\xff");
        assert!(frames.is_broken());
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(mut cuts in proptest::collection::vec(0usize..100, 0..12)) {
            cuts.sort_by_key(|c| c % session_start().len());
            let (out, key, ready) = filter_in_pieces(&cuts);
            prop_assert_eq!(out, filter_in_pieces(&[]).0);
            prop_assert_eq!(key, Some(THEIRS));
            prop_assert!(ready);
        }

        #[test]
        fn random_bytes_never_panic(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..40)) {
            let mut frames = Frames::default();
            let mut filter = KeyFilter::new(OURS);
            for mut chunk in chunks {
                frames.advance(&chunk);
                let _ = filter.filter(&mut chunk);
            }
        }
    }
}
