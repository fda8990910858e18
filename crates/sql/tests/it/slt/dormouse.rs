//! A session of a fresh tenant, for the runner of the suites.

use super::cell;
use super::column::Column;
use super::report::Report;
use crate::database::{Database, session_with};
use async_trait::async_trait;
use sql::engine::Engine;
use sql::session::{RowSink, RunOptions, RunOutcome, Session, TextSettings};
use sql_types::{Datum, SqlError, SqlResult, Type, text};
use sqllogictest::{AsyncDB, DBOutput};
use std::fmt;
use std::sync::Arc;

/// Where and how a suite is run.
#[derive(Clone)]
pub struct Place {
    /// The setting `engine`.
    pub engine: &'static str,
    /// The setting `partial_aggregates`.
    pub partial_aggregates: &'static str,
    /// Takes the counts.
    pub report: Arc<Report>,
}

/// A tenant's database with one session.
pub struct Dormouse {
    engine: Arc<Engine>,
    session: Session,
    report: Arc<Report>,
}

/// An error of a statement.
#[derive(Debug)]
pub struct Failed(SqlError);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.message)
    }
}

impl std::error::Error for Failed {}

impl Dormouse {
    /// Opens the database of a new tenant.
    ///
    /// # Errors
    /// None: what fails is a panic.
    pub async fn open(place: Place) -> Result<Dormouse, Failed> {
        let engine = Database::open().await.engine;
        let settings =
            [("engine", place.engine), ("partial_aggregates", place.partial_aggregates), ("TimeZone", "UTC")];
        let session = session_with(&engine, &settings).await;
        Ok(Dormouse { engine, session, report: place.report })
    }

    async fn run_text(&mut self, text: &str) -> SqlResult<Rows> {
        let statements = self.session.parse(text)?;
        let count = statements.len();
        let mut rows = Rows::default();
        for (position, statement) in statements.into_iter().enumerate() {
            let prepared = self.session.prepare(statement, &[]).await?;
            let types = prepared.columns().map(|columns| columns.iter().map(|column| column.ty.ty).collect());
            let mut portal = self.session.bind(&prepared, Vec::new()).await?;
            let settings = self.session.text_settings();
            let mut sink = Sink { settings, rows: Rows { types, ..Rows::default() } };
            let options = RunOptions { commit_after: position + 1 == count };
            let outcome = self.session.run(&mut portal, 0, options, &mut sink).await?;
            rows = sink.rows;
            if let RunOutcome::Complete { tag } = outcome {
                rows.changed = tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            }
        }
        Ok(rows)
    }
}

#[async_trait]
impl AsyncDB for Dormouse {
    type Error = Failed;
    type ColumnType = Column;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Column>, Failed> {
        self.report.statement();
        let before = (self.engine.analytic_parts(), self.engine.partial_aggregates());
        let mut result = self.run_text(sql).await;
        if result.is_err() {
            self.session.fail();
        }
        let ended = self.session.end_implicit(result.is_ok()).await;
        if result.is_ok() {
            result = ended.and(result);
        }
        let rows = result.map_err(Failed)?;
        match rows.types {
            Some(types) if !types.is_empty() => {
                let after = (self.engine.analytic_parts(), self.engine.partial_aggregates());
                self.report.query(after.0 > before.0, after.1 > before.1);
                Ok(DBOutput::Rows {
                    types: types.iter().map(|ty| Column::of(ty.0)).collect(),
                    rows: rows.rows,
                })
            }
            _ => Ok(DBOutput::StatementComplete(rows.changed)),
        }
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "dormouse"
    }

    fn error_sql_state(error: &Failed) -> Option<String> {
        Some(error.0.code.as_str().to_string())
    }
}

/// What a statement returned.
#[derive(Default)]
struct Rows {
    /// Types of its columns; `None` if it returns no rows.
    types: Option<Vec<Type>>,
    rows: Vec<Vec<String>>,
    changed: u64,
}

struct Sink {
    settings: TextSettings,
    rows: Rows,
}

#[async_trait]
impl RowSink for Sink {
    fn row(&mut self, row: &[Datum]) -> SqlResult<()> {
        let types = self.rows.types.as_deref().unwrap_or_default();
        assert_eq!(row.len(), types.len(), "a row has other columns than were described");
        let context = self.settings.context();
        let value = |(value, ty): (&Datum, &Type)| match value {
            Datum::Null => cell::write(None),
            value => cell::write(Some(&text::to_string(value, *ty, &context))),
        };
        self.rows.rows.push(row.iter().zip(types).map(value).collect());
        Ok(())
    }
    fn is_full(&self) -> bool {
        false
    }
    fn copy_out_start(&mut self, _: usize, _: bool) {}
    fn copy_data(&mut self, _: &[u8]) {}
    fn copy_out_done(&mut self) {}
    async fn flush(&mut self) -> SqlResult<()> {
        Ok(())
    }
}
