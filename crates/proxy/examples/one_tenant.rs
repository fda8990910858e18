//! A proxy in front of one server that is already there, for measuring what the proxy itself costs:
//!
//! ```text
//! cargo run --release -p proxy --example one_tenant -- 127.0.0.1:7000 unix:/tmp/pg/.s.PGSQL.5432
//! pgbench -h 127.0.0.1 -p 7000 -S -M prepared -c 8 -j 2 -T 10 app.postgres
//! ```
//!
//! The tenant is called `app`; every other is unknown. Control is played by a few lines below, with a
//! certificate authority made on the spot. A third argument sets the number of worker threads.

use process::control_messages::{FromProxy, ResolveError, ToProxy, read_message, write_message};
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server, public_server};
use proxy::{Config, Proxy};
use std::sync::Arc;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(server)) = (arguments.next(), arguments.next()) else {
        return Err("usage: one_tenant LISTEN SERVER [WORKERS]".into());
    };
    let authority = Authority::create()?;
    let ca = authority.pem().certificate.clone();
    let control = TcpListener::bind("127.0.0.1:0").await?;
    let address = control.local_addr()?.to_string();
    let control_tls = internal_server(&ca, &authority.issue(Identity::Control)?)?;
    tokio::spawn(play_control(control, TlsAcceptor::from(control_tls), server));

    let own = internal_client(&ca, &authority.issue(Identity::Proxy)?)?;
    let mut config = Config::new(listen.parse()?, address, own);
    config.client_tls = Some(public_server(&authority.issue_public(vec!["localhost".into()])?)?);
    config.workers = arguments.next().map_or(Ok(0), |n| n.parse())?;
    Proxy::bind(config)?.serve(std::future::pending()).await?;
    Ok(())
}

async fn play_control(listener: TcpListener, tls: TlsAcceptor, server: String) -> Result<()> {
    let server = Arc::new(server);
    loop {
        let (socket, _) = listener.accept().await?;
        let stream = tls.accept(socket).await?;
        tokio::spawn(answer(stream, Arc::clone(&server)));
    }
}

async fn answer(
    stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    server: Arc<String>,
) -> Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    while let Some(FromProxy::Resolve { id, tenant }) = read_message(&mut reader).await? {
        let answer = if tenant == "app" {
            let (address, node) = (server.to_string(), "only".to_owned());
            ToProxy::Resolved { id, tenant_id: 2, address, node, max_connections: None, woken: false }
        } else {
            let message = format!("tenant \"{tenant}\" does not exist");
            ToProxy::Error { id, code: ResolveError::UnknownTenant, message, hint: None }
        };
        write_message(&mut writer, &answer).await?;
    }
    Ok(())
}
