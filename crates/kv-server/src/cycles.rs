//! Which transactions give way where several wait for each other: pure, and linear in the number of waits.
//!
//! Transactions that wait for each other are the strongly connected components of the graph of waits; they are found
//! with Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972, section 4), written without
//! recursion for graphs that are deep.

use hashbrown::{HashMap, HashSet};
use kv_api::Priority;
use std::cmp::Reverse;
use storage::intent::TxnId;

/// A transaction that waits for another.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Who waits.
    pub waiter: TxnId,
    /// Whom for.
    pub holder: TxnId,
    /// That of the one that waits.
    pub priority: Priority,
}

/// Which of those who wait here are to give way: of every cycle the one with the largest id of those with the lowest
/// priority. `own` are the waits here, `all` those of all nodes.
pub fn victims(own: &[Waiting], all: &[Waiting]) -> Vec<TxnId> {
    let waiters: HashSet<TxnId> = own.iter().map(|wait| wait.waiter).collect();
    let mut priorities: HashMap<TxnId, Priority> = HashMap::new();
    for wait in all.iter().filter(|wait| wait.priority != Priority::Normal) {
        // One that waits at several nodes may be known for what it is at some of them only.
        priorities.insert(wait.waiter, wait.priority);
    }
    let rank = |txn: &TxnId| (Reverse(priorities.get(txn).copied().unwrap_or_default()), *txn);
    let mut graph = Graph::new(all);
    let largest = graph.cycles().into_iter().filter_map(|cycle| cycle.into_iter().max_by_key(rank));
    let mut victims: Vec<TxnId> = largest.filter(|id| waiters.contains(id)).collect();
    victims.sort_unstable();
    victims
}

struct Graph {
    ids: Vec<TxnId>,
    /// By number, whom each waits for.
    edges: Vec<Vec<usize>>,
    /// By number: when it was first come by, from 1, and the earliest it is known to reach; 0 if not yet.
    order: Vec<usize>,
    low: Vec<usize>,
    /// Whether it is on the stack of those whose component is not complete.
    open: Vec<bool>,
}

impl Graph {
    fn new(waits: &[Waiting]) -> Self {
        let mut graph = Graph { ids: vec![], edges: vec![], order: vec![], low: vec![], open: vec![] };
        let mut numbers: HashMap<TxnId, usize> = HashMap::new();
        let mut number = |graph: &mut Graph, id: TxnId| {
            *numbers.entry(id).or_insert_with(|| {
                graph.ids.push(id);
                graph.edges.push(Vec::new());
                graph.ids.len() - 1
            })
        };
        for wait in waits {
            let (from, to) = (number(&mut graph, wait.waiter), number(&mut graph, wait.holder));
            graph.edges[from].push(to);
        }
        let len = graph.ids.len();
        (graph.order, graph.low, graph.open) = (vec![0; len], vec![0; len], vec![false; len]);
        graph
    }

    /// The groups of transactions that wait for each other, also those of one that waits for itself.
    fn cycles(&mut self) -> Vec<Vec<TxnId>> {
        let mut cycles = Vec::new();
        let (mut stack, mut count) = (Vec::new(), 0);
        for root in 0..self.ids.len() {
            if self.order[root] == 0 {
                self.visit(root, &mut stack, &mut count, &mut cycles);
            }
        }
        cycles
    }

    fn visit(
        &mut self,
        root: usize,
        stack: &mut Vec<usize>,
        count: &mut usize,
        cycles: &mut Vec<Vec<TxnId>>,
    ) {
        self.enter(root, stack, count);
        // Where the search stands: a transaction, and how many of its edges were followed.
        let mut path = vec![(root, 0)];
        while let Some((at, followed)) = path.last_mut() {
            let at = *at;
            if let Some(&to) = self.edges[at].get(*followed) {
                *followed += 1;
                if self.order[to] == 0 {
                    self.enter(to, stack, count);
                    path.push((to, 0));
                } else if self.open[to] {
                    self.low[at] = self.low[at].min(self.order[to]);
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                self.low[*before] = self.low[*before].min(self.low[at]);
            }
            if self.low[at] == self.order[at] {
                cycles.extend(self.complete(at, stack));
            }
        }
    }

    fn enter(&mut self, at: usize, stack: &mut Vec<usize>, count: &mut usize) {
        *count += 1;
        (self.order[at], self.low[at], self.open[at]) = (*count, *count, true);
        stack.push(at);
    }

    /// Takes the component off the stack that ends at `last`; returns it if it is a cycle.
    fn complete(&mut self, last: usize, stack: &mut Vec<usize>) -> Option<Vec<TxnId>> {
        let from = stack.iter().rposition(|at| *at == last)?;
        let component = stack.split_off(from);
        component.iter().for_each(|at| self.open[*at] = false);
        let is_cycle = component.len() > 1 || self.edges[last].contains(&last);
        is_cycle.then(|| component.into_iter().map(|at| self.ids[at]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_every_cycle_gives_way() {
        let wait = |waiter: u8, holder: u8| waiting([waiter; 16], [holder; 16]);
        let all = [wait(1, 2), wait(2, 3), wait(3, 1), wait(4, 1), wait(5, 6), wait(6, 5), wait(7, 8)];
        assert_eq!(victims(&all, &all), [[3; 16], [6; 16]]);
        assert_eq!(victims(&all[..2], &all), Vec::<TxnId>::new(), "the one that gives way waits elsewhere");
        assert_eq!(victims(&all[2..3], &all), [[3; 16]]);
        assert!(victims(&all[3..4], &all[3..4]).is_empty());
        assert_eq!(victims(&[wait(1, 1)], &[wait(1, 1)]), [[1; 16]], "for itself");
        let eight = [wait(1, 2), wait(2, 1), wait(2, 3), wait(3, 2)];
        assert_eq!(victims(&eight, &eight), [[3; 16]], "cycles that touch are one");
    }

    fn waiting(waiter: TxnId, holder: TxnId) -> Waiting {
        Waiting { waiter, holder, priority: Priority::Normal }
    }

    #[test]
    fn the_lowest_priority_of_a_cycle_gives_way() {
        let wait =
            |waiter: u8, holder: u8, priority| Waiting { priority, ..waiting([waiter; 16], [holder; 16]) };
        let (low, normal, high) = (Priority::Low, Priority::Normal, Priority::High);
        let waits = [wait(3, 1, high), wait(1, 2, normal), wait(2, 3, normal)];
        assert_eq!(victims(&waits, &waits), [[2; 16]], "not the important one");
        let waits = [wait(1, 2, low), wait(2, 3, normal), wait(3, 1, high)];
        assert_eq!(victims(&waits, &waits), [[1; 16]]);
    }

    #[test]
    fn a_long_queue_is_searched_in_no_time() {
        let id = |number: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            id
        };
        let mut waits: Vec<_> = (0..100_000).map(|number| waiting(id(number + 1), id(number))).collect();
        assert!(victims(&waits, &waits).is_empty());
        waits.push(waiting(id(0), id(100_000)));
        assert_eq!(victims(&waits, &waits), [id(100_000)]);
    }
}
