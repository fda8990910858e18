//! The description at the end of a Parquet file, checked before the library parses it.
//!
//! The library makes room for as many elements as a list claims to have, so a damaged count could ask for more memory than
//! there is, which no program survives. Here the description is walked through without keeping anything (it is a
//! structure in Thrift's compact protocol), and every count must be no larger than the bytes that follow it.

use crate::error::{Error, Result};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use std::io::Read;

/// Longest description, in bytes.
const LARGEST: u64 = 64 << 20;
/// Bytes at the end of a file that say how long it is.
const TAIL: usize = 8;
/// Deepest nesting. Parquet's own is less than half of that.
const DEEPEST: u32 = 24;

/// Reads the description of a file of a size; `read_from` reads the file from a place on.
///
/// # Errors
/// If it cannot be read, or is malformed.
pub fn read(
    read_from: &mut dyn FnMut(u64) -> Result<Box<dyn Read + Send>>,
    size: u64,
) -> Result<ParquetMetaData> {
    let truncated = || Error::new("malformed Parquet: the file is truncated, or is none");
    let read = |mut reader: Box<dyn Read + Send>, out: &mut [u8]| {
        reader.read_exact(out).map_err(|error| Error::new(format!("cannot read: {error}")))
    };
    let tail = size.checked_sub(TAIL as u64).ok_or_else(truncated)?;
    let mut footer = [0; TAIL];
    read(read_from(tail)?, &mut footer)?;
    let length = ParquetMetaDataReader::decode_footer_tail(&footer)?.metadata_length() as u64;
    let start = tail.checked_sub(length).filter(|_| length <= LARGEST).ok_or_else(truncated)?;
    let mut description = vec![0; usize::try_from(length).unwrap_or_default()];
    read(read_from(start)?, &mut description)?;
    check(&description)?;
    Ok(ParquetMetaDataReader::decode_metadata(&description)?)
}

/// Whether bytes are a structure whose counts and lengths are possible.
fn check(description: &[u8]) -> Result<()> {
    let walked = Walk { rest: description }.structure(DEEPEST);
    walked.ok_or_else(|| Error::new("malformed Parquet: the description of the file is damaged"))
}

/// What is left to walk through. None everywhere means that the bytes are no such structure.
struct Walk<'d> {
    rest: &'d [u8],
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// Seven bits a byte, the lowest first.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A count of elements, each of which takes a byte at least.
    fn count(&self, count: u64) -> Option<u64> {
        (count <= self.rest.len() as u64).then_some(count)
    }

    fn structure(&mut self, depth: u32) -> Option<()> {
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            if head >> 4 == 0 {
                self.varint()?;
            }
            // The value of a truth value is in its type.
            if !matches!(head & 0x0f, 1 | 2) {
                self.value(head & 0x0f, depth)?;
            }
        }
    }

    fn value(&mut self, ty: u8, depth: u32) -> Option<()> {
        match ty {
            1..=3 => self.skip(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => self.list(depth.checked_sub(1)?),
            12 => self.structure(depth.checked_sub(1)?),
            // Maps are nowhere in Parquet.
            _ => None,
        }
    }

    fn list(&mut self, depth: u32) -> Option<()> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => few.into(),
        };
        for _ in 0..self.count(count)? {
            self.value(head & 0x0f, depth)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_nothing_follows_are_refused() {
        // Field 1: a list of three numbers; field 2: a text.
        let good = [0x19, 0x35, 2, 4, 6, 0x18, 1, b'x', 0];
        assert!(check(&good).is_ok());
        for length in 0..good.len() {
            assert!(check(&good[..length]).is_err(), "{length}");
        }
        // A list of 2^31 - 1 structures, and lists in lists without end.
        assert!(check(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0]).is_err());
        assert!(check(&[&[0x19][..], &[0x19; 100]].concat()).is_err());
        assert!(check(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
