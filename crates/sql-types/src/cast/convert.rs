//! The conversions.

use super::apply_typmod;
use crate::context::EvalContext;
use crate::datum::{ArrayValue, Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use crate::types::{ColumnType, Type};
use crate::{datetime, json, text};
use std::sync::Arc;

#[cold]
fn out_of_range(ty: Type) -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, format!("{ty} out of range"))
}

#[cold]
fn impossible(from: Type, to: Type) -> SqlError {
    SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {to}"))
}

/// Converts a value of type `from` to type `to`. `explicit` casts to a length cut what is too long,
/// assignment casts refuse it. NULL stays NULL. Whether the cast is allowed at all is for
/// [`super::cast_kind`] to say.
pub fn cast(
    value: &Datum,
    from: Type,
    to: ColumnType,
    explicit: bool,
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    if value.is_null() {
        return Ok(Datum::Null);
    }
    if from == to.ty {
        return apply_typmod(value.clone(), to, explicit);
    }
    let converted = convert(value, from, to, context)?;
    apply_typmod(converted, to, explicit)
}

fn convert(value: &Datum, from: Type, to: ColumnType, context: &EvalContext<'_>) -> SqlResult<Datum> {
    let target = to.ty;
    if let Some(number) = Number::of(value)
        && (target.is_numeric()
            || (target == Type::OID || target.is_reg()) && !matches!(value, Datum::Int4(_) | Datum::Int2(_)))
    {
        return number.to(target);
    }
    match (value, target) {
        (Datum::Int4(value), _) if target == Type::OID || target.is_reg() => {
            // Negative integers wrap around, as they do in C.
            return Ok(Datum::Oid(*value as u32));
        }
        (Datum::Int2(value), _) if target == Type::OID || target.is_reg() => {
            return Ok(Datum::Oid(i32::from(*value) as u32));
        }
        (Datum::Int4(value), Type::BOOL) => return Ok(Datum::Bool(*value != 0)),
        (Datum::Bool(value), Type::INT4) => return Ok(Datum::Int4(i32::from(*value))),
        (Datum::Bool(value), _) if target.is_string() && target != Type::CHAR => {
            return Ok(Datum::text(if *value { "true" } else { "false" }));
        }
        (Datum::Int4(value), Type::CHAR) => return int_to_char(*value),
        (Datum::Text(value), Type::INT4) if from == Type::CHAR => {
            let code = value.bytes().next().unwrap_or(0);
            return Ok(Datum::Int4(i32::from(code as i8)));
        }
        (Datum::Oid(oid), _) if target == Type::OID || target.is_reg() || target == Type::XID => {
            return Ok(Datum::Oid(*oid));
        }
        (Datum::Text(text), Type::XID) if from == Type::XID8 => {
            return Ok(Datum::Oid(text.parse::<u64>().unwrap_or(0) as u32));
        }
        (
            Datum::Date(_)
            | Datum::Time(_)
            | Datum::Timestamp(_)
            | Datum::Timestamptz(_)
            | Datum::Interval(_),
            _,
        ) => {
            if let Some(converted) = convert_time(value, target, context)? {
                return Ok(converted);
            }
        }
        (Datum::Json(text), Type::JSONB) => return Ok(Datum::Jsonb(Arc::new(json::parse(text)?))),
        (Datum::Jsonb(value), _) => {
            if let Some(converted) = convert_jsonb(value, target)? {
                return Ok(converted);
            }
        }
        (Datum::Array(array), _) => {
            if let Some(element) = target.element() {
                return convert_array(
                    array,
                    from,
                    target,
                    ColumnType { ty: element, typmod: to.typmod },
                    context,
                );
            }
        }
        _ => {}
    }
    through_text(value, from, to, context)
}

