//! The readable story of a run.

use crate::clock::Micros;

/// Lines, kept only if somebody asked for them.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    lines: Vec<String>,
}

impl Trace {
    /// A trace that keeps lines if `on`.
    pub fn new(on: bool) -> Self {
        Trace { on, lines: Vec::new() }
    }

    /// Adds a line, made only if it is kept.
    pub fn note(&mut self, now: Micros, line: impl FnOnce() -> String) {
        if self.on {
            self.lines.push(format!("{:>3}.{:06} {}", now / 1_000_000, now % 1_000_000, line()));
        }
    }

    /// The lines.
    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
