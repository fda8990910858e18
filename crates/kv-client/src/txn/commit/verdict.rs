//! What answers to the commit of a transaction over several ranges mean: pure.

use super::super::{lost, moved};
use crate::router::SendError;
use kv_api::{BatchResponse, KvError, KvErrorKind, Timestamp};

/// What is next after a range was asked to prepare its part.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// It is prepared at this timestamp.
    Prepared(Timestamp),
    /// It is asked again, wherever it is by now: asking twice does no harm.
    Again,
    /// The range was split.
    Split,
    /// It will not be prepared.
    Failed(KvError),
}

/// How a range answered, and what is known of its part because of that.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Whether the transaction rests on what the node keeps under its lease.
    pub held: bool,
    /// Whether the batch had to go to the node that keeps it.
    pub bound: bool,
    /// Whether an earlier batch was sent that may have been carried out, or may yet be.
    pub unanswered: bool,
}

impl Asked {
    /// Judges an answer.
    pub fn judge(&mut self, answer: Result<BatchResponse, SendError>) -> Next {
        match answer {
            Ok(BatchResponse { prepared_at: Some(at), .. }) => Next::Prepared(at),
            Ok(_) => {
                self.unanswered = true;
                Next::Failed(KvError::new(KvErrorKind::Internal, "the KV node did not say what it prepared"))
            }
            Err(SendError::Lost) => self.may_have_been_done(),
            Err(SendError::Kv(error)) if error.kind() == KvErrorKind::Ambiguous => self.may_have_been_done(),
            // It was not carried out now. If it was before, the range says so when it answers.
            Err(SendError::Kv(error)) if error.kind() == KvErrorKind::Unavailable => self.not_there(error),
            Err(SendError::Kv(error)) => Next::Failed(error),
            Err(SendError::OtherConnection) => self.not_there(lost()),
            Err(SendError::Moved) => self.not_there(moved()),
            Err(SendError::Split) if self.held => Next::Failed(moved()),
            Err(SendError::Split) => Next::Split,
        }
    }

    fn may_have_been_done(&mut self) -> Next {
        self.unanswered = true;
        Next::Again
    }

    /// The node that was asked would or could not. Another one may.
    fn not_there(&self, error: KvError) -> Next {
        let elsewhere = self.unanswered || (self.bound && !self.held);
        if elsewhere { Next::Again } else { Next::Failed(error) }
    }
}

/// What a transaction is that is prepared everywhere.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Committed there, and nobody need be told first.
    Committed(Timestamp),
    /// To be committed there by its record.
    Record(Timestamp),
    /// To be committed there by its record if what was read is unchanged up to there.
    Move(Timestamp),
}

/// Decides. `at` is where the transaction was to commit, `staged` whether its record names all keys written.
pub fn decide(at: Timestamp, staged: bool, prepared: impl IntoIterator<Item = Timestamp>) -> Decision {
    match prepared.into_iter().max() {
        Some(latest) if latest > at => Decision::Move(latest),
        _ if staged => Decision::Committed(at),
        _ => Decision::Record(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_ns: u64) -> Timestamp {
        Timestamp::new(wall_ns, 0)
    }

    fn kv(kind: KvErrorKind) -> SendError {
        SendError::Kv(KvError::new(kind, ""))
    }

    #[test]
    fn one_round_is_enough_if_all_are_prepared_in_time_and_the_record_names_the_keys() {
        assert_eq!(decide(at(5), true, [at(5), at(3)]), Decision::Committed(at(5)));
        assert_eq!(decide(at(5), false, [at(5), at(3)]), Decision::Record(at(5)));
        for staged in [false, true] {
            assert_eq!(decide(at(5), staged, [at(5), at(7), at(6)]), Decision::Move(at(7)));
        }
    }

    #[test]
    fn what_may_have_been_done_is_asked_again_and_what_cannot_be_is_not() {
        let free = Asked { bound: true, ..Asked::default() };
        let held = Asked { bound: true, held: true, unanswered: false };
        let lost_once = Asked { unanswered: true, ..held };
        let judge = |mut asked: Asked, error| (asked.judge(Err(error)), asked.unanswered);
        for asked in [free, held] {
            for error in [SendError::Lost, kv(KvErrorKind::Ambiguous)] {
                assert_eq!(judge(asked, error), (Next::Again, true));
            }
        }
        for error in [|| SendError::Moved, || SendError::OtherConnection, || kv(KvErrorKind::Unavailable)] {
            assert_eq!(judge(free, error()), (Next::Again, false));
            assert!(matches!(judge(held, error()), (Next::Failed(_), false)));
            assert_eq!(judge(lost_once, error()), (Next::Again, true));
            assert!(matches!(judge(Asked::default(), error()), (Next::Failed(_), false)));
        }
        assert_eq!(judge(free, SendError::Split).0, Next::Split);
        assert!(matches!(judge(held, SendError::Split).0, Next::Failed(_)));
        for kind in [KvErrorKind::Retry, KvErrorKind::ConditionFailed, KvErrorKind::Aborted] {
            assert!(matches!(judge(lost_once, kv(kind)), (Next::Failed(_), true)));
        }
        let answer = BatchResponse { prepared_at: Some(at(3)), ..BatchResponse::default() };
        assert_eq!(Asked::default().judge(Ok(answer)), Next::Prepared(at(3)));
        let mut asked = Asked::default();
        assert!(matches!(asked.judge(Ok(BatchResponse::default())), Next::Failed(_)) && asked.unanswered);
    }
}
