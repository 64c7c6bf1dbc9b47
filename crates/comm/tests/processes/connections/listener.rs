use std::future::poll_fn;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::time::{Duration, Instant};

use kiln_comm::rpc::{AUTHENTICATE_WITHIN, Connection, Incoming, RpcEndpoint, Token};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_stream::StreamExt;
use tonic::transport::server::Connected;

/// A timeout that no operation of these tests reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// A time shorter than any limit under test.
const MOMENT: Duration = Duration::from_millis(300);

pub(crate) fn rpc_endpoint() -> RpcEndpoint {
    let token = Token::new("a-word-of-this-test").unwrap();
    RpcEndpoint { address: "127.0.0.1:0".to_owned(), token, tls: None }
}

fn listen(max_connections: usize) -> (Incoming, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (rpc_endpoint().incoming(listener, max_connections).unwrap(), address)
}

async fn next(incoming: &mut Incoming) -> Connection {
    tokio::time::timeout(PATIENCE, incoming.next()).await.unwrap().unwrap().unwrap()
}

/// Reads until the connection fails or ends. Returns the error, if there was one, and the time of the end.
async fn end_of(mut connection: Connection) -> (Option<ErrorKind>, Instant) {
    loop {
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        let read = poll_fn(|context| Pin::new(&mut connection).poll_read(context, &mut buffer)).await;
        match read {
            Ok(()) if buffer.filled().is_empty() => return (None, Instant::now()),
            Ok(()) => {}
            Err(error) => return (Some(error.kind()), Instant::now()),
        }
    }
}

/// Sends a byte every 50 ms until the connection fails.
fn drip(mut stream: TcpStream) {
    std::thread::spawn(move || {
        while stream.write_all(b"P").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[tokio::test]
async fn closes_connections_that_do_not_authenticate() {
    let (mut incoming, address) = listen(8);
    let started = Instant::now();
    let _idle_side = TcpStream::connect(address).unwrap();
    let idle = tokio::spawn(end_of(next(&mut incoming).await));
    drip(TcpStream::connect(address).unwrap());
    let dripping = tokio::spawn(end_of(next(&mut incoming).await));
    let refused_side = TcpStream::connect(address).unwrap();
    let refused = next(&mut incoming).await;
    refused.connect_info().refuse();
    let refused = tokio::spawn(end_of(refused));
    let admitted_side = TcpStream::connect(address).unwrap();
    let admitted = next(&mut incoming).await;
    admitted.connect_info().admit();
    // A later wrong call must not close an admitted connection.
    admitted.connect_info().refuse();
    let admitted = tokio::spawn(end_of(admitted));
    let (how, refused_at) = refused.await.unwrap();
    assert_eq!(how, Some(ErrorKind::TimedOut));
    drop(refused_side);
    for (who, stranger) in [("idle", idle), ("dripping", dripping)] {
        let (how, at) = tokio::time::timeout(PATIENCE, stranger).await.unwrap().unwrap();
        assert_eq!(how, Some(ErrorKind::TimedOut), "{who}");
        // The refused connection was the last of the three, and ends first.
        assert!(refused_at < at && AUTHENTICATE_WITHIN <= at - started, "{who}: {:?}", at - started);
    }
    tokio::time::sleep(2 * MOMENT).await;
    assert!(!admitted.is_finished(), "an idle authenticated connection should stay open");
    drop(admitted_side);
    assert_eq!(admitted.await.unwrap().0, None);
}

/// The other side neither sends nor reads, so the server has nothing to read and its writes block.
#[tokio::test]
async fn closes_a_connection_whose_other_side_does_not_read() {
    let (mut incoming, address) = listen(8);
    let _side = TcpStream::connect(address).unwrap();
    let mut connection = next(&mut incoming).await;
    let write = async {
        loop {
            let written =
                poll_fn(|context| Pin::new(&mut connection).poll_write(context, &[0; 1 << 16])).await;
            if let Err(error) = written {
                return error.kind();
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, write).await.unwrap(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn accepts_at_most_max_connections() {
    kiln_testkit::recorded_log();
    let (mut incoming, address) = listen(2);
    let _sides: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (first, second) = (next(&mut incoming).await, next(&mut incoming).await);
    assert!(tokio::time::timeout(MOMENT, incoming.next()).await.is_err(), "the third connection should wait");
    drop(first);
    let _third = next(&mut incoming).await;
    assert!(
        tokio::time::timeout(MOMENT, incoming.next()).await.is_err(),
        "the fourth connection should wait"
    );
    drop(second);
    next(&mut incoming).await;
    let expected = format!("{address}: all 2 connections are in use; further ones wait");
    let logged = kiln_testkit::recorded_log().into_iter().filter(|event| event.text == expected);
    let logged: Vec<_> = logged.map(|event| (event.name, event.place)).collect();
    assert_eq!(logged, [("connections-in-use", "WARN kiln_comm::rpc".to_owned())]);
}

#[tokio::test]
async fn logs_that_other_machines_reach_a_listener_without_tls() {
    kiln_testkit::recorded_log();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(rpc_endpoint().incoming(listener, 1).unwrap());
    let expected = format!("{address} is reachable from other machines without TLS: ");
    let logged = kiln_testkit::recorded_log().into_iter().filter(|event| event.text.starts_with(&expected));
    let logged: Vec<_> = logged.map(|event| (event.name, event.place)).collect();
    assert_eq!(logged, [("no-tls", "WARN kiln_comm::tls".to_owned())]);
}
