//! The settings of one session: values, their undoing, and what is derived from them.

use super::command::IsolationLevel;
use super::definitions::{self, Definition, Kind};
use crate::analytic::{EngineChoice, PartialAggregates};
use crate::optimize::{Options, Rule};
use kv_client::Priority;
use sql_types::context::{ByteaOutput, DateOrder, DateStyle, IntervalStyle};
use sql_types::datetime::TimeZone;
use sql_types::{SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The settings that are reported to the client when they change, as it expects them spelt.
pub(crate) const REPORTED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// Longest value taken.
const LONGEST_VALUE: usize = 64 << 10;
/// Settings of its own (`a.b`) a session may make.
const MOST_CUSTOM: usize = 1000;

/// What statements read of the settings; rebuilt when one changes.
#[derive(Clone, Debug)]
pub(crate) struct Derived {
    pub time_zone: TimeZone,
    pub date_style: DateStyle,
    pub date_order: DateOrder,
    pub interval_style: IntervalStyle,
    pub extra_float_digits: i32,
    pub bytea_output: ByteaOutput,
    pub search_path: Vec<String>,
    pub statement_timeout: Option<Duration>,
    pub lock_timeout: Option<Duration>,
    pub row_security: bool,
    pub idle_in_transaction: Option<Duration>,
    pub isolation: IsolationLevel,
    pub read_only: bool,
    pub follower_reads: bool,
    pub priority: Priority,
    pub parallel_commits: bool,
    pub buffered_writes: bool,
    pub engine: EngineChoice,
    pub partial_aggregates: PartialAggregates,
    pub auto_analyze: bool,
    /// Bytes a statement may use.
    pub statement_memory: usize,
    /// What the reading of literals depends on, as a key.
    pub literals: Arc<str>,
    /// How statements are to be planned.
    pub planning: Options,
}

struct Undo {
    name: String,
    previous: Option<String>,
    local: bool,
}

/// The settings of one session.
pub(crate) struct Settings {
    /// What differs from the default, by lower-case name.
    values: HashMap<String, String>,
    /// What the session began with: RESET returns to it.
    initial: HashMap<String, String>,
    undo: Vec<Undo>,
    changed: Vec<&'static str>,
    derived: Arc<Derived>,
    /// Counts changes.
    pub generation: u64,
}

impl Settings {
    pub(crate) fn new() -> Self {
        let values = HashMap::new();
        let derived = Arc::new(derive(&values));
        Settings {
            values,
            initial: HashMap::new(),
            undo: Vec::new(),
            changed: Vec::new(),
            derived,
            generation: 1,
        }
    }

    /// Sets what the session begins with.
    pub(crate) fn begin(&mut self, name: &str, value: &str) -> SqlResult<()> {
        self.set(name, Some(value), false, false)
    }

    /// Ends the beginning: RESET returns to what is set now, and nothing of it is reported as a change.
    pub(crate) fn begun(&mut self) {
        self.initial = self.values.clone();
        self.changed.clear();
    }

    /// Sets a value that only the server may set.
    pub(crate) fn force(&mut self, name: &'static str, value: &str) {
        self.values.insert(name.to_ascii_lowercase(), value.to_string());
        self.initial.insert(name.to_ascii_lowercase(), value.to_string());
        self.note_change(name);
    }

    pub(crate) fn derived(&self) -> Arc<Derived> {
        self.derived.clone()
    }

    /// The value of a setting as `current_setting` gives it.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let value = self.raw(name)?;
        match definitions::find(name) {
            Some(definition) => Some(definitions::display(definition, &value).into_owned()),
            None => Some(value),
        }
    }

    /// The value of a setting without units.
    pub(crate) fn raw(&self, name: &str) -> Option<String> {
        match self.values.get(&name.to_ascii_lowercase()) {
            Some(value) => Some(value.clone()),
            None => definitions::find(name).map(|definition| definition.default.to_string()),
        }
    }

    /// What RESET would set.
    pub(crate) fn reset_value(&self, name: &str) -> Option<String> {
        match self.initial.get(&name.to_ascii_lowercase()) {
            Some(value) => Some(value.clone()),
            None => definitions::find(name).map(|definition| definition.default.to_string()),
        }
    }

    /// Whether it differs from the built-in default.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(&name.to_ascii_lowercase())
    }

    /// SET: `None` for DEFAULT. In a transaction the change is undone if it fails, and a local one at
    /// its end in any case.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        in_transaction: bool,
    ) -> SqlResult<()> {
        let lower = name.to_ascii_lowercase();
        let definition = definitions::find(name);
        let value = match (definition, value) {
            (Some(definition), value) => {
                check_settable(definition)?;
                match value {
                    None => self.initial.get(&lower).cloned(),
                    Some(value) if value.len() > LONGEST_VALUE => return Err(too_long(name)),
                    Some(value) => Some(self.normal(definition, value)?),
                }
            }
            (None, value) if is_custom(&lower) => {
                let count = self.values.keys().filter(|name| name.contains('.')).count();
                if count >= MOST_CUSTOM || value.is_some_and(|value| value.len() > LONGEST_VALUE) {
                    return Err(too_long(name));
                }
                Some(value.unwrap_or_default().to_string())
            }
            (None, _) => return Err(definitions::unrecognized(name)),
        };
        if in_transaction {
            self.undo.push(Undo { name: lower.clone(), previous: self.values.get(&lower).cloned(), local });
        }
        self.put(lower, value);
        Ok(())
    }

    fn normal(&self, definition: &Definition, value: &str) -> SqlResult<String> {
        if definition.name == "DateStyle" {
            let (style, order) = date_style(value, (self.derived.date_style, self.derived.date_order))?;
            return Ok(date_style_name(style, order));
        }
        if definition.name == "application_name" {
            let shown = value.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
            return Ok(shown.take(63).collect());
        }
        definitions::normalize(definition, value)
    }

    fn put(&mut self, lower: String, value: Option<String>) {
        let definition = definitions::find(&lower);
        let before = self.values.get(&lower).cloned();
        match value {
            Some(value) => drop(self.values.insert(lower, value)),
            None => drop(self.values.remove(&lower)),
        }
        if let Some(definition) = definition {
            if before.as_deref() != self.values.get(&definition.name.to_ascii_lowercase()).map(String::as_str)
            {
                self.note_change(definition.name);
            }
        } else {
            self.generation += 1;
        }
    }

    fn note_change(&mut self, name: &'static str) {
        self.derived = Arc::new(derive(&self.values));
        self.generation += 1;
        let reported = REPORTED.iter().find(|reported| reported.eq_ignore_ascii_case(name));
        let news = reported.copied().filter(|reported| !self.changed.contains(reported));
        self.changed.extend(news.into_iter().collect::<Vec<_>>());
    }

    /// RESET ALL.
    pub(crate) fn reset_all(&mut self, in_transaction: bool) {
        let names: Vec<String> = self.values.keys().cloned().collect();
        for name in names {
            if matches!(name.as_str(), "role" | "session_authorization" | "is_superuser") {
                continue;
            }
            if in_transaction {
                self.undo.push(Undo {
                    name: name.clone(),
                    previous: self.values.get(&name).cloned(),
                    local: false,
                });
            }
            let initial = self.initial.get(&name).cloned();
            self.put(name, initial);
        }
        let missing: Vec<_> = self
            .initial
            .iter()
            .filter(|(name, _)| !self.values.contains_key(*name))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        for (name, value) in missing {
            self.put(name, Some(value));
        }
    }

    /// How many changes could be undone: a savepoint.
    pub(crate) fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the changes since a mark.
    pub(crate) fn rollback_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some(undo) = self.undo.pop() {
                self.put(undo.name, undo.previous);
            }
        }
    }

    /// The transaction ended.
    pub(crate) fn end_transaction(&mut self, committed: bool) {
        if self.undo.is_empty() {
            return;
        }
        if !committed {
            self.rollback_to(0);
            return;
        }
        let undo = std::mem::take(&mut self.undo);
        let mut lasting: Vec<&str> = Vec::new();
        let mut revert = Vec::new();
        for entry in undo.iter().rev() {
            if !entry.local {
                lasting.push(&entry.name);
            } else if !lasting.contains(&entry.name.as_str()) {
                revert.push((entry.name.clone(), entry.previous.clone()));
            }
        }
        for (name, previous) in revert {
            self.put(name, previous);
        }
    }

    /// Reported settings that changed since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<(String, String)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|name| (name.to_string(), self.get(name).unwrap_or_default())).collect()
    }
}

