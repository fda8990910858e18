//! Sends batches to the nodes that serve them.
//!
//! A batch whose range and leaseholder are known goes straight there; that is the rule, and costs one look
//! into the tables. What goes wrong (`walks`) is told apart by one question only: may the batch have
//! been carried out? If not, it goes on to another node until [`Config::connect_timeout`] is over.
//!
//! | what a node says | carried out? | the batch goes |
//! |---|---|---|
//! | `NotLeaseholder` | no | to the node it names, else to the next replica |
//! | `RangeNotFound` | no | where the directory says, asked again; back to the sender if it was split |
//! | `Unavailable`, or nothing could be sent | no | to the next replica |
//! | nothing: the connection was lost | perhaps | back to the sender, unless it may be sent again |
//! | anything else | | back to the sender |

mod locate;
mod miss;
#[cfg(test)]
mod tests;
mod walks;

use crate::addresses::Addresses;
use crate::config::Config;
use crate::connection::{self, Connection, ConnectionError, Listener};
use crate::connections::{Connections, NoConnection};
use crate::lead::Leads;
use crate::metrics::metrics;
use crate::pending::NotOpen;
use crate::ranges::Ranges;
use bytes::Bytes;
use kv_api::batch::{BatchRequest, RangeInfo, RequestKind};
use kv_api::wire::MAX_FRAME_LEN;
use kv_api::{BatchResponse, KvError, KvErrorKind, Span};
use miss::Miss;
use parking_lot::Mutex;
use prost::Message;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// What a frame needs besides its batch, in bytes.
const FRAME_OVERHEAD: usize = 64;

/// Most transactions over several ranges of which it is still to be said what became of them.
const MAX_FINISHING: usize = 512;

/// Runs a connection until it ends.
pub type Dial = Box<dyn Fn(&Arc<Connection>, &Weak<Router>) -> Option<AbortHandle> + Send + Sync>;

/// How sending a batch failed. Keys are whole ones.
#[derive(Debug)]
pub enum SendError {
    /// The KV node answered with an error, or the request was never sent.
    Kv(KvError),
    /// The connection was lost; whether the batch was carried out is not known.
    Lost,
    /// The connection that was required is gone; nothing was carried out.
    OtherConnection,
    /// The node that was required does not lead the range any more; nothing was carried out.
    Moved,
    /// The range that was required does not hold all keys of the batch any more; nothing was carried out.
    Split,
}

impl From<KvError> for SendError {
    fn from(error: KvError) -> Self {
        SendError::Kv(error)
    }
}

/// Where a transaction is known.
#[derive(Clone)]
pub struct Place {
    /// To the leaseholder.
    pub connection: Arc<Connection>,
    /// The range.
    pub range_id: u64,
}

/// An answer, and where it came from.
pub struct Sent {
    pub response: BatchResponse,
    pub place: Place,
}

/// How a batch is to be sent.
#[derive(Clone, Copy, Default)]
pub struct Sending<'a> {
    /// Where it must go, and nowhere else.
    pub place: Option<&'a Place>,
    /// A key of the range that the batch is for, if its requests name none.
    pub key: Option<&'a Bytes>,
    /// The range it is for, if the sender knows: it goes to no other.
    pub range: Option<u64>,
    /// Whether others may have to finish before it does.
    pub waits: bool,
    /// Whether it may be carried out twice. It goes on then when the connection was lost under it.
    pub again: bool,
    /// Takes note of where it goes, each time before it goes there, unless nothing can have come of it.
    pub tried: Option<&'a Tried>,
}

/// Where something may have come of a batch, which is known also when its answer is an error or is never waited for.
pub type Tried = Mutex<SmallVec<[Place; 1]>>;

