//! Functions of the user's own: LANGUAGE sql and plpgsql, DO, triggers.
//!
//! # How it works
//!
//! A body is read once ([`Compiled`]) and kept with its descriptor. It runs its statements through [`statements::Statements`],
//! which knows the transaction: inside a query or a change of rows that is [`nested::Nested`], for DO the session.
//! Names of arguments and variables are parameters of those statements ([`crate::bind::Variables`]), so their plans
//! are shared and cached like those of prepared statements.
//!
//! # Rules
//!
//! * A function runs in the transaction of the statement that called it and sees what was written before.
//! * Calls nest [`MOST_CALLS`] deep (54001), on stacks that grow ([`stack`]). Loops and calls look for cancellation and
//!   let others run. What variables hold counts as memory of the statement.
//! * Only volatile functions change rows: what others give may be computed once for many rows.
//! * Statements of a function run with the rights of who calls it, or (SECURITY DEFINER) of its owner: its
//!   [`SessionView`](crate::session::view::SessionView) is another then, and the plans it gets from the cache are.
//! * What an EXCEPTION clause catches is undone to where its block began. Failures that end the transaction anyhow
//!   (serialization, deadlock, cancellation) are not caught.

pub(crate) mod nested;
pub(crate) mod plpgsql;
pub(crate) mod rows;
pub(crate) mod stack;
pub(crate) mod statements;
pub(crate) mod trigger;

use crate::catalog::routine::{Language, RoutineDescriptor};
use crate::parse;
use plpgsql::ast::Block;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// How deep calls nest.
pub const MOST_CALLS: u32 = 48;
/// Longest body of a function, in bytes.
pub const LONGEST_BODY: usize = 256 << 10;

/// The body of a function, ready to run.
#[derive(Debug)]
pub enum Compiled {
    /// LANGUAGE sql: its statements.
    Sql(Vec<Arc<parse::Statement>>),
    /// LANGUAGE plpgsql.
    PlPgSql(Block),
}

/// Reads a body.
///
/// # Errors
/// 42601 and what else is wrong with it; 54000 if it is too long.
pub(crate) fn compile(language: Language, body: &str) -> SqlResult<Compiled> {
    if body.len() > LONGEST_BODY {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "the body of the function is too long")
            .with_detail(format!("It has {} bytes; {LONGEST_BODY} are allowed.", body.len())));
    }
    Ok(match language {
        Language::Sql => Compiled::Sql(parse::parse(body)?.into_iter().map(Arc::new).collect()),
        Language::PlPgSql => Compiled::PlPgSql(plpgsql::parse::parse(body)?),
    })
}

/// The body of a function, read now or before.
pub(crate) fn compiled(routine: &RoutineDescriptor) -> SqlResult<Arc<Compiled>> {
    routine.compiled.get_or_make(|| compile(routine.language, &routine.body).map(Arc::new))
}

/// 54001: calls nest too deep.
pub(crate) fn too_deep() -> SqlError {
    SqlError::new(SqlState::TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint(format!("Calls of functions nest at most {MOST_CALLS} deep."))
}
