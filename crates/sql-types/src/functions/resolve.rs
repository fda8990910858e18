//! Overload resolution as PostgreSQL does it (`func_select_candidate` and its kin): exact matches,
//! then implicit casts, preferred types, and the rules for untyped literals; then polymorphic types.

use super::registry;
use super::{AggregateFunction, Function, SetFunction, WindowFunction};
use crate::cast::{self, can_coerce};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Type;

/// The outcome of [`resolve`] and [`resolve_operator`].
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The overload.
    pub function: &'static Function,
    /// What each argument must be cast to (implicitly).
    pub arg_types: Vec<Type>,
    /// Type of the result.
    pub returns: Type,
}

/// The outcome of [`resolve_aggregate`].
#[derive(Clone, Debug)]
pub struct ResolvedAggregate {
    /// The overload.
    pub function: &'static AggregateFunction,
    /// What each argument must be cast to (implicitly).
    pub arg_types: Vec<Type>,
    /// Type of the result.
    pub returns: Type,
}

/// The outcome of [`resolve_window`].
#[derive(Clone, Debug)]
pub struct ResolvedWindow {
    /// The overload.
    pub function: &'static WindowFunction,
    /// What each argument must be cast to (implicitly).
    pub arg_types: Vec<Type>,
    /// Type of the result.
    pub returns: Type,
}

/// The outcome of [`resolve_set_function`].
#[derive(Clone, Debug)]
pub struct ResolvedSet {
    /// The overload.
    pub function: &'static SetFunction,
    /// What each argument must be cast to (implicitly).
    pub arg_types: Vec<Type>,
    /// Names and types of the columns.
    pub columns: Vec<(String, Type)>,
}

/// What resolution needs to know of an overload.
struct Candidate<T: 'static> {
    entry: &'static T,
    /// The declared types, variadic ones repeated to the length of the call.
    args: Vec<Type>,
    variadic: bool,
}

fn candidate<T>(entry: &'static T, declared: &[Type], variadic: bool, count: usize) -> Option<Candidate<T>> {
    if !variadic {
        return (declared.len() == count).then(|| Candidate { entry, args: declared.to_vec(), variadic });
    }
    let (&repeated, fixed) = declared.split_last()?;
    (count > fixed.len()).then(|| {
        let mut args = fixed.to_vec();
        args.resize(count, repeated);
        Candidate { entry, args, variadic }
    })
}

/// Picks the overload of a scalar function.
pub fn resolve(name: &str, types: &[Type]) -> SqlResult<Resolved> {
    let candidates = registry::functions(name)
        .iter()
        .filter(|function| !function.spreads)
        .filter_map(|function| candidate(*function, function.args, function.variadic, types.len()))
        .collect();
    let (function, arg_types, returns) = pick(candidates, types, |f| f.returns, &Call::Function(name))?;
    Ok(Resolved { function, arg_types, returns })
}

/// Picks the overload of a scalar function called with `VARIADIC` before its last argument.
pub fn resolve_variadic(name: &str, types: &[Type]) -> SqlResult<Resolved> {
    let candidates = registry::functions(name)
        .iter()
        .filter(|function| function.spreads)
        .filter_map(|function| candidate(*function, function.args, false, types.len()))
        .collect();
    let (function, arg_types, returns) = pick(candidates, types, |f| f.returns, &Call::Function(name))?;
    Ok(Resolved { function, arg_types, returns })
}

/// Picks an operator; `left` is `None` for a prefix operator.
pub fn resolve_operator(symbol: &str, left: Option<Type>, right: Type) -> SqlResult<Resolved> {
    let symbol = if symbol == "!=" { "<>" } else { symbol };
    let entries = registry::operators(symbol);
    let types: Vec<Type> = left.into_iter().chain([right]).collect();
    // An untyped literal beside a typed operand is first taken to be of the same type.
    if let [left, right] = types[..]
        && (left == Type::UNKNOWN) != (right == Type::UNKNOWN)
    {
        let same = if left == Type::UNKNOWN { right } else { left };
        if let Some(function) = entries.iter().find(|entry| entry.args == [same, same]) {
            return Ok(Resolved { function, arg_types: vec![same, same], returns: function.returns });
        }
    }
    let candidates = entries
        .iter()
        .filter_map(|function| candidate(*function, function.args, false, types.len()))
        .collect();
    let (function, arg_types, returns) = pick(candidates, &types, |f| f.returns, &Call::Operator(symbol))?;
    Ok(Resolved { function, arg_types, returns })
}