/// A client's ways to the KV nodes.
pub struct Router {
    config: Arc<Config>,
    /// First key of the tenant, and all its keys.
    prefix: Bytes,
    span: Span,
    routing: Mutex<Routing>,
    known: watch::Sender<Vec<String>>,
    in_flight: Semaphore,
    finishing: Arc<Semaphore>,
    /// Held by who looks a range up, so that others find the answer and need not ask.
    looking_up: tokio::sync::Mutex<()>,
    /// Shares reads from any replica out among the replicas.
    turn: AtomicUsize,
    dial: Dial,
    own: Weak<Router>,
}

struct Routing {
    ranges: Ranges,
    connections: Connections,
    addresses: Addresses,
    /// Who leads the cluster's own range.
    root: Option<Arc<str>>,
    /// Who looked a range up for somebody who had nothing else to ask of it.
    directory: Option<Arc<str>>,
    /// How far ahead the clocks of ranges are.
    leads: Leads,
}

impl Router {
    /// Begins to connect to the first address. Must be called within a runtime.
    pub fn start(config: Config) -> Arc<Self> {
        let config = Arc::new(config);
        let dialed = config.clone();
        let router = Self::with_dial(
            config,
            Box::new(move |connection, router| {
                let run = connection::run(dialed.clone(), connection.clone(), router.clone());
                Some(tokio::spawn(run).abort_handle())
            }),
        );
        let first = router.routing.lock().addresses.iter().next().cloned();
        // If it fails, whoever sends something finds out.
        first.map(|address| router.connection(&address).ok());
        router
    }

    /// A router that makes its connections with `dial`.
    pub fn with_dial(config: Arc<Config>, dial: Dial) -> Arc<Self> {
        let addresses = Addresses::new(&config.addresses);
        Arc::new_cyclic(|own| Router {
            prefix: Bytes::copy_from_slice(&config.tenant.prefix()),
            span: config.tenant.span(),
            known: watch::channel(addresses.to_vec()).0,
            in_flight: Semaphore::new(config.max_in_flight),
            finishing: Arc::new(Semaphore::new(MAX_FINISHING)),
            looking_up: tokio::sync::Mutex::new(()),
            turn: AtomicUsize::new(usize::from(config.environment.random()[0])),
            routing: Mutex::new(Routing {
                ranges: Ranges::default(),
                connections: Connections::default(),
                addresses,
                root: None,
                directory: None,
                leads: Leads::default(),
            }),
            dial,
            own: own.clone(),
            config,
        })
    }

    /// As whom, and how.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// All keys of the tenant.
    pub fn tenant_span(&self) -> &Span {
        &self.span
    }

    /// Bounds what is still to be said of transactions that have committed.
    pub fn finishing(&self) -> &Arc<Semaphore> {
        &self.finishing
    }

    /// Addresses known, the one to try first in front.
    pub fn addresses(&self) -> watch::Receiver<Vec<String>> {
        self.known.subscribe()
    }

    /// What is known of the clocks of ranges.
    pub fn with_leads<T>(&self, with: impl FnOnce(&mut Leads) -> T) -> T {
        with(&mut self.routing.lock().leads)
    }

    /// Takes in what is known of a range, unless something is known of its first key.
    pub fn suppose(&self, info: &RangeInfo) {
        let mut routing = self.routing.lock();
        if routing.ranges.find(&info.start).is_none() {
            routing.ranges.learn(info);
        }
    }

    /// Notes whether every replica of the range of a batch serves the present.
    pub fn note_global(&self, range_id: u64, batch: &BatchRequest, global: bool) {
        if let Some(key) = self.key_of(batch) {
            self.routing.lock().ranges.note_global(key, range_id, global);
        }
    }

