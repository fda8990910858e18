//! From the first byte of a connection to an authenticated session.
//!
//! Connections come from a proxy (over a Unix socket or mutual TLS) or directly from clients. A proxy
//! adds startup parameters of its own, all beginning with `_dormouse.`; they are taken out here.

use super::Connection;
use super::io::{ConnectionError, Input, Output};
use crate::auth::scram::{ScramError, ScramServer, Verifier};
use crate::cancel::CancelKey;
use crate::metrics::METRICS;
use crate::node::Node;
use crate::protocol::backend::{self, Severity};
use crate::protocol::frontend::Frontend;
use crate::protocol::reader::Reader;
use crate::protocol::startup::FirstPacket;
use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use rand::Rng;
use sql::session::{Session, SessionParams};
use sql_types::{SqlError, SqlState};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection must be authenticated within this time.
pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Prefix of the startup parameters that a proxy adds.
const PROXY_PREFIX: &str = "_dormouse.";

/// What the first packets led to.
pub enum Opened<R, W> {
    /// A session is wanted; TLS, if any, is already in place.
    Startup {
        /// Reading half.
        input: Input<R>,
        /// Writing half.
        output: Output<W>,
        /// Startup parameters.
        parameters: Vec<(String, String)>,
    },
    /// The client asked for TLS and waits for the first byte of the handshake.
    Tls(R, W),
    /// Nothing more is to be done.
    Done,
}

/// Reads first packets until it is clear what the client wants. `tls` says whether TLS can be had and
/// is not in place yet.
///
/// # Errors
/// If the client goes away or breaks the protocol.
pub async fn first_packets<R, W>(
    reader: R,
    writer: W,
    tls: bool,
    node: &Node,
) -> Result<Opened<R, W>, ConnectionError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut input = Input::new(reader, BytesMut::new());
    let mut output = Output::new(writer);
    // One request for TLS and one for GSSAPI, as libpq sends them; a client that keeps asking is none.
    for _ in 0..3 {
        match input.first_packet().await? {
            FirstPacket::SslRequest if tls => {
                output.buffer.extend_from_slice(b"S");
                output.flush().await?;
                let (reader, buffered) = input.into_parts();
                if !buffered.is_empty() {
                    // Bytes sent before the handshake could have been injected by a third party.
                    return Err(crate::protocol::ProtocolError::new(
                        "received unencrypted data after SSL request",
                    )
                    .into());
                }
                return Ok(Opened::Tls(reader, output.into_parts().0));
            }
            FirstPacket::SslRequest | FirstPacket::GssRequest => {
                output.buffer.extend_from_slice(b"N");
                output.flush().await?;
            }
            FirstPacket::Cancel { process_id, secret } => {
                node.cancels.cancel(process_id, secret);
                return Ok(Opened::Done);
            }
            FirstPacket::Startup { minor, parameters } => {
                let unknown: Vec<&str> = parameters
                    .iter()
                    .map(|(name, _)| name.as_str())
                    .filter(|name| name.starts_with("_pq_."))
                    .collect();
                if minor > 0 || !unknown.is_empty() {
                    backend::negotiate_protocol_version(&mut output.buffer, &unknown);
                }
                return Ok(Opened::Startup { input, output, parameters });
            }
        }
    }
    Err(crate::protocol::ProtocolError::new("too many negotiation requests").into())
}

/// Authenticates and opens the session; sends everything up to, not including, ReadyForQuery.
/// `None` if the client was refused, which it has been told.
///
/// # Errors
/// If the client goes away or breaks the protocol.
pub async fn open_session<R, W>(
    mut input: Input<R>,
    mut output: Output<W>,
    parameters: Vec<(String, String)>,
    key: &CancelKey<'_>,
    node: &Node,
) -> Result<Option<Connection<R, W>>, ConnectionError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let opened = match authenticate(&mut input, &mut output, parameters, key, node).await? {
        Ok(session) => session,
        Err(error) => {
            backend::error(&mut output.buffer, Severity::Fatal, &error);
            output.flush().await?;
            return Ok(None);
        }
    };
    key.attach(opened.cancel_handle());
    backend::authentication_ok(&mut output.buffer);
    for (name, value) in opened.parameter_statuses() {
        backend::parameter_status(&mut output.buffer, &name, &value);
    }
    backend::backend_key_data(&mut output.buffer, key.process_id, key.secret);
    Ok(Some(Connection::new(input, output, opened)))
}

async fn authenticate<R, W>(
    input: &mut Input<R>,
    output: &mut Output<W>,
    parameters: Vec<(String, String)>,
    key: &CancelKey<'_>,
    node: &Node,
) -> Result<Result<Session, SqlError>, ConnectionError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let Requested { user, database, tenant, client_address, settings } = Requested::from(parameters);
    if user.is_empty() {
        return Ok(Err(SqlError::new(
            SqlState::INVALID_AUTHORIZATION,
            "no PostgreSQL user name specified in startup packet",
        )));
    }
    // Learns here, if it is still warm, which tenant it serves.
    let engine = match node.engine().await {
        Ok(engine) => engine,
        Err(error) => return Ok(Err(error)),
    };
    if tenant.is_some_and(|tenant| tenant != engine.tenant().id.to_string()) {
        return Ok(Err(SqlError::new(SqlState::CANNOT_CONNECT_NOW, "this SQL node serves another tenant")));
    }
    let login = match engine.role_login(&user).await {
        Ok(login) => login,
        Err(error) => return Ok(Err(error)),
    };
    let verifier = login.as_ref().and_then(|login| login.verifier.as_deref()).and_then(Verifier::parse);
    if let Err(error) = scram(input, output, &user, verifier, node).await? {
        METRICS.authentication_failures.inc();
        tracing::warn!(user, code = %error.code, "authentication failed");
        return Ok(Err(error));
    }
    if !login.is_some_and(|login| login.can_login) {
        let message = format!("role \"{user}\" is not permitted to log in");
        return Ok(Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message)));
    }
    let database = if database.is_empty() { user.clone() } else { database };
    let params = SessionParams { user, database, settings, process_id: key.process_id, client_address };
    Ok(Session::open(engine, params).await)
}

