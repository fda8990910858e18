//! SCRAM-SHA-256 verifiers of passwords, in the form of `pg_authid.rolpassword`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// Rounds of the key derivation, as in PostgreSQL.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// The verifier of a password; a text that is a verifier already is taken as it is.
pub(super) fn verifier(password: &str) -> String {
    if is_verifier(password) {
        return password.to_string();
    }
    let salt: [u8; 16] = rand::random();
    with_salt(password, &salt)
}

fn is_verifier(text: &str) -> bool {
    let Some((iterations, rest)) = text.strip_prefix("SCRAM-SHA-256$").and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let Some((salt, keys)) = rest.split_once('$') else { return false };
    let Some((stored, server)) = keys.split_once(':') else { return false };
    let is_key = |text: &str| STANDARD.decode(text).is_ok_and(|key| key.len() == 32);
    iterations.parse::<u32>().is_ok() && STANDARD.decode(salt).is_ok() && is_key(stored) && is_key(server)
}

fn with_salt(password: &str, salt: &[u8]) -> String {
    let mut salted = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, salt, password.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client_key = hmac::sign(&key, b"Client Key");
    let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
    let server_key = hmac::sign(&key, b"Server Key");
    format!(
        "SCRAM-SHA-256${ITERATIONS}:{}${}:{}",
        STANDARD.encode(salt),
        STANDARD.encode(stored_key.as_ref()),
        STANDARD.encode(server_key.as_ref())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_are_as_rfc_7677_computes_them() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = with_salt("pencil", &salt);
        assert_eq!(
            verifier,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        assert_eq!(super::verifier(&verifier), verifier);
        assert!(!is_verifier("SCRAM-SHA-256$4096:x"));
    }
}
