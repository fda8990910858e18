//! Evaluation of expressions: synchronous and pure.

use super::scope::OuterRow;
use super::subscript;
use crate::plan::{Expr, RowCheck};
use smallvec::SmallVec;
use sql_types::context::EvalContext;
use sql_types::functions::Function;
use sql_types::{ArrayValue, Datum, RecordValue, SqlError, SqlResult, SqlState, Type, compare};
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// What expressions see besides their row.
#[derive(Clone, Copy)]
pub struct EvalEnv<'a> {
    /// Session values.
    pub eval: &'a EvalContext<'a>,
    /// Values of `$1…`.
    pub params: &'a [Datum],
    /// Enclosing rows.
    pub outer: Option<&'a OuterRow>,
}

/// A value that need not be owned.
pub enum Value<'a> {
    /// Lies in the row, the plan or the parameters.
    Ref(&'a Datum),
    /// Was computed.
    Owned(Datum),
}

impl Deref for Value<'_> {
    type Target = Datum;
    fn deref(&self) -> &Datum {
        match self {
            Value::Ref(value) => value,
            Value::Owned(value) => value,
        }
    }
}

impl Value<'_> {
    /// The value itself.
    pub fn into_owned(self) -> Datum {
        match self {
            Value::Ref(value) => value.clone(),
            Value::Owned(value) => value,
        }
    }
}

