//! ALTER TABLE … SET (dormouse.…): where the contents of a table are kept, and who serves them.
//!
//! ```sql
//! ALTER TABLE orders SET (dormouse.constraints = 'region=eu', dormouse.lease_preferences = 'zone=a,zone=b');
//! ALTER TABLE currencies SET (dormouse.global = true);
//! ALTER TABLE orders RESET (dormouse.constraints);
//! ```
//!
//! The descriptor says what is wanted. The KV layer is told when the transaction has committed ([`tell`]): the keys of
//! the table, its indexes among them, are a span there that is kept otherwise than the tenant. TRUNCATE and what
//! writes a table anew give it other keys, so all spans are compared with all tables after every schema change where
//! there is any such table. What cannot be told then is told after the next one.
//!
//! A span that says how many replicas there are, or how long versions are kept, was set by the control plane and is
//! left alone.

use super::DdlContext;
use super::tokens::Cursor;
use crate::catalog::CatalogSnapshot;
use crate::catalog::descriptor::{TableDescriptor, TablePlacement};
use crate::table::codec::storage_span;
use kv_api::key::TENANT_PREFIX_LEN;
use kv_api::{KvResult, Span};
use kv_client::{KvClient, RangeConfig};
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;
use std::collections::BTreeMap;

/// Most pairs that a table may have of a kind, and the longest of them.
const MOST_PAIRS: usize = 8;
const LONGEST_PAIR: usize = 255;

/// A storage parameter that is to be changed; without a value it is as if it had never been set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacementChange {
    name: String,
    value: Option<String>,
}

/// The parameters in the parentheses of SET or RESET that are about placement; others have no effect here.
pub(super) fn changes(c: &mut Cursor) -> SqlResult<Vec<PlacementChange>> {
    c.expect_token(&Token::LParen)?;
    let mut changes = Vec::new();
    loop {
        let mut name = c.ident()?;
        let ours = name == "dormouse" && c.take_token(&Token::Period);
        if ours {
            name = c.ident()?;
        } else if c.take_token(&Token::Period) {
            c.ident()?;
        }
        let value = if c.take_token(&Token::Eq) { Some(value(c)?) } else { None };
        if ours {
            changes.push(PlacementChange { name, value });
        }
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    c.expect_token(&Token::RParen)?;
    Ok(changes)
}

fn value(c: &mut Cursor) -> SqlResult<String> {
    if c.at_string() {
        return c.string();
    }
    match c.word() {
        Some(word) => {
            c.advance();
            Ok(word)
        }
        None => c.number(),
    }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// `key=value` pairs, separated by commas.
fn pairs(name: &str, text: &str) -> SqlResult<Vec<String>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(plain);
    let is_pair =
        |pair: &str| pair.split_once('=').is_some_and(|(key, value)| is_word(key) && is_word(value));
    let pairs: Vec<String> =
        text.split(',').map(|pair| pair.trim().to_owned()).filter(|pair| !pair.is_empty()).collect();
    if let Some(bad) = pairs.iter().find(|pair| !is_pair(pair) || pair.len() > LONGEST_PAIR) {
        return Err(invalid(format!("invalid value for \"dormouse.{name}\": \"{bad}\" is not KEY=VALUE")));
    }
    if pairs.len() > MOST_PAIRS {
        return Err(invalid(format!("at most {MOST_PAIRS} pairs can be given for \"dormouse.{name}\"")));
    }
    Ok(pairs)
}

impl PlacementChange {
    fn apply(&self, placement: &mut TablePlacement) -> SqlResult<()> {
        let text = self.value.as_deref().unwrap_or_default();
        match self.name.as_str() {
            "constraints" => placement.constraints = pairs(&self.name, text)?,
            "lease_preferences" => placement.lease_preferences = pairs(&self.name, text)?,
            "global" => {
                placement.global_reads = match text.to_ascii_lowercase().as_str() {
                    "" | "false" | "off" | "no" | "0" => false,
                    "true" | "on" | "yes" | "1" => true,
                    _ => return Err(invalid(format!("invalid value for \"dormouse.global\": \"{text}\""))),
                }
            }
            other => {
                let message = format!("unrecognized parameter \"dormouse.{other}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, message)
                    .with_hint("There are constraints, lease_preferences and global."));
            }
        }
        Ok(())
    }
}

impl DdlContext<'_> {
    /// SET and RESET of what is about placement.
    pub(super) fn place(&mut self, mut table: TableDescriptor, changes: &[PlacementChange]) -> SqlResult<()> {
        for change in changes {
            change.apply(&mut table.placement)?;
        }
        self.put_table(table).map(|_| ())
    }
}

