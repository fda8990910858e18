//! Generated expressions: of every kind of value, over the columns in scope.
//!
//! They are well typed, with some exceptions on purpose, and defined on nearly all values, so that most queries return
//! rows. What must be avoided: results that PostgreSQL leaves open (sums of fractions of floating point in
//! any order, the text of a row's position).

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Smallint,
    Integer,
    Bigint,
    Numeric,
    Double,
    Text,
    Date,
    Timestamp,
    Timestamptz,
    Interval,
    Jsonb,
    Integers,
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind::Boolean,
    Kind::Smallint,
    Kind::Integer,
    Kind::Bigint,
    Kind::Numeric,
    Kind::Double,
    Kind::Text,
    Kind::Date,
    Kind::Timestamp,
    Kind::Timestamptz,
    Kind::Interval,
    Kind::Jsonb,
    Kind::Integers,
];

const WORDS: &[&str] = &["", "a", "b", "ab", "B", "a b", "abc", "ž", "12", "-3", "x%", "tru", "2024-01-01"];
const COMPARISONS: &[&str] = &["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"];

impl Kind {
    /// As a column is declared.
    pub fn declared(self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::Smallint => "smallint",
            Kind::Integer => "integer",
            Kind::Bigint => "bigint",
            Kind::Numeric => "numeric(8,2)",
            Kind::Double => "double precision",
            Kind::Text => "text",
            Kind::Date => "date",
            Kind::Timestamp => "timestamp",
            Kind::Timestamptz => "timestamptz",
            Kind::Interval => "interval",
            Kind::Jsonb => "jsonb",
            Kind::Integers => "integer[]",
        }
    }

    /// As a cast names it.
    fn named(self) -> &'static str {
        if self == Kind::Numeric { "numeric" } else { self.declared() }
    }

    fn is_number(self) -> bool {
        matches!(self, Kind::Smallint | Kind::Integer | Kind::Bigint | Kind::Numeric | Kind::Double)
    }

    /// A literal.
    pub fn value(self, rng: &mut StdRng) -> String {
        match self {
            Kind::Boolean => rng.random_bool(0.5).to_string(),
            Kind::Smallint => format!("({})::smallint", rng.random_range(-9..20)),
            Kind::Integer => rng.random_range(-5..30).to_string(),
            Kind::Bigint => format!("({})::bigint", rng.random_range(-3_i64..8) * 1_000_000_007),
            Kind::Numeric => format!("{}.{:02}", rng.random_range(-20..100), rng.random_range(0..100)),
            Kind::Double => format!("({})::double precision", f64::from(rng.random_range(-40..40)) / 4.0),
            Kind::Text => format!("'{}'", WORDS.choose(rng).unwrap_or(&"")),
            Kind::Date => {
                format!("date '2024-{:02}-{:02}'", rng.random_range(1..13), rng.random_range(1..29))
            }
            Kind::Timestamp => {
                let (month, day, hour) =
                    (rng.random_range(1..13), rng.random_range(1..29), rng.random_range(0..24));
                format!("timestamp '2024-{month:02}-{day:02} {hour:02}:30:00.5'")
            }
            Kind::Timestamptz => {
                let (month, day, hour) =
                    (rng.random_range(1..13), rng.random_range(1..29), rng.random_range(0..24));
                format!("timestamptz '2024-{month:02}-{day:02} {hour:02}:15:00+00'")
            }
            Kind::Interval => {
                let (months, days, hours) =
                    (rng.random_range(-2..14), rng.random_range(-3..40), rng.random_range(-30..30));
                format!("interval '{months} months {days} days {hours} hours'")
            }
            Kind::Jsonb => {
                let values = [
                    "null",
                    "1",
                    "1.50",
                    "\"a\"",
                    "[]",
                    "[1, 2, null]",
                    "{}",
                    "{\"k\": 1}",
                    "{\"k\": [true]}",
                ];
                format!("'{}'::jsonb", values.choose(rng).unwrap_or(&"1"))
            }
            Kind::Integers => {
                let values = ["{}", "{1}", "{1,2}", "{3,NULL}", "{2,1,2}"];
                format!("'{}'::integer[]", values.choose(rng).unwrap_or(&"{}"))
            }
        }
    }
}

/// Makes expressions over columns.
pub struct Expressions<'r> {
    /// Where choices come from.
    pub rng: &'r mut StdRng,
    /// Columns in scope, with their kinds.
    pub columns: Vec<(String, Kind)>,
}

