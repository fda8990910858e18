//! Plans made by hand, and what runs them: for tests of the executor that need no SQL.

use async_trait::async_trait;
use kv_client::Txn;
use sql::analytic::EngineChoice;
use sql::catalog::descriptor::*;
use sql::exec::{CancelFlag, ExecContext, ExecHost, MemoryBudget, execute};
use sql::plan::expr::{FrameBound, FrameExclusion, FrameUnits, WindowFrame};
use sql::plan::*;
use sql::table::CodecCache;
use sql_types::functions::{Accumulator, AggregateFunction, EvalContext, Function, Volatility};
use sql_types::{ColumnType, Datum, Oid, Row, SqlError, SqlResult, Type, compare};
use std::sync::Arc;

/// A function over integers.
const fn function(
    name: &'static str,
    args: &'static [Type],
    returns: Type,
    eval: fn(&EvalContext<'_>, &[Datum]) -> SqlResult<Datum>,
) -> Function {
    Function {
        name,
        args,
        variadic: false,
        spreads: false,
        returns,
        strict: true,
        volatility: Volatility::Immutable,
        external: false,
        eval,
        eval_typed: None,
    }
}

const TWO: &[Type] = &[Type::INT4, Type::INT4];

fn int(value: &Datum) -> i32 {
    match value {
        Datum::Int4(value) => *value,
        other => panic!("not an int4: {other:?}"),
    }
}

static EQUAL: Function =
    function("=", TWO, Type::BOOL, |_, args| Ok(Datum::Bool(compare::equal(&args[0], &args[1]))));
static LESS: Function =
    function("<", TWO, Type::BOOL, |_, args| Ok(Datum::Bool(compare::compare(&args[0], &args[1]).is_lt())));
static PLUS: Function =
    function("+", TWO, Type::INT4, |_, args| Ok(Datum::Int4(int(&args[0]) + int(&args[1]))));

/// `left = right`
pub fn equal(left: Expr, right: Expr) -> Expr {
    Expr::Call { function: &EQUAL, args: vec![left, right], ty: Type::BOOL }
}

/// `left < right`
pub fn less(left: Expr, right: Expr) -> Expr {
    Expr::Call { function: &LESS, args: vec![left, right], ty: Type::BOOL }
}

/// `left + right`
pub fn plus(left: Expr, right: Expr) -> Expr {
    Expr::Call { function: &PLUS, args: vec![left, right], ty: Type::INT4 }
}

/// An int4 column.
pub fn column(index: usize) -> Expr {
    Expr::Column(index, Type::INT4)
}

/// An int4 constant.
pub fn number(value: i32) -> Expr {
    Expr::Const(Datum::Int4(value), Type::INT4)
}

/// NULL.
pub fn null() -> Expr {
    Expr::Const(Datum::Null, Type::INT4)
}

struct Count(i64);

impl Accumulator for Count {
    fn add(&mut self, _: &EvalContext<'_>, _: &[Datum]) -> SqlResult<()> {
        self.0 += 1;
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(Datum::Int8(self.0))
    }
}

struct List(Vec<Datum>);

impl Accumulator for List {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        self.0.push(args[0].clone());
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(Datum::array(Type::INT4, self.0.clone()))
    }
}

static COUNT: AggregateFunction = AggregateFunction {
    name: "count",
    args: &[],
    returns: Type::INT8,
    strict: true,
    ordered_set: false,
    direct_args: 0,
    accumulator: |_| Box::new(Count(0)),
};
static ARRAY_AGG: AggregateFunction = AggregateFunction {
    name: "array_agg",
    args: &[Type::INT4],
    returns: Type::INT4_ARRAY,
    strict: false,
    ordered_set: false,
    direct_args: 0,
    accumulator: |_| Box::new(List(Vec::new())),
};

fn aggregate_call(function: &'static AggregateFunction, args: Vec<Expr>) -> AggregateCall {
    AggregateCall { function, args, distinct: false, order: Vec::new(), filter: None, ty: function.returns }
}

/// `count(*)`, or `count(arg)`.
pub fn count(args: Vec<Expr>) -> AggregateCall {
    aggregate_call(&COUNT, args)
}

