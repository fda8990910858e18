//! The user's functions and triggers in catalogs, and as SQL.

use super::deparse::format_type;
use super::row::{SystemContext, bool, int, letter, oid, oidvector, optional, text};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::{Declared, RoutineDescriptor, RoutineOutput, TriggerDescriptor};
use crate::ddl::tokens::{quote_ident, quote_literal};
use crate::session::view::SessionView;
use sql_types::functions::RegKind;
use sql_types::{ColumnType, Datum, Row, Type};
use std::fmt::Write;
use std::sync::Arc;

/// Of `pg_trigger.tgtype`.
mod bit {
    pub(super) const ROW: i64 = 1;
    pub(super) const BEFORE: i64 = 2;
    pub(super) const INSERT: i64 = 4;
    pub(super) const DELETE: i64 = 8;
    pub(super) const UPDATE: i64 = 16;
}

impl SessionView {
    fn type_text(&self, ty: Type) -> String {
        self.user_type_text(ty).unwrap_or_else(|| format_type(ColumnType::plain(ty)))
    }

    /// The arguments of a function as they are declared; `identity`: without their defaults.
    pub(super) fn routine_arguments(&self, routine: &RoutineDescriptor, identity: bool) -> String {
        let one = |declared: &Declared<'_>| {
            let mut out = String::new();
            match declared.mode {
                'o' => out.push_str("OUT "),
                'b' => out.push_str("INOUT "),
                _ => {}
            }
            if let Some(name) = declared.name {
                let _ = write!(out, "{} ", quote_ident(name));
            }
            out.push_str(&self.type_text(declared.ty));
            let argument = declared.input.and_then(|at| routine.arguments.get(at));
            let default = argument.and_then(|argument| argument.default.as_deref());
            if let Some(default) = default.filter(|_| !identity) {
                let _ = write!(out, " DEFAULT {}", self.named_types(default));
            }
            out
        };
        let declared = routine.declared();
        declared.iter().filter(|declared| declared.mode != 't').map(one).collect::<Vec<_>>().join(", ")
    }

    /// Whether the arguments of a function have these types, given by name.
    pub(super) fn has_arguments(&self, routine: &RoutineDescriptor, types: &str) -> bool {
        let wanted = types.split(',').map(str::trim).filter(|ty| !ty.is_empty());
        let wanted = wanted.map(|ty| crate::parse::parse_type(ty).ok());
        let context = sql_types::functions::EvalContext::plain();
        let context = self.bind_context(&context, &[]);
        let types = wanted.map(|ty| crate::bind::declared_type(&ty?, &context).ok().map(|ty| ty.ty));
        types.eq(routine.argument_types().map(Some))
    }

    /// A function as regproc and regprocedure show it.
    pub(super) fn routine_shown(&self, routine: &RoutineDescriptor, kind: RegKind) -> String {
        let name = match self.routine_is_visible(routine) {
            true => quote_ident(&routine.name),
            false => self.qualified_text(routine.schema, &routine.name),
        };
        if kind != RegKind::Procedure {
            return name;
        }
        let types: Vec<String> = routine.argument_types().map(|ty| self.type_text(ty)).collect();
        format!("{name}({})", types.join(","))
    }

    /// The type of a function's value.
    pub(super) fn routine_result(&self, routine: &RoutineDescriptor) -> String {
        if routine.outputs.iter().any(|output| output.mode == 't') {
            let column = |output: &RoutineOutput| {
                let name = quote_ident(output.name.as_deref().unwrap_or_default());
                format!("{name} {}", self.type_text(output.ty))
            };
            let columns: Vec<String> = routine.outputs.iter().map(column).collect();
            return format!("TABLE({})", columns.join(", "));
        }
        let set = if routine.set { "SETOF " } else { "" };
        format!("{set}{}", self.type_text(routine.returns))
    }

    /// The default of the argument at a position from 1.
    pub(super) fn routine_default(&self, routine: &RoutineDescriptor, position: i32) -> Option<String> {
        let position = usize::try_from(position).ok()?.checked_sub(1)?;
        routine.arguments.get(position)?.default.as_deref().map(|text| self.named_types(text))
    }

    /// `pg_get_functiondef`
    pub(super) fn routine_definition(&self, routine: &RoutineDescriptor) -> String {
        let mut out = format!(
            "CREATE OR REPLACE FUNCTION {}({})\n RETURNS {}\n LANGUAGE {}\n",
            self.qualified_text(routine.schema, &routine.name),
            self.routine_arguments(routine, false),
            self.routine_result(routine),
            routine.language.name(),
        );
        let mut options = Vec::new();
        match routine.volatility {
            'i' => options.push("IMMUTABLE".to_string()),
            's' => options.push("STABLE".to_string()),
            _ => {}
        }
        match routine.parallel {
            's' => options.push("PARALLEL SAFE".to_string()),
            'r' => options.push("PARALLEL RESTRICTED".to_string()),
            _ => {}
        }
        if routine.strict {
            options.push("STRICT".to_string());
        }
        if routine.definer {
            options.push("SECURITY DEFINER".to_string());
        }
        if let Some(cost) = routine.cost.filter(|cost| *cost != 100) {
            options.push(format!("COST {cost}"));
        }
        if !options.is_empty() {
            let _ = writeln!(out, " {}", options.join(" "));
        }
        if let Some(path) = &routine.search_path {
            let names: Vec<String> = path.iter().map(|name| quote_literal(name)).collect();
            let names = if names.is_empty() { "''".to_string() } else { names.join(", ") };
            let _ = writeln!(out, " SET search_path TO {names}");
        }
        let mut tag = "$function$".to_string();
        while routine.body.contains(&tag) {
            tag.insert(tag.len() - 1, 'x');
        }
        let _ = writeln!(out, "AS {tag}{}{tag}", routine.body);
        out
    }

    /// `pg_get_triggerdef`
    pub(super) fn trigger_definition(
        &self,
        table: &TableDescriptor,
        trigger: &TriggerDescriptor,
        pretty: bool,
    ) -> String {
        let relation = match pretty && self.relation_is_visible(table) {
            true => quote_ident(&table.name),
            false => self.qualified_text(table.schema, &table.name),
        };
        let mut out = format!(
            "CREATE TRIGGER {} {} {} ON {relation} FOR EACH {} ",
            quote_ident(&trigger.name),
            if trigger.before { "BEFORE" } else { "AFTER" },
            events(table, trigger).join(" OR "),
            if trigger.for_row { "ROW" } else { "STATEMENT" },
        );
        if let Some(when) = &trigger.when {
            let _ = write!(out, "WHEN (({})) ", self.named_types(when));
        }
        let name = match self.snapshot().routines.get(&trigger.routine) {
            Some(routine) if self.routine_is_visible(routine) => quote_ident(&routine.name),
            Some(routine) => self.qualified_text(routine.schema, &routine.name),
            None => String::new(),
        };
        let arguments: Vec<String> = trigger.arguments.iter().map(|text| quote_literal(text)).collect();
        let _ = write!(out, "EXECUTE FUNCTION {name}({})", arguments.join(", "));
        out
    }

    fn relation_is_visible(&self, table: &TableDescriptor) -> bool {
        self.catalog.is_visible(table.oid, table.schema, &table.name, &self.path)
    }

    /// Whether a function is found by its bare name.
    pub(super) fn routine_is_visible(&self, routine: &RoutineDescriptor) -> bool {
        use crate::bind::CatalogLookup;
        let found = self.catalog.routines(None, &routine.name, &self.path);
        found.iter().any(|found| found.oid == routine.oid)
    }

    /// A trigger by its OID.
    pub(super) fn trigger(&self, oid: u32) -> Option<(&Arc<TableDescriptor>, &TriggerDescriptor)> {
        let mut tables = self.snapshot().tables.values();
        tables.find_map(|table| {
            let trigger = table.triggers.iter().find(|trigger| trigger.oid == oid)?;
            Some((table, trigger))
        })
    }
}

