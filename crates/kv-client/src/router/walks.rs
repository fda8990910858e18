//! Batches that do not find their node at the first attempt.

use super::locate;
use super::miss::{self, Miss};
use super::{Place, Router, SendError, Sending, Sent, Tried};
use crate::addresses::is_address;
use crate::connections::NoConnection;
use crate::metrics::metrics;
use crate::walk::{Pauses, Walk};
use bytes::Bytes;
use kv_api::batch::{BatchRequest, Header, RangeLookup, RequestKind};
use kv_api::{KvError, KvErrorKind, Span};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Times a batch that may be carried out twice is sent again after the connection was lost under it. It may
/// be the batch that makes the nodes fail.
const RESENDS: usize = 5;
/// How long a read waits for a connection to a replica near by, before the leaseholder is asked instead.
const NEAR_PATIENCE: Duration = Duration::from_millis(100);

/// A batch's way to the node that serves it.
pub(super) struct Trip {
    walk: Walk,
    pauses: Pauses,
    deadline: Instant,
    /// How often a connection may yet be lost under the batch.
    resends: usize,
    /// What a node said last.
    last: Option<KvError>,
    /// Whether the range is to be looked up again, and whether it was since the last pause.
    must_look_up: bool,
    looked_up: bool,
    /// What the directory said when a node was chosen last.
    pub(super) version: Option<u64>,
    /// The node that looked the range up.
    pub(super) directory: Option<Place>,
    /// The range that the batch is for and the span of its keys, if the sender knows.
    required: Option<(u64, Span)>,
}

impl Trip {
    /// The range must be looked up again.
    pub(super) fn look_again(&mut self) {
        (self.must_look_up, self.looked_up) = (true, false);
    }

    /// The connection was lost under the batch; fails if it must not be sent again.
    fn use_resend(&mut self) -> Result<(), SendError> {
        self.resends = self.resends.checked_sub(1).ok_or(SendError::Lost)?;
        Ok(())
    }
}

impl Router {
    pub(super) fn trip(&self, again: bool) -> Trip {
        Trip {
            resends: if again { RESENDS } else { 0 },
            walk: Walk::default(),
            pauses: Pauses::default(),
            deadline: Instant::now() + self.config.connect_timeout,
            last: None,
            must_look_up: false,
            looked_up: false,
            version: None,
            directory: None,
            required: None,
        }
    }

    /// Sends a batch to whichever node leads the range of its key. `missed` says what was tried.
    pub(super) async fn send_around(
        &self,
        batch: &mut BatchRequest,
        sending: Sending<'_>,
        near: Option<usize>,
        missed: Option<(Place, Miss)>,
    ) -> Result<Sent, SendError> {
        let key = sending.key.or_else(|| self.key_of(batch)).unwrap_or(&self.prefix).clone();
        let mut trip = self.trip(sending.again);
        trip.required = sending.range.map(|range| (range, locate::extent(batch, &key)));
        batch.header.any_replica = false;
        match (missed, near) {
            (Some((place, miss)), Some(_)) => {
                trip.version = self.version(&key);
                // The replica has gone elsewhere: the next read is to find where.
                trip.must_look_up = matches!(miss, Miss::RangeNotFound(_));
                self.note_near_miss(&key, &place, &miss);
            }
            (Some((place, miss)), None) => {
                let Place { connection, range_id } = place;
                trip.walk.asked(&connection.address);
                trip.version = self.version(&key);
                self.take_miss(&mut trip, &key, range_id, &connection.address, miss)?;
            }
            (None, Some(turn)) => {
                if let Some(result) = self.try_near(&mut trip, batch, &key, turn).await {
                    return result;
                }
            }
            (None, None) => {}
        }
        loop {
            if let Some(sent) = self.walk_replicas(&mut trip, batch, &key, sending.tried).await? {
                self.retire_directory(trip.directory, &sent.place);
                return Ok(sent);
            }
            self.pause(&mut trip).await?;
            trip.look_again();
        }
    }

