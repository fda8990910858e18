//! The command lines of `dormouse import` and `dormouse export`.

use crate::csv::Dialect;
use crate::error::{Error, Result};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What `--help` of an import ends with.
const IMPORT_EXAMPLES: &str = "\
Examples:
  dormouse import --url $URL people people.csv
  dormouse import --url $URL people --create --primary-key id part-*.parquet
  dormouse import --url $URL people 's3://bucket/people-*.csv' --endpoint-url http://127.0.0.1:9000
  dormouse import --url $URL people data.txt --format csv --no-header --delimiter '\\t' --columns id,name

Each batch of rows is a transaction of its own, so what was loaded before a failure stays, and the report says
which rows that is; --resume FILE goes on from there, --atomic loads everything or nothing.";

/// What `--help` of an export ends with.
const EXPORT_EXAMPLES: &str = "\
Examples:
  dormouse export --url $URL people people.csv
  dormouse export --url $URL people s3://bucket/people.parquet --max-file-bytes 1GiB
  dormouse export --url $URL --query 'SELECT id, name FROM people WHERE id < 10' ten.parquet
  dormouse export --url $URL people yesterday.csv --as-of=-24h

Everything exported is one snapshot. Files get their names when all of them are complete.";

/// `dormouse import`.
#[derive(Debug, Clone, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub struct ImportArgs {
    /// What imports and exports share.
    #[command(flatten)]
    pub common: Common,
    /// The table, as SQL writes it
    pub table: String,
    /// Files, or objects as s3://BUCKET/KEY; `*` stands for any characters of a name
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// Columns of the files, in their order; otherwise those of the header or the schema, without a header those of the table
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub columns: Vec<String>,
    /// Make the table if it is missing: from the schema of the first Parquet file, or the header of the first CSV file
    #[arg(long)]
    pub create: bool,
    /// Types of the columns that --create makes of CSV
    #[arg(long, value_enum, default_value_t = Types::Infer)]
    pub types: Types,
    /// Primary key of the table that --create makes
    #[arg(long, value_delimiter = ',', requires = "create", value_name = "COLUMNS")]
    pub primary_key: Vec<String>,
    /// Connections that load at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Rows of a batch, at most; batches are also ended at 4 MiB
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch_rows: u32,
    /// Load everything in one transaction, over one connection
    #[arg(long, conflicts_with = "resume")]
    pub atomic: bool,
    /// Note in this file which rows are loaded, and leave out those that it says are loaded already
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

/// `dormouse export`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXPORT_EXAMPLES, override_usage = "dormouse export [OPTIONS] <TABLE> <DEST>\n       dormouse export [OPTIONS] --query <SQL> <DEST>")]
pub struct ExportArgs {
    /// What imports and exports share.
    #[command(flatten)]
    pub common: Common,
    /// The table, unless there is a query; and the file, or object as s3://BUCKET/KEY
    #[arg(required = true, num_args = 1..=2, value_names = ["TABLE", "DEST"])]
    pub places: Vec<String>,
    /// Export the result of a query
    #[arg(long, value_name = "SQL")]
    pub query: Option<String>,
    /// Export what was there at a time, as `AS OF SYSTEM TIME` takes it: a time or an interval such as -10s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub as_of: Option<String>,
    /// Split into files of at most this many bytes, e.g. 64MiB; their names are numbered
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    pub max_file_bytes: Option<u64>,
    /// Replace files that exist
    #[arg(long)]
    pub overwrite: bool,
    /// Compression within Parquet files
    #[arg(long, value_enum, default_value_t = Compression::Zstd)]
    pub compression: Compression,
}

