//! Whether ranges may come to be, give up keys, or be absorbed, as a [`RangeChange`] has it: pure.
//!
//! Every replica comes to the same result, for it depends on nothing but the change and the state of the range
//! before it. What else lies on a node is checked by the leaseholder before it proposes.
//!
//! A range keeps its first key until it is absorbed: it gives up keys at its end, and absorbs the neighbour there. So
//! of two ranges with the same first key one is no more ([`supersedes`]).

use crate::command::{Freeze, RangeChange};
use crate::message::{Members, RangeId};
use crate::state::RangeDescriptor;

/// Most ranges that come to be at once.
const MAX_CREATED: usize = 1024;

/// Whether two ranges have a key in common.
pub fn overlap(one: &RangeDescriptor, other: &RangeDescriptor) -> bool {
    one.start < other.end && other.start < one.end
}

fn within(inner: &RangeDescriptor, outer: &RangeDescriptor) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Whether a range as described by `old` is no more, because there is or was one as described by `new`: that has its
/// first key, and ranges were merged in between.
pub fn supersedes(new: &RangeDescriptor, old: &RangeDescriptor) -> bool {
    let has_first = new.start <= old.start && old.start < new.end;
    new.range_id != old.range_id && new.family() == old.family() && new.merges > old.merges && has_first
}

/// The descriptor of a range once it has absorbed its right neighbour.
pub fn merged(left: &RangeDescriptor, right: &RangeDescriptor) -> RangeDescriptor {
    RangeDescriptor {
        end: right.end.clone(),
        generation: left.generation.saturating_add(1),
        merges: left.merges.max(right.merges).saturating_add(1),
        absorber: left.range_id,
        ..left.clone()
    }
}

/// Checks a change against the range it is of.
///
/// # Errors
/// Why it cannot be.
pub fn check(
    range: RangeId,
    own: &RangeDescriptor,
    frozen: Option<&Freeze>,
    members: &Members,
    change: &RangeChange,
) -> Result<(), &'static str> {
    if members.is_joint() {
        return Err("its members are changing");
    }
    if frozen.is_some() || change.freeze.is_some() || change.thaw.is_some() {
        return freeze_or_thaw(range, frozen, change);
    }
    if let Some(right) = &change.absorbed {
        return absorb(own, right, change);
    }
    if change.created.len() > MAX_CREATED {
        return Err("too many ranges at once");
    }
    let rest = change.descriptor.as_ref().unwrap_or(own);
    if rest.range_id != range || rest.start >= rest.end || !within(rest, own) {
        return Err("the range may only shrink");
    }
    if rest.start != own.start {
        return Err("it keeps its first key");
    }
    if (rest.merges, rest.absorber) != (own.merges, own.absorber) {
        return Err("it absorbs nothing");
    }
    if change.descriptor.is_some() && rest.generation <= own.generation {
        return Err("it has changed meanwhile");
    }
    let mut ids: Vec<RangeId> = change.created.iter().map(|created| created.range_id).collect();
    ids.extend([range, 0]);
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err("a new range has no name of its own");
    }
    tile(own, rest, &change.created)
}

/// A range is frozen once, and nothing but the end of that changes a frozen one.
fn freeze_or_thaw(range: RangeId, frozen: Option<&Freeze>, change: &RangeChange) -> Result<(), &'static str> {
    let alone = change.descriptor.is_none() && change.created.is_empty() && change.absorbed.is_none();
    match (frozen, &change.freeze, &change.thaw) {
        (None, Some(freeze), None) if alone && freeze.absorber != range && freeze.absorber != 0 => Ok(()),
        (Some(frozen), None, Some(thaw)) if alone && thaw == frozen => Ok(()),
        (Some(_), _, None) => Err("it is frozen"),
        _ => Err("it is not frozen for that merge"),
    }
}

/// Both ranges must be as they were when the merge began.
fn absorb(own: &RangeDescriptor, right: &RangeDescriptor, change: &RangeChange) -> Result<(), &'static str> {
    let fits = own.end == right.start
        && right.start < right.end
        && own.range_id != right.range_id
        && right.range_id != 0
        && own.family() == right.family();
    if !fits || !change.created.is_empty() {
        return Err("the other is not its right neighbour");
    }
    if change.descriptor.as_ref() != Some(&merged(own, right)) || change.served.is_none() {
        return Err("it has changed meanwhile");
    }
    Ok(())
}

