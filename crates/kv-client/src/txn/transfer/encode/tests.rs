//! What is carried comes back as it was, and what cannot be is refused.

use super::*;
use kv_api::batch::RequestKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const TENANT: TenantId = TenantId(7);
const CLAIM: Claim = Claim { range_id: 3, only: false };

fn key(number: u8) -> Bytes {
    TENANT.prefixed(&[b'k', number])
}

fn at(wall_ns: u64) -> Timestamp {
    Timestamp::new(wall_ns, 3)
}

fn write(rng: &mut StdRng) -> Write {
    let value = Bytes::from(vec![rng.random(); rng.random_range(0..5)]);
    match rng.random_range(0..3) {
        0 => Write::Put(value),
        1 => Write::Insert(value),
        _ => Write::Delete,
    }
}

fn spans(rng: &mut StdRng) -> RefreshSpans {
    let mut spans = RefreshSpans::default();
    for _ in 0..rng.random_range(0..8) {
        let start = key(rng.random_range(0..20));
        spans.add(&if rng.random() {
            Span::point(start)
        } else {
            Span::new(start, key(rng.random_range(20..40)))
        });
    }
    spans
}

fn part(rng: &mut StdRng, range_id: u8) -> Part {
    let known = rng.random() || u64::from(range_id) == CLAIM.range_id;
    let has_intents = rng.random() && known;
    let (start, end) = (key(range_id * 10), key(range_id * 10 + 10));
    let mut at = Located { range_id: range_id.into(), start: start.clone(), end, ..Located::default() };
    if rng.random() {
        at.vanish();
    }
    Part {
        at,
        key: start.clone(),
        known,
        lease: if known { 4 } else { 0 },
        intent: has_intents.then_some(start),
        has_intents,
        observed: rng.random::<bool>().then(|| Timestamp::new(rng.random_range(1..9), 0)),
        ..Part::default()
    }
}

fn state(rng: &mut StdRng) -> (TxnOptions, State) {
    let lock_timeout_ms = rng.random_range(0..5);
    let priority = [Priority::Low, Priority::Normal, Priority::High][rng.random_range(0..3)];
    let mut state = State::new(lock_timeout_ms, priority, Environment::of_machine());
    state.parts = Parts::of([1, 3, 4].map(|range_id| part(rng, range_id)));
    for _ in 0..rng.random_range(0..20) {
        state.sequence += 1;
        let sequence = state.sequence;
        match rng.random_range(0..10) {
            0 => state.buffer.protect(sequence),
            1 => state.undo(sequence.saturating_sub(2).max(1)),
            _ => state.buffer.push(key(rng.random_range(0..9)), sequence, write(rng)),
        }
    }
    (state.refresh, state.loose) = (spans(rng), spans(rng));
    if rng.random() || !state.has_no_spans() {
        state.read_timestamp = Some(at(50));
        state.uncertain_until = Some(Timestamp::MAX);
    }
    (state.fixed, state.untracked, state.locked_keys) = (rng.random(), rng.random(), rng.random_range(0..9));
    let isolation = if rng.random() { Isolation::ReadCommitted } else { Isolation::Serializable };
    (
        TxnOptions {
            isolation,
            priority,
            lock_timeout_ms,
            parallel_commits: rng.random(),
            ..TxnOptions::default()
        },
        state,
    )
}

fn exported(options: &TxnOptions, state: &State) -> Exported {
    Exported::of("a cluster", TENANT, options, state, CLAIM, 2)
}

fn restored(exported: Exported) -> KvResult<(TxnOptions, State, Claim)> {
    exported.into_state(Environment::of_machine())
}

/// Everything that a coordinator decides by, in comparable form.
fn essence(state: &State) -> impl PartialEq + std::fmt::Debug {
    let parts: Vec<_> = state.parts.iter().filter(|part| part.known || part.observed.is_some()).collect();
    let headers: Vec<_> = parts
        .iter()
        .map(|part| {
            let mut header = state.header(part.at.range_id, Default::default(), true, 0);
            header.txn.iter_mut().for_each(|meta| meta.hop = 0);
            (header, part.at.clone(), part.key.clone(), part.intent.clone(), part.known, part.observed)
        })
        .collect();
    let everything = Located::default();
    let kinds = |requests: Vec<kv_api::Request>| -> Vec<RequestKind> {
        requests.into_iter().filter_map(|request| request.kind).collect()
    };
    let history = kinds(state.buffer.chunk(&everything, usize::MAX, usize::MAX));
    let loose: Vec<Span> = state.loose.iter().cloned().collect();
    let snapshots = (state.fixed, state.untracked, state.uncertain_until, state.seen);
    let numbers = (state.sequence, state.locked_keys, snapshots);
    let buffered = (state.buffer.bytes(), state.buffer.len(), state.buffer.contents().0);
    (headers, history, kinds(state.buffer.outcome(&everything)), loose, numbers, buffered)
}