impl Expressions<'_> {
    fn one_of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        choices.choose(self.rng).copied().unwrap_or_default()
    }

    /// Any kind.
    pub fn kind(&mut self) -> Kind {
        KINDS.choose(self.rng).copied().unwrap_or(Kind::Integer)
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let fitting: Vec<&String> =
            self.columns.iter().filter(|(_, of)| *of == kind).map(|(name, _)| name).collect();
        match fitting.choose(self.rng) {
            Some(name) if self.rng.random_bool(0.8) => name.to_string(),
            _ if self.rng.random_bool(0.1) => format!("null::{}", kind.named()),
            _ => kind.value(self.rng),
        }
    }

    /// An expression of a kind, at most so deep.
    pub fn expr(&mut self, kind: Kind, depth: u32) -> String {
        if depth == 0 || self.rng.random_bool(0.25) {
            return self.leaf(kind);
        }
        let depth = depth - 1;
        match self.rng.random_range(0..10) {
            0 => {
                let (condition, yes, no) =
                    (self.condition(depth), self.expr(kind, depth), self.expr(kind, depth));
                format!("case when {condition} then {yes} else {no} end")
            }
            1 => format!("coalesce({}, {})", self.expr(kind, depth), self.expr(kind, depth)),
            2 if kind != Kind::Jsonb => format!("nullif({}, {})", self.expr(kind, depth), self.leaf(kind)),
            3 if !matches!(kind, Kind::Jsonb) => {
                let function = self.one_of(&["greatest", "least"]);
                format!("{function}({}, {})", self.expr(kind, depth), self.expr(kind, depth))
            }
            _ => self.of_kind(kind, depth),
        }
    }

    /// A condition.
    pub fn condition(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.comparison(0);
        }
        let depth = depth - 1;
        match self.rng.random_range(0..9) {
            0 => format!("({} and {})", self.condition(depth), self.condition(depth)),
            1 => format!("({} or {})", self.condition(depth), self.condition(depth)),
            2 => format!("not {}", self.condition(depth)),
            3 => {
                let kind = self.kind();
                let test = self.one_of(&["is null", "is not null"]);
                format!("({} {test})", self.expr(kind, depth))
            }
            4 => {
                let kind = self.kind();
                let not = self.one_of(&["", "not "]);
                let list = [self.leaf(kind), self.leaf(kind), self.leaf(kind)].join(", ");
                format!("({} {not}in ({list}))", self.expr(kind, depth))
            }
            5 => {
                let kind = self.kind();
                let not = self.one_of(&["", "not "]);
                format!(
                    "({} {not}between {} and {})",
                    self.expr(kind, depth),
                    self.leaf(kind),
                    self.leaf(kind)
                )
            }
            6 => {
                let (operator, pattern) = (
                    self.one_of(&["like", "not like", "ilike", "~", "!~*"]),
                    self.one_of(&["a%", "%b%", "_", "a", "^a"]),
                );
                format!("({} {operator} '{pattern}')", self.expr(Kind::Text, depth))
            }
            _ => self.comparison(depth),
        }
    }

    fn comparison(&mut self, depth: u32) -> String {
        let kind = self.kind();
        let other = match kind.is_number() && self.rng.random_bool(0.3) {
            true => self.one_number(),
            false => kind,
        };
        let operator = self.one_of(COMPARISONS);
        format!("({} {operator} {})", self.expr(kind, depth), self.expr(other, depth))
    }

    fn one_number(&mut self) -> Kind {
        let numbers = [Kind::Smallint, Kind::Integer, Kind::Bigint, Kind::Numeric, Kind::Double];
        numbers.choose(self.rng).copied().unwrap_or(Kind::Integer)
    }

    fn of_kind(&mut self, kind: Kind, depth: u32) -> String {
        match kind {
            Kind::Boolean => self.condition(depth + 1),
            Kind::Smallint | Kind::Integer | Kind::Bigint => self.integer(kind, depth),
            Kind::Numeric => self.numeric(depth),
            Kind::Double => self.double(depth),
            Kind::Text => self.text(depth),
            Kind::Date => self.date(depth),
            Kind::Timestamp | Kind::Timestamptz => self.timestamp(kind, depth),
            Kind::Interval => self.interval(depth),
            Kind::Jsonb => self.jsonb(depth),
            Kind::Integers => self.integers(depth),
        }
    }

    fn integer(&mut self, kind: Kind, depth: u32) -> String {
        let (left, right) = (self.expr(kind, depth), self.expr(kind, depth));
        match self.rng.random_range(0..12) {
            0 => format!("({left} + {right})"),
            1 => format!("({left} - {right})"),
            2 => format!("({left} % nullif({right}, 0))"),
            3 => format!("({left} / nullif({right}, 0))"),
            4 => format!("abs({left})"),
            5 => format!("(- {left})"),
            6 => format!("({left} & {right})"),
            7 if kind == Kind::Integer => {
                let text = self.expr(Kind::Text, depth);
                format!("{}({text})", self.one_of(&["length", "octet_length", "ascii"]))
            }
            8 if kind == Kind::Integer => format!("cardinality({})", self.expr(Kind::Integers, depth)),
            9 if kind == Kind::Integer => {
                format!("({} - {})", self.expr(Kind::Date, depth), self.leaf(Kind::Date))
            }
            10 => {
                let from = self.one_number();
                format!("({})::{}", self.leaf(from), kind.named())
            }
            _ => format!("({left} * {}::{})", self.rng.random_range(-3..4), kind.named())
                .replace("* -", "* - "),
        }
    }

    fn numeric(&mut self, depth: u32) -> String {
        let (left, right) = (self.expr(Kind::Numeric, depth), self.expr(Kind::Numeric, depth));
        match self.rng.random_range(0..11) {
            0 => format!("({left} + {right})"),
            1 => format!("({left} - {right})"),
            2 => format!("({left} * {right})"),
            3 => format!("({left} / nullif({right}, 0))"),
            4 => format!("({left} % nullif({right}, 0))"),
            5 => format!("round({left}, {})", self.rng.random_range(-1..4)),
            6 => format!("{}({left})", self.one_of(&["abs", "ceil", "floor", "trunc", "sign", "trim_scale"])),
            7 => format!("({} * {left})", self.expr(Kind::Integer, depth)),
            8 => format!("extract({} from {})", self.one_of(FIELDS), self.expr(Kind::Timestamp, depth)),
            9 => format!(
                "extract({} from {})",
                self.one_of(&["day", "hour", "month", "epoch"]),
                self.expr(Kind::Interval, depth)
            ),
            _ => {
                let from = self.one_number();
                format!("({})::numeric", self.leaf(from))
            }
        }
    }

    fn double(&mut self, depth: u32) -> String {
        let (left, right) = (self.expr(Kind::Double, depth), self.expr(Kind::Double, depth));
        match self.rng.random_range(0..7) {
            0 => format!("({left} + {right})"),
            1 => format!("({left} - {right})"),
            2 => format!("({left} * {right})"),
            3 => format!("{}({left})", self.one_of(&["abs", "ceil", "floor", "round", "sign", "-"])),
            4 => format!("({left} / 2)"),
            5 => format!("date_part('{}', {})", self.one_of(FIELDS), self.expr(Kind::Timestamp, depth)),
            _ => format!("({})::double precision", self.leaf(Kind::Integer)),
        }
    }

    fn text(&mut self, depth: u32) -> String {
        let left = self.expr(Kind::Text, depth);
        match self.rng.random_range(0..14) {
            0 => format!("({left} || {})", self.expr(Kind::Text, depth)),
            1 => format!(
                "{}({left})",
                self.one_of(&["upper", "lower", "initcap", "reverse", "btrim", "md5", "quote_literal"])
            ),
            2 => format!("substr({left}, {}, {})", self.rng.random_range(-1..4), self.rng.random_range(0..4)),
            3 => format!("replace({left}, 'a', 'xy')"),
            4 => format!("{}({left}, {}, '*')", self.one_of(&["lpad", "rpad"]), self.rng.random_range(0..6)),
            5 => format!("split_part({left}, 'b', {})", self.rng.random_range(1..3)),
            6 => {
                let kind = self.kind();
                format!("({})::text", self.expr(kind, depth))
            }
            7 => format!(
                "to_char({}, '{}')",
                self.expr(Kind::Timestamp, depth),
                self.one_of(&["YYYY-MM-DD HH24:MI", "Mon DD, Day", "IYYY-IW Q", "HH12:MI am US"])
            ),
            8 => format!(
                "to_char({}, '{}')",
                self.expr(Kind::Numeric, depth),
                self.one_of(&["999.99", "FM000.0", "S9999", "9,999"])
            ),
            9 => format!("({} ->> 'k')", self.expr(Kind::Jsonb, depth)),
            10 => format!("{}({left}, {})", self.one_of(&["left", "right"]), self.rng.random_range(-2..3)),
            11 => format!("array_to_string({}, ',', '-')", self.expr(Kind::Integers, depth)),
            12 => format!("concat({left}, {}, {})", self.leaf(Kind::Integer), self.leaf(Kind::Boolean)),
            _ => format!("regexp_replace({left}, '[ab]+', '<\\&>', 'g')"),
        }
    }

    fn date(&mut self, depth: u32) -> String {
        match self.rng.random_range(0..4) {
            0 => format!("({} + {})", self.expr(Kind::Date, depth), self.rng.random_range(0..400)),
            1 => format!("({} - {})", self.expr(Kind::Date, depth), self.rng.random_range(0..400)),
            2 => format!("({})::date", self.expr(Kind::Timestamp, depth)),
            _ => format!("({})::date", self.expr(Kind::Timestamptz, depth)),
        }
    }

    fn timestamp(&mut self, kind: Kind, depth: u32) -> String {
        match self.rng.random_range(0..6) {
            0 => format!("({} + {})", self.expr(kind, depth), self.expr(Kind::Interval, depth)),
            1 => format!("({} - {})", self.expr(kind, depth), self.expr(Kind::Interval, depth)),
            2 => format!(
                "date_trunc('{}', {})",
                self.one_of(&["hour", "day", "week", "month", "quarter", "year"]),
                self.expr(kind, depth)
            ),
            3 => format!("({})::{}", self.expr(Kind::Date, depth), kind.named()),
            4 if kind == Kind::Timestamp => {
                format!("({} at time zone 'Europe/Prague')", self.expr(Kind::Timestamptz, depth))
            }
            4 => format!("({} at time zone 'Asia/Kolkata')", self.expr(Kind::Timestamp, depth)),
            _ => {
                let from = if kind == Kind::Timestamp { Kind::Timestamptz } else { Kind::Timestamp };
                format!("({})::{}", self.expr(from, depth), kind.named())
            }
        }
    }

    fn interval(&mut self, depth: u32) -> String {
        let left = self.expr(Kind::Interval, depth);
        match self.rng.random_range(0..6) {
            0 => format!("({left} + {})", self.leaf(Kind::Interval)),
            1 => format!("({left} - {})", self.leaf(Kind::Interval)),
            2 => format!("({left} * {})", self.one_of(&["2", "0.5", "-1.5"])),
            3 => format!("({} - {})", self.expr(Kind::Timestamp, depth), self.leaf(Kind::Timestamp)),
            4 => format!("age({}, {})", self.expr(Kind::Timestamp, depth), self.leaf(Kind::Timestamp)),
            _ => format!(
                "{}({left})",
                self.one_of(&["justify_hours", "justify_days", "justify_interval", "-"])
            ),
        }
    }

    fn jsonb(&mut self, depth: u32) -> String {
        let left = self.expr(Kind::Jsonb, depth);
        match self.rng.random_range(0..6) {
            0 => format!("({left} -> 'k')"),
            1 => format!("({left} -> 0)"),
            2 => {
                let kind = self.kind();
                format!("to_jsonb({})", self.expr(kind, depth))
            }
            3 => {
                let kind = self.kind();
                format!("jsonb_build_object('k', {})", self.expr(kind, depth))
            }
            4 => format!("jsonb_build_array({}, {left})", self.leaf(Kind::Integer)),
            _ => format!("({left} #> '{{k,0}}')"),
        }
    }

    fn integers(&mut self, depth: u32) -> String {
        let left = self.expr(Kind::Integers, depth);
        match self.rng.random_range(0..5) {
            0 => format!("({left} || {})", self.leaf(Kind::Integer)),
            1 => format!("({left} || {})", self.leaf(Kind::Integers)),
            2 => format!("array[{}, {}]", self.expr(Kind::Integer, depth), self.leaf(Kind::Integer)),
            3 => format!("array_remove({left}, {})", self.leaf(Kind::Integer)),
            _ => format!("({left})[1:{}]", self.rng.random_range(1..3)),
        }
    }
}

const FIELDS: &[&str] =
    &["year", "month", "day", "hour", "minute", "second", "dow", "doy", "week", "quarter", "epoch"];