/// Picks the overload of an aggregate. Ordered-set aggregates take their direct arguments and then
/// the ORDER BY expressions.
pub fn resolve_aggregate(name: &str, types: &[Type]) -> SqlResult<ResolvedAggregate> {
    let candidates = registry::aggregates(name)
        .iter()
        .filter_map(|function| candidate(*function, function.args, false, types.len()))
        .collect();
    let (function, arg_types, returns) = pick(candidates, types, |f| f.returns, &Call::Function(name))?;
    Ok(ResolvedAggregate { function, arg_types, returns })
}

/// Picks the overload of a pure window function.
pub fn resolve_window(name: &str, types: &[Type]) -> SqlResult<ResolvedWindow> {
    let candidates = registry::window_functions(name)
        .iter()
        .filter_map(|function| candidate(*function, function.args, false, types.len()))
        .collect();
    let (function, arg_types, returns) = pick(candidates, types, |f| f.returns, &Call::Function(name))?;
    Ok(ResolvedWindow { function, arg_types, returns })
}

/// Picks the overload of a set-returning function.
pub fn resolve_set_function(name: &str, types: &[Type]) -> SqlResult<ResolvedSet> {
    let candidates = registry::set_functions(name)
        .iter()
        .filter_map(|function| candidate(*function, function.args, function.variadic, types.len()))
        .collect();
    let (function, arg_types, _) = pick(candidates, types, |_| Type::RECORD, &Call::Function(name))?;
    let declared = candidate(function, function.args, function.variadic, types.len())
        .map_or_else(Vec::new, |candidate| candidate.args);
    let bindings = Bindings::of(&declared, &arg_types)?;
    let columns = function
        .columns
        .iter()
        .map(|(name, ty)| Ok((name.to_string(), bindings.apply(*ty)?)))
        .collect::<SqlResult<Vec<_>>>()?;
    Ok(ResolvedSet { function, arg_types, columns })
}

/// What is being resolved, for messages.
enum Call<'a> {
    Function(&'a str),
    Operator(&'a str),
}

/// Functions that PostgreSQL has and this registry has not: refused by name.
const REFUSED_FUNCTIONS: &[&str] = &[
    "normalize",
    "plainto_tsquery",
    "sha224",
    "to_ascii",
    "to_tsquery",
    "to_tsvector",
    "ts_rank",
    "unistr",
    "websearch_to_tsquery",
    "xpath",
];

impl Call<'_> {
    fn signature(&self, types: &[Type]) -> String {
        match self {
            Call::Function(name) => {
                let list: Vec<String> = types.iter().map(Type::to_string).collect();
                format!("{name}({})", list.join(", "))
            }
            Call::Operator(symbol) => match types {
                [left, right] => format!("{left} {symbol} {right}"),
                [right] => format!("{symbol} {right}"),
                _ => symbol.to_string(),
            },
        }
    }

    fn missing(&self, types: &[Type]) -> SqlError {
        if let Call::Function(name) = self
            && REFUSED_FUNCTIONS.contains(name)
        {
            return SqlError::unsupported(format!("function {name}()"));
        }
        let signature = self.signature(types);
        let (message, what) = match self {
            Call::Function(_) => (format!("function {signature} does not exist"), "function"),
            Call::Operator(_) => (format!("operator does not exist: {signature}"), "operator"),
        };
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(format!(
            "No {what} matches the given name and argument types. You might need to add explicit type casts."
        ))
    }

    fn ambiguous(&self, types: &[Type]) -> SqlError {
        let signature = self.signature(types);
        let (message, what) = match self {
            Call::Function(_) => (format!("function {signature} is not unique"), "function"),
            Call::Operator(_) => (format!("operator is not unique: {signature}"), "operator"),
        };
        SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message).with_hint(format!(
            "Could not choose a best candidate {what}. You might need to add explicit type casts."
        ))
    }
}

