//! The options of COPY.

use sql_types::{SqlError, SqlResult, SqlState};

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Tab-separated with backslash escapes.
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's binary format.
    Binary,
}

/// What is expected of, or written as, the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyHeader {
    /// It is data.
    None,
    /// It names the columns; skipped on input.
    Skip,
    /// It names the columns, which must match on input.
    Match,
}

/// Columns that a FORCE option applies to, as positions in the column list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceColumns {
    /// All columns (`*`), or none.
    Every(bool),
    /// These.
    These(Vec<usize>),
}

impl ForceColumns {
    /// Whether the option applies to the column at `position`.
    pub fn contains(&self, position: usize) -> bool {
        match self {
            ForceColumns::Every(all) => *all,
            ForceColumns::These(list) => list.contains(&position),
        }
    }
}

/// The value of an option as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// None given.
    None,
    /// A string, name, number or boolean.
    Text(String),
    /// `*`
    Star,
    /// A list of column names.
    Names(Vec<String>),
}

/// The options, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Format.
    pub format: CopyFormat,
    /// Separates columns.
    pub delimiter: u8,
    /// Stands for NULL.
    pub null: String,
    /// The first line.
    pub header: CopyHeader,
    /// Quotes values in csv.
    pub quote: u8,
    /// Escapes the quote in csv.
    pub escape: u8,
    /// Columns always quoted on output.
    pub force_quote: ForceColumns,
    /// Columns never matched against `null` on input.
    pub force_not_null: ForceColumns,
    /// Columns matched against `null` on input even when quoted.
    pub force_null: ForceColumns,
    /// FREEZE; accepted, without effect.
    pub freeze: bool,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            format: CopyFormat::Text,
            delimiter: b'\t',
            null: "\\N".to_string(),
            header: CopyHeader::None,
            quote: b'"',
            escape: b'"',
            force_quote: ForceColumns::Every(false),
            force_not_null: ForceColumns::Every(false),
            force_null: ForceColumns::Every(false),
            freeze: false,
        }
    }
}

#[derive(Default)]
struct Given {
    format: Option<CopyFormat>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<CopyHeader>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<ForceColumns>,
    force_not_null: Option<ForceColumns>,
    force_null: Option<ForceColumns>,
    encoding: Option<()>,
    freeze: Option<bool>,
}

impl CopyOptions {
    /// Checks options as written: names in lower case with their values. `columns` are the names of
    /// the columns copied, in order. Whether it is COPY FROM matters to some options.
    pub fn from_list(
        list: &[(String, OptionValue)],
        columns: &[&str],
        is_from: bool,
    ) -> SqlResult<CopyOptions> {
        let mut given = Given::default();
        for (name, value) in list {
            given.take(name, value, columns)?;
        }
        given.check(is_from)
    }
}

fn conflicting(name: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options")
        .with_detail(format!("Option \"{name}\" is given more than once."))
}

fn set<T>(slot: &mut Option<T>, name: &str, value: T) -> SqlResult<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(conflicting(name)),
    }
}

fn text(name: &str, value: &OptionValue) -> SqlResult<String> {
    match value {
        OptionValue::Text(text) => Ok(text.clone()),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a parameter"))),
    }
}

fn boolean(name: &str, value: &OptionValue) -> SqlResult<bool> {
    let OptionValue::Text(text) = value else {
        return match value {
            OptionValue::None => Ok(true),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
        };
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    }
}

fn header(value: &OptionValue) -> SqlResult<CopyHeader> {
    if matches!(value, OptionValue::Text(text) if text.eq_ignore_ascii_case("match")) {
        return Ok(CopyHeader::Match);
    }
    match boolean("header", value) {
        Ok(true) => Ok(CopyHeader::Skip),
        Ok(false) => Ok(CopyHeader::None),
        Err(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, "header requires a Boolean value or \"match\"")),
    }
}

fn force(name: &str, value: &OptionValue, columns: &[&str]) -> SqlResult<ForceColumns> {
    let names = match value {
        OptionValue::Star if name == "force_quote" => return Ok(ForceColumns::Every(true)),
        OptionValue::Names(names) => names.as_slice(),
        OptionValue::Text(one) => std::slice::from_ref(one),
        _ => {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("argument to option \"{name}\" must be a list of column names"),
            ));
        }
    };
    let position = |wanted: &String| {
        columns.iter().position(|column| column == wanted).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("{} column \"{wanted}\" not referenced by COPY", name.to_uppercase()),
            )
        })
    };
    Ok(ForceColumns::These(names.iter().map(position).collect::<SqlResult<_>>()?))
}

fn format(value: &OptionValue) -> SqlResult<CopyFormat> {
    let name = text("format", value)?;
    match name.as_str() {
        "text" => Ok(CopyFormat::Text),
        "csv" => Ok(CopyFormat::Csv),
        "binary" => Ok(CopyFormat::Binary),
        other => {
            Err(SqlError::new(SqlState::INVALID_PARAMETER, format!("COPY format \"{other}\" not recognized")))
        }
    }
}