fn too_long(name: &str) -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT, format!("value of parameter \"{name}\" is too long"))
}

fn is_custom(name: &str) -> bool {
    name.contains('.')
        && name.split('.').all(|part| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

fn check_settable(definition: &Definition) -> SqlResult<()> {
    let problem = match definition.context {
        "internal" => "cannot be changed",
        "postmaster" => "cannot be changed without restarting the server",
        "sighup" => "cannot be changed now",
        _ => return Ok(()),
    };
    let message = format!("parameter \"{}\" {problem}", definition.name);
    Err(SqlError::new(SqlState::CANT_CHANGE_PARAM, message))
}

fn date_style(value: &str, current: (DateStyle, DateOrder)) -> SqlResult<(DateStyle, DateOrder)> {
    let (mut style, mut order) = current;
    for word in value.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        match word.as_str() {
            "iso" => style = DateStyle::Iso,
            "sql" => style = DateStyle::Sql,
            "postgres" => style = DateStyle::Postgres,
            "german" => (style, order) = (DateStyle::German, DateOrder::Dmy),
            "mdy" | "us" | "noneuro" | "noneuropean" => order = DateOrder::Mdy,
            "dmy" | "euro" | "european" => order = DateOrder::Dmy,
            "ymd" => order = DateOrder::Ymd,
            "default" => (style, order) = (DateStyle::Iso, DateOrder::Mdy),
            _ => {
                let message = format!("invalid value for parameter \"DateStyle\": \"{value}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
            }
        }
    }
    Ok((style, order))
}

fn date_style_name(style: DateStyle, order: DateOrder) -> String {
    let style = match style {
        DateStyle::Iso => "ISO",
        DateStyle::Sql => "SQL",
        DateStyle::Postgres => "Postgres",
        DateStyle::German => "German",
    };
    let order = match order {
        DateOrder::Mdy => "MDY",
        DateOrder::Dmy => "DMY",
        DateOrder::Ymd => "YMD",
    };
    format!("{style}, {order}")
}

/// The names in a search path.
pub(crate) fn split_path(value: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut characters = value.chars().peekable();
    let (mut name, mut quoted, mut any) = (String::new(), false, false);
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                name.push('"');
            }
            '"' => {
                quoted = !quoted;
                any = true;
            }
            ',' if !quoted => {
                if any || !name.is_empty() {
                    names.push(std::mem::take(&mut name));
                }
                any = false;
            }
            blank if !quoted && blank.is_whitespace() => {}
            other if quoted => name.push(other),
            other => name.push(other.to_ascii_lowercase()),
        }
    }
    if any || !name.is_empty() {
        names.push(name);
    }
    names.retain(|name| !name.is_empty());
    names
}

