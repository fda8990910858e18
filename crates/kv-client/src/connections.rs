//! The connections of a client, by address.
//!
//! A connection is made when somebody wants it, and stays until it ends. One that could not be made is not
//! tried again for as long as the attempt took: requests go elsewhere meanwhile, and no node is flooded.

use crate::connection::{Connection, ConnectionError};
use hashbrown::HashMap;
use kv_api::KvError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Most connections.
pub const MAX_CONNECTIONS: usize = 64;
/// Shortest and longest time for which an address is not tried again after a failure.
const LEAST_REST: Duration = Duration::from_millis(20);
const MOST_REST: Duration = Duration::from_secs(3);
/// The same after the KV node refused the client.
const REFUSED_REST: Duration = Duration::from_secs(1);

/// Why there is no connection to an address now.
#[derive(Debug)]
pub enum NoConnection {
    /// It could not be made a moment ago, and why if the KV node refused the client.
    Failed(Option<KvError>),
    /// All the connections there can be are in use.
    TooMany,
}

/// Connections by address.
#[derive(Default)]
pub struct Connections {
    nodes: HashMap<Arc<str>, Node>,
    last_number: u64,
}

struct Node {
    connection: Arc<Connection>,
    /// Runs the connection.
    _task: AbortOnDrop,
    began: Instant,
    greeted: bool,
    /// Since it failed: until when to leave the address alone, and what the node said.
    failed: Option<(Instant, Option<KvError>)>,
    /// Whether it was said already that the node cannot be reached.
    told: bool,
}

struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Connections {
    /// The connection to an address, if there is one.
    pub fn existing(&self, address: &str) -> Option<&Arc<Connection>> {
        self.nodes.get(address).filter(|node| node.failed.is_none()).map(|node| &node.connection)
    }

    /// How far away the node at an address is, there and back, if that is known.
    pub fn round_trip(&self, address: &str) -> Option<Duration> {
        self.nodes.get(address)?.connection.round_trip()
    }

    /// The connection to an address. If there is none, `start` gets to run a new one.
    ///
    /// # Errors
    /// [`NoConnection`]
    pub fn get(
        &mut self,
        address: &Arc<str>,
        now: Instant,
        start: impl FnOnce(&Arc<Connection>) -> Option<AbortHandle>,
    ) -> Result<Arc<Connection>, NoConnection> {
        let told = match self.nodes.get(address) {
            Some(Node { failed: None, connection, .. }) => return Ok(connection.clone()),
            Some(Node { failed: Some((until, error)), .. }) if now < *until => {
                return Err(NoConnection::Failed(error.clone()));
            }
            Some(node) => Some(node.told),
            None => None,
        };
        if told.is_none() && !self.make_room() {
            return Err(NoConnection::TooMany);
        }
        self.last_number += 1;
        let (number, address) = (self.last_number, address.clone());
        let connection = Arc::new(Connection::new(number, address.clone()));
        let task = AbortOnDrop(start(&connection));
        let node = Node {
            connection: connection.clone(),
            _task: task,
            began: now,
            greeted: false,
            failed: None,
            told: told.unwrap_or(false),
        };
        self.nodes.insert(address, node);
        Ok(connection)
    }

    /// The KV node said hello.
    pub fn greeted(&mut self, connection: &Connection) {
        if let Some(node) = self.node_of(connection) {
            (node.greeted, node.told) = (true, false);
        }
    }

    /// A connection ends. Returns whether that is news.
    pub fn ended(&mut self, connection: &Connection, error: &ConnectionError, now: Instant) -> bool {
        let Some(node) = self.node_of(connection) else { return false };
        let took = now.saturating_duration_since(node.began).clamp(LEAST_REST, MOST_REST);
        node.failed = match error {
            ConnectionError::Refused(refusal) => {
                let rest = if error.is_not_leaseholder() { took } else { REFUSED_REST };
                Some((now + rest, Some(refusal.clone())))
            }
            ConnectionError::Silent => Some((now + MOST_REST, None)),
            ConnectionError::Io(_) if node.greeted => Some((now, None)),
            ConnectionError::Io(_) => Some((now + took, None)),
        };
        !std::mem::replace(&mut node.told, true)
    }

    /// Ends a connection on which no request is under way and which nobody else holds.
    pub fn retire(&mut self, address: &str) {
        if self.nodes.get(address).is_some_and(close_if_unused) {
            self.nodes.remove(address);
        }
    }

    fn node_of(&mut self, connection: &Connection) -> Option<&mut Node> {
        self.nodes.get_mut(&connection.address).filter(|node| node.connection.number == connection.number)
    }

    /// Makes room for one more; false if all are in use.
    fn make_room(&mut self) -> bool {
        if self.nodes.len() < MAX_CONNECTIONS {
            return true;
        }
        let unused = |node: &Node| node.failed.is_some() || close_if_unused(node);
        let unused = self.nodes.iter().find(|(_, node)| unused(node)).map(|(address, _)| address.clone());
        unused.is_some_and(|address| self.nodes.remove(&address).is_some())
    }
}