/// The events of a trigger as they are written.
fn events(table: &TableDescriptor, trigger: &TriggerDescriptor) -> Vec<String> {
    let mut events = Vec::new();
    if trigger.insert {
        events.push("INSERT".to_string());
    }
    if trigger.delete {
        events.push("DELETE".to_string());
    }
    if trigger.update {
        let columns = trigger.columns.iter().filter_map(|id| table.column(*id));
        let columns: Vec<String> = columns.map(|column| quote_ident(&column.name)).collect();
        events.push(match columns.is_empty() {
            true => "UPDATE".to_string(),
            false => format!("UPDATE OF {}", columns.join(", ")),
        });
    }
    events
}

/// The rows of `pg_proc` for the user's functions.
pub(super) fn procs(cx: &SystemContext<'_>) -> Vec<Row> {
    let database = cx.database();
    let ours = cx.catalog().routines.values().filter(|routine| routine.database == database);
    let row = |routine: &Arc<RoutineDescriptor>| {
        let declared = routine.declared();
        let names = declared.iter().map(|argument| Datum::text(argument.name.unwrap_or_default()));
        let named = declared.iter().any(|argument| argument.name.is_some());
        let of_outputs = |ty: Type, value: &dyn Fn(&Declared<'_>) -> Datum| match routine.outputs.is_empty() {
            true => Datum::Null,
            false => Datum::array(ty, declared.iter().map(value).collect()),
        };
        let defaults: Vec<&str> =
            routine.arguments.iter().filter_map(|argument| argument.default.as_deref()).collect();
        let defaults = (!defaults.is_empty()).then(|| defaults.join(", "));
        cx.row(vec![
            ("oid", oid(routine.oid)),
            ("proname", text(&routine.name)),
            ("pronamespace", oid(routine.schema)),
            ("proowner", oid(routine.owner)),
            ("prolang", oid(routine.language.oid())),
            ("procost", int(i64::from(routine.cost.unwrap_or(100)))),
            ("prorows", int(if routine.set { 1000 } else { 0 })),
            ("provariadic", oid(0)),
            ("prosupport", oid(0)),
            ("prokind", letter('f')),
            ("prosecdef", bool(routine.definer)),
            ("proleakproof", bool(false)),
            ("proisstrict", bool(routine.strict)),
            ("proretset", bool(routine.set)),
            ("provolatile", letter(routine.volatility)),
            ("proparallel", letter(routine.parallel)),
            ("pronargs", int(routine.arguments.len() as i64)),
            ("pronargdefaults", int(routine.defaults() as i64)),
            ("prorettype", oid(routine.returns.0)),
            ("proargtypes", oidvector(routine.argument_types().map(|ty| ty.0))),
            ("proallargtypes", of_outputs(Type::OID, &|argument| Datum::Oid(argument.ty.0))),
            ("proargmodes", of_outputs(Type::CHAR, &|argument| letter(argument.mode))),
            ("proargnames", if named { Datum::array(Type::TEXT, names.collect()) } else { Datum::Null }),
            ("proargdefaults", optional(defaults.as_deref())),
            ("prosrc", text(&routine.body)),
            ("proconfig", config(routine)),
            ("proacl", super::pg_schema::acl(cx, routine.oid, routine.owner)),
        ])
    };
    ours.map(row).collect()
}