fn pick<T>(
    candidates: Vec<Candidate<T>>,
    types: &[Type],
    returns: fn(&T) -> Type,
    call: &Call<'_>,
) -> SqlResult<(&'static T, Vec<Type>, Type)> {
    let chosen = select(candidates, types, call)?;
    let bindings = Bindings::of(&chosen.args, types)?;
    let arg_types = chosen
        .args
        .iter()
        .zip(types)
        .map(|(declared, actual)| bindings.argument(*declared, *actual))
        .collect::<SqlResult<Vec<Type>>>()?;
    let returns = bindings.apply(returns(chosen.entry))?;
    Ok((chosen.entry, arg_types, returns))
}

fn select<T>(mut candidates: Vec<Candidate<T>>, types: &[Type], call: &Call<'_>) -> SqlResult<Candidate<T>> {
    if let Some(exact) = candidates.iter().position(|candidate| candidate.args == types) {
        return Ok(candidates.swap_remove(exact));
    }
    candidates.retain(|candidate| {
        candidate.args.iter().zip(types).all(|(target, actual)| accepts(*target, *actual))
            && Bindings::consistent(&candidate.args, types)
    });
    // A variadic overload stands back behind a plain one with the same types.
    if candidates.iter().any(|candidate| !candidate.variadic) {
        let plain: Vec<Vec<Type>> =
            candidates.iter().filter(|c| !c.variadic).map(|c| c.args.clone()).collect();
        candidates.retain(|candidate| !candidate.variadic || !plain.contains(&candidate.args));
    }
    if candidates.is_empty() {
        return Err(call.missing(types));
    }
    keep_best(&mut candidates, |candidate| {
        candidate.args.iter().zip(types).filter(|(target, actual)| target == actual).count()
    });
    if candidates.len() > 1 {
        keep_best(&mut candidates, |candidate| {
            let known = candidate.args.iter().zip(types).filter(|(_, ty)| **ty != Type::UNKNOWN);
            known
                .filter(|(target, actual)| {
                    target == actual || (target.is_preferred() && target.category() == actual.category())
                })
                .count()
        });
    }
    if candidates.len() > 1 && types.contains(&Type::UNKNOWN) {
        by_literal_categories(&mut candidates, types);
        if candidates.len() > 1 {
            by_same_known_type(&mut candidates, types);
        }
    }
    if candidates.len() > 1 {
        return Err(call.ambiguous(types));
    }
    candidates.pop().ok_or_else(|| call.missing(types))
}

fn accepts(target: Type, actual: Type) -> bool {
    match target {
        Type::ANYARRAY | Type::ANYCOMPATIBLEARRAY => {
            actual == Type::UNKNOWN || actual.element().is_some() || actual == target
        }
        Type::ANYNONARRAY | Type::ANYCOMPATIBLENONARRAY => actual.element().is_none(),
        Type::ANYENUM => actual.is_enum() || actual == Type::UNKNOWN,
        Type::ANY | Type::ANYELEMENT | Type::ANYCOMPATIBLE => true,
        _ => can_coerce(actual, target),
    }
}

fn keep_best<T>(candidates: &mut Vec<Candidate<T>>, score: impl Fn(&Candidate<T>) -> usize) {
    let best = candidates.iter().map(&score).max().unwrap_or(0);
    candidates.retain(|candidate| score(candidate) == best);
}

/// For each literal, settles on a category (string if any overload takes a string) and drops the
/// overloads of another category, or that do not take the category's preferred type if some does.
fn by_literal_categories<T>(candidates: &mut Vec<Candidate<T>>, types: &[Type]) {
    let mut slots: Vec<Option<(char, bool)>> = vec![None; types.len()];
    for (index, ty) in types.iter().enumerate() {
        if *ty != Type::UNKNOWN {
            continue;
        }
        let offered: Vec<Type> = candidates.iter().map(|candidate| candidate.args[index]).collect();
        let first = offered[0].category();
        let category = if offered.iter().any(|ty| ty.category() == 'S') {
            'S'
        } else if offered.iter().all(|ty| ty.category() == first) {
            first
        } else {
            return;
        };
        let preferred = offered.iter().any(|ty| ty.category() == category && ty.is_preferred());
        slots[index] = Some((category, preferred));
    }
    let fits = |candidate: &Candidate<T>| {
        slots.iter().zip(&candidate.args).all(|(slot, ty)| match slot {
            Some((category, preferred)) => ty.category() == *category && (!preferred || ty.is_preferred()),
            None => true,
        })
    };
    if candidates.iter().any(fits) {
        candidates.retain(fits);
    }
}