fn derive(values: &HashMap<String, String>) -> Derived {
    let get = |name: &str| -> &str {
        match values.get(name) {
            Some(value) => value,
            None => definitions::find(name).map_or("", |definition| definition.default),
        }
    };
    let millis = |name: &str| get(name).parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis);
    let (date_style, date_order) = date_style(get("datestyle"), Default::default()).unwrap_or_default();
    let interval_style = match get("intervalstyle") {
        "postgres_verbose" => IntervalStyle::PostgresVerbose,
        "sql_standard" => IntervalStyle::SqlStandard,
        "iso_8601" => IntervalStyle::Iso8601,
        _ => IntervalStyle::Postgres,
    };
    let methods = [
        ("enable_hashjoin", &[Rule::HashJoin][..]),
        ("enable_mergejoin", &[Rule::MergeJoin]),
        ("enable_nestloop", &[Rule::NestedLoop, Rule::LookUp]),
    ];
    let off = methods.iter().filter(|(name, _)| get(name) == "off").flat_map(|(_, rules)| *rules);
    let planning = off.fold(Options::default(), |options, rule| options.without(*rule));
    let time_zone = TimeZone::parse_setting(get("timezone")).unwrap_or(TimeZone::UTC);
    Derived {
        literals: format!("{} {date_order:?} {interval_style:?}", time_zone.name()).into(),
        planning,
        time_zone,
        date_style,
        date_order,
        interval_style,
        extra_float_digits: get("extra_float_digits").parse().unwrap_or(1),
        bytea_output: if get("bytea_output") == "escape" { ByteaOutput::Escape } else { ByteaOutput::Hex },
        search_path: split_path(get("search_path")),
        statement_timeout: millis("statement_timeout"),
        lock_timeout: millis("lock_timeout"),
        row_security: get("row_security") != "off",
        idle_in_transaction: millis("idle_in_transaction_session_timeout"),
        isolation: IsolationLevel::by_name(get("default_transaction_isolation")).unwrap_or_default(),
        read_only: get("default_transaction_read_only") == "on",
        follower_reads: get("follower_reads") == "on",
        priority: match get("transaction_priority") {
            "low" => Priority::Low,
            "high" => Priority::High,
            _ => Priority::Normal,
        },
        parallel_commits: get("kv_parallel_commits") == "on",
        buffered_writes: get("kv_buffered_writes") == "on",
        engine: EngineChoice::parse(get("engine")).unwrap_or_default(),
        partial_aggregates: PartialAggregates::parse(get("partial_aggregates")).unwrap_or_default(),
        auto_analyze: get("auto_analyze") == "on",
        statement_memory: get("statement_memory").parse::<usize>().unwrap_or(0).saturating_mul(1024),
    }
}

