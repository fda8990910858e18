//! The options of EXPLAIN.

use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, AnalyzeFormat, AnalyzeFormatKind};

/// How the plan is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// The options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainOptions {
    /// Runs the statement and shows what happened.
    pub analyze: bool,
    /// Shows the output columns.
    pub verbose: bool,
    /// Shows estimates.
    pub costs: bool,
    /// Shows times (with `analyze`).
    pub timing: bool,
    /// Shows planning and execution time.
    pub summary: bool,
    /// Format.
    pub format: ExplainFormat,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        ExplainOptions {
            analyze: false,
            verbose: false,
            costs: true,
            timing: true,
            summary: false,
            format: ExplainFormat::Text,
        }
    }
}

/// The options of an EXPLAIN and the statement explained.
pub fn options(explain: &ast::Statement) -> SqlResult<(ExplainOptions, &ast::Statement)> {
    let ast::Statement::Explain { analyze, verbose, statement, format, options: listed, .. } = explain else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "EXPLAIN needs a statement"));
    };
    let mut options = ExplainOptions { analyze: *analyze, verbose: *verbose, ..ExplainOptions::default() };
    options.summary = *analyze;
    if let Some(format) = format {
        let (AnalyzeFormatKind::Keyword(format) | AnalyzeFormatKind::Assignment(format)) = format;
        options.format = match format {
            AnalyzeFormat::TEXT => ExplainFormat::Text,
            AnalyzeFormat::JSON => ExplainFormat::Json,
            _ => return Err(SqlError::unsupported("this format of EXPLAIN")),
        };
    }
    let mut summary = None;
    for option in listed.iter().flatten() {
        let name = option.name.value.to_ascii_lowercase();
        let value = option.arg.as_ref().map(|arg| arg.to_string().trim_matches('\'').to_ascii_lowercase());
        match name.as_str() {
            "analyze" | "analyse" => options.analyze = flag(&name, value.as_deref())?,
            "verbose" => options.verbose = flag(&name, value.as_deref())?,
            "costs" => options.costs = flag(&name, value.as_deref())?,
            "timing" => options.timing = flag(&name, value.as_deref())?,
            "summary" => summary = Some(flag(&name, value.as_deref())?),
            "buffers" | "settings" | "wal" | "generic_plan" | "memory" | "serialize" => {}
            "format" => {
                options.format = match value.as_deref() {
                    Some("text") => ExplainFormat::Text,
                    Some("json") => ExplainFormat::Json,
                    Some("xml" | "yaml") => return Err(SqlError::unsupported("this format of EXPLAIN")),
                    other => {
                        return Err(SqlError::new(
                            SqlState::INVALID_PARAMETER,
                            format!(
                                "unrecognized value for EXPLAIN option \"format\": \"{}\"",
                                other.unwrap_or_default()
                            ),
                        ));
                    }
                }
            }
            _ => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("unrecognized EXPLAIN option \"{name}\""),
                ));
            }
        }
    }
    options.summary = summary.unwrap_or(options.analyze);
    Ok((options, statement))
}

fn flag(name: &str, value: Option<&str>) -> SqlResult<bool> {
    match value {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    }
}
