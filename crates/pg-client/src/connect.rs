//! Connecting, with TLS as the URL asks for it.
//!
//! `sslmode=require` (and `prefer`) encrypts without looking at the certificate, as libpq does: a fresh
//! cluster signs its own. With `sslrootcert=FILE`, or `sslmode=verify-full`, the certificate and the host
//! name are checked.

use crate::kind::Kind;
use anyhow::{Context, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long to go on trying to connect again.
const RECONNECT_PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long one attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(35);

/// Where and how to connect.
#[derive(Clone)]
pub struct Target {
    config: Config,
    tls: MakeRustlsConnect,
}

/// Ends the connection's task when dropped.
#[derive(Debug)]
pub struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Target {
    /// Reads a URL (`postgresql://…`). Unless it says otherwise the server is told that `application` connects.
    ///
    /// # Errors
    /// If it is malformed, or its root certificate cannot be read.
    pub fn parse(url: &str, application: &str) -> anyhow::Result<Self> {
        let (url, trust) = Trust::take(url)?;
        let mut config = Config::from_str(&url).context("malformed database URL")?;
        config.connect_timeout(CONNECT_TIMEOUT);
        if config.get_application_name().is_none() {
            config.application_name(application);
        }
        Ok(Self { config, tls: MakeRustlsConnect::new(trust.config()?) })
    }

    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn connect(&self) -> Result<(Client, Connection), tokio_postgres::Error> {
        // Its end shows in every later call on the client.
        if self.is_plain() {
            let (client, connection) = self.config.connect(NoTls).await?;
            return Ok((client, Connection(tokio::spawn(async move { drop(connection.await) }))));
        }
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        Ok((client, Connection(tokio::spawn(async move { drop(connection.await) }))))
    }

    /// Whether nothing is encrypted: because nobody wants that, or because there is no host whose name a certificate
    /// could have.
    fn is_plain(&self) -> bool {
        let is_socket = |host: &Host| matches!(host, Host::Unix(_));
        self.config.get_ssl_mode() == SslMode::Disable || self.config.get_hosts().iter().all(is_socket)
    }

    /// Connects, waiting for a server that is not there right now.
    ///
    /// # Errors
    /// If the server refuses for good, or stays away for too long.
    pub async fn reconnect(&self) -> anyhow::Result<(Client, Connection)> {
        let deadline = Instant::now() + RECONNECT_PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let over = Instant::now() >= deadline;
            match timeout(CONNECT_TIMEOUT, self.connect()).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) if over || Kind::of(&error) == Kind::Fatal => return Err(error.into()),
                Err(_) if over => bail!("the server accepts connections but does not answer"),
                Ok(Err(_)) | Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Whom to trust.
#[derive(Debug, PartialEq, Eq)]
enum Trust {
    Anybody,
    RootsIn(String),
}

impl Trust {
    /// Takes what only libpq understands out of a URL.
    fn take(url: &str) -> anyhow::Result<(String, Self)> {
        let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), Self::Anybody)) };
        let (mut rest, mut roots, mut verify) = (Vec::new(), None, false);
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslrootcert", path)) => roots = Some(path.to_owned()),
                Some(("sslmode", "verify-ca" | "verify-full")) => {
                    verify = true;
                    rest.push("sslmode=require");
                }
                Some(("sslmode", "allow")) => rest.push("sslmode=prefer"),
                _ => rest.push(pair),
            }
        }
        let trust = match (roots, verify) {
            (Some(path), _) => Self::RootsIn(path),
            (None, true) => bail!("sslmode=verify-full needs sslrootcert=FILE in the URL"),
            (None, false) => Self::Anybody,
        };
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        Ok((format!("{base}{query}"), trust))
    }

    fn config(&self) -> anyhow::Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let Self::RootsIn(path) = self else {
            let anybody = Arc::new(AnyServer(provider));
            return Ok(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth());
        };
        let mut roots = RootCertStore::empty();
        for certificate in
            CertificateDer::pem_file_iter(path).with_context(|| format!("cannot read {path}"))?
        {
            roots.add(certificate.with_context(|| format!("malformed certificate in {path}"))?)?;
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Encrypts without asking who is there.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libpq_alone_understands_is_taken_out() {
        let (url, trust) =
            Trust::take("postgresql://u:p@h/app.db?sslmode=verify-full&sslrootcert=/ca.pem").unwrap();
        assert_eq!(url, "postgresql://u:p@h/app.db?sslmode=require");
        assert_eq!(trust, Trust::RootsIn("/ca.pem".into()));
        let (url, trust) = Trust::take("postgresql://h/db?sslrootcert=/ca.pem").unwrap();
        assert_eq!((url.as_str(), trust), ("postgresql://h/db", Trust::RootsIn("/ca.pem".into())));
        assert!(Trust::take("postgresql://h/db?sslmode=verify-full").is_err());
        assert_eq!(Trust::take("postgresql://h/db").unwrap().1, Trust::Anybody);
    }

    #[test]
    fn urls_with_tenants_are_understood() {
        for url in [
            "postgresql://dormouse:PW@127.0.0.1:26257/app.postgres?sslmode=require",
            "postgresql://dormouse@localhost/postgres?options=--tenant%3Dapp",
        ] {
            assert!(Target::parse(url, "test").is_ok(), "{url}");
        }
        assert!(Target::parse("postgresql://h/db?sslmode=nonsense", "test").is_err());
    }
}
