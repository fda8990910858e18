//! Namespaces, roles, databases, types, views over them, comments, dependencies.

use super::builtin::{BTREE, GIN, OpClass, function_oid, inverted_opclasses, keywords, opclasses, types};
use super::deparse::constraint_oid;
use super::pg_class::default_oid;
use super::row::{SystemContext, bool, int, letter, oid, optional, text};
use super::{tables, user_types};
use crate::catalog::descriptor::{EXPRESSION, PRIMARY_INDEX, TableDescriptor};
use crate::catalog::{Relation, oids};
use crate::ddl::tokens::Cursor;
use crate::table::generated_from;
use sql_types::{Datum, Oid, Row, Type};

/// The rows of one of these tables; `None` if it is another.
pub(super) fn rows(cx: &SystemContext<'_>) -> Option<Vec<Row>> {
    Some(match cx.table.name {
        "pg_namespace" => namespaces(cx),
        "pg_authid" | "pg_roles" => roles(cx),
        "pg_user" | "pg_shadow" => users(cx),
        "pg_group" => Vec::new(),
        "pg_auth_members" => members(cx),
        "pg_database" => databases(cx),
        "pg_type" => {
            let mut rows = type_rows(cx);
            rows.extend(user_types::type_rows(cx));
            rows
        }
        "pg_enum" => user_types::enum_rows(cx),
        "pg_tables" => table_list(cx),
        "pg_views" => views(cx),
        "pg_matviews" => materialized_views(cx),
        "pg_indexes" => index_list(cx),
        "pg_sequence" => sequences(cx),
        "pg_description" => descriptions(cx),
        "pg_shdescription" => shared_descriptions(cx),
        "pg_depend" => dependencies(cx),
        "pg_am" => access_methods(cx),
        "pg_collation" => collations(cx),
        "pg_language" => languages(cx),
        "pg_tablespace" => tablespaces(cx),
        "pg_extension" => extensions(cx),
        "pg_opclass" => operator_classes(cx),
        "pg_opfamily" => operator_families(cx),
        "pg_rewrite" => rewrite_rules(cx),
        _ => return None,
    })
}

fn namespaces(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().schemas.values().filter(|schema| schema.database == cx.database());
    mine.map(|schema| {
        cx.row(vec![
            ("oid", oid(schema.oid)),
            ("nspname", text(&schema.name)),
            ("nspowner", oid(schema.owner)),
            ("nspacl", acl(cx, schema.oid, schema.owner)),
        ])
    })
    .collect()
}

/// The rule that makes a relation a view; its OID is one more name of the view's.
fn rewrite_rules(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().views.values().filter(|view| view.database == cx.database());
    mine.map(|view| {
        cx.row(vec![
            ("oid", oid(view.oid)),
            ("rulename", text("_RETURN")),
            ("ev_class", oid(view.oid)),
            ("ev_type", letter('1')),
            ("ev_enabled", letter('O')),
            ("is_instead", bool(true)),
        ])
    })
    .collect()
}

/// Privileges as an array of `grantee=letters/grantor`; NULL if nothing was granted.
pub(super) fn acl(cx: &SystemContext<'_>, object: Oid, owner: Oid) -> Datum {
    let Some(acl) = cx.catalog().acls.get(&object) else { return Datum::Null };
    let owner = cx.catalog().role_name(owner);
    let item = |(grantee, letters): &(Oid, String)| {
        let name = if *grantee == 0 { String::new() } else { cx.catalog().role_name(*grantee) };
        Datum::text(format!("{name}={letters}/{owner}"))
    };
    Datum::array(Type::ACLITEM, acl.grants.iter().map(item).collect())
}

