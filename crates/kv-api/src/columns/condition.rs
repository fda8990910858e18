//! Conditions, compiled.

use super::chunk::Column;
use super::like::Pattern;
use super::reader::{BadProgram, Value};
use super::sought::Sought;
use super::{Choice, Comparison, Condition, Constant, Kind, Wanted};
use std::cmp::Ordering;

/// All that a row must satisfy.
#[derive(Debug)]
pub(super) struct Tests {
    all: Vec<Test>,
    /// Of each, one alternative, all of it.
    any: Vec<Vec<Vec<Test>>>,
}

impl Tests {
    pub fn new(conditions: &[Condition], choices: &[Choice], columns: &[Wanted]) -> Result<Self, BadProgram> {
        let tests = |conditions: &[Condition]| -> Result<Vec<Test>, BadProgram> {
            conditions.iter().map(|condition| Test::new(condition, columns)).collect()
        };
        let branches = |choice: &Choice| choice.branches.iter().map(|one| tests(&one.conditions)).collect();
        let any = choices.iter().map(branches).collect::<Result<_, _>>()?;
        Ok(Tests { all: tests(conditions)?, any })
    }

    /// Whether a row satisfies them.
    pub fn hold(&self, row: &[Value<'_>]) -> bool {
        let all = |tests: &[Test]| tests.iter().all(|test| test.holds(row));
        all(&self.all) && self.any.iter().all(|branches| branches.iter().any(|branch| all(branch)))
    }

    /// Keeps those of the selected rows of a chunk that satisfy them.
    pub fn retain(&self, columns: &[Column<'_>], selected: &mut Vec<u32>) {
        self.all.iter().for_each(|test| test.retain(columns, selected));
        for branches in &self.any {
            selected.retain(|row| {
                let value = |column: usize| columns.get(column).map(|column| column.value(*row as usize));
                branches.iter().any(|branch| branch.iter().all(|test| test.holds_for(&value)))
            });
        }
    }
}

/// A condition that is known to fit the columns it compares.
#[derive(Debug)]
pub(super) struct Test {
    column: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Compare(Comparison, Owned),
    Columns(Comparison, usize),
    /// Whether it is among these, which are sorted.
    In(Vec<Owned>, bool),
    Like(Pattern, bool),
    Sought(Sought),
}

/// A constant of a kind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owned {
    Integer(i64),
    Bytes(Vec<u8>),
}

impl Test {
    pub fn new(condition: &Condition, columns: &[Wanted]) -> Result<Self, BadProgram> {
        let column = condition.column as usize;
        let wanted = columns.get(column).ok_or(BadProgram("a condition on a column that is not wanted"))?;
        let comparison =
            Comparison::try_from(condition.comparison).map_err(|_| BadProgram("an unknown comparison"))?;
        let constants = || condition.constants.iter().map(|constant| owned(constant, wanted));
        let one = || match &condition.constants[..] {
            [constant] => owned(constant, wanted),
            _ => Err(BadProgram("a comparison with several constants, or none")),
        };
        let what = match (comparison, condition.other) {
            (Comparison::In | Comparison::NotIn, None) => {
                let mut list = constants().collect::<Result<Vec<_>, _>>()?;
                list.sort_unstable();
                What::In(list, comparison == Comparison::In)
            }
            (Comparison::Like | Comparison::NotLike, None) => match one()? {
                Owned::Bytes(text) => {
                    let pattern =
                        Pattern::parse(&text).ok_or(BadProgram("a pattern that ends with its escape"))?;
                    What::Like(pattern, comparison == Comparison::Like)
                }
                Owned::Integer(_) => return Err(BadProgram("a pattern for a number")),
            },
            (Comparison::Sought, None) => match (wanted.kind(), &condition.constants[..]) {
                (Kind::Bool | Kind::Int16 | Kind::Int32 | Kind::Int64, [filter]) => {
                    What::Sought(Sought::of(&filter.bytes).ok_or(BadProgram("a filter that is none"))?)
                }
                _ => return Err(BadProgram("a filter of what is no integer")),
            },
            (
                Comparison::In
                | Comparison::NotIn
                | Comparison::Like
                | Comparison::NotLike
                | Comparison::Sought,
                Some(_),
            ) => {
                return Err(BadProgram("a list, pattern or filter in a column"));
            }
            (comparison, Some(other)) => {
                let other = other as usize;
                match columns.get(other) {
                    Some(found) if (found.kind, found.scale) == (wanted.kind, wanted.scale) => {
                        What::Columns(comparison, other)
                    }
                    _ => return Err(BadProgram("a comparison of unlike columns")),
                }
            }
            (comparison, None) => What::Compare(comparison, one()?),
        };
        Ok(Test { column, what })
    }

