//! [`Folder`]: an aggregation that is run.

use super::aggregation::{Aggregation, Fold, MAX_COMPUTATIONS, MAX_GROUPS, MAX_PARTIALS, Operation};
use super::batch::Builder;
use super::condition::Tests;
use super::reader::{BadProgram, RowValues, Unfit, Value};
use super::{ColumnData, Kind, Wanted};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem::size_of;

/// Estimated bytes of a group beside its key and states.
const GROUP_OVERHEAD: usize = 64;

/// Groups and what is known of them so far.
#[derive(Debug)]
pub(super) struct Folder {
    steps: Vec<Step>,
    /// Which columns make the key, and their values, a row for each group.
    keys: Vec<(usize, Builder)>,
    calls: Vec<Call>,
    /// By the key's bytes: which group, from zero.
    groups: HashMap<Box<[u8]>, usize>,
    /// Of all groups one after the other.
    states: Vec<State>,
    /// The key of the row before, and its group.
    last: Option<(Vec<u8>, usize)>,
    key: Vec<u8>,
    /// Bytes of keys, and of bytes among the states.
    heap: usize,
}

/// A computation that is known to make sense.
#[derive(Debug)]
struct Step {
    what: What,
    kind: Kind,
}

#[derive(Debug)]
enum What {
    Constant(i64),
    Pair(Operation, usize, usize),
}

#[derive(Debug)]
struct Call {
    fold: Fold,
    value: usize,
    kind: Kind,
    tests: Option<Tests>,
}

/// What is known of a group.
#[derive(Debug)]
enum State {
    Count(i64),
    Sum(Option<i128>),
    Extreme(Option<Extreme>),
}

/// A smallest or largest value.
#[derive(Debug)]
enum Extreme {
    Integer(i64),
    Wide(i128),
    Bytes(Vec<u8>),
}

impl Extreme {
    fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Integer(value) => Some(Extreme::Integer(*value)),
            Value::Wide(value) => Some(Extreme::Wide(*value)),
            Value::Bytes(bytes) => Some(Extreme::Bytes(bytes.to_vec())),
        }
    }

    /// How a value of the same kind compares with it.
    #[inline]
    fn compared(&self, value: &Value<'_>) -> Option<Ordering> {
        match (value, self) {
            (Value::Integer(value), Extreme::Integer(found)) => Some(value.cmp(found)),
            (Value::Wide(value), Extreme::Wide(found)) => Some(value.cmp(found)),
            (Value::Bytes(value), Extreme::Bytes(found)) => Some((*value).cmp(&found[..])),
            _ => None,
        }
    }

    fn heap(&self) -> usize {
        if let Extreme::Bytes(bytes) = self { bytes.len() } else { 0 }
    }
}

impl Folder {
    /// Gets an aggregation over these columns ready.
    pub fn new(aggregation: &Aggregation, columns: &[Wanted]) -> Result<Self, BadProgram> {
        let results = aggregation.partials.len().max(aggregation.groups.len());
        if aggregation.computations.len() > MAX_COMPUTATIONS || results > MAX_PARTIALS {
            return Err(BadProgram("too large an aggregation"));
        }
        let mut kinds: Vec<Kind> = columns.iter().map(Wanted::kind).collect();
        let mut steps = Vec::with_capacity(aggregation.computations.len());
        for computation in &aggregation.computations {
            let kind = Kind::try_from(computation.kind).map_err(|_| BadProgram("an unknown kind"))?;
            if !matches!(kind, Kind::Int16 | Kind::Int32 | Kind::Int64 | Kind::WideDecimal) {
                return Err(BadProgram("a computation of something else than a number"));
            }
            let operation =
                Operation::try_from(computation.operation).map_err(|_| BadProgram("an unknown operation"))?;
            let operand = |number: u32| match kinds.get(number as usize) {
                Some(kind) if is_number(*kind) => Ok(number as usize),
                _ => Err(BadProgram("an operand that is no number")),
            };
            let what = match operation {
                Operation::Constant => What::Constant(computation.constant),
                operation => What::Pair(operation, operand(computation.left)?, operand(computation.right)?),
            };
            steps.push(Step { what, kind });
            kinds.push(kind);
        }
        let key = |number: &u32| match columns.get(*number as usize) {
            Some(column) => Ok((*number as usize, Builder::new(column.kind()))),
            None => Err(BadProgram("groups by a column that is not wanted")),
        };
        let keys = aggregation.groups.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let call = |partial: &super::Partial| {
            let fold = Fold::try_from(partial.fold).map_err(|_| BadProgram("an unknown fold"))?;
            let value = partial.value as usize;
            let kind = match (fold, kinds.get(value)) {
                (Fold::CountRows, _) => Kind::Int64,
                (Fold::Sum, Some(kind)) if !is_number(*kind) => {
                    return Err(BadProgram("a sum of no numbers"));
                }
                (_, Some(kind)) => *kind,
                (_, None) => return Err(BadProgram("a fold of a value that does not exist")),
            };
            let unconditional = partial.conditions.is_empty() && partial.choices.is_empty();
            let tests = match unconditional {
                true => None,
                false => Some(Tests::new(&partial.conditions, &partial.choices, columns)?),
            };
            Ok(Call { fold, value, kind, tests })
        };
        let calls = aggregation.partials.iter().map(call).collect::<Result<Vec<_>, _>>()?;
        Ok(Folder {
            steps,
            keys,
            calls,
            groups: HashMap::new(),
            states: Vec::new(),
            last: None,
            key: Vec::new(),
            heap: 0,
        })
    }

