//! Expressions as DataFusion's physical expressions.

use super::columns::{self, MOST_DIGITS};
use super::row_call::RowCall;
use crate::exec::eval::{EvalEnv, eval};
use crate::plan::Expr;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, LikeExpr, Literal, case, in_list, is_not_null, is_null, lit, not,
};
use sql_types::functions::{Function, Volatility};
use sql_types::{Datum, Type};
use std::sync::Arc;

/// A translated expression and the type of its arrays.
#[derive(Clone)]
pub(super) struct Typed {
    pub expr: Arc<dyn PhysicalExpr>,
    pub data: DataType,
}

/// Translates expressions over one input.
pub(super) struct Translator<'a> {
    pub schema: SchemaRef,
    pub env: EvalEnv<'a>,
}

/// How wide an integer type is; `None` for others.
fn width(data: &DataType) -> Option<u8> {
    match data {
        DataType::Int16 => Some(2),
        DataType::Int32 => Some(4),
        DataType::Int64 => Some(8),
        _ => None,
    }
}

pub(super) fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::INT2 | Type::INT4 | Type::INT8)
}

/// An integer's digits, for its decimal type.
fn digits(data: &DataType) -> u8 {
    match data {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 19,
    }
}

/// A conversion that fails rather than lose anything.
pub(super) fn convert(typed: Typed, to: DataType) -> Typed {
    if typed.data == to {
        return typed;
    }
    Typed { expr: Arc::new(CastExpr::new(typed.expr, to.clone(), None)), data: to }
}

