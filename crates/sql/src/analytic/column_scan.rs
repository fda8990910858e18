//! [`ColumnScan`]: a scan whose rows come as columns from the KV nodes, with as much of its filter applied there as
//! programs can express.

use super::columns::{self, Misfit, physical};
use super::expr::is_integer;
use crate::exec::eval::{EvalEnv, eval};
use crate::exec::scan::Node;
use crate::exec::scan_keys::{self, Keys};
use crate::exec::sought::Sought;
use crate::exec::{ExecContext, kv};
use crate::plan::{Expr, Plan};
use crate::table::{CodecCache, TableCodec, WantedColumn};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use futures::future::BoxFuture;
use kv_api::Span;
use kv_api::columns::{
    Aggregation, Branch, Choice, ColumnBatch, Comparison, Condition, Constant, Kind, Program,
};
use kv_client::ColumnPage;
use sql_types::datetime::DAY;
use sql_types::functions::Volatility;
use sql_types::numeric::Numeric;
use sql_types::{ColumnType, Datum, SqlResult, Type};
use std::sync::Arc;

/// Most constants of a list that is sent along.
const LONGEST_LIST: usize = 1_000;

/// A scan that returns columns.
#[derive(Debug)]
pub(super) struct ColumnScan {
    program: Arc<Program>,
    /// For each column of the plan, which of the program's it is; none for those the engine does not take.
    slots: Vec<Option<usize>>,
    /// Types of the plan's columns.
    types: Vec<ColumnType>,
    /// What is still to be read.
    parts: Vec<Part>,
}

/// A condition, as far as programs can say it.
pub(super) struct Said<'p> {
    /// Conditions, all of which are part of it.
    pub conditions: Vec<Condition>,
    /// Choices, all of which are part of it.
    pub choices: Vec<Choice>,
    /// The parts that are left.
    pub left: Vec<&'p Expr>,
}

/// A part that is still to be read.
#[derive(Debug)]
struct Part {
    /// The same while it grows smaller.
    number: usize,
    span: Span,
    under_way: bool,
}

/// A read that is under way: which part's, and its page.
pub(super) type PageRead<'c> = BoxFuture<'c, (usize, SqlResult<ColumnPage>)>;

/// Spans that are taken apart at most; of more there is something to read side by side anyway.
const MOST_SPANS: usize = 16;