/// Closes a connection unless a request is under way or a transaction holds it.
fn close_if_unused(node: &Node) -> bool {
    // The table has one reference, the task that runs the connection another.
    Arc::strong_count(&node.connection) <= 2 && node.connection.pending.close_if_idle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn broken() -> ConnectionError {
        ConnectionError::Io(io::ErrorKind::ConnectionRefused.into())
    }

    struct Table {
        connections: Connections,
        now: Instant,
        started: usize,
    }

    impl Table {
        fn get(&mut self, address: &str) -> Result<Arc<Connection>, NoConnection> {
            self.connections.get(&address.into(), self.now, |connection| {
                self.started += 1;
                connection.pending.open();
                None
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_made_once_and_again_after_a_rest() {
        let mut table = Table { connections: Connections::default(), now: Instant::now(), started: 0 };
        let first = table.get("a:1").unwrap();
        assert_eq!(table.get("a:1").unwrap().number, first.number);
        assert!(table.connections.existing("a:1").is_some() && table.connections.existing("b:1").is_none());
        table.now += Duration::from_millis(500);
        assert!(table.connections.ended(&first, &broken(), table.now));
        assert!(table.connections.existing("a:1").is_none());
        table.now += Duration::from_millis(499);
        assert!(matches!(table.get("a:1"), Err(NoConnection::Failed(None))), "it took 500 ms to fail");
        table.now += Duration::from_millis(1);
        let second = table.get("a:1").unwrap();
        assert!(second.number > first.number && table.started == 2);
        assert!(!table.connections.ended(&first, &broken(), table.now), "long gone");
        assert!(!table.connections.ended(&second, &broken(), table.now), "no news");
    }

    #[tokio::test(start_paused = true)]
    async fn how_long_a_node_is_left_alone_depends_on_what_it_did() {
        let mut table = Table { connections: Connections::default(), now: Instant::now(), started: 0 };
        let lost = table.get("a:1").unwrap();
        table.connections.greeted(&lost);
        assert!(table.connections.ended(&lost, &broken(), table.now));
        let again = table.get("a:1").unwrap();
        let refused = KvError::new(kv_api::KvErrorKind::Unauthorized, "no");
        table.connections.ended(&again, &ConnectionError::Refused(refused), table.now);
        assert!(matches!(table.get("a:1"), Err(NoConnection::Failed(Some(_)))));
        table.now += REFUSED_REST;
        let again = table.get("a:1").unwrap();
        table.connections.greeted(&again);
        table.connections.ended(&again, &ConnectionError::Silent, table.now);
        assert!(matches!(table.get("a:1"), Err(NoConnection::Failed(None))));
        table.now += MOST_REST;
        assert!(table.get("a:1").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_bounded_and_unused_ones_make_room() {
        let mut table = Table { connections: Connections::default(), now: Instant::now(), started: 0 };
        // In the table and at whoever runs it; held a third time, it is in use.
        let run: Vec<_> = (0..MAX_CONNECTIONS).map(|n| table.get(&format!("h{n}:1")).unwrap()).collect();
        let used = run.clone();
        assert!(matches!(table.get("a:1"), Err(NoConnection::TooMany)));
        let [first, second, ..] = &used[..] else { unreachable!() };
        table.connections.ended(first, &broken(), table.now);
        let new = table.get("a:1").unwrap();
        assert_eq!(table.connections.nodes.len(), MAX_CONNECTIONS);
        table.connections.retire("h1:1");
        assert!(second.pending.submit(&mut Default::default()).is_ok(), "somebody has it");
        drop((used, new));
        let other = &run[2];
        table.connections.retire("h2:1");
        assert!(other.pending.submit(&mut Default::default()).is_err());
        assert_eq!(table.connections.nodes.len(), MAX_CONNECTIONS - 1);
    }
}
