//! The checker of histories.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use simulation::linear::{Access, Anomaly, History, NEVER, check};

/// A history from writes and reads: value, beginning, end.
fn history(writes: &[(u64, u64, u64)], reads: &[(u64, u64, u64)]) -> History {
    let access = |(id, (value, began, ended)): (usize, &(u64, u64, u64))| Access {
        id,
        value: *value,
        began: *began,
        ended: *ended,
    };
    History {
        initial: 0,
        writes: writes.iter().enumerate().map(access).collect(),
        reads: reads.iter().enumerate().map(|(id, read)| access((id + writes.len(), read))).collect(),
    }
}

#[test]
fn histories_with_an_order_are_good() {
    let good: [(&str, History); 8] = [
        ("nothing", history(&[], &[])),
        ("the initial value", history(&[], &[(0, 1, 2)])),
        ("one after the other", history(&[(1, 1, 2), (2, 5, 6)], &[(0, 0, 0), (1, 3, 4), (2, 7, 8)])),
        ("a read during a write sees either", history(&[(1, 1, 10)], &[(0, 2, 3), (1, 4, 5)])),
        ("overlapping writes in either order", history(&[(1, 1, 10), (2, 2, 9)], &[(2, 11, 12)])),
        ("an unanswered write seen late", history(&[(1, 1, NEVER), (2, 3, 4)], &[(2, 5, 6), (1, 7, 8)])),
        ("an unanswered write never seen", history(&[(1, 1, NEVER), (2, 3, 4)], &[(2, 5, 6), (2, 7, 8)])),
        ("an answered write nobody sees", history(&[(1, 1, 4), (2, 2, 6)], &[(2, 7, 8)])),
    ];
    for (name, history) in good {
        assert_eq!(check(&history), Ok(()), "{name}");
    }
}

#[test]
fn a_stale_read_is_found() {
    let stale = history(&[(1, 1, 2), (2, 3, 4)], &[(1, 5, 6)]);
    assert!(matches!(check(&stale), Err(Anomaly::Within { .. })), "{:?}", check(&stale));
    let back = history(&[(1, 1, 20)], &[(1, 2, 3), (0, 4, 5)]);
    assert!(
        matches!(check(&back), Err(Anomaly::Within { .. } | Anomaly::Overlap { .. })),
        "{:?}",
        check(&back)
    );
}

#[test]
fn a_lost_write_is_found() {
    let lost = history(&[(1, 1, 2)], &[(0, 3, 4)]);
    assert!(check(&lost).is_err());
    let lost_later = history(&[(1, 1, 2), (2, 3, 4)], &[(2, 5, 6), (1, 7, 8)]);
    assert!(matches!(check(&lost_later), Err(Anomaly::Within { .. } | Anomaly::Overlap { .. })));
}

#[test]
fn two_halves_that_both_serve_are_found() {
    let split =
        history(&[(1, 1, 2), (2, 3, 4), (3, 5, 6)], &[(2, 7, 8), (3, 9, 10), (2, 11, 12), (3, 13, 14)]);
    assert!(matches!(check(&split), Err(Anomaly::Overlap { .. })), "{:?}", check(&split));
}

#[test]
fn values_from_nowhere_and_from_the_future_are_found() {
    assert!(matches!(check(&history(&[], &[(9, 1, 2)])), Err(Anomaly::Unwritten { .. })));
    assert!(matches!(check(&history(&[(1, 3, 4)], &[(1, 1, 2)])), Err(Anomaly::Early { .. })));
    assert!(matches!(check(&history(&[(1, 1, 2), (1, 3, 4)], &[])), Err(Anomaly::Repeated { value: 1 })));
}

/// Whether some order explains a small history: by trying all of them (Wing and Gong, "Testing and verifying
/// concurrent objects", Journal of Parallel and Distributed Computing 17, 1993).
fn explained(history: &History) -> bool {
    fn extend(held: u64, rest: &[(bool, Access)]) -> bool {
        if rest.iter().all(|(_, access)| access.ended == NEVER) {
            return true;
        }
        rest.iter().enumerate().any(|(place, (is_write, access))| {
            let first = rest.iter().all(|(_, other)| access.began < other.ended);
            if !first || (!is_write && access.value != held) {
                return false;
            }
            let others: Vec<_> = rest[..place].iter().chain(&rest[place + 1..]).copied().collect();
            extend(if *is_write { access.value } else { held }, &others)
        })
    }
    let writes = history.writes.iter().map(|write| (true, *write));
    let ops: Vec<_> = writes.chain(history.reads.iter().map(|read| (false, *read))).collect();
    extend(history.initial, &ops)
}

#[test]
fn the_checker_agrees_with_trying_every_order() {
    let mut rng = SmallRng::seed_from_u64(7);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..40_000 {
        let count = rng.random_range(1..=7);
        // Every beginning and end is another moment.
        let mut moments: Vec<u64> = (1..=2 * count).collect();
        rand::seq::SliceRandom::shuffle(&mut moments[..], &mut rng);
        let writes = rng.random_range(0..=count.min(4));
        let mut made = History::default();
        for (id, pair) in moments.chunks(2).enumerate() {
            let (began, ended) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            if (id as u64) < writes {
                let ended = if rng.random_bool(0.2) { NEVER } else { ended };
                made.writes.push(Access { id, value: id as u64 + 1, began, ended });
            } else {
                made.reads.push(Access { id, value: rng.random_range(0..=writes), began, ended });
            }
        }
        let expected = explained(&made);
        assert_eq!(check(&made).is_ok(), expected, "{made:?}: {:?}", check(&made));
        if expected { good += 1 } else { bad += 1 }
    }
    assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad");
}