impl ColumnScan {
    /// The scan that a plan is, if it can be one, and which parts of its filter are left.
    pub fn of<'p>(
        plan: &'p Plan,
        codecs: &CodecCache,
        env: &EvalEnv<'_>,
    ) -> SqlResult<Option<(Self, Vec<&'p Expr>)>> {
        let Some(node) = Node::of(plan)
            .filter(|node| node.lock.is_none() && !node.reverse && !node.has_limit() && !node.is_inverted())
        else {
            return Ok(None);
        };
        let codec = codecs.get(node.table())?;
        let Keys::Spans(spans) = scan_keys::keys(codec.index(node.index)?, node.access, env)? else {
            return Ok(None);
        };
        let Some((mut program, slots)) = program(plan, node, &codec)? else { return Ok(None) };
        let types: Vec<ColumnType> = plan.columns.iter().map(|column| column.ty).collect();
        let said = Conditions { types: &types, slots: &slots, program: &program, env }.split(node.filter);
        (program.conditions, program.choices) = (said.conditions, said.choices);
        let scan = ColumnScan { program: Arc::new(program), slots, types, parts: parts(spans) };
        Ok(Some((scan, said.left)))
    }

    /// What programs can say of a condition on the rows, and which parts of it are left.
    pub fn said<'p>(&self, filter: &'p Expr, env: &EvalEnv<'_>) -> Said<'p> {
        Conditions { types: &self.types, slots: &self.slots, program: &self.program, env }.split(Some(filter))
    }

    /// A column of the plan: which of the program's it is, what its values come as, with how many decimals, and its type.
    /// None if the engine does not take it.
    pub fn column(&self, index: usize) -> Option<(usize, Kind, u32, ColumnType)> {
        let slot = (*self.slots.get(index)?)?;
        let wanted = self.program.columns.get(slot)?;
        Some((slot, wanted.kind(), wanted.scale, *self.types.get(index)?))
    }

    /// How many columns its program wants.
    pub fn width(&self) -> usize {
        self.program.columns.len()
    }

    /// The scan that returns groups instead of rows.
    pub fn aggregated(mut self, aggregation: Aggregation) -> Self {
        let program = Program { aggregation: Some(aggregation), ..Program::clone(&self.program) };
        self.program = Arc::new(program);
        self
    }

    /// Leaves out rows whose value in a column of the plan is not looked for, as far as KV nodes can tell.
    pub fn narrow(&mut self, column: usize, sought: &Sought) {
        let Some((slot, Kind::Int16 | Kind::Int32 | Kind::Int64, ..)) = self.column(column) else { return };
        Arc::make_mut(&mut self.program).conditions.push(sought.condition(slot as u32));
    }

    /// Whether it returns all columns of the plan.
    pub fn has_all_columns(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }

    /// What is still to be read.
    pub fn spans(&self) -> Vec<Span> {
        self.parts.iter().map(|part| part.span.clone()).collect()
    }

    /// Looks which parts can be read side by side.
    pub async fn take_apart(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        if self.parts.len() > MOST_SPANS {
            return Ok(());
        }
        let mut spans = Vec::new();
        for part in &self.parts {
            spans.extend(kv::parts_by_range(cx, &part.span).await?);
        }
        self.parts = parts(spans);
        Ok(())
    }

    /// What was under way is not any more.
    pub fn restart(&mut self) {
        self.parts.iter_mut().for_each(|part| part.under_way = false);
    }

    /// Reads the next page of a part of which none is under way; none if there is no such part.
    pub fn read<'c>(&mut self, cx: &'c ExecContext<'_>) -> Option<PageRead<'c>> {
        let part = self.parts.iter_mut().find(|part| !part.under_way)?;
        part.under_way = true;
        let (number, span, program) = (part.number, part.span.clone(), Arc::clone(&self.program));
        Some(Box::pin(async move { (number, kv::scan_columns(cx, &span, &program).await) }))
    }

    /// Takes the page that was read of a part: its columns as arrays. If it does not fit, the part is still to be read.
    pub fn take(
        &mut self,
        number: usize,
        page: ColumnPage,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, Misfit> {
        if page.columns.unfit {
            return Err(Misfit);
        }
        let batch = columns::from_columns(page.columns, &self.slots, schema)?;
        self.advance(number, page.resume);
        Ok(batch)
    }

    /// The same for a page of groups.
    pub fn take_groups(&mut self, number: usize, page: ColumnPage) -> Result<ColumnBatch, Misfit> {
        if page.columns.unfit {
            return Err(Misfit);
        }
        self.advance(number, page.resume);
        Ok(page.columns)
    }

    fn advance(&mut self, number: usize, rest: Option<Span>) {
        match (self.parts.iter_mut().find(|part| part.number == number), rest) {
            (Some(part), Some(rest)) => (part.span, part.under_way) = (rest, false),
            _ => self.parts.retain(|part| part.number != number),
        }
    }
}

fn parts(spans: Vec<Span>) -> Vec<Part> {
    let part = |(number, span)| Part { number, span, under_way: false };
    spans.into_iter().enumerate().map(part).collect()
}

/// The program that reads the columns of a scan.
fn program(
    plan: &Plan,
    node: Node<'_>,
    codec: &TableCodec,
) -> SqlResult<Option<(Program, Vec<Option<usize>>)>> {
    let (mut wanted, mut slots) = (Vec::new(), Vec::new());
    for (id, column) in node.columns().iter().zip(&plan.columns) {
        slots.push(kind(column.ty).map(|(kind, scale)| {
            wanted.push(WantedColumn { id: *id, kind, scale });
            wanted.len() - 1
        }));
    }
    Ok(codec.program(node.index, &wanted)?.map(|program| (program, slots)))
}

/// What values of a type come as.
fn kind(ty: ColumnType) -> Option<(Kind, u32)> {
    Some(match physical(ty)? {
        DataType::Boolean => (Kind::Bool, 0),
        DataType::Int16 => (Kind::Int16, 0),
        DataType::Int32 => (Kind::Int32, 0),
        DataType::Int64 => (Kind::Int64, 0),
        // Their digits fit eight bytes.
        DataType::Decimal128(..=18, scale) => (Kind::Decimal, scale as u32),
        DataType::Decimal128(_, scale) => (Kind::WideDecimal, scale as u32),
        _ if ty.ty == Type::BPCHAR => (Kind::Trimmed, 0),
        _ => (Kind::Bytes, 0),
    })
}

