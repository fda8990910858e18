//! The connection to control: registers the node, receives its tenant, reports what it is doing.
//!
//! Control may be away at any time. The node goes on serving and registers again when control is back,
//! naming the tenant it serves.

use crate::config::Config;
use crate::node::Node;
use kv_client::KvClient;
use process::control_messages::{Assignment, FromNode, ToNode, read_message, write_message};
use process::metrics::Usage;
use process::tls::{self, CertificatePem};
use sql::engine::{Engine, TenantInfo};
use sql::exec::NodeBudget;
use sql::exec::spill::Spill;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

/// First and longest pause between attempts to reach control.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Changes are reported at most this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Messages from control that wait to be handled.
const QUEUE: usize = 16;

/// How a connection to control ended.
enum End {
    /// The node is to end.
    Node,
    /// Only the connection ended.
    Connection,
}

/// Keeps the connection until the node is to end.
pub async fn run(config: &Config, node: &Arc<Node>) {
    let mut pause = RETRY_FIRST;
    loop {
        match connect_and_serve(config, node, &mut pause).await {
            Ok(End::Node) => return,
            Ok(End::Connection) => tracing::info!("control closed the connection"),
            Err(error) => tracing::debug!(%error, "no connection to control"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MOST);
    }
}

async fn connect_and_serve(config: &Config, node: &Arc<Node>, pause: &mut Duration) -> io::Result<End> {
    let stream = TcpStream::connect(config.control).await?;
    stream.set_nodelay(true)?;
    let tls = TlsConnector::from(config.control_tls.clone()).connect(tls::internal_name(), stream).await?;
    let (reader, mut writer) = tokio::io::split(tls);
    let register = FromNode::Register {
        node: config.node.clone(),
        pid: std::process::id(),
        address: format!("unix:{}", config.socket.display()),
        tenant: node.tenant_id(),
    };
    write_message(&mut writer, &register).await?;
    *pause = RETRY_FIRST;
    // Reading has a task of its own, since a message must not be dropped half way.
    let (sender, mut messages) = mpsc::channel(QUEUE);
    let reading = tokio::spawn(async move {
        let mut reader = BufReader::with_capacity(4 << 10, reader);
        while let Ok(Some(message)) = read_message::<ToNode>(&mut reader).await {
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    let end = exchange(config, node, &mut writer, &mut messages).await;
    reading.abort();
    end
}

async fn exchange(
    config: &Config,
    node: &Arc<Node>,
    writer: &mut (impl AsyncWrite + Unpin),
    messages: &mut mpsc::Receiver<ToNode>,
) -> io::Result<End> {
    // A node that registers again says at once whether anybody is connected.
    let mut reported = None;
    loop {
        let serving = node.tenant_id().is_some();
        let connections = node.connections() as u64;
        if serving && reported != Some(connections) {
            let cpu_ms = Usage::cpu_ms_of_self();
            write_message(writer, &FromNode::Status { connections, cpu_ms }).await?;
            reported = Some(connections);
        }
        let changed = async {
            node.changed.notified().await;
            // The first and the last connection are news at once; in between once a second will do.
            if node.connections() > 0 && reported.is_some_and(|count| count > 0) {
                tokio::time::sleep(REPORT_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            message = messages.recv() => match message {
                None => return Ok(End::Connection),
                Some(ToNode::Assign(assignment)) => match assign(config, node, assignment).await {
                    Ok(()) => write_message(writer, &FromNode::Serving).await?,
                    Err(message) => {
                        tracing::error!(message, "cannot serve the tenant");
                        write_message(writer, &FromNode::Failed { message }).await?;
                        return Ok(End::Node);
                    }
                },
                Some(ToNode::Suspend) if node.connections() > 0 => write_message(writer, &FromNode::Busy).await?,
                Some(ToNode::Suspend | ToNode::Stop) => return Ok(End::Node),
            },
            () = changed => {}
        }
    }
}

/// Where statements put what does not fit into memory; none if that cannot be.
fn spill(config: &Config) -> Option<Spill> {
    let opened = Spill::open(&config.spill_directory(), Spill::DEFAULT_BYTES);
    opened.inspect_err(|error| tracing::warn!("nothing can be spilled: {error}")).ok()
}

async fn assign(config: &Config, node: &Arc<Node>, assignment: Assignment) -> Result<(), String> {
    if node.tenant_id().is_some() {
        return Err("this node serves a tenant already".into());
    }
    let own = CertificatePem { certificate: assignment.certificate_pem, key: assignment.key_pem };
    let tls = tls::internal_client(&config.ca_pem, &own).map_err(|error| error.to_string())?;
    let kv = KvClient::connect(kv_client::Config::new(
        assignment.kv_addresses,
        tls,
        kv_api::TenantId(assignment.tenant_id),
    ));
    let tenant = TenantInfo {
        id: assignment.tenant_id,
        name: assignment.tenant_name,
        owner_role: assignment.owner_role,
        owner_verifier: assignment.owner_verifier,
    };
    let memory = NodeBudget::new(NodeBudget::DEFAULT_BYTES, spill(config));
    let engine =
        Engine::open_within(Arc::new(kv), tenant, memory).await.map_err(|error| error.to_string())?;
    tracing::info!(tenant = engine.tenant().id, name = engine.tenant().name, "serving");
    node.assign(engine);
    Ok(())
}