fn roles(cx: &SystemContext<'_>) -> Vec<Row> {
    let is_view = cx.table.name == "pg_roles";
    cx.catalog()
        .roles
        .values()
        .map(|role| {
            let password = if is_view || !cx.view.is_superuser() {
                text("********")
            } else {
                optional(role.verifier.as_deref())
            };
            let mut values = vec![
                ("oid", oid(role.oid)),
                ("rolname", text(&role.name)),
                ("rolsuper", bool(role.superuser)),
                ("rolinherit", bool(role.inherit)),
                ("rolcreaterole", bool(role.create_role)),
                ("rolcreatedb", bool(role.create_db)),
                ("rolcanlogin", bool(role.login)),
                ("rolreplication", bool(role.replication)),
                ("rolconnlimit", int(i64::from(role.connection_limit))),
                ("rolpassword", password),
                ("rolbypassrls", bool(role.bypass_rls)),
            ];
            if is_view && !role.settings.is_empty() {
                let settings =
                    role.settings.iter().map(|(name, value)| Datum::text(format!("{name}={value}")));
                values.push(("rolconfig", Datum::array(Type::TEXT, settings.collect())));
            }
            cx.row(values)
        })
        .collect()
}

fn users(cx: &SystemContext<'_>) -> Vec<Row> {
    let users = cx.catalog().roles.values().filter(|role| role.login);
    users
        .map(|role| {
            cx.row(vec![
                ("usename", text(&role.name)),
                ("usesysid", oid(role.oid)),
                ("usecreatedb", bool(role.create_db)),
                ("usesuper", bool(role.superuser)),
                ("userepl", bool(role.replication)),
                ("usebypassrls", bool(role.bypass_rls)),
                ("passwd", text("********")),
            ])
        })
        .collect()
}

fn members(cx: &SystemContext<'_>) -> Vec<Row> {
    let pairs =
        cx.catalog().roles.values().flat_map(|role| role.member_of.iter().map(|group| (role.oid, *group)));
    pairs
        .map(|(member, group)| {
            cx.row(vec![
                ("roleid", oid(group)),
                ("member", oid(member)),
                ("grantor", oid(oids::OWNER)),
                ("admin_option", bool(false)),
            ])
        })
        .collect()
}

fn databases(cx: &SystemContext<'_>) -> Vec<Row> {
    let row = |database: &crate::catalog::descriptor::DatabaseDescriptor| {
        cx.row(vec![
            ("oid", oid(database.oid)),
            ("datname", text(&database.name)),
            ("datdba", oid(database.owner)),
            ("encoding", int(6)),
            ("datlocprovider", letter('c')),
            ("datistemplate", bool(false)),
            ("datallowconn", bool(true)),
            ("datconnlimit", int(-1)),
            ("datfrozenxid", oid(0)),
            ("datminmxid", oid(0)),
            ("dattablespace", oid(1663)),
            ("datcollate", text("C")),
            ("datctype", text("C")),
            ("datacl", acl(cx, database.oid, database.owner)),
        ])
    };
    cx.catalog().databases.values().map(|database| row(database)).collect()
}

fn type_rows(cx: &SystemContext<'_>) -> Vec<Row> {
    types()
        .iter()
        .map(|ty| {
            let [input, output, receive, send, modin, modout] = ty.functions.map(function_oid);
            cx.row(vec![
                ("oid", oid(ty.oid)),
                ("typname", text(ty.name)),
                ("typnamespace", oid(oids::PG_CATALOG)),
                ("typowner", oid(oids::OWNER)),
                ("typlen", int(i64::from(ty.len))),
                ("typbyval", bool(ty.by_value)),
                ("typtype", letter(ty.kind)),
                ("typcategory", letter(ty.category)),
                ("typispreferred", bool(ty.preferred)),
                ("typisdefined", bool(true)),
                ("typdelim", letter(ty.delimiter)),
                ("typrelid", oid(0)),
                ("typsubscript", oid(if ty.element == 0 { 0 } else { 6179 })),
                ("typelem", oid(ty.element)),
                ("typarray", oid(ty.array)),
                ("typinput", oid(input)),
                ("typoutput", oid(output)),
                ("typreceive", oid(receive)),
                ("typsend", oid(send)),
                ("typmodin", oid(modin)),
                ("typmodout", oid(modout)),
                ("typanalyze", oid(0)),
                ("typalign", letter(ty.align)),
                ("typstorage", letter(ty.storage)),
                ("typnotnull", bool(false)),
                ("typbasetype", oid(0)),
                ("typtypmod", int(-1)),
                ("typndims", int(0)),
                ("typcollation", oid(ty.collation)),
            ])
        })
        .collect()
}

