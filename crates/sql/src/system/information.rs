//! information_schema.

use super::columns::type_columns;
use super::row::{SystemContext, int, optional, text};
use super::{registry, tables, user_types};
use crate::catalog::descriptor::{PRIMARY_INDEX, TableDescriptor, Timing};
use crate::catalog::oids;
use crate::table::generated_text;
use sql_types::{Datum, Oid, Row};

/// The rows of a table.
pub(super) fn rows(cx: &SystemContext<'_>) -> Vec<Row> {
    match cx.table.name {
        "schemata" => schemata(cx),
        "tables" => table_rows(cx),
        "columns" => column_rows(cx),
        "views" => views(cx),
        "sequences" => sequences(cx),
        "table_constraints" => table_constraints(cx),
        "key_column_usage" => key_column_usage(cx),
        "constraint_column_usage" | "constraint_table_usage" => constraint_usage(cx),
        "referential_constraints" => referential_constraints(cx),
        "check_constraints" => check_constraints(cx),
        "character_sets" => character_sets(cx),
        "information_schema_catalog_name" => vec![vec![database(cx)]],
        "enabled_roles" | "applicable_roles" => roles(cx),
        "routines" => routines(cx),
        "domains" => user_types::domain_rows(cx),
        "domain_constraints" => user_types::domain_constraints(cx),
        "column_domain_usage" => user_types::column_domain_usage(cx),
        "table_privileges" | "role_table_grants" => table_privileges(cx),
        _ => Vec::new(),
    }
}

fn database(cx: &SystemContext<'_>) -> Datum {
    Datum::Text(cx.view.shared.database_name.clone())
}

fn schema(cx: &SystemContext<'_>, schema: Oid) -> Datum {
    text(cx.catalog().schema_name(cx.database(), schema).unwrap_or(""))
}

/// The user's tables that the role may see something of.
fn my_tables<'a>(cx: &'a SystemContext<'_>) -> impl Iterator<Item = &'a std::sync::Arc<TableDescriptor>> {
    let mine = cx.catalog().tables.values();
    // PostgreSQL's information_schema knows no materialized views.
    let mine = mine.filter(|table| table.database == cx.database() && table.view.is_none());
    mine.filter(|table| visible(cx, table.oid, table.owner))
}

fn visible(cx: &SystemContext<'_>, object: Oid, owner: Oid) -> bool {
    "rawdDxt".chars().any(|letter| cx.catalog().has_privilege(cx.view.user, owner, object, letter))
}

fn schemata(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().schemas.values().filter(|schema| schema.database == cx.database());
    mine.map(|schema| {
        cx.row(vec![
            ("catalog_name", database(cx)),
            ("schema_name", text(&schema.name)),
            ("schema_owner", Datum::text(cx.catalog().role_name(schema.owner))),
        ])
    })
    .collect()
}

fn table_rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let row = |schema: Datum, name: &str, kind: &str, insertable: bool| {
        cx.row(vec![
            ("table_catalog", database(cx)),
            ("table_schema", schema),
            ("table_name", text(name)),
            ("table_type", text(kind)),
            ("is_insertable_into", Datum::Bool(insertable)),
            ("is_typed", Datum::Bool(false)),
        ])
    };
    let mut rows: Vec<Row> = Vec::new();
    for table in tables::all() {
        let kind = if table.kind == 'v' { "VIEW" } else { "BASE TABLE" };
        rows.push(row(text(table.schema), table.name, kind, false));
    }
    rows.extend(my_tables(cx).map(|table| {
        let kind = if table.schema == oids::PG_TEMP { "LOCAL TEMPORARY" } else { "BASE TABLE" };
        row(schema(cx, table.schema), &table.name, kind, true)
    }));
    let views = cx.catalog().views.values().filter(|view| view.database == cx.database());
    rows.extend(views.map(|view| row(schema(cx, view.schema), &view.name, "VIEW", false)));
    rows
}

