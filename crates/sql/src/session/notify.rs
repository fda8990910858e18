//! LISTEN and NOTIFY among the sessions of a node. What goes to other nodes, and comes from there, is `instances::notes`.

use super::api::Notification;
use parking_lot::Mutex;
use sql_types::Oid;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Notifications a session may leave unread; later ones are lost and logged.
const MOST_UNREAD: usize = 10_000;

/// What has arrived for one session.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: Mutex<VecDeque<Notification>>,
    pub wake: Notify,
}

impl Inbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Notification> {
        self.queue.lock().drain(..).collect()
    }

    fn put(&self, notification: Notification) {
        let mut queue = self.queue.lock();
        if queue.len() >= MOST_UNREAD {
            tracing::warn!(channel = &*notification.channel, "a session does not read its notifications");
            return;
        }
        queue.push_back(notification);
        drop(queue);
        self.wake.notify_one();
    }
}

/// Sessions listening on one channel.
type Listeners = Vec<(u64, Arc<Inbox>)>;

/// Who listens on which channel of which database.
#[derive(Default)]
pub(crate) struct NotifyHub(Mutex<HashMap<(Oid, Arc<str>), Listeners>>);

impl NotifyHub {
    pub(crate) fn listen(&self, database: Oid, channel: &str, session: u64, inbox: &Arc<Inbox>) {
        let mut channels = self.0.lock();
        let listeners = channels.entry((database, channel.into())).or_default();
        if listeners.iter().all(|(listener, _)| *listener != session) {
            listeners.push((session, inbox.clone()));
        }
    }

    /// Stops listening on a channel, or on all.
    pub(crate) fn unlisten(&self, session: u64, channel: Option<&str>) {
        self.0.lock().retain(|(_, name), listeners| {
            if channel.is_none_or(|channel| channel == &**name) {
                listeners.retain(|(listener, _)| *listener != session);
            }
            !listeners.is_empty()
        });
    }

    /// Whether nobody listens.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The channels a session listens on.
    pub(crate) fn channels(&self, session: u64) -> Vec<Arc<str>> {
        let channels = self.0.lock();
        let mine = channels
            .iter()
            .filter(|(_, listeners)| listeners.iter().any(|(listener, _)| *listener == session));
        mine.map(|((_, name), _)| name.clone()).collect()
    }

    pub(crate) fn send(&self, database: Oid, notification: &Notification) {
        let channels = self.0.lock();
        let listeners = channels.get(&(database, notification.channel.clone()));
        for (_, inbox) in listeners.into_iter().flatten() {
            inbox.put(notification.clone());
        }
    }
}
