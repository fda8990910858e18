//! COPY: between the wire and the engines.

use super::Session;
use super::api::{RowSink, RunOutcome};
use super::host::guarded;
use super::portal::{Portal, Progress};
use super::prepared::{self, CachedPlan};
use super::run::{Environment, read_only};
use super::view::{Times, now_micros};
use crate::bind::{self, Bound, BoundCopy};
use crate::catalog::routine::TriggerDescriptor;
use crate::copy::{CopyColumn, CopyDecoder, CopyEncoder, CopyFormat, CopyOptions, OptionValue};
use crate::ddl::tokens::Cursor;
use crate::exec::{COPY_INPUT, execute, execute_over};
use crate::parse::{self, Statement, StatementKind};
use bytes::{Bytes, BytesMut};
use sql_types::{Row, SqlError, SqlResult, SqlState};
use sqlparser::ast;
use sqlparser::tokenizer::Token;
use std::sync::Arc;
use tokio::time::Instant;

/// Rows written at a time.
const BATCH_ROWS: usize = 2000;

/// A COPY FROM under way.
pub(crate) struct CopyTarget {
    plan: Arc<CachedPlan>,
    decoder: CopyDecoder,
    rows: Vec<Row>,
    count: u64,
    columns: usize,
}

/// A COPY FROM STDIN under way.
pub struct CopyIn<'a> {
    session: &'a mut Session,
    portal: &'a mut Portal,
}

impl Session {
    /// Goes on with a portal that returned [`RunOutcome::CopyIn`].
    ///
    /// # Errors
    /// If the portal has not.
    pub async fn copy_in<'a>(&'a mut self, portal: &'a mut Portal) -> SqlResult<CopyIn<'a>> {
        match portal.progress {
            Progress::CopyIn(_) => Ok(CopyIn { session: self, portal }),
            _ => Err(SqlError::internal("this portal does not copy")),
        }
    }

    /// Starts a COPY.
    pub(super) async fn copy(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
        deadline: Option<Instant>,
    ) -> SqlResult<RunOutcome> {
        let Some(statement) = portal.prepared.statement.clone() else {
            return Err(SqlError::internal("no COPY"));
        };
        let written = Written::read(&statement.text)?;
        let copy_ast = written.statement.sql()?;
        let ast::Statement::Copy { source, .. } = copy_ast else {
            return Err(SqlError::internal("not a COPY"));
        };
        self.enter(None).await?;
        let view = self.view.clone();
        let now = now_micros();
        let eval = view.eval(Times { transaction: now, statement: now });
        let bound =
            bind::bind_copy(copy_ast, Some(&written.statement.source), &view.bind_context(&eval, &[]))?;
        let BoundCopy { plan, columns, from, reads } = bound;
        let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
        let options = CopyOptions::from_list(&written.options, &names, from)?;
        let kind = if from { StatementKind::Copy } else { StatementKind::Query };
        let bound = Bound { plan, param_types: Vec::new(), columns: None, kind, reads };
        let plan = Arc::new(prepared::finish(&view, bound, statement.text.len()));
        if from && self.transaction.as_ref().is_some_and(|open| open.read_only) {
            return Err(read_only("COPY FROM"));
        }
        // It is a statement for each batch of rows: such a trigger would run for each of them.
        let once = |trigger: &TriggerDescriptor| trigger.insert && !trigger.for_row && !trigger.disabled;
        if from && plan.changed.iter().any(|table| table.triggers.iter().any(once)) {
            return Err(SqlError::unsupported("COPY into a table with triggers FOR EACH STATEMENT"));
        }
        let cancel = self.shared.cancel.clone();
        if guarded(&cancel, deadline, self.lock_tables(&plan)).await? {
            self.refresh_view().await?;
            if !plan.is_valid(&self.view) {
                // A table has changed while it was waited for. It cannot again: it is locked.
                return Box::pin(self.copy(portal, sink, deadline)).await;
            }
        }
        guarded(&cancel, deadline, self.admit(&plan)).await?;
        if from {
            let relation = match source {
                ast::CopySource::Table { table_name, .. } => bind::object_name(table_name)?.1,
                ast::CopySource::Query(_) => String::new(),
            };
            return Ok(start_copy_in(portal, plan, relation, columns, options));
        }
        guarded(&cancel, deadline, self.copy_out(portal, plan, columns, options, sink)).await
    }

