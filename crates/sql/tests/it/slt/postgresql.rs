//! A database of a real PostgreSQL, for the runner of the suites.

use super::cell;
use super::column::Column;
use super::report::Report;
use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput};
use std::sync::Arc;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// A connection to a database that was made for it.
pub struct PostgreSql {
    client: Option<Client>,
    server: String,
    database: String,
    report: Arc<Report>,
}

async fn connect(parameters: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(parameters, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl PostgreSql {
    /// Makes the database anew and connects to it.
    ///
    /// # Errors
    /// The server's.
    pub async fn connect(server: String, database: String, report: Arc<Report>) -> Result<PostgreSql, Error> {
        let admin = connect(&server).await?;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {database}")).await?;
        admin
            .batch_execute(&format!(
                "CREATE DATABASE {database} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
            ))
            .await?;
        let client = connect(&format!("{server} dbname={database}")).await?;
        client.batch_execute("SET TimeZone = 'UTC'").await?;
        Ok(PostgreSql { client: Some(client), server, database, report })
    }
}

#[async_trait]
impl AsyncDB for PostgreSql {
    type Error = Error;
    type ColumnType = Column;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Column>, Error> {
        self.report.statement();
        let client = self.client.as_ref().expect("connected");
        // Rows are wanted as text, which the simple protocol gives; types only the extended one tells.
        let types: Vec<Column> = client
            .prepare(sql)
            .await?
            .columns()
            .iter()
            .map(|column| Column::of(column.type_().oid()))
            .collect();
        let mut rows = Vec::new();
        let mut changed = 0;
        for message in client.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|index| cell::write(row.get(index))).collect());
                }
                SimpleQueryMessage::CommandComplete(count) => changed = count,
                _ => {}
            }
        }
        match types.is_empty() {
            true => Ok(DBOutput::StatementComplete(changed)),
            false => Ok(DBOutput::Rows { types, rows }),
        }
    }

    async fn shutdown(&mut self) {
        self.client = None;
        if let Ok(admin) = connect(&self.server).await {
            let _ = admin.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.database)).await;
        }
    }

    fn engine_name(&self) -> &str {
        "postgresql"
    }

    fn error_sql_state(error: &Error) -> Option<String> {
        error.code().map(|code| code.code().to_string())
    }
}