fn schema_name<'a>(cx: &'a SystemContext<'_>, schema: Oid) -> &'a str {
    cx.catalog().schema_name(cx.database(), schema).unwrap_or("")
}

fn table_list(cx: &SystemContext<'_>) -> Vec<Row> {
    let row = |schema: &str, name: &str, owner: &str, indexed: bool, keys: bool| {
        cx.row(vec![
            ("schemaname", text(schema)),
            ("tablename", text(name)),
            ("tableowner", text(owner)),
            ("hasindexes", Datum::Bool(indexed)),
            ("hasrules", Datum::Bool(false)),
            ("hastriggers", Datum::Bool(keys)),
            ("rowsecurity", Datum::Bool(false)),
        ])
    };
    let owner = cx.catalog().role_name(oids::OWNER);
    let mut rows: Vec<Row> = tables::all()
        .iter()
        .filter(|table| table.kind == 'r')
        .map(|table| row(table.schema, table.name, &owner, false, false))
        .collect();
    let mine = cx.catalog().tables.values();
    for table in mine.filter(|table| table.database == cx.database() && table.view.is_none()) {
        let indexed = table.indexes.iter().any(|index| index.oid != 0);
        let owner = cx.catalog().role_name(table.owner);
        rows.push(row(
            schema_name(cx, table.schema),
            &table.name,
            &owner,
            indexed,
            !table.foreign_keys.is_empty(),
        ));
    }
    rows
}

fn views(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().views.values().filter(|view| view.database == cx.database());
    mine.map(|view| {
        cx.row(vec![
            ("schemaname", text(schema_name(cx, view.schema))),
            ("viewname", text(&view.name)),
            ("viewowner", text(&cx.catalog().role_name(view.owner))),
            ("definition", Datum::text(cx.view.view_definition(view))),
        ])
    })
    .collect()
}

fn materialized_views(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().tables.values().filter(|table| table.database == cx.database());
    mine.filter_map(|table| {
        let view = table.view.as_ref()?;
        Some(cx.row(vec![
            ("schemaname", text(schema_name(cx, table.schema))),
            ("matviewname", text(&table.name)),
            ("matviewowner", text(&cx.catalog().role_name(table.owner))),
            ("hasindexes", bool(table.indexes.iter().any(|index| index.oid != 0))),
            ("ispopulated", bool(view.populated)),
            ("definition", Datum::text(cx.view.materialized_definition(table)?)),
        ]))
    })
    .collect()
}

fn index_list(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in cx.catalog().tables.values().filter(|table| table.database == cx.database()) {
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            rows.push(cx.row(vec![
                ("schemaname", text(schema_name(cx, table.schema))),
                ("tablename", text(&table.name)),
                ("indexname", text(&index.name)),
                ("indexdef", Datum::text(cx.view.index_definition(table, index, 0))),
            ]));
        }
    }
    rows
}

fn sequences(cx: &SystemContext<'_>) -> Vec<Row> {
    let mine = cx.catalog().sequences.values().filter(|sequence| sequence.database == cx.database());
    mine.map(|sequence| {
        cx.row(vec![
            ("seqrelid", oid(sequence.oid)),
            ("seqtypid", oid(sequence.ty.0)),
            ("seqstart", int(sequence.start)),
            ("seqincrement", int(sequence.increment)),
            ("seqmax", int(sequence.max)),
            ("seqmin", int(sequence.min)),
            ("seqcache", int(sequence.cache)),
            ("seqcycle", bool(sequence.cycle)),
        ])
    })
    .collect()
}

