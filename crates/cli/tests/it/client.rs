//! A PostgreSQL driver that trusts the certificate authority of the system it connects to.

use crate::cluster::Cluster;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

/// TLS that checks the proxy's certificate and name.
pub fn tls(cluster: &Cluster) -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    let authority = cluster.data_dir().join("certs/ca.pem");
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    MakeRustlsConnect::new(builder.unwrap().with_root_certificates(roots).with_no_client_auth())
}

/// How to connect with the URL of a tenant. The address in it may be that of an earlier run.
pub fn config(cluster: &Cluster, url: &str) -> Config {
    let (user, rest) = url.split_once('@').unwrap();
    let (_, database) = rest.split_once('/').unwrap();
    format!("{user}@{}/{database}", cluster.addresses()["sql"].as_str().unwrap()).parse().unwrap()
}

/// Connects.
pub async fn connect(cluster: &Cluster, config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(tls(cluster)).await?;
    // Its end shows in every later call on the client.
    tokio::spawn(connection);
    Ok(client)
}
