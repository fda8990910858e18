//! What `information_schema` says of a column's type.

use super::row::{SystemContext, int, text};
use super::user_types::array_name;
use sql_types::{ColumnType, Datum, Type};

/// The columns of `information_schema.columns` that depend on the type.
pub(super) fn type_columns(cx: &SystemContext<'_>, ty: ColumnType) -> Vec<(&'static str, Datum)> {
    let of_user = cx.catalog().user_type(ty.ty.element().unwrap_or(ty.ty));
    let name = match ty.ty.is_plain_array() {
        true => "ARRAY".to_string(),
        false if of_user.is_some() => "USER-DEFINED".to_string(),
        false => ty.ty.to_string(),
    };
    let (udt_schema, udt_name) = match (of_user, ty.ty.info()) {
        (Some(found), _) => {
            let schema = cx.catalog().schema_name(cx.database(), found.schema).unwrap_or("");
            let name = if ty.ty.is_plain_array() { array_name(&found.name) } else { found.name.clone() };
            (schema, name)
        }
        (None, info) => ("pg_catalog", info.map_or(String::new(), |info| info.name.to_string())),
    };
    let mut values = vec![
        ("data_type", Datum::text(name)),
        ("udt_schema", text(udt_schema)),
        ("udt_name", Datum::text(udt_name)),
    ];
    let numeric = |precision: i64, radix: i64, scale: Option<i64>| {
        vec![
            ("numeric_precision", int(precision)),
            ("numeric_precision_radix", int(radix)),
            ("numeric_scale", scale.map_or(Datum::Null, int)),
        ]
    };
    match ty.ty {
        Type::INT2 => values.extend(numeric(16, 2, Some(0))),
        Type::INT4 => values.extend(numeric(32, 2, Some(0))),
        Type::INT8 => values.extend(numeric(64, 2, Some(0))),
        Type::FLOAT4 => values.extend(numeric(24, 2, None)),
        Type::FLOAT8 => values.extend(numeric(53, 2, None)),
        Type::NUMERIC if ty.typmod >= 4 => {
            let packed = i64::from(ty.typmod - 4);
            values.extend(numeric(packed >> 16, 10, Some(((packed & 0x7ff) ^ 1024) - 1024)));
        }
        Type::NUMERIC => values.push(("numeric_precision_radix", int(10))),
        Type::VARCHAR | Type::BPCHAR => {
            if ty.typmod >= 4 {
                values.push(("character_maximum_length", int(i64::from(ty.typmod - 4))));
                values.push(("character_octet_length", int(i64::from(ty.typmod - 4) * 4)));
            } else {
                values.push(("character_octet_length", int(1_073_741_824)));
            }
        }
        Type::TEXT => values.push(("character_octet_length", int(1_073_741_824))),
        Type::INTERVAL => {
            // The lower half of the modifier has the digits, and all its bits if they are not restricted.
            let digits = i64::from(ty.typmod & 0xffff);
            values.push(("datetime_precision", int(if digits < 7 { digits } else { 6 })));
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => {
            values.push(("datetime_precision", int(if ty.typmod >= 0 { i64::from(ty.typmod) } else { 6 })));
        }
        Type::DATE => values.push(("datetime_precision", int(0))),
        _ => {}
    }
    values
}
