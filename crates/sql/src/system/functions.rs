//! The functions that know the catalog or the session.

use super::pg_schema::{constraint_comments, keyword_rows};
use super::{builtin, registry, tables};
use crate::bind::CatalogLookup;
use crate::catalog::routine::RoutineDescriptor;
use crate::catalog::temporary::PG_TEMP;
use crate::catalog::{Relation, oids};
use crate::ddl::tokens::{Cursor, Name, quote_ident};
use crate::session::view::SessionView;
use crate::session::{notify_later, sequences, set_checked};
use sql_types::functions::{CatalogFunctions, EvalContext, RegKind};
use sql_types::{Datum, EnumValue, Oid, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

pub(super) fn parse_name(text: &str) -> SqlResult<Name> {
    let mut cursor = Cursor::new(text)?;
    let name = cursor.name()?;
    cursor.expect_end()?;
    Ok(name)
}

fn text_arg(args: &[Datum], index: usize) -> &str {
    match args.get(index) {
        Some(Datum::Text(text)) => text,
        _ => "",
    }
}

fn oid_arg(args: &[Datum], index: usize) -> Oid {
    match args.get(index) {
        Some(Datum::Oid(oid)) => *oid,
        Some(Datum::Int4(number)) => *number as Oid,
        _ => 0,
    }
}

fn optional(text: Option<String>) -> Datum {
    text.map_or(Datum::Null, Datum::text)
}

impl CatalogFunctions for SessionView {
    fn reg_in(&self, kind: RegKind, name: &str) -> SqlResult<Option<Oid>> {
        let parsed = match parse_name(name.split(['(', '[']).next().unwrap_or(name)) {
            Ok(parsed) => parsed,
            Err(_) if kind == RegKind::Type => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(match kind {
            RegKind::Class => self.find_relation(&parsed),
            RegKind::Namespace => {
                self.snapshot().schema(self.catalog.database, &parsed.name).map(|schema| schema.oid)
            }
            RegKind::Role => self.snapshot().role(&parsed.name).map(|role| role.oid),
            RegKind::Proc | RegKind::Procedure => {
                let found = self.catalog.routines(parsed.schema.as_deref(), &parsed.name, &self.path);
                let types = name.split_once('(').map(|(_, types)| types.trim_end().trim_end_matches(')'));
                let fits = |routine: &&Arc<RoutineDescriptor>| {
                    let wanted = types.filter(|_| kind == RegKind::Procedure);
                    wanted.is_none_or(|wanted| self.has_arguments(routine, wanted))
                };
                let own = found.iter().find(fits).map(|routine| routine.oid);
                own.or_else(|| registry::function_by_name(&parsed.name))
            }
            RegKind::Type => {
                let path = &self.path;
                let schema = parsed.schema.as_deref();
                let found = self.catalog.type_by_name(schema, &parsed.name, path).map(|found| found.ty);
                let array = name.trim_end().ends_with("[]");
                if array { found.and_then(Type::array) } else { found }.map(|ty| ty.0)
            }
        })
    }

    fn reg_out(&self, kind: RegKind, oid: Oid) -> Option<String> {
        match kind {
            RegKind::Class => self.relation_name(oid),
            RegKind::Namespace => self.snapshot().schema_name(self.catalog.database, oid).map(quote_ident),
            RegKind::Role => self.snapshot().roles.get(&oid).map(|role| quote_ident(&role.name)),
            RegKind::Proc | RegKind::Procedure => match oid {
                0 => Some("-".into()),
                _ if self.snapshot().routines.contains_key(&oid) => {
                    self.snapshot().routines.get(&oid).map(|routine| self.routine_shown(routine, kind))
                }
                _ => builtin::type_functions()
                    .get(&oid)
                    .map(|name| (*name).to_string())
                    .or_else(|| registry::function_name(oid).map(str::to_string)),
            },
            RegKind::Type => self.user_type_text(Type(oid)),
        }
    }

    fn type_name(&self, ty: Type) -> Option<String> {
        self.user_type_text(ty)
    }

    fn enum_label(&self, value: EnumValue, out: &mut String) {
        let own = self.snapshot().user_type(value.ty);
        if let Some(label) = own.and_then(|ty| ty.label(value)) {
            return out.push_str(label);
        }
        // A label that was added after the statement began, which a row it reads may hold already.
        let newest = self.shared.engine.cached_catalog();
        match newest.as_ref().and_then(|catalog| catalog.user_type(value.ty)?.label(value)) {
            Some(label) => out.push_str(label),
            None => out.push_str(&value.rank.to_string()),
        }
    }

    fn enum_value(&self, ty: Type, label: &str) -> Option<EnumValue> {
        self.snapshot().user_type(ty)?.value(label)
    }

    fn enum_values(&self, ty: Type) -> Vec<EnumValue> {
        self.snapshot().user_type(ty).map(|ty| ty.values()).unwrap_or_default()
    }

    fn current_setting(&self, name: &str) -> Option<String> {
        self.shared.settings.lock().get(name)
    }

    fn set_config(&self, name: &str, value: Option<&str>, local: bool) -> SqlResult<String> {
        set_checked(self, name, value, local)?;
        Ok(self.current_setting(name).unwrap_or_default())
    }

    fn call(&self, name: &str, args: &[Datum], context: &EvalContext<'_>) -> SqlResult<Datum> {
        if let Some(what) = name.strip_prefix("has_").and_then(|rest| rest.strip_suffix("_privilege")) {
            return self.has_privilege(what, args).map(|answer| answer.map_or(Datum::Null, Datum::Bool));
        }
        if name == "pg_type_is_visible"
            && let Some(ty) = self.snapshot().user_type(Type(oid_arg(args, 0)))
        {
            return Ok(Datum::Bool(self.catalog.type_is_visible(ty, &self.path)));
        }
        if name.ends_with("_is_visible") {
            return Ok(Datum::Bool(name != "pg_table_is_visible" || self.table_is_visible(oid_arg(args, 0))));
        }
        if let Some(found) = self.describing(name, args)? {
            return Ok(found);
        }
        self.session_function(name, args, context)
    }

    fn rows(&self, name: &str, _args: &[Datum], _context: &EvalContext<'_>) -> SqlResult<Vec<Row>> {
        match name {
            "pg_get_keywords" => Ok(keyword_rows()),
            "pg_show_all_settings" => Ok(super::settings_rows::all(self)),
            "pg_listening_channels" => {
                let channels = self.shared.engine.notify.channels(self.shared.session);
                Ok(channels.into_iter().map(|channel| vec![Datum::Text(channel)]).collect())
            }
            "pg_timezone_names" => Ok(super::settings_rows::zones()),
            _ => Ok(Vec::new()),
        }
    }
}

impl SessionView {
    /// A relation by name, computed tables included.
    pub(super) fn find_relation(&self, name: &Name) -> Option<Oid> {
        if let Some(schema) = name.schema.as_deref().filter(|schema| super::is_schema(schema)) {
            return tables::find(schema, &name.name).map(|table| table.oid);
        }
        if name.schema.is_none()
            && let Some(table) = tables::find("pg_catalog", &name.name)
        {
            return Some(table.oid);
        }
        self.catalog.find(name.schema.as_deref(), &name.name, &self.path).map(Relation::oid)
    }

    /// OID, schema, name and owner of a relation.
    pub(crate) fn relation_parts(&self, oid: Oid) -> Option<(Oid, String, Oid)> {
        let snapshot = self.snapshot();
        if let Some(table) = snapshot.table(oid) {
            return Some((table.schema, table.name.clone(), table.owner));
        }
        if let Some(view) = snapshot.views.get(&oid) {
            return Some((view.schema, view.name.clone(), view.owner));
        }
        if let Some(sequence) = snapshot.sequences.get(&oid) {
            return Some((sequence.schema, sequence.name.clone(), sequence.owner));
        }
        let (table, index) = snapshot.index(oid)?;
        Some((table.schema, table.index(index)?.name.clone(), table.owner))
    }

    fn relation_name(&self, oid: Oid) -> Option<String> {
        if let Some((schema, name, _)) = self.relation_parts(oid) {
            return Some(self.relation_text(oid, schema, &name));
        }
        let table = tables::by_oid(oid)?;
        let visible = table.schema == "pg_catalog" || self.path.iter().any(|schema| schema == table.schema);
        Some(if visible { table.name.to_string() } else { table.full_name.to_string() })
    }

    fn table_is_visible(&self, oid: Oid) -> bool {
        match self.relation_parts(oid) {
            Some((schema, name, _)) => self.catalog.is_visible(oid, schema, &name, &self.path),
            None => tables::by_oid(oid).is_some_and(|table| {
                table.schema == "pg_catalog" || self.path.iter().any(|schema| schema == table.schema)
            }),
        }
    }

    /// Functions that describe objects; `None` if it is another.
    fn describing(&self, name: &str, args: &[Datum]) -> SqlResult<Option<Datum>> {
        let snapshot = self.snapshot();
        let first = oid_arg(args, 0);
        Ok(Some(match name {
            "pg_get_indexdef" => optional(snapshot.index(first).and_then(|(table, index)| {
                let column = match args.get(1) {
                    Some(Datum::Int4(column)) => usize::try_from(*column).unwrap_or(0),
                    _ => 0,
                };
                let text = self.index_definition(table, table.index(index)?, column);
                let pretty = matches!(args.get(2), Some(Datum::Bool(true)));
                Some(if pretty { super::pretty::cast_operands(&text) } else { text })
            })),
            "pg_get_constraintdef" => optional(self.constraint_by_oid(first)),
            "pg_get_viewdef" => {
                let oid = match args.first() {
                    Some(Datum::Text(name)) => self.find_relation(&parse_name(name)?).unwrap_or(0),
                    _ => first,
                };
                let materialized = || self.materialized_definition(snapshot.table(oid)?);
                let view = snapshot.views.get(&oid).map(|view| self.view_definition(view));
                optional(view.or_else(materialized))
            }
            "pg_get_expr" => match args {
                [Datum::Text(text), _, Datum::Bool(true)] => Datum::text(super::pretty::outermost(text)),
                _ => args.first().cloned().unwrap_or(Datum::Null),
            },
            "pg_get_userbyid" => Datum::text(snapshot.role_name(first)),
            "pg_get_serial_sequence" => optional(self.serial_sequence(text_arg(args, 0), text_arg(args, 1))?),
            "pg_get_function_arguments" | "pg_get_function_identity_arguments" => {
                let own = snapshot.routines.get(&first);
                let own = own.map(|routine| self.routine_arguments(routine, name.contains("identity")));
                optional(own.or_else(|| registry::function_arguments(first)))
            }
            "pg_get_function_result" => {
                let own = snapshot.routines.get(&first).map(|routine| self.routine_result(routine));
                optional(own.or_else(|| registry::function_result(first)))
            }
            "pg_get_functiondef" => {
                optional(snapshot.routines.get(&first).map(|routine| self.routine_definition(routine)))
            }
            "pg_get_function_arg_default" => {
                let position = match args.get(1) {
                    Some(Datum::Int4(position)) => *position,
                    _ => 0,
                };
                let routine = snapshot.routines.get(&first);
                optional(routine.and_then(|routine| self.routine_default(routine, position)))
            }
            "pg_get_triggerdef" => {
                let pretty = matches!(args.get(1), Some(Datum::Bool(true)));
                let found = self.trigger(first);
                optional(found.map(|(table, trigger)| self.trigger_definition(table, trigger, pretty)))
            }
            "pg_get_function_sqlbody"
            | "pg_get_ruledef"
            | "pg_get_partkeydef"
            | "pg_get_partition_constraintdef"
            | "pg_get_statisticsobjdef"
            | "pg_get_statisticsobjdef_columns"
            | "pg_get_replica_identity_index"
            | "pg_partition_root"
            | "pg_relation_filepath" => Datum::Null,
            "pg_tablespace_location" => Datum::text(""),
            "obj_description" => optional(self.comment(first, text_arg(args, 1))),
            "shobj_description" => optional(self.shared_comment(first, text_arg(args, 1))),
            "col_description" => {
                let number = match args.get(1) {
                    Some(Datum::Int4(number)) => *number as u32,
                    _ => 0,
                };
                optional(snapshot.table(first).and_then(|table| table.column(number)?.comment.clone()))
            }
            "pg_relation_filenode" => Datum::Oid(first),
            "pg_describe_object" => {
                optional(self.relation_parts(oid_arg(args, 1)).map(|(_, name, _)| format!("relation {name}")))
            }
            "pg_index_column_has_property" => {
                let found = snapshot.index(first).and_then(|(table, index)| {
                    let column = match args.get(1) {
                        Some(Datum::Int4(column)) => usize::try_from(*column - 1).ok()?,
                        _ => return None,
                    };
                    let index = table.index(index)?;
                    let (_, descending) = index.columns.get(column)?;
                    if index.inverted.is_some() {
                        return Some(false);
                    }
                    Some(match text_arg(args, 2).to_ascii_lowercase().as_str() {
                        "asc" | "nulls_last" => !descending,
                        "desc" | "nulls_first" => *descending,
                        "orderable" | "returnable" | "search_array" | "search_nulls" => true,
                        _ => false,
                    })
                });
                found.map_or(Datum::Null, Datum::Bool)
            }
            "pg_index_has_property" | "pg_indexam_has_property" => {
                let property = text_arg(args, 1).to_ascii_lowercase();
                let of_index = snapshot.index(first).and_then(|(table, index)| table.index(index));
                let inverted =
                    first == builtin::GIN || of_index.is_some_and(|index| index.inverted.is_some());
                Datum::Bool(match property.as_str() {
                    "bitmap_scan" | "can_multi_col" if inverted => true,
                    _ if inverted => false,
                    "index_scan" | "backward_scan" | "can_order" | "can_unique" | "can_multi_col" => true,
                    _ => false,
                })
            }
            "pg_column_is_updatable" => Datum::Bool(snapshot.table(first).is_some()),
            "pg_relation_is_updatable" => Datum::Int4(if snapshot.table(first).is_some() { 28 } else { 0 }),
            // Of functions alone, whose privileges everybody has who does not lose them.
            "acldefault" => match (text_arg(args, 0), args.get(1)) {
                ("f", Some(Datum::Oid(owner))) => {
                    let owner = snapshot.role_name(*owner);
                    let items = [format!("=X/{owner}"), format!("{owner}=X/{owner}")];
                    Datum::array(Type::ACLITEM, items.map(Datum::text).to_vec())
                }
                _ => Datum::array(Type::ACLITEM, Vec::new()),
            },
            _ => return Ok(None),
        }))
    }

    fn serial_sequence(&self, table: &str, column: &str) -> SqlResult<Option<String>> {
        let name = parse_name(table)?;
        let found = self.catalog.find(name.schema.as_deref(), &name.name, &self.path);
        let Some(Relation::Table(oid)) = found else {
            let message = format!("relation \"{}\" does not exist", name.written());
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        };
        let Some(table) = self.snapshot().table(oid) else { return Ok(None) };
        let Some(column) = table.columns.iter().find(|known| known.name == column) else {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        };
        let owned =
            self.snapshot().sequences.values().find(|sequence| sequence.owned_by == Some((oid, column.id)));
        Ok(owned.map(|sequence| self.qualified_text(sequence.schema, &sequence.name)))
    }

    fn comment(&self, object: Oid, class: &str) -> Option<String> {
        let snapshot = self.snapshot();
        match class {
            "pg_namespace" => snapshot
                .schemas
                .get(&(self.catalog.database, object))
                .and_then(|schema| schema.comment.clone()),
            "pg_proc" => snapshot.routines.get(&object).and_then(|routine| routine.comment.clone()),
            "pg_type" => snapshot.types.get(&object).and_then(|ty| ty.comment.clone()),
            "pg_class" | "" => None
                .or_else(|| snapshot.table(object)?.comment.clone())
                .or_else(|| snapshot.views.get(&object)?.comment.clone())
                .or_else(|| snapshot.sequences.get(&object)?.comment.clone())
                .or_else(|| {
                    let mut indexes = snapshot.tables.values().flat_map(|table| &table.indexes);
                    indexes.find(|index| index.oid == object)?.comment.clone()
                }),
            "pg_constraint" => {
                let mut comments = snapshot.tables.values().flat_map(|table| constraint_comments(table));
                comments.find(|(oid, _)| *oid == object).map(|(_, comment)| comment.to_string())
            }
            _ => None,
        }
    }

    fn shared_comment(&self, object: Oid, class: &str) -> Option<String> {
        let snapshot = self.snapshot();
        match class {
            "pg_database" => snapshot.databases.get(&object).and_then(|database| database.comment.clone()),
            "pg_authid" => snapshot.roles.get(&object).and_then(|role| role.comment.clone()),
            _ => None,
        }
    }

    /// `has_…_privilege` and `pg_has_role`: `([role,] object, [column,] privilege)`.
    fn has_privilege(&self, what: &str, args: &[Datum]) -> SqlResult<Option<bool>> {
        let objects = if what == "column" { 3 } else { 2 };
        let (role, rest) = match args.len() > objects {
            true => (self.role_arg(&args[0])?, &args[1..]),
            false => (self.user, args),
        };
        let snapshot = self.snapshot();
        let letters = privilege_letters(text_arg(rest, rest.len().saturating_sub(1)));
        let allowed = |owner: Oid, object: Oid| {
            letters.chars().any(|letter| snapshot.has_privilege(role, owner, object, letter))
        };
        let undefined = |kind: &str, name: &str, code| {
            Err(SqlError::new(code, format!("{kind} \"{name}\" does not exist")))
        };
        match what {
            "table" | "sequence" | "column" | "any_column" => {
                let oid = match rest.first() {
                    Some(Datum::Text(name)) => match self.find_relation(&parse_name(name)?) {
                        Some(oid) => oid,
                        None => return undefined("relation", name, SqlState::UNDEFINED_TABLE),
                    },
                    _ => oid_arg(rest, 0),
                };
                Ok(match self.relation_parts(oid) {
                    Some((_, _, owner)) => Some(allowed(owner, oid)),
                    None => tables::by_oid(oid).map(|_| letters.contains('r') || snapshot.is_superuser(role)),
                })
            }
            "schema" => {
                let database = self.catalog.database;
                let schema = match rest.first() {
                    Some(Datum::Text(name)) => match snapshot.schema(database, name) {
                        Some(schema) => Some(schema),
                        None => return undefined("schema", name, SqlState::INVALID_SCHEMA),
                    },
                    _ => snapshot.schemas.get(&(database, oid_arg(rest, 0))),
                };
                Ok(schema.map(|schema| {
                    let everybody = schema.oid <= oids::DORMOUSE_INTERNAL && letters.contains('U');
                    everybody || allowed(schema.owner, schema.oid)
                }))
            }
            "database" => {
                let database = match rest.first() {
                    Some(Datum::Text(name)) => match snapshot.database(name) {
                        Some(database) => Some(database),
                        None => return undefined("database", name, SqlState::INVALID_CATALOG),
                    },
                    _ => snapshot.databases.get(&oid_arg(rest, 0)),
                };
                let everybody = letters.contains(['c', 'T']);
                Ok(database.map(|database| everybody || allowed(database.owner, database.oid)))
            }
            "function" => {
                let oid = match rest.first() {
                    Some(Datum::Text(name)) => match self.reg_in(RegKind::Procedure, name)? {
                        Some(oid) => oid,
                        None => return undefined("function", name, SqlState::UNDEFINED_FUNCTION),
                    },
                    _ => oid_arg(rest, 0),
                };
                Ok(Some(snapshot.routines.get(&oid).is_none_or(|own| snapshot.may_execute(role, own))))
            }
            _ => Ok(Some(true)),
        }
    }

    fn role_arg(&self, arg: &Datum) -> SqlResult<Oid> {
        match arg {
            Datum::Oid(oid) => Ok(*oid),
            Datum::Text(name) if &**name == "public" => Ok(0),
            Datum::Text(name) => self.snapshot().role(name).map(|role| role.oid).ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
            }),
            _ => Ok(self.user),
        }
    }

    /// Functions about the session and the server.
    fn session_function(&self, name: &str, args: &[Datum], context: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(match name {
            "pg_has_role" => {
                let (member, group) = match args {
                    [group, _] => (self.user, self.role_arg(group)?),
                    [member, group, ..] => (self.role_arg(member)?, self.role_arg(group)?),
                    _ => return Ok(Datum::Null),
                };
                Datum::Bool(self.snapshot().is_superuser(member) || self.snapshot().is_member(member, group))
            }
            "currval" => {
                let sequence = sequences::find(self, oid_arg(args, 0))?;
                Datum::Int8(self.shared.sequences.lock().current_value(sequence)?)
            }
            "lastval" => Datum::Int8(self.shared.sequences.lock().last_value()?),
            "pg_sequence_last_value" => {
                let sequence = sequences::find(self, oid_arg(args, 0))?;
                let known = self.shared.engine.sequence_values.lock().get(&sequence.storage).copied();
                known.map_or(Datum::Null, Datum::Int8)
            }
            "pg_notify" => {
                let (channel, payload) = (text_arg(args, 0), text_arg(args, 1));
                notify_later(&self.shared, channel, payload)?;
                Datum::text("")
            }
            "pg_cancel_backend" | "pg_terminate_backend" => {
                let Some(Datum::Int4(pid)) = args.first() else { return Ok(Datum::Null) };
                let Some(target) = self.shared.engine.sessions.by_process(*pid) else {
                    self.shared.notice(crate::session::Notice::warning(
                        SqlState::WARNING,
                        format!("PID {pid} is not a PostgreSQL backend process"),
                    ));
                    return Ok(Datum::Bool(false));
                };
                if !self.is_superuser() && target.user != self.user {
                    return Err(SqlError::new(
                        SqlState::INSUFFICIENT_PRIVILEGE,
                        "must be a member of the role whose query is being canceled",
                    ));
                }
                if name == "pg_cancel_backend" {
                    target.cancel.cancel()
                } else {
                    target.cancel.shut_down()
                }
                Datum::Bool(true)
            }
            "pg_relation_size" | "pg_total_relation_size" | "pg_table_size" | "pg_indexes_size" => {
                let table = self.snapshot().table(oid_arg(args, 0));
                let statistics = table.and_then(|table| table.statistics.get());
                Datum::Int8(statistics.map_or(0, |statistics| statistics.bytes as i64))
            }
            "pg_database_size" | "pg_tablespace_size" => {
                let mine =
                    self.snapshot().tables.values().filter(|table| table.database == self.catalog.database);
                let bytes =
                    mine.filter_map(|table| table.statistics.get()).map(|statistics| statistics.bytes as i64);
                Datum::Int8(bytes.sum())
            }
            "pg_relation_is_publishable" => Datum::Bool(true),
            "pg_is_other_temp_schema" | "pg_reload_conf" | "pg_rotate_logfile" => Datum::Bool(false),
            "row_security_active" => Datum::Bool(self.hides_rows(args.first())),
            "txid_current" => Datum::Int8(context.transaction_micros),
            "pg_postmaster_start_time" | "pg_conf_load_time" => {
                Datum::Timestamptz(self.shared.engine.started)
            }
            "inet_client_addr" => match &self.shared.activity.client_address {
                Some(address) => {
                    Datum::text(address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host))
                }
                None => Datum::Null,
            },
            "pg_my_temp_schema" => {
                let own = self.snapshot().schema(self.shared.database, PG_TEMP);
                Datum::Oid(own.map_or(0, |schema| schema.oid))
            }
            "pg_safe_snapshot_blocking_pids" => Datum::array(Type::INT4, Vec::new()),
            "pg_stat_get_db_numbackends" => {
                Datum::Int4(self.shared.engine.sessions.count_database(oid_arg(args, 0)) as i32)
            }
            "pg_stat_get_live_tuples" => {
                let table = self.snapshot().table(oid_arg(args, 0));
                let rows = table.and_then(|table| table.statistics.rows());
                Datum::Int8(rows.unwrap_or(0.0) as i64)
            }
            name if name.starts_with("pg_stat_get_last_") => Datum::Null,
            name if name.starts_with("pg_stat_get_") => Datum::Int8(0),
            "pg_stat_statements_reset" => {
                if !self.is_superuser() {
                    return Err(crate::session::privileges::denied("function", "pg_stat_statements_reset"));
                }
                let query_id = match args.get(2) {
                    Some(Datum::Int8(query_id)) => *query_id,
                    _ => 0,
                };
                self.shared.engine.statement_statistics.reset(oid_arg(args, 0), oid_arg(args, 1), query_id);
                Datum::text("")
            }
            "pg_stat_clear_snapshot" | "pg_stat_reset" => Datum::text(""),
            "pg_is_in_recovery" => Datum::Bool(false),
            "txid_current_if_assigned"
            | "pg_current_xact_id_if_assigned"
            | "inet_server_addr"
            | "inet_server_port"
            | "inet_client_port"
            | "pg_last_wal_receive_lsn"
            | "pg_last_wal_replay_lsn" => Datum::Null,
            other => return Err(SqlError::unsupported(format_args!("function {other}"))),
        })
    }
}

/// The letters of the privileges in a list such as `SELECT, INSERT WITH GRANT OPTION`.
fn privilege_letters(text: &str) -> String {
    let words = text.split(',').map(|word| word.trim().to_ascii_lowercase());
    let letter = |word: String| match word.split(' ').next().unwrap_or_default() {
        "select" => 'r',
        "insert" => 'a',
        "update" => 'w',
        "delete" => 'd',
        "truncate" => 'D',
        "references" => 'x',
        "trigger" => 't',
        "usage" => 'U',
        "create" => 'C',
        "connect" => 'c',
        "temporary" | "temp" => 'T',
        _ => '?',
    };
    words.map(letter).collect()
}