/// `proconfig`
fn config(routine: &RoutineDescriptor) -> Datum {
    let Some(path) = &routine.search_path else { return Datum::Null };
    let names: Vec<String> = match path.as_slice() {
        [] => vec!["\"\"".to_string()],
        names => names.iter().map(|name| quote_ident(name)).collect(),
    };
    Datum::array(Type::TEXT, vec![Datum::text(format!("search_path={}", names.join(", ")))])
}

/// The rows of `pg_trigger` and `information_schema.triggers`; `None` if it is another table.
pub(super) fn rows(cx: &SystemContext<'_>) -> Option<Vec<Row>> {
    let database = cx.database();
    let tables = cx.catalog().tables.values().filter(|table| table.database == database);
    let all = tables.flat_map(|table| table.triggers.iter().map(move |trigger| (table, trigger)));
    Some(match (cx.table.schema, cx.table.name) {
        ("pg_catalog", "pg_trigger") => all.map(|(table, trigger)| pg_trigger(cx, table, trigger)).collect(),
        ("information_schema", "triggers") => {
            all.flat_map(|(table, trigger)| information(cx, table, trigger)).collect()
        }
        _ => return None,
    })
}

fn pg_trigger(cx: &SystemContext<'_>, table: &TableDescriptor, trigger: &TriggerDescriptor) -> Row {
    let flags = [
        (trigger.for_row, bit::ROW),
        (trigger.before, bit::BEFORE),
        (trigger.insert, bit::INSERT),
        (trigger.delete, bit::DELETE),
        (trigger.update, bit::UPDATE),
    ];
    let kind = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum();
    let mut arguments = Vec::new();
    for argument in &trigger.arguments {
        arguments.extend_from_slice(argument.as_bytes());
        arguments.push(0);
    }
    cx.row(vec![
        ("oid", oid(trigger.oid)),
        ("tgrelid", oid(table.oid)),
        ("tgparentid", oid(0)),
        ("tgname", text(&trigger.name)),
        ("tgfoid", oid(trigger.routine)),
        ("tgtype", int(kind)),
        ("tgenabled", letter(if trigger.disabled { 'D' } else { 'O' })),
        ("tgisinternal", bool(false)),
        ("tgconstrrelid", oid(0)),
        ("tgconstrindid", oid(0)),
        ("tgconstraint", oid(0)),
        ("tgdeferrable", bool(false)),
        ("tginitdeferred", bool(false)),
        ("tgnargs", int(trigger.arguments.len() as i64)),
        ("tgattr", super::row::int2vector(trigger.columns.iter().map(|id| *id as i16))),
        ("tgargs", Datum::Bytea(arguments.into())),
        ("tgqual", optional(trigger.when.as_deref())),
    ])
}

