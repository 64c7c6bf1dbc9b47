use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::rpc::connection::Connection;
use crate::rpc::{Throttle, log};

/// The connections of a server, in the order in which they came: what tonic's `serve_with_incoming` takes.
pub type Incoming = ReceiverStream<io::Result<Connection>>;

/// The first pause after an `accept` that failed; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause: how late a connection may be that comes when the cause has gone.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// How often it is logged that all connections are in use.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Accepts connections: never more than `max_connections` at once, the others wait in the system's queue. Failures of
/// `accept` are logged and survived, as what ends them is that another connection or file is closed.
///
/// **Task.** It accepts until the stream is dropped, and holds one connection ahead.
pub(crate) fn listen(listener: TcpListener, max_connections: usize) -> Incoming {
    let (give, incoming) = mpsc::channel(1);
    let max_connections = max_connections.clamp(1, Semaphore::MAX_PERMITS);
    tokio::spawn(async move {
        tokio::select! {
            () = give.closed() => {}
            () = accept_all(listener, max_connections, &give) => {}
        }
    });
    ReceiverStream::new(incoming)
}

async fn accept_all(
    listener: TcpListener,
    max_connections: usize,
    give: &mpsc::Sender<io::Result<Connection>>,
) {
    let slots = Arc::new(Semaphore::new(max_connections));
    let at = listener.local_addr().map_or_else(|_| "the listener".to_owned(), |address| address.to_string());
    let fullness = Throttle::new(LOG_EVERY);
    loop {
        let full = || {
            fullness
                .event(|_| format!("{at}: all {max_connections} connections are in use, further ones wait"));
        };
        let Some(slot) = slot(&slots, full).await else { return };
        let (tcp, peer) = accept(&listener, &at).await;
        // Small messages go at once. A connection that is gone already fails when it is read.
        let _ = tcp.set_nodelay(true);
        if give.send(Ok(Connection::new(tcp, peer, slot))).await.is_err() {
            return;
        }
    }
}

/// Room for one connection, as soon as there is some.
async fn slot(slots: &Arc<Semaphore>, full: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
    match Arc::clone(slots).try_acquire_owned() {
        Ok(slot) => return Some(slot),
        Err(TryAcquireError::NoPermits) => full(),
        Err(TryAcquireError::Closed) => return None,
    }
    Arc::clone(slots).acquire_owned().await.ok()
}

/// The next connection. A failure is logged once until a connection was accepted again.
async fn accept(listener: &TcpListener, at: &str) -> (TcpStream, SocketAddr) {
    let mut pause = None;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                if pause.is_some() {
                    log(&format!("{at}: accepts connections again"));
                }
                return accepted;
            }
            // The other side closed it before it was accepted: nothing is wrong here.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => tokio::task::yield_now().await,
            Err(error) => {
                if pause.is_none() {
                    log(&format!("{at}: cannot accept connections for now, established ones go on: {error}"));
                }
                let next = pause.map_or(FIRST_PAUSE, |pause: Duration| (pause * 2).min(LAST_PAUSE));
                tokio::time::sleep(next).await;
                pause = Some(next);
            }
        }
    }
}

/// How many files and connections this process may have open at once, where the system says so.
pub fn max_open_files() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // `unlimited` is no number, and no limit.
    line.split_whitespace().next()?.parse().ok()
}
