//! Which tenant a client means.
//!
//! A client names its tenant by any of three ways, and by as many as it likes as long as they agree:
//!
//! 1. TLS server name: `TENANT.anything` (first label, in lower case). Addresses, names of one label and
//!    the proxy's own host names name nobody.
//! 2. `options=--tenant=TENANT`.
//! 3. database `TENANT.dbname`. The first dot divides, so a database with a dot in its own name is
//!    reached as `TENANT.my.db`.
//!
//! What named the tenant is taken out of the startup packet: the SQL node sees only its own database.

use super::{Startup, options};
use crate::error::ClientError;
use std::net::IpAddr;
use std::sync::Arc;

/// Longest name of a tenant: one DNS label.
pub const MAX_NAME: usize = 63;

/// A well-formed name of a tenant. Whether it exists only control knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantName(Arc<str>);

impl TenantName {
    /// Checks a name: 1 to 63 of `a-z A-Z 0-9 _ -`.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let valid = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if bytes.is_empty() || bytes.len() > MAX_NAME || !bytes.iter().all(valid) {
            return None;
        }
        std::str::from_utf8(bytes).ok().map(|text| Self(Arc::from(text)))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TenantName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Finds the tenant a client means and takes its name out of `startup`.
///
/// `server_name` is what the client sent in its TLS handshake; `own_names` are host names of the proxy
/// itself, in lower case.
pub fn take_tenant(
    startup: &mut Startup,
    server_name: Option<&str>,
    own_names: &[String],
) -> Result<TenantName, ClientError> {
    let mut found = Found(None);
    if let Some(label) = server_name.and_then(|name| tenant_label(name, own_names)) {
        found.add("the TLS server name", label.as_bytes())?;
    }
    if let Some(text) = &startup.options {
        let taken = options::take_tenant(text)?;
        for name in &taken.tenants {
            found.add("options", name)?;
        }
        startup.options = taken.rest;
    }
    if let Some((name, database)) = split_database(startup.database.as_deref()) {
        found.add("the database name", name)?;
        startup.database = database;
    }
    found.0.map(|(_, name)| name).ok_or_else(missing)
}

/// The label of a server name that names a tenant.
fn tenant_label(server_name: &str, own_names: &[String]) -> Option<String> {
    let name = server_name.trim_end_matches('.').to_ascii_lowercase();
    if own_names.contains(&name) || name.parse::<IpAddr>().is_ok() {
        return None;
    }
    let (label, domain) = name.split_once('.')?;
    (label != "localhost" && !domain.is_empty()).then(|| label.to_owned())
}

type Split<'a> = (&'a [u8], Option<Vec<u8>>);

/// Divides `TENANT.dbname`. Without a dot no tenant is named; `TENANT.` asks for the default database.
fn split_database(database: Option<&[u8]>) -> Option<Split<'_>> {
    let database = database?;
    let dot = database.iter().position(|b| *b == b'.')?;
    let (tenant, rest) = database.split_at_checked(dot)?;
    let rest = rest.get(1..).unwrap_or_default();
    Some((tenant, (!rest.is_empty()).then(|| rest.to_vec())))
}

/// The name found so far and where it stood.
struct Found(Option<(&'static str, TenantName)>);

impl Found {
    fn add(&mut self, place: &'static str, name: &[u8]) -> Result<(), ClientError> {
        let name = TenantName::parse(name).ok_or_else(|| malformed(place, name))?;
        match &self.0 {
            None => self.0 = Some((place, name)),
            Some((_, first)) if *first == name => {}
            Some((first_place, first)) => return Err(conflict(first_place, first, place, &name)),
        }
        Ok(())
    }
}

fn malformed(place: &str, name: &[u8]) -> ClientError {
    ClientError::new(
        "42602",
        format!("\"{}\" in {place} cannot be the name of a tenant", String::from_utf8_lossy(name)),
    )
    .hint("Names of tenants have 1 to 63 of the characters a-z, A-Z, 0-9, _ and -.")
}

fn conflict(first_place: &str, first: &TenantName, place: &str, name: &TenantName) -> ClientError {
    ClientError::new("08004", "the connection names two different tenants")
        .detail(format!("{first_place} names \"{first}\", {place} names \"{name}\"."))
        .hint(
            "Name the tenant once. A database with a dot in its name is written TENANT.my.db; \
             a host name of the proxy itself is made known with --server-name.",
        )
}

fn missing() -> ClientError {
    ClientError::new("08004", "the connection names no tenant").hint(
        "Use the database name TENANT.dbname, or options=--tenant=TENANT, \
         or over TLS a host name that begins with TENANT and a dot.",
    )
}
