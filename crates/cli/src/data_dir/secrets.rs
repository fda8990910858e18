//! Certificates and the token of a data directory.

use super::{Paths, write_atomically};
use crate::error::{Failure, Outcome};
use process::identity::Identity;
use process::tls::{Authority, CertificatePem, TlsError};
use rand::distr::{Alphanumeric, SampleString};
use std::path::Path;

/// Certificates every system has.
const ROLES: [(&str, Identity); 4] = [
    ("kv", Identity::Kv),
    ("control", Identity::Control),
    ("proxy", Identity::Proxy),
    ("warm", Identity::Warm),
];
/// The certificate clients see.
const PUBLIC: &str = "server";
/// Names it is valid for, besides those asked for.
const PUBLIC_NAMES: [&str; 4] = ["localhost", "*.localhost", "127.0.0.1", "::1"];
/// Characters of a token: 238 bits.
const TOKEN_LEN: usize = 40;

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::File { path, source } => Failure::io("use", Path::new(&path), &source),
            other => Failure::new(other.to_string()).hint("\"dormouse cert\" makes certificates."),
        }
    }
}

/// Makes what is missing of all secrets.
pub(super) fn create_all(paths: &Paths) -> Outcome {
    create_certificates(&paths.certs(), &[])?;
    if !paths.token().exists() {
        write_atomically(&paths.token(), random_token().as_bytes(), 0o600)?;
    }
    Ok(())
}

/// A new token.
fn random_token() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), TOKEN_LEN)
}

/// Makes the authority and all certificates that are missing; returns the names of those made.
pub(crate) fn create_certificates(directory: &Path, public_names: &[String]) -> Outcome<Vec<String>> {
    let mut made = Vec::new();
    if !exists(directory, "ca") {
        Authority::create()?.pem().save(directory, "ca")?;
        made.push("ca".to_owned());
    }
    made.extend(create_role_certificates(directory, !made.is_empty(), public_names)?);
    Ok(made)
}

/// Makes the roles' certificates that are missing, or all of them anew.
pub(crate) fn create_role_certificates(
    directory: &Path,
    anew: bool,
    public_names: &[String],
) -> Outcome<Vec<String>> {
    let authority = Authority::from_pem(CertificatePem::load(directory, "ca")?)?;
    let mut made = Vec::new();
    for (name, identity) in ROLES {
        if anew || !exists(directory, name) {
            authority.issue(identity)?.save(directory, name)?;
            made.push(name.to_owned());
        }
    }
    if anew || !exists(directory, PUBLIC) || !public_names.is_empty() {
        let names = PUBLIC_NAMES.iter().map(ToString::to_string).chain(public_names.iter().cloned());
        authority.issue_public(names.collect())?.save(directory, PUBLIC)?;
        made.push(PUBLIC.to_owned());
    }
    Ok(made)
}

/// The key is written first, so where the certificate is, both are.
fn exists(directory: &Path, name: &str) -> bool {
    directory.join(format!("{name}.pem")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_made_and_what_is_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let made = create_certificates(directory.path(), &[]).unwrap();
        assert_eq!(made, ["ca", "kv", "control", "proxy", "warm", "server"]);
        std::fs::remove_file(directory.path().join("proxy.pem")).unwrap();
        assert_eq!(create_certificates(directory.path(), &[]).unwrap(), ["proxy"]);
        let names = ["db.example.org".to_owned()];
        assert_eq!(create_certificates(directory.path(), &names).unwrap(), ["server"]);
        std::fs::remove_file(directory.path().join("ca.pem")).unwrap();
        assert_eq!(
            create_certificates(directory.path(), &[]).unwrap().len(),
            6,
            "nothing fits a new authority"
        );
    }
}
