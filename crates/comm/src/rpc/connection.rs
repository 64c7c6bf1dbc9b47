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

/// How long a connection may stay open before the other side has authenticated.
pub const AUTHENTICATE_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection stays open after a refusal, so that the other side reads it.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// A timer that fires later than this by so much was not served, because this process was stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// Whether the other side of a connection may keep it: a value that an [`AuthInterceptor`](crate::rpc::AuthInterceptor)
/// and services find in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    peer: SocketAddr,
    state: AtomicU8,
}

/// Nothing is known of the other side: the connection is closed [`AUTHENTICATE_WITHIN`] its start.
const UNKNOWN: u8 = 0;
/// The connection stays open.
const ADMITTED: u8 = 1;
/// The connection is closed as soon as the refusal was read.
const REFUSED: u8 = 2;

impl Admission {
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self(Arc::new(Shared { peer, state: AtomicU8::new(UNKNOWN) }))
    }

    /// The address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Lets the connection stay open.
    pub fn admit(&self) {
        self.0.state.store(ADMITTED, Ordering::Release);
    }

    /// Closes the connection after the response to this call, unless it was admitted before.
    pub fn refuse(&self) {
        // An admitted one stays admitted: one wrong call does not end a client's other calls.
        let _ = self.0.state.compare_exchange(UNKNOWN, REFUSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the connection was admitted.
    pub fn is_admitted(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == ADMITTED
    }
}

/// An accepted connection, which fails with [`io::ErrorKind::TimedOut`] when the other side has not authenticated in time,
/// whatever it sends or does not: nothing, a TLS handshake that never ends, settings without a call.
#[derive(Debug)]
pub struct Connection {
    tcp: TcpStream,
    admission: Admission,
    timer: Pin<Box<Sleep>>,
    /// How long the timer was set for.
    limit: Duration,
    /// One of the listener's connections, until this is dropped.
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    pub(crate) fn new(tcp: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) -> Self {
        let limit = AUTHENTICATE_WITHIN;
        let timer = Box::pin(tokio::time::sleep(limit));
        Self { tcp, admission: Admission::new(peer), timer, limit, _slot: slot }
    }

    /// Fails where the time of a connection that was not admitted is up; otherwise the task is woken when it will be.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.admission.0.state.load(Ordering::Acquire) {
            ADMITTED => return Ok(()),
            // The response to the refused call is written after the refusal, so that this is not missed.
            REFUSED if self.limit != AFTER_REFUSAL => self.restart(AFTER_REFUSAL),
            _ => {}
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if Instant::now().saturating_duration_since(self.timer.deadline()) < STOPPED {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no authenticated call in time"));
            }
            // It was this process that did not run, not the other side.
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

/// Writing is watched, too: a side that takes nothing may leave a connection with nothing to read.
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