    /// Takes a row. After an error nothing that it holds is of use.
    #[inline]
    pub fn take(&mut self, row: &mut RowValues<'_>) -> Result<(), Unfit> {
        for step in &self.steps {
            let value = step.value(row)?;
            row.push(value);
        }
        let group = self.group(row);
        let first = group * self.calls.len();
        let states = self.states.get_mut(first..first + self.calls.len()).ok_or(Unfit)?;
        for (call, state) in self.calls.iter().zip(states) {
            if call.tests.as_ref().is_none_or(|tests| tests.hold(row)) {
                self.heap += match call.fold {
                    Fold::CountRows => state.fold(call.fold, &Value::Integer(1))?,
                    fold => state.fold(fold, row.get(call.value).ok_or(Unfit)?)?,
                };
            }
        }
        Ok(())
    }

    /// The group of a row.
    #[inline]
    fn group(&mut self, row: &RowValues<'_>) -> usize {
        self.key.clear();
        for (column, _) in &self.keys {
            append(row.get(*column).unwrap_or(&Value::Null), &mut self.key);
        }
        if let Some((key, group)) = &self.last
            && *key == self.key
        {
            return *group;
        }
        let group = match self.groups.get(&self.key[..]) {
            Some(group) => *group,
            None => self.new_group(row),
        };
        let last = self.last.get_or_insert_default();
        last.0.clone_from(&self.key);
        last.1 = group;
        group
    }

    fn new_group(&mut self, row: &RowValues<'_>) -> usize {
        let group = self.groups.len();
        self.groups.insert(self.key.clone().into_boxed_slice(), group);
        self.heap += self.key.len() + GROUP_OVERHEAD;
        for (column, builder) in &mut self.keys {
            builder.push(row.get(*column).unwrap_or(&Value::Null));
        }
        self.states.extend(self.calls.iter().map(|call| State::new(call.fold)));
        group
    }

    /// How many groups there are.
    pub fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    /// Whether no further group should come.
    pub fn is_full(&self) -> bool {
        self.groups.len() >= MAX_GROUPS
    }

    /// Bytes held, about.
    pub fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|(_, builder)| builder.bytes()).sum();
        keys + self.heap + self.states.len() * size_of::<State>()
    }

    /// The groups.
    pub fn finish(self) -> Vec<ColumnData> {
        let mut columns: Vec<Builder> = self.calls.iter().map(|call| Builder::new(call.result())).collect();
        if !columns.is_empty() {
            for states in self.states.chunks(columns.len()) {
                for (builder, state) in columns.iter_mut().zip(states) {
                    builder.push(&state.value());
                }
            }
        }
        self.keys.into_iter().map(|(_, builder)| builder).chain(columns).map(Builder::finish).collect()
    }
}

fn is_number(kind: Kind) -> bool {
    !matches!(kind, Kind::Bool | Kind::Bytes | Kind::Trimmed)
}

