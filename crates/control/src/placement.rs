//! How the ranges of a tenant are kept: how many replicas, on which nodes, for how long.
//!
//! Nodes say where they stand in `key=value` pairs, and a placement wishes for such pairs. Whether there are
//! nodes that fulfil the wish is the KV layer's business; here it is only checked to be one.

use kv_api::batch::RangeConfig;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Replicas that a range may have.
pub const REPLICAS: RangeInclusive<u32> = 1..=7;
/// How long replaced versions may be kept.
pub const GC_TTL: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 86_400);
/// Most constraints, and most lease preferences.
pub const MOST_PAIRS: usize = 16;
/// Longest pair, in bytes.
pub const LONGEST_PAIR: usize = 255;

/// How the ranges of a tenant are kept; what is absent follows the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Replicas to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// `key=value` pairs of which every node with a replica has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// `key=value` pairs, the dearest first: the lease goes to a node that has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lease_preferences: Vec<String>,
    /// How long replaced versions are kept, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc_ttl_s: Option<u64>,
}

/// Why a placement cannot be. Always the fault of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No pair at all.
    #[error("\"{0}\" is not KEY=VALUE, as in region=eu-west")]
    NotAPair(String),
    /// A key or a value with other characters, or none.
    #[error("\"{word}\" in \"{pair}\" must be letters, digits, \"-\", \"_\" or \".\"")]
    Word {
        /// The key or value.
        word: String,
        /// Where it stands.
        pair: String,
    },
    /// A pair that no node could have.
    #[error("a KEY=VALUE pair has at most {LONGEST_PAIR} bytes")]
    TooLong,
    /// More pairs than [`MOST_PAIRS`].
    #[error("there can be at most {MOST_PAIRS} {0}")]
    TooMany(&'static str),
    /// A node has one value of a key, so two constraints on it cannot both hold.
    #[error("two constraints on \"{0}\" cannot both hold")]
    Contradiction(String),
    /// A preference that is there already.
    #[error("the lease preference \"{0}\" is given twice")]
    Twice(String),
    /// A number of replicas outside [`REPLICAS`].
    #[error("a range has {least} to {most} replicas, not {0}", least = REPLICAS.start(), most = REPLICAS.end())]
    Replicas(u32),
    /// A time outside [`GC_TTL`].
    #[error("replaced versions are kept for one minute to 30 days, not for {0} s")]
    GcTtl(u64),
}

/// Reads a `key=value` pair.
///
/// # Errors
/// What is wrong with the text.
pub fn pair(text: &str) -> Result<(&str, &str), PlacementError> {
    if text.len() > LONGEST_PAIR {
        return Err(PlacementError::TooLong);
    }
    let (key, value) = text.split_once('=').ok_or_else(|| PlacementError::NotAPair(text.to_owned()))?;
    for word in [key, value] {
        if word.is_empty() || !word.bytes().all(is_plain) {
            return Err(PlacementError::Word { word: word.to_owned(), pair: text.to_owned() });
        }
    }
    Ok((key, value))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

impl Placement {
    /// Whether everything follows the cluster.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every part of it.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn check(&self) -> Result<(), PlacementError> {
        if let Some(replicas) = self.replicas.filter(|replicas| !REPLICAS.contains(replicas)) {
            return Err(PlacementError::Replicas(replicas));
        }
        if let Some(ttl) = self.gc_ttl_s.filter(|ttl| !GC_TTL.contains(&Duration::from_secs(*ttl))) {
            return Err(PlacementError::GcTtl(ttl));
        }
        check_constraints(&self.constraints)?;
        check_preferences(&self.lease_preferences)
    }

    /// The form the KV layer takes, where 0 is a default.
    pub fn range_config(&self) -> RangeConfig {
        RangeConfig {
            replicas: self.replicas.unwrap_or(0),
            constraints: self.constraints.clone(),
            lease_preferences: self.lease_preferences.clone(),
            gc_ttl_s: self.gc_ttl_s.unwrap_or(0),
            ..RangeConfig::default()
        }
    }
}

