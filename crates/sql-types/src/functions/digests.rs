//! Digests, `encode` and `decode`.

use super::Function;
use super::args::{self, imm};
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::text;
use crate::types::Type as T;
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use std::fmt::Write;

/// MD5 (RFC 1321), of which no dependency has an implementation. Not for secrets.
pub(super) fn md5(input: &[u8]) -> [u8; 16] {
    const SHIFTS: [u32; 16] = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];
    let constant = |index: usize| ((index as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32;
    let constants: [u32; 64] = std::array::from_fn(constant);
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = input.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64), 0);
    let length = padded.len();
    padded[length - 8..].copy_from_slice(&((input.len() as u64).wrapping_mul(8)).to_le_bytes());
    for block in padded.chunks_exact(64) {
        let words: [u32; 16] = std::array::from_fn(|index| {
            u32::from_le_bytes([
                block[index * 4],
                block[index * 4 + 1],
                block[index * 4 + 2],
                block[index * 4 + 3],
            ])
        });
        let [mut a, mut b, mut c, mut d] = state;
        for index in 0..64 {
            let (mixed, word) = match index / 16 {
                0 => ((b & c) | (!b & d), index),
                1 => ((d & b) | (!d & c), (5 * index + 1) % 16),
                2 => (b ^ c ^ d, (3 * index + 5) % 16),
                _ => (c ^ (b | !d), (7 * index) % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(constants[index]).wrapping_add(words[word]);
            let rotated = sum.rotate_left(SHIFTS[index / 16 * 4 + index % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(rotated));
        }
        for (total, part) in state.iter_mut().zip([a, b, c, d]) {
            *total = total.wrapping_add(part);
        }
    }
    let mut out = [0; 16];
    for (index, word) in state.iter().enumerate() {
        out[index * 4..index * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn digest(args: &[Datum], algorithm: &'static ring::digest::Algorithm) -> SqlResult<Datum> {
    let digest = ring::digest::digest(algorithm, args::bytea(args, 0)?);
    Ok(Datum::Bytea(bytes::Bytes::copy_from_slice(digest.as_ref())))
}

fn lenient_base64() -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
    GeneralPurpose::new(&base64::alphabet::STANDARD, config)
}

fn unknown_encoding(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, format!("unrecognized encoding: \"{name}\""))
}

fn encode(args: &[Datum]) -> SqlResult<Datum> {
    let bytes = args::bytea(args, 0)?;
    let format = args::text(args, 1)?;
    Ok(Datum::text(match format.to_ascii_lowercase().as_str() {
        "hex" => hex(bytes),
        "base64" => {
            // Lines of 76 characters, as MIME has them.
            let encoded = lenient_base64().encode(bytes);
            let mut out = String::with_capacity(encoded.len() + encoded.len() / 76);
            for (index, c) in encoded.chars().enumerate() {
                if index > 0 && index % 76 == 0 {
                    out.push('\n');
                }
                out.push(c);
            }
            out
        }
        "escape" => {
            let mut out = String::new();
            for byte in bytes {
                match byte {
                    b'\\' => out.push_str("\\\\"),
                    0 | 0x80.. => {
                        let _ = write!(out, "\\{byte:03o}");
                    }
                    byte => out.push(*byte as char),
                }
            }
            out
        }
        _ => return Err(unknown_encoding(format)),
    }))
}

fn decode(args: &[Datum]) -> SqlResult<Datum> {
    let input = args::text(args, 0)?;
    let format = args::text(args, 1)?;
    Ok(Datum::Bytea(match format.to_ascii_lowercase().as_str() {
        "hex" => text::decode_hex(input)?,
        "base64" => {
            let packed: String = input.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            lenient_base64()
                .decode(packed)
                .map_err(|error| match error {
                    base64::DecodeError::InvalidByte(_, byte) => SqlError::new(
                        SqlState::INVALID_PARAMETER,
                        format!("invalid symbol \"{}\" found while decoding base64 sequence", byte as char),
                    ),
                    _ => SqlError::new(SqlState::INVALID_PARAMETER, "invalid base64 end sequence")
                        .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."),
                })?
                .into()
        }
        "escape" => text::parse_bytea(if input.starts_with("\\x") { "" } else { input })?,
        _ => return Err(unknown_encoding(format)),
    }))
}

fn bit_position(args: &[Datum]) -> SqlResult<(usize, u8)> {
    let bytes = args::bytea(args, 0)?;
    let index = args::int8(args, 1)?;
    let bad = || {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT,
            format!("index {index} out of valid range, 0..{}", bytes.len() as i64 * 8 - 1),
        )
    };
    let index = usize::try_from(index).ok().filter(|index| *index < bytes.len() * 8).ok_or_else(bad)?;
    Ok((index / 8, (index % 8) as u8))
}

fn byte_position(args: &[Datum]) -> SqlResult<usize> {
    let bytes = args::bytea(args, 0)?;
    let index = args::int4(args, 1)?;
    usize::try_from(index).ok().filter(|index| *index < bytes.len()).ok_or_else(|| {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT,
            format!("index {index} out of valid range, 0..{}", bytes.len() as i64 - 1),
        )
    })
}

pub(super) static TABLE: &[Function] = &[
    imm("md5", &[T::TEXT], T::TEXT, |_, a| Ok(Datum::text(hex(&md5(args::text(a, 0)?.as_bytes()))))),
    imm("md5", &[T::BYTEA], T::TEXT, |_, a| Ok(Datum::text(hex(&md5(args::bytea(a, 0)?))))),
    imm("sha256", &[T::BYTEA], T::BYTEA, |_, a| digest(a, &ring::digest::SHA256)),
    imm("sha384", &[T::BYTEA], T::BYTEA, |_, a| digest(a, &ring::digest::SHA384)),
    imm("sha512", &[T::BYTEA], T::BYTEA, |_, a| digest(a, &ring::digest::SHA512)),
    imm("encode", &[T::BYTEA, T::TEXT], T::TEXT, |_, a| encode(a)),
    imm("decode", &[T::TEXT, T::TEXT], T::BYTEA, |_, a| decode(a)),
    imm("get_byte", &[T::BYTEA, T::INT4], T::INT4, |_, a| {
        Ok(Datum::Int4(i32::from(args::bytea(a, 0)?[byte_position(a)?])))
    }),
    imm("set_byte", &[T::BYTEA, T::INT4, T::INT4], T::BYTEA, |_, a| {
        let mut bytes = args::bytea(a, 0)?.to_vec();
        let at = byte_position(a)?;
        bytes[at] = args::int4(a, 2)? as u8;
        Ok(Datum::Bytea(bytes.into()))
    }),
    imm("get_bit", &[T::BYTEA, T::INT8], T::INT4, |_, a| {
        let (byte, bit) = bit_position(a)?;
        Ok(Datum::Int4(i32::from(args::bytea(a, 0)?[byte] >> bit & 1)))
    }),
    imm("set_bit", &[T::BYTEA, T::INT8, T::INT4], T::BYTEA, |_, a| {
        let (byte, bit) = bit_position(a)?;
        let mut bytes = args::bytea(a, 0)?.to_vec();
        match args::int4(a, 2)? {
            0 => bytes[byte] &= !(1 << bit),
            1 => bytes[byte] |= 1 << bit,
            _ => return Err(SqlError::new(SqlState::INVALID_PARAMETER, "new bit must be 0 or 1")),
        }
        Ok(Datum::Bytea(bytes.into()))
    }),
    imm("bit_count", &[T::BYTEA], T::INT8, |_, a| {
        Ok(Datum::Int8(args::bytea(a, 0)?.iter().map(|byte| i64::from(byte.count_ones())).sum()))
    }),
    imm("convert_from", &[T::BYTEA, T::NAME], T::TEXT, |_, a| {
        let text = std::str::from_utf8(args::bytea(a, 0)?).map_err(|_| {
            SqlError::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\"",
            )
        })?;
        Ok(Datum::text(text))
    }),
    imm("convert_to", &[T::TEXT, T::NAME], T::BYTEA, |_, a| {
        Ok(Datum::Bytea(bytes::Bytes::copy_from_slice(args::text(a, 0)?.as_bytes())))
    }),
    imm("hashtext", &[T::TEXT], T::INT4, |_, a| {
        let digest = md5(args::text(a, 0)?.as_bytes());
        Ok(Datum::Int4(i32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])))
    }),
];
