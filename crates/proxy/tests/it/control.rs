//! Control as the proxy sees it, answering from a script.

use crate::node::FakeNode;
use crate::world::soon;
use process::control_messages::{FromProxy, ResolveError, ToProxy, read_message, write_message};
use process::identity::Identity;
use process::tls::{Authority, internal_server};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What control says about a tenant.
#[derive(Clone)]
pub enum Script {
    /// It is there.
    At { address: String, node: String, max_connections: Option<u64> },
    /// It cannot be had.
    No(ResolveError, &'static str),
}

#[derive(Default)]
struct State {
    /// Answers in order; the last one stays.
    scripts: HashMap<String, VecDeque<Script>>,
}

pub struct FakeControl {
    address: SocketAddr,
    tls: TlsAcceptor,
    state: Arc<Mutex<State>>,
    /// How many questions came.
    questions: Arc<watch::Sender<usize>>,
    /// Answers are held while this is true.
    held: Arc<watch::Sender<bool>>,
    gone: broadcast::Sender<String>,
    task: Mutex<Option<JoinHandle<()>>>,
    connections: Arc<watch::Sender<usize>>,
}

impl FakeControl {
    pub async fn start(authority: &Authority) -> Self {
        let own = authority.issue(Identity::Control).unwrap();
        let tls = TlsAcceptor::from(internal_server(&authority.pem().certificate, &own).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = Self {
            address: listener.local_addr().unwrap(),
            tls,
            state: Arc::default(),
            questions: Arc::new(watch::Sender::new(0)),
            held: Arc::new(watch::Sender::new(false)),
            gone: broadcast::Sender::new(16),
            task: Mutex::new(None),
            connections: Arc::new(watch::Sender::new(0)),
        };
        control.listen(listener);
        control
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn script(&self, tenant: &str, scripts: impl IntoIterator<Item = Script>) {
        self.state.lock().unwrap().scripts.insert(tenant.to_owned(), scripts.into_iter().collect());
    }

    pub fn serve(&self, tenant: &str, node: &FakeNode) {
        self.script(tenant, [at(node)]);
    }

    pub fn questions(&self) -> usize {
        *self.questions.borrow()
    }

    /// Waits until so many questions came.
    pub async fn asked(&self, count: usize) {
        soon(self.questions.subscribe().wait_for(|n| *n >= count)).await.unwrap();
    }

    /// Holds answers back, or lets them go.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Tells the proxy that a node is gone, and waits until it must have heard: the answer to a question
    /// that was asked later has passed.
    pub fn push_gone(&self, node: &str) {
        self.gone.send(node.to_owned()).unwrap();
    }

    /// Ends, with all its connections.
    pub async fn kill(&self) {
        let task = self.task.lock().unwrap().take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// Listens on the same address again.
    pub async fn revive(&self) {
        self.listen(TcpListener::bind(self.address).await.unwrap());
    }

    /// Waits until the proxy has connected so many times.
    pub async fn connected(&self, count: usize) {
        soon(self.connections.subscribe().wait_for(|n| *n >= count)).await.unwrap();
    }

    fn listen(&self, listener: TcpListener) {
        let tls = self.tls.clone();
        let session = Session {
            state: Arc::clone(&self.state),
            questions: Arc::clone(&self.questions),
            held: Arc::clone(&self.held),
            gone: self.gone.clone(),
        };
        let connections = Arc::clone(&self.connections);
        let task = tokio::spawn(async move {
            let mut sessions = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (tls, session, connections) = (tls.clone(), session.clone(), Arc::clone(&connections));
                sessions.spawn(async move {
                    if let Ok(stream) = tls.accept(socket).await {
                        connections.send_modify(|n| *n += 1);
                        session.serve(stream).await;
                    }
                });
            }
        });
        *self.task.lock().unwrap() = Some(task);
    }
}

pub fn at(node: &FakeNode) -> Script {
    Script::At { address: node.address.clone(), node: node.name.clone(), max_connections: None }
}

#[derive(Clone)]
struct Session {
    state: Arc<Mutex<State>>,
    questions: Arc<watch::Sender<usize>>,
    held: Arc<watch::Sender<bool>>,
    gone: broadcast::Sender<String>,
}

impl Session {
    async fn serve(self, stream: tokio_rustls::server::TlsStream<TcpStream>) {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut gone = self.gone.subscribe();
        let (asked, mut questions) = tokio::sync::mpsc::unbounded_channel();
        let reading = async {
            let mut reader = BufReader::new(reader);
            while let Ok(Some(question)) = read_message::<FromProxy>(&mut reader).await {
                self.questions.send_modify(|n| *n += 1);
                asked.send(question).unwrap();
            }
        };
        let writing = async {
            loop {
                let answer = tokio::select! {
                    biased;
                    node = gone.recv() => ToProxy::Gone { node: node.unwrap() },
                    question = questions.recv() => {
                        let Some(FromProxy::Resolve { id, tenant }) = question else { return };
                        self.held.subscribe().wait_for(|held| !held).await.unwrap();
                        self.answer(id, &tenant)
                    }
                };
                if write_message(&mut writer, &answer).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = reading => {}, () = writing => {} }
    }

    fn answer(&self, id: u64, tenant: &str) -> ToProxy {
        let mut state = self.state.lock().unwrap();
        let script = state.scripts.get_mut(tenant).and_then(|scripts| match scripts.len() {
            0 | 1 => scripts.front().cloned(),
            _ => scripts.pop_front(),
        });
        match script {
            Some(Script::At { address, node, max_connections }) => {
                ToProxy::Resolved { id, tenant_id: 2, address, node, max_connections, woken: true }
            }
            Some(Script::No(code, message)) => {
                let hint = Some("Look into the log of control.".to_owned());
                ToProxy::Error { id, code, message: message.to_owned(), hint }
            }
            None => {
                let message = format!("tenant \"{tenant}\" does not exist");
                ToProxy::Error { id, code: ResolveError::UnknownTenant, message, hint: None }
            }
        }
    }
}
