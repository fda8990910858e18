//! Orderly ends: SIGTERM and SIGINT.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Resolves when the process is asked to end.
///
/// # Errors
/// If signals cannot be watched.
pub async fn asked_to_end() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
