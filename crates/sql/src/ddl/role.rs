//! Roles and what they are granted.

use super::DdlContext;
use super::scram;
use super::statement::{GrantTarget, RoleOptions};
use super::tokens::Name;
use crate::catalog::descriptor::{FIRST_USER_OID, RoleDescriptor};
use crate::catalog::{Relation, oids};
use crate::session::definitions;
use crate::session::privileges::denied;
use sql_types::{Oid, SqlError, SqlResult, SqlState};

fn refused(what: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what} role"))
}

/// Only superusers make superusers; others need CREATEROLE.
fn check_right(cx: &DdlContext<'_>, options: &RoleOptions, target: Option<&RoleDescriptor>) -> SqlResult<()> {
    let user = cx.role("current_user")?;
    if user.superuser {
        return Ok(());
    }
    let sensitive =
        options.superuser.is_some() || options.replication.is_some() || options.bypass_rls.is_some();
    if sensitive || target.is_some_and(|role| role.superuser) {
        let message = "must be superuser to alter superuser roles or change superuser attribute";
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let only_password =
        RoleOptions { password: options.password.clone(), ..RoleOptions::default() } == *options;
    let oneself = target.is_some_and(|role| role.oid == user.oid) && only_password;
    if user.create_role || oneself {
        Ok(())
    } else {
        Err(refused(if target.is_some() { "alter" } else { "create" }))
    }
}

fn apply(role: &mut RoleDescriptor, options: &RoleOptions) {
    let set = |flag: &mut bool, option: Option<bool>| *flag = option.unwrap_or(*flag);
    set(&mut role.superuser, options.superuser);
    set(&mut role.create_db, options.create_db);
    set(&mut role.create_role, options.create_role);
    set(&mut role.inherit, options.inherit);
    set(&mut role.login, options.login);
    set(&mut role.replication, options.replication);
    set(&mut role.bypass_rls, options.bypass_rls);
    role.connection_limit = options.connection_limit.unwrap_or(role.connection_limit);
    if let Some(password) = &options.password {
        role.verifier = password.as_deref().filter(|password| !password.is_empty()).map(scram::verifier);
    }
    if let Some(until) = &options.valid_until {
        role.valid_until = Some(until.clone());
    }
}

/// CREATE ROLE
pub(super) async fn create(cx: &mut DdlContext<'_>, name: &str, options: &RoleOptions) -> SqlResult<()> {
    check_right(cx, options, None)?;
    if name.starts_with("pg_") || name == "public" || name == "none" {
        return Err(SqlError::new(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved")));
    }
    if cx.catalog.role(name).is_some() {
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists")));
    }
    let mut role = RoleDescriptor {
        oid: cx.new_oid().await?,
        name: name.to_string(),
        superuser: false,
        create_db: false,
        create_role: false,
        inherit: true,
        login: false,
        replication: false,
        bypass_rls: false,
        connection_limit: -1,
        verifier: None,
        valid_until: None,
        member_of: Vec::new(),
        settings: Vec::new(),
        comment: None,
    };
    apply(&mut role, options);
    for group in &options.in_roles {
        role.member_of.push(cx.role(group)?.oid);
    }
    let oid = role.oid;
    cx.put_role(role)?;
    for member in &options.members {
        let mut member = (*cx.role(member)?).clone();
        member.member_of.push(oid);
        cx.put_role(member)?;
    }
    Ok(())
}

/// ALTER ROLE
pub(super) fn alter(cx: &mut DdlContext<'_>, name: &str, options: &RoleOptions) -> SqlResult<()> {
    let role = cx.role(name)?;
    check_right(cx, options, Some(&role))?;
    let mut changed = (*role).clone();
    apply(&mut changed, options);
    if changed.oid == oids::OWNER && (!changed.superuser || !changed.login) {
        let message = "the role a tenant begins with must remain a superuser that may log in";
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
    }
    cx.put_role(changed)
}

/// ALTER ROLE … RENAME TO
pub(super) fn rename(cx: &mut DdlContext<'_>, name: &str, to: &str) -> SqlResult<()> {
    let role = cx.role(name)?;
    check_right(cx, &RoleOptions { login: Some(role.login), ..RoleOptions::default() }, Some(&role))?;
    if role.oid == cx.view.shared.login {
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "session user cannot be renamed"));
    }
    if role.oid == oids::OWNER {
        return Err(SqlError::new(
            SqlState::DEPENDENT_OBJECTS,
            "the role a tenant begins with cannot be renamed",
        ));
    }
    if cx.catalog.role(to).is_some() {
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, format!("role \"{to}\" already exists")));
    }
    let mut changed = (*role).clone();
    changed.name = to.to_string();
    cx.put_role(changed)
}

