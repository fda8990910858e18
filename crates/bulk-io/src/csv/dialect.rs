//! How fields are written.

use crate::error::{Error, Result};
use crate::name::literal;

/// How the fields of a file are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// Around fields.
    pub quote: u8,
    /// Before a quote within quotes.
    pub escape: u8,
    /// What stands for NULL where it is not quoted.
    pub null: String,
    /// Whether the first record has the names of the columns.
    pub header: bool,
}

/// A field: its text, none if it is NULL.
pub type Field = Option<String>;

impl Dialect {
    /// A dialect.
    ///
    /// # Errors
    /// If characters that must differ are the same, or one is a newline.
    pub fn new(delimiter: u8, quote: u8, escape: u8, null: &str, header: bool) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0);
        if ![delimiter, quote, escape].into_iter().all(is_plain) {
            return Err(Error::new(
                "delimiter, quote and escape must be ASCII characters other than newlines",
            ));
        }
        if delimiter == quote {
            return Err(Error::new("delimiter and quote must differ"));
        }
        let breaks = |byte: u8| byte == delimiter || byte == quote || !is_plain(byte) && byte.is_ascii();
        if null.bytes().any(breaks) {
            return Err(Error::new("the text for NULL must have neither delimiter nor quote nor newline"));
        }
        Ok(Self { delimiter, quote, escape, null: null.to_owned(), header })
    }

    /// The options of COPY that say the same. The header is left out: records of it are not sent.
    pub fn copy_options(&self) -> String {
        let character = |byte: u8| literal(&char::from(byte).to_string());
        format!(
            "FORMAT csv, DELIMITER {}, QUOTE {}, ESCAPE {}, NULL {}",
            character(self.delimiter),
            character(self.quote),
            character(self.escape),
            literal(&self.null)
        )
    }

    /// The fields of a record, which may have its newline.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn fields(&self, record: &[u8]) -> Result<Vec<Field>> {
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let mut fields = Vec::new();
        let mut field = Vec::new();
        let (mut quoted, mut inside) = (false, false);
        let mut bytes = record.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            if inside && byte == self.escape && bytes.peek().is_some_and(|next| self.is_escaped(*next)) {
                field.extend(bytes.next());
            } else if byte == self.quote {
                inside = !inside;
                quoted = true;
            } else if byte == self.delimiter && !inside {
                fields.push(self.field(std::mem::take(&mut field), quoted)?);
                quoted = false;
            } else {
                field.push(byte);
            }
        }
        fields.push(self.field(field, quoted)?);
        Ok(fields)
    }

    /// Whether a character is taken as it is after the escape, within quotes.
    pub fn is_escaped(&self, byte: u8) -> bool {
        byte == self.quote || byte == self.escape
    }

    fn field(&self, bytes: Vec<u8>, quoted: bool) -> Result<Field> {
        let text = String::from_utf8(bytes).map_err(|_| Error::new("text that is not UTF-8"))?;
        Ok((quoted || text != self.null).then_some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(dialect: &Dialect, record: &str) -> Vec<Option<String>> {
        dialect.fields(record.as_bytes()).unwrap()
    }

    #[test]
    fn fields_are_those_of_copy() {
        let dialect = Dialect::new(b',', b'"', b'"', "", true).unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            fields(&dialect, "1,,\"\",\"a\"\"b\",x\"y,z\"\r\n"),
            [some("1"), None, some(""), some("a\"b"), some("xy,z")]
        );
        assert_eq!(fields(&dialect, "\n"), [None]);
        let other = Dialect::new(b'\t', b'\'', b'\\', "NULL", false).unwrap();
        assert_eq!(fields(&other, "NULL\t'NULL'\t'\\'\\x\\\\'"), [None, some("NULL"), some("'\\x\\")]);
        assert_eq!(other.copy_options(), "FORMAT csv, DELIMITER '\t', QUOTE '''', ESCAPE '\\', NULL 'NULL'");
    }

    #[test]
    fn dialects_that_cannot_be_read_are_refused() {
        for (delimiter, quote, null) in
            [(b'"', b'"', ""), (b'\n', b'"', ""), (b',', b'"', "a,b"), (b',', b'"', "\n"), (b',', 200, "")]
        {
            assert!(Dialect::new(delimiter, quote, quote, null, true).is_err());
        }
        assert!(Dialect::new(b';', b'"', b'"', "Ø", true).is_ok());
    }
}