fn encoding(value: &OptionValue) -> SqlResult<()> {
    let name = text("encoding", value)?;
    match name.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" | "sqlascii" => Ok(()),
        _ => Err(SqlError::unsupported(format!("COPY encoding \"{name}\""))),
    }
}

fn single_byte(what: &str, text: &str) -> SqlResult<u8> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

impl Given {
    fn take(&mut self, name: &str, value: &OptionValue, columns: &[&str]) -> SqlResult<()> {
        match name {
            "format" => set(&mut self.format, name, format(value)?),
            "delimiter" => set(&mut self.delimiter, name, text(name, value)?),
            "null" => set(&mut self.null, name, text(name, value)?),
            "header" => set(&mut self.header, name, header(value)?),
            "quote" => set(&mut self.quote, name, text(name, value)?),
            "escape" => set(&mut self.escape, name, text(name, value)?),
            "force_quote" => set(&mut self.force_quote, name, force(name, value, columns)?),
            "force_not_null" => set(&mut self.force_not_null, name, force(name, value, columns)?),
            "force_null" => set(&mut self.force_null, name, force(name, value, columns)?),
            "encoding" => set(&mut self.encoding, name, encoding(value)?),
            "freeze" => set(&mut self.freeze, name, boolean(name, value)?),
            other => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("option \"{other}\" not recognized"))),
        }
    }

    fn check(self, is_from: bool) -> SqlResult<CopyOptions> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        self.check_binary(format)?;
        self.check_csv_only(format, is_from)?;
        let csv = format == CopyFormat::Csv;
        let delimiter = self.delimiter.unwrap_or_else(|| if csv { "," } else { "\t" }.to_string());
        let null = self.null.unwrap_or_else(|| if csv { "" } else { "\\N" }.to_string());
        let quote = single_byte("quote", &self.quote.unwrap_or_else(|| "\"".to_string()))?;
        let escape = match self.escape {
            Some(escape) => single_byte("escape", &escape)?,
            None => quote,
        };
        let options = CopyOptions {
            format,
            delimiter: single_byte("delimiter", &delimiter)?,
            null,
            header: self.header.unwrap_or(CopyHeader::None),
            quote,
            escape,
            force_quote: self.force_quote.unwrap_or(ForceColumns::Every(false)),
            force_not_null: self.force_not_null.unwrap_or(ForceColumns::Every(false)),
            force_null: self.force_null.unwrap_or(ForceColumns::Every(false)),
            freeze: self.freeze.unwrap_or(false),
        };
        options.check_characters()?;
        Ok(options)
    }

    fn check_binary(&self, format: CopyFormat) -> SqlResult<()> {
        if format != CopyFormat::Binary {
            return Ok(());
        }
        let refused = [
            (self.delimiter.is_some(), "DELIMITER"),
            (self.null.is_some(), "NULL"),
            (self.header.is_some_and(|header| header != CopyHeader::None), "HEADER"),
        ];
        match refused.iter().find(|(given, _)| *given) {
            None => Ok(()),
            Some((_, name)) => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("cannot specify {name} in BINARY mode")))
            }
        }
    }

    fn check_csv_only(&self, format: CopyFormat, is_from: bool) -> SqlResult<()> {
        let given = [
            (self.quote.is_some(), "quote", true, true),
            (self.escape.is_some(), "escape", true, true),
            (self.force_quote.is_some(), "force quote", false, true),
            (self.force_not_null.is_some(), "force not null", true, false),
            (self.force_null.is_some(), "force null", true, false),
        ];
        for (given, name, in_from, in_to) in given {
            if given && format != CopyFormat::Csv {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("COPY {name} available only in CSV mode"),
                ));
            }
            if given && !(if is_from { in_from } else { in_to }) {
                let only = if is_from { "COPY TO" } else { "COPY FROM" };
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("COPY {name} only available using {only}"),
                ));
            }
        }
        Ok(())
    }
}

impl CopyOptions {
    fn check_characters(&self) -> SqlResult<()> {
        let bad = |message: &str| Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
        if matches!(self.delimiter, b'\n' | b'\r') {
            return bad("COPY delimiter cannot be newline or carriage return");
        }
        if self.null.contains(['\n', '\r']) {
            return bad("COPY null representation cannot use newline or carriage return");
        }
        if self.format == CopyFormat::Text
            && b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&self.delimiter)
        {
            return bad(&format!("COPY delimiter cannot be \"{}\"", char::from(self.delimiter)));
        }
        if self.format != CopyFormat::Binary && self.null.as_bytes().contains(&self.delimiter) {
            return bad("COPY delimiter character must not appear in the NULL specification");
        }
        if self.format != CopyFormat::Csv {
            return Ok(());
        }
        if self.delimiter == self.quote {
            return bad("COPY delimiter and quote must be different");
        }
        if self.null.as_bytes().contains(&self.quote) {
            return bad("CSV quote character must not appear in the NULL specification");
        }
        Ok(())
    }
}