/// How the keys of tables are to be kept, by storage number; only those that are kept otherwise than the tenant.
fn wanted(catalog: &CatalogSnapshot) -> BTreeMap<u64, RangeConfig> {
    let placed = catalog.tables.values().filter(|table| table.placement != TablePlacement::default());
    placed
        .map(|table| {
            let TablePlacement { constraints, lease_preferences, global_reads } = table.placement.clone();
            let config =
                RangeConfig { constraints, lease_preferences, global_reads, ..RangeConfig::default() };
            (table.storage, config)
        })
        .collect()
}

/// Whether the KV layer must be told of a change of the catalog.
pub(crate) fn matters(before: &CatalogSnapshot, after: &CatalogSnapshot) -> bool {
    !wanted(before).is_empty() || !wanted(after).is_empty()
}

/// The storage number whose keys a span holds, if it holds all of them and nothing else.
fn storage_of(span: &Span) -> Option<u64> {
    let mut rest = &span.start[..];
    let storage = kv_api::encoding::decode_u64(&mut rest)?;
    (storage_span(storage) == *span).then_some(storage)
}

/// Tells the KV layer how tables are to be kept.
///
/// # Errors
/// What keeps it from answering, or from doing so.
pub(crate) async fn tell(kv: &KvClient, catalog: &CatalogSnapshot) -> KvResult<()> {
    let mut wanted = wanted(catalog);
    for known in kv.configured_spans().await? {
        let strip = |key: &bytes::Bytes| key.slice(TENANT_PREFIX_LEN.min(key.len())..);
        let span = Span::new(strip(&known.start), strip(&known.end));
        let Some(storage) = storage_of(&span) else { continue };
        if known.config.replicas != 0 || known.config.gc_ttl_s != 0 {
            wanted.remove(&storage);
            continue;
        }
        match wanted.remove(&storage) {
            Some(config) if config == known.config => {}
            config => kv.configure_span(&span, config).await?,
        }
    }
    for (storage, config) in wanted {
        kv.configure_span(&storage_span(storage), Some(config)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> SqlResult<TablePlacement> {
        let mut placement =
            TablePlacement { constraints: vec!["zone=a".into()], ..TablePlacement::default() };
        changes(&mut Cursor::new(text)?)?.iter().try_for_each(|change| change.apply(&mut placement))?;
        Ok(placement)
    }

    #[test]
    fn parameters_about_placement_are_read_and_others_are_left_alone() {
        let placement = applied(
            "(fillfactor = 70, dormouse.constraints = 'region=eu, rack=1', dormouse.global = true, \
             dormouse.lease_preferences = 'zone=b')",
        );
        let placement = placement.expect("read");
        assert_eq!(placement.constraints, ["region=eu", "rack=1"]);
        assert_eq!((placement.lease_preferences.len(), placement.global_reads), (1, true));
        assert_eq!(
            applied("(dormouse.constraints, dormouse.global)").expect("reset"),
            TablePlacement::default()
        );
        assert_eq!(applied("(autovacuum_enabled = off)").expect("nothing").constraints, ["zone=a"]);
        for bad in ["(dormouse.constraints = 'eu')", "(dormouse.global = maybe)", "(dormouse.replicas = 5)"] {
            assert!(applied(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_keys_of_a_table_are_recognized() {
        assert_eq!(storage_of(&storage_span(77)), Some(77));
        let whole = storage_span(77);
        assert_eq!(storage_of(&Span::new(whole.start.clone(), storage_span(78).end)), None);
        assert_eq!(storage_of(&Span::new(bytes::Bytes::from_static(b"\xff"), whole.end)), None);
    }
}
