//! A session over a fresh tenant, to run SQL text as a simple query does.

use crate::support::new_tenant;
use async_trait::async_trait;
use bytes::Bytes;
use kv_client::KvClient;
use sql::engine::{Engine, TenantInfo};
use sql::exec::NodeBudget;
use sql::session::{RowSink, RunOptions, RunOutcome, Session, SessionParams, TextSettings};
use sql_types::context::TextContext;
use sql_types::{Datum, SqlError, SqlResult, Type, text};
use std::sync::Arc;

/// A tenant's database with one session.
pub struct Database {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The session.
    pub session: Session,
}

/// What a statement returned.
#[derive(Debug, Default)]
pub struct Output {
    /// Rows, values separated by `|`, NULL as `NULL`.
    pub rows: Vec<String>,
    /// The command tag.
    pub tag: String,
    /// COPY data.
    pub copied: Vec<u8>,
}

struct Sink {
    types: Vec<Type>,
    text: TextSettings,
    output: Output,
}

#[async_trait]
impl RowSink for Sink {
    fn row(&mut self, row: &[Datum]) -> SqlResult<()> {
        assert_eq!(row.len(), self.types.len(), "a row has other columns than were described");
        // The catalog is the session's, everything else as it is by default.
        let context = TextContext { catalog: self.text.context().catalog, ..TextContext::plain() };
        let value = |(value, ty): (&Datum, &Type)| match value {
            Datum::Null => "NULL".to_string(),
            value => text::to_string(value, *ty, &context),
        };
        let values: Vec<String> = row.iter().zip(&self.types).map(value).collect();
        self.output.rows.push(values.join("|"));
        Ok(())
    }
    fn is_full(&self) -> bool {
        false
    }
    fn copy_out_start(&mut self, _: usize, _: bool) {}
    fn copy_data(&mut self, data: &[u8]) {
        self.output.copied.extend_from_slice(data);
    }
    fn copy_out_done(&mut self) {}
    async fn flush(&mut self) -> SqlResult<()> {
        Ok(())
    }
}

/// Takes rows of any columns.
#[derive(Debug, Default)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<Vec<Datum>>,
}

#[async_trait]
impl RowSink for Rows {
    fn row(&mut self, row: &[Datum]) -> SqlResult<()> {
        self.rows.push(row.to_vec());
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

/// Opens a session of the initial role.
pub async fn session(engine: &Arc<Engine>) -> Session {
    session_with(engine, &[]).await
}

/// Opens a session of the initial role with settings, as a startup packet has them.
pub async fn session_with(engine: &Arc<Engine>, settings: &[(&str, &str)]) -> Session {
    let params = SessionParams {
        user: "dormouse".into(),
        database: "postgres".into(),
        settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..SessionParams::default()
    };
    Session::open(engine.clone(), params).await.expect("a session")
}

/// The tenant whose keys a client reads and writes.
pub fn tenant_of(kv: &KvClient) -> TenantInfo {
    TenantInfo {
        id: kv.tenant().0,
        name: "app".into(),
        owner_role: "dormouse".into(),
        owner_verifier: "SCRAM-SHA-256$4096:x$x:x".into(),
    }
}

/// An engine of the tenant whose keys a client reads and writes.
pub async fn engine_of(kv: Arc<KvClient>, memory: Arc<NodeBudget>) -> Arc<Engine> {
    let tenant = tenant_of(&kv);
    Engine::open_within(kv, tenant, memory).await.expect("an engine")
}

impl Database {
    /// A fresh tenant.
    pub async fn open() -> Database {
        Self::open_within(NodeBudget::new(NodeBudget::DEFAULT_BYTES, None)).await
    }

    /// The same, whose statements use memory within a budget.
    pub async fn open_within(memory: Arc<NodeBudget>) -> Database {
        Self::of(Arc::new(new_tenant()), memory).await
    }

    /// The database of the tenant whose keys a client reads and writes.
    pub async fn of(kv: Arc<KvClient>, memory: Arc<NodeBudget>) -> Database {
        let engine = engine_of(kv, memory).await;
        let session = session(&engine).await;
        Database { engine, session }
    }

    /// Runs statements as one simple query; the output of the last.
    pub async fn run(&mut self, text: &str) -> SqlResult<Output> {
        run(&mut self.session, text, &[]).await
    }

    /// Runs statements that must succeed.
    pub async fn execute(&mut self, text: &str) -> Output {
        self.run(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    /// The rows of a query.
    pub async fn rows(&mut self, text: &str) -> Vec<String> {
        self.execute(text).await.rows
    }

    /// The error of statements that must fail.
    pub async fn error(&mut self, text: &str) -> SqlError {
        match self.run(text).await {
            Ok(output) => panic!("{text}: {output:?}"),
            Err(error) => error,
        }
    }

    /// Copies data in, in chunks of `chunk` bytes.
    pub async fn copy(&mut self, text: &str, data: &[u8], chunk: usize) -> SqlResult<String> {
        let result = copy(&mut self.session, text, data, chunk).await;
        if result.is_err() {
            self.session.fail();
        }
        self.session.end_implicit(result.is_ok()).await?;
        result
    }
}

async fn copy(session: &mut Session, text: &str, data: &[u8], chunk: usize) -> SqlResult<String> {
    let prepared = session.prepare_text(text, &[]).await?;
    let mut portal = session.bind(&prepared, Vec::new()).await?;
    let mut sink = Sink { types: Vec::new(), text: session.text_settings(), output: Output::default() };
    let outcome = session.run(&mut portal, 0, RunOptions::default(), &mut sink).await?;
    assert!(matches!(outcome, RunOutcome::CopyIn { .. }), "{outcome:?}");
    let mut copy_in = session.copy_in(&mut portal).await?;
    for part in data.chunks(chunk) {
        copy_in.data(Bytes::copy_from_slice(part)).await?;
    }
    copy_in.finish().await
}

/// Runs statements with parameters in a session as one simple query.
pub async fn run(session: &mut Session, text: &str, params: &[Datum]) -> SqlResult<Output> {
    let result = run_all(session, text, params).await;
    if result.is_err() {
        session.fail();
    }
    session.end_implicit(result.is_ok()).await?;
    result
}

async fn run_all(session: &mut Session, text: &str, params: &[Datum]) -> SqlResult<Output> {
    let statements = session.parse(text)?;
    let mut output = Output::default();
    let count = statements.len();
    for (position, statement) in statements.into_iter().enumerate() {
        let prepared = session.prepare(statement, &[]).await?;
        let types = prepared.columns().unwrap_or_default().iter().map(|column| column.ty.ty).collect();
        let mut portal = session.bind(&prepared, params.to_vec()).await?;
        let mut sink = Sink { types, text: session.text_settings(), output: Output::default() };
        let options = RunOptions { commit_after: position + 1 == count };
        let outcome = session.run(&mut portal, 0, options, &mut sink).await?;
        output = sink.output;
        if let RunOutcome::Complete { tag } = outcome {
            output.tag = tag;
        }
    }
    Ok(output)
}
