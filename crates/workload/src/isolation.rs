//! The isolation level that a workload's transactions ask for.

use clap::ValueEnum;
use tokio_postgres::{Client, Error};

/// What a workload can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// SERIALIZABLE
    Serializable,
    /// READ COMMITTED
    ReadCommitted,
}

impl Level {
    /// Makes it the level of all transactions of a connection.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn set(self, client: &Client) -> Result<(), Error> {
        let level = match self {
            Self::Serializable => "serializable",
            Self::ReadCommitted => "read committed",
        };
        client.batch_execute(&format!("SET default_transaction_isolation = '{level}'")).await
    }
}
