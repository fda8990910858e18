//! [`Statements`]: how the body of a function runs SQL.

use crate::bind::Variables;
use crate::exec::{MemoryBudget, Reservation};
use crate::parse::{self, Statement, StatementKind};
use crate::plan::PlanColumn;
use crate::session::Notice;
use async_trait::async_trait;
use sql_types::{ColumnType, Datum, Row, SqlResult, Type};
use sqlparser::ast::DataType;
use std::sync::Arc;

/// A statement of a body, or the query `SELECT expression`.
#[derive(Clone, Debug)]
pub struct Sql {
    pub(crate) statement: Arc<Statement>,
    /// The name, if the expression is nothing but one.
    pub(crate) name: Option<String>,
}

impl Sql {
    /// A statement.
    ///
    /// # Errors
    /// 42601, without a position: it would not be one in the text that the client knows.
    pub(crate) fn statement(text: &str) -> SqlResult<Sql> {
        let statement = parse::parse_one(text).map_err(without_position)?;
        Ok(Sql { statement: Arc::new(statement), name: None })
    }

    /// An expression.
    ///
    /// # Errors
    /// As for [`Sql::statement`].
    pub(crate) fn expression(text: &str) -> SqlResult<Sql> {
        let word = text.trim();
        let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let name = (plain && !word.is_empty()).then(|| word.to_ascii_lowercase());
        Ok(Sql { name, ..Sql::statement(&format!("SELECT {text}"))? })
    }
}

impl Sql {
    /// What a variable is after an assignment to an element of it, which is given as it would be read.
    ///
    /// # Errors
    /// As for [`Sql::statement`].
    pub(crate) fn assigned(element: &str, value: &str) -> SqlResult<Sql> {
        let statement = parse::parse_assigned(element, value).map_err(without_position)?;
        Ok(Sql { statement: Arc::new(statement), name: None })
    }
}

/// Takes the position out of an error.
pub(crate) fn without_position(mut error: sql_types::SqlError) -> sql_types::SqlError {
    if error.extra.is_some() {
        error.extra_mut().position = None;
    }
    error
}

/// What a statement answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Columns of the rows; `None` if the statement returns none.
    pub columns: Option<Arc<[PlanColumn]>>,
    pub rows: Vec<Row>,
    /// Rows changed or returned.
    pub affected: u64,
    pub kind: StatementKind,
    /// What the rows take.
    pub memory: Reservation,
}

/// Names and types of columns.
pub(crate) type Columns = Vec<(Arc<str>, ColumnType)>;

impl Answer {
    /// That of a statement that gives nothing.
    pub(crate) fn nothing(kind: StatementKind) -> Answer {
        Answer { columns: None, rows: Vec::new(), affected: 0, kind, memory: Reservation::default() }
    }
}

/// How the body of a function runs SQL.
#[async_trait]
pub(crate) trait Statements: Send {
    /// Runs a statement for at most `most` rows (0: all).
    async fn run(
        &mut self,
        statement: &Arc<Statement>,
        variables: &Arc<Variables>,
        values: Vec<Datum>,
        most: usize,
    ) -> SqlResult<Answer>;

    /// A value in another type, as an assignment converts it.
    fn convert(&self, value: Datum, from: Type, to: ColumnType) -> SqlResult<Datum>;

    /// A value as text.
    fn show(&self, value: &Datum, ty: Type) -> String;

    /// The type a name stands for.
    fn named_type(&self, ty: &DataType) -> SqlResult<ColumnType>;

    /// The columns of a table or view; `None` if there is none of the name.
    fn relation(&self, schema: Option<&str>, name: &str) -> SqlResult<Option<Columns>>;

    /// Tells the client.
    fn notice(&self, notice: Notice);

    /// What the statement may use.
    fn memory(&self) -> &MemoryBudget;

    /// A point to go back to.
    fn mark(&mut self) -> SqlResult<Mark>;

    /// Undoes what was done since a point.
    fn back_to(&mut self, mark: &Mark);

    /// Lets others run; fails if the statement was cancelled.
    async fn pause(&self) -> SqlResult<()>;
}

/// A point to go back to.
pub(crate) struct Mark {
    pub kv: kv_client::Savepoint,
    pub deferred: crate::dml::deferred::DeferredMark,
    pub session: Option<SessionMark>,
}

/// What a session goes back to besides.
pub(crate) struct SessionMark {
    pub overlay: Option<Arc<crate::catalog::CatalogSnapshot>>,
    pub temporary: Option<Arc<crate::catalog::temporary::Temporary>>,
    pub statistics: usize,
    pub to_clear: (usize, usize),
}