    /// Sends a batch: it is carried out at most once.
    pub async fn send(&self, batch: &mut BatchRequest, sending: Sending<'_>) -> Result<Sent, SendError> {
        if batch.encoded_len() > MAX_FRAME_LEN - FRAME_OVERHEAD {
            let message = format!("a batch of more than {MAX_FRAME_LEN} bytes cannot be sent");
            return Err(SendError::Kv(KvError::new(KvErrorKind::InvalidRequest, message)));
        }
        // The semaphore is never closed.
        let _turn = if sending.waits { self.in_flight.acquire().await.ok() } else { None };
        if let Some(place) = sending.place {
            return self.send_bound(batch, place, sending.key).await;
        }
        let Some(key) = sending.key.or_else(|| self.key_of(batch)) else {
            return Box::pin(self.send_to_cluster(batch, sending.again)).await;
        };
        let near = batch.header.any_replica.then(|| self.turn.fetch_add(1, Ordering::Relaxed));
        let mut missed = None;
        if let Some(place) = self.guess(key, near) {
            if sending.range.is_some_and(|range| range != place.range_id) {
                return Err(SendError::Split);
            }
            match self.try_on(&place, batch, sending.tried).await {
                Ok(response) => return Ok(Sent { response, place }),
                Err(Miss::Error(error)) => return Err(SendError::Kv(error)),
                Err(miss) => missed = Some((place, miss)),
            }
        }
        Box::pin(self.send_around(batch, sending, near, missed)).await
    }

    /// Sends a batch without waiting for the answer, if there is a connection to where it belongs: to `place`,
    /// or to who leads the range, if that still has `key`.
    pub fn send_and_forget(&self, mut batch: BatchRequest, place: Option<Place>, range_id: u64, key: &[u8]) {
        let leads = || self.guess(key, None).filter(|place| place.range_id == range_id);
        let place = place.or_else(leads);
        if let Some(Place { connection, range_id }) = place {
            batch.header.range_id = range_id;
            drop(connection.pending.submit(&mut batch));
        }
    }

    /// Sends a batch of a transaction to the node that knows it.
    async fn send_bound(
        &self,
        batch: &mut BatchRequest,
        place: &Place,
        key: Option<&Bytes>,
    ) -> Result<Sent, SendError> {
        let miss = match self.try_on(place, batch, None).await {
            Ok(response) => return Ok(Sent { response, place: place.clone() }),
            Err(miss) => miss,
        };
        let key = key.or_else(|| self.key_of(batch)).unwrap_or(&self.prefix);
        self.note_miss(key, place.range_id, &place.connection.address, &miss);
        Err(match miss {
            Miss::Error(error) => SendError::Kv(error),
            Miss::Unavailable(error) => SendError::Kv(miss::unavailable(Some(error))),
            Miss::RangeNotFound(said) if Box::pin(self.was_split(batch, place, key, &said)).await => {
                SendError::Split
            }
            Miss::NotLeaseholder(_) | Miss::RangeNotFound(_) => SendError::Moved,
            Miss::Unsent => SendError::OtherConnection,
            Miss::Lost => SendError::Lost,
        })
    }

    /// Sends a batch on a connection that is open.
    async fn try_on(
        &self,
        place: &Place,
        batch: &mut BatchRequest,
        tried: Option<&Tried>,
    ) -> Result<BatchResponse, Miss> {
        batch.header.range_id = place.range_id;
        if let Some(tried) = tried {
            tried.lock().push(place.clone());
        }
        let result = match place.connection.pending.submit(batch) {
            Ok(answer) => {
                metrics().batches.inc();
                miss::judge(answer.await)
            }
            Err(NotOpen::Closed(Some(error))) => Err(Miss::of(error)),
            Err(NotOpen::Closed(None) | NotOpen::Connecting) => Err(Miss::Unsent),
        };
        if let (Some(tried), Err(miss)) = (tried, &result)
            && miss.leaves_nothing()
        {
            tried.lock().pop();
        }
        result
    }

    /// Where a batch about a key probably belongs, if there is a connection: with the leaseholder, or with
    /// the replica whose turn it is.
    fn guess(&self, key: &[u8], near: Option<usize>) -> Option<Place> {
        let routing = self.routing.lock();
        let range = routing.ranges.find(key)?;
        let address = match near {
            Some(turn) => {
                range.replica(&self.config.near, turn, |address| routing.connections.round_trip(address))?
            }
            None => range.leaseholder()?,
        };
        let connection = routing.connections.existing(address)?.clone();
        Some(Place { connection, range_id: range.id })
    }

