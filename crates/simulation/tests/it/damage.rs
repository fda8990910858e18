//! Bytes that change on a disk: a store stops with an error or goes on, but never panics.
//!
//! What lies in the log and in the state of a replica has no checksum of its own, for RocksDB's blocks have
//! one; so a store need not notice. The in-memory engine has none, which is what lets these bytes through.

use bytes::Bytes;
use kv_api::Timestamp;
use replication::{Envelope, Event, NodeId, Proposal, RangeDescriptor, Sound, Store, StoreConfig, store};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use storage::{Bounds, Engine, MemoryEngine, Reader, Space, WriteBatch};

const RANGE: u64 = 1;
const TICK_MS: u64 = 100;

fn open(
    node: NodeId,
    engine: &Arc<MemoryEngine>,
    epoch: u64,
) -> replication::ReplicationResult<Store<Sound>> {
    let config = StoreConfig { log_keep: 4, ..StoreConfig::new(node, epoch, node) };
    Store::open(Arc::clone(engine) as Arc<dyn Engine>, config, Sound, 0)
}

/// Three nodes on a network without delay. Gives what each has on its disk after some writes.
fn disks() -> Vec<Arc<MemoryEngine>> {
    let voters = [1, 2, 3];
    let start = Bytes::from_static(b"k");
    let descriptor = RangeDescriptor {
        range_id: RANGE,
        start,
        end: Bytes::from_static(b"l"),
        generation: 1,
        ..RangeDescriptor::default()
    };
    let engines: Vec<_> = voters.iter().map(|_| Arc::new(MemoryEngine::new())).collect();
    for engine in &engines {
        store::bootstrap(&**engine, &descriptor, &voters).expect("bootstrap");
    }
    let mut stores: Vec<_> =
        voters.iter().zip(&engines).map(|(node, engine)| open(*node, engine, 1).expect("open")).collect();
    let mut proposed = 0;
    for round in 1..60 {
        let now = round * TICK_MS;
        for store in &mut stores {
            store.wake(now, RANGE).expect("wake");
            store.tick(now);
        }
        let mut busy = true;
        while busy {
            let mut messages: Vec<Envelope> = Vec::new();
            for store in &mut stores {
                for event in store.process(now).expect("process") {
                    if let Event::LeaseAcquired { sequence, .. } = event {
                        proposed = sequence;
                    }
                }
                messages.extend(store.take_messages());
            }
            busy = !messages.is_empty();
            for message in messages {
                let to = stores.iter_mut().find(|store| store.node() == message.to).expect("a node");
                to.step(now, message);
            }
        }
        let mut batch = WriteBatch::new();
        batch.put(Space::Data, b"k1", &round.to_be_bytes());
        for store in stores.iter_mut().filter(|_| proposed > 0) {
            let batch = batch.clone();
            // Whoever does not hold the lease refuses.
            let (id, lease_sequence) = (round, proposed);
            let proposal =
                Proposal { id, range: RANGE, lease_sequence, batch, change: None, closed: Timestamp::MIN };
            let _ = store.propose(now, proposal);
        }
    }
    assert!(stores.iter().any(|store| store.status(RANGE).is_some_and(|status| status.truncated > 20)));
    engines
}

/// A copy of a disk with one byte changed.
fn damaged(disk: &MemoryEngine, key: &[u8], place: usize, with: u8) -> Arc<MemoryEngine> {
    let copy = MemoryEngine::new();
    let mut batch = WriteBatch::new();
    for space in Space::ALL {
        let mut cursor = disk.cursor(space, Bounds::all());
        cursor.seek_to_first();
        while let Some((found, value)) = cursor.item() {
            let mut value = value.to_vec();
            if space == Space::Raft && found == key {
                value[place] ^= with;
            }
            batch.put(space, found, &value);
            cursor.next();
        }
    }
    copy.write(&batch, true).expect("write");
    Arc::new(copy)
}

/// Starts a node and lets it tick for a while. False if the store stopped with an error.
fn serves(node: NodeId, disk: &Arc<MemoryEngine>) -> bool {
    let Ok(mut store) = open(node, disk, 2) else { return false };
    for round in 1..40 {
        if store.wake(round * TICK_MS, RANGE).is_err() {
            return false;
        }
        store.tick(round * TICK_MS);
        if store.process(round * TICK_MS).is_err() {
            return false;
        }
        store.take_messages();
    }
    true
}

#[test]
fn a_changed_byte_panics_nothing() {
    let disks = disks();
    let (mut stopped, mut went_on, mut panicked) = (0, 0, Vec::new());
    for (node, disk) in (1..).zip(&disks) {
        let mut cursor = disk.cursor(Space::Raft, Bounds::all());
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            for (place, with) in (0..value.len()).flat_map(|place| [(place, 1), (place, 0x80), (place, 0xff)])
            {
                let disk = damaged(disk, key, place, with);
                match catch_unwind(AssertUnwindSafe(|| serves(node, &disk))) {
                    Ok(true) => went_on += 1,
                    Ok(false) => stopped += 1,
                    Err(_) => panicked.push((node, key.to_vec(), place, with)),
                }
            }
            cursor.next();
        }
    }
    assert!(panicked.is_empty(), "{} of {} panicked: {panicked:?}", panicked.len(), stopped + went_on);
    assert!(stopped > 0 && went_on > 0, "{stopped} stopped, {went_on} went on");
}
