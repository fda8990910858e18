//! Connecting to a KV node.

use super::config::PeerLimits;
use super::error::PeerError;
use process::identity::Identity;
use process::tls::{internal_name, peer_identity};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a connection is silent before the peer's machine is asked whether it is there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Connects to the KV node at an address. The caller bounds the time it takes.
pub(super) async fn dial(
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    limits: &PeerLimits,
) -> Result<TlsStream<TcpStream>, PeerError> {
    let stream = TcpStream::connect(address).await?;
    set_options(&stream, limits)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(internal_name(), stream).await?;
    // A SQL node's certificate is of the same authority and for the same name, and a tenant may control
    // the process that presents it.
    match peer_identity(stream.get_ref().1) {
        Some(Identity::Kv) => Ok(stream),
        _ => Err(PeerError::Refused(format!(
            "the process at {address} has no certificate of a KV node: check the address and that \
             process's certificate"
        ))),
    }
}

/// Small frames go out at once; a peer whose machine or network is gone is noticed.
fn set_options(stream: &TcpStream, limits: &PeerLimits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    // Otherwise the kernel repeats what was written for a quarter of an hour, at ever longer intervals.
    let timeout = u32::try_from(limits.unacknowledged_timeout.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, timeout)?)
}
