//! Zipfian ranks: rank `r` is drawn with a probability proportional to `1 / (r + 1)^0.99`.
//!
//! The algorithm is that of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994),
//! with the constant of "Benchmarking Cloud Serving Systems with YCSB" (SoCC 2010). Pure.

/// The exponent.
const THETA: f64 = 0.99;
/// Ranks that a scrambled distribution has, whatever the number of rows, and the sum of all their weights, which takes
/// long to add up.
const MANY: u64 = 10_000_000_000;
const WEIGHT_OF_MANY: f64 = 26.469_028_201_783_02;

/// Draws ranks from a number of them that may grow.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: u64,
    weight: f64,
}

impl Zipf {
    /// Ranks from 0; at least one.
    pub fn new(ranks: u64) -> Self {
        let mut zipf = Self { ranks: 0, weight: 0.0 };
        zipf.grow(ranks.max(1));
        zipf
    }

    /// So many ranks that hashing them gives keys the same skew however many keys there are.
    pub fn of_many() -> Self {
        Self { ranks: MANY, weight: WEIGHT_OF_MANY }
    }

    /// More ranks from now on; fewer change nothing.
    pub fn grow(&mut self, ranks: u64) {
        for rank in self.ranks..ranks {
            self.weight += 1.0 / ((rank + 1) as f64).powf(THETA);
        }
        self.ranks = self.ranks.max(ranks);
    }

    /// The rank for a number drawn evenly from `[0, 1)`.
    pub fn rank(&self, even: f64) -> u64 {
        let weight_of_two = 1.0 + 0.5f64.powf(THETA);
        let scaled = even * self.weight;
        if scaled < 1.0 || self.ranks == 1 {
            return 0;
        }
        if scaled < weight_of_two {
            return 1;
        }
        let ranks = self.ranks as f64;
        let eta = (1.0 - (2.0 / ranks).powf(1.0 - THETA)) / (1.0 - weight_of_two / self.weight);
        let rank = ranks * (eta * even - eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.ranks - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of the first ranks among draws that lie evenly.
    fn shares(zipf: &Zipf, of: usize) -> Vec<f64> {
        let draws = 200_000;
        let mut counts = vec![0usize; of];
        for draw in 0..draws {
            let rank = zipf.rank(f64::from(draw) / f64::from(draws));
            assert!(rank < zipf.ranks);
            if let Some(count) = counts.get_mut(rank as usize) {
                *count += 1;
            }
        }
        counts.iter().map(|count| *count as f64 / f64::from(draws)).collect()
    }

    #[test]
    fn low_ranks_come_as_often_as_their_weight_says() {
        let zipf = Zipf::new(1000);
        let shares = shares(&zipf, 1000);
        for (rank, share) in shares.iter().enumerate().take(2) {
            let expected = 1.0 / ((rank + 1) as f64).powf(THETA) / zipf.weight;
            assert!((share - expected).abs() < 0.01, "rank {rank}: {share} instead of {expected}");
        }
        let upper_half: f64 = shares[500..].iter().sum();
        assert!((0.05..0.15).contains(&upper_half), "{upper_half}");
    }

    #[test]
    fn growing_is_the_same_as_having_been_larger() {
        let (mut grown, whole) = (Zipf::new(10), Zipf::new(1000));
        grown.grow(1000);
        grown.grow(5);
        assert_eq!(grown.ranks, whole.ranks);
        assert!((grown.weight - whole.weight).abs() < 1e-9);
        assert_eq!(Zipf::new(0).rank(0.999), 0);
    }

    #[test]
    fn of_many_the_first_has_its_share() {
        let share = shares(&Zipf::of_many(), 1)[0];
        assert!((share - 1.0 / WEIGHT_OF_MANY).abs() < 0.001, "{share}");
    }
}
