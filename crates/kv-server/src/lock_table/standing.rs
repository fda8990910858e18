//! What is out of the ordinary about transactions: their priority, and whether locks can be taken from them.

use super::TxnKey;
use hashbrown::HashMap;
use kv_api::Priority;

#[derive(Clone, Copy, Default)]
struct Standing {
    priority: Priority,
    firm: bool,
}

/// The standing of those transactions about which there is something to say: as a rule none.
#[derive(Default)]
pub(super) struct Standings(HashMap<TxnKey, Standing>);

impl Standings {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, txn: TxnKey) -> Standing {
        self.0.get(&txn).copied().unwrap_or_default()
    }

    pub(super) fn priority(&self, txn: TxnKey) -> Priority {
        self.of(txn).priority
    }

    /// Whether a transaction takes locks from anybody at all.
    pub(super) fn takes_any(&self, by: TxnKey) -> bool {
        !self.is_empty() && self.priority(by) == Priority::High
    }

    /// Whether locks can be taken from a transaction.
    pub(super) fn can_lose(&self, holder: TxnKey) -> bool {
        let held = self.of(holder);
        held.priority == Priority::Low && !held.firm
    }

    /// Whether `by` takes locks from `holder`.
    pub(super) fn takes(&self, by: TxnKey, holder: TxnKey) -> bool {
        self.takes_any(by) && self.can_lose(holder)
    }

    /// Notes the priority of a transaction that asks for a lock.
    pub(super) fn note(&mut self, txn: TxnKey, priority: Priority) {
        if priority != Priority::Normal {
            self.0.entry(txn).or_default().priority = priority;
        }
    }

    /// From now on nobody takes locks from a transaction. Others are not in danger.
    pub(super) fn make_firm(&mut self, txn: TxnKey) {
        if let Some(standing) = self.0.get_mut(&txn) {
            standing.firm = true;
        }
    }

    pub(super) fn remove(&mut self, txn: TxnKey) {
        self.0.remove(&txn);
    }
}
