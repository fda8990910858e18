//! Item methods.

use super::Method;
use super::item::{Fail, Item, soft, softly};
use crate::Datum;
use crate::context::TextContext;
use crate::datetime;
use crate::error::{SqlError, SqlState};
use crate::json;
use crate::numeric::Numeric;
use crate::text;
use crate::types::Type;
use serde_json::Value;
use std::cmp::Ordering;

/// A date, time or timestamp.
#[derive(Clone)]
pub(super) struct Moment {
    ty: Type,
    value: Datum,
}

impl Moment {
    /// As JSON has it: ISO 8601.
    pub(super) fn text(&self) -> String {
        let shown = text::to_string(&self.value, self.ty, &TextContext::plain());
        if self.ty == Type::TIMESTAMP { shown.replacen(' ', "T", 1) } else { shown }
    }

    /// Dates and timestamps can be compared, and times with each other.
    pub(super) fn compare(&self, other: &Moment) -> Option<Ordering> {
        match (&self.value, &other.value) {
            (Datum::Time(left), Datum::Time(right)) => Some(left.cmp(right)),
            (left, right) => Some(micros(left)?.cmp(&micros(right)?)),
        }
    }
}

/// A date or timestamp in microseconds since 2000.
fn micros(value: &Datum) -> Option<i128> {
    match value {
        Datum::Date(days) => Some(i128::from(*days) * i128::from(datetime::DAY)),
        Datum::Timestamp(micros) => Some(i128::from(*micros)),
        _ => None,
    }
}

/// Whether a method of an array means its elements, in lax mode.
pub(super) fn unwraps(method: Method) -> bool {
    !matches!(method, Method::Type | Method::Size)
}

/// The items that a method makes of one.
pub(super) fn apply<'v>(
    method: Method,
    item: Item<'v>,
    lax: bool,
    skips: bool,
    objects: &mut u64,
) -> Result<Vec<Item<'v>>, Fail> {
    let one = |value: Value| Ok(vec![Item::Own(value)]);
    match method {
        Method::Type => one(Value::String(type_name(&item).to_string())),
        Method::Size => match item.json() {
            Some(Value::Array(values)) => one(Value::from(values.len())),
            _ if lax => one(Value::from(1)),
            _ if skips => Ok(Vec::new()),
            _ => Err(soft("22039", "jsonpath item method .size() can only be applied to an array")),
        },
        Method::Double => double(item),
        Method::Abs => number(item, method, |number| Ok(number.abs())),
        Method::Ceiling => number(item, method, Numeric::ceil),
        Method::Floor => number(item, method, Numeric::floor),
        Method::Datetime => {
            let Some(Value::String(text)) = item.json() else {
                return Err(soft(
                    "22031",
                    "jsonpath item method .datetime() can only be applied to a string",
                ));
            };
            moment(text).map(|moment| vec![Item::Moment(moment)])
        }
        Method::KeyValue => key_values(&item, objects),
    }
}

fn type_name(item: &Item<'_>) -> &'static str {
    match item {
        Item::Moment(Moment { ty: Type::DATE, .. }) => "date",
        Item::Moment(Moment { ty: Type::TIME, .. }) => "time without time zone",
        Item::Moment(_) => "timestamp without time zone",
        item => item.json().map_or("null", json::type_name),
    }
}

fn number<'v>(
    item: Item<'v>,
    method: Method,
    apply: fn(&Numeric) -> Result<Numeric, SqlError>,
) -> Result<Vec<Item<'v>>, Fail> {
    let Some(number) = item.number() else {
        let message =
            format!("jsonpath item method .{}() can only be applied to a numeric value", method.name());
        return Err(soft("22036", message));
    };
    let value = json::numeric_value(&apply(&number).map_err(softly)?).map_err(Fail::Hard)?;
    Ok(vec![Item::Own(value)])
}

fn double(item: Item<'_>) -> Result<Vec<Item<'_>>, Fail> {
    const WHAT: &str = "jsonpath item method .double()";
    let invalid = |kind: &str| {
        let message =
            format!("{kind} argument of {WHAT} is not a valid representation of a double precision number");
        soft("22036", message)
    };
    match item.json() {
        Some(Value::Number(number)) => {
            let finite = number.as_str().parse::<f64>().is_ok_and(f64::is_finite);
            if finite { Ok(vec![item]) } else { Err(invalid("numeric")) }
        }
        Some(Value::String(text)) => {
            let parsed = text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
            let value = parsed.ok_or_else(|| invalid("string"))?;
            let number = Numeric::from_f64(value).map_err(softly)?;
            Ok(vec![Item::Own(json::numeric_value(&number).map_err(Fail::Hard)?)])
        }
        _ => Err(soft("22036", format!("{WHAT} can only be applied to a string or numeric value"))),
    }
}

/// Whether a text has digits where the pattern has `0`, and its other characters.
fn has_form(text: &str, pattern: &str) -> bool {
    text.len() == pattern.len()
        && text.bytes().zip(pattern.bytes()).all(|(found, wanted)| match wanted {
            b'0' => found.is_ascii_digit(),
            wanted => found == wanted,
        })
}

fn moment(text: &str) -> Result<Moment, Fail> {
    let context = TextContext::plain();
    let parsed = if has_form(text, "0000-00-00") {
        datetime::parse_date(text, &context).map(|days| Moment { ty: Type::DATE, value: Datum::Date(days) })
    } else if has_form(text, "00:00:00") {
        let time = datetime::parse_time(text, -1, &context);
        time.map(|micros| Moment { ty: Type::TIME, value: Datum::Time(micros) })
    } else if has_form(text, "0000-00-00 00:00:00") || has_form(text, "0000-00-00T00:00:00") {
        let stamp = datetime::parse_timestamp(text, -1, &context);
        stamp.map(|micros| Moment { ty: Type::TIMESTAMP, value: Datum::Timestamp(micros) })
    } else if zoned(text) {
        return Err(Fail::Hard(SqlError::unsupported("a time zone in jsonpath's datetime()")));
    } else {
        let message = format!("datetime format is not recognized: \"{text}\"");
        let error = SqlError::new(SqlState("22031"), message);
        return Err(Fail::Soft(
            error.with_hint("Use a datetime template argument to specify the input data format."),
        ));
    };
    parsed.map_err(softly)
}

/// Whether a text is a time or timestamp with an offset, which PostgreSQL takes.
fn zoned(text: &str) -> bool {
    let Some(at) = text.rfind(['+', '-']).filter(|at| *at >= 8) else { return false };
    let (time, zone) = text.split_at(at);
    let forms = ["00:00:00", "0000-00-00 00:00:00", "0000-00-00T00:00:00"];
    forms.iter().any(|form| has_form(time, form))
        && (has_form(&zone[1..], "00") || has_form(&zone[1..], "00:00"))
}

fn key_values<'v>(item: &Item<'v>, objects: &mut u64) -> Result<Vec<Item<'v>>, Fail> {
    let Some(Value::Object(map)) = item.json() else {
        return Err(soft("2203C", "jsonpath item method .keyvalue() can only be applied to an object"));
    };
    let id = *objects;
    *objects += 1;
    let pair = |(key, value): (&String, &Value)| {
        Item::Own(json::object(vec![
            ("key".to_string(), Value::String(key.clone())),
            ("value".to_string(), value.clone()),
            ("id".to_string(), Value::from(id)),
        ]))
    };
    Ok(map.iter().map(pair).collect())
}
