//! How the suites write values: as PostgreSQL's text format has them, `NULL`, on one line, and in quotes where
//! blanks would not show.

use sqllogictest::Normalizer;

/// Stands between the values of a row.
pub const SEPARATOR: &str = "|";

/// A value as it stands in a suite.
pub fn write(value: Option<&str>) -> String {
    let Some(value) = value else { return "NULL".to_string() };
    let mut text = value.to_string();
    if value.contains(['\n', '\t', '\r']) {
        for (from, to) in [("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")] {
            text = text.replace(from, to);
        }
    }
    if text.is_empty() || text.starts_with(' ') || text.ends_with(' ') { format!("'{text}'") } else { text }
}

/// Lines are compared as they are.
#[expect(clippy::ptr_arg, reason = "the runner's type")]
pub fn normalize(line: &String) -> String {
    line.clone()
}

/// Whether rows are those expected.
pub fn same_rows(_: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(row, line)| row.join(SEPARATOR) == line.trim_end())
}