/// The rest goes through the text form of the value.
fn through_text(value: &Datum, from: Type, to: ColumnType, context: &EvalContext<'_>) -> SqlResult<Datum> {
    if let Datum::Text(string) = value {
        // Padding of char(n) is not part of the text.
        let body = if from == Type::BPCHAR { string.trim_end_matches(' ') } else { string };
        return match to.ty {
            Type::TEXT | Type::VARCHAR | Type::BPCHAR if body.len() == string.len() => Ok(value.clone()),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR => Ok(Datum::text(body)),
            // The modifier is applied afterwards, where `explicit` is known.
            _ => text::parse(ColumnType { ty: to.ty, typmod: modifier_for_input(to) }, body, context),
        };
    }
    if !to.ty.is_string() {
        return match value {
            Datum::Json(_) | Datum::Jsonb(_) if to.ty == Type::JSON => {
                Ok(Datum::Json(text::to_string(value, from, context).into()))
            }
            _ => Err(impossible(from, to.ty)),
        };
    }
    let shown = text::to_string(value, from, context);
    match to.ty {
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::UNKNOWN => Ok(Datum::text(shown)),
        other => text::parse(ColumnType::plain(other), &shown, context),
    }
}

/// Interval fields give bare numbers their meaning; other modifiers are applied afterwards.
fn modifier_for_input(to: ColumnType) -> i32 {
    if to.ty == Type::INTERVAL { to.typmod } else { -1 }
}

fn int_to_char(value: i32) -> SqlResult<Datum> {
    let code =
        i8::try_from(value).map_err(|_| SqlError::new(SqlState::OUT_OF_RANGE, "\"char\" out of range"))?;
    Ok(Datum::text(match u8::try_from(code) {
        Ok(code) if code > 0 => (code as char).to_string(),
        _ => String::new(),
    }))
}

/// A number on its way to another type.
enum Number<'a> {
    Integer(i64),
    Float(f64, bool),
    Decimal(&'a Numeric),
}

impl<'a> Number<'a> {
    fn of(value: &'a Datum) -> Option<Number<'a>> {
        Some(match value {
            Datum::Int2(value) => Number::Integer(i64::from(*value)),
            Datum::Int4(value) => Number::Integer(i64::from(*value)),
            Datum::Int8(value) => Number::Integer(*value),
            Datum::Oid(value) => Number::Integer(i64::from(*value)),
            Datum::Float4(value) => Number::Float(f64::from(*value), true),
            Datum::Float8(value) => Number::Float(*value, false),
            Datum::Numeric(value) => Number::Decimal(value),
            _ => return None,
        })
    }

    fn to(&self, target: Type) -> SqlResult<Datum> {
        Ok(match target {
            Type::INT2 => Datum::Int2(self.integer(target)?.try_into().map_err(|_| out_of_range(target))?),
            Type::INT4 => Datum::Int4(self.integer(target)?.try_into().map_err(|_| out_of_range(target))?),
            Type::INT8 => Datum::Int8(self.integer(target)?),
            Type::FLOAT8 => Datum::Float8(match self {
                Number::Integer(value) => *value as f64,
                Number::Float(value, _) => *value,
                Number::Decimal(value) => {
                    let float = value.to_f64();
                    if float.is_infinite() && value.is_finite() {
                        return Err(SqlError::new(
                            SqlState::OUT_OF_RANGE,
                            format!("\"{value}\" is out of range for type double precision"),
                        ));
                    }
                    float
                }
            }),
            Type::FLOAT4 => Datum::Float4(self.float4()?),
            Type::NUMERIC => Datum::Numeric(match self {
                Number::Integer(value) => Numeric::from(*value),
                Number::Float(value, true) => Numeric::from_f32(*value as f32)?,
                Number::Float(value, false) => Numeric::from_f64(*value)?,
                Number::Decimal(value) => (*value).clone(),
            }),
            _ => {
                let value = self.integer(Type::INT8)?;
                let oid = u32::try_from(value);
                Datum::Oid(oid.map_err(|_| SqlError::new(SqlState::OUT_OF_RANGE, "OID out of range"))?)
            }
        })
    }

    fn integer(&self, target: Type) -> SqlResult<i64> {
        match self {
            Number::Integer(value) => Ok(*value),
            Number::Float(value, _) => {
                let rounded = value.round_ties_even();
                // 2^63 is exact in a double; anything below it fits.
                if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                    Ok(rounded as i64)
                } else {
                    Err(out_of_range(target))
                }
            }
            Number::Decimal(value) => {
                if !value.is_finite() {
                    let what = if value.is_nan() { "NaN" } else { "infinity" };
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        format!("cannot convert {what} to {target}"),
                    ));
                }
                value.to_i64().ok_or_else(|| out_of_range(target))
            }
        }
    }

    fn float4(&self) -> SqlResult<f32> {
        let wide = match self {
            Number::Integer(value) => return Ok(*value as f32),
            Number::Float(value, _) => *value,
            Number::Decimal(value) => {
                // Through the text, so that it is rounded once.
                let narrow = value.to_string().parse::<f32>().unwrap_or(f32::NAN);
                if narrow.is_infinite() && value.is_finite() {
                    return Err(SqlError::new(
                        SqlState::OUT_OF_RANGE,
                        format!("\"{value}\" is out of range for type real"),
                    ));
                }
                return Ok(narrow);
            }
        };
        let narrow = wide as f32;
        if narrow.is_infinite() && wide.is_finite() {
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow"));
        }
        if narrow == 0.0 && wide != 0.0 {
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: underflow"));
        }
        Ok(narrow)
    }
}

