//! The output for lines of applications, apart from the agent's own log and its filter.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

#[derive(Clone)]
pub struct Pipe(Arc<Mutex<dyn AsyncWrite + Send + Unpin>>);

impl std::fmt::Debug for Pipe {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Pipe")
    }
}

impl Pipe {
    /// The standard output of this process. The agent's own log is on standard error, so a slow reader of
    /// this one does not delay it.
    pub fn standard_output() -> Self {
        Self::new(tokio::io::stdout())
    }

    pub fn new(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    /// Dropping it leaves a part of `bytes` unwritten.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut writer = self.0.lock().await;
        writer.write_all(bytes).await?;
        writer.flush().await
    }
}