/// Whether a setting takes part in `pg_settings` as a boolean and so on.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Integer => "integer",
        Kind::Real => "real",
        Kind::String => "string",
        Kind::Enum => "enum",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_a_transaction_are_undone_with_it() {
        let mut settings = Settings::new();
        settings.set("work_mem", Some("8MB"), false, true).unwrap();
        let mark = settings.mark();
        settings.set("TimeZone", Some("Europe/Berlin"), true, true).unwrap();
        settings.rollback_to(mark);
        assert_eq!(settings.get("timezone").as_deref(), Some("UTC"));
        settings.end_transaction(false);
        assert_eq!(settings.get("work_mem").as_deref(), Some("4MB"));
    }

    #[test]
    fn local_values_end_with_the_transaction_unless_set_for_good_after() {
        let mut settings = Settings::new();
        settings.set("statement_timeout", Some("1s"), true, true).unwrap();
        settings.set("lock_timeout", Some("1s"), true, true).unwrap();
        settings.set("lock_timeout", Some("2s"), false, true).unwrap();
        assert_eq!(settings.derived().statement_timeout, Some(Duration::from_secs(1)));
        settings.end_transaction(true);
        assert_eq!(settings.derived().statement_timeout, None);
        assert_eq!(settings.derived().lock_timeout, Some(Duration::from_secs(2)));
    }

    #[test]
    fn commits_are_as_fast_as_they_can_be_unless_told_otherwise() {
        let mut settings = Settings::new();
        let fast =
            |settings: &Settings| (settings.derived().parallel_commits, settings.derived().buffered_writes);
        assert_eq!(fast(&settings), (true, true));
        settings.set("kv_parallel_commits", Some("off"), false, false).unwrap();
        assert_eq!(fast(&settings), (false, true));
        settings.set("kv_buffered_writes", Some("false"), false, false).unwrap();
        assert_eq!(fast(&settings), (false, false));
    }

    #[test]
    fn only_reported_settings_are_reported_once() {
        let mut settings = Settings::new();
        settings.set("datestyle", Some("German"), false, false).unwrap();
        settings.set("work_mem", Some("1MB"), false, false).unwrap();
        assert_eq!(settings.take_changes(), [("DateStyle".to_string(), "German, DMY".to_string())]);
        assert_eq!(settings.take_changes(), []);
        assert_eq!(
            settings.set("server_version", Some("1"), false, false).unwrap_err().code,
            SqlState::CANT_CHANGE_PARAM
        );
        assert_eq!(
            settings.set("nope", Some("1"), false, false).unwrap_err().code,
            SqlState::UNDEFINED_OBJECT
        );
        settings.set("my.own", Some("1"), false, false).unwrap();
        assert_eq!(settings.get("my.own").as_deref(), Some("1"));
    }

    #[test]
    fn search_paths_are_split_as_names() {
        assert_eq!(split_path("\"$user\", Public, \"A,b\"\"c\""), ["$user", "public", "A,b\"c"]);
        assert!(split_path(" ").is_empty());
    }
}
