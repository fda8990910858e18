//! Patterns of SQL's LIKE, over UTF-8.

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// What stands between percent signs. The first one must be at the beginning, the last one at the end.
    pieces: Vec<Vec<Symbol>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Byte(u8),
    /// One character.
    Any,
}

impl Pattern {
    /// Reads a pattern; none if it ends with the escape character.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut pieces = vec![Vec::new()];
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            let symbol = match byte {
                b'%' => {
                    pieces.push(Vec::new());
                    continue;
                }
                b'_' => Symbol::Any,
                b'\\' => Symbol::Byte(*bytes.next()?),
                byte => Symbol::Byte(*byte),
            };
            pieces.last_mut()?.push(symbol);
        }
        Some(Pattern { pieces })
    }

    /// Whether a text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let Some((first, others)) = self.pieces.split_first() else { return false };
        let Some(mut rest) = strip(first, text) else { return false };
        let Some((last, middle)) = others.split_last() else { return rest.is_empty() };
        // The earliest place is as good as any for those in the middle.
        for piece in middle {
            match places(rest).find_map(|at| strip(piece, at)) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        places(rest).any(|at| strip(last, at).is_some_and(<[u8]>::is_empty))
    }
}

/// What is behind a piece at the beginning of a text.
fn strip<'t>(piece: &[Symbol], mut text: &'t [u8]) -> Option<&'t [u8]> {
    for symbol in piece {
        let (first, rest) = text.split_first()?;
        text = match symbol {
            Symbol::Byte(byte) if byte == first => rest,
            Symbol::Byte(_) => return None,
            Symbol::Any => &rest[rest.iter().take_while(|byte| is_continuation(**byte)).count()..],
        };
    }
    Some(text)
}

/// The text from each of its characters on, and its end.
fn places(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..=text.len())
        .map(|start| &text[start..])
        .filter(|rest| !rest.first().is_some_and(|byte| is_continuation(*byte)))
}

/// Whether a byte goes on with a character of UTF-8.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("", &[""][..], &["a"][..]),
            ("abc", &["abc"], &["", "ab", "abcd", "xabc"]),
            ("PROMO%", &["PROMO", "PROMO X"], &["PROM", "xPROMO"]),
            ("%BRASS", &["BRASS", "xBRASS", "BRASSBRASS"], &["BRASSx", ""]),
            ("%a%b%", &["ab", "xaxbx", "aab"], &["ba", "a", "b"]),
            ("a%a", &["aa", "aba", "aaa"], &["a", "ab"]),
            ("%%", &["", "x"], &[]),
            ("_b%", &["äb", "abc"], &["b", "ääb"]),
            ("%_", &["ä", "xy"], &[""]),
            ("a\\%b\\_", &["a%b_"], &["axb_", "a%bx"]),
        ] {
            let parsed = Pattern::parse(pattern.as_bytes()).unwrap();
            for text in yes {
                assert!(parsed.matches(text.as_bytes()), "{pattern} {text}");
            }
            for text in no {
                assert!(!parsed.matches(text.as_bytes()), "{pattern} {text}");
            }
        }
        assert_eq!(Pattern::parse(b"a\\"), None);
    }
}
