use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;

/// The time within which the other side of a connection must authenticate.
pub const AUTHENTICATE_WITHIN: Duration = Duration::from_secs(5);

/// The time that a connection stays open after a refusal, which lets the other side read the response.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// If the timer fires too late by at least this time, this process was stopped while the timer ran.
const STOPPED: Duration = Duration::from_secs(1);

/// The authentication state of a connection. An [`AuthInterceptor`](crate::rpc::AuthInterceptor) and services find it
/// in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    peer: SocketAddr,
    state: AtomicU8,
}

/// The other side has not authenticated yet: the connection is closed [`AUTHENTICATE_WITHIN`] after its start.
const UNKNOWN: u8 = 0;
/// The connection stays open.
const ADMITTED: u8 = 1;
/// A call was refused: the connection is closed [`AFTER_REFUSAL`] later.
const REFUSED: u8 = 2;

impl Admission {
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self(Arc::new(Shared { peer, state: AtomicU8::new(UNKNOWN) }))
    }

    /// Returns the address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Lets the connection stay open.
    pub fn admit(&self) {
        self.0.state.store(ADMITTED, Ordering::Release);
    }

    /// Closes the connection after the response to this call, unless it was admitted before.
    pub fn refuse(&self) {
        // An admitted connection stays admitted: one wrong call must not end a client's other calls.
        let _ = self.0.state.compare_exchange(UNKNOWN, REFUSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns true if the connection was admitted.
    pub fn is_admitted(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == ADMITTED
    }
}

/// An accepted connection. Reads and writes fail with [`io::ErrorKind::TimedOut`] if the other side has not
/// authenticated in time, for example because it sends nothing, an incomplete TLS handshake, or HTTP/2 settings without
/// a call.
#[derive(Debug)]
pub struct Connection {
    tcp: TcpStream,
    admission: Admission,
    timer: Pin<Box<Sleep>>,
    /// The duration of the timer.
    limit: Duration,
    /// The permit for one of the listener's connections, released on drop.
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    pub(crate) fn new(tcp: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) -> Self {
        let limit = AUTHENTICATE_WITHIN;
        let timer = Box::pin(tokio::time::sleep(limit));
        Self { tcp, admission: Admission::new(peer), timer, limit, _slot: slot }
    }

    /// Fails if the connection was not admitted and its timer has expired. If the timer still runs, it will wake the
    /// task.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.admission.0.state.load(Ordering::Acquire) {
            ADMITTED => return Ok(()),
            // The server writes the response after the refusal, so the write finds this state and restarts the timer.
            REFUSED if self.limit != AFTER_REFUSAL => self.restart(AFTER_REFUSAL),
            _ => {}
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if Instant::now().saturating_duration_since(self.timer.deadline()) < STOPPED {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no authenticated call in time"));
            }
            // This process was stopped, so the other side gets its full time again.
            self.restart(self.limit);
        }
        Ok(())
    }

    fn restart(&mut self, limit: Duration) {
        self.limit = limit;
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}

impl Connected for Connection {
    type ConnectInfo = Admission;

    fn connect_info(&self) -> Admission {
        self.admission.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

/// Writes check the timer, too: if the other side does not read, there may be nothing to read from it either.
impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.tcp).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
