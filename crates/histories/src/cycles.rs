//! Cycles of dependencies, and what they are called.
//!
//! In four rounds, each with more kinds of edges: `ww` (G0), and `wr` (G1c), and `rw` (G-single with one of
//! them, otherwise G2-item), and time (strict). Of every strongly connected component one cycle is reported, of
//! the weakest class it has, and of these a shortest. Components in which a weaker round found something are
//! skipped: the rest may follow from that.
//!
//! # Bound
//!
//! A round looks at five million edges in each component, and after that is content with the shortest cycle
//! it found. It always finds one; it may call a G-single G2-item then.

use crate::anomaly::Class;
use crate::graph::{Components, Kind, Kinds, Scratch, Searchable};
use crate::history::Object;
use crate::report::Report;

/// How many edges are looked at in one component in one round.
const BUDGET: usize = 5_000_000;

pub(crate) fn find(graph: &Searchable, report: &mut Report<'_>) {
    let mut search = Search { graph, scratch: Scratch::default(), reported: Vec::new() };
    search.round(Kinds::WRITES, &[(Kind::Ww, Kinds::WRITES, Class::G0)], report);
    search.round(Kinds::FLOW, &[(Kind::Wr, Kinds::FLOW, Class::G1c)], report);
    let single = (Kind::Rw, Kinds::FLOW, Class::GSingle);
    search.round(Kinds::ALL, &[single, (Kind::Rw, Kinds::ALL, Class::G2Item)], report);
    search.round(Kinds::TIMED, &[(Kind::Time, Kinds::TIMED, Class::Strict)], report);
}

/// What to look for: a cycle of an edge of this kind and a path of those.
type Shape = (Kind, Kinds, Class);

struct Search<'g> {
    graph: &'g Searchable,
    scratch: Scratch,
    /// Transactions of components of which a cycle was reported.
    reported: Vec<usize>,
}

impl Search<'_> {
    fn round(&mut self, kinds: Kinds, shapes: &[Shape], report: &mut Report<'_>) {
        let (components, of) = self.graph.components(kinds);
        let mut skip = vec![false; components.len()];
        for component in self.reported.iter().filter_map(|txn| of[*txn]) {
            skip[component as usize] = true;
        }
        for (nodes, skip) in components.iter().zip(skip) {
            if skip {
                continue;
            }
            self.reported.extend(nodes.first());
            if shapes.iter().all(|(_, _, class)| report.is_full(*class)) {
                continue;
            }
            let found = shapes.iter().find_map(|shape| Some((self.shortest(nodes, &of, shape)?, shape.2)));
            if let Some((cycle, class)) = found {
                self.report(&cycle, class, report);
            }
        }
    }

    /// A shortest cycle of a shape, as edges. The first edge is of the shape's kind.
    fn shortest(&mut self, nodes: &[usize], of: &Components, (kind, path, _): &Shape) -> Option<Vec<usize>> {
        let mut budget = BUDGET;
        let mut best: Option<Vec<usize>> = None;
        for node in nodes {
            for (number, edge) in self.graph.leaving(*node, Kinds::TIMED) {
                let is_enough = best.as_ref().is_some_and(|best| best.len() == 2);
                if is_enough || budget == 0 {
                    return best;
                }
                if edge.kind != *kind || of[edge.to] != of[*node] {
                    continue;
                }
                let back = self.graph.path(edge.to, *node, *path, of, &mut self.scratch, &mut budget);
                let Some(back) = back else { continue };
                if best.as_ref().is_none_or(|best| back.len() + 1 < best.len()) {
                    best = Some(std::iter::once(number).chain(back).collect());
                }
            }
        }
        best
    }

    fn report(&self, cycle: &[usize], class: Class, report: &mut Report<'_>) {
        let edges: Vec<_> = cycle.iter().map(|edge| self.graph.edge(*edge)).collect();
        let txns: Vec<usize> = edges.iter().map(|edge| edge.from).collect();
        report.add(class, &txns, |names| {
            let mut text =
                common_name(&edges.iter().map(|edge| (edge.kind, edge.object)).collect::<Vec<_>>())
                    .map_or(String::new(), |name| format!("{name}: "));
            text += &txns.iter().map(|txn| names.of(*txn)).collect::<Vec<_>>().join(" → ");
            text += &format!(" → {}", names.of(txns.first().copied().unwrap_or_default()));
            for edge in &edges {
                text += &format!("\n  {}", edge.explain(names));
            }
            text
        });
    }
}

/// What textbooks call a cycle of two edges, the first of which is `rw` if there is any.
fn common_name(edges: &[(Kind, Option<Object>)]) -> Option<&'static str> {
    match edges {
        [(Kind::Rw, first), (Kind::Ww, second)] if first == second => Some("lost update"),
        [(Kind::Rw, _), (Kind::Wr, _)] => Some("read skew"),
        [(Kind::Rw, _), (Kind::Rw, _)] => Some("write skew"),
        _ => None,
    }
}
