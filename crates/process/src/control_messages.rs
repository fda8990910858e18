//! What SQL nodes and proxies say to control, and control to them.
//!
//! One JSON object a line over mutual TLS. Fields that a receiver does not know are ignored, so that
//! neighbouring versions understand each other; a message type it does not know is an error.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest message, in bytes.
pub const MAX_MESSAGE_LEN: usize = 1 << 20;

/// From a SQL node to control.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromNode {
    /// First message of a connection.
    Register {
        /// Name of the node.
        node: String,
        /// Its process id.
        pid: u32,
        /// Where proxies reach it: `unix:/path` or `host:port`.
        address: String,
        /// The tenant it serves already, after control was restarted.
        tenant: Option<u64>,
    },
    /// It serves the tenant it was assigned.
    Serving,
    /// It cannot serve the tenant it was assigned, and ends.
    Failed {
        /// Why.
        message: String,
    },
    /// It was asked to suspend but has connections.
    Busy,
    /// What it is doing; sent when it changes.
    Status {
        /// Connections open.
        connections: u64,
        /// CPU time used since its start, in milliseconds.
        cpu_ms: u64,
    },
}

/// From control to a SQL node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToNode {
    /// Serve this tenant.
    Assign(Assignment),
    /// End, unless somebody is connected.
    Suspend,
    /// End, whoever is connected.
    Stop,
}

/// Everything a SQL node needs to serve a tenant.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The tenant.
    pub tenant_id: u64,
    /// Its name.
    pub tenant_name: String,
    /// Name of the role that owns it.
    pub owner_role: String,
    /// SCRAM verifier of that role.
    pub owner_verifier: String,
    /// The node's certificate as this tenant.
    pub certificate_pem: String,
    /// The certificate's key.
    pub key_pem: String,
    /// Where KV nodes listen, the one to try first in front.
    pub kv_addresses: Vec<String>,
    /// Settings of the tenant.
    pub settings: BTreeMap<String, String>,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the key nor the verifier may reach a log.
        f.debug_struct("Assignment")
            .field("tenant_id", &self.tenant_id)
            .field("tenant_name", &self.tenant_name)
            .finish()
    }
}

/// From a proxy to control.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromProxy {
    /// Where is this tenant? Wakes it.
    Resolve {
        /// Chosen by the proxy; stands in the answer.
        id: u64,
        /// Name of the tenant.
        tenant: String,
    },
}

/// From control to a proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToProxy {
    /// The tenant is awake.
    Resolved {
        /// Of the question.
        id: u64,
        /// The tenant.
        tenant_id: u64,
        /// Where its SQL node is: `unix:/path` or `host:port`.
        address: String,
        /// Name of the SQL node.
        node: String,
        /// Most connections the tenant may have; none: no limit of its own.
        #[serde(default)]
        max_connections: Option<u64>,
        /// Whether it had to be woken.
        #[serde(default)]
        woken: bool,
    },
    /// The tenant cannot be had.
    Error {
        /// Of the question.
        id: u64,
        /// What went wrong.
        code: ResolveError,
        /// For the client.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A SQL node is gone: forget it.
    Gone {
        /// Its name.
        node: String,
    },
}

/// Why a tenant cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolveError {
    /// There is no such tenant. SQLSTATE 3D000.
    UnknownTenant,
    /// No SQL node could be started for it. SQLSTATE 57P03.
    StartFailed,
    /// Too many tenants are waking up. SQLSTATE 53300.
    Overloaded,
    /// The tenant's record cannot be read. SQLSTATE 57P03.
    Unavailable,
}

impl ResolveError {
    /// The SQLSTATE a client gets.
    pub fn sqlstate(self) -> &'static str {
        match self {
            ResolveError::UnknownTenant => "3D000",
            ResolveError::StartFailed | ResolveError::Unavailable => "57P03",
            ResolveError::Overloaded => "53300",
        }
    }
}

/// Reads one message; `None` at the end of the stream. Not safe to drop half way: a message that was
/// read in part is lost.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is too long or not a message.
pub async fn read_message<M: DeserializeOwned>(
    input: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<M>> {
    let mut line = Vec::new();
    let count = input.take(MAX_MESSAGE_LEN as u64 + 1).read_until(b'\n', &mut line).await?;
    if count == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        let what = if count > MAX_MESSAGE_LEN { "message too long" } else { "message cut off" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let message = serde_json::from_slice(&line)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("malformed message: {error}")))?;
    Ok(Some(message))
}

/// Writes one message and flushes.
///
/// # Errors
/// If it cannot be written.
pub async fn write_message(
    output: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line).await?;
    output.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_round_trip_and_garbage_is_an_error() {
        let message = ToProxy::Resolved {
            id: 1,
            tenant_id: 2,
            address: "unix:/x".into(),
            node: "sql-1".into(),
            max_connections: None,
            woken: true,
        };
        let mut bytes = Vec::new();
        write_message(&mut bytes, &message).await.unwrap();
        bytes.extend_from_slice(b"{\"type\":\"gone\",\"node\":\"sql-1\",\"later\":1}\nnonsense\n{\"type\":");
        let mut input = &bytes[..];
        assert_eq!(read_message(&mut input).await.unwrap(), Some(message));
        assert_eq!(read_message(&mut input).await.unwrap(), Some(ToProxy::Gone { node: "sql-1".into() }));
        assert!(read_message::<ToProxy>(&mut input).await.is_err());
        assert!(read_message::<ToProxy>(&mut input).await.is_err());
        assert!(read_message::<ToProxy>(&mut input).await.unwrap().is_none());
        let long = vec![b' '; MAX_MESSAGE_LEN + 10];
        assert!(read_message::<ToProxy>(&mut &long[..]).await.is_err());
    }

    #[test]
    fn an_assignment_keeps_its_secrets_out_of_logs() {
        let assignment = Assignment {
            tenant_id: 1,
            tenant_name: "t".into(),
            owner_role: "o".into(),
            owner_verifier: "verifier-secret".into(),
            certificate_pem: String::new(),
            key_pem: "key-secret".into(),
            kv_addresses: Vec::new(),
            settings: BTreeMap::new(),
        };
        assert!(!format!("{assignment:?}").contains("secret"));
    }
}