    /// Asks every node that may lead the range once; `None` if none serves it.
    async fn walk_replicas(
        &self,
        trip: &mut Trip,
        batch: &mut BatchRequest,
        key: &Bytes,
        tried: Option<&Tried>,
    ) -> Result<Option<Sent>, SendError> {
        loop {
            self.look_up_if_due(trip, key).await?;
            let Some((range_id, address)) = self.next_replica(trip, key)? else { return Ok(None) };
            match self.try_at(&address, range_id, batch, trip.deadline, tried).await {
                Ok(sent) => {
                    self.routing.lock().ranges.served(key, range_id, &address);
                    return Ok(Some(sent));
                }
                Err(miss) => self.take_miss(trip, key, range_id, &address, miss)?,
            }
        }
    }

    /// The node to ask next, and the range; fails if that is not the one required.
    fn next_replica(&self, trip: &mut Trip, key: &Bytes) -> Result<Option<(u64, Arc<str>)>, SendError> {
        let mut routing = self.routing.lock();
        let Some(range) = routing.ranges.find(key) else { return Ok(None) };
        let (range_id, version) = (range.id, range.version);
        if let Some((required, keys)) = &trip.required
            && (*required != range_id || !routing.ranges.locate(key).is_some_and(|at| at.holds_all(keys)))
        {
            return Err(SendError::Split);
        }
        trip.version = Some(version);
        let Some(address) = trip.walk.next(range.candidates()) else { return Ok(None) };
        // Whoever has to tell this node something before it answers finds it.
        routing.ranges.supposed(key, range_id, &address);
        Ok(Some((range_id, address)))
    }

    /// Learns from what a node said; fails if that is for the sender to know.
    fn take_miss(
        &self,
        trip: &mut Trip,
        key: &Bytes,
        range_id: u64,
        address: &Arc<str>,
        miss: Miss,
    ) -> Result<(), SendError> {
        if let Some(next) = self.note_miss(key, range_id, address, &miss) {
            trip.walk.redirected(address, next);
        }
        match miss {
            Miss::Error(error) => return Err(SendError::Kv(error)),
            Miss::Lost => trip.use_resend()?,
            Miss::RangeNotFound(_) => trip.must_look_up = true,
            Miss::NotLeaseholder(_) | Miss::Unavailable(_) | Miss::Unsent => {}
        }
        trip.last = miss.into_error().or(trip.last.take());
        Ok(())
    }

    /// Corrects what is known of a range; returns whom to ask next if a node named one.
    pub(super) fn note_miss(
        &self,
        key: &[u8],
        range_id: u64,
        by: &Arc<str>,
        miss: &Miss,
    ) -> Option<Arc<str>> {
        match miss {
            Miss::Error(_) => None,
            Miss::NotLeaseholder(error) => {
                let hint = self.hint(error);
                self.routing.lock().ranges.redirected(key, range_id, by, hint)
            }
            Miss::RangeNotFound(_) | Miss::Unavailable(_) | Miss::Unsent | Miss::Lost => {
                self.count(miss);
                self.routing.lock().ranges.failed(key, range_id, by);
                None
            }
        }
    }

    /// The node that another one named as leaseholder.
    fn hint(&self, error: &KvError) -> Option<Arc<str>> {
        metrics().redirects.inc();
        let hint = error.leaseholder.as_deref().filter(|text| is_address(text))?;
        let mut routing = self.routing.lock();
        routing.addresses.learn(hint);
        self.publish(&routing.addresses);
        Some(hint.into())
    }

    fn count(&self, miss: &Miss) {
        if matches!(miss, Miss::Lost) {
            metrics().lost.inc();
        }
    }