/// DROP ROLE
pub(super) fn drop(cx: &mut DdlContext<'_>, name: &Name, if_exists: bool) -> SqlResult<()> {
    let user = cx.role("current_user")?;
    if !user.superuser && !user.create_role {
        return Err(refused("drop"));
    }
    let Some(role) = cx.catalog.role(&name.name).cloned() else {
        if if_exists {
            cx.notice(format!("role \"{}\" does not exist, skipping", name.name));
            return Ok(());
        }
        let message = format!("role \"{}\" does not exist", name.name);
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    };
    if role.oid == cx.user() || role.oid == cx.view.shared.login {
        return Err(SqlError::new(SqlState::OBJECT_IN_USE, "current user cannot be dropped"));
    }
    if role.oid < FIRST_USER_OID {
        let message = format!("cannot drop role {} because it is required by the database system", role.name);
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
    }
    let catalog = &cx.catalog;
    let oid = role.oid;
    let tables = catalog
        .tables
        .values()
        .filter(|table| table.owner == oid)
        .map(|table| format!("owner of table {}", table.name));
    let views = catalog
        .views
        .values()
        .filter(|view| view.owner == oid)
        .map(|view| format!("owner of view {}", view.name));
    let sequences = catalog
        .sequences
        .values()
        .filter(|s| s.owner == oid)
        .map(|s| format!("owner of sequence {}", s.name));
    let types =
        catalog.types.values().filter(|ty| ty.owner == oid).map(|ty| format!("owner of type {}", ty.name));
    let routines = catalog
        .routines
        .values()
        .filter(|routine| routine.owner == oid)
        .map(|routine| format!("owner of function {}", cx.shown_routine(routine)));
    let policies = catalog.tables.values().flat_map(|table| {
        let targets = table.security.policies.iter().filter(|policy| policy.roles.contains(&oid));
        targets.map(|policy| format!("target of policy {} on table {}", policy.name, table.name))
    });
    let schemas =
        catalog.schemas.values().filter(|s| s.owner == oid).map(|s| format!("owner of schema {}", s.name));
    let databases = catalog
        .databases
        .values()
        .filter(|d| d.owner == oid)
        .map(|d| format!("owner of database {}", d.name));
    let granted = catalog.acls.values().filter(|acl| acl.grants.iter().any(|(grantee, _)| *grantee == oid));
    let granted = granted.map(|_| "privileges on an object".to_string());
    let first = tables
        .chain(views)
        .chain(sequences)
        .chain(types)
        .chain(routines)
        .chain(policies)
        .chain(schemas)
        .chain(databases)
        .chain(granted)
        .next();
    if let Some(detail) = first {
        let message = format!("role \"{}\" cannot be dropped because some objects depend on it", role.name);
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_detail(detail));
    }
    let members: Vec<_> =
        cx.catalog.roles.values().filter(|other| other.member_of.contains(&oid)).cloned().collect();
    for member in members {
        let mut changed = (*member).clone();
        changed.member_of.retain(|group| *group != oid);
        cx.put_role(changed)?;
    }
    cx.remove_role(oid)
}

