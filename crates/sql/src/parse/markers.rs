//! The names that stand for clauses `sqlparser` has no place for.
//!
//! Each begins with a NUL, which [`parse`](super::parse) refuses in what users write: none is ever the name of a column, a
//! table or a function.

/// The ORDER BY item of a window that `EXCLUDE CURRENT ROW` becomes.
pub(crate) const EXCLUDE_CURRENT_ROW: &str = "\0exclude current row";
/// The ORDER BY item of a window that `EXCLUDE GROUP` becomes.
pub(crate) const EXCLUDE_GROUP: &str = "\0exclude group";
/// The ORDER BY item of a window that `EXCLUDE TIES` becomes.
pub(crate) const EXCLUDE_TIES: &str = "\0exclude ties";
/// The first item of a `GROUP BY DISTINCT`.
pub(crate) const GROUP_DISTINCT: &str = "\0group by distinct";
/// The function that `LIKE ALL (array)` puts around the array.
pub(crate) const LIKE_ALL: &str = "\0like all";
/// The first part of the last name in `USING (…)` of a join, of which the second is its alias.
pub(crate) const JOIN_ALIAS: &str = "\0join alias";
/// The name of a VALUES list that is given none: what a SELECT without a list reads from, or `ARRAY(VALUES …)`.
pub(super) const ONE_ROW: &str = "\0one row";
/// The function that `BETWEEN SYMMETRIC` puts around its lower bound.
pub(crate) const SYMMETRIC: &str = "\0between symmetric";
/// The function that `VARIADIC` puts around the last argument of a call.
pub(crate) const VARIADIC: &str = "\0variadic argument";
/// The table function that `ROWS FROM (…)` becomes.
pub(crate) const ROWS_FROM: &str = "\0rows from";
/// The function around a count in LIMIT that makes it one of `FETCH … WITH TIES`.
pub(crate) const WITH_TIES: &str = "\0with ties";

/// The column that `DO NOTHING` in MERGE assigns or inserts.
pub(crate) const MERGE_NOTHING: &str = "\0merge nothing";
/// The column that `INSERT DEFAULT VALUES` in MERGE inserts.
pub(crate) const MERGE_DEFAULTS: &str = "\0merge defaults";

/// Begins the name of the constraint that an inference of ON CONFLICT with expressions or a predicate becomes; its
/// parts follow, each after [`INFERENCE_PART`], and the predicate after [`INFERENCE_WHERE`].
pub(crate) const INFERENCE: &str = "\0index inference";
/// Separates the parts of an inference.
pub(crate) const INFERENCE_PART: &str = "\0,";
/// Stands before the predicate of an inference.
pub(crate) const INFERENCE_WHERE: &str = "\0:";

/// The part of a name that holds the subscripts of what is assigned to, behind [`SUBSCRIPTED`].
pub(super) const SUBSCRIPTS: &str = "\0subscripts";
/// What stands for the value that is subscripted.
pub(super) const SUBSCRIPTED: &str = "\0subscripted";
/// The function over an element, as it would be read, and the value that an assignment of PL/pgSQL gives it: the whole
/// value afterwards.
pub(crate) const ASSIGNED: &str = "\0assigned";
