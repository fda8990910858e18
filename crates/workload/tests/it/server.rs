//! A PostgreSQL server without a database: simple queries are answered from a script.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// What the server does with a statement.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    Ok,
    Error(&'static str),
    /// An error after which it hangs up.
    Fatal(&'static str),
    HangUp,
}

type Script = Arc<Mutex<VecDeque<(&'static str, Answer)>>>;

/// The server. A statement that is not the next of the script is answered with success; the start of a
/// session counts as the statement `startup`.
pub struct FakeServer {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl FakeServer {
    pub async fn start(script: Vec<(&'static str, Answer)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Script = Arc::new(Mutex::new(script.into()));
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                sessions.spawn(session(socket, Arc::clone(&script)));
            }
        });
        Self { address, connections, task: task.abort_handle() }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn next(script: &Script, statement: &str) -> Answer {
    let mut script = script.lock().unwrap();
    match script.front() {
        Some((expected, _)) if *expected == statement => {
            script.pop_front().map_or(Answer::Ok, |(_, answer)| answer)
        }
        _ => Answer::Ok,
    }
}

/// Ends with the connection, however it ends.
async fn session(mut socket: TcpStream, script: Script) -> std::io::Result<()> {
    let length = socket.read_u32().await?;
    socket.read_exact(&mut vec![0; length as usize - 4]).await?;
    if !answer(&mut socket, next(&script, "startup"), &message(b'R', &[0; 4])).await? {
        return Ok(());
    }
    while socket.read_u8().await? == b'Q' {
        let length = socket.read_u32().await?;
        let mut text = vec![0; length as usize - 4];
        socket.read_exact(&mut text).await?;
        let statement = String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned();
        if !answer(&mut socket, next(&script, &statement), &message(b'C', b"DONE\0")).await? {
            break;
        }
    }
    Ok(())
}

/// False: the connection is to be closed.
async fn answer(socket: &mut TcpStream, answer: Answer, success: &[u8]) -> std::io::Result<bool> {
    let (mut bytes, goes_on) = match answer {
        Answer::Ok => (success.to_vec(), true),
        Answer::Error(code) => (error("ERROR", code), true),
        Answer::Fatal(code) => (error("FATAL", code), false),
        Answer::HangUp => return Ok(false),
    };
    if goes_on {
        bytes.extend(message(b'Z', b"I"));
    }
    socket.write_all(&bytes).await?;
    Ok(goes_on)
}

fn error(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mas told\0\0").as_bytes())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}
