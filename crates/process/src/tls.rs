//! The cluster's certificate authority and everything made of it.
//!
//! One authority signs all certificates of a cluster. Processes prove their role to each other with
//! TLS 1.3 and a certificate each way; the role is the [`Identity`] in it. The proxy's public listener
//! has a certificate of the same authority and asks clients for none.

use crate::identity::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// The name every internal certificate is valid for, and every internal client expects.
pub const INTERNAL_NAME: &str = "node.dormouse.internal";

/// Why certificates could not be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A certificate or key could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// PEM text is not what it should be.
    #[error("malformed PEM: {0}")]
    Pem(String),
    /// A certificate or key does not fit.
    #[error("unusable certificate: {0}")]
    Rustls(#[from] rustls::Error),
    /// The verifier of client certificates could not be made.
    #[error("unusable certificate authority: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct CertificatePem {
    /// The certificate.
    pub certificate: String,
    /// The private key. Never logged.
    pub key: String,
}

impl CertificatePem {
    /// Reads `<name>.pem` and `<name>.key` of a directory.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn load(directory: &Path, name: &str) -> Result<Self, TlsError> {
        Ok(CertificatePem {
            certificate: read(&directory.join(format!("{name}.pem")))?,
            key: read(&directory.join(format!("{name}.key")))?,
        })
    }

    /// Writes `<name>.key` (for the owner alone) and then `<name>.pem` into a directory: where there is a
    /// certificate there is its key.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, directory: &Path, name: &str) -> Result<(), TlsError> {
        write(&directory.join(format!("{name}.key")), &self.key, 0o600)?;
        write(&directory.join(format!("{name}.pem")), &self.certificate, 0o644)
    }
}

/// Reads a PEM file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<String, TlsError> {
    std::fs::read_to_string(path)
        .map_err(|source| TlsError::File { path: path.display().to_string(), source })
}

/// Writes a file whole or not at all, so that a start that is interrupted can be repeated.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let partial = path.with_added_extension("partial");
    let written = || -> io::Result<()> {
        // One that an interrupted start left behind may be readable by others.
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    };
    written().map_err(|source| TlsError::File { path: path.display().to_string(), source })
}

/// The cluster's certificate authority with its key: signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: CertificatePem,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// If a key cannot be made.
    pub fn create() -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "Dormouse cluster CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let pem = CertificatePem { certificate: certificate.pem(), key: key.serialize_pem() };
        Authority::from_pem(pem)
    }

    /// The authority in PEM form.
    ///
    /// # Errors
    /// If the PEM is malformed.
    pub fn from_pem(pem: CertificatePem) -> Result<Self, TlsError> {
        let issuer = Issuer::from_ca_cert_pem(&pem.certificate, KeyPair::from_pem(&pem.key)?)?;
        Ok(Authority { issuer, pem })
    }

    /// The authority's own certificate and key.
    pub fn pem(&self) -> &CertificatePem {
        &self.pem
    }

    /// A certificate for a process with this identity.
    ///
    /// # Errors
    /// If a key cannot be made.
    pub fn issue(&self, identity: Identity) -> Result<CertificatePem, TlsError> {
        let mut params = CertificateParams::new(vec![INTERNAL_NAME.to_string()])?;
        params.subject_alt_names.push(SanType::URI(identity.to_string().try_into()?));
        params.distinguished_name.push(DnType::CommonName, identity.to_string());
        self.sign(params)
    }

    /// A certificate for the public listener, valid for these host names and addresses.
    ///
    /// # Errors
    /// If a name is malformed or a key cannot be made.
    pub fn issue_public(&self, names: Vec<String>) -> Result<CertificatePem, TlsError> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "Dormouse");
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<CertificatePem, TlsError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(CertificatePem { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn parse(pem: &CertificatePem) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let malformed = |error: rustls::pki_types::pem::Error| TlsError::Pem(error.to_string());
    let chain = CertificateDer::pem_slice_iter(pem.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(malformed)?;
    let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(malformed)?;
    Ok((chain, key))
}

fn roots(ca_pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.map_err(|error| TlsError::Pem(error.to_string()))?)?;
    }
    Ok(roots)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// For a listener that other processes of the cluster connect to: TLS 1.3, certificates both ways.
///
/// # Errors
/// If a certificate is unusable.
pub fn internal_server(ca_pem: &str, own: &CertificatePem) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca_pem)?), provider()).build()?;
    let (chain, key) = parse(own)?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

