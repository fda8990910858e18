//! Object storage that speaks the protocol of Amazon S3.
//!
//! Requests are signed by `rusty-s3` (signature version 4, in the URL) and sent by `ureq`; what fails for a reason
//! that may pass is sent again. An object that is being read and whose connection breaks is read on from there, if it
//! is still the same.

use super::matches;
use crate::error::{Error, Result};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use std::env;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::time::Duration;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, SendBody};

/// How long a signed URL is good for: longer than any upload.
const SIGNED_FOR: Duration = Duration::from_secs(6 * 3600);
/// How often something is tried, and how long to wait after the first try; twice as long after each further one.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How long a server may take to begin to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest listing page and explanation of an error, in bytes.
const LARGEST_ANSWER: u64 = 8 << 20;
/// Most keys that a pattern may stand for.
const MOST_KEYS: usize = 100_000;
/// Largest object that is sent with one request.
pub const LARGEST_OBJECT: u64 = 5 << 30;

/// Where the object storage is; what is missing says the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of storage other than Amazon's.
    pub endpoint_url: Option<String>,
    /// Its region.
    pub region: String,
}

/// Object storage and who we are to it.
#[derive(Debug)]
pub struct ObjectStore {
    agent: Agent,
    credentials: Credentials,
    endpoint: String,
    region: String,
    style: UrlStyle,
}

impl ObjectStore {
    /// The storage, with the credentials that Amazon's own tools take from the environment: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and, if it is there, `AWS_SESSION_TOKEN`. `AWS_CA_BUNDLE` names certificates to trust.
    ///
    /// # Errors
    /// If something is missing or malformed.
    pub fn from_environment(settings: &Settings) -> Result<Self> {
        let credentials = Credentials::from_env().ok_or_else(|| {
            Error::new("no credentials for object storage")
                .hint("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")
        })?;
        let (endpoint, style) = match &settings.endpoint_url {
            Some(url) => (url.clone(), UrlStyle::Path),
            None => (format!("https://s3.{}.amazonaws.com", settings.region), UrlStyle::VirtualHost),
        };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(PATIENCE));
        if let Ok(path) = env::var("AWS_CA_BUNDLE") {
            config = config.tls_config(TlsConfig::builder().root_certs(authorities(&path)?).build());
        }
        Ok(Self {
            agent: config.build().into(),
            credentials,
            endpoint,
            region: settings.region.clone(),
            style,
        })
    }

    /// Size of an object; none if there is no such object.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn size(&self, bucket: &str, key: &str) -> Result<Option<u64>> {
        let place = self.bucket(bucket)?;
        let answer = self.ask("look at", bucket, key, || {
            let url = place.head_object(Some(&self.credentials), key).sign(SIGNED_FOR);
            self.agent.head(url.as_str()).call()
        })?;
        match answer.status().as_u16() {
            404 => Ok(None),
            200 => {
                let length = answer.headers().get("content-length").and_then(|length| length.to_str().ok());
                let length = length.and_then(|length| length.parse().ok());
                let length =
                    length.ok_or_else(|| Error::new(format!("s3://{bucket}/{key} has no length")))?;
                Ok(Some(length))
            }
            _ => Err(refused("look at", bucket, key, answer)),
        }
    }

    /// Reads an object from a place on.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, bucket: &str, key: &str, offset: u64) -> Result<ObjectReader> {
        let store = Self {
            agent: self.agent.clone(),
            credentials: self.credentials.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            style: self.style,
        };
        let mut reader = ObjectReader {
            store,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            tag: None,
            length: None,
            offset,
            body: Box::new(io::empty()),
            tries: 0,
        };
        reader.request()?;
        Ok(reader)
    }

    /// Stores a file as an object, which is there when this returns, and not before.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub fn write(&self, bucket: &str, key: &str, file: &mut File, length: u64) -> Result<()> {
        if length > LARGEST_OBJECT {
            return Err(Error::new(format!("s3://{bucket}/{key} would be larger than 5 GiB"))
                .hint("Split the export with --max-file-bytes."));
        }
        let place = self.bucket(bucket)?;
        let answer = self.ask("write", bucket, key, || {
            file.rewind()?;
            let url = place.put_object(Some(&self.credentials), key).sign(SIGNED_FOR);
            let mut body = Read::by_ref(file).take(length);
            let request = self.agent.put(url.as_str()).header("content-length", length.to_string());
            request.send(SendBody::from_reader(&mut body))
        })?;
        if answer.status().is_success() { Ok(()) } else { Err(refused("write", bucket, key, answer)) }
    }

    /// Removes an object.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, bucket: &str, key: &str) -> Result<()> {
        let place = self.bucket(bucket)?;
        let answer = self.ask("remove", bucket, key, || {
            let url = place.delete_object(Some(&self.credentials), key).sign(SIGNED_FOR);
            self.agent.delete(url.as_str()).call()
        })?;
        if answer.status().is_success() { Ok(()) } else { Err(refused("remove", bucket, key, answer)) }
    }

    /// The keys that match a pattern.
    ///
    /// # Errors
    /// If they cannot be listed, or are too many.
    pub fn list(&self, bucket: &str, pattern: &str) -> Result<Vec<String>> {
        let place = self.bucket(bucket)?;
        let prefix = pattern.split('*').next().unwrap_or_default();
        let mut token: Option<String> = None;
        let mut found = Vec::new();
        loop {
            let mut answer = self.ask("list", bucket, pattern, || {
                let mut action = place.list_objects_v2(Some(&self.credentials));
                action.with_prefix(prefix);
                if let Some(token) = &token {
                    action.with_continuation_token(token.as_str());
                }
                self.agent.get(action.sign(SIGNED_FOR).as_str()).call()
            })?;
            if !answer.status().is_success() {
                return Err(refused("list", bucket, pattern, answer));
            }
            let malformed = |error: &dyn std::fmt::Display| {
                Error::new(format!("malformed listing of s3://{bucket}: {error}"))
            };
            let body = answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_string();
            let page = ListObjectsV2::parse_response(&body.map_err(|error| malformed(&error))?);
            let page = page.map_err(|error| malformed(&error))?;
            found.extend(
                page.contents.into_iter().map(|object| object.key).filter(|key| matches(pattern, key)),
            );
            if found.len() > MOST_KEYS {
                return Err(Error::new(format!(
                    "more than {MOST_KEYS} objects match s3://{bucket}/{pattern}"
                )));
            }
            // A page that leads to itself would lead nowhere.
            match page.next_continuation_token {
                Some(next) if Some(&next) != token.as_ref() => token = Some(next),
                _ => return Ok(found),
            }
        }
    }

    fn bucket(&self, name: &str) -> Result<Bucket> {
        let malformed = |error: &dyn std::fmt::Display| {
            Error::new(format!("cannot make an address of {} and bucket {name}: {error}", self.endpoint))
        };
        let endpoint = self.endpoint.parse().map_err(|error| malformed(&error))?;
        // Certificates are for one level of names below the endpoint.
        let style = if name.contains('.') { UrlStyle::Path } else { self.style };
        Bucket::new(endpoint, style, name.to_owned(), self.region.clone()).map_err(|error| malformed(&error))
    }

    /// Sends a request until it is answered with anything but a failure of the server.
    fn ask(
        &self,
        doing: &str,
        bucket: &str,
        key: &str,
        mut request: impl FnMut() -> std::result::Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>> {
        let mut pause = FIRST_PAUSE;
        for left in (0..TRIES).rev() {
            match request() {
                Ok(answer) if left > 0 && (answer.status().is_server_error() || answer.status() == 429) => {}
                Ok(answer) => return Ok(answer),
                Err(error) if left == 0 || !may_pass(&error) => {
                    return Err(Error::new(format!("cannot {doing} s3://{bucket}/{key}: {error}")));
                }
                Err(_) => {}
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        Err(Error::new(format!("cannot {doing} s3://{bucket}/{key}")))
    }
}

fn may_pass(error: &ureq::Error) -> bool {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Timeout};
    matches!(error, Io(_) | Timeout(_) | ConnectionFailed | HostNotFound)
}

/// What the storage says that it will not do.
fn refused(doing: &str, bucket: &str, key: &str, mut answer: Response<Body>) -> Error {
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_string().unwrap_or_default();
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    };
    let reason = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!(": {message} ({code})"),
        _ => String::new(),
    };
    Error::new(format!("cannot {doing} s3://{bucket}/{key}: the storage answered {status}{reason}"))
}

