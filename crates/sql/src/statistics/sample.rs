//! [`Reservoir`]: a uniform sample of a stream.

use rand::Rng;

/// A uniform sample without replacement of what it was offered (Vitter, "Random sampling with a reservoir", 1985,
/// algorithm R).
#[derive(Debug)]
pub struct Reservoir<T> {
    capacity: usize,
    offered: u64,
    kept: Vec<T>,
}

impl<T> Reservoir<T> {
    /// A sample of at most `capacity` items.
    pub fn new(capacity: usize) -> Self {
        Reservoir { capacity, offered: 0, kept: Vec::new() }
    }

    /// Offers an item, which is made only if it is taken; returns the one that it displaced.
    pub fn offer(&mut self, random: &mut impl Rng, make: impl FnOnce() -> T) -> Option<T> {
        self.offered += 1;
        if self.kept.len() < self.capacity {
            self.kept.push(make());
            return None;
        }
        let place = usize::try_from(random.random_range(0..self.offered)).ok()?;
        let slot = self.kept.get_mut(place)?;
        Some(std::mem::replace(slot, make()))
    }

    /// Goes on with half the capacity. What is kept of the sample is one of everything offered so far.
    pub fn halve(&mut self, random: &mut impl Rng) -> Vec<T> {
        self.capacity = (self.capacity.min(self.kept.len()) / 2).max(1);
        let mut gone = Vec::new();
        while self.kept.len() > self.capacity {
            let place = random.random_range(0..self.kept.len());
            gone.push(self.kept.swap_remove(place));
        }
        gone
    }

    /// The sample, in no order.
    pub fn items(&self) -> &[T] {
        &self.kept
    }
}