impl From<RangeConfig> for Placement {
    fn from(config: RangeConfig) -> Self {
        Placement {
            replicas: (config.replicas != 0).then_some(config.replicas),
            constraints: config.constraints,
            lease_preferences: config.lease_preferences,
            gc_ttl_s: (config.gc_ttl_s != 0).then_some(config.gc_ttl_s),
        }
    }
}

fn check_constraints(constraints: &[String]) -> Result<(), PlacementError> {
    if constraints.len() > MOST_PAIRS {
        return Err(PlacementError::TooMany("constraints"));
    }
    let mut keys = Vec::with_capacity(constraints.len());
    for constraint in constraints {
        let (key, _) = pair(constraint)?;
        if keys.contains(&key) {
            return Err(PlacementError::Contradiction(key.to_owned()));
        }
        keys.push(key);
    }
    Ok(())
}

fn check_preferences(preferences: &[String]) -> Result<(), PlacementError> {
    if preferences.len() > MOST_PAIRS {
        return Err(PlacementError::TooMany("lease preferences"));
    }
    let mut seen: Vec<&String> = Vec::with_capacity(preferences.len());
    for preference in preferences {
        pair(preference)?;
        if seen.contains(&preference) {
            return Err(PlacementError::Twice(preference.clone()));
        }
        seen.push(preference);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn pairs_are_read_and_anything_else_is_refused() {
        assert_eq!(pair("region=eu-west"), Ok(("region", "eu-west")));
        assert_eq!(pair("rack=12.3_x"), Ok(("rack", "12.3_x")));
        for bad in ["", "zone", "zone=", "=a", "a=b=c", "zone=a,rack=1", "zone=a b", "zöne=a", "+zone=a"] {
            assert!(pair(bad).is_err(), "{bad:?}");
        }
        assert_eq!(pair(&format!("zone={}", "x".repeat(LONGEST_PAIR))), Err(PlacementError::TooLong));
    }

    #[test]
    fn placements_that_cannot_be_are_refused() {
        let with = |constraints: &[&str], preferences: &[&str]| Placement {
            constraints: texts(constraints),
            lease_preferences: texts(preferences),
            ..Placement::default()
        };
        assert_eq!(Placement::default().check(), Ok(()));
        assert_eq!(with(&["region=eu", "zone=a"], &["zone=a", "zone=b"]).check(), Ok(()));
        let contradiction = Err(PlacementError::Contradiction("zone".into()));
        assert_eq!(with(&["zone=a", "zone=b"], &[]).check(), contradiction);
        assert_eq!(with(&[], &["zone=a", "zone=a"]).check(), Err(PlacementError::Twice("zone=a".into())));
        let many: Vec<String> = (0..=MOST_PAIRS).map(|number| format!("key{number}=x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(with(&many, &[]).check(), Err(PlacementError::TooMany("constraints")));
        assert_eq!(with(&[], &many).check(), Err(PlacementError::TooMany("lease preferences")));
        for replicas in [0, 8] {
            let placement = Placement { replicas: Some(replicas), ..Placement::default() };
            assert_eq!(placement.check(), Err(PlacementError::Replicas(replicas)));
        }
        for ttl in [0, 59, 30 * 86_400 + 1, u64::MAX] {
            let placement = Placement { gc_ttl_s: Some(ttl), ..Placement::default() };
            assert_eq!(placement.check(), Err(PlacementError::GcTtl(ttl)));
        }
        let widest = Placement { replicas: Some(7), gc_ttl_s: Some(30 * 86_400), ..Placement::default() };
        assert_eq!(widest.check(), Ok(()));
    }

    #[test]
    fn what_is_absent_is_zero_for_the_kv_layer() {
        assert_eq!(Placement::default().range_config(), RangeConfig::default());
        let placement =
            Placement { replicas: Some(5), constraints: texts(&["zone=a"]), ..Placement::default() };
        assert_eq!(Placement::from(placement.range_config()), placement);
    }
}
