//! Frames: which rows of its partition a window call looks at.

use super::eval::{EvalEnv, eval};
use crate::plan::WindowCall;
use crate::plan::expr::{FrameBound, FrameExclusion, FrameUnits};
use smallvec::{SmallVec, smallvec};
use sql_types::functions::resolve_operator;
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type, cast, compare};
use std::cmp::Ordering;
use std::ops::Range;

/// invalid_preceding_or_following_size
const INVALID_SIZE: SqlState = SqlState("22013");

/// The rows of one partition, in window order, and which of them are peers.
pub(crate) struct Partition {
    len: usize,
    groups: Vec<Range<usize>>,
    group_of: Vec<u32>,
}

impl Partition {
    pub fn new(len: usize, peers: impl Fn(usize, usize) -> bool) -> Self {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut group_of = Vec::with_capacity(len);
        for index in 0..len {
            match groups.last_mut() {
                Some(group) if peers(index - 1, index) => group.end = index + 1,
                _ => groups.push(index..index + 1),
            }
            group_of.push(groups.len() as u32 - 1);
        }
        Partition { len, groups, group_of }
    }

    /// Number of the peer group of a row.
    pub fn group(&self, index: usize) -> usize {
        self.group_of[index] as usize
    }

    /// The peers of a row.
    pub fn peers(&self, index: usize) -> Range<usize> {
        self.groups[self.group(index)].clone()
    }
}

/// The rows of a frame: a few ranges, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameRows(SmallVec<[Range<usize>; 3]>);

impl FrameRows {
    fn new(range: Range<usize>) -> Self {
        if range.is_empty() { FrameRows::default() } else { FrameRows(smallvec![range]) }
    }

    /// Takes rows out.
    fn without(&mut self, excluded: Range<usize>) {
        let ranges = std::mem::take(&mut self.0);
        for range in ranges {
            let before = range.start..range.end.min(excluded.start);
            let after = range.start.max(excluded.end)..range.end;
            if excluded.is_empty() {
                self.0.push(range);
                continue;
            }
            self.0.extend([before, after].into_iter().filter(|part| !part.is_empty()));
        }
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    pub fn nth(&self, mut n: usize) -> Option<usize> {
        for range in &self.0 {
            if n < range.len() {
                return Some(range.start + n);
            }
            n -= range.len();
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().flat_map(Clone::clone)
    }

    /// What this frame has beyond an earlier one that it contains; `None` if it does not contain it.
    pub fn beyond(&self, earlier: &FrameRows) -> Option<FrameRows> {
        match (self.0.as_slice(), earlier.0.as_slice()) {
            (_, []) => Some(self.clone()),
            ([now], [then]) if now.start == then.start && now.end >= then.end => {
                Some(FrameRows::new(then.end..now.end))
            }
            _ => None,
        }
    }
}

/// An offset of a frame end, evaluated.
enum Offset {
    Rows(usize),
    Value(Datum, Type),
}

/// A frame bound, evaluated.
enum Bound {
    Unbounded,
    Current,
    Preceding(Offset),
    Following(Offset),
}

/// The frames of one partition.
pub(crate) struct Frame<'a> {
    units: FrameUnits,
    exclusion: FrameExclusion,
    start: Bound,
    end: Bound,
    range: Option<RangeKeys<'a>>,
}

/// What RANGE with offsets needs: the single ORDER BY key.
struct RangeKeys<'a> {
    ty: Type,
    descending: bool,
    orders: Vec<&'a Row>,
    /// Rows whose key is not NULL.
    present: Range<usize>,
}

