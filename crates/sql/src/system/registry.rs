//! `pg_proc` and `pg_operator`, from the function registry.
//!
//! Functions have OIDs of our own: [`FIRST`] and up, in the registry's order, which is by name.

use super::deparse::format_type;
use sql_types::functions::{
    all_aggregates, all_functions, all_operators, all_set_functions, all_window_functions,
};
use sql_types::{ColumnType, Oid, Type};
use std::sync::LazyLock;

/// The first OID given to a function.
const FIRST: Oid = 0x7000_0000;
/// The first OID given to an operator.
const FIRST_OPERATOR: Oid = 0x7100_0000;

/// A function as `pg_proc` shows it.
pub(super) struct Proc {
    pub oid: Oid,
    pub name: &'static str,
    pub args: Vec<Type>,
    pub returns: Type,
    /// `f`, `a` or `w`.
    pub kind: char,
    pub strict: bool,
    pub set: bool,
    pub variadic: bool,
    pub volatility: char,
}

/// All functions.
pub(super) fn functions() -> &'static [Proc] {
    static ALL: LazyLock<Vec<Proc>> = LazyLock::new(|| {
        let mut all: Vec<Proc> = Vec::new();
        let proc_of = |name, args: &[Type], returns, kind| Proc {
            oid: 0,
            name,
            args: args.to_vec(),
            returns,
            kind,
            strict: true,
            set: false,
            variadic: false,
            volatility: 'i',
        };
        for function in all_functions().iter().filter(|function| !function.is_operator() && !function.spreads)
        {
            use sql_types::functions::Volatility;
            all.push(Proc {
                strict: function.strict,
                variadic: function.variadic,
                volatility: match function.volatility {
                    Volatility::Immutable => 'i',
                    Volatility::Stable => 's',
                    Volatility::Volatile => 'v',
                },
                ..proc_of(function.name, function.args, function.returns, 'f')
            });
        }
        all.extend(all_aggregates().iter().map(|f| proc_of(f.name, f.args, f.returns, 'a')));
        all.extend(all_window_functions().iter().map(|f| proc_of(f.name, f.args, f.returns, 'w')));
        for function in all_set_functions() {
            let returns = match function.columns {
                [(_, ty)] => *ty,
                _ => Type::RECORD,
            };
            all.push(Proc {
                set: true,
                strict: function.strict,
                ..proc_of(function.name, function.args, returns, 'f')
            });
        }
        for (number, function) in all.iter_mut().enumerate() {
            function.oid = FIRST + number as Oid;
        }
        all
    });
    &ALL
}

fn by_oid(oid: Oid) -> Option<&'static Proc> {
    functions().get(usize::try_from(oid.checked_sub(FIRST)?).ok()?)
}

/// A function's OID by name: the first of several.
pub(super) fn function_by_name(name: &str) -> Option<Oid> {
    let builtin =
        super::builtin::type_functions().iter().find(|(_, known)| **known == name).map(|(oid, _)| *oid);
    builtin.or_else(|| functions().iter().find(|function| function.name == name).map(|function| function.oid))
}

/// A function's name.
pub(super) fn function_name(oid: Oid) -> Option<&'static str> {
    by_oid(oid).map(|function| function.name)
}

/// `pg_get_function_arguments`
pub(super) fn function_arguments(oid: Oid) -> Option<String> {
    let function = by_oid(oid)?;
    let types: Vec<String> = function.args.iter().map(|ty| format_type(ColumnType::plain(*ty))).collect();
    Some(types.join(", "))
}

/// `pg_get_function_result`
pub(super) fn function_result(oid: Oid) -> Option<String> {
    let function = by_oid(oid)?;
    let ty = format_type(ColumnType::plain(function.returns));
    Some(if function.set { format!("SETOF {ty}") } else { ty })
}

/// The operators: OID, symbol, left (0 for prefix operators) and right type, result.
pub(super) fn operators() -> impl Iterator<Item = (Oid, &'static str, Type, Type, Type)> {
    all_operators().iter().enumerate().filter_map(|(number, operator)| {
        let oid = FIRST_OPERATOR + number as Oid;
        match operator.args {
            [right] => Some((oid, operator.name, Type(0), *right, operator.returns)),
            [left, right] => Some((oid, operator.name, *left, *right, operator.returns)),
            _ => None,
        }
    })
}
