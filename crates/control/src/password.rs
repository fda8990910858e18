//! Passwords of tenants' owners: made here, returned once, never kept.
//!
//! What is kept is a verifier in PostgreSQL's form,
//! `SCRAM-SHA-256$4096:<salt>$<StoredKey>:<ServerKey>`: enough to check a password, not to know it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rand::RngCore;
use rand::distr::{Alphanumeric, SampleString};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// Iterations of the key derivation, PostgreSQL's default.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// Characters of a password that is made here: 142 bits, nothing that a URL would have to escape.
const PASSWORD_LEN: usize = 24;
/// Bytes of salt, as many as PostgreSQL takes.
const SALT_LEN: usize = 16;

/// A new password.
pub fn random_password() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), PASSWORD_LEN)
}

/// The verifier of `password` with a new salt.
pub fn verifier(password: &str) -> String {
    let mut salt = [0; SALT_LEN];
    rand::rng().fill_bytes(&mut salt);
    verifier_with_salt(password, &salt)
}

fn verifier_with_salt(password: &str, salt: &[u8]) -> String {
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, salt, password.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client_key = hmac::sign(&key, b"Client Key");
    let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
    let server_key = hmac::sign(&key, b"Server Key");
    format!(
        "SCRAM-SHA-256${ITERATIONS}:{}${}:{}",
        BASE64.encode(salt),
        BASE64.encode(stored_key),
        BASE64.encode(server_key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3: its proof and server signature follow from these keys.
    #[test]
    fn agrees_with_the_rfc() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let text = verifier_with_salt("pencil", &salt);
        let keys = text.strip_prefix("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$").unwrap();
        let (stored, server) = keys.split_once(':').unwrap();
        let message = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let server = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(server).unwrap());
        let signature = BASE64.encode(hmac::sign(&server, message));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let stored = BASE64.decode(stored).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &stored);
        let proof = BASE64.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let signature = hmac::sign(&key, message);
        let client_key: Vec<u8> = signature.as_ref().iter().zip(&proof).map(|(a, b)| a ^ b).collect();
        assert_eq!(digest::digest(&digest::SHA256, &client_key).as_ref(), stored);
    }

    #[test]
    fn passwords_and_salts_differ() {
        let (one, two) = (random_password(), random_password());
        assert_ne!(one, two);
        assert_eq!(one.len(), PASSWORD_LEN);
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(verifier(&one), verifier(&one));
    }
}