/// Turns parts of a filter into conditions.
struct Conditions<'a> {
    types: &'a [ColumnType],
    slots: &'a [Option<usize>],
    program: &'a Program,
    env: &'a EvalEnv<'a>,
}

impl Conditions<'_> {
    /// What can be said of a filter.
    fn split<'p>(&self, filter: Option<&'p Expr>) -> Said<'p> {
        let mut said = Said { conditions: Vec::new(), choices: Vec::new(), left: Vec::new() };
        for part in filter.into_iter().flat_map(Expr::conjuncts) {
            if let Some(condition) = self.condition(part) {
                said.conditions.push(condition);
            } else if let Some(choice) = self.choice(part) {
                said.choices.push(choice);
            } else {
                said.left.push(part);
            }
        }
        said
    }

    /// The condition that a part of a filter is; none if it is more than programs can say.
    fn condition(&self, expr: &Expr) -> Option<Condition> {
        match expr {
            Expr::Call { function, args, .. } => {
                let [left, right] = &args[..] else { return None };
                let comparison = comparison(function.name)?;
                match (left, right) {
                    (Expr::Column(left, _), Expr::Column(right, _)) => {
                        self.columns(*left, comparison, *right)
                    }
                    (Expr::Column(column, _), constant) => self.constant(*column, comparison, constant),
                    (constant, Expr::Column(column, _)) => {
                        self.constant(*column, turned(comparison)?, constant)
                    }
                    _ => None,
                }
            }
            Expr::InList(needle, list, negated) if list.len() <= LONGEST_LIST => {
                let Expr::Column(column, _) = needle.as_ref() else { return None };
                let constants =
                    list.iter().map(|item| self.value(*column, item)).collect::<Option<Vec<_>>>()?;
                let comparison = if *negated { Comparison::NotIn } else { Comparison::In };
                self.of(*column, comparison, constants)
            }
            _ => None,
        }
    }

    /// The alternatives that a part of a filter is; none if programs cannot say one of them.
    fn choice(&self, expr: &Expr) -> Option<Choice> {
        let Expr::Or(alternatives) = expr else { return None };
        let branch = |alternative: &Expr| {
            let conditions = alternative.conjuncts().into_iter().map(|part| self.condition(part));
            Some(Branch { conditions: conditions.collect::<Option<_>>()? })
        };
        Some(Choice { branches: alternatives.iter().map(branch).collect::<Option<_>>()? })
    }

    fn of(&self, column: usize, comparison: Comparison, constants: Vec<Constant>) -> Option<Condition> {
        let slot = (*self.slots.get(column)?)?;
        Some(Condition { column: slot as u32, comparison: comparison as i32, constants, other: None })
    }

    fn constant(&self, column: usize, comparison: Comparison, constant: &Expr) -> Option<Condition> {
        let is_pattern = matches!(comparison, Comparison::Like | Comparison::NotLike);
        let ty = self.types.get(column)?.ty;
        // Patterns see the spaces at the end of a character(n), which programs do not.
        if is_pattern && !matches!(ty, Type::TEXT | Type::VARCHAR | Type::NAME) {
            return None;
        }
        let constant = self.value(column, constant)?;
        if is_pattern && constant.bytes.ends_with(b"\\") {
            return None;
        }
        self.of(column, comparison, vec![constant])
    }

    fn columns(&self, left: usize, comparison: Comparison, right: usize) -> Option<Condition> {
        if matches!(comparison, Comparison::Like | Comparison::NotLike) {
            return None;
        }
        if !are_alike(self.types.get(left)?.ty, self.types.get(right)?.ty) {
            return None;
        }
        let (left_slot, right_slot) = ((*self.slots.get(left)?)?, (*self.slots.get(right)?)?);
        let (left, right) = (self.program.columns.get(left_slot)?, self.program.columns.get(right_slot)?);
        if (left.kind, left.scale) != (right.kind, right.scale) {
            return None;
        }
        let other = Some(right_slot as u32);
        Some(Condition {
            column: left_slot as u32,
            comparison: comparison as i32,
            constants: Vec::new(),
            other,
        })
    }

    /// A constant as a value of a column.
    fn value(&self, column: usize, expr: &Expr) -> Option<Constant> {
        if !expr.is_column_free() || expr.volatility() == Volatility::Volatile {
            return None;
        }
        let slot = (*self.slots.get(column)?)?;
        let wanted = self.program.columns.get(slot)?;
        let (ty, own) = (expr.ty(), self.types.get(column)?.ty);
        let is_midnight = (own, ty) == (Type::DATE, Type::TIMESTAMP);
        if !are_alike(ty, own) && !is_midnight {
            return None;
        }
        let integer = |integer: i64| Some(Constant { integer, ..Constant::default() });
        let bytes =
            |text: &str| Some(Constant { bytes: text.as_bytes().to_vec().into(), ..Constant::default() });
        match (wanted.kind(), eval(expr, &[], self.env).ok()?) {
            (Kind::Bool, Datum::Bool(value)) => integer(i64::from(value)),
            (Kind::Int16 | Kind::Int32 | Kind::Int64, Datum::Int2(value)) => integer(i64::from(value)),
            (Kind::Int16 | Kind::Int32 | Kind::Int64, Datum::Int4(value)) => integer(i64::from(value)),
            (Kind::Int16 | Kind::Int32 | Kind::Int64, Datum::Int8(value)) => integer(value),
            (Kind::Int32, Datum::Date(value)) => integer(i64::from(value)),
            // `date + interval` is a timestamp. A date is compared with a midnight as with its day.
            (Kind::Int32, Datum::Timestamp(value)) if value % DAY == 0 => integer(value / DAY),
            (Kind::Int64, Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value)) => {
                integer(value)
            }
            (Kind::Decimal, Datum::Numeric(value)) => integer(digits(&value, wanted.scale)?),
            (Kind::Bytes, Datum::Text(text)) => bytes(&text),
            (Kind::Trimmed, Datum::Text(text)) => bytes(text.trim_end_matches(' ')),
            _ => None,
        }
    }
}