/// For connecting to another process of the cluster: TLS 1.3, certificates both ways.
///
/// # Errors
/// If a certificate is unusable.
pub fn internal_client(ca_pem: &str, own: &CertificatePem) -> Result<Arc<ClientConfig>, TlsError> {
    let (chain, key) = parse(own)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(ca_pem)?)
        .with_client_auth_cert(chain, key)?;
    // One connection for a process's life: tickets would only take memory.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// For the public PostgreSQL listener: TLS 1.2 and 1.3, no client certificate.
///
/// # Errors
/// If the certificate is unusable.
pub fn public_server(own: &CertificatePem) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = parse(own)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // PostgreSQL 17 clients that skip the SSLRequest announce the protocol.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(Arc::new(config))
}

/// The name internal clients connect to.
pub fn internal_name() -> ServerName<'static> {
    // A constant that is a valid name; the test below would show otherwise.
    ServerName::try_from(INTERNAL_NAME).unwrap_or(ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()))
}

/// The identity in the certificate that a peer presented; `None` if it presented none, or one without
/// exactly one valid identity.
pub fn peer_identity(connection: &rustls::CommonState) -> Option<Identity> {
    identity_of(connection.peer_certificates()?.first()?)
}

/// The identity in a certificate.
pub fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let identity = uris.next()?.parse().ok()?;
    uris.next().is_none().then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_carries_its_identity() {
        let authority = Authority::create().unwrap();
        for identity in [Identity::Tenant(42), Identity::Kv] {
            let issued = authority.issue(identity).unwrap();
            let (chain, _) = parse(&issued).unwrap();
            assert_eq!(identity_of(&chain[0]), Some(identity));
        }
        let public = authority.issue_public(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        assert_eq!(identity_of(&parse(&public).unwrap().0[0]), None);
        assert!(matches!(internal_name(), ServerName::DnsName(_)));
    }

    #[test]
    fn files_come_back_and_keys_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("dormouse-tls-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let issued = Authority::create().unwrap().issue(Identity::Proxy).unwrap();
        for _ in 0..2 {
            issued.save(&directory, "proxy").unwrap();
        }
        let loaded = CertificatePem::load(&directory, "proxy").unwrap();
        assert_eq!((&loaded.certificate, &loaded.key), (&issued.certificate, &issued.key));
        let mode = |name: &str| std::fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("proxy.key"), 0o600);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2, "nothing partial is left");
        assert!(CertificatePem::load(&directory, "kv").is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[tokio::test]
    async fn peers_of_one_authority_know_each_other_and_strangers_are_refused() {
        let (authority, stranger) = (Authority::create().unwrap(), Authority::create().unwrap());
        let ca = authority.pem().certificate.clone();
        let server = internal_server(&ca, &authority.issue(Identity::Kv).unwrap()).unwrap();
        for (signer, trusted) in [(&authority, true), (&stranger, false)] {
            let client = internal_client(&ca, &signer.issue(Identity::Tenant(3)).unwrap()).unwrap();
            let (near, far) = tokio::io::duplex(64 << 10);
            let connect = tokio_rustls::TlsConnector::from(client).connect(internal_name(), near);
            let accept = tokio_rustls::TlsAcceptor::from(server.clone()).accept(far);
            let (_, accepted) = tokio::join!(connect, accept);
            let seen = accepted.ok().and_then(|stream| peer_identity(stream.get_ref().1));
            assert_eq!(seen, trusted.then_some(Identity::Tenant(3)));
        }
    }
}
