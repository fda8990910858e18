//! Type names as written to types.

use super::names::qualified;
use super::{BindContext, CatalogLookup};
use sql_types::datetime;
use sql_types::{ColumnType, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{
    self, ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, IntervalFields, ObjectName,
    TimezoneInfo,
};

/// The type a type name stands for; for a domain, the type it is over.
pub fn column_type(ty: &DataType, context: &BindContext<'_>) -> SqlResult<ColumnType> {
    let found = declared_type(ty, context)?;
    Ok(context.catalog.domain(found.ty).unwrap_or(found))
}

/// The type a type name stands for, which may be a domain.
pub fn declared_type(ty: &DataType, context: &BindContext<'_>) -> SqlResult<ColumnType> {
    resolve(ty, context.catalog, context.search_path)
}

fn resolve(ty: &DataType, catalog: &dyn CatalogLookup, path: &[String]) -> SqlResult<ColumnType> {
    Ok(match ty {
        DataType::Boolean | DataType::Bool => Type::BOOL.into(),
        DataType::SmallInt(None) | DataType::Int2(None) => Type::INT2.into(),
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Type::INT4.into(),
        DataType::BigInt(None) | DataType::Int8(None) => Type::INT8.into(),
        DataType::Real | DataType::Float4 => Type::FLOAT4.into(),
        DataType::DoublePrecision | DataType::Float8 => Type::FLOAT8.into(),
        DataType::Float(ExactNumberInfo::None) => Type::FLOAT8.into(),
        DataType::Float(ExactNumberInfo::Precision(precision)) => float(*precision)?,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Text => Type::TEXT.into(),
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            length_of(Type::VARCHAR, length.as_ref(), -1)?
        }
        DataType::Char(length) | DataType::Character(length) => length_of(Type::BPCHAR, length.as_ref(), 5)?,
        DataType::Bytea => Type::BYTEA.into(),
        DataType::Date => Type::DATE.into(),
        DataType::Time(precision, zone) => match zone {
            TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => seconds(Type::TIME, *precision),
            TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => {
                return Err(SqlError::unsupported("type time with time zone"));
            }
        },
        DataType::Timestamp(precision, zone) => match zone {
            TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => seconds(Type::TIMESTAMP, *precision),
            TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => seconds(Type::TIMESTAMPTZ, *precision),
        },
        DataType::Interval { fields, precision } => interval(fields.as_ref(), *precision),
        DataType::Uuid => Type::UUID.into(),
        DataType::JSON => Type::JSON.into(),
        DataType::JSONB => Type::JSONB.into(),
        DataType::Regclass => Type::REGCLASS.into(),
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(inner, _)
            | ArrayElemTypeDef::AngleBracket(inner)
            | ArrayElemTypeDef::Parenthesis(inner),
        ) => array_of(resolve(inner, catalog, path)?)?,
        DataType::Custom(name, modifiers) => custom(name, modifiers, catalog, path)?,
        other => named(&other.to_string().to_ascii_lowercase())
            .ok_or_else(|| undefined(&other.to_string().to_ascii_lowercase()))?
            .into(),
    })
}

fn float(precision: u64) -> SqlResult<ColumnType> {
    match precision {
        1..=24 => Ok(Type::FLOAT4.into()),
        25..=53 => Ok(Type::FLOAT8.into()),
        0 => {
            Err(SqlError::new(SqlState::INVALID_PARAMETER, "precision for type float must be at least 1 bit"))
        }
        _ => Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "precision for type float must be less than 54 bits",
        )),
    }
}

fn numeric(info: &ExactNumberInfo) -> SqlResult<ColumnType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(Type::NUMERIC.into()),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    if !(1..=1000).contains(&precision) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("NUMERIC precision {precision} must be between 1 and 1000"),
        ));
    }
    if !(-1000..=1000).contains(&scale) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("NUMERIC scale {scale} must be between -1000 and 1000"),
        ));
    }
    let typmod = ((precision as i32) << 16 | (scale as i32 & 0x7ff)) + 4;
    Ok(ColumnType { ty: Type::NUMERIC, typmod })
}

fn length_of(ty: Type, length: Option<&CharacterLength>, default: i32) -> SqlResult<ColumnType> {
    let typmod = match length {
        None => default,
        Some(CharacterLength::Max) => return Err(undefined("max")),
        Some(CharacterLength::IntegerLength { length, .. }) => {
            let name = if ty == Type::VARCHAR { "varchar" } else { "char" };
            match *length {
                0 => {
                    return Err(SqlError::new(
                        SqlState::INVALID_PARAMETER,
                        format!("length for type {name} must be at least 1"),
                    ));
                }
                length if length > 10_485_760 => {
                    return Err(SqlError::new(
                        SqlState::INVALID_PARAMETER,
                        format!("length for type {name} cannot exceed 10485760"),
                    ));
                }
                length => length as i32 + 4,
            }
        }
    };
    Ok(ColumnType { ty, typmod })
}

fn seconds(ty: Type, precision: Option<u64>) -> ColumnType {
    // The modifier of an interval also has the fields kept, which are all of them.
    let fields = if ty == Type::INTERVAL { 0x7fff << 16 } else { 0 };
    ColumnType { ty, typmod: precision.map_or(-1, |digits| fields | digits.min(6) as i32) }
}

