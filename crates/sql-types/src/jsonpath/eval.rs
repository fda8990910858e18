//! Evaluation: items go through the steps one by one, and those that come out are collected until there are enough.

use super::compare::Truth;
use super::item::{Eval, Fail, Item, elements, member, members, soft, softly};
use super::methods;
use super::{Arithmetic, Head, MAX_STEPS, Node, Path, Step};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::json;
use serde_json::Value;

/// A call of one of the `jsonb_path_…` functions.
pub struct Call<'v> {
    /// The expression.
    pub path: &'v Path,
    /// What `$` is.
    pub target: &'v Value,
    /// The values of `$name`: an object.
    pub vars: &'v Value,
    /// Whether errors make the result NULL or empty.
    pub silent: bool,
}

/// Whether more items are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    More,
    Enough,
}

/// Where items go.
pub(super) struct Sink<'v> {
    pub(super) items: Vec<Item<'v>>,
    /// One is enough.
    pub(super) first: bool,
}

impl<'v> Sink<'v> {
    fn push(&mut self, item: Item<'v>) -> Flow {
        self.items.push(item);
        if self.first { Flow::Enough } else { Flow::More }
    }
}

/// What expressions see.
pub(super) struct Machine<'v> {
    root: &'v Value,
    vars: &'v Value,
    pub(super) lax: bool,
    /// What is missing is skipped. So it is in lax mode, and below `.**`.
    skips: bool,
    /// The items of the filters around.
    current: Vec<Item<'v>>,
    /// The sizes of the arrays subscripted.
    sizes: Vec<usize>,
    /// Objects that `keyvalue()` has met.
    objects: u64,
    /// Steps taken.
    taken: u64,
}

fn run<'v>(call: &Call<'v>, first: bool) -> Eval<Vec<Item<'v>>> {
    if !call.vars.is_object() {
        let error = SqlError::new(SqlState::INVALID_PARAMETER, "\"vars\" argument is not an object");
        return Err(Fail::Hard(
            error.with_detail("Jsonpath parameters should be encoded as key-value pairs of \"vars\" object."),
        ));
    }
    let mut machine = Machine {
        root: call.target,
        vars: call.vars,
        lax: call.path.lax,
        skips: call.path.lax,
        current: Vec::new(),
        sizes: Vec::new(),
        objects: 0,
        taken: 0,
    };
    // In strict mode an error anywhere is one of the whole.
    let mut sink = Sink { items: Vec::new(), first: first && call.path.lax };
    machine.node(&call.path.root, Item::Ref(call.target), &mut sink)?;
    Ok(sink.items)
}

/// Hides an error if that is asked for.
fn told<T>(call: &Call<'_>, result: Eval<T>) -> SqlResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Fail::Soft(_)) if call.silent => Ok(None),
        Err(fail) => Err(fail.into_error()),
    }
}

/// All items.
///
/// # Errors
/// Those of SQL/JSON (2203x), of arithmetic, and 42704 for a variable that is not given.
pub fn query(call: &Call<'_>) -> SqlResult<Vec<Value>> {
    let items = told(call, run(call, false))?.unwrap_or_default();
    Ok(items.into_iter().map(Item::into_value).collect())
}

/// The first item.
///
/// # Errors
/// As for [`query`].
pub fn first(call: &Call<'_>) -> SqlResult<Option<Value>> {
    Ok(query(call)?.into_iter().next())
}

/// Whether there is an item; `None` after an error that is hidden.
///
/// # Errors
/// As for [`query`].
pub fn exists(call: &Call<'_>) -> SqlResult<Option<bool>> {
    Ok(told(call, run(call, true))?.map(|items| !items.is_empty()))
}

/// The only item, a boolean; `None` for null, or after an error that is hidden.
///
/// # Errors
/// As for [`query`]; 22038 if it is anything else.
pub fn matches(call: &Call<'_>) -> SqlResult<Option<bool>> {
    let Some(items) = told(call, run(call, false))? else { return Ok(None) };
    match &items[..] {
        [only] if matches!(only.json(), Some(Value::Bool(true))) => Ok(Some(true)),
        [only] if matches!(only.json(), Some(Value::Bool(false))) => Ok(Some(false)),
        [only] if matches!(only.json(), Some(Value::Null)) => Ok(None),
        _ if call.silent => Ok(None),
        _ => Err(SqlError::new(SqlState("22038"), "single boolean result is expected")),
    }
}

impl<'v> Machine<'v> {
    /// Counts a step, or a comparison.
    pub(super) fn count(&mut self) -> Eval<()> {
        self.taken += 1;
        if self.taken <= MAX_STEPS {
            return Ok(());
        }
        let message = "jsonpath expression takes too many steps";
        Err(Fail::Hard(SqlError::new(SqlState::PROGRAM_LIMIT, message)))
    }

