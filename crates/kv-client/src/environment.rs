//! What a client takes from the world around it: the wall clock, chance, and ways to KV nodes.
//!
//! A process takes them from its machine. A simulation gives every client its own [`Surroundings`], so that a
//! run is a function of its seed. Timers are tokio's, which a simulation pauses.

use crate::faults::Bug;
use rand::RngCore;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncWrite};

/// The bytes of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Time, chance and connections as a simulation gives them.
pub trait Surroundings: Send + Sync {
    /// The wall clock, in nanoseconds since the Unix epoch. It may err.
    fn physical_ns(&self) -> u64;
    /// Random bytes, others each time.
    fn random(&self) -> [u8; 16];
    /// Makes a connection to `host:port`, in place of TLS over TCP.
    fn connect(&self, address: &str) -> Connecting;
    /// Whether a bug is planted.
    fn planted(&self, _bug: Bug) -> bool {
        false
    }
}

/// Where a client has time, chance and connections from.
#[derive(Clone)]
pub struct Environment(Option<Arc<dyn Surroundings>>);

impl Environment {
    /// Those of the machine.
    pub fn of_machine() -> Self {
        Environment(None)
    }

    /// Those of a simulation.
    pub fn given(surroundings: Arc<dyn Surroundings>) -> Self {
        Environment(Some(surroundings))
    }

    /// See [`Surroundings::physical_ns`].
    #[inline]
    pub fn physical_ns(&self) -> u64 {
        match &self.0 {
            None => {
                let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
            }
            Some(surroundings) => surroundings.physical_ns(),
        }
    }

    /// See [`Surroundings::random`].
    pub fn random(&self) -> [u8; 16] {
        match &self.0 {
            None => {
                let mut bytes = [0; 16];
                rand::rng().fill_bytes(&mut bytes);
                bytes
            }
            Some(surroundings) => surroundings.random(),
        }
    }

    /// A random number from 0 to 1.
    pub fn random_fraction(&self) -> f64 {
        let [a, b, c, d, ..] = self.random();
        f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
    }

    /// See [`Surroundings::planted`].
    #[inline]
    pub fn planted(&self, bug: Bug) -> bool {
        self.0.as_ref().is_some_and(|surroundings| surroundings.planted(bug))
    }

    /// See [`Surroundings::connect`]; `None` where connections are made over TLS.
    pub fn connect(&self, address: &str) -> Option<Connecting> {
        self.0.as_ref().map(|surroundings| surroundings.connect(address))
    }
}
