//! Who a process is.

use std::fmt;
use std::str::FromStr;

/// The identity in a certificate: one URI among its subject alternative names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// `dormouse://tenant/<id>`: a SQL node of this tenant.
    Tenant(u64),
    /// `dormouse://control`
    Control,
    /// `dormouse://proxy`
    Proxy,
    /// `dormouse://warm`: a SQL node that does not know its tenant yet.
    Warm,
    /// `dormouse://kv`
    Kv,
}

/// A URI that names no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a Dormouse identity")]
pub struct InvalidIdentity(String);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Tenant(id) => write!(f, "dormouse://tenant/{id}"),
            Identity::Control => f.write_str("dormouse://control"),
            Identity::Proxy => f.write_str("dormouse://proxy"),
            Identity::Warm => f.write_str("dormouse://warm"),
            Identity::Kv => f.write_str("dormouse://kv"),
        }
    }
}

impl FromStr for Identity {
    type Err = InvalidIdentity;

    fn from_str(uri: &str) -> Result<Self, InvalidIdentity> {
        let invalid = || InvalidIdentity(uri.chars().take(100).collect());
        match uri.strip_prefix("dormouse://").ok_or_else(invalid)? {
            "control" => Ok(Identity::Control),
            "proxy" => Ok(Identity::Proxy),
            "warm" => Ok(Identity::Warm),
            "kv" => Ok(Identity::Kv),
            other => {
                let id = other.strip_prefix("tenant/").ok_or_else(invalid)?;
                // One spelling for each tenant: no sign, no leading zero.
                let parsed: u64 = id.parse().map_err(|_| invalid())?;
                if parsed == 0 || parsed.to_string() != id {
                    return Err(invalid());
                }
                Ok(Identity::Tenant(parsed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_have_one_spelling() {
        for identity in
            [Identity::Tenant(7), Identity::Control, Identity::Proxy, Identity::Warm, Identity::Kv]
        {
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
        for wrong in [
            "",
            "dormouse://",
            "dormouse://tenant/",
            "dormouse://tenant/0",
            "dormouse://tenant/07",
            "dormouse://tenant/+7",
            "dormouse://tenant/7/",
            "DORMOUSE://kv",
            "dormouse://kv/",
        ] {
            assert!(wrong.parse::<Identity>().is_err(), "{wrong}");
        }
    }
}