/// ALTER ROLE … SET and ALTER DATABASE … SET
pub(super) fn settings(
    cx: &mut DdlContext<'_>,
    role: Option<&str>,
    database: Option<&str>,
    name: Option<&str>,
    value: Option<&str>,
) -> SqlResult<()> {
    if let Some(name) = name {
        match definitions::find(name) {
            Some(definition) => {
                if let Some(value) = value
                    && !definition.name.eq_ignore_ascii_case("datestyle")
                {
                    definitions::normalize(definition, value)?;
                }
            }
            None if name.contains('.') => {}
            None => return Err(definitions::unrecognized(name)),
        }
    }
    let change = |settings: &mut Vec<(String, String)>| match name {
        None => settings.clear(),
        Some(name) => {
            settings.retain(|(known, _)| known != name);
            settings.extend(value.map(|value| (name.to_string(), value.to_string())));
        }
    };
    if let Some(role) = role {
        let role = cx.role(role)?;
        if role.oid != cx.user() {
            check_right(cx, &RoleOptions { login: Some(role.login), ..RoleOptions::default() }, Some(&role))?;
        }
        let mut changed = (*role).clone();
        change(&mut changed.settings);
        return cx.put_role(changed);
    }
    let name = database.unwrap_or_default();
    let Some(database) = cx.catalog.database(name).cloned() else {
        return Err(SqlError::new(SqlState::INVALID_CATALOG, format!("database \"{name}\" does not exist")));
    };
    cx.check_owner("database", name, database.owner)?;
    let mut changed = (*database).clone();
    change(&mut changed.settings);
    cx.put_database(changed)
}

