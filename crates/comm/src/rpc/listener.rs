use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::rpc::Throttle;
use crate::rpc::connection::Connection;

/// The accepted connections of a server, in order, as tonic's `serve_with_incoming` takes them.
pub type Incoming = ReceiverStream<io::Result<Connection>>;

/// The first pause after a failed `accept`. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause, which bounds the delay of connections after the cause of the failure is gone.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The minimum time between log lines about the connection limit.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Accepts at most `max_connections` connections at once; further ones wait in the kernel's queue. A failed `accept` is
/// logged and retried, because it succeeds again when another connection or file is closed.
///
/// **Task.** A spawned task accepts connections until the stream is dropped. It buffers one connection.
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
        let Some(slot) = slot(&slots, || {
            fullness.event(|_| {
                tracing::warn!(
                    name: "connections-in-use", target: "kiln_comm::rpc", address = at, max_connections,
                    "{at}: all {max_connections} connections are in use; further ones wait"
                );
            });
        })
        .await
        else {
            return;
        };
        let (tcp, peer) = accept(&listener, &at).await;
        // Small messages should not be delayed. If the connection is closed already, the first read reports it.
        let _ = tcp.set_nodelay(true);
        if give.send(Ok(Connection::new(tcp, peer, slot))).await.is_err() {
            return;
        }
    }
}

/// Returns a connection slot. If all slots are in use, calls `full` and then waits for a free slot.
async fn slot(slots: &Arc<Semaphore>, full: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
    match Arc::clone(slots).try_acquire_owned() {
        Ok(slot) => return Some(slot),
        Err(TryAcquireError::NoPermits) => full(),
        Err(TryAcquireError::Closed) => return None,
    }
    Arc::clone(slots).acquire_owned().await.ok()
}

/// Accepts the next connection. Logs only the first of consecutive failures, and the recovery.
async fn accept(listener: &TcpListener, at: &str) -> (TcpStream, SocketAddr) {
    let mut pause = None;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                if pause.is_some() {
                    tracing::info!(
                        name: "accept-resumed", target: "kiln_comm::rpc", address = at,
                        "{at}: accepting connections again"
                    );
                }
                return accepted;
            }
            // The other side closed the connection before it was accepted, which is not a failure of this process.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => tokio::task::yield_now().await,
            Err(error) => {
                if pause.is_none() {
                    tracing::warn!(
                        name: "accept-failed", target: "kiln_comm::rpc", address = at, %error,
                        "{at}: cannot accept connections for now, established ones stay open: {error}"
                    );
                }
                let next = pause.map_or(FIRST_PAUSE, |pause: Duration| (pause * 2).min(LAST_PAUSE));
                tokio::time::sleep(next).await;
                pause = Some(next);
            }
        }
    }
}

/// Returns the limit of open files and connections of this process, or `None` if it is unlimited or unknown.
pub fn max_open_files() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // The value `unlimited` does not parse and becomes `None`.
    line.split_whitespace().next()?.parse().ok()
}