/// An interval that keeps these fields, or all.
fn interval(fields: Option<&IntervalFields>, precision: Option<u64>) -> ColumnType {
    let Some(fields) = fields else { return seconds(Type::INTERVAL, precision) };
    use datetime::interval_fields::{DAY, HOUR, MINUTE, MONTH, SECOND, YEAR};
    let mask = match fields {
        IntervalFields::Year => YEAR,
        IntervalFields::Month => MONTH,
        IntervalFields::Day => DAY,
        IntervalFields::Hour => HOUR,
        IntervalFields::Minute => MINUTE,
        IntervalFields::Second => SECOND,
        IntervalFields::YearToMonth => YEAR | MONTH,
        IntervalFields::DayToHour => DAY | HOUR,
        IntervalFields::DayToMinute => DAY | HOUR | MINUTE,
        IntervalFields::DayToSecond => DAY | HOUR | MINUTE | SECOND,
        IntervalFields::HourToMinute => HOUR | MINUTE,
        IntervalFields::HourToSecond => HOUR | MINUTE | SECOND,
        IntervalFields::MinuteToSecond => MINUTE | SECOND,
    };
    let digits = precision.map_or(0xffff, |digits| digits.min(6) as i32);
    ColumnType { ty: Type::INTERVAL, typmod: mask << 16 | digits }
}

/// The type of `interval '…'` with the fields behind the literal.
pub(super) fn interval_literal(interval: &ast::Interval) -> SqlResult<ColumnType> {
    use ast::DateTimeField as Field;
    let Some(first) = &interval.leading_field else { return Ok(Type::INTERVAL.into()) };
    let fields = match (first, &interval.last_field) {
        (Field::Year, None) => IntervalFields::Year,
        (Field::Month, None) => IntervalFields::Month,
        (Field::Day, None) => IntervalFields::Day,
        (Field::Hour, None) => IntervalFields::Hour,
        (Field::Minute, None) => IntervalFields::Minute,
        (Field::Second, None) => IntervalFields::Second,
        (Field::Year, Some(Field::Month)) => IntervalFields::YearToMonth,
        (Field::Day, Some(Field::Hour)) => IntervalFields::DayToHour,
        (Field::Day, Some(Field::Minute)) => IntervalFields::DayToMinute,
        (Field::Day, Some(Field::Second)) => IntervalFields::DayToSecond,
        (Field::Hour, Some(Field::Minute)) => IntervalFields::HourToMinute,
        (Field::Hour, Some(Field::Second)) => IntervalFields::HourToSecond,
        (Field::Minute, Some(Field::Second)) => IntervalFields::MinuteToSecond,
        (first, _) => {
            let message = format!("syntax error at or near \"{}\"", first.to_string().to_lowercase());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
    };
    let precision = match (first, &interval.last_field) {
        (Field::Second, None) => interval.leading_precision,
        _ => interval.fractional_seconds_precision,
    };
    Ok(self::interval(Some(&fields), precision))
}

fn array_of(element: ColumnType) -> SqlResult<ColumnType> {
    if element.ty.is_plain_array() {
        return Ok(element);
    }
    if element.ty.is_domain() {
        return Err(SqlError::unsupported("an array of a domain"));
    }
    match element.ty.array() {
        Some(array) => Ok(ColumnType { ty: array, typmod: element.typmod }),
        None => Err(undefined(&format!("{}[]", element.ty))),
    }
}

fn named(name: &str) -> Option<Type> {
    Type::by_name(name)
}

fn undefined(name: &str) -> SqlError {
    if crate::system::is_type_name(name) {
        return SqlError::unsupported(format!("type {name}"));
    }
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

fn custom(
    name: &ObjectName,
    modifiers: &[String],
    catalog: &dyn CatalogLookup,
    path: &[String],
) -> SqlResult<ColumnType> {
    let name = qualified(name)?;
    let schema = name.schema.as_deref();
    if schema.is_none() || schema == Some("pg_catalog") {
        let reserved = matches!(&*name.name, "anyarray" | "anyelement");
        if let Some(ty) = named(&name.name).filter(|_| !reserved) {
            return modified(ty, modifiers);
        }
    }
    if schema.is_none_or(|schema| schema == "information_schema") {
        // The domains of information_schema.
        match &*name.name {
            "sql_identifier" => return Ok(Type::NAME.into()),
            "cardinal_number" => return Ok(Type::INT4.into()),
            "character_data" | "yes_or_no" if schema.is_some() => return Ok(Type::VARCHAR.into()),
            _ => {}
        }
    }
    catalog.type_by_name(schema, &name.name, path).ok_or_else(|| undefined(&name.written()))
}

/// Modifiers of a type whose name `sqlparser` does not know, or knows only qualified.
fn modified(ty: Type, modifiers: &[String]) -> SqlResult<ColumnType> {
    let numbers: Vec<u64> = modifiers.iter().filter_map(|text| text.parse().ok()).collect();
    match (ty, numbers[..].first().copied()) {
        (_, None) => Ok(ty.into()),
        (Type::VARCHAR | Type::BPCHAR, Some(length)) => {
            length_of(ty, Some(&CharacterLength::IntegerLength { length, unit: None }), -1)
        }
        (Type::NUMERIC, Some(precision)) => {
            let scale = numbers.get(1).map_or(0, |scale| *scale as i64);
            numeric(&ExactNumberInfo::PrecisionAndScale(precision, scale))
        }
        (Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME | Type::INTERVAL, digits) => {
            Ok(seconds(ty, digits))
        }
        _ => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("type modifier is not allowed for type \"{ty}\""),
        )),
    }
}