fn column_rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let common = |schema: Datum, table: &str, name: &str, number: i64, ty: sql_types::ColumnType| {
        let mut values = vec![
            ("table_catalog", database(cx)),
            ("table_schema", schema),
            ("table_name", text(table)),
            ("column_name", text(name)),
            ("ordinal_position", int(number)),
            ("udt_catalog", database(cx)),
            ("dtd_identifier", Datum::text(number.to_string())),
            ("is_self_referencing", text("NO")),
        ];
        values.extend(type_columns(cx, ty));
        values
    };
    let plain = |mut values: Vec<(&'static str, Datum)>, updatable: &str| {
        values.push(("is_nullable", text("YES")));
        values.push(("is_identity", text("NO")));
        values.push(("is_updatable", text(updatable)));
        values.push(("is_generated", text("NEVER")));
        values
    };
    let mut rows = Vec::new();
    for table in tables::all() {
        for (position, (name, ty)) in table.columns().iter().enumerate() {
            let values = common(text(table.schema), table.name, name, position as i64 + 1, (*ty).into());
            rows.push(cx.row(plain(values, "NO")));
        }
    }
    for table in my_tables(cx) {
        for column in table.columns.iter().filter(|column| !column.hidden) {
            let mut values =
                common(schema(cx, table.schema), &table.name, &column.name, i64::from(column.id), column.ty);
            values.extend(user_types::column_domain(cx, column.domain));
            let default = column.default.as_deref().filter(|_| column.identity.is_none());
            values.push((
                "column_default",
                optional(default.map(|text| cx.view.default_text(text)).as_deref()),
            ));
            values.push(("is_nullable", Datum::Bool(column.nullable)));
            let generated = generated_text(table, column).map(|text| cx.view.named_types(&text));
            values.push(("is_generated", text(if generated.is_some() { "ALWAYS" } else { "NEVER" })));
            values.push(("generation_expression", optional(generated.as_deref())));
            values.push(("is_identity", Datum::Bool(column.identity.is_some())));
            values.push(("is_updatable", text("YES")));
            if let Some(kind) = column.identity {
                values.push(("identity_generation", text(if kind == 'a' { "ALWAYS" } else { "BY DEFAULT" })));
                values.push(("identity_cycle", text("NO")));
                let sequence = column.sequence.and_then(|oid| cx.catalog().sequences.get(&oid));
                if let Some(sequence) = sequence {
                    values.push(("identity_start", int(sequence.start)));
                    values.push(("identity_increment", int(sequence.increment)));
                    values.push(("identity_maximum", int(sequence.max)));
                    values.push(("identity_minimum", int(sequence.min)));
                }
            }
            rows.push(cx.row(values));
        }
    }
    for view in cx.catalog().views.values().filter(|view| view.database == cx.database()) {
        for (position, (name, ty)) in view.columns.iter().enumerate() {
            let values = common(schema(cx, view.schema), &view.name, name, position as i64 + 1, *ty);
            rows.push(cx.row(plain(values, "NO")));
        }
    }
    rows
}

fn views(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().views.values().filter(|view| view.database == cx.database());
    mine.map(|view| {
        cx.row(vec![
            ("table_catalog", database(cx)),
            ("table_schema", schema(cx, view.schema)),
            ("table_name", text(&view.name)),
            ("view_definition", Datum::text(cx.view.view_definition(view))),
            ("check_option", text("NONE")),
            ("is_updatable", text("NO")),
            ("is_insertable_into", text("NO")),
            ("is_trigger_updatable", text("NO")),
            ("is_trigger_deletable", text("NO")),
            ("is_trigger_insertable_into", text("NO")),
        ])
    })
    .collect()
}

fn sequences(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().sequences.values().filter(|sequence| sequence.database == cx.database());
    mine.filter(|sequence| {
        // Those of identity columns belong to their tables.
        !sequence.owned_by.is_some_and(|(table, column)| {
            cx.catalog()
                .table(table)
                .and_then(|table| table.column(column))
                .is_some_and(|c| c.identity.is_some())
        })
    })
    .map(|sequence| {
        let bits = match sequence.ty {
            sql_types::Type::INT2 => 16,
            sql_types::Type::INT4 => 32,
            _ => 64,
        };
        cx.row(vec![
            ("sequence_catalog", database(cx)),
            ("sequence_schema", schema(cx, sequence.schema)),
            ("sequence_name", text(&sequence.name)),
            ("data_type", Datum::text(sequence.ty.to_string())),
            ("numeric_precision", int(bits)),
            ("numeric_precision_radix", int(2)),
            ("numeric_scale", int(0)),
            ("start_value", int(sequence.start)),
            ("minimum_value", int(sequence.min)),
            ("maximum_value", int(sequence.max)),
            ("increment", int(sequence.increment)),
            ("cycle_option", Datum::Bool(sequence.cycle)),
        ])
    })
    .collect()
}