    async fn copy_out(
        &mut self,
        portal: &mut Portal,
        plan: Arc<CachedPlan>,
        columns: Vec<CopyColumn>,
        options: CopyOptions,
        sink: &mut dyn RowSink,
    ) -> SqlResult<RunOutcome> {
        let binary = options.format == CopyFormat::Binary;
        let count = columns.len();
        let mut encoder = CopyEncoder::new(columns, options);
        let mut chunk = BytesMut::new();
        let view = self.view.clone();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::internal("no transaction"));
        };
        let times = Times { transaction: open.started, statement: now_micros() };
        let environment = Environment {
            view: &view,
            times,
            params: &[],
            memory: &portal.memory,
            implicit_commit: false,
            stats: None,
        };
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        let mut stream = execute(&plan.plan, &cx)?;
        let text = view.text(times.transaction);
        let mut rows = 0u64;
        // The first rows are read before the client is told that data comes, so that errors come first.
        let mut batch = stream.next_batch(&cx, 0).await?;
        sink.copy_out_start(count, binary);
        self.sent = true;
        encoder.start(&mut chunk);
        while let Some(found) = batch {
            for row in &found {
                encoder.row(row, &text, &mut chunk)?;
                rows += 1;
                // A message for each row, as PostgreSQL sends them: clients count on it.
                sink.copy_data(&chunk);
                chunk.clear();
                if sink.is_full() {
                    sink.flush().await?;
                }
            }
            batch = stream.next_batch(&cx, 0).await?;
        }
        encoder.finish(&mut chunk);
        if !chunk.is_empty() {
            sink.copy_data(&chunk);
        }
        sink.copy_out_done();
        open.used = true;
        portal.progress = Progress::Done;
        Ok(RunOutcome::Complete { tag: format!("COPY {rows}") })
    }
}

fn start_copy_in(
    portal: &mut Portal,
    plan: Arc<CachedPlan>,
    relation: String,
    columns: Vec<CopyColumn>,
    options: CopyOptions,
) -> RunOutcome {
    let binary = options.format == CopyFormat::Binary;
    let count = columns.len();
    let decoder = CopyDecoder::new(relation, columns, options);
    let target = CopyTarget { plan, decoder, rows: Vec::new(), count: 0, columns: count };
    let columns = target.columns;
    portal.progress = Progress::CopyIn(Box::new(target));
    RunOutcome::CopyIn { columns, binary }
}

impl CopyIn<'_> {
    /// Takes the next bytes, split anywhere.
    ///
    /// # Errors
    /// What is wrong with them, or why the rows cannot be stored.
    pub async fn data(&mut self, data: Bytes) -> SqlResult<()> {
        let Progress::CopyIn(target) = &mut self.portal.progress else {
            return Err(SqlError::internal("no COPY"));
        };
        let now = self.session.times();
        {
            let eval = self.session.view.eval(now);
            let CopyTarget { decoder, rows, .. } = &mut **target;
            decoder.decode(&data, &eval, rows)?;
        }
        if target.rows.len() < BATCH_ROWS {
            return Ok(());
        }
        let cancel = self.session.shared.cancel.clone();
        guarded(&cancel, None, write(self.session, target, &self.portal.memory)).await
    }

    /// The data is complete: writes the rest and returns the command tag. The transaction is ended by
    /// [`Session::end_implicit`].
    ///
    /// # Errors
    /// As for [`CopyIn::data`].
    pub async fn finish(self) -> SqlResult<String> {
        let Progress::CopyIn(target) = &mut self.portal.progress else {
            return Err(SqlError::internal("no COPY"));
        };
        let now = self.session.times();
        {
            let eval = self.session.view.eval(now);
            let CopyTarget { decoder, rows, .. } = &mut **target;
            decoder.finish(&eval, rows)?;
        }
        let cancel = self.session.shared.cancel.clone();
        guarded(&cancel, None, write(self.session, target, &self.portal.memory)).await?;
        let tag = format!("COPY {}", target.count);
        self.session.note_changes(&target.plan, target.count);
        self.portal.progress = Progress::Done;
        if let Some(open) = &mut self.session.transaction {
            open.used = true;
        }
        Ok(tag)
    }

    /// The client gave up.
    pub async fn fail(self) {
        self.portal.progress = Progress::Done;
    }
}

async fn write(
    session: &mut Session,
    target: &mut CopyTarget,
    memory: &crate::exec::MemoryBudget,
) -> SqlResult<()> {
    if target.rows.is_empty() {
        return Ok(());
    }
    let rows = std::mem::take(&mut target.rows);
    let view = session.view.clone();
    let Some(open) = session.transaction.as_deref_mut() else {
        return Err(SqlError::new(
            SqlState::INVALID_TRANSACTION_STATE,
            "the transaction of the COPY has ended",
        ));
    };
    let environment = Environment {
        view: &view,
        times: Times { transaction: open.started, statement: now_micros() },
        params: &[],
        memory,
        implicit_commit: false,
        stats: None,
    };
    let parts = environment.parts();
    let cx = environment.context(open, &parts);
    let mut stream = execute_over(&target.plan.plan, &cx, COPY_INPUT, rows)?;
    let count = stream.finish(&cx).await.map_err(|error| target.decoder.with_context(error))?;
    target.count += count;
    Ok(())
}