    /// The connection to an address, which may not be open yet.
    fn connection(&self, address: &Arc<str>) -> Result<Arc<Connection>, NoConnection> {
        let start = |connection: &Arc<Connection>| (self.dial)(connection, &self.own);
        self.routing.lock().connections.get(address, Instant::now(), start)
    }

    /// A key of the range a batch is for; `None` if it is for the cluster.
    fn key_of<'a>(&'a self, batch: &'a BatchRequest) -> Option<&'a Bytes> {
        let Some(request) = batch.requests.first().and_then(|request| request.kind.as_ref()) else {
            return Some(&self.prefix);
        };
        match request {
            RequestKind::Get(get) => Some(&get.key),
            RequestKind::Scan(scan) => Some(&scan.start),
            RequestKind::Put(put) => Some(&put.key),
            RequestKind::ConditionalPut(put) => Some(&put.key),
            RequestKind::Delete(delete) => Some(&delete.key),
            RequestKind::DeleteRange(delete) => Some(&delete.start),
            RequestKind::Increment(increment) => Some(&increment.key),
            RequestKind::ClearRange(clear) => Some(&clear.start),
            RequestKind::ListContention(list) => Some(&list.start),
            RequestKind::DecideTxn(decide) => Some(&decide.anchor),
            RequestKind::ResolveTxn(resolve) => Some(&resolve.key),
            RequestKind::DetachTxn(detach) => Some(&detach.key),
            RequestKind::AdoptTxn(adopt) => Some(&adopt.key),
            RequestKind::SplitRange(split) => Some(&split.key),
            RequestKind::MergeRange(merge) => Some(&merge.start),
            RequestKind::EndTxn(_)
            | RequestKind::Refresh(_)
            | RequestKind::ConfigureTenant(_)
            | RequestKind::ConfigureSpan(_)
            | RequestKind::CheckReplicas(_) => {
                Some(batch.header.refresh_spans.first().map_or(&self.prefix, |span| &span.start))
            }
            RequestKind::DropTenant(_)
            | RequestKind::Nodes(_)
            | RequestKind::DrainNode(_)
            | RequestKind::RangeLookup(_)
            | RequestKind::CreateTenant(_)
            | RequestKind::Ranges(_) => None,
        }
    }

    fn publish(&self, addresses: &Addresses) {
        let now = addresses.to_vec();
        self.known.send_if_modified(|known| {
            *known != now && {
                *known = now;
                true
            }
        });
    }
}

impl Listener for Weak<Router> {
    fn greeted(&self, connection: &Connection, addresses: &[String]) {
        let Some(router) = self.upgrade() else { return };
        let mut routing = router.routing.lock();
        routing.connections.greeted(connection);
        routing.addresses.greeted(&connection.address, addresses);
        router.publish(&routing.addresses);
    }

    fn named(&self, addresses: &[String]) {
        let Some(router) = self.upgrade() else { return };
        let mut routing = router.routing.lock();
        addresses.iter().for_each(|address| routing.addresses.learn(address));
        router.publish(&routing.addresses);
    }

    fn ended(&self, connection: &Connection, error: &ConnectionError) {
        let Some(router) = self.upgrade() else { return };
        let news = {
            let mut routing = router.routing.lock();
            routing.addresses.lost(&connection.address);
            router.publish(&routing.addresses);
            routing.connections.ended(connection, error, Instant::now())
        };
        let address = &*connection.address;
        // One line for each outage is enough.
        match error {
            _ if !news || error.is_not_leaseholder() => {}
            ConnectionError::Refused(error) => {
                tracing::error!(%error, address, "the KV node refuses this client")
            }
            ConnectionError::Io(error) => tracing::warn!(%error, address, "no connection to the KV node"),
            ConnectionError::Silent => tracing::warn!(address, "the KV node is silent"),
        }
    }
}