/// What imports and exports share.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// URL of the database, as `dormouse tenant create` prints it; sslmode and sslrootcert as libpq takes them
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub url: Option<String>,
    /// Format of the files; otherwise their names tell (.csv, .tsv, .parquet)
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// CSV: the character between fields; \t is a tab
    #[arg(long, default_value = ",", value_parser = parse_character, value_name = "CHARACTER")]
    pub delimiter: u8,
    /// CSV: what stands for NULL where it is not quoted
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub null: String,
    /// CSV: the character around fields
    #[arg(long, default_value = "\"", value_parser = parse_character, value_name = "CHARACTER")]
    pub quote: u8,
    /// CSV: the character before a quote within quotes; the quote itself if not given
    #[arg(long, value_parser = parse_character, value_name = "CHARACTER")]
    pub escape: Option<u8>,
    /// CSV: the files have no line of column names
    #[arg(long)]
    pub no_header: bool,
    /// Where object storage other than Amazon's is
    #[arg(long, env = "AWS_ENDPOINT_URL", value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// Region of the object storage
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    pub region: String,
    /// How to print the summary
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

/// Formats of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values, as PostgreSQL's COPY has them.
    Csv,
    /// Apache Parquet.
    Parquet,
}

/// Types of columns made for CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Types {
    /// The narrowest that the first rows have
    Infer,
    /// All are text
    Text,
}

/// How a summary is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Compression within Parquet files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// None
    None,
    /// Fast, and understood by every reader
    Snappy,
    /// Smaller
    Zstd,
}

impl Common {
    /// The format of a file: what was asked for, or what its name says.
    ///
    /// # Errors
    /// If neither says it.
    pub fn format_of(&self, name: &str) -> Result<Format> {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        match (self.format, extension.as_deref()) {
            (Some(format), _) => Ok(format),
            (None, Some("csv" | "tsv")) => Ok(Format::Csv),
            (None, Some("parquet" | "pq")) => Ok(Format::Parquet),
            (None, _) => Err(Error::new(format!("the name of {name} does not say its format"))
                .hint("Give --format csv or --format parquet.")),
        }
    }

    /// How the fields of a CSV file are written.
    ///
    /// # Errors
    /// If characters that must differ are the same, or one is a newline.
    pub fn dialect(&self, name: &str) -> Result<Dialect> {
        let is_tsv = name.to_ascii_lowercase().ends_with(".tsv") && self.delimiter == b',';
        let delimiter = if is_tsv { b'\t' } else { self.delimiter };
        Dialect::new(delimiter, self.quote, self.escape.unwrap_or(self.quote), &self.null, !self.no_header)
    }
}

/// One character of one byte; `\t` is a tab.
fn parse_character(text: &str) -> std::result::Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [one] => Ok(*one),
        _ => Err("must be one character of ASCII".into()),
    }
}

/// `1000`, `64KiB`, `64MiB`, `2GiB` and the same in powers of ten (`kB`, `MB`, `GB`).
fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("\"{text}\" is not a size"))?;
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return Err(format!("\"{unit}\" is not a unit; use KiB, MiB or GiB")),
    };
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("\"{text}\" is not a possible size"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    enum Cli {
        Import(ImportArgs),
        Export(ExportArgs),
    }

    fn parse(line: &str) -> std::result::Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("dormouse").chain(line.split(' ')))
    }

    #[test]
    fn imports() {
        let Cli::Import(args) = parse("import t a.csv b.tsv c.bin --columns x,y --delimiter \\t").unwrap()
        else {
            panic!()
        };
        assert_eq!((args.columns.len(), args.files.len(), args.common.delimiter), (2, 3, b'\t'));
        assert_eq!(args.common.format_of("a.csv").unwrap(), Format::Csv);
        assert!(args.common.format_of("c.bin").is_err());
        for line in [
            "import",
            "import t",
            "import t f --jobs 0",
            "import t f --delimiter ab",
            "import t f --atomic --resume r",
            "import t f --primary-key a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn exports() {
        let Cli::Export(args) = parse("export t o.parquet --as-of -10s --max-file-bytes 64MiB").unwrap()
        else {
            panic!()
        };
        assert_eq!((args.as_of.as_deref(), args.max_file_bytes), (Some("-10s"), Some(64 << 20)));
        for line in
            ["export", "export a b c", "export t f --max-file-bytes 0", "export t f --max-file-bytes 3XB"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
