//! Whether ranges may come to be as a [`RangeChange`] has it: pure.
//!
//! Every replica comes to the same result, for it depends on nothing but the change and the state of the range
//! before it. What else lies on a node is checked by the leaseholder before it proposes.

use crate::command::RangeChange;
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

/// Checks a change against the range it is of.
///
/// # Errors
/// Why it cannot be.
pub fn check(
    range: RangeId,
    own: &RangeDescriptor,
    members: &Members,
    change: &RangeChange,
) -> Result<(), &'static str> {
    if members.is_joint() {
        return Err("its members are changing");
    }
    if change.created.len() > MAX_CREATED {
        return Err("too many ranges at once");
    }
    let rest = change.descriptor.as_ref().unwrap_or(own);
    if rest.range_id != range || rest.start >= rest.end || !within(rest, own) {
        return Err("the range may only shrink");
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

    fn span(range_id: RangeId, start: &'static str, end: &'static str) -> RangeDescriptor {
        let (start, end) = (Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes()));
        RangeDescriptor { range_id, start, end, generation: 1, ..RangeDescriptor::default() }
    }

    fn checked(rest: Option<RangeDescriptor>, created: Vec<RangeDescriptor>) -> Result<(), &'static str> {
        let change = RangeChange { descriptor: rest, created, ..RangeChange::default() };
        let own = RangeDescriptor { generation: 0, ..span(1, "d", "p") };
        check(1, &own, &Members { voters: vec![1], ..Members::default() }, &change)
    }

    #[test]
    fn a_range_can_be_cut_in_pieces() {
        assert_eq!(checked(Some(span(1, "d", "h")), vec![span(2, "h", "p")]), Ok(()));
        assert_eq!(checked(Some(span(1, "f", "h")), vec![span(2, "h", "p"), span(3, "d", "f")]), Ok(()));
        assert_eq!(checked(Some(span(1, "d", "p")), vec![]), Ok(()), "another configuration");
        assert!(checked(Some(span(1, "d", "h")), vec![]).is_err(), "nobody has the rest");
        assert!(checked(Some(span(1, "d", "h")), vec![span(2, "i", "p")]).is_err(), "a gap");
        assert!(checked(Some(span(1, "d", "h")), vec![span(2, "h", "q")]).is_err(), "too much");
        assert!(checked(Some(span(1, "d", "h")), vec![span(2, "g", "p")]).is_err(), "twice");
        assert!(checked(Some(span(1, "a", "p")), vec![]).is_err(), "more than before");
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
}
