//! The settings there are, and which values each takes.

use sql_types::datetime::TimeZone;
use sql_types::{SqlError, SqlResult, SqlState};
use std::borrow::Cow;
use std::sync::LazyLock;

/// What a setting's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Integer,
    Real,
    String,
    Enum,
}

/// A setting.
#[derive(Debug)]
pub(crate) struct Definition {
    pub name: &'static str,
    pub kind: Kind,
    /// `pg_settings.context`.
    pub context: &'static str,
    pub unit: &'static str,
    pub default: &'static str,
    pub min: &'static str,
    pub max: &'static str,
    pub allowed: &'static str,
    pub category: &'static str,
    pub description: &'static str,
}

static TEXT: &str = include_str!("data/settings.txt");

/// All settings, sorted by lower-case name.
pub(crate) fn all() -> &'static [Definition] {
    static ALL: LazyLock<Vec<Definition>> = LazyLock::new(|| {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
        let mut all: Vec<Definition> = lines.filter_map(parse).collect();
        all.sort_by_key(|definition| definition.name.to_ascii_lowercase());
        all
    });
    &ALL
}

fn parse(line: &'static str) -> Option<Definition> {
    let fields: Vec<&str> = line.split('|').collect();
    let [name, kind, context, unit, default, min, max, allowed, category, description, ..] = fields[..]
    else {
        return None;
    };
    let kind = match kind {
        "bool" => Kind::Bool,
        "integer" => Kind::Integer,
        "real" => Kind::Real,
        "enum" => Kind::Enum,
        _ => Kind::String,
    };
    Some(Definition { name, kind, context, unit, default, min, max, allowed, category, description })
}

/// A setting by name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static Definition> {
    let all = all();
    let lower = name.to_ascii_lowercase();
    let index = all.binary_search_by(|definition| {
        // Names are ASCII; only a handful have capitals.
        if definition.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            definition.name.to_ascii_lowercase().as_str().cmp(lower.as_str())
        } else {
            definition.name.cmp(lower.as_str())
        }
    });
    index.ok().and_then(|index| all.get(index))
}

fn invalid(definition: &Definition, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{}\": \"{value}\"", definition.name);
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// `42704` for a name that is no setting.
pub(crate) fn unrecognized(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// A boolean as PostgreSQL reads it: any unambiguous beginning of a word will do.
pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    let value = value.trim().to_ascii_lowercase();
    match value.as_str() {
        "" | "o" => None,
        "1" => Some(true),
        "0" => Some(false),
        word if "true".starts_with(word) || "yes".starts_with(word) || word == "on" => Some(true),
        word if "false".starts_with(word) || "no".starts_with(word) || "off".starts_with(word) => Some(false),
        _ => None,
    }
}

/// How many of the base unit one of `unit` is.
fn factor(base: &str, unit: &str) -> Option<f64> {
    let micros = |unit: &str| {
        Some(match unit {
            "us" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            "min" => 60e6,
            "h" => 3600e6,
            "d" => 86400e6,
            _ => return None,
        })
    };
    let bytes = |unit: &str| {
        Some(match unit {
            "B" => 1.0,
            "kB" => 1024.0,
            "8kB" => 8192.0,
            "MB" => 1048576.0,
            "GB" => 1073741824.0,
            "TB" => 1099511627776.0,
            _ => return None,
        })
    };
    match (micros(base), micros(unit)) {
        (Some(base), Some(unit)) => Some(unit / base),
        _ => Some(bytes(unit)? / bytes(base)?),
    }
}

