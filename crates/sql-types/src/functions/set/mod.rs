//! Set-returning functions.
//!
//! * this file: arrays, strings, catalog;
//! * `series`: `generate_series`;
//! * `json`: the parts of json and jsonb values.

mod json;
mod series;

use super::args;
use super::{EvalContext, SetCall, SetFunction, SetRows};
use crate::datum::Datum;
use crate::error::SqlResult;
use crate::types::Type as T;

pub(super) static TABLES: &[&[SetFunction]] = &[TABLE, series::TABLE, json::TABLE];

type Eval = fn(&EvalContext<'_>, SetCall<'_>, &[Datum]) -> SqlResult<SetRows>;

/// A strict set-returning function.
const fn set(
    name: &'static str,
    args: &'static [T],
    columns: &'static [(&'static str, T)],
    eval: Eval,
) -> SetFunction {
    SetFunction { name, args, variadic: false, columns, dynamic_columns: false, strict: true, eval }
}

impl SetFunction {
    const fn nonstrict(mut self) -> Self {
        self.strict = false;
        self
    }
    const fn dynamic(mut self) -> Self {
        self.dynamic_columns = true;
        self
    }
}

/// Rows of one column.
fn column(values: impl IntoIterator<Item = Datum, IntoIter: Send + 'static>) -> SetRows {
    Box::new(values.into_iter().map(|value| Ok(vec![value])))
}

fn rows(rows: Vec<Vec<Datum>>) -> SetRows {
    Box::new(rows.into_iter().map(Ok))
}

fn subscripts(args: &[Datum]) -> SqlResult<SetRows> {
    let array = args::array(args, 0)?;
    let dimension = usize::try_from(i64::from(args::int4(args, 1)?) - 1).ok();
    let Some((length, low)) = dimension.and_then(|at| array.dimensions.get(at)).copied() else {
        return Ok(column([]));
    };
    let reversed = args.len() > 2 && args::bool(args, 2)?;
    let high = i64::from(low) + length as i64 - 1;
    let numbers = (i64::from(low)..=high).map(move |at| {
        let at = if reversed { high - (at - i64::from(low)) } else { at };
        Datum::Int4(at as i32)
    });
    Ok(column(numbers))
}

fn expand_array(args: &[Datum]) -> SqlResult<SetRows> {
    let array = args::array(args, 0)?;
    let numbered = array.values.clone().into_iter().enumerate();
    Ok(Box::new(numbered.map(|(index, value)| Ok(vec![value, Datum::Int4(index as i32 + 1)]))))
}

macro_rules! catalog_sets {
    ($($name:literal [$($arg:ident),*] ($($column:literal $ty:ident),*);)*) => {
        &[
            set("unnest", &[T::ANYARRAY], &[("unnest", T::ANYELEMENT)], |_, _, a| {
                Ok(column(args::array(a, 0)?.values.clone()))
            }),
            set("generate_subscripts", &[T::ANYARRAY, T::INT4], &[("generate_subscripts", T::INT4)], |_, _, a| subscripts(a)),
            set("generate_subscripts", &[T::ANYARRAY, T::INT4, T::BOOL], &[("generate_subscripts", T::INT4)], |_, _, a| {
                subscripts(a)
            }),
            set("_pg_expandarray", &[T::ANYARRAY], &[("x", T::ANYELEMENT), ("n", T::INT4)], |_, _, a| expand_array(a)),
            set("regexp_matches", &[T::TEXT, T::TEXT], &[("regexp_matches", T::TEXT_ARRAY)], |_, _, a| {
                Ok(column(super::regexps::all_matches(a)?))
            }),
            set("regexp_matches", &[T::TEXT, T::TEXT, T::TEXT], &[("regexp_matches", T::TEXT_ARRAY)], |_, _, a| {
                Ok(column(super::regexps::all_matches(a)?))
            }),
            set("regexp_split_to_table", &[T::TEXT, T::TEXT], &[("regexp_split_to_table", T::TEXT)], |_, _, a| {
                Ok(column(super::regexps::split(a)?))
            }),
            set("regexp_split_to_table", &[T::TEXT, T::TEXT, T::TEXT], &[("regexp_split_to_table", T::TEXT)], |_, _, a| {
                Ok(column(super::regexps::split(a)?))
            }),
            set("string_to_table", &[T::TEXT, T::TEXT], &[("string_to_table", T::TEXT)], |_, _, a| {
                Ok(column(super::arrays::split(a)?.unwrap_or_default()))
            })
            .nonstrict(),
            set("string_to_table", &[T::TEXT, T::TEXT, T::TEXT], &[("string_to_table", T::TEXT)], |_, _, a| {
                Ok(column(super::arrays::split(a)?.unwrap_or_default()))
            })
            .nonstrict(),
            $(
                set($name, &[$(T::$arg),*], &[$(($column, T::$ty)),*], |c, _, a| Ok(rows(c.catalog.rows($name, a, c)?))),
            )*
        ]
    };
}

