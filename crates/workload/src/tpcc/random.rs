//! Random values as TPC-C defines them (clauses 2.1.6, 4.3.2 and 4.3.3). Pure.

use rand::Rng;
use rand::rngs::StdRng;

/// Customers of a district.
pub const CUSTOMERS: i32 = 3_000;
/// Items, each of which every warehouse has in stock.
pub const ITEMS: i32 = 100_000;
/// Last names that there are.
const LAST_NAMES: i32 = 1_000;
/// What last names are put together of.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The constant C of NURand for last names while tables are filled.
const LAST_NAME_LOADED: i32 = 157;
/// The same in transactions. They differ by 66: clause 2.1.6.1 asks for 65 to 119, but neither 96 nor 112.
const LAST_NAME_RUN: i32 = 223;
/// The constant C for numbers of customers, which may be any up to 1,023.
const CUSTOMER_ID: i32 = 259;
/// The constant C for numbers of items, which may be any up to 8,191.
const ITEM_ID: i32 = 7_911;

/// A source of random values.
#[derive(Debug)]
pub struct Random(pub StdRng);

impl Random {
    /// A number, both ends included.
    pub fn within(&mut self, low: i32, high: i32) -> i32 {
        self.0.random_range(low..=high)
    }

    /// Whether something happens that happens so many times in a hundred.
    pub fn percent(&mut self, share: i32) -> bool {
        self.within(1, 100) <= share
    }

    /// NURand(A, x, y): numbers of which some are much more frequent than others.
    fn uneven(&mut self, a: i32, (low, high): (i32, i32), c: i32) -> i32 {
        ((self.within(0, a) | self.within(low, high)) + c) % (high - low + 1) + low
    }

    /// The number of a customer.
    pub fn customer(&mut self) -> i32 {
        self.uneven(1023, (1, CUSTOMERS), CUSTOMER_ID)
    }

    /// The number of an item.
    pub fn item(&mut self) -> i32 {
        self.uneven(8191, (1, ITEMS), ITEM_ID)
    }

    /// The last name of a customer that a transaction looks for.
    pub fn last_name(&mut self) -> String {
        last_name(self.uneven(255, (0, LAST_NAMES - 1), LAST_NAME_RUN))
    }

    /// The last name of a customer when tables are filled: the first have each name once.
    pub fn last_name_of(&mut self, customer: i32) -> String {
        if customer <= LAST_NAMES {
            return last_name(customer - 1);
        }
        last_name(self.uneven(255, (0, LAST_NAMES - 1), LAST_NAME_LOADED))
    }

    /// Letters and digits, so many.
    pub fn letters(&mut self, shortest: i32, longest: i32) -> String {
        const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let length = self.within(shortest, longest);
        (0..length).map(|_| char::from(LETTERS[self.0.random_range(0..LETTERS.len())])).collect()
    }

    /// Digits, so many.
    pub fn digits(&mut self, length: i32) -> String {
        (0..length).map(|_| char::from(b'0' + self.0.random_range(0..10u8))).collect()
    }

    /// What stands in I_DATA and S_DATA: every tenth says ORIGINAL somewhere.
    pub fn data(&mut self) -> String {
        const MARK: &str = "ORIGINAL";
        let mut text = self.letters(26, 50);
        if self.percent(10) {
            let start = self.0.random_range(0..=text.len() - MARK.len());
            text.replace_range(start..start + MARK.len(), MARK);
        }
        text
    }
}

/// The last name of a number below 1,000: a syllable for each of its digits.
pub fn last_name(number: i32) -> String {
    [number / 100, number / 10, number]
        .iter()
        .map(|digits| SYLLABLES[digits.rem_euclid(10) as usize])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn last_names_are_syllables() {
        for (number, name) in [(0, "BARBARBAR"), (371, "PRICALLYOUGHT"), (999, "EINGEINGEING")] {
            assert_eq!(last_name(number), name);
        }
    }

    #[test]
    fn values_are_within_their_bounds_and_uneven() {
        let mut random = Random(StdRng::seed_from_u64(1));
        let mut items = std::collections::HashMap::<i32, u32>::new();
        for _ in 0..100_000 {
            let (customer, item) = (random.customer(), random.item());
            assert!((1..=CUSTOMERS).contains(&customer) && (1..=ITEMS).contains(&item));
            *items.entry(item).or_default() += 1;
        }
        // Even ones would hit the luckiest item about seven times.
        assert!(*items.values().max().unwrap() > 20);
    }

    #[test]
    fn a_tenth_of_data_is_original() {
        let mut random = Random(StdRng::seed_from_u64(2));
        let data: Vec<String> = (0..10_000).map(|_| random.data()).collect();
        assert!(data.iter().all(|text| (26..=50).contains(&text.len())));
        let original = data.iter().filter(|text| text.contains("ORIGINAL")).count();
        assert!((900..1100).contains(&original), "{original}");
    }
}
