//! What a committed command does: pure.
//!
//! Every replica comes to the same result, for it depends on nothing but the command, the term of its
//! entry and the state before it.

use crate::command::{Command, Lease};
use crate::faults::{Bug, Faults};
use kv_api::Timestamp;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its effects are applied.
    Apply,
    /// The lease is this one from now on.
    NewLease(Lease),
    /// The lease has this ceiling from now on.
    Ceiling(Timestamp),
    /// It has no effect.
    Reject,
}

/// Decides what becomes of a command in an entry of `term` while `lease` is in force.
pub fn judge(command: &Command, term: u64, lease: &Lease, faults: &impl Faults) -> Verdict {
    let Some(proposed) = &command.lease else {
        let current = command.lease_sequence == lease.sequence && lease.sequence > 0;
        let apply = current || faults.planted(Bug::LeaseNotChecked);
        return if apply { Verdict::Apply } else { Verdict::Reject };
    };
    if proposed.sequence == lease.sequence.saturating_add(1) {
        let floor =
            if faults.planted(Bug::CeilingIgnored) { Timestamp::MIN } else { lease.ceiling.max(lease.floor) };
        return Verdict::NewLease(Lease { term, floor, ceiling: floor, ..*proposed });
    }
    let same = proposed.sequence == lease.sequence && proposed.holder == lease.holder && term == lease.term;
    if same {
        // A merge may have raised it further since this was proposed. The holder is to hear that it has what it asked for.
        Verdict::Ceiling(proposed.ceiling.max(lease.ceiling))
    } else {
        Verdict::Reject
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Sound;

    fn lease(sequence: u64, holder: u64, ceiling: u64) -> Lease {
        Lease { sequence, holder, ceiling: Timestamp::new(ceiling, 0), term: 4, floor: Timestamp::MIN }
    }

    #[test]
    fn effects_need_the_lease_they_were_evaluated_under() {
        let command = |lease_sequence| Command { lease_sequence, ..Command::default() };
        let held = lease(3, 1, 10);
        assert_eq!(judge(&command(3), 4, &held, &Sound), Verdict::Apply);
        assert_eq!(judge(&command(2), 4, &held, &Sound), Verdict::Reject);
        assert_eq!(judge(&command(4), 4, &held, &Sound), Verdict::Reject);
        assert_eq!(
            judge(&command(0), 4, &Lease::default(), &Sound),
            Verdict::Reject,
            "before the first lease"
        );
    }

    #[test]
    fn leases_follow_one_another_and_begin_where_the_last_one_ended() {
        let propose = |lease| Command { lease: Some(lease), ..Command::default() };
        let held = lease(3, 1, 10);
        let Verdict::NewLease(new) = judge(&propose(lease(4, 2, 0)), 5, &held, &Sound) else {
            panic!("refused")
        };
        assert_eq!((new.holder, new.term, new.floor, new.ceiling), (2, 5, held.ceiling, held.ceiling));
        assert_eq!(judge(&propose(lease(5, 2, 0)), 5, &held, &Sound), Verdict::Reject, "one is missing");
        assert_eq!(judge(&propose(lease(3, 2, 90)), 4, &held, &Sound), Verdict::Reject, "not the holder");
        assert_eq!(
            judge(&propose(lease(3, 1, 90)), 4, &held, &Sound),
            Verdict::Ceiling(Timestamp::new(90, 0))
        );
        assert_eq!(judge(&propose(lease(3, 1, 90)), 5, &held, &Sound), Verdict::Reject, "of another term");
    }

    /// Who asked for less than a merge brought meanwhile would wait for ever if it were refused.
    #[test]
    fn a_ceiling_never_falls_and_who_asks_hears_where_it_is() {
        let held = lease(3, 1, 10);
        let lower = Command { lease: Some(lease(3, 1, 9)), ..Command::default() };
        assert_eq!(judge(&lower, 4, &held, &Sound), Verdict::Ceiling(held.ceiling));
    }
}
