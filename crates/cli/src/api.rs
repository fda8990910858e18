//! The client of control's HTTP API.

use crate::data_dir::{DataDirArgs, not_running};
use crate::error::{Failure, Outcome};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Control answers within its own bounds (waking: ten seconds; suspending: twelve; dropping: ten).
const PATIENCE: Duration = Duration::from_secs(60);
/// It compares the replicas of a range for ten minutes at most, and others may be in front.
const LONG_PATIENCE: Duration = Duration::from_secs(1800);

/// Control of one running system.
pub(crate) struct Api {
    agent: Agent,
    base: String,
    authorization: String,
    data_dir: Option<PathBuf>,
}

impl Api {
    /// Control at an address.
    pub fn new(http: SocketAddr, token: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_global(Some(PATIENCE))
            .build();
        let http =
            if http.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], http.port())) } else { http };
        Self {
            agent: config.into(),
            base: format!("http://{http}/api/v1"),
            authorization: format!("Bearer {token}"),
            data_dir: None,
        }
    }

    /// Control of the system that runs on a data directory.
    pub fn of(args: &DataDirArgs) -> Outcome<Self> {
        let paths = args.paths();
        let addresses = paths.read_addresses()?;
        let token = std::fs::read_to_string(paths.token());
        let token = token.map_err(|error| Failure::io("read", &paths.token(), &error))?;
        let api = Self::new(addresses.http, token.trim());
        Ok(Self { data_dir: Some(paths.root().to_owned()), ..api })
    }

    /// Asks for something.
    pub fn get(&self, path: &str) -> Outcome<Value> {
        let request = self.agent.get(self.url(path)).header("authorization", &self.authorization);
        self.answer(request.call())
    }

    /// Sends something.
    pub fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        let request = self.agent.post(self.url(path)).header("authorization", &self.authorization);
        self.answer(request.send_json(body))
    }

    /// Sends something that may take long to carry out.
    pub fn post_and_wait(&self, path: &str, body: &Value) -> Outcome<Value> {
        let request = self.agent.post(self.url(path)).header("authorization", &self.authorization);
        let request = request.config().timeout_global(Some(LONG_PATIENCE)).build();
        self.answer(request.send_json(body))
    }

    /// Changes something.
    pub fn patch(&self, path: &str, body: &Value) -> Outcome<Value> {
        let request = self.agent.patch(self.url(path)).header("authorization", &self.authorization);
        self.answer(request.send_json(body))
    }

    /// Removes something.
    pub fn delete(&self, path: &str) -> Outcome<Value> {
        let request = self.agent.delete(self.url(path)).header("authorization", &self.authorization);
        self.answer(request.call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn answer(&self, result: Result<Response<Body>, ureq::Error>) -> Outcome<Value> {
        let mut response = result.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let text = response.body_mut().read_to_string().map_err(|error| self.unreachable(&error))?;
        if status.is_success() && text.is_empty() {
            return Ok(Value::Null);
        }
        let malformed = || Failure::new(format!("control answered {status} with something else than JSON"));
        let value: Value = serde_json::from_str(&text).map_err(|_| malformed())?;
        if status.is_success() {
            return Ok(value);
        }
        let error = &value["error"];
        let failure = Failure::new(error["message"].as_str().ok_or_else(malformed)?)
            .code(error["code"].as_str().unwrap_or_default());
        Err(match error["hint"].as_str() {
            Some(hint) => failure.hint(hint),
            None => failure,
        })
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let refused = matches!(error, ureq::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused)
            || matches!(error, ureq::Error::ConnectionFailed);
        match &self.data_dir {
            Some(root) if refused => not_running(root),
            _ => Failure::new(format!("control does not answer at {}: {error}", self.base))
                .hint("Its log is logs/control.log in the data directory."),
        }
    }
}

/// A name as part of a path. Names of tenants need no escaping; others are escaped to be refused whole.
pub(crate) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Everything of a listing that comes in pages: the objects of `field`, at most `limit` of them.
pub(crate) fn pages(
    api: &Api,
    path: &str,
    filter: &[(&str, &str)],
    field: &str,
    limit: Option<usize>,
) -> Outcome<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    let mut after = None;
    loop {
        let missing = limit.map(|limit| limit.saturating_sub(found.len()).to_string());
        let parameters = filter.iter().copied().map(|(name, value)| (name, escape(value)));
        let parameters = parameters.chain(after.take().map(|after| ("after", after)));
        let parameters = parameters.chain(missing.map(|missing| ("limit", missing)));
        let parameters: Vec<String> = parameters.map(|(name, value)| format!("{name}={value}")).collect();
        let mut page = api.get(&format!("{path}?{}", parameters.join("&")))?;
        if let Value::Array(objects) = page[field].take() {
            found.extend(objects);
        }
        match page["next"].as_str() {
            Some(next) if limit.is_none_or(|limit| found.len() < limit) => after = Some(escape(next)),
            _ => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_part_of_a_path() {
        assert_eq!(escape("my-app2"), "my-app2");
        assert_eq!(escape("../x y?"), "%2E%2E%2Fx%20y%3F");
    }
}