/// Conversions among dates and times; `None` if the target is none of them.
fn convert_time(value: &Datum, target: Type, context: &EvalContext<'_>) -> SqlResult<Option<Datum>> {
    let zone = context.time_zone;
    let day_of = |local: i64| match local {
        i64::MIN => i32::MIN,
        i64::MAX => i32::MAX,
        local => local.div_euclid(datetime::DAY) as i32,
    };
    let time_of = |local: i64| {
        if datetime::is_infinite_timestamp(local) {
            Datum::Null
        } else {
            Datum::Time(local.rem_euclid(datetime::DAY))
        }
    };
    Ok(Some(match (value, target) {
        (Datum::Date(days), Type::TIMESTAMP) => Datum::Timestamp(datetime::date_to_timestamp(*days)?),
        (Datum::Date(days), Type::TIMESTAMPTZ) => {
            Datum::Timestamptz(datetime::date_to_timestamptz(*days, zone)?)
        }
        (Datum::Timestamp(local), Type::DATE) => Datum::Date(day_of(*local)),
        (Datum::Timestamp(local), Type::TIME) => time_of(*local),
        (Datum::Timestamp(local), Type::TIMESTAMPTZ) => {
            Datum::Timestamptz(datetime::timestamp_to_timestamptz(*local, zone)?)
        }
        (Datum::Timestamptz(utc), Type::TIMESTAMP) => {
            Datum::Timestamp(datetime::timestamptz_to_timestamp(*utc, zone)?)
        }
        (Datum::Timestamptz(utc), Type::DATE) => {
            Datum::Date(day_of(datetime::timestamptz_to_timestamp(*utc, zone)?))
        }
        (Datum::Timestamptz(utc), Type::TIME) => time_of(datetime::timestamptz_to_timestamp(*utc, zone)?),
        (Datum::Time(micros), Type::INTERVAL) => {
            Datum::Interval(Interval { months: 0, days: 0, micros: *micros })
        }
        (Datum::Interval(interval), Type::TIME) => Datum::Time(interval.micros.rem_euclid(datetime::DAY)),
        _ => return Ok(None),
    }))
}

fn convert_jsonb(value: &serde_json::Value, target: Type) -> SqlResult<Option<Datum>> {
    let refuse = || {
        let kind = match json::type_name(value) {
            "boolean" => "boolean",
            "number" => "numeric",
            kind => kind,
        };
        SqlError::new(SqlState::INVALID_PARAMETER, format!("cannot cast jsonb {kind} to type {target}"))
    };
    match target {
        Type::BOOL => value.as_bool().map(|value| Some(Datum::Bool(value))).ok_or_else(refuse),
        target if target.is_numeric() => {
            let number = json::as_numeric(value).ok_or_else(refuse)?;
            Number::Decimal(&number).to(target).map(Some)
        }
        _ => Ok(None),
    }
}

fn convert_array(
    array: &ArrayValue,
    from: Type,
    to: Type,
    element: ColumnType,
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    let source = from.element().unwrap_or(array.element);
    let values = array
        .values
        .iter()
        .map(|value| cast(value, source, ColumnType::plain(element.ty), true, context))
        .collect::<SqlResult<Vec<_>>>()?;
    let mut dimensions = array.dimensions.clone();
    if matches!(to, Type::INT2VECTOR | Type::OIDVECTOR) {
        dimensions.iter_mut().for_each(|(_, low)| *low = 0);
    }
    Ok(Datum::Array(Arc::new(ArrayValue { element: element.ty, dimensions, values })))
}