/// Whether programs can say a part of a filter, as far as its shape tells without types and values.
pub(crate) fn may_be_said(part: &Expr) -> bool {
    let is_side = |side: &Expr| matches!(side, Expr::Column(..)) || side.is_column_free();
    match part {
        Expr::Call { function, args, .. } => {
            comparison(function.name).is_some() && args.len() == 2 && args.iter().all(is_side)
        }
        Expr::InList(needle, list, _) => matches!(**needle, Expr::Column(..)) && list.len() <= LONGEST_LIST,
        Expr::Or(alternatives) => alternatives
            .iter()
            .flat_map(Expr::conjuncts)
            .all(|part| !matches!(part, Expr::Or(_)) && may_be_said(part)),
        _ => false,
    }
}

/// Whether equal bytes mean equal values: between integers and between texts they do, but times of unlike types are
/// compared otherwise.
fn are_alike(left: Type, right: Type) -> bool {
    let both = |is: fn(Type) -> bool| is(left) && is(right);
    left == right || both(is_integer) || both(is_text)
}

fn is_text(ty: Type) -> bool {
    matches!(ty, Type::TEXT | Type::VARCHAR | Type::NAME)
}

/// The digits of a number with so many decimals, if it has no more.
fn digits(value: &Numeric, scale: u32) -> Option<i64> {
    let (coefficient, found) = value.as_small()?;
    let missing = scale.checked_sub(u32::from(found))?;
    i64::try_from(coefficient.checked_mul(10_i128.checked_pow(missing)?)?).ok()
}

fn comparison(operator: &str) -> Option<Comparison> {
    Some(match operator {
        "=" => Comparison::Equal,
        "<>" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        "~~" => Comparison::Like,
        "!~~" => Comparison::NotLike,
        _ => return None,
    })
}

/// The comparison with its sides exchanged.
fn turned(comparison: Comparison) -> Option<Comparison> {
    Some(match comparison {
        Comparison::Equal | Comparison::NotEqual => comparison,
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        _ => return None,
    })
}
