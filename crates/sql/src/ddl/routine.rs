//! CREATE FUNCTION, and finding functions.

use super::DdlContext;
use super::statement::{CreateRoutine, ReturnType, RoutineName};
use super::tokens::quote_ident;
use crate::bind;
use crate::catalog::routine::{Language, MOST_ARGUMENTS, RoutineArgument, RoutineDescriptor, RoutineOutput};
use crate::routine::nested::{argument_variables, mismatch};
use crate::routine::{Compiled, compile};
use sql_types::cast::{CastKind, cast_kind};
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::DataType;
use std::sync::Arc;

/// `42P13`
fn invalid_definition(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState("42P13"), message)
}

impl DdlContext<'_> {
    /// A type of an argument or value.
    fn routine_type(&self, ty: &DataType) -> SqlResult<Type> {
        let eval = self.view.eval(self.times);
        let found = match bind::declared_type(ty, &self.view.bind_context(&eval, &[])) {
            Ok(found) => found.ty,
            Err(error) => {
                let name = ty.to_string();
                let named = super::tokens::Name { schema: None, name, position: None };
                if self.find(&named).is_some() {
                    return Err(SqlError::unsupported("a function over rows of a table"));
                }
                return Err(error);
            }
        };
        if found.is_domain() {
            return Err(SqlError::unsupported("a function over a domain"));
        }
        if found.info().is_some_and(|info| info.category == 'P') {
            return Err(SqlError::unsupported(format!("a function over pseudo-type {found}")));
        }
        Ok(found)
    }

    /// A function as messages show it.
    pub(super) fn shown_routine(&self, routine: &RoutineDescriptor) -> String {
        let types: Vec<String> = routine.argument_types().map(|ty| self.shown_type(ty)).collect();
        format!("{}({})", quote_ident(&routine.name), types.join(","))
    }

    fn shown_type(&self, ty: Type) -> String {
        self.view.user_type_text(ty).unwrap_or_else(|| ty.to_string())
    }

    /// The functions of a name, in the schema given or along the path.
    fn routines_of(&self, name: &super::tokens::Name) -> Vec<Arc<RoutineDescriptor>> {
        let within = |schema: &str| {
            let schema = self.catalog.schema(self.database(), schema).map(|schema| schema.oid);
            let found = schema.map(|schema| self.catalog.routines_named(self.database(), schema, &name.name));
            found.unwrap_or_default().into_iter().cloned().collect::<Vec<_>>()
        };
        match &name.schema {
            Some(schema) => within(schema),
            None => self.view.path.iter().flat_map(|schema| within(schema)).collect(),
        }
    }

    /// A function by name and argument types.
    ///
    /// # Errors
    /// 42883 if there is none, 42725 if there are several and the types are not given.
    pub(super) fn find_routine(&self, name: &RoutineName) -> SqlResult<Arc<RoutineDescriptor>> {
        let found = self.routines_of(&name.name);
        let Some(arguments) = &name.arguments else {
            return match found.as_slice() {
                [only] => Ok(only.clone()),
                [] => {
                    let message = format!("could not find a function named \"{}\"", name.name.name);
                    Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message))
                }
                _ => {
                    let message = format!("function name \"{}\" is not unique", name.name.name);
                    Err(SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message)
                        .with_hint("Specify the argument list to select the function unambiguously."))
                }
            };
        };
        let types = arguments.iter().map(|ty| self.routine_type(ty)).collect::<SqlResult<Vec<_>>>()?;
        let same = |routine: &&Arc<RoutineDescriptor>| routine.argument_types().eq(types.iter().copied());
        found.iter().find(same).cloned().ok_or_else(|| {
            let types: Vec<String> = types.iter().map(|ty| self.shown_type(*ty)).collect();
            let message = format!("function {}({}) does not exist", name.name.written(), types.join(", "));
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        })
    }

    pub(super) fn own_routine(&self, name: &RoutineName) -> SqlResult<Arc<RoutineDescriptor>> {
        let found = self.find_routine(name)?;
        self.check_owner("function", &found.name, found.owner)?;
        Ok(found)
    }

    pub(super) fn check_routine_free(
        &self,
        schema: Oid,
        name: &str,
        types: &[Type],
        but: Oid,
    ) -> SqlResult<()> {
        let known = self.catalog.routines_named(self.database(), schema, name);
        if known.iter().any(|known| known.oid != but && known.argument_types().eq(types.iter().copied())) {
            let message = format!("function \"{name}\" already exists with same argument types");
            return Err(SqlError::new(SqlState("42723"), message));
        }
        Ok(())
    }

    /// Fails if the body cannot be what is declared, as far as that shows before it runs.
    fn check_body(&self, routine: &RoutineDescriptor) -> SqlResult<()> {
        let Compiled::Sql(statements) = compile(routine.language, &routine.body)? else { return Ok(()) };
        let last = statements.len().saturating_sub(1);
        if statements.is_empty() && routine.returns != Type::VOID {
            return Err(mismatch(
                routine,
                "Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING.",
            ));
        }
        let view = self.working_view()?;
        let view = view.within(routine)?.unwrap_or(view);
        let eval = view.eval(self.times);
        let variables = argument_variables(routine);
        let context =
            bind::BindContext { variables: Some(&variables), ..view.bind_context(&eval, &variables.types) };
        for (position, statement) in statements.iter().enumerate() {
            if !statement.kind.is_planned() {
                return Err(crate::routine::nested::not_here(statement));
            }
            let bound = bind::bind_statement(statement, &context)
                .map_err(crate::routine::statements::without_position)?;
            if position != last || routine.returns == Type::VOID {
                continue;
            }
            let Some(columns) = bound.columns else {
                let detail = "Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING.";
                return Err(mismatch(routine, detail));
            };
            let wanted = routine.columns();
            if columns.len() != wanted.len() {
                let detail = match wanted.len() {
                    1 => "Final statement must return exactly one column.".to_string(),
                    _ if columns.len() < wanted.len() => {
                        "Final statement returns too few columns.".to_string()
                    }
                    _ => "Final statement returns too many columns.".to_string(),
                };
                return Err(mismatch(routine, &detail));
            }
            for (column, (_, wanted)) in columns.iter().zip(&wanted) {
                let ty = column.ty.ty;
                let fits =
                    ty == *wanted || cast_kind(ty, *wanted).is_some_and(|kind| kind != CastKind::Explicit);
                if !fits {
                    let detail = format!("Actual return type is {}.", self.shown_type(ty));
                    return Err(mismatch(routine, &detail));
                }
            }
        }
        Ok(())
    }
}

