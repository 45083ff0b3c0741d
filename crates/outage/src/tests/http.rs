//! Servers of a few answers: a request is read whole, and the connection closed after the answer.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Text(String),
    HangUp,
    /// The client is kept waiting.
    Silence,
}

pub(crate) fn http(code: u16, body: &str) -> Answer {
    let length = body.len();
    Answer::Text(format!("HTTP/1.1 {code} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"))
}

/// Answers one request, head and body.
pub(crate) async fn respond(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(&str, &str) -> Answer,
) {
    let (mut request, mut part) = (String::new(), [0; 1024]);
    let answer = loop {
        let Ok(read @ 1..) = socket.read(&mut part).await else { return };
        request.push_str(&String::from_utf8_lossy(&part[..read]));
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let mut lines = head.lines().map(str::to_ascii_lowercase);
        let length = lines.find_map(|it| it.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break answer(head, body);
        }
    };
    match answer {
        Answer::Text(text) => {
            // A client that has read enough hangs up.
            drop(socket.write_all(text.as_bytes()).await);
            drop(socket.shutdown().await);
        }
        Answer::HangUp => {}
        Answer::Silence => pending().await,
    }
}

/// Answers all requests at `listener`.
pub(crate) async fn serve(
    listener: TcpListener,
    answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static,
) {
    let (answer, mut open) = (Arc::new(answer), JoinSet::new());
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let answer = Arc::clone(&answer);
        while let Some(ended) = open.try_join_next() {
            ended.expect("an answer that cannot be given ends the server too");
        }
        open.spawn(async move { respond(socket, |head, body| answer(head, body)).await });
    }
}

/// The same at this address, port 0 for any; where it is.
pub(crate) async fn server(
    owner: &mut JoinSet<()>,
    at: SocketAddr,
    answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(at).await.unwrap();
    let at = listener.local_addr().unwrap();
    owner.spawn(serve(listener, answer));
    at
}