/// `array_agg(arg)`: shows which rows an aggregate saw, in which order.
pub fn array_agg(arg: Expr) -> AggregateCall {
    aggregate_call(&ARRAY_AGG, vec![arg])
}

/// An ascending sort key with NULLs last.
pub fn ascending(expr: Expr) -> SortKey {
    SortKey { expr, descending: false, nulls_first: false }
}

/// A descending sort key with NULLs first.
pub fn descending(expr: Expr) -> SortKey {
    SortKey { expr, descending: true, nulls_first: true }
}

/// A window frame.
pub fn frame(
    units: FrameUnits,
    start: FrameBound,
    end: FrameBound,
    exclusion: FrameExclusion,
) -> Arc<WindowFrame> {
    Arc::new(WindowFrame { units, start, end, exclusion })
}

/// A plan of some int4 columns.
pub fn plan(kind: PlanKind, width: usize) -> Plan {
    let columns = (0..width).map(|n| PlanColumn::new(format!("c{n}"), Type::INT4)).collect();
    Plan { kind, columns, rows: 1.0, startup: 0.0, cost: 1.0, entries: 1.0 }
}

/// Literal rows; `i32::MIN` stands for NULL.
pub fn values<const N: usize>(rows: &[[i32; N]]) -> Plan {
    let expr = |value: &i32| if *value == i32::MIN { null() } else { number(*value) };
    plan(PlanKind::Values(rows.iter().map(|row| row.iter().map(expr).collect()).collect()), N)
}

/// NULL in [`values`].
pub const NULL: i32 = i32::MIN;

/// A column of a table.
pub fn table_column(id: ColumnId, name: &str, nullable: bool) -> ColumnDescriptor {
    ColumnDescriptor { nullable, ..ColumnDescriptor::plain(id, name, ColumnType::plain(Type::INT4)) }
}

/// An index.
pub fn index(id: IndexId, name: &str, unique: bool, columns: &[ColumnId]) -> IndexDescriptor {
    let mut index: IndexDescriptor = serde_json::from_value(serde_json::json!({
        "id": id, "oid": 20000 + id, "name": name, "unique": unique, "constraint": unique, "columns": []
    }))
    .expect("an index descriptor");
    index.columns = columns.iter().map(|id| (*id, false)).collect();
    index
}

/// A table of int4 columns named `a`, `b`, … of which the first is the primary key.
pub fn table(oid: Oid, name: &str, columns: &[&str]) -> TableDescriptor {
    let columns: Vec<ColumnDescriptor> =
        (1..).zip(columns).map(|(id, name)| table_column(id, name, id != 1)).collect();
    TableDescriptor {
        oid,
        database: 1,
        schema: 2200,
        name: name.to_string(),
        owner: 10,
        version: 1,
        storage: u64::from(oid),
        next_column: columns.len() as u32 + 1,
        columns,
        indexes: vec![index(PRIMARY_INDEX, &format!("{name}_pkey"), true, &[1])],
        next_index: 2,
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        comment: None,
        placement: Default::default(),
        view: None,
        triggers: Vec::new(),
        security: Default::default(),
        on_commit: Default::default(),
        bound: Default::default(),
        statistics: Default::default(),
    }
}

/// A catalog of a few tables.
#[derive(Default)]
pub struct Tables(pub Vec<Arc<TableDescriptor>>);

#[async_trait]
impl ExecHost for Tables {
    async fn system_rows(&self, name: &'static str) -> SqlResult<Vec<Row>> {
        Err(SqlError::internal(name))
    }
    async fn next_value(&self, sequence: Oid) -> SqlResult<i64> {
        Ok(i64::from(sequence))
    }
    async fn set_value(&self, _: Oid, value: i64, _: bool) -> SqlResult<i64> {
        Ok(value)
    }
    async fn call_external(&self, function: &Function, _: &[Datum], _: &EvalContext<'_>) -> SqlResult<Datum> {
        Err(SqlError::internal(function.name))
    }
    fn table(&self, oid: Oid) -> Option<Arc<TableDescriptor>> {
        self.0.iter().find(|table| table.oid == oid).cloned()
    }
    fn referencing(&self, oid: Oid) -> Vec<(Arc<TableDescriptor>, usize)> {
        let mut found = Vec::new();
        for table in &self.0 {
            for (position, key) in table.foreign_keys.iter().enumerate() {
                if key.referenced_table == oid {
                    found.push((table.clone(), position));
                }
            }
        }
        found
    }
    fn schema_name(&self, _: Oid) -> Option<String> {
        Some("public".to_string())
    }
    fn checks(&self, _: &Arc<TableDescriptor>) -> SqlResult<sql::plan::Checks> {
        Ok(Arc::default())
    }
    fn column_default(&self, _: &Arc<TableDescriptor>, _: u32) -> SqlResult<Expr> {
        Ok(number(0))
    }
}

