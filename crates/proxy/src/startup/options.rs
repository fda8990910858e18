//! The `options` startup parameter: words separated by white space, where a backslash takes the next
//! character literally, as PostgreSQL splits them.
//!
//! The proxy takes `--tenant=NAME` out and leaves every other word as it was written.

use super::{is_reserved, reserved};
use crate::error::ClientError;

/// What [`take_tenant`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// The values of all `--tenant=…` words, in order.
    pub tenants: Vec<Vec<u8>>,
    /// The other words, joined by single spaces; `None` when there is none.
    pub rest: Option<Vec<u8>>,
}

/// Takes the words that name a tenant out of `options`, and refuses those that set reserved parameters.
pub fn take_tenant(options: &[u8]) -> Result<Taken, ClientError> {
    let mut taken = Taken::default();
    let mut rest = Vec::new();
    let mut is_argument = false;
    for raw in Words(options) {
        let word = unescape(raw);
        if !is_argument && let Some(name) = word.strip_prefix(b"--tenant=") {
            taken.tenants.push(name.to_vec());
            continue;
        }
        let setting = if is_argument { Some(word.as_slice()) } else { setting_of(&word) };
        if let Some(name) = setting.filter(|name| is_reserved(name)) {
            return Err(reserved(name.split(|b| *b == b'=').next().unwrap_or(name)));
        }
        is_argument = !is_argument && word == b"-c";
        if !rest.is_empty() {
            rest.push(b' ');
        }
        rest.extend_from_slice(raw);
    }
    taken.rest = (!rest.is_empty()).then_some(rest);
    Ok(taken)
}

/// The `name=value` of a word `-cname=value` or `--name=value`.
fn setting_of(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(b"-c").or_else(|| word.strip_prefix(b"--"))
}

/// The words of a string, still escaped.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|b| !is_space(*b))?;
        let (_, text) = self.0.split_at_checked(start)?;
        let (word, rest) = text.split_at_checked(word_length(text))?;
        self.0 = rest;
        Some(word)
    }
}

fn word_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate() {
        if !escaped && is_space(*byte) {
            return index;
        }
        escaped = !escaped && *byte == b'\\';
    }
    text.len()
}

fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(raw.len());
    let mut escaped = false;
    for byte in raw {
        if *byte == b'\\' && !escaped {
            escaped = true;
        } else {
            word.push(*byte);
            escaped = false;
        }
    }
    word
}

/// C's `isspace` in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(options: &str) -> Taken {
        take_tenant(options.as_bytes()).unwrap()
    }

    #[test]
    fn takes_the_tenant_and_keeps_the_rest() {
        let t = taken("  -c geqo=off --tenant=app  -c search_path=a\\ b ");
        assert_eq!(t.tenants, vec![b"app".to_vec()]);
        assert_eq!(t.rest.unwrap(), b"-c geqo=off -c search_path=a\\ b");
    }

    #[test]
    fn nothing_left_is_none() {
        assert_eq!(taken("--tenant=app").rest, None);
        assert_eq!(taken("").rest, None);
        assert_eq!(taken("   ").rest, None);
    }

    #[test]
    fn escapes_are_understood_and_kept() {
        assert_eq!(taken("--tenant=a\\ b").tenants, vec![b"a b".to_vec()]);
        assert_eq!(taken("x\\\\ y\\").rest.unwrap(), b"x\\\\ y\\");
    }

    #[test]
    fn an_argument_of_c_names_no_tenant() {
        let t = taken("-c --tenant=app");
        assert!(t.tenants.is_empty());
        assert_eq!(t.rest.unwrap(), b"-c --tenant=app");
    }

    #[test]
    fn several_are_all_reported() {
        assert_eq!(taken("--tenant=a --tenant=b").tenants.len(), 2);
    }

    #[test]
    fn reserved_parameters_are_refused_in_every_spelling() {
        for options in [
            "-c _dormouse.tenant_id=3",
            "-c_dormouse.tls=on",
            "--_DORMOUSE.x=1",
            "-c \\_dormouse.tls=on",
            "---dormouse.tls=on",
        ] {
            assert_eq!(take_tenant(options.as_bytes()).unwrap_err().code(), "42602", "{options}");
        }
    }
}
