//! Rows: keys and fields. Pure.
//!
//! A field proves itself: it begins with a seed, and the rest follows from that, the key and the field's number.

/// Fields of a row.
pub const FIELDS: usize = 10;
/// Characters of a field.
const FIELD_LEN: usize = 100;
/// Digits of the seed.
const SEED_LEN: usize = 16;

/// The key of a row by its number: hashed, so that neighbours by number are not neighbours by key.
pub fn key(number: u64) -> String {
    format!("user{}", fnv(&number.to_be_bytes()) >> 1)
}

/// A field of a row.
pub fn field(key: &str, field: usize, seed: u64) -> String {
    let mut text = format!("{seed:016x}");
    let mut state = seed ^ fnv(key.as_bytes()) ^ field as u64;
    while text.len() < FIELD_LEN {
        state = fnv(&state.to_be_bytes());
        text += &format!("{state:016x}");
    }
    text.truncate(FIELD_LEN);
    text
}

/// Whether a field is one that [`field`] makes.
pub fn is_field(key: &str, number: usize, text: &str) -> bool {
    let seed = text.get(..SEED_LEN).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    seed.is_some_and(|seed| field(key, number, seed) == text)
}

/// FNV-1a, 64 bits.
pub fn fnv(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_prove_themselves() {
        let key = key(7);
        let good = field(&key, 3, 42);
        assert_eq!(good.len(), FIELD_LEN);
        assert!(is_field(&key, 3, &good));
        assert!(!is_field(&key, 4, &good) && !is_field(&super::key(8), 3, &good));
        let torn = format!("{}{}", &good[..99], if good.ends_with('0') { '1' } else { '0' });
        assert!(!is_field(&key, 3, &torn) && !is_field(&key, 3, "short") && !is_field(&key, 3, "ä"));
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::HashSet<String> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