/// What runs plans.
pub struct Runner {
    /// The transaction.
    pub txn: Txn,
    /// The catalog.
    pub host: Tables,
    /// Compiled layouts.
    pub codecs: CodecCache,
    /// Whether statements are transactions of their own.
    pub implicit_commit: bool,
    /// Memory per statement.
    pub memory_bytes: usize,
    /// Which engine runs what.
    pub engine: EngineChoice,
}

impl Runner {
    /// Runs plans in a transaction.
    pub fn new(txn: Txn, tables: Vec<TableDescriptor>) -> Self {
        Runner {
            txn,
            host: Tables(tables.into_iter().map(Arc::new).collect()),
            codecs: CodecCache::new(),
            implicit_commit: false,
            memory_bytes: MemoryBudget::DEFAULT_BYTES,
            engine: EngineChoice::Auto,
        }
    }

    /// A table of the catalog.
    pub fn table(&self, name: &str) -> Arc<TableDescriptor> {
        self.host.0.iter().find(|table| table.name == name).expect("a table").clone()
    }

    /// Runs a plan to its end: its rows as text, and the number of rows changed.
    pub async fn run(&self, plan: Plan, params: &[Datum]) -> SqlResult<(Vec<String>, Option<u64>)> {
        let deferred = sql::dml::deferred::Deferred::default();
        let (eval, memory, cancel) =
            (EvalContext::plain(), MemoryBudget::new(self.memory_bytes), CancelFlag::new());
        let cx = ExecContext {
            txn: &self.txn,
            before: None,
            eval: &eval,
            params,
            host: &self.host,
            codecs: &self.codecs,
            memory: &memory,
            cancel: &cancel,
            stats: None,
            implicit_commit: self.implicit_commit,
            read_only: false,
            deferred: &deferred,
            engine: self.engine,
            partial_aggregates: Default::default(),
        };
        let mut stream = execute(&Arc::new(plan), &cx)?;
        let mut rows = Vec::new();
        while let Some(batch) = stream.next_batch(&cx, 3).await? {
            assert!(batch.len() <= 3 && !batch.is_empty());
            rows.extend(batch.iter().map(|row| shown(row)));
        }
        assert!(stream.next_batch(&cx, 3).await?.is_none(), "a stream that ended stays ended");
        let affected = stream.affected();
        drop(stream);
        assert_eq!(memory.used(), 0, "memory was not given back");
        Ok((rows, affected))
    }

    /// The rows of a plan.
    pub async fn rows(&self, plan: Plan) -> Vec<String> {
        self.run(plan, &[]).await.expect("rows").0
    }

    /// The rows of a plan, sorted.
    pub async fn sorted(&self, plan: Plan) -> Vec<String> {
        let mut rows = self.rows(plan).await;
        rows.sort();
        rows
    }

    /// The error of a plan.
    pub async fn error(&self, plan: Plan) -> SqlError {
        self.run(plan, &[]).await.expect_err("an error")
    }
}

/// A row as text.
pub fn shown(row: &[Datum]) -> String {
    fn value(datum: &Datum) -> String {
        match datum {
            Datum::Null => "-".to_string(),
            Datum::Int4(value) => value.to_string(),
            Datum::Int8(value) => value.to_string(),
            Datum::Bool(value) => value.to_string(),
            Datum::Array(array) => {
                format!("{{{}}}", array.values.iter().map(value).collect::<Vec<_>>().join(","))
            }
            other => format!("{other:?}"),
        }
    }
    row.iter().map(value).collect::<Vec<_>>().join(" ")
}
