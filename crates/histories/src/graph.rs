//! The graph of dependencies between transactions.

use crate::history::Object;
use crate::report::Names;
use std::collections::VecDeque;

/// What one transaction has to do with another. Each is a bit, so that sets of them are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The second wrote what follows a version of the first.
    Ww = 1,
    /// The second read a version of the first.
    Wr = 2,
    /// The second wrote what follows a version that the first read.
    Rw = 4,
    /// The second began after the first was acknowledged.
    Time = 8,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const WRITES: Kinds = Kinds(Kind::Ww as u8);
    pub(crate) const FLOW: Kinds = Kinds(Kind::Ww as u8 | Kind::Wr as u8);
    pub(crate) const ALL: Kinds = Kinds(Kind::Ww as u8 | Kind::Wr as u8 | Kind::Rw as u8);
    pub(crate) const TIMED: Kinds = Kinds(Kinds::ALL.0 | Kind::Time as u8);

    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & kind as u8 != 0
    }
}

/// That one transaction comes before another, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: Kind,
    /// What both touched, but for [`Kind::Time`].
    pub(crate) object: Option<Object>,
    /// The version of the first transaction, written or read; None is the empty one.
    pub(crate) before: Option<u64>,
    /// The version of the second.
    pub(crate) after: Option<u64>,
}

impl Edge {
    /// In words.
    pub(crate) fn explain(&self, names: &Names<'_>) -> String {
        let (from, to) = (names.of(self.from), names.of(self.to));
        let Some(object) = self.object else { return format!("{from} was acknowledged before {to} began") };
        let value = |value: Option<u64>| value.map_or("nothing".to_owned(), |value| value.to_string());
        let (before, after) = (value(self.before), value(self.after));
        let verb = if matches!(object, Object::List(_)) { "appended" } else { "wrote" };
        match self.kind {
            Kind::Ww => format!("{from} {verb} {before} to {object} before {to} {verb} {after}"),
            Kind::Wr => format!("{from} {verb} {before} to {object}, which {to} read"),
            Kind::Rw if self.before.is_none() => {
                format!("{from} read {object} when it was empty, before {to} {verb} {after}")
            }
            Kind::Rw => format!("{from} read {before} in {object}, before {to} {verb} {after}"),
            Kind::Time => format!("{from} was acknowledged before {to} began"),
        }
    }
}

/// A graph that grows.
#[derive(Default)]
pub(crate) struct Graph {
    edges: Vec<Edge>,
}

impl Graph {
    /// Adds an edge; none from a transaction to itself.
    pub(crate) fn add(&mut self, edge: Edge) {
        if edge.from != edge.to {
            self.edges.push(edge);
        }
    }