fn number(definition: &Definition, value: &str) -> SqlResult<f64> {
    let text = value.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let parsed: f64 = number.parse().map_err(|_| invalid(definition, value))?;
    let scaled = match unit.trim() {
        "" => parsed,
        unit => {
            let factor =
                Some(definition.unit).filter(|base| !base.is_empty()).and_then(|base| factor(base, unit));
            parsed * factor.ok_or_else(|| {
                let hint = if definition.unit.is_empty() {
                    "This parameter takes no unit.".to_string()
                } else {
                    "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\", or \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".".to_string()
                };
                invalid(definition, value).with_hint(hint)
            })?
        }
    };
    let (min, max) = (definition.min.parse().unwrap_or(f64::MIN), definition.max.parse().unwrap_or(f64::MAX));
    let rounded = if definition.kind == Kind::Integer { scaled.round() } else { scaled };
    if rounded.is_nan() || rounded < min || rounded > max {
        let unit = if definition.unit.is_empty() { String::new() } else { format!(" {}", definition.unit) };
        let message = format!(
            "{}{unit} is outside the valid range for parameter \"{}\" ({} .. {})",
            rounded, definition.name, definition.min, definition.max
        );
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    Ok(rounded)
}

/// The value in its normal form.
pub(crate) fn normalize(definition: &Definition, value: &str) -> SqlResult<String> {
    match definition.name {
        "TimeZone" => return TimeZone::parse_setting(value).map(|zone| zone.name().to_string()),
        "client_encoding" => return client_encoding(value),
        "standard_conforming_strings" if parse_bool(value) == Some(false) => {
            return Err(SqlError::unsupported("standard_conforming_strings = off"));
        }
        _ => {}
    }
    match definition.kind {
        Kind::Bool => match parse_bool(value) {
            Some(truth) => Ok(if truth { "on" } else { "off" }.into()),
            None => {
                let message = format!("parameter \"{}\" requires a Boolean value", definition.name);
                Err(SqlError::new(SqlState::INVALID_PARAMETER, message))
            }
        },
        Kind::Integer => number(definition, value).map(|number| format!("{number:.0}")),
        Kind::Real => number(definition, value).map(|number| format!("{number}")),
        Kind::Enum => {
            let mut allowed = definition.allowed.split(',');
            if let Some(found) = allowed.clone().find(|word| word.eq_ignore_ascii_case(value)) {
                return Ok(found.into());
            }
            // Settings that are booleans with further values take every spelling of those.
            let truth = parse_bool(value).map(|truth| if truth { "on" } else { "off" });
            if let Some(found) = truth.and_then(|truth| allowed.find(|word| *word == truth)) {
                return Ok(found.into());
            }
            let hint = format!("Available values: {}.", definition.allowed.replace(',', ", "));
            Err(invalid(definition, value).with_hint(hint))
        }
        Kind::String => Ok(value.into()),
    }
}

fn client_encoding(value: &str) -> SqlResult<String> {
    let plain: String =
        value.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    match plain.as_str() {
        "utf8" | "unicode" => Ok("UTF8".into()),
        "sqlascii" => Ok("SQL_ASCII".into()),
        _ => {
            let message = format!("invalid value for parameter \"client_encoding\": \"{value}\"");
            Err(SqlError::new(SqlState::INVALID_PARAMETER, message)
                .with_hint("UTF8 is the only encoding supported."))
        }
    }
}

/// The value as SHOW prints it: with a unit where that makes it shorter.
pub(crate) fn display<'v>(definition: &Definition, value: &'v str) -> Cow<'v, str> {
    let units: &[&str] = match definition.unit {
        "ms" | "s" | "min" => &["d", "h", "min", "s", "ms"],
        "B" | "kB" | "8kB" | "MB" => &["TB", "GB", "MB", "kB", "B"],
        _ => return Cow::Borrowed(value),
    };
    let Ok(number) = value.parse::<f64>() else { return Cow::Borrowed(value) };
    if number <= 0.0 {
        return Cow::Borrowed(value);
    }
    for unit in units {
        if let Some(factor) = factor(definition.unit, unit) {
            let scaled = number / factor;
            if scaled >= 1.0 && scaled.fract() == 0.0 {
                return Cow::Owned(format!("{scaled:.0}{unit}"));
            }
        }
    }
    Cow::Borrowed(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> SqlResult<String> {
        normalize(find(name).unwrap(), value)
    }

    #[test]
    fn values_are_read_with_units_and_checked() {
        assert_eq!(set("statement_timeout", "5s").unwrap(), "5000");
        assert_eq!(set("work_mem", "64MB").unwrap(), "65536");
        assert_eq!(set("STATEMENT_TIMEOUT", "-1").unwrap_err().code, SqlState::INVALID_PARAMETER);
        assert_eq!(set("bytea_output", "HEX").unwrap(), "hex");
        assert_eq!(set("jit", "tru").unwrap(), "on");
        assert_eq!(set("client_encoding", "'utf-8'").unwrap(), "UTF8");
        assert!(set("client_encoding", "LATIN1").is_err());
        assert!(set("DateStyle", "ISO").is_ok());
        assert!(find("no_such_setting").is_none());
    }

    #[test]
    fn show_prints_units() {
        assert_eq!(display(find("work_mem").unwrap(), "4096"), "4MB");
        assert_eq!(display(find("statement_timeout").unwrap(), "0"), "0");
        assert_eq!(display(find("statement_timeout").unwrap(), "90000"), "90s");
    }
}