/// The comments of a table's constraints.
pub(super) fn constraint_comments(table: &TableDescriptor) -> impl Iterator<Item = (Oid, &str)> {
    let indexes = table.indexes.iter().map(|index| (constraint_oid(index), &index.constraint_comment));
    let checks = table.checks.iter().map(|check| (check.oid, &check.comment));
    let keys = table.foreign_keys.iter().map(|key| (key.oid, &key.comment));
    indexes.chain(checks).chain(keys).filter_map(|(oid, comment)| Some((oid, comment.as_deref()?)))
}

fn descriptions(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut found: Vec<(Oid, Oid, i64, &str)> = Vec::new();
    let catalog = cx.catalog();
    for table in catalog.tables.values().filter(|table| table.database == cx.database()) {
        found.extend(table.comment.as_deref().map(|comment| (table.oid, oids::PG_CLASS, 0, comment)));
        for column in &table.columns {
            let comment = column.comment.as_deref();
            found.extend(comment.map(|comment| (table.oid, oids::PG_CLASS, i64::from(column.id), comment)));
        }
        for index in &table.indexes {
            found.extend(index.comment.as_deref().map(|comment| (index.oid, oids::PG_CLASS, 0, comment)));
        }
        for (object, comment) in constraint_comments(table) {
            found.push((object, oids::PG_CONSTRAINT, 0, comment));
        }
    }
    for view in catalog.views.values().filter(|view| view.database == cx.database()) {
        found.extend(view.comment.as_deref().map(|comment| (view.oid, oids::PG_CLASS, 0, comment)));
    }
    for sequence in catalog.sequences.values().filter(|sequence| sequence.database == cx.database()) {
        found.extend(sequence.comment.as_deref().map(|comment| (sequence.oid, oids::PG_CLASS, 0, comment)));
    }
    for ty in user_types::mine(cx) {
        found.extend(ty.comment.as_deref().map(|comment| (ty.oid, oids::PG_TYPE, 0, comment)));
    }
    for routine in catalog.routines.values().filter(|routine| routine.database == cx.database()) {
        found.extend(routine.comment.as_deref().map(|comment| (routine.oid, oids::PG_PROC, 0, comment)));
    }
    for schema in catalog.schemas.values().filter(|schema| schema.database == cx.database()) {
        found.extend(schema.comment.as_deref().map(|comment| (schema.oid, oids::PG_NAMESPACE, 0, comment)));
    }
    found
        .into_iter()
        .map(|(object, class, column, comment)| {
            cx.row(vec![
                ("objoid", oid(object)),
                ("classoid", oid(class)),
                ("objsubid", int(column)),
                ("description", text(comment)),
            ])
        })
        .collect()
}

fn shared_descriptions(cx: &SystemContext<'_>) -> Vec<Row> {
    let catalog = cx.catalog();
    let databases =
        catalog.databases.values().filter_map(|d| Some((d.oid, oids::PG_DATABASE, d.comment.as_deref()?)));
    let roles = catalog.roles.values().filter_map(|r| Some((r.oid, oids::PG_AUTHID, r.comment.as_deref()?)));
    databases
        .chain(roles)
        .map(|(object, class, comment)| {
            cx.row(vec![("objoid", oid(object)), ("classoid", oid(class)), ("description", text(comment))])
        })
        .collect()
}

/// The sequence that a default draws from. Stored defaults name it with its schema.
fn drawn_from(cx: &SystemContext<'_>, default: &str) -> Option<Oid> {
    let (_, rest) = default.split_once("nextval('")?;
    let mut cursor = Cursor::new(rest.split_once('\'')?.0).ok()?;
    let name = cursor.name().ok()?;
    match cx.view.catalog.find(name.schema.as_deref(), &name.name, &[])? {
        Relation::Sequence(oid) => Some(oid),
        _ => None,
    }
}