    /// Makes the graph one that can be searched.
    pub(crate) fn finish(mut self, nodes: usize) -> Searchable {
        self.edges.sort_by_key(|edge| (edge.from, edge.to, edge.kind));
        self.edges.dedup_by_key(|edge| (edge.from, edge.to, edge.kind));
        let mut first = vec![0; nodes + 1];
        for edge in &self.edges {
            first[edge.from + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        Searchable { edges: self.edges, first, nodes }
    }
}

/// A graph that can be searched: edges by their first node.
pub(crate) struct Searchable {
    edges: Vec<Edge>,
    /// Where the edges of a node begin; one more at the end.
    first: Vec<usize>,
    nodes: usize,
}

/// The component of each node that has one with others.
pub(crate) type Components = Vec<Option<u32>>;

impl Searchable {
    pub(crate) fn edge(&self, edge: usize) -> &Edge {
        &self.edges[edge]
    }

    /// The edges of some kinds that leave a node.
    pub(crate) fn leaving(&self, node: usize, kinds: Kinds) -> impl Iterator<Item = (usize, &Edge)> {
        let range = self.first[node]..self.first[node + 1];
        range.map(|edge| (edge, &self.edges[edge])).filter(move |(_, edge)| kinds.has(edge.kind))
    }

    /// The strongly connected components of more than one node, and for each node which is its own.
    /// Tarjan's algorithm, with a stack of its own: histories are long.
    pub(crate) fn components(&self, kinds: Kinds) -> (Vec<Vec<usize>>, Components) {
        let mut search = Tarjan::new(self.nodes);
        for root in 0..self.nodes {
            if search.index[root] == UNSEEN {
                search.visit(self, root, kinds);
            }
        }
        let mut of = vec![None; self.nodes];
        for (number, nodes) in (0u32..).zip(&search.found) {
            for node in nodes {
                of[*node] = Some(number);
            }
        }
        (search.found, of)
    }

    /// A shortest path between two different nodes of one component. `budget` falls by the edges looked at.
    pub(crate) fn path(
        &self,
        from: usize,
        to: usize,
        kinds: Kinds,
        within: &Components,
        scratch: &mut Scratch,
        budget: &mut usize,
    ) -> Option<Vec<usize>> {
        scratch.restart(self.nodes);
        scratch.reach(from, usize::MAX);
        while let Some(node) = scratch.queue.pop_front() {
            for (number, edge) in self.leaving(node, kinds) {
                *budget = budget.saturating_sub(1);
                if within[edge.to] != within[from] || !scratch.reach(edge.to, number) {
                    continue;
                }
                if edge.to == to {
                    return Some(self.way_back(from, to, scratch));
                }
            }
        }
        None
    }

    fn way_back(&self, from: usize, to: usize, scratch: &Scratch) -> Vec<usize> {
        let (mut path, mut node) = (Vec::new(), to);
        while node != from {
            let edge = scratch.by[node];
            path.push(edge);
            node = self.edges[edge].from;
        }
        path.reverse();
        path
    }
}

/// What a breadth-first search remembers, kept for the next.
#[derive(Default)]
pub(crate) struct Scratch {
    round: u32,
    reached: Vec<u32>,
    by: Vec<usize>,
    queue: VecDeque<usize>,
}

impl Scratch {
    fn restart(&mut self, nodes: usize) {
        if self.reached.len() != nodes || self.round == u32::MAX {
            (self.reached, self.by, self.round) = (vec![0; nodes], vec![0; nodes], 0);
        }
        self.round += 1;
        self.queue.clear();
    }

    /// Notes by which edge a node was reached. False if it had been before.
    fn reach(&mut self, node: usize, by: usize) -> bool {
        if self.reached[node] == self.round {
            return false;
        }
        self.reached[node] = self.round;
        self.by[node] = by;
        self.queue.push_back(node);
        true
    }
}

const UNSEEN: usize = usize::MAX;

struct Tarjan {
    index: Vec<usize>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Tarjan {
    fn new(nodes: usize) -> Self {
        Tarjan {
            index: vec![UNSEEN; nodes],
            low: vec![0; nodes],
            on_stack: vec![false; nodes],
            stack: Vec::new(),
            next: 0,
            found: Vec::new(),
        }
    }

    fn enter(&mut self, node: usize) {
        (self.index[node], self.low[node]) = (self.next, self.next);
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
    }

    fn visit(&mut self, graph: &Searchable, root: usize, kinds: Kinds) {
        // A node, and the next of its edges to be followed.
        let mut path = vec![(root, graph.first[root])];
        self.enter(root);
        while let Some((node, edge)) = path.last_mut() {
            let node = *node;
            if *edge == graph.first[node + 1] {
                path.pop();
                self.leave(node);
                if let Some((parent, _)) = path.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[node]);
                }
                continue;
            }
            let followed = &graph.edges[*edge];
            *edge += 1;
            if !kinds.has(followed.kind) {
                continue;
            }
            if self.index[followed.to] == UNSEEN {
                self.enter(followed.to);
                path.push((followed.to, graph.first[followed.to]));
            } else if self.on_stack[followed.to] {
                self.low[node] = self.low[node].min(self.index[followed.to]);
            }
        }
    }

    /// All edges of a node were followed: if it is the first of a component, that is complete.
    fn leave(&mut self, node: usize) {
        if self.low[node] != self.index[node] {
            return;
        }
        let mut component = Vec::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack[member] = false;
            component.push(member);
            if member == node {
                break;
            }
        }
        if component.len() > 1 {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}
