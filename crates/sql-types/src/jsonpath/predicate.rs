//! Predicates: true, false or unknown.

use super::compare::{Truth, compare, like_regex, starts_with};
use super::eval::{Machine, Sink};
use super::item::{Eval, Fail, Item};
use super::{Node, Predicate};
use serde_json::Value;

impl<'v> Machine<'v> {
    pub(super) fn predicate(&mut self, predicate: &Predicate, current: &Item<'v>) -> Eval<Truth> {
        Ok(match predicate {
            Predicate::And(left, right) => match self.predicate(left, current)? {
                Truth::False => Truth::False,
                left => match self.predicate(right, current)? {
                    Truth::True => left,
                    right => right,
                },
            },
            Predicate::Or(left, right) => match self.predicate(left, current)? {
                Truth::True => Truth::True,
                left => match self.predicate(right, current)? {
                    Truth::False => left,
                    right => right,
                },
            },
            Predicate::Not(inner) => match self.predicate(inner, current)? {
                Truth::True => Truth::False,
                Truth::False => Truth::True,
                Truth::Unknown => Truth::Unknown,
            },
            Predicate::IsUnknown(inner) => Truth::of(self.predicate(inner, current)? == Truth::Unknown),
            Predicate::Exists(node) => {
                let mut sink = Sink { items: Vec::new(), first: self.lax };
                match hidden(self.node(node, current.clone(), &mut sink))? {
                    Some(_) => Truth::of(!sink.items.is_empty()),
                    None => Truth::Unknown,
                }
            }
            Predicate::Compare(operator, left, right) => {
                let operator = *operator;
                self.pairs(left, Some(right), current, &|left, right| compare(operator, left, right))?
            }
            Predicate::StartsWith(left, right) => self.pairs(left, Some(right), current, &starts_with)?,
            Predicate::LikeRegex { value, pattern, flags } => {
                self.pairs(value, None, current, &|item, _| like_regex(item, pattern, flags))?
            }
        })
    }

    /// Whether a test holds for one of the pairs of two operands' items.
    fn pairs(
        &mut self,
        left: &Node,
        right: Option<&Node>,
        current: &Item<'v>,
        test: &dyn Fn(&Item<'v>, &Item<'v>) -> Truth,
    ) -> Eval<Truth> {
        let Some(left) = hidden(self.operand(left, current))? else { return Ok(Truth::Unknown) };
        let right = match right {
            None => vec![Item::Own(Value::Null)],
            Some(right) => match hidden(self.operand(right, current))? {
                Some(items) => items,
                None => return Ok(Truth::Unknown),
            },
        };
        let (mut found, mut unknown) = (false, false);
        for left in &left {
            for right in &right {
                self.count()?;
                match test(left, right) {
                    Truth::Unknown if !self.lax => return Ok(Truth::Unknown),
                    Truth::Unknown => unknown = true,
                    Truth::True if self.lax => return Ok(Truth::True),
                    Truth::True => found = true,
                    Truth::False => {}
                }
            }
        }
        Ok(match (found, unknown) {
            (true, _) => Truth::True,
            (false, true) => Truth::Unknown,
            (false, false) => Truth::False,
        })
    }
}

/// `None` for an error that predicates hide.
fn hidden<T>(result: Eval<T>) -> Eval<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Fail::Soft(_)) => Ok(None),
        Err(hard) => Err(hard),
    }
}
