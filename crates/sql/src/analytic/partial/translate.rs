//! Aggregates as programs of KV nodes.

use super::super::column_scan::ColumnScan;
use super::super::columns::{MOST_DIGITS, physical};
use super::super::expr::is_integer;
use super::merge::{Layout, Output};
use crate::exec::eval::{EvalEnv, eval};
use crate::exec::sought::same_integer;
use crate::plan::{AggregateCall, Expr, Plan, PlanKind};
use crate::table::CodecCache;
use datafusion::arrow::datatypes::DataType;
use kv_api::columns::{
    Aggregation, Computation, Fold, Kind, MAX_COMPUTATIONS, MAX_PARTIALS, Operation, Partial,
};
use sql_types::functions::Volatility;
use sql_types::{ColumnType, Datum, SqlResult, Type};

/// The parts of an aggregate that KV nodes may help with.
#[derive(Clone, Copy)]
pub(super) struct Shape<'p> {
    /// The scan.
    pub scan: &'p Plan,
    /// What is computed of its rows before they are aggregated.
    projection: Option<&'p [Expr]>,
    groups: &'p [Expr],
    calls: &'p [AggregateCall],
}

impl<'p> Shape<'p> {
    /// Those of a plan node, if it is such an aggregate.
    pub fn of(plan: &'p Plan) -> Option<Self> {
        let PlanKind::Aggregate { input, groups, sets, aggregates: calls } = &plan.kind else { return None };
        let whole = sets.len() == 1 && sets[0].len() == groups.len();
        let simple = |call: &AggregateCall| {
            let known = matches!(call.function.name, "count" | "sum" | "avg" | "min" | "max");
            known && !call.distinct && call.order.is_empty() && call.args.len() <= 1
        };
        if !whole || !calls.iter().all(simple) || plan.calls_routines() {
            return None;
        }
        let (scan, projection) = match &input.kind {
            PlanKind::Project { input, exprs } => (input.as_ref(), Some(exprs.as_slice())),
            _ => (input.as_ref(), None),
        };
        let is_scan = matches!(scan.kind, PlanKind::Scan { lock: None, .. });
        is_scan.then_some(Shape { scan, projection, groups, calls })
    }

    /// The column of the scan that a column of the result is, if it is one that groups are made by.
    pub fn group_column(&self, column: usize) -> Option<usize> {
        same_integer(&self.over_scan(self.groups.get(column)?))
    }

    /// An expression over the rows that are aggregated, as one over the rows of the scan.
    fn over_scan(&self, expr: &Expr) -> Expr {
        let mut expr = expr.clone();
        if let Some(projection) = self.projection {
            expr.replace(&mut |part| match part {
                Expr::Column(index, _) => projection.get(*index).cloned(),
                _ => None,
            });
        }
        expr
    }
}

/// A translated aggregate.
pub(super) struct Translated {
    /// Returns the groups.
    pub scan: ColumnScan,
    /// What is in them, and what becomes of it.
    pub layout: Layout,
}

/// Translates an aggregate; none if KV nodes cannot help with it.
pub(super) fn aggregate(
    plan: &Plan,
    codecs: &CodecCache,
    env: &EvalEnv<'_>,
) -> SqlResult<Option<Translated>> {
    let Some(shape) = Shape::of(plan) else { return Ok(None) };
    let Some((scan, left)) = ColumnScan::of(shape.scan, codecs, env)? else { return Ok(None) };
    if !left.is_empty() {
        return Ok(None);
    }
    let translator = Translator {
        shape,
        scan: &scan,
        env,
        aggregation: Aggregation::default(),
        layout: Layout::default(),
    };
    Ok(translator
        .translate()
        .map(|(aggregation, layout)| Translated { scan: scan.aggregated(aggregation), layout }))
}

struct Translator<'a> {
    shape: Shape<'a>,
    scan: &'a ColumnScan,
    env: &'a EvalEnv<'a>,
    aggregation: Aggregation,
    layout: Layout,
}

/// A value of each row.
#[derive(Clone, Copy, Debug)]
struct Operand {
    /// Its number.
    value: u32,
    kind: Kind,
    ty: ColumnType,
    /// How many decimals it has, if it is a number.
    scale: u32,
}

impl Operand {
    /// The arrays that values of its kind come as.
    fn array(&self) -> Option<DataType> {
        Some(match self.kind {
            Kind::Decimal | Kind::WideDecimal => decimal(self.scale)?,
            _ => physical(self.ty)?,
        })
    }