fn information(cx: &SystemContext<'_>, table: &TableDescriptor, trigger: &TriggerDescriptor) -> Vec<Row> {
    let schema = cx.catalog().schema_name(table.database, table.schema).unwrap_or_default();
    let definition = cx.view.trigger_definition(table, trigger, false);
    let statement =
        definition.find("EXECUTE FUNCTION").and_then(|at| definition.get(at..)).unwrap_or_default();
    let events = [(trigger.insert, "INSERT"), (trigger.delete, "DELETE"), (trigger.update, "UPDATE")];
    let like = |other: &&TriggerDescriptor, event: &str| {
        other.before == trigger.before
            && other.for_row == trigger.for_row
            && match event {
                "INSERT" => other.insert,
                "DELETE" => other.delete,
                _ => other.update,
            }
    };
    let row = |event: &'static str| {
        let before = table.triggers.iter().filter(|other| like(other, event));
        let order = 1 + before.take_while(|other| other.name < trigger.name).count();
        cx.row(vec![
            ("trigger_catalog", text(&cx.view.shared.database_name)),
            ("trigger_schema", text(schema)),
            ("trigger_name", text(&trigger.name)),
            ("event_manipulation", text(event)),
            ("event_object_catalog", text(&cx.view.shared.database_name)),
            ("event_object_schema", text(schema)),
            ("event_object_table", text(&table.name)),
            ("action_order", int(order as i64)),
            ("action_condition", optional(trigger.when.as_ref().map(|when| format!("({when})")).as_deref())),
            ("action_statement", text(statement)),
            ("action_orientation", text(if trigger.for_row { "ROW" } else { "STATEMENT" })),
            ("action_timing", text(if trigger.before { "BEFORE" } else { "AFTER" })),
        ])
    };
    events.into_iter().filter(|(set, _)| *set).map(|(_, event)| row(event)).collect()
}
