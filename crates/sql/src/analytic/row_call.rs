//! [`RowCall`]: a function of the registry within DataFusion's expressions, called for one row after the other. So one
//! function that is not vectorized does not keep the rest of a plan from being so.

use super::columns;
use crate::plan::Expr;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use sql_types::functions::{EvalContext, Function, Volatility};
use sql_types::{ColumnType, Datum, Row, Type};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Functions whose texts are at most as long as their first argument.
const SHORTENING: [&str; 6] = ["substring", "left", "right", "btrim", "ltrim", "rtrim"];

/// A call. Its function depends on nothing but its arguments.
#[derive(Debug)]
pub(super) struct RowCall {
    function: &'static Function,
    args: Vec<Arc<dyn PhysicalExpr>>,
    types: Vec<Type>,
    result: ColumnType,
}

impl RowCall {
    /// A call of a function with translated arguments; none if it cannot be made here.
    pub fn new(
        function: &'static Function,
        exprs: &[Expr],
        ty: Type,
        args: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Option<Self> {
        let types: Vec<Type> = exprs.iter().map(Expr::ty).collect();
        let result = match function.name {
            "extract" => extracted(exprs)?,
            _ if function.volatility == Volatility::Immutable && !function.external => ty.into(),
            _ => return None,
        };
        // How long those of character(n) are is not known here.
        let sized = types.contains(&Type::BPCHAR);
        // Texts are computed for thousands of rows at once, and must not be longer than those that are there.
        let bounded = columns::physical(result)? != DataType::Utf8 || SHORTENING.contains(&function.name);
        (!sized && bounded).then_some(RowCall { function, args, types, result })
    }

    fn row(&self, arrays: &[Arc<dyn datafusion::arrow::array::Array>], index: usize) -> Option<Datum> {
        let value = |(array, ty): (&Arc<_>, &Type)| columns::value(array, index, (*ty).into());
        let args: Vec<Datum> = arrays.iter().zip(&self.types).map(value).collect::<Option<_>>()?;
        self.function.call(&EvalContext::plain(), &self.types, &args).ok()
    }
}

/// The type of EXTRACT's result, where that is a whole number and depends on no time zone.
fn extracted(args: &[Expr]) -> Option<ColumnType> {
    let [Expr::Const(Datum::Text(field), _), from] = args else { return None };
    let is_whole =
        matches!(&**field, "year" | "quarter" | "month" | "week" | "day" | "dow" | "doy" | "isodow");
    let is_local = matches!(from.ty(), Type::DATE | Type::TIMESTAMP);
    // numeric(10,0)
    (is_whole && is_local).then_some(ColumnType { ty: Type::NUMERIC, typmod: (10 << 16) + 4 })
}

impl PhysicalExpr for RowCall {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(columns::physical(self.result).unwrap_or(DataType::Null))
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(true)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let arrays =
            self.args.iter().map(|arg| arg.evaluate(batch)?.into_array(rows)).collect::<Result<Vec<_>>>()?;
        // Whatever fails, the row engine says why.
        let failed = || DataFusionError::Execution(format!("{} failed", self.function.name));
        let row = |index| self.row(&arrays, index).map(|value| vec![value]).ok_or_else(failed);
        let values = (0..rows).map(row).collect::<Result<Vec<Row>>>()?;
        let array = columns::array(&values, 0, self.result).map_err(|_| failed())?;
        Ok(ColumnarValue::Array(array))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.args.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, args: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let (function, types, result) = (self.function, self.types.clone(), self.result);
        Ok(Arc::new(RowCall { function, args, types, result }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RowCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", self.function.name, self.args)
    }
}

impl PartialEq for RowCall {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.function, other.function) && self.args == other.args && self.types == other.types
    }
}

impl Eq for RowCall {}

impl Hash for RowCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
        self.args.hash(state);
    }
}
