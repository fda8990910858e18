//! What must hold at every moment of a run.

use crate::layout::{INITIAL, Register};
use crate::register::{OpId, Version};
use kv_api::Timestamp;
use replication::{NodeId, RangeId};
use std::collections::{BTreeMap, BTreeSet};

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
    /// By range and term, who led.
    leaders: BTreeMap<(RangeId, u64), NodeId>,
    /// By range and sequence number, whose lease it was: node and epoch.
    leases: BTreeMap<(RangeId, u64), (NodeId, u64)>,
    /// By range and sequence number of the lease, the smallest and the largest timestamp served.
    served: BTreeMap<(RangeId, u64), (Timestamp, Timestamp)>,
    /// By register, who served it.
    servers: BTreeMap<Register, Servers>,
    /// By register and version, the write that made it.
    versions: BTreeMap<(Register, u64), OpId>,
    /// By value, the write that was to make it.
    evaluated: BTreeMap<u64, Version>,
    /// Reads of a register at a timestamp, and the values they got.
    reads: Vec<(OpId, Register, Timestamp, u64)>,
}

/// Who serves a register: a range, as it is between two changes of its descriptor, under a lease. A range may give up
/// a register and have it again under one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// The range.
    pub range: RangeId,
    /// The generation of its descriptor.
    pub generation: u64,
    /// The sequence number of its lease.
    pub lease: u64,
}

/// Who served a register.
#[derive(Debug)]
struct Servers {
    /// Who does now.
    now: Server,
    /// Who did before and never does again.
    before: BTreeSet<Server>,
    /// The largest timestamp served.
    largest: Timestamp,
}

impl Watch {
    /// A node leads a range in a term. True if nobody did before.
    ///
    /// # Errors
    /// If another led in that term.
    pub fn leads(&mut self, node: NodeId, range: RangeId, term: u64) -> Result<bool, Violation> {
        match self.leaders.insert((range, term), node) {
            None => Ok(true),
            Some(other) if other == node => Ok(false),
            Some(other) => {
                let detail = format!("nodes {other} and {node} both led range {range} in term {term}");
                Err(Violation::new("one leader", detail))
            }
        }
    }

    /// A node acquired a lease, or served under it.
    ///
    /// # Errors
    /// If it was another's.
    pub fn leased(
        &mut self,
        node: NodeId,
        epoch: u64,
        range: RangeId,
        sequence: u64,
    ) -> Result<(), Violation> {
        match self.leases.insert((range, sequence), (node, epoch)) {
            Some(other) if other != (node, epoch) => {
                let detail = format!(
                    "lease {sequence} of range {range} was held by node {} in epoch {} and node {node} in epoch {epoch}",
                    other.0, other.1
                );
                Err(Violation::new("one holder", detail))
            }
            _ => Ok(()),
        }
    }

    /// A timestamp was served under a lease of a range.
    ///
    /// # Errors
    /// If an earlier lease served a later one, or a later lease an earlier one.
    pub fn served(&mut self, range: RangeId, sequence: u64, timestamp: Timestamp) -> Result<(), Violation> {
        let wrong = |other: u64, at: Timestamp| {
            let detail =
                format!("of range {range} lease {sequence} served {timestamp}, lease {other} served {at}");
            Err(Violation::new("timestamps of leases", detail))
        };
        if let Some(((_, other), (_, largest))) = self.served.range((range, 0)..(range, sequence)).next_back()
            && *largest >= timestamp
        {
            return wrong(*other, *largest);
        }
        if let Some(((_, other), (smallest, _))) =
            self.served.range((range, sequence + 1)..=(range, u64::MAX)).next()
            && *smallest <= timestamp
        {
            return wrong(*other, *smallest);
        }
        let (smallest, largest) = self.served.entry((range, sequence)).or_insert((timestamp, timestamp));
        (*smallest, *largest) = ((*smallest).min(timestamp), (*largest).max(timestamp));
        Ok(())
    }

    /// A register was served under a lease of a range.
    ///
    /// # Errors
    /// If that lease had been followed by another, of this range or one that was split off; if the other
    /// had served a later timestamp.
    pub fn served_register(
        &mut self,
        register: Register,
        server: Server,
        timestamp: Timestamp,
    ) -> Result<(), Violation> {
        let new = || Servers { now: server, before: BTreeSet::new(), largest: Timestamp::MIN };
        let servers = self.servers.entry(register).or_insert_with(new);
        if servers.now != server {
            let detail = format!(
                "register {register} was served at {timestamp} by {server:?}, and before until {} by {:?}",
                servers.largest, servers.now
            );
            if servers.before.contains(&server) {
                return Err(Violation::new("one server after the other", detail));
            }
            if servers.largest >= timestamp {
                return Err(Violation::new("timestamps of registers", detail));
            }
            servers.before.insert(std::mem::replace(&mut servers.now, server));
        }
        servers.largest = servers.largest.max(timestamp);
        Ok(())
    }

    /// A write was evaluated, and may take effect.
    pub fn evaluated(&mut self, version: Version) {
        self.evaluated.insert(version.value, version);
    }

    /// A register was read as it was at a timestamp.
    pub fn read(&mut self, op: OpId, register: Register, timestamp: Timestamp, value: u64) {
        self.reads.push((op, register, timestamp, value));
    }

    /// Whether every read of a register got what was the newest value at its timestamp, now that the value
    /// of the register in the end is known: every version says which one was before it.
    ///
    /// # Errors
    /// If one did not.
    pub fn check_reads(&self, register: Register, last: u64) -> Result<(), Violation> {
        let mut versions = BTreeMap::from([(Timestamp::MIN, INITIAL)]);
        let mut value = last;
        while let Some(version) = self.evaluated.get(&value).filter(|version| version.register == register) {
            versions.insert(version.timestamp, value);
            value = version.over;
        }
        for (op, _, timestamp, value) in self.reads.iter().filter(|(_, of, _, _)| *of == register) {
            let expected = versions.range(..=*timestamp).next_back();
            if let Some((at, expected)) = expected.filter(|(_, expected)| *expected != value) {
                let detail = format!(
                    "operation {op} read {value} in register {register} at {timestamp}, which held {expected} \
                     since {at}"
                );
                return Err(Violation::new("reads of the past", detail));
            }
        }
        Ok(())
    }

    /// A write took effect as a version of a register.
    ///
    /// # Errors
    /// If another write did so as well: both were evaluated over the same one before, and one is lost.
    pub fn applied(&mut self, op: OpId, version: Version) -> Result<(), Violation> {
        let Version { register, number: version, .. } = version;
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
