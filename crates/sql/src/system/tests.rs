use super::*;
use sql_types::Type;

#[test]
fn every_table_has_columns_of_known_types() {
    assert!(tables::all().len() > 150);
    for table in tables::all() {
        assert!(!table.columns().is_empty(), "{}", table.full_name);
        assert!(table.columns().iter().all(|(_, ty)| ty.info().is_some()), "{}", table.full_name);
    }
    let class = reference("pg_catalog", "pg_class").unwrap();
    assert_eq!(class.oid, 1259);
    assert_eq!(class.columns[1], ("relname", Type::NAME));
    assert!(reference("pg_catalog", "no_such_table").is_none());
}

#[test]
fn reserved_words_need_quotes() {
    assert!(is_reserved_word("select"));
    assert!(is_reserved_word("user"));
    assert!(!is_reserved_word("name"));
}

#[test]
fn built_in_types_agree_with_the_type_registry() {
    for ty in builtin::types() {
        let info = Type(ty.oid).info().unwrap();
        assert_eq!((info.name, info.len), (ty.name, ty.len));
        // PostgreSQL counts arrays of pseudo-types among the pseudo-types.
        assert!(info.category == ty.category || ty.kind == 'p', "{}", ty.name);
        assert_eq!(info.array.0, if info.array.0 == 0 { 0 } else { ty.array }, "{}", ty.name);
    }
    assert_ne!(builtin::default_opclass(Type::INT4), 0);
    assert_ne!(builtin::default_opclass(Type::VARCHAR), 0);
}
