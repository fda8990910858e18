//! The signed bytes around what is carried from one coordinator to another: pure.
//!
//! ```text
//!   "DMTX"  version  protobuf  HMAC-SHA256 of all before
//!      4       1        n                32                bytes
//! ```
//!
//! Nothing is decoded before its tag is verified. What was not written by this version of the code, in the one way in
//! which it writes it, is refused.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kv_api::{KvError, KvErrorKind, KvResult};
use prost::Message;
use ring::hmac;
use std::fmt;

const MAGIC: &[u8; 4] = b"DMTX";
/// Grows whenever what is carried changes. Bytes of other versions are refused: nobody keeps them for long.
const VERSION: u8 = 2;
const HEADER_LEN: usize = MAGIC.len() + 1;
const TAG_LEN: usize = 32;

/// With what exported transactions are signed. Whoever has it can make any transaction up within the keys of a tenant
/// it may speak for: it is for the SQL nodes of one tenant, and for nobody else. How they come to share it is the
/// caller's business.
#[derive(Clone)]
pub struct TransferKey(hmac::Key);

impl TransferKey {
    /// The key made of these random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        TransferKey(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }
}

impl fmt::Debug for TransferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransferKey")
    }
}

/// Bytes a message takes.
pub fn sealed_len(message: &impl Message) -> usize {
    HEADER_LEN + message.encoded_len() + TAG_LEN
}

/// Signs a message.
pub fn seal(message: &impl Message, key: &TransferKey) -> Bytes {
    let mut sealed = BytesMut::with_capacity(sealed_len(message));
    sealed.put_slice(MAGIC);
    sealed.put_u8(VERSION);
    // BytesMut grows, so encoding into it cannot run out of room.
    let _ = message.encode(&mut sealed);
    let tag = hmac::sign(&key.0, &sealed);
    sealed.put_slice(tag.as_ref());
    sealed.freeze()
}

/// The message that was signed.
///
/// # Errors
/// `InvalidRequest` for anything but what [`seal`] returned with the same key.
pub fn open<M: Message + Default>(mut sealed: Bytes, key: &TransferKey, most: usize) -> KvResult<M> {
    if sealed.len() > most || sealed.len() < HEADER_LEN + TAG_LEN {
        return Err(not_ours());
    }
    let tag = sealed.split_off(sealed.len() - TAG_LEN);
    hmac::verify(&key.0, &sealed, &tag).map_err(|_| not_ours())?;
    if !sealed.starts_with(MAGIC) {
        return Err(not_ours());
    }
    sealed.advance(MAGIC.len());
    if sealed.get_u8() != VERSION {
        return Err(invalid("the exported transaction is of another version of dormouse"));
    }
    let message = M::decode(sealed.clone()).map_err(|_| invalid("the exported transaction is damaged"))?;
    // There is one way to write a message, without anything left over or out of order.
    if message.encode_to_vec() != sealed {
        return Err(invalid("the exported transaction is damaged"));
    }
    Ok(message)
}

/// What is wrong with bytes is not told: who made them up need not know.
fn not_ours() -> KvError {
    invalid("these bytes are no exported transaction, or it was signed with another key")
}

/// An error about what is carried.
pub fn invalid(message: &str) -> KvError {
    KvError::new(KvErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::Span;
    use proptest::prelude::*;

    const MOST: usize = 1000;

    fn key(byte: u8) -> TransferKey {
        TransferKey::new([byte; 32])
    }

    fn message() -> Span {
        Span::new(Bytes::from_static(b"from"), Bytes::from_static(b"to"))
    }

    /// Bytes with a valid tag, whatever they say.
    fn signed(bytes: &[u8]) -> Bytes {
        let tag = hmac::sign(&key(1).0, bytes);
        [bytes, tag.as_ref()].concat().into()
    }

    fn opened(bytes: Bytes) -> Result<Span, KvErrorKind> {
        open(bytes, &key(1), MOST).map_err(|error| error.kind())
    }

    #[test]
    fn what_was_signed_is_read_with_the_same_key_alone() {
        let sealed = seal(&message(), &key(1));
        assert_eq!(sealed.len(), sealed_len(&message()));
        assert_eq!(opened(sealed.clone()), Ok(message()));
        assert!(open::<Span>(sealed.clone(), &key(2), MOST).is_err());
        assert!(open::<Span>(sealed.clone(), &key(1), sealed.len() - 1).is_err());
        assert_eq!(format!("{:?}", key(1)), "TransferKey");
    }

    #[test]
    fn signed_bytes_of_another_form_are_refused() {
        let body = message().encode_to_vec();
        let of = |magic: &[u8], version: u8, body: &[u8]| signed(&[magic, &[version], body].concat());
        assert_eq!(opened(of(MAGIC, VERSION, &body)), Ok(message()));
        assert!(opened(of(b"DMTY", VERSION, &body)).is_err());
        assert!(opened(of(MAGIC, VERSION + 1, &body)).is_err());
        // A field nobody knows, one said twice, one said although it is empty, and half of one.
        for more in [&[0x98, 0x06, 1][..], &body, &[0x12, 0], &[0x0a]] {
            assert!(opened(of(MAGIC, VERSION, &[&body, more].concat())).is_err());
        }
        assert!(opened(signed(b"DMT")).is_err());
        assert!(opened(Bytes::new()).is_err());
    }

    proptest! {
        #[test]
        fn bytes_that_were_changed_are_refused(place: prop::sample::Index, bits in 1u8..=255) {
            let mut bytes = seal(&message(), &key(1)).to_vec();
            let place = place.index(bytes.len());
            bytes[place] ^= bits;
            prop_assert!(opened(bytes.into()).is_err());
        }

        #[test]
        fn bytes_that_were_cut_or_made_longer_are_refused(
            len in 0usize..80,
            more in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let sealed = seal(&message(), &key(1));
            let mut bytes = sealed[..len.min(sealed.len())].to_vec();
            bytes.extend(more);
            prop_assume!(bytes != sealed);
            prop_assert!(opened(bytes.into()).is_err());
        }
    }
}
