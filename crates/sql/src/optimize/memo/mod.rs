//! A memo: the order and the methods of joins, how their inputs are read, and which orders rows come in, chosen together
//! by cost.
//!
//! # How it works
//!
//! As in Cascades (G. Graefe, "The Cascades framework for query optimization", 1995), a *group* ([`group`]) stands for all
//! plans that return the same rows. What its rows are is said once; the plans below it are groups again:
//!
//! * a *leaf* is a plan without joins, of which [`super::access`] knows how it is read;
//! * an operator other than a join stays what it is, over its inputs;
//! * outer, semi- and anti-joins keep their places, and may turn their sides;
//! * inner joins directly below each other are a *block* ([`block`]), with a group for each set of its inputs.
//!
//! The search ([`search`]) goes from the top down. What is asked of a group ([`order::Required`]) is an order and the share of
//! its rows that will be read, which is less than all below a limit. The best answer to each question is
//! remembered. Exploration rules say what else a group is, implementation rules propose how it can be done and what that
//! asks of the groups below, and the enforcer of an order is a sort. Each rule is a file of its own; those that something
//! can be found without have a name and can be switched off ([`Rule`]):
//!
//! | rule | says |
//! |---|---|
//! | [`associate`] | inner joins are done in another order |
//! | [`commute`] | the sides of a join are turned |
//! | [`semi_as_inner`] | a semi-join is an inner join with distinct values |
//! | [`read`] | a plan without joins is read as it costs least, in an order or not |
//! | [`pass_order`] | what an operator asks of its input |
//! | [`look_up`], [`hash`], [`merge`], [`nested_loop`] | how a join is done |
//! | [`sort`] | the rows are sorted |
//!
//! What was found becomes a [`recipe`], by which the plan is made anew ([`build`], [`assemble`]).
//!
//! # Bounds
//!
//! A plan without joins makes no memo. Blocks of up to nine inputs are searched exhaustively, larger ones greedily, of more
//! than 63 as written. The number of orders is bounded. Orders that merge joins ask for are looked into only where they can
//! pay.
//!
//! # Costs
//!
//! Rows and costs come from [`super::estimate`] and [`super::cost`]; the rows of a group are those that were estimated
//! before, whichever plan is chosen.

mod assemble;
mod associate;
pub(super) mod block;
mod build;
mod commute;
mod explore;
mod group;
mod hash;
mod join;
mod look_up;
mod merge;
mod natural;
mod nested_loop;
mod order;
mod pass_order;
mod read;
mod recipe;
mod rule;
mod search;
mod semi_as_inner;
mod sort;
#[cfg(test)]
mod tests;

pub use rule::{Options, Rule};

use super::estimate::{cte_rows, estimate};
use crate::plan::Plan;
use explore::Alternatives;
use group::Memo;
use order::Required;

/// Chooses how a plan with joins is done.
pub fn implement(mut plan: Plan, options: Options) -> Plan {
    estimate(&mut plan, false);
    let ctes = cte_rows(&plan);
    let mut others = Alternatives::explore(&plan, options, &ctes);
    let recipe = {
        let mut memo = Memo::new(options, &ctes);
        let group = memo.add(&plan, &others);
        memo.recipe(group, Required::ALL)
    };
    build::build(plan, recipe, &mut others)
}
