//! Binary forms, and text forms in every style.

use super::check;
use bytes::BytesMut;
use sql_types::cast::{CastKind, cast_kind};
use sql_types::context::{DateOrder, DateStyle, IntervalStyle};
use sql_types::datetime::TimeZone;
use sql_types::functions::EvalContext;
use sql_types::{ColumnType, Type, binary, text};

#[test]
fn binary_forms_are_those_of_postgresql() {
    let zone = TimeZone::find("Europe/Berlin").expect("a zone");
    let mut context = EvalContext::plain();
    context.text.time_zone = &zone;
    check(include_str!("binary.txt"), |inputs, expected| {
        let [ty, input] = inputs else { panic!("malformed line") };
        let ty = match ty.strip_suffix("[]") {
            Some(element) => Type::by_name(element).and_then(Type::array),
            None => Type::by_name(ty),
        };
        let ty = ty.expect("a type");
        let value = text::parse(ColumnType::plain(ty), input, &context)?;
        let mut out = BytesMut::new();
        binary::encode(&value, ty, &context, &mut out)?;
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        // And back again.
        let again = binary::decode(ty, &out, &context)?;
        assert_eq!(
            text::to_string(&again, ty, &context),
            text::to_string(&value, ty, &context),
            "{expected:?}"
        );
        Ok(vec![hex])
    });
}

#[test]
fn styles_are_those_of_postgresql() {
    let zone = TimeZone::find("Europe/Berlin").expect("a zone");
    check(include_str!("styles.txt"), |inputs, _| {
        let [date_style, interval_style, ty, input] = inputs else { panic!("malformed line") };
        let mut context = EvalContext::plain();
        context.text.time_zone = &zone;
        let (style, order) = date_style.split_once(", ").expect("style and order");
        context.text.date_style = match style {
            "ISO" => DateStyle::Iso,
            "SQL" => DateStyle::Sql,
            "German" => DateStyle::German,
            _ => DateStyle::Postgres,
        };
        context.text.date_order = match order {
            "MDY" => DateOrder::Mdy,
            "DMY" => DateOrder::Dmy,
            _ => DateOrder::Ymd,
        };
        let ty = Type::by_name(ty).expect("a type");
        let value = text::parse(ColumnType::plain(ty), input, &context)?;
        context.text.interval_style = match *interval_style {
            "postgres_verbose" => IntervalStyle::PostgresVerbose,
            "sql_standard" => IntervalStyle::SqlStandard,
            "iso_8601" => IntervalStyle::Iso8601,
            _ => IntervalStyle::Postgres,
        };
        Ok(vec![text::to_string(&value, ty, &context)])
    });
}

/// `casts.txt` lists PostgreSQL's pg_cast for the built-in types: source, target, context. Other pairs
/// have a cast only through text.
#[test]
fn casts_are_those_of_postgresql() {
    let mut failures = Vec::new();
    let types: Vec<_> = sql_types::types::BUILT_IN
        .iter()
        .filter(|info| info.element.0 == 0 && info.ty.0 != 0 && !matches!(info.category, 'P' | 'X'))
        .collect();
    let listed: Vec<Vec<&str>> =
        include_str!("casts.txt").lines().map(|line| line.split(' ').collect()).collect();
    for from in &types {
        for to in types.iter().filter(|to| to.ty != from.ty && to.name != "cid" && from.name != "cid") {
            let entry = listed.iter().find(|entry| entry[0] == from.name && entry[1] == to.name);
            let expected = match entry.map(|entry| entry[2]) {
                Some("i") => Some(CastKind::Implicit),
                Some("a") => Some(CastKind::Assignment),
                Some(_) => Some(CastKind::Explicit),
                None if to.category == 'S' => Some(CastKind::Assignment),
                None if from.category == 'S' => Some(CastKind::Explicit),
                None => None,
            };
            let actual = cast_kind(from.ty, to.ty);
            if actual != expected {
                failures.push(format!("{} to {}: expected {expected:?}, got {actual:?}", from.name, to.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
