//! [`Section`]: all records of the instances, as one snapshot has them.

use super::InstanceId;
use super::record::{self, Answer, Instance, Kind, Request, VERSION, kind_of};
use crate::catalog::store;
use crate::exec::kv_error;
use kv_api::LockStrength;
use kv_client::{ScanOptions, Timestamp, Txn};
use serde::de::DeserializeOwned;
use sql_types::SqlResult;
use std::collections::BTreeMap;

/// All records of the instances, as one snapshot has them.
#[derive(Debug, Default)]
pub struct Section {
    /// The snapshot.
    pub at: Timestamp,
    /// The catalog's version.
    pub catalog: u64,
    /// How often any instance has registered.
    pub generation: u64,
    pub instances: BTreeMap<InstanceId, Instance>,
    /// By asker and number.
    pub requests: BTreeMap<(InstanceId, u64), Request>,
    /// By asker and number, then by who answers.
    pub answers: BTreeMap<(InstanceId, u64), BTreeMap<InstanceId, Answer>>,
}

/// Where a request stands.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// Some have not answered.
    Pending,
    /// All have done it.
    Done,
    /// One has refused: SQLSTATE and message.
    Refused(&'a str, &'a str),
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    store::decode(value)
        .inspect_err(|error| tracing::warn!(%error, "a record of a SQL node cannot be read"))
        .ok()
}

impl Section {
    /// Reads it, as a transaction sees it.
    ///
    /// # Errors
    /// What the KV nodes answer; XX001 for a damaged version of the catalog.
    pub async fn read(txn: &Txn) -> SqlResult<Section> {
        let mut section = Section::default();
        let mut span = Some(record::span());
        while let Some(rest) = span.take() {
            let page = txn.scan(&rest, ScanOptions::default()).await.map_err(kv_error)?;
            for (key, value) in &page.rows {
                section.add(key, value)?;
            }
            span = page.resume;
        }
        let version = txn.get(&store::version_key(), LockStrength::None).await.map_err(kv_error)?;
        section.catalog = store::decode_version(version.as_deref())?;
        section.at = txn.read_timestamp().unwrap_or_default();
        Ok(section)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> SqlResult<()> {
        match kind_of(key) {
            Some(Kind::Generation) => self.generation = store::decode_version(Some(value))?,
            // Whoever cannot be read is there all the same, for ever: nothing is done without it.
            Some(Kind::Instance(id)) => {
                let unknown = Instance { version: VERSION, expires_ns: u64::MAX };
                self.instances.insert(id, read(value).unwrap_or(unknown));
            }
            Some(Kind::Request(asker, number)) => {
                // It is not answered, so that its asker waits in vain rather than go on.
                self.requests.extend(read(value).map(|request: Request| ((asker, number), request)));
            }
            Some(Kind::Answer(asker, number, id)) => {
                let answer = read::<Answer>(value).map(|answer| (id, answer));
                self.answers.entry((asker, number)).or_default().extend(answer);
            }
            None => {}
        }
        Ok(())
    }

    /// All instances but one.
    pub fn others(&self, own: InstanceId) -> impl Iterator<Item = InstanceId> {
        self.instances.keys().copied().filter(move |id| *id != own)
    }

    /// Those of the others whose leases have ended.
    pub fn ended(&self, own: InstanceId) -> impl Iterator<Item = InstanceId> {
        let ended = |id: &InstanceId| self.instances.get(id).is_some_and(|known| known.has_ended(self.at));
        self.others(own).filter(ended)
    }

    /// Where a request of `own` stands.
    pub fn progress(&self, own: InstanceId, number: u64) -> Progress<'_> {
        let answers = self.answers.get(&(own, number));
        let answer = |id| answers.and_then(|answers| answers.get(&id));
        let mut progress = Progress::Done;
        for id in self.others(own) {
            match answer(id).map(|answer| &answer.refused) {
                Some(Some((code, message))) => return Progress::Refused(code, message),
                Some(None) => {}
                None => progress = Progress::Pending,
            }
        }
        progress
    }
}

impl Instance {
    /// Whether its lease has ended, for who reads at a timestamp.
    pub fn has_ended(&self, at: Timestamp) -> bool {
        at.wall_ns > self.expires_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_done_when_all_others_have_done_it() {
        let mut section = Section { at: Timestamp::new(10, 0), ..Section::default() };
        for id in 1..4 {
            section.instances.insert(id, Instance { version: VERSION, expires_ns: 8 + id });
        }
        assert_eq!(section.ended(1).collect::<Vec<_>>(), Vec::<InstanceId>::new());
        section.at = Timestamp::new(11, 0);
        assert_eq!(section.ended(1).collect::<Vec<_>>(), [2]);
        assert_eq!(section.progress(1, 5), Progress::Pending);
        let done = Answer { version: VERSION, refused: None };
        section.answers.entry((1, 5)).or_default().insert(2, done.clone());
        assert_eq!(section.progress(1, 5), Progress::Pending);
        section.answers.entry((1, 5)).or_default().insert(3, done);
        assert_eq!(section.progress(1, 5), Progress::Done);
        assert_eq!(section.progress(1, 6), Progress::Pending);
        let refused = Answer { version: VERSION, refused: Some(("40P01".into(), "no".into())) };
        section.answers.entry((1, 5)).or_default().insert(2, refused);
        assert_eq!(section.progress(1, 5), Progress::Refused("40P01", "no"));
        section.instances.retain(|id, _| *id == 1);
        assert_eq!(section.progress(1, 6), Progress::Done);
    }

    #[test]
    fn what_cannot_be_read_counts_as_there() {
        let mut section = Section::default();
        section.add(&record::instance_key(7), b"\x09?").unwrap();
        section.at = Timestamp::new(u64::MAX - 1, 0);
        assert_eq!((section.others(1).count(), section.ended(1).count()), (1, 0));
    }
}