/// What the range gives up goes to new ranges whole, and no two have a key in common.
fn tile(
    own: &RangeDescriptor,
    rest: &RangeDescriptor,
    created: &[RangeDescriptor],
) -> Result<(), &'static str> {
    let mut spans: Vec<&RangeDescriptor> = created.iter().chain([rest]).collect();
    spans.sort_unstable_by(|one, other| one.start.cmp(&other.start));
    let mut taken = None;
    let mut covered = &own.start;
    for span in spans {
        if span.start >= span.end {
            return Err("a new range has no keys");
        }
        if taken.is_some_and(|end| span.start < end) {
            return Err("two ranges would have the same keys");
        }
        taken = Some(&span.end);
        if overlap(span, own) {
            if !within(span, own) {
                return Err("a new range has keys of this one and others");
            }
            if span.start != *covered {
                return Err("keys would be left without a range");
            }
            covered = &span.end;
        }
    }
    if *covered == own.end { Ok(()) } else { Err("keys would be left without a range") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kv_api::Timestamp;

    fn span(range_id: RangeId, start: &'static str, end: &'static str) -> RangeDescriptor {
        let (start, end) = (Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes()));
        RangeDescriptor { range_id, start, end, generation: 1, ..RangeDescriptor::default() }
    }

    fn checked(rest: Option<RangeDescriptor>, created: Vec<RangeDescriptor>) -> Result<(), &'static str> {
        let change = RangeChange { descriptor: rest, created, ..RangeChange::default() };
        let own = RangeDescriptor { generation: 0, ..span(1, "d", "p") };
        checked_of(&own, None, &change)
    }

    fn checked_of(
        own: &RangeDescriptor,
        frozen: Option<&Freeze>,
        change: &RangeChange,
    ) -> Result<(), &'static str> {
        check(own.range_id, own, frozen, &Members { voters: vec![1], ..Members::default() }, change)
    }

    #[test]
    fn a_range_can_be_cut_in_pieces() {
        assert_eq!(checked(Some(span(1, "d", "h")), vec![span(2, "h", "p")]), Ok(()));
        assert_eq!(checked(Some(span(1, "d", "f")), vec![span(2, "h", "p"), span(3, "f", "h")]), Ok(()));
        assert_eq!(checked(Some(span(1, "d", "p")), vec![]), Ok(()), "another configuration");
        assert!(checked(Some(span(1, "d", "h")), vec![]).is_err(), "nobody has the rest");
        assert!(checked(Some(span(1, "d", "h")), vec![span(2, "i", "p")]).is_err(), "a gap");
        assert!(checked(Some(span(1, "d", "h")), vec![span(2, "h", "q")]).is_err(), "too much");
        assert!(checked(Some(span(1, "d", "h")), vec![span(2, "g", "p")]).is_err(), "twice");
        assert!(checked(Some(span(1, "a", "p")), vec![]).is_err(), "more than before");
        assert!(checked(Some(span(1, "h", "p")), vec![span(2, "d", "h")]).is_err(), "without its first key");
        assert!(
            checked(Some(RangeDescriptor { generation: 0, ..span(1, "d", "p") }), vec![]).is_err(),
            "old"
        );
    }

    #[test]
    fn ranges_come_to_be_of_keys_that_nobody_has() {
        assert_eq!(checked(None, vec![span(3, "a", "d"), span(2, "p", "q")]), Ok(()));
        assert!(checked(None, vec![span(2, "h", "i")]).is_err(), "of this range");
        assert!(checked(None, vec![span(2, "q", "s"), span(3, "r", "t")]).is_err(), "twice");
        assert!(checked(None, vec![span(2, "q", "r"), span(2, "r", "t")]).is_err(), "one name for two");
        assert!(checked(None, vec![span(1, "q", "r")]).is_err(), "the range's own name");
        assert!(checked(None, vec![span(0, "q", "r")]).is_err(), "no name");
        assert!(checked(None, vec![span(2, "r", "q")]).is_err(), "no keys");
    }

    fn freeze(generation: u64) -> Freeze {
        Freeze { absorber: 1, generation, served: Timestamp::new(7, 0) }
    }

    #[test]
    fn a_frozen_range_changes_in_nothing_but_that_it_is_frozen() {
        let own = RangeDescriptor { origin: 1, ..span(2, "p", "t") };
        let frozen = freeze(3);
        let begin = RangeChange { freeze: Some(frozen), ..RangeChange::default() };
        let end = RangeChange { thaw: Some(frozen), ..RangeChange::default() };
        let other_end = RangeChange { thaw: Some(freeze(4)), ..RangeChange::default() };
        let split = RangeChange {
            descriptor: Some(RangeDescriptor { end: "r".into(), generation: 2, ..own.clone() }),
            created: vec![span(9, "r", "t")],
            ..RangeChange::default()
        };
        assert_eq!(checked_of(&own, None, &begin), Ok(()));
        assert_eq!(checked_of(&own, None, &split), Ok(()));
        assert_eq!(checked_of(&own, Some(&frozen), &end), Ok(()));
        for change in [&begin, &split, &other_end, &RangeChange::default()] {
            assert!(checked_of(&own, Some(&frozen), change).is_err(), "{change:?}");
        }
        assert!(checked_of(&own, None, &end).is_err(), "not frozen");
        let both = RangeChange { freeze: Some(frozen), ..split };
        assert!(checked_of(&own, None, &both).is_err(), "frozen and split at once");
        assert!(checked_of(&RangeDescriptor { range_id: 1, ..own }, None, &begin).is_err(), "by itself");
    }

    #[test]
    fn a_range_absorbs_its_right_neighbour_if_neither_has_changed() {
        let left = span(1, "d", "p");
        let right = RangeDescriptor { origin: 1, merges: 4, generation: 9, ..span(2, "p", "t") };
        let whole = merged(&left, &right);
        assert_eq!((whole.range_id, whole.generation, whole.merges, whole.absorber), (1, 2, 5, 1));
        assert_eq!((&whole.start[..], &whole.end[..]), (&b"d"[..], &b"t"[..]));
        let absorbs = |own: &RangeDescriptor, right: &RangeDescriptor| {
            let change = RangeChange {
                descriptor: Some(whole.clone()),
                absorbed: Some(right.clone()),
                served: Some(Timestamp::MIN),
                ..RangeChange::default()
            };
            checked_of(own, None, &change)
        };
        assert_eq!(absorbs(&left, &right), Ok(()));
        let changed = RangeDescriptor { generation: 2, ..left.clone() };
        assert!(absorbs(&changed, &right).is_err(), "the merge was called off");
        assert!(absorbs(&whole, &right).is_err(), "twice");
        assert!(absorbs(&left, &RangeDescriptor { end: "s".into(), ..right.clone() }).is_err(), "smaller");
        assert!(absorbs(&left, &RangeDescriptor { start: "q".into(), ..right.clone() }).is_err(), "a gap");
        assert!(absorbs(&left, &RangeDescriptor { origin: 8, ..right }).is_err(), "another family");
    }

    #[test]
    fn who_has_the_first_key_after_a_merge_supersedes() {
        let left = RangeDescriptor { origin: 7, ..span(1, "d", "p") };
        let right = RangeDescriptor { origin: 7, ..span(2, "p", "t") };
        let whole = merged(&left, &right);
        assert!(supersedes(&whole, &right) && !supersedes(&right, &whole));
        assert!(!supersedes(&whole, &left), "it is the same");
        let again = RangeDescriptor { range_id: 3, start: "p".into(), ..whole.clone() };
        assert!(supersedes(&again, &right), "split off again");
        let later = RangeDescriptor { range_id: 3, start: "r".into(), ..whole.clone() };
        assert!(!supersedes(&later, &right), "it may have given up these keys");
        assert!(!supersedes(&whole, &RangeDescriptor { origin: 8, ..right }), "another tenant of that name");
    }
}