/// The value of an expression over a row.
pub fn eval(expr: &Expr, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Datum> {
    value(expr, row, env).map(Value::into_owned)
}

/// The value of a boolean expression; `None` for NULL.
pub fn eval_bool(expr: &Expr, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Option<bool>> {
    match expr {
        Expr::And(parts) => fold(parts, row, env, false),
        Expr::Or(parts) => fold(parts, row, env, true),
        Expr::Not(inner) => Ok(eval_bool(inner, row, env)?.map(|truth| !truth)),
        Expr::IsNull(inner, negated) => Ok(Some(value(inner, row, env)?.is_null_value() != *negated)),
        Expr::Call { function, args, .. } => match args.as_slice() {
            [left, right] => {
                if let Some(test) = comparison(function) {
                    let (left, right) = (value(left, row, env)?, value(right, row, env)?);
                    if let Some(ordering) = quick_compare(&left, &right) {
                        return Ok(Some(test.holds(ordering)));
                    }
                    return as_bool(&call_two(function, args, left, right, env)?);
                }
                as_bool(&*value(expr, row, env)?)
            }
            _ => as_bool(&*value(expr, row, env)?),
        },
        Expr::InList(needle, list, negated) => {
            let found = in_list(needle, list, row, env)?;
            Ok(found.map(|found| found != *negated))
        }
        _ => as_bool(&*value(expr, row, env)?),
    }
}

/// 23514 or 23502: a value is none of a domain.
pub fn domain_violation(check: &RowCheck) -> SqlError {
    let Some(rule) = &check.domain else { return SqlError::internal("not a constraint of a domain") };
    let mut error = if rule.not_null {
        let message = format!("domain {} does not allow null values", rule.domain);
        SqlError::new(SqlState::NOT_NULL_VIOLATION, message)
    } else {
        let message =
            format!("value for domain {} violates check constraint \"{}\"", rule.domain, check.name);
        let mut error = SqlError::new(SqlState::CHECK_VIOLATION, message);
        error.extra_mut().constraint = Some(check.name.to_string());
        error
    };
    error.extra_mut().data_type = Some(rule.domain.to_string());
    error
}

/// Whether a predicate is true; NULL is not.
pub fn is_true(expr: &Expr, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<bool> {
    Ok(eval_bool(expr, row, env)? == Some(true))
}

fn as_bool(value: &Datum) -> SqlResult<Option<bool>> {
    match value {
        Datum::Bool(truth) => Ok(Some(*truth)),
        Datum::Null => Ok(None),
        _ => Err(SqlError::internal("a condition is not boolean")),
    }
}

fn from_bool(truth: Option<bool>) -> Value<'static> {
    Value::Owned(truth.map_or(Datum::Null, Datum::Bool))
}

/// AND (`decisive` false) and OR (`decisive` true).
fn fold(parts: &[Expr], row: &[Datum], env: &EvalEnv<'_>, decisive: bool) -> SqlResult<Option<bool>> {
    let mut unknown = false;
    for part in parts {
        match eval_bool(part, row, env)? {
            Some(truth) if truth == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(!decisive) })
}

/// A comparison operator whose operands may be compared here without a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Test {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Test::Equal => ordering.is_eq(),
            Test::NotEqual => ordering.is_ne(),
            Test::Less => ordering.is_lt(),
            Test::LessOrEqual => ordering.is_le(),
            Test::Greater => ordering.is_gt(),
            Test::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

fn comparison(function: &Function) -> Option<Test> {
    match function.name.as_bytes() {
        b"=" => Some(Test::Equal),
        b"<>" => Some(Test::NotEqual),
        b"<" => Some(Test::Less),
        b"<=" => Some(Test::LessOrEqual),
        b">" => Some(Test::Greater),
        b">=" => Some(Test::GreaterOrEqual),
        _ => None,
    }
}

/// The order of two values of the commonest types; `None` leaves it to the function.
fn quick_compare(left: &Datum, right: &Datum) -> Option<Ordering> {
    match (left, right) {
        (Datum::Int4(left), Datum::Int4(right)) => Some(left.cmp(right)),
        (Datum::Int8(left), Datum::Int8(right)) => Some(left.cmp(right)),
        (Datum::Int8(left), Datum::Int4(right)) => Some(left.cmp(&i64::from(*right))),
        (Datum::Int4(left), Datum::Int8(right)) => Some(i64::from(*left).cmp(right)),
        (Datum::Date(left), Datum::Date(right)) => Some(left.cmp(right)),
        (Datum::Timestamp(left), Datum::Timestamp(right)) => Some(left.cmp(right)),
        (Datum::Timestamptz(left), Datum::Timestamptz(right)) => Some(left.cmp(right)),
        (Datum::Uuid(left), Datum::Uuid(right)) => Some(left.cmp(right)),
        (Datum::Enum(left), Datum::Enum(right)) => Some(left.rank.cmp(&right.rank)),
        _ => None,
    }
}

trait IsNullValue {
    fn is_null_value(&self) -> bool;
}

impl IsNullValue for Value<'_> {
    fn is_null_value(&self) -> bool {
        matches!(**self, Datum::Null)
    }
}

fn missing(what: &str) -> SqlError {
    SqlError::internal(format!("the plan refers to a {what} that does not exist"))
}

/// The value of an expression, borrowed where it exists already.
pub fn value<'a>(expr: &'a Expr, row: &'a [Datum], env: &EvalEnv<'a>) -> SqlResult<Value<'a>> {
    match expr {
        Expr::Column(index, _) => row.get(*index).map(Value::Ref).ok_or_else(|| missing("column")),
        Expr::Const(datum, _) => Ok(Value::Ref(datum)),
        Expr::Param(index, _) => env.params.get(*index).map(Value::Ref).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter ${}", index + 1))
        }),
        Expr::Outer { depth, index, .. } => env
            .outer
            .and_then(|outer| outer.at(*depth))
            .and_then(|row| row.get(*index))
            .map(Value::Ref)
            .ok_or_else(|| missing("column of an outer row")),
        Expr::Call { function, args, .. } => call(function, args, row, env).map(Value::Owned),
        Expr::Cast { expr, to, explicit } => {
            let from = expr.ty();
            let inner = value(expr, row, env)?;
            sql_types::cast::cast(&inner, from, *to, *explicit, env.eval).map(Value::Owned)
        }
        Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::InList(..) => {
            Ok(from_bool(eval_bool(expr, row, env)?))
        }
        Expr::IsNull(inner, negated) => {
            is_null(inner, *negated, row, env).map(|truth| from_bool(Some(truth)))
        }
        Expr::IsDistinct(left, right, negated) => {
            let (left, right) = (value(left, row, env)?, value(right, row, env)?);
            let distinct = match (left.is_null(), right.is_null()) {
                (true, true) => false,
                (false, false) => !compare::equal(&left, &right),
                _ => true,
            };
            Ok(from_bool(Some(distinct != *negated)))
        }
        Expr::Case { branches, otherwise, .. } => {
            for (condition, result) in branches {
                if is_true(condition, row, env)? {
                    return value(result, row, env);
                }
            }
            match otherwise {
                Some(otherwise) => value(otherwise, row, env),
                None => Ok(Value::Owned(Datum::Null)),
            }
        }
        Expr::Coalesce(parts, _) => {
            for part in parts {
                let candidate = value(part, row, env)?;
                if !candidate.is_null() {
                    return Ok(candidate);
                }
            }
            Ok(Value::Owned(Datum::Null))
        }
        Expr::AnyArray { expr, function, array, any } => {
            let (left, array) = (value(expr, row, env)?, value(array, row, env)?);
            any_array(&left, expr.ty(), function, &array, *any, env).map(from_bool)
        }
        Expr::Array(items, ty) => {
            let values = items.iter().map(|item| eval(item, row, env)).collect::<SqlResult<Vec<_>>>()?;
            let nested = items.first().is_some_and(|item| item.ty().element().is_some());
            array_of(values, *ty, nested).map(Value::Owned)
        }
        Expr::Record(items, fields) => {
            let values = items.iter().map(|item| eval(item, row, env)).collect::<SqlResult<Vec<_>>>()?;
            let fields = fields.clone();
            Ok(Value::Owned(Datum::Record(Arc::new(RecordValue { fields, values }))))
        }
        Expr::Field(record, index, _) => match &*value(record, row, env)? {
            Datum::Record(record) => {
                record.values.get(*index).cloned().map(Value::Owned).ok_or_else(|| missing("field"))
            }
            Datum::Null => Ok(Value::Owned(Datum::Null)),
            _ => Err(SqlError::internal("a field of something that is not a record")),
        },
        Expr::Domain(inner, checks) => {
            let held = [value(inner, row, env)?.into_owned()];
            for check in checks.iter() {
                if eval_bool(&check.expr, &held, env)? == Some(false) {
                    return Err(domain_violation(check));
                }
            }
            let [held] = held;
            Ok(Value::Owned(held))
        }
        Expr::Subscript(array, ranges, ty) => {
            let array = value(array, row, env)?;
            subscript::subscript(&array, ranges, *ty, row, env).map(Value::Owned)
        }
        Expr::SubscriptAssign(container, ranges, new, ty) => {
            let container = value(container, row, env)?.into_owned();
            let new = value(new, row, env)?.into_owned();
            subscript::assign(container, ranges, new, *ty, row, env).map(Value::Owned)
        }
    }
}

