//! Connections between clients and nodes: bytes in memory, in place of TLS over TCP.
//!
//! What is written arrives after a delay, in order. Where the network is cut nothing arrives until it is mended.
//! A connection breaks when one of its ends goes; one whose machine is gone may also just fall silent.

use super::world::World;
use crate::network::Link;
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How often it is looked whether a cut was mended.
const MENDED: Duration = Duration::from_millis(20);

/// What travels in one direction.
#[derive(Default)]
struct Pipe {
    /// What was written, and when it arrives.
    chunks: VecDeque<(Instant, Bytes)>,
    /// Nothing more will be written.
    ended: bool,
    /// Neither end hears of the other again, but that it is gone.
    broken: bool,
    /// The other end is gone without a word.
    silent: bool,
    reader: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// One end of a connection.
pub struct End {
    world: Arc<World>,
    /// The way of what is read here.
    link: Link,
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Ends a connection from outside.
#[derive(Clone)]
pub struct Breaker([Weak<Mutex<Pipe>>; 2]);

impl Breaker {
    fn each(&self, change: impl Fn(&mut Pipe)) {
        for pipe in self.0.iter().filter_map(Weak::upgrade) {
            let mut pipe = pipe.lock();
            change(&mut pipe);
            pipe.wake();
        }
    }

    /// Breaks it: both ends notice at once.
    pub fn break_off(&self) {
        self.each(|pipe| pipe.broken = true);
    }

    /// Nothing arrives any more, and nobody is told.
    pub fn silence(&self) {
        self.each(|pipe| pipe.silent = true);
    }

    /// Whether anybody has an end of it.
    pub fn is_live(&self) -> bool {
        self.0.iter().any(|pipe| pipe.strong_count() > 0)
    }
}

/// A connection between two places: the end of the first, that of the second, and what breaks it.
pub fn connection(world: &Arc<World>, (first, second): Link) -> (End, End, Breaker) {
    let (there, back) = (Arc::<Mutex<Pipe>>::default(), Arc::<Mutex<Pipe>>::default());
    let breaker = Breaker([Arc::downgrade(&there), Arc::downgrade(&back)]);
    let end = |link, incoming: &Arc<Mutex<Pipe>>, outgoing: &Arc<Mutex<Pipe>>| End {
        world: Arc::clone(world),
        link,
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        timer: None,
    };
    (end((second, first), &back, &there), end((first, second), &there, &back), breaker)
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let now = Instant::now();
            let cut = self.world.is_cut(self.link);
            let wait_until = {
                let mut pipe = self.incoming.lock();
                pipe.reader = Some(context.waker().clone());
                if pipe.broken {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                if pipe.silent {
                    return Poll::Pending;
                }
                let ended = pipe.ended;
                match pipe.chunks.front_mut() {
                    None if ended && !cut => return Poll::Ready(Ok(())),
                    None if ended => now + MENDED,
                    None => return Poll::Pending,
                    Some((at, bytes)) if *at <= now && !cut => {
                        let part = bytes.len().min(buffer.remaining());
                        buffer.put_slice(&bytes[..part]);
                        bytes.advance(part);
                        if bytes.is_empty() {
                            pipe.chunks.pop_front();
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Some((at, _)) if *at <= now => now + MENDED,
                    Some((at, _)) => *at,
                }
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wait_until)));
            if timer.deadline() != wait_until {
                timer.as_mut().reset(wait_until);
            }
            match timer.as_mut().poll(context) {
                Poll::Ready(()) => self.timer = None,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (from, to) = self.link;
        let delay = self.world.stream_delay((to, from));
        let mut pipe = self.outgoing.lock();
        if pipe.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut at = Instant::now() + Duration::from_micros(delay);
        if let Some((last, _)) = pipe.chunks.back() {
            at = at.max(*last);
        }
        if !pipe.silent {
            pipe.chunks.push_back((at, Bytes::copy_from_slice(bytes)));
            pipe.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.outgoing.lock();
        pipe.ended = true;
        pipe.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut outgoing = self.outgoing.lock();
        outgoing.ended = true;
        outgoing.wake();
        drop(outgoing);
        // Whoever writes on finds nobody there.
        self.incoming.lock().broken = true;
    }
}
