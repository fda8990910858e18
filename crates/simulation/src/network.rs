//! The network between nodes: loses, delays, repeats and reorders messages, and is cut in places.

use crate::clock::{Micros, SECOND};
use rand::Rng;
use rand::rngs::SmallRng;
use replication::NodeId;
use std::collections::BTreeMap;

/// How much later than the message itself its repetition arrives, at most.
const LATEST_REPEAT: Micros = 4 * SECOND;

/// How messages fare where nothing is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// The usual delay: from, to.
    pub delay: (Micros, Micros),
    /// How many of a thousand messages take much longer.
    pub late_per_mille: u32,
    /// How long those take: from, to.
    pub late: (Micros, Micros),
    /// How many of a thousand messages are lost.
    pub lost_per_mille: u32,
    /// How many of a thousand messages arrive twice.
    pub repeated_per_mille: u32,
}

impl Weather {
    /// A network as it should be.
    pub const FAIR: Weather = Weather {
        delay: (100, 500),
        late_per_mille: 0,
        late: (0, 0),
        lost_per_mille: 0,
        repeated_per_mille: 0,
    };
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive: a link is cut.
    Cut,
    /// It does not arrive: bad luck.
    Lost,
    /// It arrives after a while, perhaps again after another.
    Arrives {
        /// When it arrives.
        delay: Micros,
        /// Whether that is much later than is usual.
        late: bool,
        /// When it arrives once more.
        again: Option<Micros>,
    },
}

/// A link in one direction: from, to.
pub type Link = (NodeId, NodeId);

/// The network.
#[derive(Debug)]
pub struct Network {
    /// How messages fare.
    pub weather: Weather,
    /// How many cuts lie on each link.
    cuts: BTreeMap<Link, u32>,
}

impl Network {
    /// A network without cuts.
    pub fn new(weather: Weather) -> Self {
        Network { weather, cuts: BTreeMap::new() }
    }

    /// Cuts links, once more where they are cut.
    pub fn cut(&mut self, links: &[Link]) {
        links.iter().for_each(|link| *self.cuts.entry(*link).or_default() += 1);
    }

    /// Takes one cut off links.
    pub fn mend(&mut self, links: &[Link]) {
        for link in links {
            if let Some(count) = self.cuts.get_mut(link) {
                *count -= 1;
                if *count == 0 {
                    self.cuts.remove(link);
                }
            }
        }
    }

    /// Mends everything.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.weather = Weather::FAIR;
    }

    /// Whether nothing passes a link.
    pub fn is_cut(&self, link: Link) -> bool {
        self.cuts.contains_key(&link)
    }

    /// Decides what becomes of a message that is sent now.
    pub fn send(&self, link: Link, rng: &mut SmallRng) -> Fate {
        if self.cuts.contains_key(&link) {
            return Fate::Cut;
        }
        let weather = &self.weather;
        if happens(rng, weather.lost_per_mille) {
            return Fate::Lost;
        }
        let late = happens(rng, weather.late_per_mille);
        let (from, to) = if late { weather.late } else { weather.delay };
        let delay = rng.random_range(from..=to);
        let longest = (4 * to).min(LATEST_REPEAT);
        let again = happens(rng, weather.repeated_per_mille).then(|| delay + rng.random_range(0..=longest));
        Fate::Arrives { delay, late, again }
    }
}

/// True `per_mille` times of a thousand.
pub fn happens(rng: &mut SmallRng, per_mille: u32) -> bool {
    per_mille > 0 && rng.random_range(0..1000) < per_mille
}