fn dependencies(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |from: (Oid, Oid, i64), to: (Oid, Oid, i64), kind: char| {
        rows.push(cx.row(vec![
            ("classid", oid(from.0)),
            ("objid", oid(from.1)),
            ("objsubid", int(from.2)),
            ("refclassid", oid(to.0)),
            ("refobjid", oid(to.1)),
            ("refobjsubid", int(to.2)),
            ("deptype", letter(kind)),
        ]));
    };
    let class = oids::PG_CLASS;
    for table in cx.catalog().tables.values().filter(|table| table.database == cx.database()) {
        add((class, table.oid, 0), (oids::PG_NAMESPACE, table.schema, 0), 'n');
        for index in table.indexes.iter().filter(|index| index.oid != 0) {
            if index.constraint || index.id == PRIMARY_INDEX {
                add((class, index.oid, 0), (oids::PG_CONSTRAINT, index.oid, 0), 'i');
                for (id, _) in &index.columns {
                    add((oids::PG_CONSTRAINT, index.oid, 0), (class, table.oid, i64::from(*id)), 'a');
                }
            } else {
                for (id, _) in index.columns.iter().filter(|(id, _)| *id != EXPRESSION) {
                    add((class, index.oid, 0), (class, table.oid, i64::from(*id)), 'a');
                }
            }
        }
        for column in table.columns.iter().filter(|column| !column.hidden) {
            let default = (oids::PG_ATTRDEF, default_oid(table.oid, column.id), 0);
            if let Some(text) = column.default.as_deref().filter(|_| column.identity.is_none()) {
                add(default, (class, table.oid, i64::from(column.id)), 'a');
                if let Some(sequence) = column.sequence.or_else(|| drawn_from(cx, text)) {
                    add(default, (class, sequence, 0), 'n');
                }
            }
            if column.generated.is_some() {
                add(default, (class, table.oid, i64::from(column.id)), 'i');
            }
            for read in generated_from(table, column) {
                add((class, table.oid, i64::from(column.id)), (class, table.oid, i64::from(read)), 'a');
            }
        }
    }
    for sequence in cx.catalog().sequences.values().filter(|sequence| sequence.database == cx.database()) {
        add((class, sequence.oid, 0), (oids::PG_NAMESPACE, sequence.schema, 0), 'n');
        if let Some((table, column)) = sequence.owned_by {
            let identity = cx
                .catalog()
                .table(table)
                .and_then(|table| table.column(column))
                .is_some_and(|c| c.identity.is_some());
            add(
                (class, sequence.oid, 0),
                (class, table, i64::from(column)),
                if identity { 'i' } else { 'a' },
            );
        }
    }
    let views = cx.catalog().views.values().filter(|view| view.database == cx.database());
    let views = views.map(|view| (view.oid, &view.depends_on));
    let tables = cx.catalog().tables.values().filter(|table| table.database == cx.database());
    let materialized = tables.filter_map(|table| Some((table.oid, &table.view.as_ref()?.depends_on)));
    for (view, depends_on) in views.chain(materialized) {
        for target in depends_on {
            let of = if cx.catalog().types.contains_key(target) { oids::PG_TYPE } else { class };
            add((class, view, 0), (of, *target, 0), 'n');
        }
    }
    user_types::dependencies(cx, &mut add);
    rows
}

fn access_methods(cx: &SystemContext<'_>) -> Vec<Row> {
    [(2, "heap", 3, 't'), (BTREE, "btree", 330, 'i'), (GIN, "gin", 333, 'i')]
        .into_iter()
        .map(|(number, name, handler, kind)| {
            cx.row(vec![
                ("oid", oid(number)),
                ("amname", text(name)),
                ("amhandler", oid(handler)),
                ("amtype", letter(kind)),
            ])
        })
        .collect()
}

