use super::*;
use crate::catalog::descriptor::SchemaDescriptor;
use crate::engine::TenantInfo;
use sql_types::SqlState;

fn tenant() -> TenantInfo {
    TenantInfo { id: 2, name: "app".into(), owner_role: "dormouse".into(), owner_verifier: "SCRAM".into() }
}

#[test]
fn a_new_tenant_has_what_postgres_has() {
    let snapshot = CatalogSnapshot::implied(&tenant());
    assert_eq!(snapshot.database("postgres").map(|database| database.oid), Some(oids::POSTGRES));
    assert_eq!(snapshot.schema(oids::POSTGRES, "public").map(|schema| schema.oid), Some(oids::PUBLIC));
    assert!(snapshot.is_superuser(oids::OWNER));
}

#[test]
fn damaged_records_are_errors_of_their_own() {
    for bytes in [&b""[..], b"\x01", b"\x01{", b"\x02{}", b"\x01{\"oid\":1}"] {
        let error = store::decode::<SchemaDescriptor>(bytes).unwrap_err();
        assert_eq!(error.code, SqlState::DATA_CORRUPTED, "{bytes:?}");
    }
    assert_eq!(store::decode_version(Some(b"short")).unwrap_err().code, SqlState::DATA_CORRUPTED);
}

#[test]
fn descriptors_survive_the_store() {
    let snapshot = CatalogSnapshot::implied(&tenant());
    let role = snapshot.roles[&oids::OWNER].clone();
    let bytes = store::encode(&*role).unwrap();
    assert_eq!(store::decode::<descriptor::RoleDescriptor>(&bytes).unwrap(), *role);
}
