//! What a node takes from the world around it: time and chance.
//!
//! A process takes them from its machine. A simulation gives every node its own [`Surroundings`], drives its
//! replicas itself ([`crate::pipeline::Stepped`]) and runs everything in one thread, so that a run is a
//! function of its seed. Timers are tokio's, which a simulation pauses.

use crate::faults::Bug;
use replication::Millis;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::RuntimeFlavor;

/// Time and chance as a simulation gives them.
pub trait Surroundings: Send + Sync {
    /// A monotonic clock with an origin of its own, in milliseconds.
    fn millis(&self) -> Millis;
    /// The wall clock, in nanoseconds since the Unix epoch. It may err and go back.
    fn physical_ns(&self) -> u64;
    /// Random bytes, others each time.
    fn random(&self) -> [u8; 16];
    /// Whether a bug is planted.
    fn planted(&self, _bug: Bug) -> bool {
        false
    }
}

/// Where a node has time and chance from.
#[derive(Clone)]
pub struct Environment(Source);

#[derive(Clone)]
enum Source {
    /// The machine's, and when the node started.
    Machine(Instant),
    Given(Arc<dyn Surroundings>),
}

impl Environment {
    /// Those of the machine. The monotonic clock begins now.
    pub fn of_machine() -> Self {
        Environment(Source::Machine(Instant::now()))
    }

    /// Those of a simulation.
    pub fn given(surroundings: Arc<dyn Surroundings>) -> Self {
        Environment(Source::Given(surroundings))
    }

    /// See [`Surroundings::millis`].
    #[inline]
    pub fn millis(&self) -> Millis {
        match &self.0 {
            Source::Machine(started) => {
                Millis::try_from(started.elapsed().as_millis()).unwrap_or(Millis::MAX)
            }
            Source::Given(surroundings) => surroundings.millis(),
        }
    }

    /// See [`Surroundings::physical_ns`].
    #[inline]
    pub fn physical_ns(&self) -> u64 {
        match &self.0 {
            Source::Machine(_) => {
                let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
            }
            Source::Given(surroundings) => surroundings.physical_ns(),
        }
    }

    /// See [`Surroundings::random`].
    pub fn random(&self) -> [u8; 16] {
        match &self.0 {
            Source::Machine(_) => *uuid::Uuid::new_v4().as_bytes(),
            Source::Given(surroundings) => surroundings.random(),
        }
    }

    /// See [`Surroundings::planted`].
    #[inline]
    pub fn planted(&self, bug: Bug) -> bool {
        match &self.0 {
            Source::Machine(_) => false,
            Source::Given(surroundings) => surroundings.planted(bug),
        }
    }

    /// The process on its machine.
    pub fn process_id(&self) -> u64 {
        match &self.0 {
            Source::Machine(_) => u64::from(std::process::id()),
            Source::Given(_) => 1,
        }
    }

    /// Two random numbers.
    pub fn random_pair(&self) -> (u64, u64) {
        uuid::Uuid::from_bytes(self.random()).as_u64_pair()
    }

    /// Says that other threads may come in between here. In a simulation, which has but one, others do at times.
    #[inline]
    pub async fn interleave(&self) {
        self.come_between(24, 16).await;
    }

    /// The same, where it matters what happens if it takes long: until a lease has moved.
    #[inline]
    pub async fn interleave_for_long(&self) {
        self.come_between(24, 256).await;
    }

    /// In so many of 256 cases others come between, for up to 256 times so many microseconds.
    async fn come_between(&self, cases: u8, micros: u64) {
        if let Source::Given(surroundings) = &self.0 {
            let [often, length, ..] = surroundings.random();
            if often < cases {
                tokio::time::sleep(Duration::from_micros(micros * u64::from(length))).await;
            }
        }
    }

    /// Runs what may take long where it stands, while others do what this thread would have done next: take in what
    /// clients send, for one. On a runtime of one thread, as in a simulation, nobody can.
    pub fn in_place<T>(&self, work: impl FnOnce() -> T) -> T {
        let has_others = || {
            let runtime = tokio::runtime::Handle::try_current();
            runtime.is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
        };
        match &self.0 {
            Source::Machine(_) if has_others() => tokio::task::block_in_place(work),
            _ => work(),
        }
    }

    /// Runs what takes the processor for long where nobody waits for it; in a simulation at once.
    ///
    /// # Errors
    /// If it panics.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        match &self.0 {
            Source::Machine(_) => tokio::task::spawn_blocking(work).await,
            Source::Given(_) => Ok(work()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_in_place_keeps_nobody_from_the_only_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = runtime.spawn(async {
            let (answer, waiting) = mpsc::channel();
            tokio::spawn(async move { answer.send(()) });
            // Goes on only if the other task runs meanwhile; the limit is there for the case that it does not.
            Environment::of_machine().in_place(|| waiting.recv_timeout(Duration::from_secs(20)))
        });
        runtime.block_on(task).unwrap().unwrap();
    }

    #[tokio::test]
    async fn work_in_place_is_done_where_there_is_but_one_thread() {
        assert_eq!(Environment::of_machine().in_place(|| 7), 7);
    }
}
