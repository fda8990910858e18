//! What an index holds, key by key, against the rows of its table.

use crate::database::{Database, tenant_of};
use kv_api::Span;
use kv_client::{ScanOptions, Txn, TxnOptions};
use sql::catalog::store;
use sql::table::TableCodec;
use std::collections::BTreeMap;

async fn contents(txn: &Txn, span: Span) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut span = Some(span);
    while let Some(rest) = span.take() {
        let page = txn.scan(&rest, ScanOptions::default()).await.expect("a scan");
        found.extend(page.rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        span = page.resume;
    }
    found
}

/// The layout of a table as it is stored now.
async fn layout(db: &mut Database, table: &str) -> TableCodec {
    let oid = db.rows(&format!("SELECT '{table}'::regclass::oid::bigint")).await[0].parse().expect("an OID");
    let kv = db.engine.kv().clone();
    let catalog = store::load(&kv, &tenant_of(&kv)).await.expect("a catalog");
    TableCodec::new(catalog.table(oid).expect("the table").clone()).expect("a layout")
}

/// The storage number of a table: another one once its rows have been written anew.
pub async fn storage(db: &mut Database, table: &str) -> u64 {
    layout(db, table).await.table().storage
}

/// Fails unless every index of a table has the entries of its rows, and no others.
pub async fn indexes_match(db: &mut Database, table: &str) {
    let codec = layout(db, table).await;
    let txn = db.engine.kv().begin(TxnOptions::default());
    let rows = contents(&txn, codec.primary().span()).await;
    for index in codec.secondary() {
        let mut expected = BTreeMap::new();
        for (key, value) in &rows {
            let row = codec.decode_row(key, value).expect("a row");
            for entry in codec.index_entries(index, &row, key).expect("entries") {
                let twice = expected.insert(entry.key.to_vec(), entry.value.to_vec());
                assert!(twice.is_none(), "two rows of {table} have one entry");
            }
        }
        let found = contents(&txn, index.span()).await;
        let missing = expected.keys().filter(|key| !found.contains_key(*key)).count();
        let orphans = found.keys().filter(|key| !expected.contains_key(*key)).count();
        assert_eq!((missing, orphans), (0, 0), "index {} of {table}, {} rows", index.id, rows.len());
        assert_eq!(found, expected);
    }
}

/// How many keys lie under a table and all that ever was an index of it.
pub async fn keys(db: &mut Database, table: &str) -> usize {
    let codec = layout(db, table).await;
    contents(&db.engine.kv().begin(TxnOptions::default()), codec.span()).await.len()
}
