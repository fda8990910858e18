//! The three kinds of socket a session runs over, behind one type that the relay can poll.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// A connected socket. One match per call costs less than a virtual call and allows a relay over any pair.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket: a SQL node on this machine.
    Unix(UnixStream),
    /// TLS over TCP, either end.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Whether the bytes are encrypted on their way.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Sends the last words of the proxy and closes without losing them.
    ///
    /// Closing a TCP socket with unread input makes the kernel throw away what was sent, so what the peer
    /// still sends is read and dropped, for a bounded time and amount.
    pub async fn close_with(&mut self, last_words: &[u8], patience: Duration) {
        let farewell = async {
            self.write_all(last_words).await?;
            self.shutdown().await?;
            let mut sink = [0; 1024];
            for _ in 0..MAX_DISCARDED / 1024 {
                if self.read(&mut sink).await? == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        };
        // The peer may be gone already; there is nobody else to tell.
        let _ = tokio::time::timeout(patience, farewell).await;
    }
}

/// Small messages leave at once, and a peer whose machine is gone is noticed after two minutes.
pub(crate) fn prepare_tcp(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// Most bytes read and dropped while closing.
const MAX_DISCARDED: usize = 1 << 20;

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            Self::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_write(cx, buf),
            Self::Unix(s) => Pin::new(s).poll_write(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