    /// Reads from a replica that need not hold the lease; `None` if it would not.
    async fn try_near(
        &self,
        trip: &mut Trip,
        batch: &mut BatchRequest,
        key: &Bytes,
        turn: usize,
    ) -> Option<Result<Sent, SendError>> {
        if let Err(error) = self.look_up_if_due(trip, key).await {
            return Some(Err(error));
        }
        let (range_id, address, untried) = {
            let routing = self.routing.lock();
            let range = routing.ranges.find(key)?;
            if trip.required.as_ref().is_some_and(|(required, _)| *required != range.id) {
                return Some(Err(SendError::Split));
            }
            trip.version = Some(range.version);
            let round_trip = |address: &str| routing.connections.round_trip(address);
            let address = range.replica(&self.config.near, turn, round_trip)?.clone();
            (range.id, address, range.untried)
        };
        batch.header.any_replica = true;
        let patience = trip.deadline.min(Instant::now() + NEAR_PATIENCE);
        let tried = self.try_at(&address, range_id, batch, patience, None).await;
        batch.header.any_replica = false;
        match tried {
            Ok(sent) => Some(Ok(sent)),
            Err(Miss::Error(error)) => Some(Err(SendError::Kv(error))),
            Err(miss) => {
                self.count(&miss);
                trip.must_look_up = matches!(miss, Miss::RangeNotFound(_)) && !untried;
                None
            }
        }
    }

    /// A replica did not serve a read that need not be the leaseholder's: the leaseholder will.
    fn note_near_miss(&self, key: &[u8], place: &Place, miss: &Miss) {
        match miss {
            // The node named by a replica is as good as one named by any other.
            Miss::NotLeaseholder(_) => {
                self.note_miss(key, place.range_id, &place.connection.address, miss);
            }
            _ => self.count(miss),
        }
    }

    /// Looks the range up if it is not known, or known wrongly; once between two pauses.
    pub(super) async fn look_up_if_due(&self, trip: &mut Trip, key: &Bytes) -> Result<(), SendError> {
        let unknown = self.routing.lock().ranges.find(key).is_none();
        if trip.looked_up || !(unknown || trip.must_look_up) {
            return Ok(());
        }
        (trip.looked_up, trip.must_look_up) = (true, false);
        let Ok(_alone) = tokio::time::timeout_at(trip.deadline, self.looking_up.lock()).await else {
            return Ok(());
        };
        let now = self.version(key);
        if now.is_some() && now != trip.version {
            // Somebody else did.
            return Ok(());
        }
        self.look_up(trip, key).await
    }

    pub(super) fn version(&self, key: &[u8]) -> Option<u64> {
        self.routing.lock().ranges.find(key).map(|range| range.version)
    }

    /// Asks the nodes in turn which range holds a key, until one knows.
    pub(super) async fn look_up(&self, trip: &mut Trip, key: &Bytes) -> Result<(), SendError> {
        let lookup = RequestKind::RangeLookup(RangeLookup { key: key.clone() });
        let mut batch = BatchRequest { header: Header::default(), requests: vec![lookup.into()] };
        let mut walk = Walk::default();
        metrics().lookups.inc();
        while let Some(address) = self.next_node(&mut walk, None) {
            let answer = match self.try_at(&address, 0, &mut batch, trip.deadline, None).await {
                Ok(sent) => {
                    sent.place.connection.note_lookup();
                    trip.directory = Some(sent.place);
                    miss::range_found(sent.response)
                }
                Err(Miss::Error(error)) => return Err(SendError::Kv(error)),
                Err(Miss::NotLeaseholder(error)) => {
                    self.hint(&error).into_iter().for_each(|hint| walk.redirected(&address, hint));
                    Err(error)
                }
                Err(miss) => {
                    self.count(&miss);
                    Err(miss.into_error().unwrap_or_else(|| miss::unavailable(None)))
                }
            };
            match answer {
                Ok(info) if info.start <= *key && (info.end.is_empty() || *key < info.end) => {
                    self.routing.lock().ranges.learn(&info);
                    return Ok(());
                }
                Ok(_) => {
                    let message = "the KV node named a range that does not hold the keys";
                    trip.last = Some(KvError::new(KvErrorKind::Internal, message));
                }
                Err(error) => {
                    if error.kind() == KvErrorKind::RangeNotFound {
                        self.routing.lock().ranges.forget(key);
                    }
                    trip.last = Some(error);
                }
            }
        }
        Ok(())
    }

