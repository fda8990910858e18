//! Names of tenants.
//!
//! A tenant's name is also a DNS label (TLS server name), the first part of a database name and part of
//! a URL, so it is what all three accept without quoting: a lower-case letter, then up to 62 of `a-z`,
//! `0-9` and `-`.

use std::fmt;

/// Longest name: one DNS label.
pub const MAX_NAME_LEN: usize = 63;

/// A well-formed name of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantName(Box<str>);

/// Why a text is no name for a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("a tenant's name cannot be empty")]
    Empty,
    /// More than [`MAX_NAME_LEN`] characters.
    #[error("a tenant's name has at most {MAX_NAME_LEN} characters")]
    TooLong,
    /// It must begin with a letter.
    #[error("a tenant's name begins with one of a-z")]
    FirstCharacter,
    /// A character that is not allowed.
    #[error("a tenant's name consists of a-z, 0-9 and -, which {0:?} is not")]
    Character(char),
    /// It means something else in lists of ranges. Only new tenants are refused for it.
    #[error("no tenant can be called {0:?}: lists of ranges mean something else by it")]
    Reserved(&'static str),
}

/// What lists of ranges call the cluster's own range, and the control plane's tenant.
const RESERVED: [&str; 2] = ["cluster", "system"];

impl TenantName {
    /// Checks a name.
    ///
    /// # Errors
    /// Which rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let first = text.chars().next().ok_or(NameError::Empty)?;
        let allowed = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
        if let Some(bad) = text.chars().find(|c| !allowed(c)) {
            return Err(NameError::Character(bad));
        }
        if !first.is_ascii_lowercase() {
            return Err(NameError::FirstCharacter);
        }
        if text.len() > MAX_NAME_LEN {
            return Err(NameError::TooLong);
        }
        Ok(Self(text.into()))
    }

    /// Checks the name of a new tenant.
    ///
    /// # Errors
    /// Which rule the text breaks.
    pub fn parse_new(text: &str) -> Result<Self, NameError> {
        match RESERVED.into_iter().find(|reserved| *reserved == text) {
            Some(reserved) => Err(NameError::Reserved(reserved)),
            None => Self::parse(text),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_that_begin_with_a_letter() {
        for good in ["a", "app", "my-app-2", &"x".repeat(63)] {
            assert_eq!(TenantName::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(TenantName::parse_new("system"), Err(NameError::Reserved("system")));
        assert!(TenantName::parse_new("systems").is_ok());
        assert_eq!(TenantName::parse(""), Err(NameError::Empty));
        assert_eq!(TenantName::parse(&"x".repeat(64)), Err(NameError::TooLong));
        assert_eq!(TenantName::parse("-a"), Err(NameError::FirstCharacter));
        assert_eq!(TenantName::parse("9a"), Err(NameError::FirstCharacter));
        for bad in ["App", "a_b", "a.b", "a b", "ä", "a\0"] {
            assert!(matches!(TenantName::parse(bad), Err(NameError::Character(_))), "{bad:?}");
        }
    }
}
