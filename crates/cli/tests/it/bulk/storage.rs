//! Object storage in memory, for tests: as much of Amazon S3's protocol as an import and an export need.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Who may ask.
pub const KEY_ID: &str = "DORMOUSETEST";

/// Objects by bucket and key, and what is to go wrong.
#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Vec<u8>>,
    /// Reads that break off in the middle.
    broken_reads: u32,
    /// Writes that are answered with 503.
    busy_writes: u32,
    requests: Vec<String>,
}

/// A server that runs as long as the test does.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Mutex<Inner>>,
    address: SocketAddr,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Storage {
    /// Starts a server on a free port.
    pub fn start() -> Storage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let storage = Storage { inner: Arc::default(), address: listener.local_addr().unwrap() };
        let server = storage.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        storage
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets reads break off, and writes be refused for a while.
    pub fn trouble(&self, broken_reads: u32, busy_writes: u32) {
        let mut inner = self.inner.lock().unwrap();
        (inner.broken_reads, inner.busy_writes) = (broken_reads, busy_writes);
    }

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.inner.lock().unwrap().objects.keys().cloned().collect()
    }

    /// The requests so far: method and path.
    pub fn requests(&self) -> Vec<String> {
        self.inner.lock().unwrap().requests.clone()
    }

    fn serve(&self, stream: TcpStream) {
        let Some(request) = read(&stream) else { return };
        let (status, headers, body) = self.answer(&request);
        let mut out = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        if request.method == "HEAD" {
            out = out.replace("content-length: 0\r\n", "");
        }
        let mut whole = out.into_bytes();
        whole.extend_from_slice(&body);
        let mut inner = self.inner.lock().unwrap();
        if request.method == "GET" && body.len() > 1000 && inner.broken_reads > 0 {
            inner.broken_reads -= 1;
            whole.truncate(whole.len() - body.len() / 2);
        }
        drop(inner);
        let _ = (&stream).write_all(&whole);
    }

    fn answer(&self, request: &Request) -> (&'static str, String, Vec<u8>) {
        let mut inner = self.inner.lock().unwrap();
        inner.requests.push(format!("{} {}", request.method, request.path));
        if !is_signed(request) {
            let body = "<Error><Code>AccessDenied</Code><Message>not signed</Message></Error>";
            return ("403 Forbidden", String::new(), body.into());
        }
        let name = request.path.trim_start_matches('/').to_owned();
        match request.method.as_str() {
            "PUT" if inner.busy_writes > 0 => {
                inner.busy_writes -= 1;
                ("503 Slow Down", String::new(), Vec::new())
            }
            "PUT" => {
                inner.objects.insert(name, request.body.clone());
                ("200 OK", String::new(), Vec::new())
            }
            "DELETE" => {
                inner.objects.remove(&name);
                ("204 No Content", String::new(), Vec::new())
            }
            "GET" if request.query.contains_key("list-type") => {
                ("200 OK", String::new(), list(&inner, request, &name))
            }
            method => match inner.objects.get(&name) {
                None => ("404 Not Found", String::new(), Vec::new()),
                Some(object) if method == "HEAD" => {
                    ("200 OK", format!("content-length: {}\r\n", object.len()), Vec::new())
                }
                Some(object) => {
                    let from = request
                        .headers
                        .get("range")
                        .map(|range| range.trim_start_matches("bytes=").trim_end_matches('-'));
                    let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
                    let from: usize = from.map_or(0, |from| from.parse().unwrap());
                    (status, "etag: \"one\"\r\n".into(), object[from..].to_vec())
                }
            },
        }
    }
}

/// Two keys at a time, so that there are pages.
fn list(inner: &Inner, request: &Request, bucket: &str) -> Vec<u8> {
    let prefix = format!("{}/{}", bucket.trim_end_matches('/'), request.query["prefix"]);
    let after = request.query.get("continuation-token").cloned().unwrap_or_default();
    let mut keys = inner.objects.keys().filter(|name| name.starts_with(&prefix) && **name > after);
    let page: Vec<&String> = keys.by_ref().take(2).collect();
    let contents: String = page
        .iter()
        .map(|name| {
            let key = name.split_once('/').unwrap().1;
            format!("<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00Z</LastModified><ETag>\"one\"</ETag><Size>1</Size></Contents>")
        })
        .collect();
    let next = keys.next().map_or(String::new(), |_| {
        format!("<NextContinuationToken>{}</NextContinuationToken>", page[page.len() - 1])
    });
    format!(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><MaxKeys>2</MaxKeys>{contents}{next}</ListBucketResult>"
    )
    .into_bytes()
}

/// Whether a request carries a signature of version 4 of the one who may ask.
fn is_signed(request: &Request) -> bool {
    let has =
        |name: &str, check: &dyn Fn(&str) -> bool| request.query.get(name).is_some_and(|value| check(value));
    has("X-Amz-Algorithm", &|value| value == "AWS4-HMAC-SHA256")
        && has("X-Amz-Credential", &|value| {
            value.starts_with(KEY_ID) && value.ends_with("/test-region/s3/aws4_request")
        })
        && has("X-Amz-Signature", &|value| {
            value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path: decoded(path), query, headers, body })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}
