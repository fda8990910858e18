//! The rules by name, and which of them a plan is to do without.

/// A rule of the memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// Exploration: the sides of a join are turned ([`super::commute`]).
    Commute,
    /// Exploration: inner joins are done in another order ([`super::associate`]).
    Associate,
    /// Exploration: a semi-join as an inner join with distinct values ([`super::semi_as_inner`]).
    SemiAsInner,
    /// Implementation: an index of the right side is looked up for each left row ([`super::look_up`]).
    LookUp,
    /// Implementation: a hash table of the right side ([`super::hash`]).
    HashJoin,
    /// Implementation: both sides in order ([`super::merge`]).
    MergeJoin,
    /// Implementation: every pair of rows ([`super::nested_loop`]).
    NestedLoop,
    /// Enforcer of an order ([`super::sort`]).
    Sort,
    /// Exploration, before there is a memo: scalar subqueries as joins ([`crate::optimize::scalar`]).
    Unnest,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 9] = [
        Rule::Commute,
        Rule::Associate,
        Rule::SemiAsInner,
        Rule::LookUp,
        Rule::HashJoin,
        Rule::MergeJoin,
        Rule::NestedLoop,
        Rule::Sort,
        Rule::Unnest,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Commute => "commute",
            Rule::Associate => "associate",
            Rule::SemiAsInner => "semi-as-inner",
            Rule::LookUp => "look-up",
            Rule::HashJoin => "hash-join",
            Rule::MergeJoin => "merge-join",
            Rule::NestedLoop => "nested-loop",
            Rule::Sort => "sort",
            Rule::Unnest => "unnest",
        }
    }
}

/// What is added to the cost of what a rule that is switched off proposes, as in PostgreSQL: it is taken where nothing
/// else does.
const PENALTY: f64 = 1e10;

/// How plans are to be made. The default is by cost alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Rules that are switched off, as bits.
    off: u16,
}

impl Options {
    /// The same without a rule. An exploration rule is not applied, an implementation rule only where no other can be.
    #[must_use]
    pub fn without(self, rule: Rule) -> Self {
        Options { off: self.off | 1 << rule as u8 }
    }

    /// Whether a rule is switched on.
    pub fn has(self, rule: Rule) -> bool {
        self.off >> rule as u8 & 1 == 0
    }

    /// What is added to the cost of what a rule proposes.
    pub(super) fn penalty(self, rule: Rule) -> f64 {
        if self.has(rule) { 0.0 } else { PENALTY }
    }
}