fn authorities(path: &str) -> Result<RootCerts> {
    let failure =
        |error: &dyn std::fmt::Display| Error::new(format!("cannot read AWS_CA_BUNDLE {path}: {error}"));
    let pem = std::fs::read(path).map_err(|error| failure(&error))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| failure(&error))? {
            found.push(certificate);
        }
    }
    Ok(RootCerts::new_with_certs(&found))
}

/// The bytes of an object.
pub struct ObjectReader {
    store: ObjectStore,
    bucket: String,
    key: String,
    /// Which version of the object was begun.
    tag: Option<String>,
    length: Option<u64>,
    offset: u64,
    body: Box<dyn Read + Send>,
    /// How often in a row it broke.
    tries: u32,
}

impl ObjectReader {
    /// Asks for what is not read yet.
    fn request(&mut self) -> Result<()> {
        let (bucket, key) = (self.bucket.as_str(), self.key.as_str());
        let place = self.store.bucket(bucket)?;
        let answer = self.store.ask("read", bucket, key, || {
            let url = place.get_object(Some(&self.store.credentials), key).sign(SIGNED_FOR);
            let mut request = self.store.agent.get(url.as_str());
            if self.offset > 0 {
                request = request.header("range", format!("bytes={}-", self.offset));
            }
            if let Some(tag) = &self.tag {
                request = request.header("if-match", tag);
            }
            request.call()
        })?;
        let wanted = if self.offset > 0 { 206 } else { 200 };
        if answer.status().as_u16() != wanted {
            return Err(refused("read", bucket, key, answer));
        }
        let header =
            |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.tag = self.tag.take().or_else(|| header("etag"));
        let left = header("content-length").and_then(|length| length.parse::<u64>().ok());
        self.length = self.length.or(left.map(|left| self.offset.saturating_add(left)));
        self.body = Box::new(answer.into_body().into_reader());
        Ok(())
    }
}

impl Read for ObjectReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let failure = match self.body.read(out) {
                Ok(0) if !out.is_empty() && self.length.is_some_and(|length| self.offset < length) => {
                    io::Error::from(io::ErrorKind::UnexpectedEof)
                }
                Ok(read) => {
                    self.offset += read as u64;
                    self.tries = 0;
                    return Ok(read);
                }
                Err(error) => error,
            };
            // Without its tag nobody knows whether the object is still the same.
            self.tries += 1;
            if self.tries >= TRIES || self.tag.is_none() {
                return Err(failure);
            }
            self.request().map_err(|error| io::Error::other(error.to_string()))?;
        }
    }
}