fn constraint(cx: &SystemContext<'_>, table: &TableDescriptor, name: &str) -> Vec<(&'static str, Datum)> {
    vec![
        ("constraint_catalog", database(cx)),
        ("constraint_schema", schema(cx, table.schema)),
        ("constraint_name", text(name)),
    ]
}

fn of_table(cx: &SystemContext<'_>, table: &TableDescriptor) -> Vec<(&'static str, Datum)> {
    vec![
        ("table_catalog", database(cx)),
        ("table_schema", schema(cx, table.schema)),
        ("table_name", text(&table.name)),
    ]
}

fn not_null_name(table: &TableDescriptor, column: u32) -> String {
    format!("{}_{}_{column}_not_null", table.schema, table.oid)
}

fn table_constraints(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        let yes_or_no = |value: bool| text(if value { "YES" } else { "NO" });
        let mut add = |name: &str, kind: &str, timing: Timing, distinct: Datum| {
            let mut values = constraint(cx, table, name);
            values.extend(of_table(cx, table));
            values.push(("constraint_type", text(kind)));
            values.push(("is_deferrable", yes_or_no(timing.deferrable)));
            values.push(("initially_deferred", yes_or_no(timing.deferred)));
            values.push(("enforced", text("YES")));
            values.push(("nulls_distinct", distinct));
            rows.push(cx.row(values));
        };
        for index in table.indexes.iter().filter(|index| index.constraint) {
            match index.id {
                PRIMARY_INDEX => add(&index.name, "PRIMARY KEY", index.timing, Datum::Null),
                _ => add(&index.name, "UNIQUE", index.timing, yes_or_no(!index.nulls_not_distinct)),
            }
        }
        table.checks.iter().for_each(|check| add(&check.name, "CHECK", Timing::default(), Datum::Null));
        table.foreign_keys.iter().for_each(|key| add(&key.name, "FOREIGN KEY", key.timing, Datum::Null));
        for column in table.columns.iter().filter(|column| !column.hidden && !column.nullable) {
            add(&not_null_name(table, column.id), "CHECK", Timing::default(), Datum::Null);
        }
    }
    rows
}

fn key_column_usage(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        let mut add = |name: &str, column: u32, position: usize, target: Option<usize>| {
            let Some(column) = table.column(column) else { return };
            let mut values = constraint(cx, table, name);
            values.extend(of_table(cx, table));
            values.push(("column_name", text(&column.name)));
            values.push(("ordinal_position", int(position as i64 + 1)));
            values
                .push(("position_in_unique_constraint", target.map_or(Datum::Null, |at| int(at as i64 + 1))));
            rows.push(cx.row(values));
        };
        for index in table.indexes.iter().filter(|index| index.constraint) {
            for (position, (column, _)) in index.columns.iter().enumerate() {
                add(&index.name, *column, position, None);
            }
        }
        for key in &table.foreign_keys {
            for (position, column) in key.columns.iter().enumerate() {
                add(&key.name, *column, position, Some(position));
            }
        }
    }
    rows
}

fn constraint_usage(cx: &SystemContext<'_>) -> Vec<Row> {
    let by_column = cx.table.name == "constraint_column_usage";
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        let mut add = |name: &str, target: &TableDescriptor, columns: &[u32]| {
            let mut base = constraint(cx, table, name);
            base.extend(of_table(cx, target));
            if !by_column {
                rows.push(cx.row(base));
                return;
            }
            for column in columns.iter().filter_map(|id| target.column(*id)) {
                let mut values = base.clone();
                values.push(("column_name", text(&column.name)));
                rows.push(cx.row(values));
            }
        };
        for index in table.indexes.iter().filter(|index| index.constraint) {
            let columns: Vec<u32> = index.columns.iter().map(|(id, _)| *id).collect();
            add(&index.name, table, &columns);
        }
        for key in &table.foreign_keys {
            if let Some(referenced) = cx.catalog().table(key.referenced_table) {
                add(&key.name, referenced, &key.referenced_columns);
            }
        }
    }
    rows
}

