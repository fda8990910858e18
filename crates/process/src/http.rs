//! HTTP/1.1 servers with bounds: on connections, and on how long the head of a request may take.
//!
//! The time for a head runs from the connection's beginning or the end of the last answer, so it also ends
//! connections that are kept open and not used. It does not run while a request is answered.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long to wait before accepting again after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients may take up.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most connections at once; further ones wait to be accepted.
    pub max_connections: usize,
    /// Most time for the head of a request to arrive whole.
    pub head_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { max_connections: 512, head_timeout: Duration::from_secs(15) }
    }
}

/// Serves a router for as long as it is polled; requests under way go on after that.
pub async fn serve(listener: TcpListener, router: Router, bounds: Bounds) {
    let places = Arc::new(Semaphore::new(bounds.max_connections));
    // The semaphore is never closed.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(bounds.head_timeout);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!("an HTTP connection ended: {error}");
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// What a client that sends `request` and then waits is answered until the connection is closed.
    async fn answer(bounds: Bounds, request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = get(async || {
            tokio::time::sleep(Duration::from_millis(60)).await;
            "slow\n"
        });
        let router = Router::new().route("/", get(async || "here\n")).route("/slow", slow);
        let server = tokio::spawn(serve(listener, router, bounds));
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        assert_eq!(idle.read(&mut [0; 16]).await.unwrap(), 0, "one that says nothing is closed, too");
        server.abort();
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_ends_the_connection_and_its_place_is_free() {
        // With one place, the second client is served only after the first was given up.
        let bounds = Bounds { max_connections: 1, head_timeout: Duration::from_millis(20) };
        assert_eq!(answer(bounds, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow").await, "");
        let answered = answer(bounds, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answered.starts_with("HTTP/1.1 200") && answered.ends_with("here\n"), "{answered}");
    }

    #[tokio::test]
    async fn an_answer_may_take_longer_than_a_head() {
        let bounds = Bounds { head_timeout: Duration::from_millis(20), ..Bounds::default() };
        let answered = answer(bounds, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answered.ends_with("slow\n"), "{answered}");
    }
}