impl<'a> Frame<'a> {
    pub fn new(
        call: &WindowCall,
        partition: &Partition,
        orders: Vec<&'a Row>,
        env: &EvalEnv<'_>,
    ) -> SqlResult<Self> {
        let frame = &call.frame;
        let start = bound(&frame.start, frame.units, "starting", env)?;
        let end = bound(&frame.end, frame.units, "ending", env)?;
        let by_value = |bound: &Bound| {
            matches!(bound, Bound::Preceding(Offset::Value(..)) | Bound::Following(Offset::Value(..)))
        };
        let range = (by_value(&start) || by_value(&end)).then(|| {
            let null = |row: &Row| row.first().is_none_or(Datum::is_null);
            let first = orders.iter().position(|row| !null(row)).unwrap_or(partition.len);
            let last = orders.iter().rposition(|row| !null(row)).map_or(first, |last| last + 1);
            let key = call.order.first();
            RangeKeys {
                ty: key.map_or(Type::INT8, |key| key.expr.ty()),
                descending: key.is_some_and(|key| key.descending),
                orders,
                present: first..last,
            }
        });
        Ok(Frame { units: frame.units, exclusion: frame.exclusion, start, end, range })
    }

    /// The frame of a row.
    pub fn rows(&self, index: usize, partition: &Partition, env: &EvalEnv<'_>) -> SqlResult<FrameRows> {
        let start = self.edge(&self.start, index, partition, true, env)?;
        let end = self.edge(&self.end, index, partition, false, env)?;
        let mut rows = FrameRows::new(start..end.max(start));
        match self.exclusion {
            FrameExclusion::None => {}
            FrameExclusion::CurrentRow => rows.without(index..index + 1),
            FrameExclusion::Group => rows.without(partition.peers(index)),
            FrameExclusion::Ties => {
                let peers = partition.peers(index);
                rows.without(peers.start..index);
                rows.without(index + 1..peers.end);
            }
        }
        Ok(rows)
    }

    /// Where the frame starts (the first row in it) or ends (the first row after it).
    fn edge(
        &self,
        bound: &Bound,
        index: usize,
        partition: &Partition,
        is_start: bool,
        env: &EvalEnv<'_>,
    ) -> SqlResult<usize> {
        Ok(match bound {
            Bound::Unbounded if is_start => 0,
            Bound::Unbounded => partition.len,
            Bound::Current if self.units == FrameUnits::Rows => index + usize::from(!is_start),
            Bound::Current => edge_of(partition.peers(index), is_start),
            Bound::Preceding(Offset::Rows(offset)) => self.counted(index, *offset, true, partition, is_start),
            Bound::Following(Offset::Rows(offset)) => {
                self.counted(index, *offset, false, partition, is_start)
            }
            Bound::Preceding(Offset::Value(value, ty)) => {
                self.valued(index, (value, *ty), true, partition, is_start, env)?
            }
            Bound::Following(Offset::Value(value, ty)) => {
                self.valued(index, (value, *ty), false, partition, is_start, env)?
            }
        })
    }

    /// An edge so many rows or peer groups away.
    fn counted(
        &self,
        index: usize,
        offset: usize,
        back: bool,
        partition: &Partition,
        is_start: bool,
    ) -> usize {
        if self.units == FrameUnits::Rows {
            let edge = if is_start { index } else { index + 1 };
            let moved = if back { edge.saturating_sub(offset) } else { edge.saturating_add(offset) };
            return moved.min(partition.len);
        }
        let group = partition.group(index);
        let wanted = if back { group.checked_sub(offset) } else { group.checked_add(offset) };
        match wanted {
            None if back => 0,
            Some(wanted) if wanted < partition.groups.len() => {
                edge_of(partition.groups[wanted].clone(), is_start)
            }
            _ => partition.len,
        }
    }

