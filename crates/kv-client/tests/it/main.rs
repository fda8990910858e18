//! The client against a real KV node over TLS, on an engine in memory.

mod contention;
mod map;
mod outage;
mod replicas;
mod support;
mod tenants;
