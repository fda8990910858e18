//! Names of conditions, as EXCEPTION and RAISE use them, and their SQLSTATEs (PostgreSQL's appendix A).

use parking_lot::Mutex;
use sql_types::SqlState;
use std::sync::LazyLock;

/// SQLSTATE and name of each.
static CONDITIONS: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    include_str!("conditions.txt").lines().filter_map(|line| line.split_once(' ')).collect()
});

/// SQLSTATEs of the user's own that are remembered; a program that has more gets P0001 for the rest.
const MOST_OWN: usize = 4096;

/// The SQLSTATEs of a name: several have the same.
pub(crate) fn named(name: &str) -> Vec<SqlState> {
    CONDITIONS.iter().filter(|(_, known)| *known == name).map(|(code, _)| SqlState(code)).collect()
}

/// The SQLSTATE of five digits and upper-case letters; `None` if it is not of this form.
pub(crate) fn state(code: &str) -> Option<SqlState> {
    static OWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    if code.len() != 5 || !code.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()) {
        return None;
    }
    if let Some((known, _)) = CONDITIONS.iter().find(|(known, _)| *known == code) {
        return Some(SqlState(known));
    }
    let mut own = OWN.lock();
    if let Some(known) = own.iter().find(|known| **known == code) {
        return Some(SqlState(known));
    }
    if own.len() >= MOST_OWN {
        return Some(RAISE_EXCEPTION);
    }
    // Kept for the process: errors carry their SQLSTATE by reference.
    let kept: &'static str = Box::leak(code.to_string().into_boxed_str());
    own.push(kept);
    Some(SqlState(kept))
}

/// raise_exception
pub(crate) const RAISE_EXCEPTION: SqlState = SqlState("P0001");
/// no_data_found
pub(crate) const NO_DATA_FOUND: SqlState = SqlState("P0002");
/// too_many_rows
pub(crate) const TOO_MANY_ROWS: SqlState = SqlState("P0003");
/// assert_failure
pub(crate) const ASSERT_FAILURE: SqlState = SqlState("P0004");
/// case_not_found
pub(crate) const CASE_NOT_FOUND: SqlState = SqlState("20000");
/// function_executed_no_return_statement
pub(crate) const NO_RETURN: SqlState = SqlState("2F005");
/// error_in_assignment
pub(crate) const ERROR_IN_ASSIGNMENT: SqlState = SqlState("22005");
/// null_value_not_allowed
pub(crate) const NULL_NOT_ALLOWED: SqlState = SqlState("22004");

/// Whether a condition of EXCEPTION is met by a SQLSTATE: one that ends with 000 stands for its class.
pub(crate) fn matches(condition: SqlState, code: SqlState) -> bool {
    condition == code || (condition.0.ends_with("000") && condition.0.get(..2) == code.0.get(..2))
}
