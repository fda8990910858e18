//! PostgreSQL types by OID.

use std::fmt;

/// An object identifier.
pub type Oid = u32;

/// A PostgreSQL type, named by its OID. Built-in types keep PostgreSQL's fixed OIDs. Those of a user's types
/// say what kind of type it is, so that nothing has to be looked up for that: see [`Type::user_enum`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Type(pub Oid);

/// What is fixed about a built-in type.
#[derive(Debug, Clone, Copy)]
pub struct TypeInfo {
    /// The type.
    pub ty: Type,
    /// `pg_type.typname`.
    pub name: &'static str,
    /// Name in SQL, as `format_type` prints it.
    pub sql_name: &'static str,
    /// The array type over it, OID 0 if none.
    pub array: Type,
    /// The element type, if it is an array; OID 0 otherwise.
    pub element: Type,
    /// `pg_type.typlen`: bytes, or -1 for variable length.
    pub len: i16,
    /// `pg_type.typcategory`.
    pub category: char,
    /// `pg_type.typispreferred`.
    pub preferred: bool,
}

macro_rules! types {
    ($($const:ident / $array_const:ident = $oid:literal / $array:literal $name:literal / $sql:literal len $len:literal category $category:literal $preferred:literal;)*) => {
        impl Type {
            $(#[doc = concat!("`", $sql, "`")] pub const $const: Type = Type($oid);
              #[doc = concat!("`", $sql, "[]`")] pub const $array_const: Type = Type($array);)*
        }
        /// Every built-in type: scalars first, then arrays.
        pub const BUILT_IN: &[TypeInfo] = &[
            $(TypeInfo { ty: Type($oid), name: $name, sql_name: $sql, array: Type($array), element: Type(0), len: $len, category: $category, preferred: $preferred },)*
            $(TypeInfo { ty: Type($array), name: concat!("_", $name), sql_name: concat!($sql, "[]"), array: Type(0), element: Type($oid), len: -1, category: if $oid == 2249 { 'P' } else { 'A' }, preferred: false },)*
        ];
    };
}

types! {
    BOOL / BOOL_ARRAY = 16 / 1000 "bool" / "boolean" len 1 category 'B' true;
    BYTEA / BYTEA_ARRAY = 17 / 1001 "bytea" / "bytea" len -1 category 'U' false;
    CHAR / CHAR_ARRAY = 18 / 1002 "char" / "\"char\"" len 1 category 'Z' false;
    NAME / NAME_ARRAY = 19 / 1003 "name" / "name" len 64 category 'S' false;
    INT8 / INT8_ARRAY = 20 / 1016 "int8" / "bigint" len 8 category 'N' false;
    INT2 / INT2_ARRAY = 21 / 1005 "int2" / "smallint" len 2 category 'N' false;
    INT4 / INT4_ARRAY = 23 / 1007 "int4" / "integer" len 4 category 'N' false;
    REGPROC / REGPROC_ARRAY = 24 / 1008 "regproc" / "regproc" len 4 category 'N' false;
    TEXT / TEXT_ARRAY = 25 / 1009 "text" / "text" len -1 category 'S' true;
    OID / OID_ARRAY = 26 / 1028 "oid" / "oid" len 4 category 'N' true;
    JSON / JSON_ARRAY = 114 / 199 "json" / "json" len -1 category 'U' false;
    FLOAT4 / FLOAT4_ARRAY = 700 / 1021 "float4" / "real" len 4 category 'N' false;
    FLOAT8 / FLOAT8_ARRAY = 701 / 1022 "float8" / "double precision" len 8 category 'N' true;
    UNKNOWN / UNKNOWN_ARRAY = 705 / 0 "unknown" / "unknown" len -2 category 'X' false;
    BPCHAR / BPCHAR_ARRAY = 1042 / 1014 "bpchar" / "character" len -1 category 'S' false;
    VARCHAR / VARCHAR_ARRAY = 1043 / 1015 "varchar" / "character varying" len -1 category 'S' false;
    DATE / DATE_ARRAY = 1082 / 1182 "date" / "date" len 4 category 'D' false;
    TIME / TIME_ARRAY = 1083 / 1183 "time" / "time without time zone" len 8 category 'D' false;
    TIMESTAMP / TIMESTAMP_ARRAY = 1114 / 1115 "timestamp" / "timestamp without time zone" len 8 category 'D' false;
    TIMESTAMPTZ / TIMESTAMPTZ_ARRAY = 1184 / 1185 "timestamptz" / "timestamp with time zone" len 8 category 'D' true;
    INTERVAL / INTERVAL_ARRAY = 1186 / 1187 "interval" / "interval" len 16 category 'T' true;
    NUMERIC / NUMERIC_ARRAY = 1700 / 1231 "numeric" / "numeric" len -1 category 'N' false;
    UUID / UUID_ARRAY = 2950 / 2951 "uuid" / "uuid" len 16 category 'U' false;
    JSONB / JSONB_ARRAY = 3802 / 3807 "jsonb" / "jsonb" len -1 category 'U' false;
    JSONPATH / JSONPATH_ARRAY = 4072 / 4073 "jsonpath" / "jsonpath" len -1 category 'U' false;
    REGCLASS / REGCLASS_ARRAY = 2205 / 2210 "regclass" / "regclass" len 4 category 'N' false;
    REGTYPE / REGTYPE_ARRAY = 2206 / 2211 "regtype" / "regtype" len 4 category 'N' false;
    REGNAMESPACE / REGNAMESPACE_ARRAY = 4089 / 4090 "regnamespace" / "regnamespace" len 4 category 'N' false;
    REGROLE / REGROLE_ARRAY = 4096 / 4097 "regrole" / "regrole" len 4 category 'N' false;
    XID / XID_ARRAY = 28 / 1011 "xid" / "xid" len 4 category 'U' false;
    INET / INET_ARRAY = 869 / 1041 "inet" / "inet" len -1 category 'I' true;
    RECORD / RECORD_ARRAY = 2249 / 2287 "record" / "record" len -1 category 'P' false;
    VOID / VOID_ARRAY = 2278 / 0 "void" / "void" len 4 category 'P' false;
    INT2VECTOR / INT2VECTOR_ARRAY = 22 / 1006 "int2vector" / "int2vector" len -1 category 'A' false;
    OIDVECTOR / OIDVECTOR_ARRAY = 30 / 1013 "oidvector" / "oidvector" len -1 category 'A' false;
    PG_NODE_TREE / PG_NODE_TREE_ARRAY = 194 / 0 "pg_node_tree" / "pg_node_tree" len -1 category 'Z' false;
    ACLITEM / ACLITEM_ARRAY = 1033 / 1034 "aclitem" / "aclitem" len 12 category 'U' false;
    TID / TID_ARRAY = 27 / 1010 "tid" / "tid" len 6 category 'U' false;
    CID / CID_ARRAY = 29 / 1012 "cid" / "cid" len 4 category 'U' false;
    XID8 / XID8_ARRAY = 5069 / 271 "xid8" / "xid8" len 8 category 'U' false;
    PG_LSN / PG_LSN_ARRAY = 3220 / 3221 "pg_lsn" / "pg_lsn" len 8 category 'U' false;
    REGOPERATOR / REGOPERATOR_ARRAY = 2204 / 2209 "regoperator" / "regoperator" len 4 category 'N' false;
    REGPROCEDURE / REGPROCEDURE_ARRAY = 2202 / 2207 "regprocedure" / "regprocedure" len 4 category 'N' false;
    CSTRING / CSTRING_ARRAY = 2275 / 1263 "cstring" / "cstring" len -2 category 'P' false;
    ANY / ANY_NO_ARRAY = 2276 / 0 "any" / "\"any\"" len 4 category 'P' false;
    ANYARRAY / ANYARRAY_NO_ARRAY = 2277 / 0 "anyarray" / "anyarray" len -1 category 'P' false;
    ANYELEMENT / ANYELEMENT_NO_ARRAY = 2283 / 0 "anyelement" / "anyelement" len 4 category 'P' false;
    ANYNONARRAY / ANYNONARRAY_NO_ARRAY = 2776 / 0 "anynonarray" / "anynonarray" len 4 category 'P' false;
    ANYENUM / ANYENUM_NO_ARRAY = 3500 / 0 "anyenum" / "anyenum" len 4 category 'P' false;
    ANYCOMPATIBLE / ANYCOMPATIBLE_NO_ARRAY = 5077 / 0 "anycompatible" / "anycompatible" len 4 category 'P' false;
    ANYCOMPATIBLEARRAY / ANYCOMPATIBLEARRAY_NO_ARRAY = 5078 / 0 "anycompatiblearray" / "anycompatiblearray" len -1 category 'P' false;
    ANYCOMPATIBLENONARRAY / ANYCOMPATIBLENONARRAY_NO_ARRAY = 5079 / 0 "anycompatiblenonarray" / "anycompatiblenonarray" len 4 category 'P' false;
    INTERNAL / INTERNAL_NO_ARRAY = 2281 / 0 "internal" / "internal" len 8 category 'P' false;
    TRIGGER / TRIGGER_NO_ARRAY = 2279 / 0 "trigger" / "trigger" len 4 category 'P' false;
}

static BUILT_IN_TABLE: &[TypeInfo] = BUILT_IN;

/// Index into [`BUILT_IN`] plus one, by OID; 0 for an OID that is no built-in type.
static BY_OID: [u8; 5100] = {
    let mut table = [0; 5100];
    let mut index = 0;
    while index < BUILT_IN.len() {
        let oid = BUILT_IN[index].ty.0 as usize;
        if oid != 0 {
            table[oid] = index as u8 + 1;
        }
        index += 1;
    }
    table
};

/// Bits of a user's type that tell its kind; the others are a number of its own.
mod kind {
    pub const BITS: u32 = 0xf000_0000;
    pub const ENUM: u32 = 0x4000_0000;
    pub const ENUM_ARRAY: u32 = 0x5000_0000;
    pub const DOMAIN: u32 = 0x6000_0000;
}

/// What stands before the OID of a user's type where its name is not known: see [`Type`]'s `Display`.
pub const TYPE_MARK: &str = "type#";

impl Type {
    /// The enum type with a number of its own; `None` if the number is too large (2^28 or more).
    pub fn user_enum(number: Oid) -> Option<Type> {
        (number & kind::BITS == 0).then_some(Type(kind::ENUM | number))
    }

    /// The domain with a number of its own; `None` if the number is too large (2^28 or more).
    pub fn user_domain(number: Oid) -> Option<Type> {
        (number & kind::BITS == 0).then_some(Type(kind::DOMAIN | number))
    }

    /// Whether it is an enum type.
    pub fn is_enum(self) -> bool {
        self.0 & kind::BITS == kind::ENUM
    }

    /// Whether it is an array of an enum type.
    pub fn is_enum_array(self) -> bool {
        self.0 & kind::BITS == kind::ENUM_ARRAY
    }

    /// Whether it is a domain. Values have the type the domain is over: expressions never have this type.
    pub fn is_domain(self) -> bool {
        self.0 & kind::BITS == kind::DOMAIN
    }

    /// Whether it is an array that is written with `[]`, which the vectors of the catalogs are not.
    pub fn is_plain_array(self) -> bool {
        self.is_enum_array() || self.info().is_some_and(|info| info.name.starts_with('_'))
    }

    /// What is known of a built-in type; `None` for an OID that is not built in.
    pub fn info(self) -> Option<&'static TypeInfo> {
        let slot = *BY_OID.get(self.0 as usize)?;
        BUILT_IN_TABLE.get((slot as usize).checked_sub(1)?)
    }

    /// The element type of an array type.
    pub fn element(self) -> Option<Type> {
        match self {
            Type::INT2VECTOR => Some(Type::INT2),
            Type::OIDVECTOR => Some(Type::OID),
            array if array.is_enum_array() => Some(Type(array.0 ^ kind::ENUM ^ kind::ENUM_ARRAY)),
            _ => self.info().map(|info| info.element).filter(|element| element.0 != 0),
        }
    }

    /// The array type over this one.
    pub fn array(self) -> Option<Type> {
        if self.is_enum() {
            return Some(Type(self.0 ^ kind::ENUM ^ kind::ENUM_ARRAY));
        }
        self.info().map(|info| info.array).filter(|array| array.0 != 0)
    }

    /// Whether values of the type are text of some kind.
    pub fn is_string(self) -> bool {
        matches!(self, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::CHAR)
    }

    /// Whether it is an integer, floating-point or numeric type.
    pub fn is_numeric(self) -> bool {
        matches!(self, Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC)
    }

    /// `pg_type.typcategory`; `U` for a type that is not known.
    pub fn category(self) -> char {
        match self.0 & kind::BITS {
            kind::ENUM => 'E',
            kind::ENUM_ARRAY => 'A',
            _ => self.info().map_or('U', |info| info.category),
        }
    }

    /// Whether it is the preferred type of its category.
    pub fn is_preferred(self) -> bool {
        self.info().is_some_and(|info| info.preferred)
    }

    /// Whether it is one of the polymorphic types a function's signature may name.
    pub fn is_polymorphic(self) -> bool {
        self.is_polymorphic_exact() || self.is_polymorphic_compatible()
    }

    /// Whether it is of the `anyelement` family, whose members must be bound to one type exactly.
    pub fn is_polymorphic_exact(self) -> bool {
        matches!(self, Type::ANYELEMENT | Type::ANYARRAY | Type::ANYNONARRAY | Type::ANYENUM)
    }

    /// Whether it is of the `anycompatible` family, whose members are cast to a common type.
    pub fn is_polymorphic_compatible(self) -> bool {
        matches!(self, Type::ANYCOMPATIBLE | Type::ANYCOMPATIBLEARRAY | Type::ANYCOMPATIBLENONARRAY)
    }

    /// Whether it is one of the types that name a catalog object by its OID.
    pub fn is_reg(self) -> bool {
        matches!(
            self,
            Type::REGPROC
                | Type::REGPROCEDURE
                | Type::REGOPERATOR
                | Type::REGCLASS
                | Type::REGTYPE
                | Type::REGNAMESPACE
                | Type::REGROLE
        )
    }

    /// A type by `pg_type.typname`, SQL name or usual alias (`int`, `decimal`, `serial` is none).
    pub fn by_name(name: &str) -> Option<Type> {
        let alias = match name {
            "int" | "integer" => "int4",
            "smallint" => "int2",
            "bigint" => "int8",
            "boolean" => "bool",
            "real" => "float4",
            "double precision" | "float" => "float8",
            "decimal" | "dec" => "numeric",
            "character varying" => "varchar",
            "character" => "bpchar",
            "timestamp without time zone" => "timestamp",
            "timestamp with time zone" => "timestamptz",
            "time without time zone" => "time",
            other => other,
        };
        BUILT_IN.iter().find(|info| info.name == alias && info.ty.0 != 0).map(|info| info.ty)
    }
}