static TABLE: &[SetFunction] = catalog_sets! {
    "pg_show_all_settings" [] (
        "name" TEXT, "setting" TEXT, "unit" TEXT, "category" TEXT, "short_desc" TEXT, "extra_desc" TEXT,
        "context" TEXT, "vartype" TEXT, "source" TEXT, "min_val" TEXT, "max_val" TEXT, "enumvals" TEXT_ARRAY,
        "boot_val" TEXT, "reset_val" TEXT, "sourcefile" TEXT, "sourceline" INT4, "pending_restart" BOOL
    );
    "pg_get_keywords" [] ("word" TEXT, "catcode" CHAR, "barelabel" BOOL, "catdesc" TEXT, "baredesc" TEXT);
    "aclexplode" [ACLITEM_ARRAY] ("grantor" OID, "grantee" OID, "privilege_type" TEXT, "is_grantable" BOOL);
    "pg_options_to_table" [TEXT_ARRAY] ("option_name" TEXT, "option_value" TEXT);
    "pg_listening_channels" [] ("pg_listening_channels" TEXT);
    "pg_partition_tree" [REGCLASS] ("relid" REGCLASS, "parentrelid" REGCLASS, "isleaf" BOOL, "level" INT4);
    "pg_partition_ancestors" [REGCLASS] ("relid" REGCLASS);
    "pg_timezone_names" [] ("name" TEXT, "abbrev" TEXT, "utc_offset" INTERVAL, "is_dst" BOOL);
    "pg_timezone_abbrevs" [] ("abbrev" TEXT, "utc_offset" INTERVAL, "is_dst" BOOL);
    "pg_available_extensions" [] ("name" NAME, "default_version" TEXT, "comment" TEXT);
    "pg_available_extension_versions" [] (
        "name" NAME, "version" TEXT, "superuser" BOOL, "trusted" BOOL, "relocatable" BOOL, "schema" NAME,
        "requires" NAME_ARRAY, "comment" TEXT
    );
    "pg_tablespace_databases" [OID] ("pg_tablespace_databases" OID);
    "pg_sequence_parameters" [OID] (
        "start_value" INT8, "minimum_value" INT8, "maximum_value" INT8, "increment" INT8, "cycle_option" BOOL,
        "cache_size" INT8, "data_type" OID
    );
    "pg_get_catalog_foreign_keys" [] (
        "fktable" REGCLASS, "fkcols" TEXT_ARRAY, "pktable" REGCLASS, "pkcols" TEXT_ARRAY, "is_array" BOOL, "is_opt" BOOL
    );
    "pg_lock_status" [] (
        "locktype" TEXT, "database" OID, "relation" OID, "page" INT4, "tuple" INT2, "virtualxid" TEXT,
        "transactionid" XID, "classid" OID, "objid" OID, "objsubid" INT2, "virtualtransaction" TEXT, "pid" INT4,
        "mode" TEXT, "granted" BOOL, "fastpath" BOOL, "waitstart" TIMESTAMPTZ
    );
};
