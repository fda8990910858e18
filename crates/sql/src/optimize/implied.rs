//! Equalities of columns that follow from others: of `a = b` and `b = c` follows `a = c`, which may join two inputs that
//! no condition connects as written.

use super::memo::block::{Input, Set, read_by};
use crate::plan::Expr;

/// Most columns of a class of equal ones of which equalities are made.
const MOST_COLUMNS: usize = 12;

/// An equality that follows from others, or one of those.
#[derive(Debug, Clone)]
pub struct Equality {
    /// The class of equal columns it is of.
    pub class: usize,
    /// The columns.
    columns: (usize, usize),
    /// Both inputs that it reads.
    pub reads: Set,
    /// It, if it follows from others.
    pub implied: Option<Expr>,
}

impl Equality {
    /// Whether a condition says it.
    pub fn is(&self, conjunct: &Expr) -> bool {
        columns(conjunct).is_some_and(|two| same(two, self.columns))
    }
}

/// The equalities of columns of two inputs among conditions over the row as written, and those that follow from them.
pub fn equalities(conjuncts: &[Expr], inputs: &[Input<'_>]) -> Vec<Equality> {
    let mut classes: Vec<Vec<(usize, &Expr)>> = Vec::new();
    for conjunct in conjuncts {
        let Some((a, b)) = columns(conjunct) else { continue };
        let of = |column: usize, classes: &[Vec<(usize, &Expr)>]| {
            classes.iter().position(|class| class.iter().any(|(member, _)| *member == column))
        };
        match (of(a, &classes), of(b, &classes)) {
            (None, None) => classes.push(vec![(a, conjunct), (b, conjunct)]),
            (Some(class), None) => classes[class].push((b, conjunct)),
            (None, Some(class)) => classes[class].push((a, conjunct)),
            (Some(one), Some(other)) if one != other => {
                let moved = std::mem::take(&mut classes[other]);
                classes[one].extend(moved);
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (class, members) in classes.iter().enumerate().filter(|(_, members)| members.len() <= MOST_COLUMNS) {
        for (at, (a, like)) in members.iter().enumerate() {
            for (b, _) in &members[at + 1..] {
                let written = conjuncts.iter().any(|one| columns(one).is_some_and(|two| same(two, (*a, *b))));
                let Some(equality) = equal(like, *a, *b) else { continue };
                let reads = read_by(&equality, inputs);
                if reads.count_ones() == 2 {
                    let implied = (!written).then_some(equality);
                    found.push(Equality { class, columns: (*a, *b), reads, implied });
                }
            }
        }
    }
    found
}

fn same(two: (usize, usize), others: (usize, usize)) -> bool {
    two == others || (two.1, two.0) == others
}

/// The columns that a condition says are equal, both of one type.
fn columns(conjunct: &Expr) -> Option<(usize, usize)> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    match &args[..] {
        [Expr::Column(a, of_a), Expr::Column(b, of_b)] if function.name == "=" && of_a == of_b => {
            Some((*a, *b))
        }
        _ => None,
    }
}

/// The same equality of two other columns.
fn equal(like: &Expr, a: usize, b: usize) -> Option<Expr> {
    let Expr::Call { function, args, ty } = like else { return None };
    let of = args.first()?.ty();
    Some(Expr::Call { function, args: vec![Expr::Column(a, of), Expr::Column(b, of)], ty: *ty })
}