    /// The items that an expression gives for a current item.
    pub(super) fn node(&mut self, node: &Node, current: Item<'v>, sink: &mut Sink<'v>) -> Eval<Flow> {
        let start = match &node.head {
            Head::Root => Item::Ref(self.root),
            Head::Current => self.current.last().cloned().unwrap_or(current),
            Head::Last => {
                let last = self.sizes.last().map_or(-1, |size| *size as i64 - 1);
                Item::Own(Value::from(last))
            }
            Head::Null => Item::Own(Value::Null),
            Head::Bool(value) => Item::Own(Value::Bool(*value)),
            Head::Number(number) => Item::Own(json::numeric_value(number).map_err(Fail::Hard)?),
            Head::String(text) => Item::Own(Value::String(text.clone())),
            Head::Variable(name) => match self.vars.get(name) {
                Some(value) => Item::Ref(value),
                None => {
                    let message = format!("could not find jsonpath variable \"{name}\"");
                    return Err(Fail::Hard(SqlError::new(SqlState::UNDEFINED_OBJECT, message)));
                }
            },
            Head::Arithmetic(operator, left, right) => self.arithmetic(*operator, left, right, &current)?,
            Head::Sign(negative, operand) => {
                for item in self.operand(operand, &current)? {
                    let Some(number) = item.number() else {
                        let symbol = if *negative { "-" } else { "+" };
                        let message =
                            format!("operand of unary jsonpath operator {symbol} is not a numeric value");
                        return Err(soft("2203B", message));
                    };
                    let number = if *negative { number.neg() } else { number };
                    let value = Item::Own(json::numeric_value(&number).map_err(Fail::Hard)?);
                    if self.steps(&node.steps, value, self.lax, sink)? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                return Ok(Flow::More);
            }
            Head::Predicate(predicate) => Item::Own(match self.predicate(predicate, &current)? {
                Truth::True => Value::Bool(true),
                Truth::False => Value::Bool(false),
                Truth::Unknown => Value::Null,
            }),
        };
        self.steps(&node.steps, start, self.lax, sink)
    }

    fn collect(&mut self, node: &Node, current: &Item<'v>) -> Eval<Vec<Item<'v>>> {
        let mut sink = Sink { items: Vec::new(), first: false };
        self.node(node, current.clone(), &mut sink)?;
        Ok(sink.items)
    }

    /// The items of an operand; in lax mode arrays among them stand for their elements.
    pub(super) fn operand(&mut self, node: &Node, current: &Item<'v>) -> Eval<Vec<Item<'v>>> {
        let items = self.collect(node, current)?;
        if !self.lax || !items.iter().any(|item| item.json().is_some_and(Value::is_array)) {
            return Ok(items);
        }
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match elements(&item) {
                Some(elements) => flat.extend(elements),
                None => flat.push(item),
            }
        }
        Ok(flat)
    }

    fn arithmetic(
        &mut self,
        operator: Arithmetic,
        left: &Node,
        right: &Node,
        current: &Item<'v>,
    ) -> Eval<Item<'v>> {
        let single = |items: Vec<Item<'v>>, side: &str| {
            let number = match &items[..] {
                [only] => only.number(),
                _ => None,
            };
            number.ok_or_else(|| {
                let symbol = operator.symbol();
                let message =
                    format!("{side} operand of jsonpath operator {symbol} is not a single numeric value");
                soft("22038", message)
            })
        };
        // Both are computed before either is looked at.
        let left = self.operand(left, current)?;
        let right = self.operand(right, current)?;
        let (left, right) = (single(left, "left")?, single(right, "right")?);
        let result = match operator {
            Arithmetic::Add => left.add(&right),
            Arithmetic::Sub => left.sub(&right),
            Arithmetic::Mul => left.mul(&right),
            Arithmetic::Div => left.div(&right),
            Arithmetic::Mod => left.rem(&right),
        };
        let value = json::numeric_value(&result.map_err(softly)?).map_err(Fail::Hard)?;
        Ok(Item::Own(value))
    }

    /// Lets an item go through steps. `unwrap`: an array stands for its elements where the first wants no array.
    fn steps(&mut self, steps: &[Step], item: Item<'v>, unwrap: bool, sink: &mut Sink<'v>) -> Eval<Flow> {
        self.count()?;
        let Some((step, rest)) = steps.split_first() else { return Ok(sink.push(item)) };
        let is_array = item.json().is_some_and(Value::is_array);
        match step {
            Step::Key(key) => match &item {
                item if item.json().is_some_and(Value::is_object) => match member(item, key) {
                    Some(value) => self.steps(rest, value, self.lax, sink),
                    None if self.skips => Ok(Flow::More),
                    None => {
                        let message = format!("JSON object does not contain key \"{key}\"");
                        Err(soft("2203A", message))
                    }
                },
                _ if is_array && unwrap => self.each_element(steps, &item, sink),
                _ if self.skips => Ok(Flow::More),
                _ => Err(soft("2203A", "jsonpath member accessor can only be applied to an object")),
            },
            Step::AnyKey => match members(&item) {
                Some(values) => self.all(rest, values, sink),
                None if is_array && unwrap => self.each_element(steps, &item, sink),
                None if self.skips => Ok(Flow::More),
                None => {
                    Err(soft("2203C", "jsonpath wildcard member accessor can only be applied to an object"))
                }
            },
            Step::AnyElement => match elements(&item) {
                Some(values) => self.all(rest, values, sink),
                None if self.lax => self.steps(rest, item, self.lax, sink),
                None if self.skips => Ok(Flow::More),
                None => {
                    Err(soft("22039", "jsonpath wildcard array accessor can only be applied to an array"))
                }
            },
            Step::Elements(subscripts) => {
                if !is_array && !self.lax {
                    if self.skips {
                        return Ok(Flow::More);
                    }
                    return Err(soft("22039", "jsonpath array accessor can only be applied to an array"));
                }
                self.subscripts(subscripts, rest, &item, sink)
            }
            Step::Any(first, last) => self.descend_from(*first, *last, rest, item, sink),
            Step::Filter(predicate) => {
                if is_array && unwrap {
                    return self.each_element(steps, &item, sink);
                }
                self.current.push(item.clone());
                let truth = self.predicate(predicate, &item);
                self.current.pop();
                match truth? {
                    Truth::True => self.steps(rest, item, self.lax, sink),
                    _ => Ok(Flow::More),
                }
            }
            Step::Method(method) => {
                if is_array && unwrap && methods::unwraps(*method) {
                    return self.each_element(steps, &item, sink);
                }
                let values = methods::apply(*method, item, self.lax, self.skips, &mut self.objects)?;
                self.all(rest, values, sink)
            }
        }
    }

