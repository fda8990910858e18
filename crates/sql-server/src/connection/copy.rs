//! COPY FROM STDIN: the messages between CopyInResponse and CopyDone.

use super::Connection;
use super::io::ConnectionError;
use crate::protocol::frontend::Frontend;
use crate::protocol::{ProtocolError, backend};
use sql::session::Portal;
use sql_types::{SqlError, SqlState};
use tokio::io::{AsyncRead, AsyncWrite};

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    /// Receives the data of a COPY. After an error of ours the client is told at once; what it still
    /// sends of the data is skipped by the main loop.
    pub(super) async fn copy_in(
        &mut self,
        portal: &mut Portal,
        columns: usize,
        binary: bool,
    ) -> Result<Result<(), SqlError>, ConnectionError> {
        backend::copy_response(&mut self.output.buffer, true, binary, columns);
        self.output.flush().await?;
        let mut copy = match self.session.copy_in(portal).await {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            match self.input.message().await? {
                Frontend::CopyData(data) => {
                    if let Err(error) = copy.data(data).await {
                        return Ok(Err(error));
                    }
                }
                Frontend::CopyDone => match copy.finish().await {
                    Ok(tag) => {
                        self.complete(&tag);
                        return Ok(Ok(()));
                    }
                    Err(error) => return Ok(Err(error)),
                },
                Frontend::CopyFail(reason) => {
                    copy.fail().await;
                    let message = format!("COPY from stdin failed: {reason}");
                    return Ok(Err(SqlError::new(SqlState::QUERY_CANCELED, message)));
                }
                // Allowed by the protocol, without meaning during COPY.
                Frontend::Flush | Frontend::Sync => {}
                _ => {
                    copy.fail().await;
                    return Err(ProtocolError::new("unexpected message type during COPY from stdin").into());
                }
            }
        }
    }
}