/// A value as part of a key: its kind, and what it is.
fn append(value: &Value<'_>, key: &mut Vec<u8>) {
    match value {
        Value::Null => key.push(0),
        Value::Integer(value) => {
            key.push(1);
            key.extend_from_slice(&value.to_le_bytes());
        }
        Value::Wide(value) => {
            key.push(2);
            key.extend_from_slice(&value.to_le_bytes());
        }
        Value::Bytes(bytes) => {
            key.push(3);
            key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            key.extend_from_slice(bytes);
        }
    }
}

/// A number; none if it is NULL.
#[inline]
fn number(value: Option<&Value<'_>>) -> Result<Option<i128>, Unfit> {
    match value {
        Some(Value::Null) => Ok(None),
        Some(Value::Integer(value)) => Ok(Some(i128::from(*value))),
        Some(Value::Wide(value)) => Ok(Some(*value)),
        _ => Err(Unfit),
    }
}

impl Step {
    #[inline]
    fn value<'a>(&self, row: &[Value<'a>]) -> Result<Value<'a>, Unfit> {
        let result = match self.what {
            What::Constant(constant) => i128::from(constant),
            What::Pair(operation, left, right) => {
                let (Some(left), Some(right)) = (number(row.get(left))?, number(row.get(right))?) else {
                    return Ok(Value::Null);
                };
                match operation {
                    Operation::Add => left.checked_add(right),
                    Operation::Subtract => left.checked_sub(right),
                    Operation::Multiply => product(left, right),
                    Operation::Constant => None,
                }
                .ok_or(Unfit)?
            }
        };
        match self.kind {
            Kind::Int16 => i16::try_from(result).map(|value| Value::Integer(i64::from(value))),
            Kind::Int32 => i32::try_from(result).map(|value| Value::Integer(i64::from(value))),
            Kind::Int64 => i64::try_from(result).map(Value::Integer),
            _ => return Ok(Value::Wide(result)),
        }
        .map_err(|_| Unfit)
    }
}

/// A product. Those of numbers of eight bytes always fit.
#[inline]
fn product(left: i128, right: i128) -> Option<i128> {
    match (i64::try_from(left), i64::try_from(right)) {
        (Ok(left), Ok(right)) => Some(i128::from(left) * i128::from(right)),
        _ => left.checked_mul(right),
    }
}

impl Call {
    /// What its results are.
    fn result(&self) -> Kind {
        match self.fold {
            Fold::CountRows | Fold::Count => Kind::Int64,
            Fold::Sum => Kind::WideDecimal,
            Fold::Least | Fold::Greatest => self.kind,
        }
    }
}

impl State {
    fn new(fold: Fold) -> Self {
        match fold {
            Fold::CountRows | Fold::Count => State::Count(0),
            Fold::Sum => State::Sum(None),
            Fold::Least | Fold::Greatest => State::Extreme(None),
        }
    }

    /// Takes a value; returns the bytes it now holds more.
    #[inline]
    fn fold(&mut self, fold: Fold, value: &Value<'_>) -> Result<usize, Unfit> {
        if matches!(value, Value::Null) {
            return Ok(0);
        }
        match self {
            State::Count(count) => *count += 1,
            State::Sum(sum) => {
                let value = number(Some(value))?.unwrap_or_default();
                *sum = Some(sum.unwrap_or_default().checked_add(value).ok_or(Unfit)?);
            }
            State::Extreme(extreme) => {
                let wanted = if fold == Fold::Least { Ordering::Less } else { Ordering::Greater };
                if extreme.as_ref().is_none_or(|found| found.compared(value) == Some(wanted)) {
                    let before = extreme.as_ref().map_or(0, Extreme::heap);
                    *extreme = Extreme::of(value);
                    return Ok(extreme.as_ref().map_or(0, Extreme::heap).saturating_sub(before));
                }
            }
        }
        Ok(0)
    }

    fn value(&self) -> Value<'_> {
        match self {
            State::Count(count) => Value::Integer(*count),
            State::Sum(sum) => sum.map_or(Value::Null, Value::Wide),
            State::Extreme(None) => Value::Null,
            State::Extreme(Some(Extreme::Integer(value))) => Value::Integer(*value),
            State::Extreme(Some(Extreme::Wide(value))) => Value::Wide(*value),
            State::Extreme(Some(Extreme::Bytes(bytes))) => Value::Bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests;
