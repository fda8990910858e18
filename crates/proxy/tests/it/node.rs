//! SQL nodes that do what the text of a statement tells them.

use crate::client::message;
use crate::world::soon;
use process::identity::Identity;
use process::tls::{Authority, internal_server};
use proxy::error::ClientError;
use proxy::startup::CancelKey;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The key every node gives every session; the proxy must not let it through.
pub const NODE_KEY: CancelKey = CancelKey { process_id: 4242, secret: 0x5eed_5eed };

/// What happened at a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Started(Vec<(String, String)>),
    Statement(String),
    Cancel(CancelKey),
    Closed,
}

/// How a node greets.
#[derive(Clone, Default)]
pub enum Greeting {
    /// Lets everybody in.
    #[default]
    Welcome,
    /// Asks for a password, whatever it is.
    Password,
    /// Asks for a password and never says more.
    Silent,
    /// Hangs up without a word.
    HangUp,
    /// Says this and hangs up.
    Refuse(ClientError),
}

/// Makes nodes.
pub struct Nodes {
    directory: TempDir,
    count: AtomicUsize,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), count: AtomicUsize::new(1) }
    }
}

impl Nodes {
    pub async fn start(&self) -> FakeNode {
        self.start_with(Greeting::Welcome).await
    }

    pub async fn start_with(&self, greeting: Greeting) -> FakeNode {
        let (name, path) = self.name();
        let listener = UnixListener::bind(&path).unwrap();
        let (events, received) = mpsc::unbounded_channel();
        let script = NodeScript { greeting, events };
        let task = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let script = script.clone();
                sessions.spawn(async move { script.serve(stream).await });
            }
        });
        FakeNode { name, address: format!("unix:{path}"), events: received, task: Mutex::new(Some(task)) }
    }

    /// A node behind TCP and TLS that is of the given tenant.
    pub async fn start_tcp(&self, authority: &Authority, tenant: u64) -> FakeNode {
        let (name, _) = self.name();
        let own = authority.issue(Identity::Tenant(tenant)).unwrap();
        let tls = TlsAcceptor::from(internal_server(&authority.pem().certificate, &own).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (events, received) = mpsc::unbounded_channel();
        let script = NodeScript { greeting: Greeting::Welcome, events };
        let task = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (script, tls) = (script.clone(), tls.clone());
                sessions.spawn(async move {
                    socket.read_exact(&mut [0; 8]).await.unwrap();
                    socket.write_all(b"S").await.unwrap();
                    if let Ok(stream) = tls.accept(socket).await {
                        script.serve(stream).await;
                    }
                });
            }
        });
        FakeNode { name, address, events: received, task: Mutex::new(Some(task)) }
    }

    /// A name and a path where nobody listens.
    pub fn name(&self) -> (String, String) {
        let name = format!("sql-{}", self.count.fetch_add(1, Ordering::Relaxed));
        let path = self.directory.path().join(&name).display().to_string();
        (name, path)
    }
}

pub struct FakeNode {
    pub name: String,
    pub address: String,
    pub events: mpsc::UnboundedReceiver<Event>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl FakeNode {
    pub async fn next(&mut self) -> Event {
        soon(self.events.recv()).await.expect("the node has ended")
    }

    /// The parameters of the next session.
    pub async fn started(&mut self) -> Vec<(String, String)> {
        match self.next().await {
            Event::Started(parameters) => parameters,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the process: nobody listens, all connections are reset.
    pub async fn kill(&self) {
        let task = self.task.lock().unwrap().take().unwrap();
        task.abort();
        let _ = task.await;
    }
}

#[derive(Clone)]
struct NodeScript {
    greeting: Greeting,
    events: mpsc::UnboundedSender<Event>,
}

impl NodeScript {
    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let _ = self.session(&mut stream).await;
        let _ = self.events.send(Event::Closed);
    }

    async fn session(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
        let packet = read_packet(stream).await?;
        if packet[..4] == 80_877_102u32.to_be_bytes() {
            let key = CancelKey::from_bytes(packet[4..].try_into().unwrap());
            let _ = self.events.send(Event::Cancel(key));
            return Ok(());
        }
        let _ = self.events.send(Event::Started(parameters(&packet)));
        match &self.greeting {
            Greeting::Welcome => {}
            Greeting::Password | Greeting::Silent => {
                stream.write_all(&message(b'R', &[0, 0, 0, 3])).await?;
                stream.flush().await?;
                let (kind, _) = read_message(stream).await?;
                assert_eq!(kind, b'p');
                if matches!(self.greeting, Greeting::Silent) {
                    read_message(stream).await?;
                }
            }
            Greeting::HangUp => return Ok(()),
            Greeting::Refuse(error) => return stream.write_all(&error.encode()).await,
        }
        let mut welcome = message(b'R', &[0; 4]);
        welcome.extend(message(b'S', b"server_version\x0015.0\0"));
        welcome.extend(message(b'K', &NODE_KEY.to_bytes()));
        welcome.extend(message(b'Z', b"I"));
        stream.write_all(&welcome).await?;
        stream.flush().await?;
        while let Ok((kind, body)) = read_message(stream).await {
            if kind == b'X' {
                break;
            }
            let text = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
            let _ = self.events.send(Event::Statement(text.clone()));
            if !self.run(stream, &text).await? {
                break;
            }
        }
        Ok(())
    }

    /// Does what a statement says. False: hangs up.
    async fn run(&self, stream: &mut (impl AsyncWrite + Unpin), text: &str) -> std::io::Result<bool> {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("die", _) => return Ok(false),
            ("die-inside", _) => {
                stream.write_all(b"D\0\0\x01\0half a row").await?;
                stream.flush().await?;
                return Ok(false);
            }
            ("die-fatally", _) => {
                stream.write_all(&ClientError::new("57P05", "idle").encode()).await?;
                stream.flush().await?;
                return Ok(false);
            }
            ("hang", _) => {
                std::future::pending::<()>().await;
            }
            ("rows", count) => {
                for n in 0..count.parse::<u32>().unwrap() {
                    stream.write_all(&message(b'D', &row(n))).await?;
                }
            }
            (_, _) => stream.write_all(&message(b'C', text.as_bytes())).await?,
        }
        stream.write_all(&message(b'Z', b"I")).await?;
        stream.flush().await?;
        Ok(true)
    }
}

/// A row of four kilobytes that cannot be mistaken for another.
pub fn row(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(1024)
}

async fn read_packet(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    Ok((kind, read_packet(stream).await?))
}

fn parameters(packet: &[u8]) -> Vec<(String, String)> {
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    let strings: Vec<String> = packet[4..].split(|b| *b == 0).map(text).collect();
    let (pairs, _) = strings.as_chunks::<2>();
    pairs.iter().filter(|[name, _]| !name.is_empty()).map(|[n, v]| (n.clone(), v.clone())).collect()
}