/// `IS [NOT] NULL`. A record is null if all its fields are, and not null if none is.
fn is_null(inner: &Expr, negated: bool, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<bool> {
    Ok(match &*value(inner, row, env)? {
        Datum::Null => !negated,
        Datum::Record(record) => record.values.iter().all(|field| field.is_null() != negated),
        _ => negated,
    })
}

fn call(function: &'static Function, args: &[Expr], row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Datum> {
    match args {
        [only] => {
            let only = value(only, row, env)?;
            run(function, args, std::slice::from_ref(&*only), env)
        }
        [left, right] => {
            let left = value(left, row, env)?;
            let right = value(right, row, env)?;
            call_two(function, args, left, right, env)
        }
        _ => {
            let mut values: SmallVec<[Datum; 4]> = SmallVec::with_capacity(args.len());
            for arg in args {
                values.push(eval(arg, row, env)?);
            }
            run(function, args, &values, env)
        }
    }
}

fn call_two(
    function: &Function,
    args: &[Expr],
    left: Value<'_>,
    right: Value<'_>,
    env: &EvalEnv<'_>,
) -> SqlResult<Datum> {
    if function.strict && (left.is_null() || right.is_null()) {
        return Ok(Datum::Null);
    }
    run(function, args, &[left.into_owned(), right.into_owned()], env)
}

fn run(function: &Function, args: &[Expr], values: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Datum> {
    if !function.needs_types() {
        return function.call(env.eval, &[], values);
    }
    let types: SmallVec<[Type; 4]> = args.iter().map(Expr::ty).collect();
    function.call(env.eval, &types, values)
}

fn in_list(needle: &Expr, list: &[Expr], row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Option<bool>> {
    // Those of character(n) are equal with and without the spaces at their ends.
    let padded = needle.ty() == Type::BPCHAR;
    let needle = value(needle, row, env)?;
    if needle.is_null() {
        return Ok(None);
    }
    let mut unknown = false;
    for item in list {
        let item = value(item, row, env)?;
        let equal = match (&*needle, &*item) {
            (Datum::Text(needle), Datum::Text(item)) if padded => {
                compare::compare_bpchar(needle, item).is_eq()
            }
            (needle, item) => compare::equal(needle, item),
        };
        if item.is_null() {
            unknown = true;
        } else if equal {
            return Ok(Some(true));
        }
    }
    Ok(if unknown { None } else { Some(false) })
}

fn any_array(
    left: &Datum,
    left_type: Type,
    function: &Function,
    array: &Datum,
    any: bool,
    env: &EvalEnv<'_>,
) -> SqlResult<Option<bool>> {
    let array = match array {
        Datum::Array(array) => array,
        Datum::Null => return Ok(None),
        _ => return Err(SqlError::internal("ANY over something that is not an array")),
    };
    let mut unknown = false;
    for element in &array.values {
        let truth = if function.strict && (left.is_null() || element.is_null()) {
            None
        } else {
            let types = [left_type, array.element];
            as_bool(&function.call(env.eval, &types, &[left.clone(), element.clone()])?)?
        };
        match truth {
            Some(truth) if truth == any => return Ok(Some(any)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(!any) })
}

/// An array of values; of arrays of equal shape, if `nested`, one dimension more.
fn array_of(values: Vec<Datum>, ty: Type, nested: bool) -> SqlResult<Datum> {
    let element = ty.element().unwrap_or(Type::TEXT);
    if !nested {
        return Ok(Datum::array(element, values));
    }
    let unequal = || {
        SqlError::new(
            SqlState::ARRAY_SUBSCRIPT,
            "multidimensional arrays must have array expressions with matching dimensions",
        )
    };
    let outer = values.len();
    let mut shape: Option<Vec<(usize, i32)>> = None;
    let mut all = Vec::new();
    for value in &values {
        let (dimensions, elements) = match value {
            Datum::Array(inner) => (inner.dimensions.as_slice(), inner.values.as_slice()),
            Datum::Null => (&[][..], &[][..]),
            _ => return Err(SqlError::internal("an array of values that are no arrays")),
        };
        if shape.get_or_insert_with(|| dimensions.to_vec()) != dimensions {
            return Err(unequal());
        }
        all.extend_from_slice(elements);
    }
    let inner = shape.unwrap_or_default();
    if all.is_empty() {
        return Ok(Datum::array(element, Vec::new()));
    }
    let dimensions = std::iter::once((outer, 1)).chain(inner.iter().map(|(len, _)| (*len, 1))).collect();
    Ok(Datum::Array(Arc::new(ArrayValue { element, dimensions, values: all })))
}
