//! How far an import or an export is: a bar on a terminal, now and then a line elsewhere.

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const PAUSE: Duration = Duration::from_secs(5);

/// How far something is.
pub struct Progress {
    bar: ProgressBar,
    rows: AtomicU64,
    bytes: AtomicU64,
    total: Option<u64>,
    started: Instant,
    /// When the last line was written, unless nobody wants lines.
    lines: Option<Mutex<Instant>>,
}

impl Progress {
    /// At the start; `total` bytes if it is known how many will come.
    pub fn new(quiet: bool, total: Option<u64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{wide_bar} {bytes} of {total_bytes}, {msg}, {binary_bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {msg}, {binary_bytes_per_sec}, {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message("0 rows");
        let started = Instant::now();
        let lines = (!quiet && !terminal).then(|| Mutex::new(started));
        Self { bar, rows: AtomicU64::new(0), bytes: AtomicU64::new(0), total, started, lines }
    }

    /// More rows are done, which are so many bytes.
    pub fn add(&self, rows: u64, bytes: u64) {
        let rows = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bar.set_position(bytes.min(self.total.unwrap_or(u64::MAX)));
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{} rows", HumanCount(rows)));
        }
        let Some(lines) = &self.lines else { return };
        let mut last = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= PAUSE {
            *last = Instant::now();
            let line = line(rows, bytes, self.total, self.started.elapsed());
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Nothing more comes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(rows: u64, bytes: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = rate(rows, elapsed);
    let done = format!("{} rows, {}", HumanCount(rows), HumanBytes(bytes));
    match total.filter(|total| bytes > 0 && *total >= bytes) {
        Some(total) => {
            let left = elapsed.as_secs_f64() * (total - bytes) as f64 / bytes as f64;
            let left = HumanDuration(Duration::from_secs_f64(left.clamp(0.0, 1e9)));
            format!("{done} of {}, {} rows/s, {left} left", HumanBytes(total), HumanCount(rate))
        }
        None => format!("{done}, {} rows/s", HumanCount(rate)),
    }
}

/// Rows per second.
pub fn rate(rows: u64, elapsed: Duration) -> u64 {
    (rows as f64 / elapsed.as_secs_f64().max(0.001)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let second = Duration::from_secs(1);
        assert_eq!(
            line(1_000, 1 << 20, Some(3 << 20), second),
            "1,000 rows, 1.00 MiB of 3.00 MiB, 1,000 rows/s, 2 seconds left"
        );
        assert_eq!(line(5, 10, None, second), "5 rows, 10 B, 5 rows/s");
        assert_eq!(line(0, 0, Some(5), second), "0 rows, 0 B, 0 rows/s");
    }
}