/// What the startup packet asks for.
#[derive(Default)]
struct Requested {
    user: String,
    database: String,
    tenant: Option<String>,
    client_address: Option<String>,
    settings: Vec<(String, String)>,
}

impl From<Vec<(String, String)>> for Requested {
    fn from(parameters: Vec<(String, String)>) -> Self {
        let mut requested = Requested::default();
        for (name, value) in parameters {
            match (name.as_str(), name.strip_prefix(PROXY_PREFIX)) {
                ("user", _) => requested.user = value,
                ("database", _) => requested.database = value,
                ("options", _) => requested.settings.extend(parse_options(&value)),
                ("replication", _) => {}
                (_, Some("tenant_id")) => requested.tenant = Some(value),
                (_, Some("client_addr")) => requested.client_address = Some(value),
                (_, Some(_)) => {}
                (other, None) if other.starts_with("_pq_.") => {}
                _ => requested.settings.push((name, value)),
            }
        }
        requested
    }
}

/// The settings in an `options` parameter: `-c name=value` and `--name=value`; backslash escapes a
/// blank. Anything else is left out.
fn parse_options(options: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().map(|word| word.extend(characters.next())).unwrap_or_default(),
            blank if blank.is_whitespace() => words.push(String::new()),
            other => words.last_mut().map(|word| word.push(other)).unwrap_or_default(),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let assignment = if word == "-c" {
            words.next()
        } else if let Some(rest) = word.strip_prefix("--") {
            Some(rest.replace('-', "_"))
        } else {
            word.strip_prefix("-c").map(str::to_string)
        };
        if let Some((name, value)) = assignment.as_deref().and_then(|text| text.split_once('=')) {
            settings.push((name.to_string(), value.to_string()));
        }
    }
    settings
}

async fn scram<R, W>(
    input: &mut Input<R>,
    output: &mut Output<W>,
    user: &str,
    verifier: Option<Verifier>,
    node: &Node,
) -> Result<Result<(), SqlError>, ConnectionError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let refused = |error: ScramError| match error {
        ScramError::WrongPassword => SqlError::new(
            SqlState::INVALID_PASSWORD,
            format!("password authentication failed for user \"{user}\""),
        ),
        other => SqlError::new(SqlState::PROTOCOL_VIOLATION, other.to_string()),
    };
    backend::authentication_sasl(&mut output.buffer);
    output.flush().await?;
    let client_first = match sasl_initial(authentication_data(input).await?) {
        Ok(data) => data,
        Err(error) => return Ok(Err(error)),
    };
    let nonce = base64::engine::general_purpose::STANDARD.encode(rand::rng().random::<[u8; 18]>());
    let mock = Verifier::mock(user, &node.mock_secret);
    let (server, server_first) = match ScramServer::start(&client_first, verifier, mock, &nonce) {
        Ok(started) => started,
        Err(error) => return Ok(Err(refused(error))),
    };
    backend::authentication_sasl_continue(&mut output.buffer, server_first.as_bytes());
    output.flush().await?;
    match server.finish(&authentication_data(input).await?) {
        Ok(server_final) => {
            backend::authentication_sasl_final(&mut output.buffer, server_final.as_bytes());
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(refused(error))),
    }
}

/// The next message, which must be an answer to an authentication request.
async fn authentication_data<R: AsyncRead + Unpin>(input: &mut Input<R>) -> Result<Bytes, ConnectionError> {
    match input.message().await? {
        Frontend::Authentication(data) => Ok(data),
        _ => Err(crate::protocol::ProtocolError::new("expected SASL response").into()),
    }
}

/// The mechanism's data in a SASLInitialResponse.
fn sasl_initial(message: Bytes) -> Result<Bytes, SqlError> {
    let malformed = |_| SqlError::new(SqlState::PROTOCOL_VIOLATION, "malformed SASL initial response");
    let mut reader = Reader::new(message);
    let mechanism = reader.name().map_err(malformed)?;
    if mechanism != "SCRAM-SHA-256" {
        let message = "client selected an invalid SASL authentication mechanism";
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
    }
    let len = reader.i32().map_err(malformed)?;
    let len = usize::try_from(len)
        .map_err(|_| SqlError::new(SqlState::PROTOCOL_VIOLATION, "missing SASL initial response"))?;
    reader.bytes(len).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_as_postgres_splits_them() {
        let parsed = parse_options(r"-c search_path=a,b  --statement-timeout=5s -cx.y=1\ 2 -f junk");
        let expected = [("search_path", "a,b"), ("statement_timeout", "5s"), ("x.y", "1 2")];
        assert_eq!(parsed, expected.map(|(name, value)| (name.to_string(), value.to_string())));
    }

    #[test]
    fn what_the_proxy_adds_is_no_setting() {
        let pairs =
            [("user", "u"), ("_dormouse.tenant_id", "7"), ("_dormouse.tls", "on"), ("DateStyle", "ISO")];
        let requested =
            Requested::from(pairs.map(|(name, value)| (name.to_string(), value.to_string())).to_vec());
        assert_eq!(requested.tenant.as_deref(), Some("7"));
        assert_eq!(requested.settings, [("DateStyle".to_string(), "ISO".to_string())]);
    }
}