impl Translator<'_> {
    /// The translation; `None` if there is none.
    pub fn translate(&self, expr: &Expr) -> Option<Typed> {
        match expr {
            Expr::Column(index, _) => {
                let field = self.schema.fields().get(*index)?;
                let column = Column::new(field.name(), *index);
                let data = field.data_type().clone();
                (data != DataType::Null).then(|| Typed { expr: Arc::new(column), data })
            }
            _ if expr.is_column_free() && expr.volatility() != Volatility::Volatile => self.constant(expr),
            Expr::Call { function, args, ty } => {
                self.call(function, args, *ty).or_else(|| self.call_by_row(function, args, *ty))
            }
            Expr::And(parts) => self.logic(parts, Operator::And),
            Expr::Or(parts) => self.logic(parts, Operator::Or),
            Expr::Not(inner) => self.boolean(not(self.condition(inner)?).ok()?),
            Expr::IsNull(inner, negated) => {
                if inner.ty() == Type::RECORD {
                    return None;
                }
                let inner = self.translate(inner)?.expr;
                self.boolean(if *negated { is_not_null(inner).ok()? } else { is_null(inner).ok()? })
            }
            Expr::InList(needle, list, negated) => self.in_list(needle, list, *negated),
            Expr::Case { branches, otherwise, ty } => self.case(branches, otherwise.as_deref(), *ty),
            Expr::Cast { expr, to, .. } => self.cast(expr, to.ty, to.typmod),
            _ => None,
        }
    }

    /// A boolean expression.
    pub fn condition(&self, expr: &Expr) -> Option<Arc<dyn PhysicalExpr>> {
        self.translate(expr).filter(|typed| typed.data == DataType::Boolean).map(|typed| typed.expr)
    }

    fn boolean(&self, expr: Arc<dyn PhysicalExpr>) -> Option<Typed> {
        Some(Typed { expr, data: DataType::Boolean })
    }

    fn constant(&self, expr: &Expr) -> Option<Typed> {
        let value = eval(expr, &[], &self.env).ok()?;
        let scalar = columns::scalar(&value, expr.ty())?;
        let data = scalar.data_type();
        Some(Typed { expr: Arc::new(Literal::new(scalar)), data })
    }

    fn logic(&self, parts: &[Expr], operator: Operator) -> Option<Typed> {
        let mut parts = parts.iter().map(|part| self.condition(part));
        let mut all = parts.next()??;
        for part in parts {
            all = Arc::new(BinaryExpr::new(all, operator, part?));
        }
        self.boolean(all)
    }

    fn call(&self, function: &Function, args: &[Expr], ty: Type) -> Option<Typed> {
        let [left, right] = args else { return None };
        if matches!(function.name, "~~" | "!~~") {
            return self.like(left, right, function.name == "!~~");
        }
        let types = (left.ty(), right.ty());
        let comparison = match function.name {
            "=" => Some(Operator::Eq),
            "<>" => Some(Operator::NotEq),
            "<" => Some(Operator::Lt),
            "<=" => Some(Operator::LtEq),
            ">" => Some(Operator::Gt),
            ">=" => Some(Operator::GtEq),
            _ => None,
        };
        if let Some(operator) = comparison {
            let numbers = |ty: Type| is_integer(ty) || ty == Type::NUMERIC;
            let text = |ty: Type| matches!(ty, Type::TEXT | Type::VARCHAR | Type::NAME);
            let alike = types.0 == types.1
                || (numbers(types.0) && numbers(types.1))
                || (text(types.0) && text(types.1));
            if !alike {
                return None;
            }
            let (left, right) = self.common(self.translate(left)?, self.translate(right)?)?;
            return self.boolean(Arc::new(BinaryExpr::new(left.expr, operator, right.expr)));
        }
        let operator = match function.name {
            "+" => Operator::Plus,
            "-" => Operator::Minus,
            "*" => Operator::Multiply,
            _ => return None,
        };
        let (left, right) = (self.translate(left)?, self.translate(right)?);
        let (left, right) = match ty {
            Type::INT4 if types == (Type::INT4, Type::INT4) => (left, right),
            Type::INT8 if is_integer(types.0) && is_integer(types.1) => {
                (convert(left, DataType::Int64), convert(right, DataType::Int64))
            }
            Type::NUMERIC => (as_decimal(left)?, as_decimal(right)?),
            _ => return None,
        };
        let binary = BinaryExpr::new(left.expr, operator, right.expr).with_fail_on_overflow(true);
        let data = binary.data_type(&self.schema).ok()?;
        Some(Typed { expr: Arc::new(binary), data })
    }

    fn call_by_row(&self, function: &'static Function, args: &[Expr], ty: Type) -> Option<Typed> {
        let translated =
            args.iter().map(|arg| Some(self.translate(arg)?.expr)).collect::<Option<Vec<_>>>()?;
        let call = RowCall::new(function, args, ty, translated)?;
        let data = call.data_type(&self.schema).ok()?;
        Some(Typed { expr: Arc::new(call), data })
    }

    /// LIKE with a constant pattern. The spaces at the end of a `character(n)` would count.
    fn like(&self, text: &Expr, pattern: &Expr, negated: bool) -> Option<Typed> {
        if !matches!(text.ty(), Type::TEXT | Type::VARCHAR | Type::NAME) {
            return None;
        }
        // One that ends with its escape is an error.
        let constant = pattern.is_column_free() && pattern.volatility() != Volatility::Volatile;
        match constant.then(|| eval(pattern, &[], &self.env)) {
            Some(Ok(Datum::Text(pattern))) if !pattern.ends_with('\\') => {}
            _ => return None,
        }
        let (text, pattern) = (self.translate(text)?.expr, self.translate(pattern)?.expr);
        self.boolean(Arc::new(LikeExpr::new(negated, false, text, pattern)))
    }

    /// Two operands of a comparison, converted to one type.
    fn common(&self, left: Typed, right: Typed) -> Option<(Typed, Typed)> {
        if left.data == right.data {
            return Some((left, right));
        }
        if let (Some(a), Some(b)) = (width(&left.data), width(&right.data)) {
            let wider = if a > b { left.data.clone() } else { right.data.clone() };
            return Some((convert(left, wider.clone()), convert(right, wider)));
        }
        let (left, right) = (as_decimal(left)?, as_decimal(right)?);
        match (&left.data, &right.data) {
            (DataType::Decimal128(_, a), DataType::Decimal128(_, b)) => {
                let both = DataType::Decimal128(MOST_DIGITS, (*a).max(*b));
                Some((convert(left, both.clone()), convert(right, both)))
            }
            _ => None,
        }
    }

    fn in_list(&self, needle: &Expr, list: &[Expr], negated: bool) -> Option<Typed> {
        let needle = self.translate(needle)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            let item = self.translate(item)?;
            if item.data != needle.data {
                return None;
            }
            items.push(item.expr);
        }
        self.boolean(in_list(needle.expr, items, &negated, &self.schema).ok()?)
    }

    fn case(&self, branches: &[(Expr, Expr)], otherwise: Option<&Expr>, ty: Type) -> Option<Typed> {
        let mut data = None;
        let mut pairs = Vec::with_capacity(branches.len());
        let mut same = |typed: Typed| {
            let first = data.get_or_insert_with(|| typed.data.clone());
            (*first == typed.data).then_some(typed.expr)
        };
        for (condition, result) in branches {
            pairs.push((self.condition(condition)?, same(self.translate(result)?)?));
        }
        let otherwise = match otherwise {
            Some(otherwise) => Some(same(self.translate(otherwise)?)?),
            None => None,
        };
        let data = data?;
        if ty == Type::NUMERIC && !matches!(data, DataType::Decimal128(..)) {
            return None;
        }
        Some(Typed { expr: case(None, pairs, otherwise).ok()?, data })
    }

    /// A CASE whose results are numbers with unlike numbers of decimals, as numbers with the most of them; and how many
    /// its value has. None if they are alike, or it cannot be translated.
    pub fn mixed_case(&self, expr: &Expr) -> Option<(Typed, Arc<dyn PhysicalExpr>)> {
        let Expr::Case { branches, otherwise, ty: Type::NUMERIC } = expr else { return None };
        let number = |expr: &Expr| match as_decimal(self.translate(expr)?)? {
            Typed { expr, data: DataType::Decimal128(precision, scale) } if scale >= 0 => {
                Some((expr, precision, scale))
            }
            _ => None,
        };
        let conditions = branches.iter().map(|one| self.condition(&one.0)).collect::<Option<Vec<_>>>()?;
        let results = branches.iter().map(|one| number(&one.1)).collect::<Option<Vec<_>>>()?;
        let otherwise = match otherwise {
            Some(otherwise) => Some(number(otherwise)?),
            None => None,
        };
        let all = || results.iter().chain(&otherwise);
        let most = all().map(|(_, _, scale)| *scale).max()?;
        if all().all(|(_, _, scale)| *scale == most) {
            return None;
        }
        let whole = all().map(|(_, precision, scale)| i16::from(*precision) - i16::from(*scale)).max()?;
        let precision = u8::try_from(whole + i16::from(most)).ok().filter(|digits| *digits <= MOST_DIGITS)?;
        let data = DataType::Decimal128(precision, most);
        let value = |(expr, precision, scale): &(Arc<dyn PhysicalExpr>, u8, i8)| {
            let typed = Typed { expr: expr.clone(), data: DataType::Decimal128(*precision, *scale) };
            convert(typed, data.clone()).expr
        };
        let decimals = |(expr, _, scale): &(Arc<dyn PhysicalExpr>, u8, i8)| {
            let there = is_not_null(expr.clone()).ok()?;
            case(None, vec![(there, lit(i32::from(*scale)))], None).ok()
        };
        let pairs = conditions.iter().cloned().zip(results.iter().map(value)).collect();
        let values = case(None, pairs, otherwise.as_ref().map(value)).ok()?;
        let scales = results.iter().map(decimals).collect::<Option<Vec<_>>>()?;
        let other_scale = match &otherwise {
            Some(otherwise) => Some(decimals(otherwise)?),
            None => None,
        };
        let scales = case(None, conditions.into_iter().zip(scales).collect(), other_scale).ok()?;
        Some((Typed { expr: values, data }, scales))
    }

    /// Conversions between integers that cannot fail, and from integers to numeric.
    fn cast(&self, expr: &Expr, to: Type, typmod: i32) -> Option<Typed> {
        let from = expr.ty();
        let text = |ty: Type| matches!(ty, Type::TEXT | Type::VARCHAR);
        let inner = self.translate(expr)?;
        // What a character(n) becomes has lost its spaces.
        if from == Type::BPCHAR && text(to) && typmod == -1 {
            return Some(inner);
        }
        if typmod != -1 {
            return None;
        }
        match to {
            _ if from == to => Some(inner),
            Type::INT4 if from == Type::INT2 => Some(convert(inner, DataType::Int32)),
            Type::INT8 if is_integer(from) => Some(convert(inner, DataType::Int64)),
            Type::NUMERIC if is_integer(from) => as_decimal(inner),
            _ if text(from) && text(to) => Some(inner),
            _ => None,
        }
    }
}

/// An integer or decimal as a decimal.
pub(super) fn as_decimal(typed: Typed) -> Option<Typed> {
    match &typed.data {
        DataType::Decimal128(..) => Some(typed),
        data if width(data).is_some() => {
            let to = DataType::Decimal128(digits(data), 0);
            Some(convert(typed, to))
        }
        _ => None,
    }
}
