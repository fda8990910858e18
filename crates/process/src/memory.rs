//! How much memory the machine has.

use std::fs;

/// Where a control group says how much its processes may take, in its second version.
const GROUP_LIMIT: &str = "/sys/fs/cgroup/memory.max";

/// Bytes of memory that this process may count on: what the machine has, or what its control group may take if that is
/// less. Nothing where neither is known.
pub fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_bytes(&text));
    let group = fs::read_to_string(GROUP_LIMIT).ok().and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// What `/proc/meminfo` says, which counts in units of 1,024 bytes.
fn machine_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let units: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    units.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        let text = "MemTotal:       24659488 kB\nMemFree:         123 kB\n";
        assert_eq!(machine_bytes(text), Some(24_659_488 * 1024));
        for text in
            ["", "MemFree: 3 kB", "MemTotal: many kB", "MemTotal: 3", "MemTotal: 99999999999999999999 kB"]
        {
            assert_eq!(machine_bytes(text), None, "{text}");
        }
    }
}
