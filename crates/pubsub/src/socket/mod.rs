//! The one door to sockets: whole records (SOCK_SEQPACKET) between processes of this machine, at a path.
//!
//! Not here: what a record means, and which peer gets it.

pub(crate) mod feed;
pub(crate) mod peer;
pub mod record;
pub(crate) mod removed;
pub(crate) mod server;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, shutdown, socket_with,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::runtime::Handle;

use crate::Error;
use crate::watch::number;

/// Limit of the kernel.
const PATH_LIMIT_BYTES: usize = 107;
/// Connections that the kernel queues.
const BACKLOG: i32 = 128;

/// What is at the path of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketState {
    Nothing,
    /// Left by a dead publisher.
    Stale,
    Live,
}

/// Errors: at `path` is something else than a socket, a link included, or it cannot be read.
pub(crate) fn probe(path: &Path) -> Result<SocketState, Error> {
    let kind = match fs::symlink_metadata(path) {
        Ok(seen) => seen.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SocketState::Nothing),
        Err(error) => return Err(Error::io("look at", path)(error)),
    };
    if !kind.is_socket() {
        let reason = "it is no socket; remove it".to_owned();
        return Err(Error::Refused { path: path.to_owned(), reason });
    }
    let socket = socket().map_err(Error::io("connect to", path))?;
    match connect(&socket, &address(path)?) {
        // A full queue, or a socket of another kind, has a listener as well.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(SocketState::Live),
        Err(Errno::CONNREFUSED) => Ok(SocketState::Stale),
        Err(Errno::NOENT) => Ok(SocketState::Nothing),
        Err(error) => Err(Error::io("connect to", path)(error.into())),
    }
}

#[derive(Debug)]
pub(crate) struct SocketListener {
    socket: UnixDatagram,
    /// File system and inode number.
    number: Option<(u64, u64)>,
    closed: AtomicBool,
}

impl SocketListener {
    /// Listens at `path`, where nothing exists. Errors: the path is too long, its directory is missing, or no
    /// runtime is there to wait with.
    pub(crate) fn bind(path: &Path) -> Result<Self, Error> {
        let fault = || Error::io("listen at", path);
        Handle::try_current().map_err(|error| fault()(io::Error::other(error)))?;
        let (socket, address) = (socket().map_err(fault())?, address(path)?);
        bind(&socket, &address).map_err(|error| fault()(error.into()))?;
        listen(&socket, BACKLOG).map_err(|error| fault()(error.into()))?;
        let socket = awaited(socket).map_err(fault())?;
        Ok(Self { socket, number: number(path), closed: AtomicBool::new(false) })
    }

    pub(crate) fn is_at(&self, path: &Path) -> bool {
        number(path) == self.number
    }

    /// The next connection; `None` once [`SocketListener::close`] was called. Dropping it loses nothing.
    pub(crate) async fn accept(&self) -> io::Result<Option<Link>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = || match accept_with(&self.socket, flags) {
            Ok(socket) => Ok(Some(socket)),
            // The kernel returns an error and stays readable: the loop would never end.
            Err(_) if self.closed.load(Ordering::Acquire) => Ok(None),
            Err(error) => Err(error.into()),
        };
        loop {
            return match self.socket.async_io(Interest::READABLE, accept).await {
                Ok(Some(socket)) => awaited(socket).map(|socket| Some(Link(socket))),
                Ok(None) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Stops listening: new connections are refused, also while the waiting task lives on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Err(error) = shutdown(&self.socket, Shutdown::Both) {
            tracing::debug!(%error, "cannot close a socket before its task ends");
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link(UnixDatagram);

impl Link {
    pub(crate) fn connect(path: &Path) -> Result<Self, Error> {
        let fault = || Error::io("connect to", path);
        let socket = socket().map_err(fault())?;
        connect(&socket, &address(path)?).map_err(|error| fault()(error.into()))?;
        awaited(socket).map(Self).map_err(fault())
    }

    /// Sends one record, once there is room. Dropping it has sent the whole record or nothing.
    /// Errors: the other side is gone, or the record is longer than the kernel takes.
    pub(crate) async fn send(&self, record: &[u8]) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        self.0.async_io(Interest::WRITABLE, || Ok(send(&self.0, record, flags)?)).await.map(drop)
    }

    /// Receives one record into `buffer`; its whole length, also when it did not fit. 0 once the other side is
    /// gone. Dropping it loses nothing.
    pub(crate) async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
        let received = self.0.async_io(Interest::READABLE, || Ok(recv(&self.0, &mut *buffer, flags)?));
        received.await.map(|(_, length)| length)
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The socket, registered with the runtime. The type serves any socket of whole messages; its own send and
/// receive are not used.
fn awaited(socket: OwnedFd) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(socket.into())
}

fn address(path: &Path) -> Result<SocketAddrUnix, Error> {
    match SocketAddrUnix::new(path) {
        Ok(address) => Ok(address),
        Err(Errno::NAMETOOLONG) => {
            let bytes = path.as_os_str().len();
            Err(Error::SocketPath { path: path.to_owned(), bytes, limit: PATH_LIMIT_BYTES })
        }
        Err(error) => Err(Error::io("listen at", path)(error.into())),
    }
}