/// The letters of privileges for a kind of object; `None` for ALL.
fn letters(words: &[String], all: &'static str) -> SqlResult<String> {
    let mut letters = String::new();
    for word in words {
        let letter = match word.as_str() {
            "all" => return Ok(all.to_string()),
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
            "execute" => 'X',
            "set" | "alter" | "system" => continue,
            other => {
                let message = format!("unrecognized privilege type \"{other}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        };
        letters.push(letter);
    }
    Ok(letters)
}

/// GRANT and REVOKE
pub(super) fn grant(
    cx: &mut DdlContext<'_>,
    is_grant: bool,
    privileges: Option<&[String]>,
    target: &GrantTarget,
    roles: &[String],
) -> SqlResult<()> {
    if let GrantTarget::Roles(groups) = target {
        return grant_roles(cx, is_grant, groups, roles);
    }
    let mut grantees = Vec::new();
    for role in roles {
        grantees.push(if role == "public" { 0 } else { cx.role(role)?.oid });
    }
    let words = privileges.unwrap_or_default();
    const TABLE: &str = "arwdDxt";
    const SEQUENCE: &str = "rwU";
    let mut objects: Vec<(Oid, Oid, String, &'static str)> = Vec::new();
    match target {
        GrantTarget::Tables(names) | GrantTarget::Sequences(names) => {
            for name in names {
                match cx.find(name) {
                    Some(relation) => objects.extend(relation_of(cx, relation)),
                    None => return Err(cx.undefined("relation", name)),
                }
            }
        }
        GrantTarget::AllIn { schemas, sequences } => {
            for schema in schemas {
                let Some(schema) = cx.catalog.schema(cx.database(), schema) else {
                    return Err(SqlError::new(
                        SqlState::INVALID_SCHEMA,
                        format!("schema \"{schema}\" does not exist"),
                    ));
                };
                let relations: Vec<Relation> =
                    cx.catalog.relations(schema.database, schema.oid).map(|(_, r)| r).collect();
                let wanted = relations
                    .into_iter()
                    .filter(|relation| matches!(relation, Relation::Sequence(_)) == *sequences);
                objects.extend(wanted.filter_map(|relation| relation_of(cx, relation)));
            }
        }
        GrantTarget::Schemas(names) => {
            for name in names {
                let Some(schema) = cx.catalog.schema(cx.database(), name) else {
                    return Err(SqlError::new(
                        SqlState::INVALID_SCHEMA,
                        format!("schema \"{name}\" does not exist"),
                    ));
                };
                objects.push((schema.oid, schema.owner, schema.name.clone(), "UC"));
            }
        }
        GrantTarget::Databases(names) => {
            for name in names {
                let Some(database) = cx.catalog.database(name) else {
                    return Err(SqlError::new(
                        SqlState::INVALID_CATALOG,
                        format!("database \"{name}\" does not exist"),
                    ));
                };
                objects.push((database.oid, database.owner, database.name.clone(), "CTc"));
            }
        }
        GrantTarget::Routines(names) => {
            for name in names {
                let routine = cx.find_routine(name)?;
                objects.push((routine.oid, routine.owner, routine.name.clone(), "X"));
            }
        }
        GrantTarget::AllRoutinesIn(schemas) => {
            for schema in schemas {
                let Some(schema) = cx.catalog.schema(cx.database(), schema) else {
                    return Err(SqlError::new(
                        SqlState::INVALID_SCHEMA,
                        format!("schema \"{schema}\" does not exist"),
                    ));
                };
                for routine in super::alter_routine::routines_in(cx, schema.database, schema.oid) {
                    objects.push((routine.oid, routine.owner, routine.name.clone(), "X"));
                }
            }
        }
        GrantTarget::Nothing | GrantTarget::Roles(_) => return Ok(()),
    }
    for (oid, owner, name, kind) in objects {
        let all = match kind {
            "table" => TABLE,
            "sequence" => SEQUENCE,
            other => other,
        };
        if !cx.catalog.owns(cx.user(), owner) {
            let what = match all {
                TABLE => "table",
                "X" => "function",
                _ => "object",
            };
            return Err(denied(what, &name));
        }
        let letters = letters(words, all)?;
        let mut acl = cx.catalog.acls.get(&oid).map(|acl| (**acl).clone()).unwrap_or_default();
        if kind == "X" && acl.grants.is_empty() {
            // What a function begins with, once it is no longer implied.
            acl.grants = vec![(0, "X".into()), (owner, "X".into())];
        }
        for grantee in &grantees {
            let position = acl.grants.iter().position(|(known, _)| known == grantee);
            let entry = match position {
                Some(position) => &mut acl.grants[position],
                None => {
                    acl.grants.push((*grantee, String::new()));
                    let last = acl.grants.len() - 1;
                    &mut acl.grants[last]
                }
            };
            for letter in letters.chars() {
                if !is_grant {
                    entry.1.retain(|known| known != letter);
                } else if !entry.1.contains(letter) {
                    entry.1.push(letter);
                }
            }
        }
        acl.grants.retain(|(_, letters)| !letters.is_empty());
        cx.put_acl(oid, acl)?;
    }
    Ok(())
}

fn relation_of(cx: &DdlContext<'_>, relation: Relation) -> Option<(Oid, Oid, String, &'static str)> {
    match relation {
        Relation::Table(oid) | Relation::MaterializedView(oid) => {
            cx.catalog.table(oid).map(|table| (oid, table.owner, table.name.clone(), "table"))
        }
        Relation::View(oid) => {
            cx.catalog.views.get(&oid).map(|view| (oid, view.owner, view.name.clone(), "table"))
        }
        Relation::Sequence(oid) => cx
            .catalog
            .sequences
            .get(&oid)
            .map(|sequence| (oid, sequence.owner, sequence.name.clone(), "sequence")),
        Relation::Index(..) => None,
    }
}

fn grant_roles(
    cx: &mut DdlContext<'_>,
    is_grant: bool,
    groups: &[String],
    members: &[String],
) -> SqlResult<()> {
    let user = cx.role("current_user")?;
    if !user.superuser && !user.create_role {
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "must have admin option on the role"));
    }
    for group in groups {
        let group = cx.role(group)?;
        for member in members {
            let mut member = (*cx.role(member)?).clone();
            if is_grant && cx.catalog.is_member(group.oid, member.oid) {
                let message = format!("role \"{}\" is a member of role \"{}\"", group.name, member.name);
                return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
            }
            member.member_of.retain(|known| *known != group.oid);
            if is_grant {
                member.member_of.push(group.oid);
            }
            cx.put_role(member)?;
        }
    }
    Ok(())
}
