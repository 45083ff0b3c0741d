//! The pipe as newlogd reads it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use serde_json::Value;
use tokio::io::AsyncWrite;

#[derive(Clone, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    /// All lines, each of which is one object.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        self.objects().iter().map(|it| it["msg"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn of(&self, uuid: &str) -> Vec<String> {
        let all = self.objects();
        all.iter()
            .filter(|it| it["appuuid"] == uuid)
            .map(|it| it["msg"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl AsyncWrite for Said {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
