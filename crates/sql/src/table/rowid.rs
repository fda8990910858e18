//! Values of the hidden column `rowid`.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Bits that tell processes apart.
const NODE_BITS: u32 = 15;
static LAST_TICK: AtomicI64 = AtomicI64::new(0);
static NODE: LazyLock<i64> = LazyLock::new(|| i64::from(rand::random::<u16>()) & ((1 << NODE_BITS) - 1));

/// A bigint that no other call returned: the time in units of 10 µs, never twice the same in this
/// process, followed by bits drawn when the process started. Two processes can only meet if they drew
/// the same bits and insert in the same 10 µs; the insert then fails as a duplicate and is retried.
pub fn unique_rowid(now_micros: i64) -> i64 {
    let now = (now_micros / 10).clamp(1, (1 << (63 - NODE_BITS)) - 1);
    let next = |last: i64| Some(now.max(last.wrapping_add(1)));
    let last = LAST_TICK.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
    (now.max(last.wrapping_add(1)) << NODE_BITS) | *NODE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_ascend_even_if_the_clock_stands_or_goes_back() {
        let times = [1_000_000, 1_000_000, 5, 2_000_000, 1_999_999];
        let values: Vec<i64> = times.into_iter().map(unique_rowid).collect();
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
        assert!(values[0] > 0);
    }
}