/// CREATE FUNCTION
pub(super) async fn create(cx: &mut DdlContext<'_>, written: &CreateRoutine) -> SqlResult<()> {
    let schema = cx.schema_for(&written.name)?;
    if schema == crate::catalog::oids::PG_TEMP {
        return Err(SqlError::unsupported("a temporary function"));
    }
    let language = match written.language.as_deref() {
        Some("sql") => Language::Sql,
        Some("plpgsql") => Language::PlPgSql,
        Some("c" | "internal") => return Err(SqlError::unsupported("a function in LANGUAGE c or internal")),
        Some(other) => {
            let message = format!("language \"{other}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        None => return Err(invalid_definition("no language specified")),
    };
    let Some(body) = &written.body else {
        return Err(invalid_definition("no function body specified"));
    };
    if written.arguments.len() > MOST_ARGUMENTS {
        let message = format!("functions cannot have more than {MOST_ARGUMENTS} arguments");
        return Err(SqlError::new(SqlState("54023"), message));
    }
    let (mut arguments, mut outputs): (Vec<RoutineArgument>, Vec<RoutineOutput>) = Default::default();
    // One that only goes in may have the name of one that only goes out.
    let (mut names_in, mut names_out): (Vec<&str>, Vec<&str>) = Default::default();
    for (place, argument) in written.arguments.iter().enumerate() {
        let ty = cx.routine_type(&argument.ty)?;
        if argument.mode != 'o' {
            named_once(&mut names_in, argument.name.as_deref())?;
        }
        if argument.mode != 'i' {
            named_once(&mut names_out, argument.name.as_deref())?;
        }
        if argument.mode != 'i' {
            outputs.push(RoutineOutput { name: argument.name.clone(), ty, mode: argument.mode, place });
        }
        if argument.mode == 'o' {
            if argument.default.is_some() {
                return Err(invalid_definition("only input parameters can have default values"));
            }
            continue;
        }
        if argument.default.is_none() && arguments.last().is_some_and(|last| last.default.is_some()) {
            let message = "input parameters after one with a default value must also have defaults";
            return Err(invalid_definition(message));
        }
        let default = argument.default.as_deref().map(|text| cx.stable_types(text)).transpose()?;
        if let Some(default) = &default {
            let eval = cx.view.eval(cx.times);
            let context = cx.view.bind_context(&eval, &[]);
            bind::bind_argument(&crate::parse::parse_expr(default)?, ty, &context)?;
        }
        arguments.push(RoutineArgument { name: argument.name.clone(), ty, default });
    }
    let (returns, set) = returned(cx, written, &mut names_out, &mut outputs)?;
    if written.options.rows && !set {
        let message = "ROWS is not applicable when function does not return a set";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    if returns == Type::TRIGGER {
        if language == Language::Sql {
            return Err(invalid_definition("SQL functions cannot return type trigger"));
        }
        if !arguments.is_empty() {
            return Err(invalid_definition("trigger functions cannot have declared arguments").with_hint(
                "The arguments of the trigger can be accessed through TG_NARGS and TG_ARGV instead.",
            ));
        }
    }
    let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
    let known = cx.catalog.routines_named(cx.database(), schema, &written.name.name);
    let known = known.into_iter().find(|known| known.argument_types().eq(types.iter().copied())).cloned();
    if let Some(known) = &known {
        if !written.or_replace {
            cx.check_routine_free(schema, &written.name.name, &types, 0)?;
        }
        cx.check_owner("function", &known.name, known.owner)?;
        if known.set != set || known.outputs != outputs {
            let hint = format!("Use DROP FUNCTION {} first.", cx.shown_routine(known));
            return Err(invalid_definition("cannot change return type of existing function").with_hint(hint));
        }
        check_replaceable(cx, known, returns, &arguments)?;
    }
    let (database, owner) = (cx.database(), cx.user());
    let routine = RoutineDescriptor {
        oid: match &known {
            Some(known) => known.oid,
            None => cx.new_oid().await?,
        },
        database,
        schema,
        name: written.name.name.clone(),
        owner: known.as_ref().map_or(owner, |known| known.owner),
        arguments,
        outputs,
        returns,
        set,
        language,
        volatility: written.options.volatility.unwrap_or('v'),
        strict: written.options.strict.unwrap_or(false),
        parallel: written.options.parallel.unwrap_or('u'),
        definer: written.options.definer.unwrap_or(false),
        search_path: written.options.search_path.clone().flatten(),
        cost: written.options.cost,
        body: body.clone(),
        comment: known.and_then(|known| known.comment.clone()),
        compiled: Default::default(),
    };
    let unchecked = cx.view.shared.settings.lock().raw("check_function_bodies").as_deref() == Some("off");
    // It may call itself, so it has to be there when its body is looked at.
    cx.put_routine(routine.clone())?;
    if unchecked { Ok(()) } else { cx.check_body(&routine) }
}

fn named_once<'w>(names: &mut Vec<&'w str>, name: Option<&'w str>) -> SqlResult<()> {
    let Some(name) = name else { return Ok(()) };
    if names.contains(&name) {
        return Err(invalid_definition(format!("parameter name \"{name}\" used more than once")));
    }
    names.push(name);
    Ok(())
}

/// The type of the value, or of each of a set, and whether it is one. The columns of RETURNS TABLE become outputs.
fn returned<'w>(
    cx: &DdlContext<'_>,
    written: &'w CreateRoutine,
    names: &mut Vec<&'w str>,
    outputs: &mut Vec<RoutineOutput>,
) -> SqlResult<(Type, bool)> {
    let of_outputs = |outputs: &[RoutineOutput]| match outputs {
        [] => None,
        [only] => Some(only.ty),
        _ => Some(Type::RECORD),
    };
    let given = |cx: &DdlContext<'_>, ty: Type, outputs: &[RoutineOutput]| match of_outputs(outputs) {
        Some(wanted) if wanted != ty => {
            let shown = cx.shown_type(wanted);
            let message = format!("function result type must be {shown} because of OUT parameters");
            Err(invalid_definition(message))
        }
        _ => Ok(ty),
    };
    match &written.returns {
        ReturnType::Void => given(cx, Type::VOID, outputs).map(|ty| (ty, false)),
        ReturnType::Trigger => given(cx, Type::TRIGGER, outputs).map(|ty| (ty, false)),
        ReturnType::Type(ty) => given(cx, cx.routine_type(ty)?, outputs).map(|ty| (ty, false)),
        ReturnType::Set(ty) => given(cx, cx.routine_type(ty)?, outputs).map(|ty| (ty, true)),
        ReturnType::Outputs => match of_outputs(outputs) {
            Some(ty) => Ok((ty, false)),
            None => Err(invalid_definition("function result type must be specified")),
        },
        ReturnType::Record(_) if outputs.is_empty() => {
            Err(SqlError::unsupported("a function that returns a record without OUT arguments"))
        }
        ReturnType::Record(set) => given(cx, Type::RECORD, outputs).map(|ty| (ty, *set)),
        ReturnType::Table(_) if !outputs.is_empty() => {
            let message = "OUT and INOUT arguments aren't allowed in TABLE functions";
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
        }
        ReturnType::Table(columns) => {
            for (number, (name, ty)) in columns.iter().enumerate() {
                named_once(names, Some(name.as_str()))?;
                let (ty, place) = (cx.routine_type(ty)?, written.arguments.len() + number);
                outputs.push(RoutineOutput { name: Some(name.clone()), ty, mode: 't', place });
            }
            Ok((of_outputs(outputs).unwrap_or(Type::RECORD), true))
        }
    }
}

/// What OR REPLACE may not change.
fn check_replaceable(
    cx: &DdlContext<'_>,
    known: &RoutineDescriptor,
    returns: Type,
    arguments: &[RoutineArgument],
) -> SqlResult<()> {
    let hint = format!("Use DROP FUNCTION {} first.", cx.shown_routine(known));
    if known.returns != returns {
        let message = "cannot change return type of existing function";
        return Err(invalid_definition(message).with_hint(hint));
    }
    for (old, new) in known.arguments.iter().zip(arguments) {
        if let Some(name) = &old.name
            && new.name.as_ref() != Some(name)
        {
            let message = format!("cannot change name of input parameter \"{name}\"");
            return Err(invalid_definition(message).with_hint(hint));
        }
        if old.default.is_some() && new.default.is_none() {
            let message = "cannot remove parameter defaults from existing function";
            return Err(invalid_definition(message).with_hint(hint));
        }
    }
    Ok(())
}