/// If all typed arguments have one type, literals are taken to have it too; decides if exactly one
/// overload accepts that.
fn by_same_known_type<T>(candidates: &mut Vec<Candidate<T>>, types: &[Type]) {
    let mut known = types.iter().filter(|ty| **ty != Type::UNKNOWN);
    let Some(&first) = known.next() else { return };
    if known.any(|ty| *ty != first) {
        return;
    }
    let all = vec![first; types.len()];
    let fits = |candidate: &Candidate<T>| {
        candidate.args.iter().all(|target| accepts(*target, first))
            && Bindings::consistent(&candidate.args, &all)
    };
    if candidates.iter().filter(|candidate| fits(candidate)).count() == 1 {
        candidates.retain(fits);
    }
}

/// What the polymorphic types of a signature stand for in one call.
struct Bindings {
    /// `anyelement`, if the signature has its family and the call fixes it.
    exact: Option<Type>,
    /// `anycompatible`.
    compatible: Option<Type>,
}

impl Bindings {
    fn consistent(declared: &[Type], actual: &[Type]) -> bool {
        Bindings::of(declared, actual).is_ok()
    }

    fn of(declared: &[Type], actual: &[Type]) -> SqlResult<Bindings> {
        let mut bindings = Bindings { exact: None, compatible: None };
        let mut compatible = Vec::new();
        let mut has_compatible = false;
        for (declared, actual) in declared.iter().zip(actual) {
            has_compatible |= declared.is_polymorphic_compatible();
            if *actual == Type::UNKNOWN {
                continue;
            }
            match *declared {
                Type::ANYELEMENT | Type::ANYNONARRAY | Type::ANYENUM => {
                    bindings.bind_exact(*actual)?;
                }
                Type::ANYARRAY => bindings.bind_exact(element_of(*actual)?)?,
                Type::ANYCOMPATIBLE | Type::ANYCOMPATIBLENONARRAY => compatible.push(*actual),
                Type::ANYCOMPATIBLEARRAY => compatible.push(element_of(*actual)?),
                _ => {}
            }
        }
        // An enum type cannot be made up for a literal.
        if declared.contains(&Type::ANYENUM) && bindings.exact.is_none() {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                "could not determine polymorphic type anyenum because input has type unknown",
            ));
        }
        if has_compatible {
            let common =
                if compatible.is_empty() { Some(Type::TEXT) } else { cast::common_type(&compatible) };
            bindings.compatible = Some(common.ok_or_else(|| {
                SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    "arguments of anycompatible family cannot be cast to a common type",
                )
            })?);
        }
        Ok(bindings)
    }

    fn bind_exact(&mut self, ty: Type) -> SqlResult<()> {
        match self.exact.replace(ty) {
            Some(before) if before != ty => Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                "arguments declared \"anyelement\" are not all alike",
            )
            .with_detail(format!("{before} versus {ty}"))),
            _ => Ok(()),
        }
    }

    /// What an argument is cast to.
    fn argument(&self, declared: Type, actual: Type) -> SqlResult<Type> {
        match declared {
            // PostgreSQL takes an untyped literal for "any" as text.
            Type::ANY => Ok(if actual == Type::UNKNOWN { Type::TEXT } else { actual }),
            Type::ANYARRAY if actual.element().is_some() => Ok(actual),
            _ => self.apply(declared),
        }
    }

    fn apply(&self, ty: Type) -> SqlResult<Type> {
        let undetermined = || {
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                "could not determine polymorphic type because input has type unknown",
            )
        };
        let array = |element: Type| {
            element.array().ok_or_else(|| {
                SqlError::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("could not find array type for data type {element}"),
                )
            })
        };
        match ty {
            Type::ANYELEMENT | Type::ANYNONARRAY | Type::ANYENUM => self.exact.ok_or_else(undetermined),
            Type::ANYARRAY => array(self.exact.ok_or_else(undetermined)?),
            Type::ANYCOMPATIBLE | Type::ANYCOMPATIBLENONARRAY => self.compatible.ok_or_else(undetermined),
            Type::ANYCOMPATIBLEARRAY => array(self.compatible.ok_or_else(undetermined)?),
            other => Ok(other),
        }
    }
}

fn element_of(ty: Type) -> SqlResult<Type> {
    ty.element().ok_or_else(|| {
        SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!("argument declared anyarray is not an array but type {ty}"),
        )
    })
}
