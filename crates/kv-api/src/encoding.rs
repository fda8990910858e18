//! Order-preserving encodings of primitives into keys.
//!
//! Concatenated encodings compare bytewise as the tuples of their values compare. Every encoding is
//! self-delimiting. A descending column is the ascending encoding with every byte inverted.

use bytes::{BufMut, BytesMut};

/// Appends `value` so that encodings order as the integers do: one byte of length and sign, then
/// only the significant bytes. Small integers take two bytes and contain no zero byte.
pub fn encode_i64(value: i64, out: &mut BytesMut) {
    if value >= 0 {
        encode_magnitude(value as u64, 0x80, out);
    } else {
        // The magnitude of the complement shrinks as the value grows towards -1.
        let magnitude = !(value as u64);
        let len = significant_bytes(magnitude);
        out.put_u8(0x7f - len as u8);
        out.put_slice(&(!magnitude).to_be_bytes()[8 - len..]);
    }
}

/// Appends an unsigned integer with the encoding of [`encode_i64`]'s non-negative half.
pub fn encode_u64(value: u64, out: &mut BytesMut) {
    encode_magnitude(value, 0x80, out);
}

fn significant_bytes(value: u64) -> usize {
    (8 - value.leading_zeros() as usize / 8).max(1)
}

fn encode_magnitude(value: u64, base: u8, out: &mut BytesMut) {
    let len = significant_bytes(value);
    out.put_u8(base + len as u8);
    out.put_slice(&value.to_be_bytes()[8 - len..]);
}

/// Takes an integer written by [`encode_i64`] off the front of `input`.
pub fn decode_i64(input: &mut &[u8]) -> Option<i64> {
    let (&tag, rest) = input.split_first()?;
    let negative = tag < 0x80;
    let len = if negative { 0x7f_u8.checked_sub(tag)? } else { tag - 0x80 } as usize;
    if !(1..=8).contains(&len) || rest.len() < len {
        return None;
    }
    let mut bytes = [if negative { 0xff } else { 0 }; 8];
    bytes[8 - len..].copy_from_slice(&rest[..len]);
    *input = &rest[len..];
    Some(i64::from_be_bytes(bytes))
}

/// Takes an integer written by [`encode_u64`] off the front of `input`.
pub fn decode_u64(input: &mut &[u8]) -> Option<u64> {
    let (&tag, rest) = input.split_first()?;
    let len = tag.checked_sub(0x80)? as usize;
    if !(1..=8).contains(&len) || rest.len() < len {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[8 - len..].copy_from_slice(&rest[..len]);
    *input = &rest[len..];
    Some(u64::from_be_bytes(bytes))
}

/// Appends a byte string: a zero byte is written as `00 FF`, the end as `00 01`.
pub fn encode_bytes(value: &[u8], out: &mut BytesMut) {
    out.reserve(value.len() + 2);
    for (index, part) in value.split(|byte| *byte == 0).enumerate() {
        if index > 0 {
            out.put_slice(&[0x00, 0xff]);
        }
        out.put_slice(part);
    }
    out.put_slice(&[0x00, 0x01]);
}

/// Takes a byte string written by [`encode_bytes`] off the front of `input`.
pub fn decode_bytes(input: &mut &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    loop {
        let zero = input.iter().position(|byte| *byte == 0)?;
        value.extend_from_slice(&input[..zero]);
        let marker = *input.get(zero + 1)?;
        *input = &input[zero + 2..];
        match marker {
            0xff => value.push(0),
            0x01 => return Some(value),
            _ => return None,
        }
    }
}

/// Appends a float so that encodings order as PostgreSQL orders floats: -0 equals 0, NaN is largest.
pub fn encode_f64(value: f64, out: &mut BytesMut) {
    let value = if value == 0.0 { 0.0 } else { value };
    let bits = if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { value.to_bits() };
    out.put_u64(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 });
}

/// Takes a float written by [`encode_f64`] off the front of `input`.
pub fn decode_f64(input: &mut &[u8]) -> Option<f64> {
    let (bytes, rest) = input.split_first_chunk::<8>()?;
    let bits = u64::from_be_bytes(*bytes);
    *input = rest;
    Some(f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded<T>(value: T, encode: impl Fn(T, &mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::new();
        encode(value, &mut out);
        out.to_vec()
    }

    #[test]
    fn integers_keep_their_order_and_value() {
        let mut values = vec![i64::MIN, i64::MAX, 0, -1, 1];
        for shift in 0..63 {
            values.extend([1 << shift, -(1 << shift), (1 << shift) - 1, -(1 << shift) - 1]);
        }
        values.sort_unstable();
        values.dedup();
        let keys: Vec<_> = values.iter().map(|v| encoded(*v, encode_i64)).collect();
        assert!(keys.is_sorted());
        for (value, key) in values.iter().zip(&keys) {
            assert_eq!(decode_i64(&mut &key[..]), Some(*value));
        }
    }

    #[test]
    fn bytes_keep_their_order_and_value() {
        let mut values: Vec<&[u8]> =
            vec![b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"a", b"a\0", b"a\0b", b"ab", b"b"];
        values.sort_unstable();
        let keys: Vec<_> = values.iter().map(|v| encoded(*v, encode_bytes)).collect();
        assert!(keys.is_sorted());
        for (value, key) in values.iter().zip(&keys) {
            assert_eq!(decode_bytes(&mut &key[..]).as_deref(), Some(*value));
        }
    }

    #[test]
    fn floats_keep_their_order() {
        let values = [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let keys: Vec<_> = values.iter().map(|v| encoded(*v, encode_f64)).collect();
        assert!(keys.is_sorted());
        assert_eq!(encoded(-0.0, encode_f64), encoded(0.0, encode_f64));
        assert_eq!(decode_f64(&mut &keys[1][..]), Some(-1.5));
    }

    #[test]
    fn truncated_input_is_refused() {
        assert_eq!(decode_i64(&mut &[0x82, 1][..]), None);
        assert_eq!(decode_bytes(&mut &b"abc"[..]), None);
        assert_eq!(decode_u64(&mut &[0x10][..]), None);
    }
}