    fn is_number(&self) -> bool {
        is_integer(self.ty.ty) || self.ty.ty == Type::NUMERIC
    }
}

/// A number of so many decimals in 128 bits.
fn decimal(scale: u32) -> Option<DataType> {
    let scale = i8::try_from(scale).ok().filter(|scale| *scale as u8 <= MOST_DIGITS)?;
    Some(DataType::Decimal128(MOST_DIGITS, scale))
}

impl Translator<'_> {
    fn translate(mut self) -> Option<(Aggregation, Layout)> {
        let shape = self.shape;
        for group in shape.groups {
            let Expr::Column(index, _) = shape.over_scan(group) else { return None };
            let (slot, _, _, ty) = self.scan.column(index)?;
            self.aggregation.groups.push(slot as u32);
            self.layout.groups.push((ty, physical(ty)?));
        }
        for call in shape.calls {
            let output = self.call(call)?;
            self.layout.outputs.push(output);
        }
        let fits = self.aggregation.partials.len().max(self.aggregation.groups.len()) <= MAX_PARTIALS;
        fits.then_some((self.aggregation, self.layout))
    }

    fn call(&mut self, call: &AggregateCall) -> Option<Output> {
        let mut filter = Partial::default();
        if let Some(condition) = &call.filter {
            let condition = self.shape.over_scan(condition);
            let said = self.scan.said(&condition, self.env);
            if !said.left.is_empty() {
                return None;
            }
            (filter.conditions, filter.choices) = (said.conditions, said.choices);
        }
        let Some(arg) = call.args.first() else {
            let rows = call.function.name == "count";
            return rows.then(|| self.partial(filter, Fold::CountRows, None)).flatten().map(Output::Count);
        };
        let operand = self.operand(&self.shape.over_scan(arg))?;
        let is_number = operand.is_number();
        Some(match call.function.name {
            "count" => Output::Count(self.partial(filter, Fold::Count, Some(operand))?),
            "sum" if is_number => {
                let sum = self.partial(filter, Fold::Sum, Some(operand))?;
                match call.ty {
                    Type::INT8 => Output::Integer(sum),
                    Type::NUMERIC => Output::Numeric(sum, u16::try_from(operand.scale).ok()?),
                    _ => return None,
                }
            }
            "avg" if is_number && call.ty == Type::NUMERIC => Output::Average {
                sum: self.partial(filter.clone(), Fold::Sum, Some(operand))?,
                count: self.partial(filter, Fold::Count, Some(operand))?,
                scale: u16::try_from(operand.scale).ok()?,
            },
            "min" | "max" if has_extremes(operand.ty.ty) && operand.ty.ty == call.ty => {
                let fold = if call.function.name == "min" { Fold::Least } else { Fold::Greatest };
                Output::Extreme(self.partial(filter, fold, Some(operand))?)
            }
            _ => return None,
        })
    }

    /// The number of a partial result: a new one, unless there is one like it.
    fn partial(&mut self, filter: Partial, fold: Fold, operand: Option<Operand>) -> Option<usize> {
        let value = operand.map_or(0, |operand| operand.value);
        let partial = Partial { fold: fold as i32, value, ..filter };
        if let Some(found) = self.aggregation.partials.iter().position(|one| *one == partial) {
            return Some(found);
        }
        let (ty, array) = match (fold, operand) {
            (Fold::CountRows | Fold::Count, _) => (Type::INT8.into(), DataType::Int64),
            (Fold::Sum, Some(operand)) => (Type::NUMERIC.into(), decimal(operand.scale)?),
            (_, Some(operand)) => (operand.ty, operand.array()?),
            (_, None) => return None,
        };
        self.layout.partials.push((fold, ty, array));
        self.aggregation.partials.push(partial);
        Some(self.aggregation.partials.len() - 1)
    }

    /// The value that an expression over the scan's rows is.
    fn operand(&mut self, expr: &Expr) -> Option<Operand> {
        match expr {
            Expr::Column(index, _) => {
                let (slot, kind, scale, ty) = self.scan.column(*index)?;
                Some(Operand { value: slot as u32, kind, ty, scale })
            }
            _ if expr.is_column_free() && expr.volatility() != Volatility::Volatile => self.constant(expr),
            Expr::Cast { expr, to, .. } if to.typmod == -1 => self.cast(expr, to.ty),
            Expr::Call { function, args, ty } => {
                let operation = match function.name {
                    "+" => Operation::Add,
                    "-" => Operation::Subtract,
                    "*" => Operation::Multiply,
                    _ => return None,
                };
                let [left, right] = &args[..] else { return None };
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                self.pair(operation, left, right, *ty)
            }
            _ => None,
        }
    }

    fn constant(&mut self, expr: &Expr) -> Option<Operand> {
        let (constant, kind, scale) = match eval(expr, &[], self.env).ok()? {
            Datum::Int2(value) => (i64::from(value), Kind::Int16, 0),
            Datum::Int4(value) => (i64::from(value), Kind::Int32, 0),
            Datum::Int8(value) => (value, Kind::Int64, 0),
            Datum::Numeric(value) => {
                let (digits, scale) = value.as_small()?;
                (i64::try_from(digits).ok()?, Kind::WideDecimal, u32::from(scale))
            }
            _ => return None,
        };
        self.computed(Operation::Constant, (0, 0), constant, (kind, expr.ty(), scale))
    }

    /// Conversions that change nothing of a value.
    fn cast(&mut self, expr: &Expr, to: Type) -> Option<Operand> {
        let operand = self.operand(expr)?;
        let from = operand.ty.ty;
        let width = |ty| [Type::INT2, Type::INT4, Type::INT8].iter().position(|one| *one == ty);
        let text = |ty| matches!(ty, Type::TEXT | Type::VARCHAR);
        let widens = matches!((width(from), width(to)), (Some(from), Some(to)) if from <= to);
        let same =
            from == to || widens || (is_integer(from) && to == Type::NUMERIC) || (text(from) && text(to));
        same.then_some(Operand { ty: if from == to { operand.ty } else { to.into() }, ..operand })
    }

    fn pair(&mut self, operation: Operation, left: Operand, right: Operand, ty: Type) -> Option<Operand> {
        let kind = match ty {
            Type::INT2 => Kind::Int16,
            Type::INT4 => Kind::Int32,
            Type::INT8 => Kind::Int64,
            Type::NUMERIC => Kind::WideDecimal,
            _ => return None,
        };
        if !left.is_number() || !right.is_number() {
            return None;
        }
        if kind != Kind::WideDecimal {
            let integers = is_integer(left.ty.ty) && is_integer(right.ty.ty);
            let both = (left.value, right.value);
            return integers.then(|| self.computed(operation, both, 0, (kind, ty, 0))).flatten();
        }
        let (left, right, scale) = match operation {
            Operation::Multiply => (left, right, left.scale + right.scale),
            _ => {
                let scale = left.scale.max(right.scale);
                (self.scaled(left, scale)?, self.scaled(right, scale)?, scale)
            }
        };
        self.computed(operation, (left.value, right.value), 0, (kind, ty, scale))
    }

    /// A number with more decimals.
    fn scaled(&mut self, operand: Operand, scale: u32) -> Option<Operand> {
        let missing = scale.checked_sub(operand.scale)?;
        if missing == 0 {
            return Some(operand);
        }
        let ten = 10_i64.checked_pow(missing)?;
        let number = (Kind::WideDecimal, Type::NUMERIC, missing);
        let factor = self.computed(Operation::Constant, (0, 0), ten, number)?;
        let both = (operand.value, factor.value);
        self.computed(Operation::Multiply, both, 0, (Kind::WideDecimal, Type::NUMERIC, scale))
    }

    /// A computation: a new one, unless there is one like it.
    fn computed(
        &mut self,
        operation: Operation,
        (left, right): (u32, u32),
        constant: i64,
        (kind, ty, scale): (Kind, Type, u32),
    ) -> Option<Operand> {
        let computation =
            Computation { operation: operation as i32, left, right, constant, kind: kind as i32 };
        let computations = &mut self.aggregation.computations;
        let position = match computations.iter().position(|one| *one == computation) {
            Some(position) => position,
            None if computations.len() < MAX_COMPUTATIONS => {
                computations.push(computation);
                computations.len() - 1
            }
            None => return None,
        };
        let value = u32::try_from(self.scan.width() + position).ok()?;
        (scale <= u32::from(MOST_DIGITS)).then_some(Operand { value, kind, ty: ty.into(), scale })
    }
}

/// Whether programs order values of a type as PostgreSQL does.
fn has_extremes(ty: Type) -> bool {
    is_integer(ty)
        || matches!(ty, Type::NUMERIC | Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ)
        || matches!(ty, Type::TEXT | Type::BPCHAR)
}