    fn all(&mut self, steps: &[Step], items: Vec<Item<'v>>, sink: &mut Sink<'v>) -> Eval<Flow> {
        for item in items {
            if self.steps(steps, item, self.lax, sink)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// Lets the elements of an array go through steps in its place.
    fn each_element(&mut self, steps: &[Step], array: &Item<'v>, sink: &mut Sink<'v>) -> Eval<Flow> {
        for item in elements(array).unwrap_or_default() {
            if self.steps(steps, item, false, sink)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    fn subscripts(
        &mut self,
        subscripts: &[(Node, Option<Node>)],
        rest: &[Step],
        item: &Item<'v>,
        sink: &mut Sink<'v>,
    ) -> Eval<Flow> {
        let values = elements(item).unwrap_or_else(|| vec![item.clone()]);
        for (from, to) in subscripts {
            self.sizes.push(values.len());
            let range = self.range(from, to.as_ref(), item);
            self.sizes.pop();
            let (from, to) = range?;
            let size = values.len() as i64;
            if !self.skips && (from < 0 || from > to || to >= size) {
                return Err(soft("22033", "jsonpath array subscript is out of bounds"));
            }
            for index in from.max(0)..=to.min(size - 1) {
                let Some(value) = usize::try_from(index).ok().and_then(|index| values.get(index)) else {
                    continue;
                };
                if self.steps(rest, value.clone(), self.lax, sink)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
        }
        Ok(Flow::More)
    }

    fn range(&mut self, from: &Node, to: Option<&Node>, item: &Item<'v>) -> Eval<(i64, i64)> {
        let from = self.index(from, item)?;
        let to = match to {
            Some(to) => self.index(to, item)?,
            None => from,
        };
        Ok((from, to))
    }

    fn index(&mut self, node: &Node, item: &Item<'v>) -> Eval<i64> {
        let items = self.collect(node, item)?;
        let number = match &items[..] {
            [only] => only.number(),
            _ => None,
        };
        let Some(number) = number else {
            return Err(soft("22033", "jsonpath array subscript is not a single numeric value"));
        };
        let whole = number.trunc(0).ok().and_then(|whole| whole.to_i64());
        whole
            .filter(|index| i32::try_from(*index).is_ok())
            .ok_or_else(|| soft("22033", "jsonpath array subscript is out of integer range"))
    }

    /// `.**`
    fn descend_from(
        &mut self,
        first: Option<u32>,
        last: Option<u32>,
        rest: &[Step],
        item: Item<'v>,
        sink: &mut Sink<'v>,
    ) -> Eval<Flow> {
        let skips = std::mem::replace(&mut self.skips, true);
        let mut flow = Ok(Flow::More);
        if first == Some(0) {
            flow = self.steps(rest, item.clone(), self.lax, sink);
        }
        if matches!(flow, Ok(Flow::More)) {
            flow = self.descend((first, last), 1, rest, &item, sink);
        }
        self.skips = skips;
        flow
    }

    /// The items at a level and below. Level `None` stands for values that contain no others.
    fn descend(
        &mut self,
        range: (Option<u32>, Option<u32>),
        level: u32,
        rest: &[Step],
        item: &Item<'v>,
        sink: &mut Sink<'v>,
    ) -> Eval<Flow> {
        let (first, last) = range;
        if last.is_some_and(|last| level > last) {
            return Ok(Flow::More);
        }
        let inner = elements(item).or_else(|| members(item)).unwrap_or_default();
        for value in inner {
            let container = value.json().is_some_and(|value| value.is_array() || value.is_object());
            let wanted = match first {
                Some(first) => level >= first,
                None => last.is_none() && !container,
            };
            if wanted && self.steps(rest, value.clone(), self.lax, sink)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
            if container && self.descend(range, level + 1, rest, &value, sink)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }
}
