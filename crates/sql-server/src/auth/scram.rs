//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.
//!
//! A pure state machine: [`ScramServer::start`] takes the client's first message and the server's
//! random nonce, [`ScramServer::finish`] the second. A role that does not exist is played through
//! with a made-up verifier ([`Verifier::mock`]) so that a client cannot tell it from a wrong password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac};
use std::fmt;
use subtle::ConstantTimeEq;

/// What `pg_authid.rolpassword` holds: enough to check a password, not to know it.
#[derive(Clone)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The client's message is not SCRAM. SQLSTATE 08P01.
    #[error("malformed SCRAM message")]
    Malformed,
    /// The client wants channel binding, which was not offered. SQLSTATE 08P01.
    #[error("client requires SCRAM channel binding, but it is not supported")]
    ChannelBinding,
    /// The password is wrong. SQLSTATE 28P01.
    #[error("password authentication failed")]
    WrongPassword,
}

impl Verifier {
    /// Reads PostgreSQL's form: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
    pub fn parse(text: &str) -> Option<Verifier> {
        let (parameters, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        Some(Verifier {
            iterations: iterations.parse().ok().filter(|count| *count > 0)?,
            salt: BASE64.decode(salt).ok()?,
            stored_key: BASE64.decode(stored_key).ok()?.try_into().ok()?,
            server_key: BASE64.decode(server_key).ok()?.try_into().ok()?,
        })
    }

    /// A verifier that no password satisfies; the same for the same role and secret, as a real one
    /// would be.
    pub fn mock(role: &str, node_secret: &[u8]) -> Verifier {
        let key = hmac::Key::new(hmac::HMAC_SHA256, node_secret);
        let salt = hmac::sign(&key, role.as_bytes()).as_ref()[..16].to_vec();
        Verifier { iterations: 4096, salt, stored_key: [0; 32], server_key: [0; 32] }
    }
}

/// An exchange between its two client messages.
pub struct ScramServer {
    verifier: Verifier,
    gs2_header: String,
    nonce: String,
    /// client-first-message-bare "," server-first-message "," (the client's final part follows)
    transcript: String,
    mock: bool,
}

impl ScramServer {
    /// Takes the client's first message; `nonce` is the server's own part: random, printable, no
    /// comma. Returns the exchange and the server's first message.
    ///
    /// # Errors
    /// [`ScramError::Malformed`] and [`ScramError::ChannelBinding`].
    pub fn start(
        client_first: &[u8],
        verifier: Option<Verifier>,
        mock: Verifier,
        nonce: &str,
    ) -> Result<(ScramServer, String), ScramError> {
        let text = std::str::from_utf8(client_first).map_err(|_| ScramError::Malformed)?;
        let mut parts = text.splitn(3, ',');
        let (binding, authzid) = (parts.next(), parts.next());
        let bare = parts.next().ok_or(ScramError::Malformed)?;
        match binding {
            Some("n" | "y") => {}
            Some(other) if other.starts_with("p=") => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Malformed),
        }
        if authzid != Some("") {
            return Err(ScramError::Malformed);
        }
        let gs2_header = text[..text.len() - bare.len()].to_string();
        let mut fields = bare.split(',');
        if !fields.next().is_some_and(|name| name.starts_with("n=")) {
            return Err(ScramError::Malformed);
        }
        let client_nonce =
            fields.next().and_then(|field| field.strip_prefix("r=")).filter(|nonce| !nonce.is_empty());
        let nonce = format!("{}{nonce}", client_nonce.ok_or(ScramError::Malformed)?);
        let is_mock = verifier.is_none();
        let verifier = verifier.unwrap_or(mock);
        let server_first = format!("r={nonce},s={},i={}", BASE64.encode(&verifier.salt), verifier.iterations);
        let transcript = format!("{bare},{server_first},");
        Ok((ScramServer { verifier, gs2_header, nonce, transcript, mock: is_mock }, server_first))
    }

    /// Takes the client's second message and returns the server's last.
    ///
    /// # Errors
    /// [`ScramError::Malformed`], and [`ScramError::WrongPassword`] if the proof is wrong.
    pub fn finish(self, client_final: &[u8]) -> Result<String, ScramError> {
        let text = std::str::from_utf8(client_final).map_err(|_| ScramError::Malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut fields = without_proof.split(',');
        let binding =
            fields.next().and_then(|field| field.strip_prefix("c=")).ok_or(ScramError::Malformed)?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(ScramError::Malformed)?;
        let binding = BASE64.decode(binding).map_err(|_| ScramError::Malformed)?;
        if binding != self.gs2_header.as_bytes() || nonce != self.nonce {
            return Err(ScramError::Malformed);
        }
        let proof: [u8; 32] =
            BASE64.decode(proof).ok().and_then(|proof| proof.try_into().ok()).ok_or(ScramError::Malformed)?;
        let auth_message = format!("{}{without_proof}", self.transcript);
        let signature = sign(&self.verifier.stored_key, auth_message.as_bytes());
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let matches: bool = stored_key.as_ref().ct_eq(&self.verifier.stored_key).into();
        if !matches || self.mock {
            return Err(ScramError::WrongPassword);
        }
        Ok(format!("v={}", BASE64.encode(sign(&self.verifier.server_key, auth_message.as_bytes()))))
    }
}

fn sign(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    let mut out = [0; 32];
    out.copy_from_slice(tag.as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3, for user `user` and password `pencil`.
    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn started(verifier: Option<Verifier>) -> (ScramServer, String) {
        ScramServer::start(CLIENT_FIRST, verifier, Verifier::mock("user", b"secret"), SERVER_NONCE).unwrap()
    }

    #[test]
    fn the_example_of_the_rfc_succeeds() {
        let (server, first) = started(Verifier::parse(VERIFIER));
        assert_eq!(
            first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        assert_eq!(
            server.finish(CLIENT_FINAL.as_bytes()),
            Ok("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_string())
        );
    }

    #[test]
    fn a_wrong_proof_and_an_unknown_role_fail_alike() {
        let wrong = CLIENT_FINAL.replace("dHzb", "dHzc");
        assert_eq!(
            started(Verifier::parse(VERIFIER)).0.finish(wrong.as_bytes()),
            Err(ScramError::WrongPassword)
        );
        assert_eq!(started(None).0.finish(CLIENT_FINAL.as_bytes()), Err(ScramError::WrongPassword));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let mock = || Verifier::mock("u", b"s");
        for first in [&b""[..], b"n", b"n,,", b"x,,n=,r=a", b"n,a=b,n=,r=a", b"n,,r=a", b"n,,n=,r=", b"\xff"]
        {
            assert_eq!(ScramServer::start(first, None, mock(), "n").err(), Some(ScramError::Malformed));
        }
        assert_eq!(
            ScramServer::start(b"p=tls-server-end-point,,n=,r=a", None, mock(), "n").err(),
            Some(ScramError::ChannelBinding)
        );
        for last in ["", "c=biws", "c=biws,r=other,p=AAAA", "c=!,r=x,p=AAAA"] {
            assert_eq!(started(None).0.finish(last.as_bytes()), Err(ScramError::Malformed));
        }
        assert!(Verifier::parse("SCRAM-SHA-256$0:AA==$AA==:AA==").is_none());
    }
}
