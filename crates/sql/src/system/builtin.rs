//! What PostgreSQL has built in: types, keywords, operator classes.

use crate::catalog::descriptor::IndexDescriptor;
use crate::inverted::OperatorClass;
use sql_types::{Oid, Type};
use std::collections::HashMap;
use std::sync::LazyLock;

static TYPES: &str = include_str!("data/types.txt");
static KEYWORDS: &str = include_str!("data/keywords.txt");
static OPCLASSES: &str = include_str!("data/opclasses.txt");

/// A line of `pg_type`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuiltinType {
    pub oid: Oid,
    pub name: &'static str,
    pub len: i16,
    pub by_value: bool,
    pub kind: char,
    pub category: char,
    pub preferred: bool,
    pub delimiter: char,
    pub element: Oid,
    pub array: Oid,
    /// Input, output, receive, send, modifier input and output: `name=OID` or `-`.
    pub functions: [&'static str; 6],
    pub align: char,
    pub storage: char,
    pub collation: Oid,
}

fn letter(text: &str) -> char {
    text.chars().next().unwrap_or(' ')
}

fn parse_type(line: &'static str) -> Option<BuiltinType> {
    let f: Vec<&'static str> = line.split(' ').collect();
    let [
        oid,
        name,
        len,
        by_value,
        kind,
        category,
        preferred,
        delimiter,
        element,
        array,
        i,
        o,
        r,
        s,
        mi,
        mo,
        align,
        storage,
        collation,
    ] = f[..]
    else {
        return None;
    };
    Some(BuiltinType {
        oid: oid.parse().ok()?,
        name,
        len: len.parse().ok()?,
        by_value: by_value == "t",
        kind: letter(kind),
        category: letter(category),
        preferred: preferred == "t",
        delimiter: letter(delimiter),
        element: element.parse().ok()?,
        array: array.parse().ok()?,
        functions: [i, o, r, s, mi, mo],
        align: letter(align),
        storage: letter(storage),
        collation: collation.parse().ok()?,
    })
}

/// The types that exist here, sorted by OID.
pub(super) fn types() -> &'static [BuiltinType] {
    static ALL: LazyLock<Vec<BuiltinType>> = LazyLock::new(|| {
        let all = TYPES.lines().filter(|line| !line.starts_with('#')).filter_map(parse_type);
        all.filter(|ty| Type(ty.oid).info().is_some()).collect()
    });
    &ALL
}

/// Whether PostgreSQL has a type of that name, whether or not values of it can be had here.
pub(crate) fn is_type_name(name: &str) -> bool {
    let lines = TYPES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(' ').nth(1)).any(|known| known == name)
}

/// OID of an input or output function by `name=OID`.
pub(super) fn function_oid(function: &str) -> Oid {
    function.split_once('=').and_then(|(_, oid)| oid.parse().ok()).unwrap_or(0)
}

/// The functions that types name, by OID.
pub(super) fn type_functions() -> &'static HashMap<Oid, &'static str> {
    static ALL: LazyLock<HashMap<Oid, &'static str>> = LazyLock::new(|| {
        let functions =
            types().iter().flat_map(|ty| ty.functions).filter_map(|function| function.split_once('='));
        let of_users = [(3506, "enum_in"), (3507, "enum_out"), (3532, "enum_recv"), (3533, "enum_send")];
        let of_domains = [(2597, "domain_in"), (2598, "domain_recv")];
        functions
            .filter_map(|(name, oid)| Some((oid.parse().ok()?, name)))
            .chain(of_users)
            .chain(of_domains)
            .collect()
    });
    &ALL
}

/// A keyword: word, category code, bare label.
pub(super) fn keywords() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    KEYWORDS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut parts = line.split('|');
        Some((parts.next()?, parts.next()?, parts.next()? == "t"))
    })
}

/// Whether a word (in lower case) can name a column or table unquoted.
pub(crate) fn is_column_name(word: &str) -> bool {
    static RESERVED: LazyLock<std::collections::HashSet<&'static str>> = LazyLock::new(|| {
        keywords().filter(|(_, code, _)| matches!(*code, "R" | "T")).map(|(word, ..)| word).collect()
    });
    !RESERVED.contains(word)
}

/// Whether a word must be quoted to be a name.
pub(crate) fn is_reserved_word(word: &str) -> bool {
    static RESERVED: LazyLock<std::collections::HashSet<&'static str>> =
        LazyLock::new(|| keywords().filter(|(_, code, _)| *code != "U").map(|(word, ..)| word).collect());
    RESERVED.contains(word)
}

/// An operator class.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpClass {
    pub oid: Oid,
    pub name: &'static str,
    pub family: Oid,
    pub family_name: &'static str,
    pub input: Oid,
    pub default: bool,
}

/// The operator classes of ordered indexes.
pub(super) fn opclasses() -> &'static [OpClass] {
    static ALL: LazyLock<Vec<OpClass>> = LazyLock::new(|| {
        let lines = OPCLASSES.lines().filter(|line| !line.starts_with('#'));
        let parse = |line: &'static str| {
            let f: Vec<&'static str> = line.split(' ').collect();
            let [oid, name, family, family_name, input, default] = f[..] else { return None };
            Some(OpClass {
                oid: oid.parse().ok()?,
                name,
                family: family.parse().ok()?,
                family_name,
                input: input.parse().ok()?,
                default: default == "t",
            })
        };
        lines.filter_map(parse).collect()
    });
    &ALL
}

/// OID of the access method of ordered indexes, `btree`.
pub(super) const BTREE: Oid = 403;
/// OID of the access method of inverted indexes.
pub(super) const GIN: Oid = 2742;

/// OID of the access method of an index.
pub(super) fn access_method(index: &IndexDescriptor) -> Oid {
    if index.inverted.is_some() { GIN } else { BTREE }
}

/// The operator classes of inverted indexes, with the types of what those keep.
pub(super) fn inverted_opclasses() -> impl Iterator<Item = (OpClass, Oid)> {
    OperatorClass::ALL.into_iter().map(|class| {
        let (oid, family) = class.oids();
        let (name, input) = (class.name(), class.input().0);
        let described = OpClass { oid, name, family, family_name: name, input, default: class.is_default() };
        (described, class.key_type().0)
    })
}

/// The default operator class of a type for ordered indexes.
pub(super) fn default_opclass(ty: Type) -> Oid {
    let wanted = match ty {
        Type::VARCHAR => Type::TEXT.0,
        other if other.element().is_some() => 2277,
        other if other.is_enum() => Type::ANYENUM.0,
        other => other.0,
    };
    opclasses().iter().find(|class| class.input == wanted && class.default).map_or(0, |class| class.oid)
}
