//! The Parquet library checks most of what it reads, and panics where it does not.

use crate::error::{Error, Result};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Reads a file of others'; a panic of the library becomes an error.
///
/// # Errors
/// What reading it comes to, or that the file made the library panic.
pub fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    // What is read is dropped as a whole when this fails, so no broken state is seen.
    let outcome = panic::catch_unwind(AssertUnwindSafe(read));
    QUIET.set(false);
    outcome.unwrap_or_else(|_| Err(Error::new("malformed Parquet: the file contradicts itself")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_errors() {
        let outcome: Result<()> = guarded(|| panic!("as the library might"));
        assert!(outcome.unwrap_err().to_string().contains("malformed Parquet"));
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }
}
