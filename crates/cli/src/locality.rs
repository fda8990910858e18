//! Localities on the command line: `region=eu-west,zone=b`, the widest first.

use control::placement;

/// Longest locality, in bytes.
const MOST: usize = 255;

/// Reads one pair.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_pair(text: &str) -> Result<String, String> {
    placement::pair(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Where a KV node stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Locality(pub String);

/// Reads a locality.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Locality, String> {
    if text.len() > MOST {
        return Err(format!("a locality has at most {MOST} bytes"));
    }
    let mut keys: Vec<&str> = Vec::new();
    for pair in text.split(',') {
        let (key, _) = placement::pair(pair).map_err(|error| error.to_string())?;
        if keys.contains(&key) {
            return Err(format!("\"{key}\" is given twice"));
        }
        keys.push(key);
    }
    Ok(Locality(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_anything_else_is_refused() {
        for good in ["zone=a", "region=eu-west,zone=b", "region=EU,zone=b,rack=12.3_x"] {
            assert_eq!(parse(good), Ok(Locality(good.into())));
        }
        let long = format!("zone={}", "x".repeat(MOST));
        for bad in
            ["", "zone", "zone=", "=a", "zone=a,", "zone=a,zone=b", "zone=a b", "zone=a=b", "zöne=a", &long]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
