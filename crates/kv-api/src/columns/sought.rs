//! Filters of integers: whether a value may be one of many.
//!
//! A split block Bloom filter (F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007, as
//! Apache Parquet uses it): a value sets one bit in each of the eight words of one block, so that it is looked for
//! in half a cache line. It never denies a value that is in it, and takes some one in a hundred others for one.

use bytes::Bytes;

/// Bytes of a block: eight words of four.
const BLOCK_BYTES: usize = 32;
/// Bytes of a filter, at most.
pub const MAX_SOUGHT_BYTES: usize = 64 << 10;
/// Values of a filter, at most: with more of them too many others would be taken for one.
pub const MAX_SOUGHT: usize = 50_000;
/// Values per block: about ten bits for each.
const PER_BLOCK: usize = 24;

/// Odd numbers that turn the lower half of a hash into a bit of each word.
const SALT: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A filter that some values are in. `None` if they are more than [`MAX_SOUGHT`].
pub fn sought(values: &[i64]) -> Option<Bytes> {
    if values.len() > MAX_SOUGHT {
        return None;
    }
    let blocks = values.len().div_ceil(PER_BLOCK).clamp(1, MAX_SOUGHT_BYTES / BLOCK_BYTES);
    let mut words = vec![[0_u32; 8]; blocks];
    for value in values {
        let hash = hash(*value);
        let block = &mut words[position(hash, blocks)];
        for (word, bit) in block.iter_mut().zip(bits(hash)) {
            *word |= bit;
        }
    }
    Some(words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect())
}

/// A filter as it was received.
#[derive(Debug)]
pub(super) struct Sought {
    blocks: Vec<[u32; 8]>,
}

impl Sought {
    /// `None` if that is no filter.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (blocks, []) = bytes.as_chunks::<BLOCK_BYTES>() else { return None };
        if blocks.is_empty() || bytes.len() > MAX_SOUGHT_BYTES {
            return None;
        }
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let block = |bytes: &[u8; BLOCK_BYTES]| {
            let mut words = bytes.as_chunks::<4>().0.iter().map(word);
            std::array::from_fn(|_| words.next().unwrap_or_default())
        };
        Some(Sought { blocks: blocks.iter().map(block).collect() })
    }

    /// Whether a value may be in it.
    pub fn may_have(&self, value: i64) -> bool {
        let hash = hash(value);
        let block = &self.blocks[position(hash, self.blocks.len())];
        block.iter().zip(bits(hash)).all(|(word, bit)| word & bit != 0)
    }
}

/// The finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
fn hash(value: i64) -> u64 {
    let mut hash = (value as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Which of so many blocks: the upper half of the hash as a fraction of them.
fn position(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

fn bits(hash: u64) -> impl Iterator<Item = u32> {
    SALT.into_iter().map(move |salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_it_is_found_and_little_else() {
        for count in [1, 7, 1_000, MAX_SOUGHT] {
            let values: Vec<i64> = (0..count as i64).map(|value| value * 7 - 300).collect();
            let filter = Sought::of(&sought(&values).unwrap()).unwrap();
            assert!(values.iter().all(|value| filter.may_have(*value)));
            let others = (0..100_000).map(|value| value * 7 - 299).filter(|value| filter.may_have(*value));
            assert!(others.count() < 3_000, "{count}");
        }
        let ends = [i64::MIN, -1, 0, i64::MAX];
        let filter = Sought::of(&sought(&ends).unwrap()).unwrap();
        assert!(ends.iter().all(|value| filter.may_have(*value)));
        let nothing = Sought::of(&sought(&[]).unwrap()).unwrap();
        assert!(!ends.iter().any(|value| nothing.may_have(*value)));
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        assert_eq!(sought(&vec![0; MAX_SOUGHT + 1]), None);
        for length in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES + 1, MAX_SOUGHT_BYTES + BLOCK_BYTES] {
            assert!(Sought::of(&vec![0; length]).is_none(), "{length}");
        }
        assert!(Sought::of(&sought(&vec![3; MAX_SOUGHT]).unwrap()).is_some());
    }
}