fn collations(cx: &SystemContext<'_>) -> Vec<Row> {
    [(100, "default", 'd', None), (950, "C", 'c', Some("C")), (951, "POSIX", 'c', Some("POSIX"))]
        .into_iter()
        .map(|(number, name, provider, locale)| {
            cx.row(vec![
                ("oid", oid(number)),
                ("collname", text(name)),
                ("collnamespace", oid(oids::PG_CATALOG)),
                ("collowner", oid(oids::OWNER)),
                ("collprovider", letter(provider)),
                ("collisdeterministic", bool(true)),
                ("collencoding", int(-1)),
                ("collcollate", optional(locale)),
                ("collctype", optional(locale)),
            ])
        })
        .collect()
}

fn languages(cx: &SystemContext<'_>) -> Vec<Row> {
    [(12, "internal", false), (13, "c", false), (14, "sql", true), (13576, "plpgsql", true)]
        .into_iter()
        .map(|(number, name, trusted)| {
            cx.row(vec![
                ("oid", oid(number)),
                ("lanname", text(name)),
                ("lanowner", oid(oids::OWNER)),
                ("lanispl", bool(name == "plpgsql")),
                ("lanpltrusted", bool(trusted)),
                ("lanplcallfoid", oid(0)),
                ("laninline", oid(0)),
                ("lanvalidator", oid(0)),
            ])
        })
        .collect()
}

fn tablespaces(cx: &SystemContext<'_>) -> Vec<Row> {
    [(1663, "pg_default"), (1664, "pg_global")]
        .into_iter()
        .map(|(number, name)| {
            cx.row(vec![("oid", oid(number)), ("spcname", text(name)), ("spcowner", oid(oids::OWNER))])
        })
        .collect()
}

fn extensions(cx: &SystemContext<'_>) -> Vec<Row> {
    vec![cx.row(vec![
        ("oid", oid(13559)),
        ("extname", text("plpgsql")),
        ("extowner", oid(oids::OWNER)),
        ("extnamespace", oid(oids::PG_CATALOG)),
        ("extrelocatable", bool(false)),
        ("extversion", text("1.0")),
    ])]
}

fn operator_classes(cx: &SystemContext<'_>) -> Vec<Row> {
    let row = |method: Oid, class: &OpClass, key: Oid| {
        cx.row(vec![
            ("oid", oid(class.oid)),
            ("opcmethod", oid(method)),
            ("opcname", text(class.name)),
            ("opcnamespace", oid(oids::PG_CATALOG)),
            ("opcowner", oid(oids::OWNER)),
            ("opcfamily", oid(class.family)),
            ("opcintype", oid(class.input)),
            ("opcdefault", bool(class.default)),
            ("opckeytype", oid(key)),
        ])
    };
    let ordered = opclasses().iter().map(|class| row(BTREE, class, 0));
    let inverted = inverted_opclasses().map(|(class, key)| row(GIN, &class, key));
    ordered.chain(inverted).collect()
}

fn operator_families(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut seen = Vec::new();
    let mut rows = Vec::new();
    let ordered = opclasses().iter().map(|class| (BTREE, *class));
    for (method, class) in ordered.chain(inverted_opclasses().map(|(class, _)| (GIN, class))) {
        if seen.contains(&class.family) {
            continue;
        }
        seen.push(class.family);
        rows.push(cx.row(vec![
            ("oid", oid(class.family)),
            ("opfmethod", oid(method)),
            ("opfname", text(class.family_name)),
            ("opfnamespace", oid(oids::PG_CATALOG)),
            ("opfowner", oid(oids::OWNER)),
        ]));
    }
    rows
}

/// The rows of `pg_get_keywords()`.
pub(super) fn keyword_rows() -> Vec<Row> {
    let category = |code: &str| match code {
        "R" => "reserved",
        "T" => "reserved (can be function or type name)",
        "C" => "unreserved (cannot be function or type name)",
        _ => "unreserved",
    };
    keywords()
        .map(|(word, code, bare)| {
            let label = if bare { "can be bare label" } else { "requires AS" };
            vec![text(word), text(code), Datum::Bool(bare), text(category(code)), text(label)]
        })
        .collect()
}
