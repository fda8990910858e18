//! Prometheus metrics of a process over HTTP: `/metrics` and `/healthz`.

use crate::http;
use axum::Router;
use axum::routing::get;
use prometheus::{Encoder, TextEncoder};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Memory and CPU of a process, as the kernel accounts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Memory no other process shares, in bytes.
    pub private_bytes: u64,
    /// Proportional share of all its memory, in bytes.
    pub pss_bytes: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// CPU time used since its start, in milliseconds.
    pub cpu_ms: u64,
}

impl Usage {
    /// What process `pid` uses now (`self` for this one).
    ///
    /// # Errors
    /// If there is no such process, or it is not ours.
    pub fn of(pid: &str) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for line in std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?.lines() {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let bytes = value.parse::<u64>().unwrap_or(0) * 1024;
            match name {
                "Rss:" => usage.rss_bytes = bytes,
                "Pss:" => usage.pss_bytes = bytes,
                "Private_Clean:" | "Private_Dirty:" => usage.private_bytes += bytes,
                _ => {}
            }
        }
        usage.cpu_ms = Self::cpu_ms(pid)?;
        Ok(usage)
    }

    /// CPU time this process has used, in milliseconds; cheap.
    pub fn cpu_ms_of_self() -> u64 {
        Self::cpu_ms("self").unwrap_or(0)
    }

    fn cpu_ms(pid: &str) -> io::Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The command name is in parentheses and may hold blanks; fields 14 and 15 are user and system.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
        Ok(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }
}

/// The metrics of this process as Prometheus reads them.
pub fn render() -> String {
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = TextEncoder::new().encode(&prometheus::gather(), &mut out);
    let mut text = String::from_utf8(out).unwrap_or_default();
    if let Ok(usage) = Usage::of("self") {
        text.push_str(&format!(
            "# TYPE dormouse_process_private_bytes gauge\ndormouse_process_private_bytes {}\n\
             # TYPE dormouse_process_resident_bytes gauge\ndormouse_process_resident_bytes {}\n\
             # TYPE dormouse_process_cpu_seconds_total counter\ndormouse_process_cpu_seconds_total {}\n",
            usage.private_bytes,
            usage.rss_bytes,
            usage.cpu_ms as f64 / 1000.0
        ));
    }
    text
}

/// Routes `/metrics` and `/healthz`, to serve alone or beside others.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/metrics", get(|| async { render() })).route("/healthz", get(|| async { "ok\n" }))
}

/// Serves [`routes`] in the background; returns the address.
///
/// # Errors
/// If it cannot listen.
pub async fn serve(address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "serving metrics");
    tokio::spawn(http::serve(listener, routes(), http::Bounds::default()));
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of("self").unwrap();
        assert!(usage.private_bytes > 0 && usage.rss_bytes >= usage.private_bytes);
        assert!(Usage::of("0").is_err());
        assert!(render().contains("dormouse_process_private_bytes"));
    }
}