/// The SQL name. Names of a user's types stand in the catalog: here they show as [`TYPE_MARK`] and the OID, for
/// which [`crate::text::name_types`] puts the name.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.info(), self.element()) {
            (Some(info), _) => f.write_str(info.sql_name),
            (None, Some(element)) => write!(f, "{TYPE_MARK}{}[]", element.0),
            (None, None) => write!(f, "{TYPE_MARK}{}", self.0),
        }
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A type with its modifier, as `atttypid` and `atttypmod` store them: -1 for none; length + 4 for
/// varchar and char; `((precision << 16) | scale) + 4` for numeric; fractional digits for times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ColumnType {
    /// The type.
    pub ty: Type,
    /// The modifier, -1 for none.
    pub typmod: i32,
}

impl ColumnType {
    /// The type without a modifier.
    pub const fn plain(ty: Type) -> Self {
        ColumnType { ty, typmod: -1 }
    }
}

impl From<Type> for ColumnType {
    fn from(ty: Type) -> Self {
        ColumnType::plain(ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_type_tells_its_kind() {
        let color = Type::user_enum(16400).unwrap();
        let array = color.array().unwrap();
        assert!(color.is_enum() && !color.is_domain() && color.category() == 'E');
        assert!(array.is_enum_array() && array.category() == 'A' && array.is_plain_array());
        assert_eq!(array.element(), Some(color));
        assert_eq!((array.array(), color.element()), (None, None));
        assert!(Type::user_domain(16400).unwrap().is_domain());
        assert_eq!(Type::user_enum(1 << 28), None);
        for info in BUILT_IN {
            assert!(!info.ty.is_enum() && !info.ty.is_enum_array() && !info.ty.is_domain());
        }
    }
}
