//! A wire between the client and the embedded cluster, on which the first eviction of one pod is answered by a
//! script: whole answers, half ones, and connections that end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) enum How {
    /// These bytes, and the connection stays.
    Say(String),
    /// These bytes, and the end.
    SayAndClose(String),
    Reset,
    Silence,
}

/// What is done to the cluster before the answer is given.
pub(crate) type Meanwhile = Box<dyn Fn() + Send + Sync>;

/// One scripted answer and the record of what was asked about that pod.
pub(crate) struct Script {
    pub(crate) eviction: String,
    pub(crate) how: How,
    pub(crate) meanwhile: Meanwhile,
    pub(crate) wait: Option<Duration>,
    asked: Mutex<Vec<Asked>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) body: String,
    at: Instant,
}

impl Script {
    pub(crate) fn new(eviction: &str, how: How, meanwhile: Meanwhile, wait: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { eviction: eviction.to_owned(), how, meanwhile, wait, asked: Mutex::default() })
    }

    /// What was asked about the pod, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn was_asked_early(&self) -> bool {
        let asked = self.asked();
        let wait = self.wait.unwrap_or_default();
        asked.windows(2).take(1).any(|pair| pair[1].at < pair[0].at + wait)
    }

    /// What the wire does with this request, if it is the one.
    fn meets(&self, request: &str) -> Option<&How> {
        let line = request.lines().next().unwrap_or_default();
        let (method, rest) = line.split_once(' ').unwrap_or_default();
        let pod = self.eviction.trim_end_matches("/eviction");
        let path = rest.split([' ', '?']).next().unwrap_or_default();
        let about = path.ends_with(&self.eviction) || method == "DELETE" && path.ends_with(pod);
        if !about {
            return None;
        }
        let body = request.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        #[expect(clippy::disallowed_methods, reason = "a test is its own door to the clock")]
        let at = Instant::now();
        let mut asked = self.asked.lock().unwrap();
        asked.push(Asked { method: method.to_owned(), body, at });
        (asked.len() == 1).then(|| {
            (self.meanwhile)();
            &self.how
        })
    }
}

pub(crate) fn answer(code: u16, headers: &str, kind: &str, body: &str) -> How {
    let length = body.len();
    How::Say(format!(
        "HTTP/1.1 {code} Scripted\r\ncontent-type: {kind}\r\n{headers}content-length: {length}\r\n\r\n{body}"
    ))
}

/// The wire; it ends when this is dropped.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Wire {
    pub(crate) async fn to(to: SocketAddr, script: Arc<Script>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let script = Arc::clone(&script);
                connections.spawn(async move {
                    // Connections end as they like; what that means is what the tests are about.
                    drop(relay(client, to, &script).await);
                });
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn relay(mut client: TcpStream, to: SocketAddr, script: &Script) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    let (mut asked, mut said) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            count = client.read_buf(&mut asked) => if count? == 0 { return Ok(()) },
            count = server.read_buf(&mut said) => {
                if count? == 0 {
                    return Ok(());
                }
                client.write_all(&said).await?;
                said.clear();
            }
        }
        while let Some(length) = whole(&asked) {
            let request: Vec<u8> = asked.drain(..length).collect();
            match script.meets(&String::from_utf8_lossy(&request)) {
                None => server.write_all(&request).await?,
                Some(How::Say(text)) => client.write_all(text.as_bytes()).await?,
                Some(How::SayAndClose(text)) => return client.write_all(text.as_bytes()).await,
                Some(How::Reset) => return client.set_zero_linger(),
                Some(How::Silence) => {}
            }
        }
    }
}

/// How many bytes the first request has, once it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let head = text.find("\r\n\r\n")? + 4;
    let length = text[..head].lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let all = head + length.unwrap_or(0);
    (bytes.len() >= all).then_some(all)
}
