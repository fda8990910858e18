//! What is kept of a tenant, and its form on disk.
//!
//! A record is one version byte and then JSON: records are few hundred bytes, read once per wake-up,
//! and a field more must not need a migration. The version changes only when old code would
//! misunderstand new records; unknown versions are refused, never guessed at.

use crate::placement::Placement;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The form written by this version.
const RECORD_VERSION: u8 = 1;

/// The version of the catalog that a new tenant starts with, implied and not copied.
pub const CATALOG_VERSION: u32 = 1;

/// Name of the role that owns a new tenant.
pub const OWNER_ROLE: &str = "dormouse";

/// A tenant.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Its number: the prefix of its keys. Never given twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// Version of the catalog it was created at.
    pub catalog_version: u32,
    /// The first role, a superuser within the tenant.
    pub owner_role: String,
    /// SCRAM-SHA-256 verifier of the first role's password, as in `pg_authid`.
    pub owner_verifier: String,
    /// What differs from the defaults.
    #[serde(default)]
    pub settings: TenantSettings,
}

/// Settings of one tenant; what is absent follows the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSettings {
    /// Suspended after this long without a connection; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// Most connections at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// How its ranges are kept.
    #[serde(default, skip_serializing_if = "Placement::is_default")]
    pub placement: Placement,
}

/// Changes of a tenant's settings. What is absent stays; an inner absence returns to the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// See [`TenantSettings::idle_timeout_ms`].
    pub idle_timeout_ms: Option<Option<u64>>,
    /// See [`TenantSettings::max_connections`].
    pub max_connections: Option<Option<u32>>,
    /// See [`Placement::replicas`].
    pub replicas: Option<Option<u32>>,
    /// See [`Placement::constraints`]. All of them: those of before go.
    pub constraints: Option<Vec<String>>,
    /// See [`Placement::lease_preferences`]. All of them: those of before go.
    pub lease_preferences: Option<Vec<String>>,
    /// See [`Placement::gc_ttl_s`].
    pub gc_ttl_s: Option<Option<u64>>,
}

impl SettingsChange {
    /// Whether it is about how ranges are kept, even if that stays what it was.
    pub fn places(&self) -> bool {
        self.replicas.is_some()
            || self.constraints.is_some()
            || self.lease_preferences.is_some()
            || self.gc_ttl_s.is_some()
    }

    /// The settings after the change.
    pub fn of(self, before: &TenantSettings) -> TenantSettings {
        let placed = before.placement.clone();
        TenantSettings {
            idle_timeout_ms: self.idle_timeout_ms.unwrap_or(before.idle_timeout_ms),
            max_connections: self.max_connections.unwrap_or(before.max_connections),
            placement: Placement {
                replicas: self.replicas.unwrap_or(placed.replicas),
                constraints: self.constraints.unwrap_or(placed.constraints),
                lease_preferences: self.lease_preferences.unwrap_or(placed.lease_preferences),
                gc_ttl_s: self.gc_ttl_s.unwrap_or(placed.gc_ttl_s),
            },
        }
    }
}

impl TenantSettings {
    /// How long the tenant may be idle; `None` is for ever.
    pub fn idle_timeout(&self, default: Option<Duration>) -> Option<Duration> {
        match self.idle_timeout_ms {
            None => default,
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms)),
        }
    }
}

/// The verifier is as good as a password to an offline attacker: it stays out of logs.
impl fmt::Debug for TenantRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantRecord").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why bytes are no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer version of Dormouse.
    #[error("the record has version {0}, this program reads version {RECORD_VERSION}")]
    Version(u8),
    /// Not a record at all.
    #[error("the record is damaged: {0}")]
    Damaged(String),
}

impl TenantRecord {
    /// The form on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![RECORD_VERSION];
        // Strings and integers always have a JSON form, and a vector takes every write.
        let written = serde_json::to_writer(&mut bytes, self);
        debug_assert!(written.is_ok());
        bytes
    }

    /// Reads the form on disk.
    ///
    /// # Errors
    /// If it is of another version or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        match bytes.split_first() {
            Some((&RECORD_VERSION, json)) => {
                serde_json::from_slice(json).map_err(|error| RecordError::Damaged(error.to_string()))
            }
            Some((version, _)) => Err(RecordError::Version(*version)),
            None => Err(RecordError::Damaged("it is empty".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> TenantRecord {
        TenantRecord {
            id: 7,
            name: "app".into(),
            created_unix_s: 1_700_000_000,
            catalog_version: CATALOG_VERSION,
            owner_role: OWNER_ROLE.into(),
            owner_verifier: "SCRAM-SHA-256$4096:c2FsdA==$YQ==:Yg==".into(),
            settings: TenantSettings { idle_timeout_ms: Some(0), ..TenantSettings::default() },
        }
    }

    #[test]
    fn is_read_back_as_written() {
        assert_eq!(TenantRecord::decode(&record().encode()).unwrap(), record());
        let mut placed = record();
        placed.settings.placement = Placement {
            replicas: Some(5),
            constraints: vec!["region=eu".into(), "disk=ssd".into()],
            lease_preferences: vec!["zone=a".into()],
            gc_ttl_s: Some(3600),
        };
        assert_eq!(TenantRecord::decode(&placed.encode()).unwrap(), placed);
    }

    #[test]
    fn a_record_without_placement_follows_the_cluster() {
        let bytes = record().encode();
        assert!(!String::from_utf8_lossy(&bytes).contains("placement"));
        assert!(TenantRecord::decode(&bytes).unwrap().settings.placement.is_default());
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let before = TenantSettings {
            idle_timeout_ms: Some(5),
            max_connections: Some(9),
            placement: Placement {
                replicas: Some(5),
                constraints: vec!["zone=a".into()],
                ..Placement::default()
            },
        };
        assert_eq!(SettingsChange::default().of(&before), before);
        assert!(!SettingsChange::default().places());
        let change =
            SettingsChange { idle_timeout_ms: Some(None), constraints: Some(vec![]), ..Default::default() };
        assert!(change.places());
        let after = change.of(&before);
        assert_eq!((after.idle_timeout_ms, after.max_connections), (None, Some(9)));
        assert_eq!(after.placement, Placement { replicas: Some(5), ..Placement::default() });
    }

    #[test]
    fn other_versions_and_garbage_are_refused() {
        let mut bytes = record().encode();
        bytes[0] = 9;
        assert!(matches!(TenantRecord::decode(&bytes), Err(RecordError::Version(9))));
        assert!(matches!(TenantRecord::decode(&[]), Err(RecordError::Damaged(_))));
        assert!(matches!(TenantRecord::decode(&[1, b'{']), Err(RecordError::Damaged(_))));
    }

    #[test]
    fn the_verifier_is_not_printed() {
        assert!(!format!("{:?}", record()).contains("SCRAM"));
    }

    #[test]
    fn idle_timeouts() {
        let default = Some(Duration::from_secs(300));
        let with = |ms| TenantSettings { idle_timeout_ms: ms, ..TenantSettings::default() };
        assert_eq!(with(None).idle_timeout(default), default);
        assert_eq!(with(Some(0)).idle_timeout(default), None);
        assert_eq!(with(Some(1500)).idle_timeout(default), Some(Duration::from_millis(1500)));
    }
}
