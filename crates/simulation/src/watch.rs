//! What must hold at every moment of a run.

use crate::register::OpId;
use kv_api::Timestamp;
use replication::NodeId;
use std::collections::BTreeMap;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which check found it.
    pub check: &'static str,
    /// What was found.
    pub detail: String,
}

impl Violation {
    /// A violation of a check.
    pub fn new(check: &'static str, detail: impl Into<String>) -> Self {
        Violation { check, detail: detail.into() }
    }
}

/// What was seen so far of things that must happen once, or in order.
#[derive(Debug, Default)]
pub struct Watch {
    /// By term, who led.
    leaders: BTreeMap<u64, NodeId>,
    /// By sequence number, whose lease it was: node and epoch.
    leases: BTreeMap<u64, (NodeId, u64)>,
    /// By sequence number of the lease, the smallest and the largest timestamp served.
    served: BTreeMap<u64, (Timestamp, Timestamp)>,
    /// By register and version, the write that made it.
    versions: BTreeMap<(u8, u64), OpId>,
}

impl Watch {
    /// A node leads in a term. True if nobody did before.
    ///
    /// # Errors
    /// If another led in that term.
    pub fn leads(&mut self, node: NodeId, term: u64) -> Result<bool, Violation> {
        match self.leaders.insert(term, node) {
            None => Ok(true),
            Some(other) if other == node => Ok(false),
            Some(other) => {
                Err(Violation::new("one leader", format!("nodes {other} and {node} both led in term {term}")))
            }
        }
    }

    /// A node acquired a lease, or served under it.
    ///
    /// # Errors
    /// If it was another's.
    pub fn leased(&mut self, node: NodeId, epoch: u64, sequence: u64) -> Result<(), Violation> {
        match self.leases.insert(sequence, (node, epoch)) {
            Some(other) if other != (node, epoch) => {
                let detail = format!(
                    "lease {sequence} was held by node {} in epoch {} and node {node} in epoch {epoch}",
                    other.0, other.1
                );
                Err(Violation::new("one holder", detail))
            }
            _ => Ok(()),
        }
    }

    /// A timestamp was served under a lease.
    ///
    /// # Errors
    /// If an earlier lease served a later one, or a later lease an earlier one.
    pub fn served(&mut self, sequence: u64, timestamp: Timestamp) -> Result<(), Violation> {
        let wrong = |other: u64, at: Timestamp| {
            let detail = format!("lease {sequence} served {timestamp}, lease {other} served {at}");
            Err(Violation::new("timestamps of leases", detail))
        };
        if let Some((other, (_, largest))) = self.served.range(..sequence).next_back()
            && *largest >= timestamp
        {
            return wrong(*other, *largest);
        }
        if let Some((other, (smallest, _))) = self.served.range(sequence + 1..).next()
            && *smallest <= timestamp
        {
            return wrong(*other, *smallest);
        }
        let (smallest, largest) = self.served.entry(sequence).or_insert((timestamp, timestamp));
        (*smallest, *largest) = ((*smallest).min(timestamp), (*largest).max(timestamp));
        Ok(())
    }

    /// A write took effect as a version of a register.
    ///
    /// # Errors
    /// If another write did so as well: both were evaluated over the same one before, and one is lost.
    pub fn applied(&mut self, op: OpId, register: u8, version: u64) -> Result<(), Violation> {
        match self.versions.insert((register, version), op) {
            Some(other) if other != op => {
                let detail =
                    format!("operations {other} and {op} both made version {version} of register {register}");
                Err(Violation::new("versions", detail))
            }
            _ => Ok(()),
        }
    }
}