fn referential_constraints(cx: &SystemContext<'_>) -> Vec<Row> {
    let rule = |letter: char| match letter {
        'r' => "RESTRICT",
        'c' => "CASCADE",
        'n' => "SET NULL",
        'd' => "SET DEFAULT",
        _ => "NO ACTION",
    };
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        for key in &table.foreign_keys {
            let Some(referenced) = cx.catalog().table(key.referenced_table) else { continue };
            let index = referenced.indexes.iter().find(|index| {
                index.is_key()
                    && index.columns.len() == key.referenced_columns.len()
                    && index.columns.iter().all(|(id, _)| key.referenced_columns.contains(id))
            });
            let mut values = constraint(cx, table, &key.name);
            values.push(("unique_constraint_catalog", database(cx)));
            values.push(("unique_constraint_schema", schema(cx, referenced.schema)));
            values.push(("unique_constraint_name", optional(index.map(|index| index.name.as_str()))));
            values.push(("match_option", text("NONE")));
            values.push(("update_rule", text(rule(key.on_update))));
            values.push(("delete_rule", text(rule(key.on_delete))));
            rows.push(cx.row(values));
        }
    }
    rows
}

fn check_constraints(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        for check in &table.checks {
            let mut values = constraint(cx, table, &check.name);
            values.push(("check_clause", Datum::text(format!("({})", cx.view.named_types(&check.expr)))));
            rows.push(cx.row(values));
        }
        for column in table.columns.iter().filter(|column| !column.hidden && !column.nullable) {
            let mut values = constraint(cx, table, &not_null_name(table, column.id));
            values.push(("check_clause", Datum::text(format!("{} IS NOT NULL", column.name))));
            rows.push(cx.row(values));
        }
    }
    rows.extend(user_types::domain_check_constraints(cx));
    rows
}

fn character_sets(cx: &SystemContext<'_>) -> Vec<Row> {
    vec![cx.row(vec![
        ("character_set_name", text("UTF8")),
        ("character_repertoire", text("UCS")),
        ("form_of_use", text("UTF8")),
        ("default_collate_catalog", database(cx)),
        ("default_collate_schema", text("pg_catalog")),
        ("default_collate_name", text("C")),
    ])]
}

fn roles(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().roles.values().filter(|role| cx.catalog().is_member(cx.view.user, role.oid));
    if cx.table.name == "enabled_roles" {
        return mine.map(|role| cx.row(vec![("role_name", text(&role.name))])).collect();
    }
    Vec::new()
}

fn routines(cx: &SystemContext<'_>) -> Vec<Row> {
    registry::functions()
        .iter()
        .filter(|function| function.kind == 'f')
        .map(|function| {
            cx.row(vec![
                ("specific_catalog", database(cx)),
                ("specific_schema", text("pg_catalog")),
                ("specific_name", Datum::text(format!("{}_{}", function.name, function.oid))),
                ("routine_catalog", database(cx)),
                ("routine_schema", text("pg_catalog")),
                ("routine_name", text(function.name)),
                ("routine_type", text("FUNCTION")),
                ("data_type", Datum::text(function.returns.to_string())),
                ("external_language", text("INTERNAL")),
            ])
        })
        .collect()
}

fn table_privileges(cx: &SystemContext<'_>) -> Vec<Row> {
    let names = [
        ('r', "SELECT"),
        ('a', "INSERT"),
        ('w', "UPDATE"),
        ('d', "DELETE"),
        ('D', "TRUNCATE"),
        ('x', "REFERENCES"),
        ('t', "TRIGGER"),
    ];
    let mut rows = Vec::new();
    for table in my_tables(cx) {
        let owner = cx.catalog().role_name(table.owner);
        let mut grants = vec![(table.owner, "rawdDxt".to_string())];
        grants.extend(cx.catalog().acls.get(&table.oid).map(|acl| acl.grants.clone()).unwrap_or_default());
        for (grantee, letters) in grants {
            for (_, privilege) in names.iter().filter(|(letter, _)| letters.contains(*letter)) {
                let mut values = of_table(cx, table);
                let grantee = if grantee == 0 { "PUBLIC".into() } else { cx.catalog().role_name(grantee) };
                values.push(("grantor", text(&owner)));
                values.push(("grantee", Datum::text(grantee)));
                values.push(("privilege_type", text(privilege)));
                values.push(("is_grantable", text("NO")));
                values.push(("with_hierarchy", text("NO")));
                rows.push(cx.row(values));
            }
        }
    }
    rows
}