    /// Whether a row satisfies it.
    pub fn holds(&self, row: &[Value<'_>]) -> bool {
        self.holds_for(&|column| row.get(column).copied())
    }

    /// Whether a row with these values satisfies it.
    fn holds_for<'a>(&self, value_of: &impl Fn(usize) -> Option<Value<'a>>) -> bool {
        let Some(value) = &value_of(self.column) else { return false };
        match &self.what {
            What::Compare(comparison, constant) => {
                compare_constant(value, constant).is_some_and(|order| holds(*comparison, order))
            }
            What::Columns(comparison, other) => value_of(*other)
                .and_then(|other| compare(value, &other))
                .is_some_and(|order| holds(*comparison, order)),
            What::In(list, wanted) => match value {
                Value::Null => false,
                value => {
                    let found = list.binary_search_by(|constant| {
                        compare_constant(value, constant).unwrap_or(Ordering::Less).reverse()
                    });
                    found.is_ok() == *wanted
                }
            },
            What::Sought(filter) => matches!(value, Value::Integer(value) if filter.may_have(*value)),
            What::Like(pattern, wanted) => {
                matches!(value, Value::Bytes(bytes) if pattern.matches(bytes) == *wanted)
            }
        }
    }
}

impl Test {
    /// Keeps those of the selected rows of a chunk that satisfy it. What is most frequent is compared without a look at each
    /// value's kind.
    fn retain(&self, columns: &[Column<'_>], selected: &mut Vec<u32>) {
        let Some(column) = columns.get(self.column) else { return selected.clear() };
        match &self.what {
            What::Compare(comparison, Owned::Integer(constant)) => {
                let (least, greatest, within) = bounds(*comparison, *constant);
                column.retain_integers(selected, |value| (value >= least && value <= greatest) == within);
            }
            What::Sought(filter) => column.retain_integers(selected, |value| filter.may_have(value)),
            What::Like(pattern, wanted) => {
                column.retain(selected, |row| pattern.matches(column.bytes(row)) == *wanted);
            }
            _ => {
                let value =
                    |row: u32| move |at: usize| columns.get(at).map(|column| column.value(row as usize));
                selected.retain(|row| self.holds_for(&value(*row)));
            }
        }
    }
}

/// The integers that compare so with a constant: those between two, or all others.
fn bounds(comparison: Comparison, constant: i64) -> (i64, i64, bool) {
    match comparison {
        Comparison::Equal => (constant, constant, true),
        Comparison::NotEqual => (constant, constant, false),
        Comparison::Less => (constant, i64::MAX, false),
        Comparison::LessOrEqual => (i64::MIN, constant, true),
        Comparison::Greater => (i64::MIN, constant, false),
        Comparison::GreaterOrEqual => (constant, i64::MAX, true),
        // No comparison with one constant.
        Comparison::In | Comparison::NotIn | Comparison::Like | Comparison::NotLike | Comparison::Sought => {
            (i64::MIN, i64::MAX, false)
        }
    }
}

fn owned(constant: &Constant, wanted: &Wanted) -> Result<Owned, BadProgram> {
    match wanted.kind() {
        Kind::Bytes | Kind::Trimmed => Ok(Owned::Bytes(constant.bytes.to_vec())),
        Kind::WideDecimal => Err(BadProgram("a comparison of wide decimals")),
        _ => Ok(Owned::Integer(constant.integer)),
    }
}

fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
        Comparison::In | Comparison::NotIn | Comparison::Like | Comparison::NotLike | Comparison::Sought => {
            false
        }
    }
}

fn compare_constant(value: &Value<'_>, constant: &Owned) -> Option<Ordering> {
    match (value, constant) {
        (Value::Integer(value), Owned::Integer(constant)) => Some(value.cmp(constant)),
        (Value::Bytes(value), Owned::Bytes(constant)) => Some((*value).cmp(&constant[..])),
        _ => None,
    }
}

fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
        (Value::Wide(left), Value::Wide(right)) => Some(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        _ => None,
    }
}
