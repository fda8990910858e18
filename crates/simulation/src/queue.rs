//! What will happen, in order.

use crate::clock::Micros;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Future events; those of the same time come in the order in which they were added.
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    added: u64,
}

struct Entry<T> {
    at: Micros,
    order: u64,
    event: T,
}

impl<T> Queue<T> {
    /// Nothing.
    pub fn new() -> Self {
        Queue { heap: BinaryHeap::new(), added: 0 }
    }

    /// Adds an event.
    pub fn push(&mut self, at: Micros, event: T) {
        self.added += 1;
        self.heap.push(Reverse(Entry { at, order: self.added, event }));
    }

    /// Takes the next event and its time.
    pub fn pop(&mut self) -> Option<(Micros, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}