#[test]
fn what_was_exported_comes_back_as_it_was() {
    for seed in 0..2_000 {
        let (options, state) = state(&mut StdRng::seed_from_u64(seed));
        let carried = exported(&options, &state);
        let (options_again, again, claim) = restored(carried.clone()).unwrap();
        assert_eq!(essence(&again), essence(&state), "seed {seed}");
        assert_eq!((claim, again.hop, &again.id), (CLAIM, 2, &state.id));
        assert_eq!(format!("{options_again:?}"), format!("{options:?}"));
        // And once more, to the byte.
        assert_eq!(exported(&options_again, &again), carried, "seed {seed}");
    }
}

fn sample() -> Exported {
    let mut state = State::new(0, Priority::Normal, Environment::of_machine());
    let part = |range_id: u64, known| Part {
        at: Located {
            range_id,
            start: key(range_id as u8 * 10),
            end: key(range_id as u8 * 10 + 10),
            ..Located::default()
        },
        key: key(range_id as u8 * 10),
        known,
        ..Part::default()
    };
    state.parts = Parts::of([part(1, true), part(3, true)]);
    state.sequence = 9;
    state.ignored = vec![IgnoredSequences { from: 2, to: 4 }, IgnoredSequences { from: 6, to: 7 }];
    state.buffer.push(key(1), 8, Write::Put(Bytes::new()));
    state.buffer.push(key(2), 9, Write::Delete);
    state.begin_snapshot(at(50), 1);
    state.refresh.add(&Span::new(key(1), key(5)));
    exported(&TxnOptions::default(), &state)
}

#[test]
fn what_no_transaction_can_be_is_refused() {
    assert!(restored(sample()).is_ok());
    type Bad = (&'static str, fn(&mut Exported));
    let bad: [Bad; 27] = [
        ("id", |carried| carried.id = Bytes::from_static(b"short")),
        ("hop", |carried| carried.hop = 0),
        ("sequence", |carried| carried.sequence = u32::MAX),
        ("sequence of a write", |carried| carried.sequence = 8),
        ("protected", |carried| carried.protected = 11),
        ("ignored, empty", |carried| carried.ignored[0].to = 2),
        ("ignored, order", |carried| carried.ignored.reverse()),
        ("ignored, touching", |carried| carried.ignored[0].to = 6),
        ("ignored, beyond", |carried| carried.ignored[1].to = 11),
        ("snapshot", |carried| carried.read_timestamp = None),
        ("no snapshot but spans", |carried| (carried.read_timestamp, carried.uncertain_until) = (None, None)),
        ("span, order", |carried| carried.refresh[0] = Span::new(key(5), key(1))),
        ("span, tenant", |carried| carried.refresh[0].start = TenantId(6).prefixed(b"k")),
        ("span, end", |carried| carried.loose.push(Span::new(key(1), TenantId(9).prefixed(b"k")))),
        ("spans, many", |carried| carried.loose = vec![Span::point(key(1)); refresh::MAX_SPANS + 1]),
        ("no parts", |carried| carried.parts.clear()),
        ("parts, twice", |carried| carried.parts[0].range_id = 3),
        ("part, number", |carried| carried.parts[0].range_id = 0),
        ("part, key", |carried| carried.parts[0].key = Bytes::from_static(b"k")),
        ("part, span", |carried| carried.parts[0].span.end = key(1)),
        ("part, intent", |carried| carried.parts[0].intent = Some(key(1))),
        ("claim", |carried| carried.claim = 2),
        ("claim, not known", |carried| carried.parts[1].known = false),
        ("writes, order", |carried| carried.writes.reverse()),
        ("writes, none", |carried| carried.writes[0].history.clear()),
        ("writes, key", |carried| carried.writes[0].key = TenantId(6).prefixed(b"k")),
        ("writes, insert", |carried| carried.writes[1].history[0].insert = true),
    ];
    for (what, change) in bad {
        let mut carried = sample();
        change(&mut carried);
        let refused = restored(carried).err().map(|error| error.kind());
        assert_eq!(refused, Some(kv_api::KvErrorKind::InvalidRequest), "{what}");
    }
}

#[test]
fn one_that_reads_the_past_keeps_its_snapshot() {
    let options = TxnOptions { as_of: Some(at(50)), read_only: true, ..TxnOptions::default() };
    let mut carried = sample();
    carried.writes.clear();
    carried.options = Options::of(&options, 0);
    assert!(restored(carried.clone()).is_err(), "not fixed");
    carried.fixed = true;
    let (restored_options, ..) = restored(carried.clone()).unwrap();
    assert_eq!(restored_options.as_of, Some(at(50)));
    carried.read_timestamp = Some(at(51));
    assert!(restored(carried).is_err());
}