/// A COPY as it is written: its source and target, and its options.
struct Written {
    statement: Statement,
    options: Vec<(String, OptionValue)>,
}

impl Written {
    fn read(text: &str) -> SqlResult<Written> {
        let mut cursor = Cursor::new(text)?;
        let c = &mut cursor;
        c.expect("copy")?;
        let mut options = Vec::new();
        if c.take("binary") {
            options.push(("format".to_string(), OptionValue::Text("binary".into())));
        }
        let start = c.position();
        if c.peek() == Some(&Token::LParen) {
            c.parenthesized()?;
        } else {
            c.name()?;
            if c.peek() == Some(&Token::LParen) {
                c.ident_list()?;
            }
        }
        if c.take_one(&["from", "to"]).is_none() {
            return Err(c.syntax_error());
        }
        if c.take("program") {
            return Err(SqlError::unsupported("COPY with a program"));
        }
        if c.at_string() {
            return Err(SqlError::unsupported("COPY with a file of the server")
                .with_hint("Use COPY FROM STDIN or TO STDOUT; psql's \\copy does."));
        }
        if c.take_one(&["stdin", "stdout"]).is_none() {
            return Err(c.syntax_error());
        }
        let head = format!("COPY {}", c.text(start, c.position()));
        c.take("with");
        if c.take_token(&Token::LParen) {
            loop {
                let name = c.ident()?;
                options.push((name, option_value(c)?));
                if !c.take_token(&Token::Comma) {
                    break;
                }
            }
            c.expect_token(&Token::RParen)?;
        } else {
            while !c.is_end() && !c.at_words("where") {
                legacy_option(c, &mut options)?;
            }
        }
        if c.at_words("where") {
            return Err(SqlError::unsupported("COPY FROM … WHERE"));
        }
        c.expect_end()?;
        Ok(Written { statement: parse::parse_one(&head)?, options })
    }
}

fn option_value(c: &mut Cursor) -> SqlResult<OptionValue> {
    Ok(match c.peek() {
        None | Some(Token::Comma | Token::RParen) => OptionValue::None,
        Some(Token::Mul) => {
            c.advance();
            OptionValue::Star
        }
        Some(Token::LParen) => OptionValue::Names(c.ident_list()?),
        Some(Token::Number(..) | Token::Minus | Token::Plus) => OptionValue::Text(c.number()?),
        Some(Token::Word(_)) => OptionValue::Text(c.ident()?),
        _ => OptionValue::Text(c.string()?),
    })
}

/// An option as PostgreSQL wrote them before version 9.
fn legacy_option(c: &mut Cursor, options: &mut Vec<(String, OptionValue)>) -> SqlResult<()> {
    let columns = |c: &mut Cursor| -> SqlResult<OptionValue> {
        if c.take_token(&Token::Mul) {
            return Ok(OptionValue::Star);
        }
        let mut names = vec![c.ident()?];
        while c.take_token(&Token::Comma) {
            names.push(c.ident()?);
        }
        Ok(OptionValue::Names(names))
    };
    let (name, value) = if let Some(format) = c.take_one(&["binary", "csv"]) {
        ("format", OptionValue::Text(format.into()))
    } else if let Some(flag) = c.take_one(&["header", "freeze"]) {
        (flag, OptionValue::None)
    } else if c.take("force quote") {
        ("force_quote", columns(c)?)
    } else if c.take("force not null") {
        ("force_not_null", columns(c)?)
    } else if c.take("force null") {
        ("force_null", columns(c)?)
    } else if let Some(name) = c.take_one(&["delimiter", "delimiters", "null", "quote", "escape", "encoding"])
    {
        c.take("as");
        let name = if name == "delimiters" { "delimiter" } else { name };
        (name, OptionValue::Text(c.string()?))
    } else if c.take("using delimiters") {
        ("delimiter", OptionValue::Text(c.string()?))
    } else {
        return Err(c.syntax_error());
    };
    options.push((name.to_string(), value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_both_spellings() {
        let written =
            Written::read("COPY t (a, b) FROM STDIN WITH (FORMAT csv, FREEZE on, FORCE_NULL (a), HEADER)");
        let written = written.unwrap().options;
        let text = |text: &str| OptionValue::Text(text.into());
        assert_eq!(
            written,
            [
                ("format".to_string(), text("csv")),
                ("freeze".to_string(), text("on")),
                ("force_null".to_string(), OptionValue::Names(vec!["a".into()])),
                ("header".to_string(), OptionValue::None)
            ]
        );
        let written = Written::read("copy (select 1) to stdout csv header delimiter as ';' force quote *")
            .unwrap()
            .options;
        assert_eq!(written.len(), 4);
        assert_eq!(written[2], ("delimiter".to_string(), text(";")));
        assert!(Written::read("COPY t FROM '/etc/passwd'").is_err());
        assert!(Written::read("COPY t FROM STDIN nonsense").is_err());
    }
}
