//! The wall clock of this process. Read here and nowhere else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until the clock has passed `wall_ns`.
pub async fn passed(wall_ns: u64) {
    loop {
        let left = wall_ns.saturating_add(1).saturating_sub(now_ns());
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_nanos(left)).await;
    }
}
