//! Histories that are wrong in known ways, and histories of executors that keep or break known promises.

mod cases;
mod executor;
mod notation;
mod properties;
