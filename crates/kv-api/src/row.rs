//! How a table's rows lie in values, as far as both sides read them.
//!
//! A row is a format byte, then for each column that is present its number, its length plus one (0 stands for NULL)
//! and its value; both numbers as LEB128. A value is a tag and a payload: what it takes to step over a value is in
//! the tag, so that a reader decodes only the columns that it wants. What types the values have is the SQL layer's
//! business (crate `sql-types`, module `encoding`).

/// First byte of a row.
pub const ROW_FORMAT: u8 = 1;

/// What a value's payload is: the low four bits of its tag.
pub mod tag {
    /// NULL.
    pub const NULL: u8 = 0;
    /// False.
    pub const FALSE: u8 = 1;
    /// True.
    pub const TRUE: u8 = 2;
    /// A signed integer; the high four bits are its length in bytes.
    pub const INTEGER: u8 = 3;
    /// A float of four bytes.
    pub const FLOAT4: u8 = 4;
    /// A float of eight bytes.
    pub const FLOAT8: u8 = 5;
    /// Scale and a signed integer of up to 16 bytes; the high four bits are the integer's length less one.
    pub const NUMERIC: u8 = 6;
    /// Bytes; the high four bits are the length, or 15 if a length of its own follows.
    pub const BYTES: u8 = 7;
    /// 16 bytes.
    pub const UUID: u8 = 8;
    /// Anything else, in its own form after a length.
    pub const OTHER: u8 = 9;
}

/// Takes a byte off the front of `input`.
#[inline]
pub fn take_byte(input: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = input.split_first()?;
    *input = rest;
    Some(byte)
}

/// Takes a length or another unsigned number in LEB128 off the front of `input`.
#[inline]
pub fn take_length(input: &mut &[u8]) -> Option<usize> {
    if let Some((&byte, rest)) = input.split_first()
        && byte < 0x80
    {
        *input = rest;
        return Some(usize::from(byte));
    }
    take_long_length(input)
}

/// The same for numbers of several bytes.
fn take_long_length(input: &mut &[u8]) -> Option<usize> {
    let mut value = 0u64;
    for shift in (0..63).step_by(7) {
        let byte = take_byte(input)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return usize::try_from(value).ok();
        }
    }
    None
}

/// A value's tag, without what it says of the length, and its payload, taken off the front of `input`.
#[inline]
pub fn take_payload<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let tag = take_byte(input)?;
    let high = usize::from(tag >> 4);
    let length = match tag & 0x0f {
        tag::NULL | tag::FALSE | tag::TRUE => 0,
        tag::INTEGER if high <= 8 => high,
        tag::FLOAT4 => 4,
        tag::FLOAT8 => 8,
        tag::NUMERIC => high + 3,
        tag::BYTES if high < 15 => high,
        tag::BYTES | tag::OTHER => take_length(input)?,
        tag::UUID => 16,
        _ => return None,
    };
    let payload = input.split_off(..length)?;
    Some((tag & 0x0f, payload))
}

/// The integer of a payload of at most eight bytes, big-endian.
#[inline]
pub fn integer(payload: &[u8]) -> i64 {
    // Most are short, so that a loop is quicker than a copy of unknown length.
    let sign = payload.first().map_or(0, |byte| i64::from(*byte as i8) >> 7);
    payload[payload.len().saturating_sub(8)..].iter().fold(sign, |value, byte| value << 8 | i64::from(*byte))
}

/// The integer of a payload of at most sixteen bytes, big-endian.
#[inline]
pub fn wide_integer(payload: &[u8]) -> i128 {
    let fill = if payload.first().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let mut bytes = [fill; 16];
    let start = bytes.len().saturating_sub(payload.len());
    bytes[start..].copy_from_slice(&payload[payload.len().saturating_sub(16)..]);
    i128::from_be_bytes(bytes)
}

/// A column of a row: its number and its value, none for NULL.
pub type Column<'a> = (usize, Option<&'a [u8]>);

/// The columns of a row that are present.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    rest: &'a [u8],
}

impl<'a> Columns<'a> {
    /// Of a row; none if it has another format.
    pub fn of(row: &'a [u8]) -> Option<Self> {
        match row.split_first() {
            Some((&ROW_FORMAT, rest)) => Some(Columns { rest }),
            _ => None,
        }
    }

    /// The next one; `Some(None)` at the end, and none if the row is damaged.
    #[inline]
    pub fn next_column(&mut self) -> Option<Option<Column<'a>>> {
        if self.rest.is_empty() {
            return Some(None);
        }
        let number = take_length(&mut self.rest)?;
        let Some(length) = take_length(&mut self.rest)?.checked_sub(1) else {
            return Some(Some((number, None)));
        };
        let value = self.rest.split_off(..length)?;
        Some(Some((number, Some(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_signs() {
        for (payload, value) in [
            (&[][..], 0),
            (&[0xff], -1),
            (&[0x7f], 127),
            (&[0x80, 0], -32768),
            (&[0, 0x80], 128),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN),
        ] {
            assert_eq!((integer(payload), wide_integer(payload)), (value, i128::from(value)), "{payload:?}");
        }
    }

    #[test]
    fn columns_are_stepped_over() {
        let row = [ROW_FORMAT, 2, 3, tag::INTEGER | 0x10, 5, 7, 0, 9, 2, tag::TRUE];
        let mut columns = Columns::of(&row).unwrap();
        assert_eq!(columns.next_column(), Some(Some((2, Some(&row[3..5])))));
        assert_eq!(columns.next_column(), Some(Some((7, None))));
        assert_eq!(columns.next_column(), Some(Some((9, Some(&row[9..])))));
        assert_eq!(columns.next_column(), Some(None));
        for length in 2..row.len() {
            let mut columns = Columns::of(&row[..length]).unwrap();
            // It ends, with a value or an error, whatever is cut off.
            while let Some(Some(_)) = columns.next_column() {}
        }
        assert!(Columns::of(&[9]).is_none() && Columns::of(&[]).is_none());
    }
}