    /// The next node to ask about the cluster, those there is a connection to first.
    fn next_node(&self, walk: &mut Walk, first: Option<&Arc<str>>) -> Option<Arc<str>> {
        let routing = self.routing.lock();
        let connected = |address: &&Arc<str>| routing.connections.existing(address).is_some();
        let known = || routing.addresses.iter();
        walk.next(first.into_iter().chain(known().filter(connected)).chain(known()))
    }

    /// A connection that was only used to find the leaseholder is not kept beside the leaseholder's.
    fn retire_directory(&self, directory: Option<Place>, served: &Place) {
        let address = match directory {
            Some(Place { connection, .. }) => Some(connection.address.clone()),
            None => self.routing.lock().directory.take(),
        };
        let Some(address) = address.filter(|address| *address != served.connection.address) else { return };
        let mut routing = self.routing.lock();
        if routing.connections.existing(&address).is_some_and(|connection| connection.is_for_lookups()) {
            routing.connections.retire(&address);
        }
    }

    /// Sends a batch about the cluster to whichever node leads the cluster's own range.
    pub(super) async fn send_to_cluster(
        &self,
        batch: &mut BatchRequest,
        again: bool,
    ) -> Result<Sent, SendError> {
        let mut trip = self.trip(again);
        loop {
            if let Some(sent) = self.walk_cluster(&mut trip, batch).await? {
                return Ok(sent);
            }
            self.pause(&mut trip).await?;
        }
    }

    /// Asks every node known once; `None` if none leads the cluster's own range.
    async fn walk_cluster(
        &self,
        trip: &mut Trip,
        batch: &mut BatchRequest,
    ) -> Result<Option<Sent>, SendError> {
        loop {
            let root = self.routing.lock().root.clone();
            let Some(address) = self.next_node(&mut trip.walk, root.as_ref()) else { return Ok(None) };
            match self.try_at(&address, 0, batch, trip.deadline, None).await {
                Ok(sent) => {
                    self.routing.lock().root = Some(address);
                    return Ok(Some(sent));
                }
                Err(miss) => {
                    let hint = match &miss {
                        Miss::NotLeaseholder(error) => self.hint(error),
                        _ => None,
                    };
                    self.routing.lock().root = hint.clone();
                    hint.into_iter().for_each(|hint| trip.walk.redirected(&address, hint));
                    match miss {
                        Miss::Error(error) => return Err(SendError::Kv(error)),
                        Miss::Lost => {
                            self.count(&miss);
                            trip.use_resend()?;
                        }
                        _ => trip.last = miss.into_error().or(trip.last.take()),
                    }
                }
            }
        }
    }

    /// Sends a batch to a node, as soon as there is a connection.
    async fn try_at(
        &self,
        address: &Arc<str>,
        range_id: u64,
        batch: &mut BatchRequest,
        deadline: Instant,
        tried: Option<&Tried>,
    ) -> Result<Sent, Miss> {
        let connection = self.connection(address).map_err(|none| match none {
            NoConnection::Failed(Some(error)) => Miss::of(error),
            NoConnection::Failed(None) => Miss::Unsent,
            NoConnection::TooMany => {
                Miss::Unavailable(KvError::new(KvErrorKind::Unavailable, "too many connections are in use"))
            }
        })?;
        let opened = tokio::time::timeout_at(deadline, connection.pending.settled());
        if opened.await.is_err() {
            return Err(Miss::Unsent);
        }
        let place = Place { connection, range_id };
        let response = self.try_on(&place, batch, tried).await?;
        Ok(Sent { response, place })
    }

    /// Waits before the nodes are asked again; fails when the time is up.
    pub(super) async fn pause(&self, trip: &mut Trip) -> Result<(), SendError> {
        let until = Instant::now() + trip.pauses.next(self.config.environment.random_fraction());
        if until >= trip.deadline {
            return Err(SendError::Kv(miss::unavailable(trip.last.take())));
        }
        tokio::time::sleep_until(until).await;
        trip.walk = Walk::default();
        Ok(())
    }
}