    /// An edge at the row's key plus or minus a value.
    fn valued(
        &self,
        index: usize,
        offset: (&Datum, Type),
        back: bool,
        partition: &Partition,
        is_start: bool,
        env: &EvalEnv<'_>,
    ) -> SqlResult<usize> {
        let Some(keys) = &self.range else { return Ok(index) };
        if !keys.present.contains(&index) {
            return Ok(edge_of(partition.peers(index), is_start));
        }
        let key = &keys.orders[index][0];
        // Going back in a descending order means adding.
        let Some(limit) = moved(key, keys.ty, offset, back == keys.descending, env)? else {
            return Ok(if back { keys.present.start } else { keys.present.end });
        };
        let before = |position: &usize| -> SqlResult<bool> {
            let value = cast::cast(&keys.orders[*position][0], keys.ty, limit.1, true, env.eval)?;
            let ordering = compare::compare(&value, &limit.0);
            let ordering = if keys.descending { ordering.reverse() } else { ordering };
            Ok(if is_start { ordering == Ordering::Less } else { ordering != Ordering::Greater })
        };
        let (mut low, mut high) = (keys.present.start, keys.present.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

fn edge_of(range: Range<usize>, is_start: bool) -> usize {
    if is_start { range.start } else { range.end }
}

/// `key + offset` or `key - offset` with its type; `None` if that is beyond the type's range.
fn moved(
    key: &Datum,
    ty: Type,
    offset: (&Datum, Type),
    add: bool,
    env: &EvalEnv<'_>,
) -> SqlResult<Option<(Datum, ColumnType)>> {
    let operator = resolve_operator(if add { "+" } else { "-" }, Some(ty), offset.1)?;
    let types = &operator.arg_types;
    let cast_to = |value: &Datum, from: Type, to: Option<&Type>| {
        cast::cast(value, from, ColumnType::plain(to.copied().unwrap_or(from)), false, env.eval)
    };
    let args = [cast_to(key, ty, types.first())?, cast_to(offset.0, offset.1, types.get(1))?];
    match operator.function.call(env.eval, types, &args) {
        Ok(value) => Ok(Some((value, ColumnType::plain(operator.returns)))),
        Err(error) if matches!(error.code, SqlState::OUT_OF_RANGE | SqlState::DATETIME_OVERFLOW) => Ok(None),
        Err(error) => Err(error),
    }
}

fn bound(bound: &FrameBound, units: FrameUnits, which: &str, env: &EvalEnv<'_>) -> SqlResult<Bound> {
    Ok(match bound {
        FrameBound::UnboundedPreceding | FrameBound::UnboundedFollowing => Bound::Unbounded,
        FrameBound::CurrentRow => Bound::Current,
        FrameBound::Preceding(expr) => {
            Bound::Preceding(offset(eval(expr, &[], env)?, expr.ty(), units, which)?)
        }
        FrameBound::Following(expr) => {
            Bound::Following(offset(eval(expr, &[], env)?, expr.ty(), units, which)?)
        }
    })
}

fn offset(value: Datum, ty: Type, units: FrameUnits, which: &str) -> SqlResult<Offset> {
    if value.is_null() {
        let message = format!("frame {which} offset must not be null");
        return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
    }
    let negative = match &value {
        Datum::Int2(value) => *value < 0,
        Datum::Int4(value) => *value < 0,
        Datum::Int8(value) => *value < 0,
        Datum::Float4(value) => *value < 0.0,
        Datum::Float8(value) => *value < 0.0,
        Datum::Numeric(_) => compare::compare(&value, &Datum::Numeric(Default::default())).is_lt(),
        Datum::Interval(value) => {
            compare::compare(&Datum::Interval(*value), &Datum::Interval(Default::default())).is_lt()
        }
        _ => false,
    };
    if negative {
        return Err(match units {
            FrameUnits::Range => {
                SqlError::new(INVALID_SIZE, "invalid preceding or following size in window function")
            }
            _ => SqlError::new(INVALID_SIZE, format!("frame {which} offset must not be negative")),
        });
    }
    if units == FrameUnits::Range {
        return Ok(Offset::Value(value, ty));
    }
    let count = match value {
        Datum::Int2(value) => i64::from(value),
        Datum::Int4(value) => i64::from(value),
        Datum::Int8(value) => value,
        _ => return Err(SqlError::internal("a frame offset is not an integer")),
    };
    Ok(Offset::Rows(usize::try_from(count).unwrap_or(usize::MAX)))
}
