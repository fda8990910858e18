//! Durations on the command line: `500ms`, `30s`, `5m`, `1h`, `2d`.

use std::time::Duration;

/// Reads a duration. A bare number is refused: is `5` seconds or minutes?
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "write a number and a unit, as in 30s or 5m".to_owned())?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" => return Err(format!("a unit is missing: {number}s, {number}m or {number}h?")),
        _ => return Err(format!("\"{unit}\" is no unit of time; use ms, s, m, h or d")),
    };
    let ms = number.checked_mul(unit_ms).filter(|ms| *ms <= MOST_MS);
    ms.map(Duration::from_millis).ok_or_else(|| "that is too long".into())
}

/// About a hundred years: beyond it, sums with the present time could overflow.
const MOST_MS: u64 = 36_500 * 86_400_000;

/// Reads how far clocks may be apart.
///
/// # Errors
/// What is wrong with the text. Less than what clocks are apart for want of better, and more than would be of any
/// use, is refused.
pub(crate) fn parse_clock_offset(text: &str) -> Result<Duration, String> {
    let offset = parse(text)?;
    let allowed = Duration::from_millis(50)..=Duration::from_secs(5);
    if allowed.contains(&offset) { Ok(offset) } else { Err("clocks may be 50ms to 5s apart".into()) }
}

/// Reads an idle timeout: a duration, or `never` (`None`).
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_idle(text: &str) -> Result<IdleTimeout, String> {
    match text {
        "never" => Ok(IdleTimeout(None)),
        text => match parse(text)? {
            Duration::ZERO => Err("a tenant cannot be idle for no time; write never to keep it awake".into()),
            timeout => Ok(IdleTimeout(Some(timeout))),
        },
    }
}

/// Reads after how long something is done; zero is never, which is written as a word.
pub(crate) fn parse_or_never(text: &str) -> Result<Duration, String> {
    match text {
        "never" => Ok(Duration::ZERO),
        text => match parse(text)? {
            Duration::ZERO => Err("write never if it is not to be done".into()),
            after => Ok(after),
        },
    }
}

/// Writes a duration so that [`parse_or_never`] reads it.
pub(crate) fn text_or_never(duration: Duration) -> String {
    if duration.is_zero() { "never".to_owned() } else { text(duration) }
}

/// Writes a duration so that [`parse`] reads it, in the largest unit that fits.
pub(crate) fn text(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let fits = units.into_iter().find(|(unit_ms, _)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms));
    let (unit_ms, unit) = fits.unwrap_or((1, "ms"));
    format!("{}{unit}", ms / unit_ms)
}

/// How long a tenant may be idle; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleTimeout(pub Option<Duration>);

impl IdleTimeout {
    /// The form the HTTP API takes: milliseconds, 0 for never.
    pub fn as_ms(self) -> u64 {
        self.0.map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
    }
}

impl std::fmt::Display for IdleTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("never"),
            Some(timeout) => f.write_str(&text(timeout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse("2d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "5", "m", "-1s", "5 m", "5x", "99999999999999999999s", "999999999d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn idle_timeouts_are_written_as_they_are_read() {
        for text in ["never", "5m", "90s", "1500ms", "90m", "1h", "36h", "2d"] {
            assert_eq!(parse_idle(text).unwrap().to_string(), text);
        }
        assert!(parse_idle("0s").is_err());
        assert_eq!(text(Duration::ZERO), "0ms");
    }
}
