use kiln_graph::EdgeColumn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kiln_comm::rpc::Token;
use tokio::time::timeout;
use tonic::{Request, Streaming};

use super::*;
use crate::local_part::testing::only_part;
use crate::wire::encoding::bytes_of;
use crate::wire::limits::MAX_EDGES;
use crate::wire::proto::{Chunk, GraphClient};
use crate::{ServeConfig, Server};

/// Starts a server with one thread, and passes two responses of 4 MiB for two clients.
fn with_unread_response(
    lease: Duration,
    then: impl AsyncFnOnce(&Server, Streaming<Chunk>, Streaming<Chunk>),
) {
    let part = only_part(&kiln_data::synthetic::rmat(10, 2, 512, 0).unwrap());
    let token = Token::new("a-word-of-this-test").unwrap();
    let config = ServeConfig { n_threads: 1, lease, ..ServeConfig::new("127.0.0.1:0", token.clone()) };
    let server = Server::start(part, config).unwrap();
    let address = format!("http://{}", server.address());
    let client = || async {
        let endpoint = tonic::transport::Endpoint::from_shared(address.clone()).unwrap();
        let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
        let mut client = GraphClient::with_interceptor(channel, token.clone());
        let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
        let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
        // The response has 4 MiB. The window of the stream (64 KiB) and the server's buffer hold less than that
        // until the client reads.
        let rows = bytes_of((0..2048_u32).map(|at| at % 1024).collect::<Vec<_>>());
        client.gather(Request::new(GatherRequest { lease, rows, node_type: 0 })).await.unwrap().into_inner()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { then(&server, client().await, client().await).await });
}

const WHOLE: (usize, bool) = (2048 * 512 * 4, true);

/// Returns the number of bytes of a response, and true if it is complete.
async fn read(mut response: Streaming<Chunk>) -> (usize, bool) {
    let reading = async {
        let mut n_bytes = 0;
        let mut is_whole = false;
        while let Some(Chunk { data }) = response.message().await.unwrap() {
            n_bytes += data.len();
            is_whole = data.is_empty();
        }
        (n_bytes, is_whole)
    };
    timeout(Duration::from_secs(60), reading).await.unwrap()
}

#[test]
fn a_client_that_does_not_read_leaves_the_only_thread_to_others() {
    // The first response would have the thread for ten minutes.
    with_unread_response(Duration::from_secs(600), async |_, unread, other| {
        assert_eq!(read(other).await, WHOLE);
        // A slow client gets its response, too.
        assert_eq!(read(unread).await, WHOLE);
    });
}

#[test]
fn a_response_that_is_not_read_is_dropped_after_the_timeout() {
    with_unread_response(Duration::from_secs(2), async |server, unread, other| {
        assert_eq!(read(other).await, WHOLE);
        let ended = async {
            while server.service.responder.oldest_request(Instant::now()).is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), ended).await.unwrap();
        // The chunks that were sent before the timeout arrive, but do not look like a complete response.
        let (n_bytes, is_whole) = read(unread).await;
        assert!(n_bytes < WHOLE.0 && !is_whole, "{n_bytes}");
    });
}

/// The thread that waits for the client outlives the server's runtime. It must not panic although the runtime's
/// timers have ended, because a panic in any thread of a rank ends the job.
#[test]
fn dropping_a_server_while_a_response_waits_does_not_panic() {
    static N_PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() == Some("kiln-serve") {
            N_PANICS.fetch_add(1, Ordering::SeqCst);
        }
        before(info);
    }));
    let part = only_part(&kiln_data::synthetic::rmat(10, 2, 512, 0).unwrap());
    let token = Token::new("a-word-of-this-test").unwrap();
    for _ in 0..4 {
        let server =
            Server::start(Arc::clone(&part), ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
        let address = format!("http://{}", server.address());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let unread = runtime.block_on(async {
            let endpoint = tonic::transport::Endpoint::from_shared(address).unwrap();
            let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
            let mut client = GraphClient::with_interceptor(channel, token.clone());
            let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
            let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
            // The response is larger than the buffers, so it waits for the client.
            let rows = bytes_of((0..2048_u32).map(|at| at % 1024).collect::<Vec<_>>());
            client
                .gather(Request::new(GatherRequest { lease, rows, node_type: 0 }))
                .await
                .unwrap()
                .into_inner()
        });
        // During this pause, the server computes the response and starts to wait for the client.
        std::thread::sleep(Duration::from_millis(200));
        drop(server);
        std::thread::sleep(Duration::from_millis(200));
        drop((unread, runtime));
    }
    assert_eq!(N_PANICS.load(Ordering::SeqCst), 0);
}

/// The response to a request of 64 KiB that lists one hub 16,384 times would contain the hub's edges 16,384 times.
#[test]
fn rejects_requests_with_duplicate_rows() {
    let part = only_part(&kiln_data::synthetic::rmat(10, 2, 4, 0).unwrap());
    let token = Token::new("a-word-of-this-test").unwrap();
    let server = Server::start(part, ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
    let address = format!("http://{}", server.address());
    let rows = bytes_of([vec![7_u32, 3], vec![0; MAX_DSTS - 2]].concat());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = GraphClient::with_interceptor(channel, token.clone());
        let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
        let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
        let listed = client
            .list(ListRequest { lease, rows: rows.clone(), ..ListRequest::default() })
            .await
            .unwrap_err();
        let rule = "uniform".to_owned();
        let request = SampleRequest { lease, rows, rule, ..SampleRequest::default() };
        let sampled = client.sample(request).await.unwrap_err();
        for status in [listed, sampled] {
            assert_eq!(status.message(), "duplicate row 0 in one request: list each row once");
        }
    });
}

#[test]
fn rejects_invalid_requests_for_rows_of_edges() {
    let data = kiln_data::synthetic::ring(10).unwrap();
    let n_edges = data.graph.n_edges();
    let rows = EdgeColumn::new(vec![0.0_f32; n_edges as usize], 1).unwrap();
    let with_rows = data.clone().with_edge_column(0, "features", rows).unwrap();
    let too_many = vec![0_u64; MAX_EDGES + 1];
    let rows = |n_rows: usize| bytes_of(vec![0_u32; n_rows]);
    for (data, rows, edges, expected) in [
        (&with_rows, rows(1), bytes_of(vec![0_u8; 9]), "edge ids must have 8 bytes each"),
        (&with_rows, bytes_of(vec![0_u8; 5]), bytes_of(vec![0_u64]), "rows must have 4 bytes each"),
        (&with_rows, rows(2), bytes_of(vec![0_u64]), "2 rows for 1 edges, expected one for each"),
        (
            &with_rows,
            rows(too_many.len()),
            bytes_of(too_many),
            "131073 edges in one request, expected at most 131072",
        ),
        (&with_rows, rows(2), bytes_of(vec![0, n_edges]), "row 0 of partition 0 has no edge 20"),
        (&with_rows, bytes_of(vec![10_u32]), bytes_of(vec![0_u64]), "row 10 of partition 0 has no edge 0"),
        (&data, rows(1), bytes_of(vec![0_u64]), "the partitions have no edge features"),
    ] {
        let token = Token::new("a-word-of-this-test").unwrap();
        let config = ServeConfig::new("127.0.0.1:0", token.clone());
        let server = Server::start(only_part(data), config).unwrap();
        let address = format!("http://{}", server.address());
        let status = tokio::runtime::Runtime::new().unwrap().block_on(async {
            let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
            let mut client = GraphClient::with_interceptor(channel, token);
            let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
            let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
            let column = "features".to_owned();
            match client.gather_edges(GatherEdgesRequest { lease, rows, edges, relation: 0, column }).await {
                Ok(mut response) => response.get_mut().message().await.unwrap_err(),
                Err(status) => status,
            }
        });
        assert!(status.message().contains(expected), "{status}");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
}

/// A client could name relations and node types that the partition does not have.
#[test]
fn rejects_requests_for_relations_and_types_that_do_not_exist() {
    let part = only_part(&kiln_data::synthetic::ring(10).unwrap());
    let token = Token::new("a-word-of-this-test").unwrap();
    let server = Server::start(part, ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
    let address = format!("http://{}", server.address());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = GraphClient::with_interceptor(channel, token.clone());
        let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
        let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
        let (rows, rule) = (bytes_of(vec![0_u32]), "uniform".to_owned());
        let request = SampleRequest { lease, rows: rows.clone(), rule, relation: 1, ..Default::default() };
        let sampled = client.sample(request).await.unwrap_err();
        let listed = client
            .list(ListRequest { lease, rows: rows.clone(), relation: u32::MAX, ..Default::default() })
            .await
            .unwrap_err();
        let edges = bytes_of(vec![0_u64]);
        let of_edges =
            GatherEdgesRequest { lease, rows: rows.clone(), edges, relation: 1, column: "features".into() };
        let mut of_edges = client.gather_edges(of_edges).await.unwrap();
        let of_edges = of_edges.get_mut().message().await.unwrap_err();
        let gathered = client.gather(GatherRequest { lease, rows, node_type: 1 }).await.unwrap_err();
        let mut fetched = client.fetch(FetchRequest { lease, array: 0, node_type: 7 }).await.unwrap();
        let fetched = fetched.get_mut().message().await.unwrap_err();
        let mut keys = client.fetch(FetchRequest { lease, array: 5, node_type: 0 }).await.unwrap();
        let keys = keys.get_mut().message().await.unwrap_err();
        for (status, expected) in [
            (sampled, "there is no relation 1, expected below 1"),
            (listed, "there is no relation 4294967295, expected below 1"),
            (of_edges, "there is no relation 1, expected below 1"),
            (gathered, "there is no node type 1, expected below 1"),
            (fetched, "there is no node type 7, expected below 1"),
            (keys, "the nodes of type 0 have no keys: partition a dataset whose nodes have names"),
        ] {
            assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, expected));
        }
    });
}

/// A client could send any times: too few, rows twice at one time, or a time for all rows besides.
#[test]
fn rejects_invalid_times_of_rows() {
    let n_edges = kiln_data::synthetic::ring(10).unwrap().graph.n_edges();
    let column = EdgeColumn::new((0..n_edges as i64).collect::<Vec<_>>(), 1).unwrap();
    let data = kiln_data::synthetic::ring(10).unwrap().with_edge_column(0, "times", column).unwrap();
    let token = Token::new("a-word-of-this-test").unwrap();
    let server = Server::start(only_part(&data), ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
    let address = format!("http://{}", server.address());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = GraphClient::with_interceptor(channel, token.clone());
        let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
        let lease = client.open(request).await.unwrap().into_inner().lease.unwrap().id;
        let times = |times: Bytes| Some(RowTimes { times, ..RowTimes::default() });
        let of = |rows: Vec<u32>, times: Option<RowTimes>| SampleRequest {
            lease,
            rows: bytes_of(rows),
            rule: "uniform".to_owned(),
            times,
            ..SampleRequest::default()
        };
        let at = |of_rows: Vec<i64>| times(bytes_of(of_rows));
        let both = SampleRequest { before: Some(1), ..of(vec![3], at(vec![7])) };
        let excluded = SampleRequest { excluded: bytes_of(vec![[1, 0_u32]]), ..of(vec![3], at(vec![7])) };
        for (request, expected) in [
            (of(vec![3, 3], at(vec![7])), "8 bytes of times for 2 rows, expected 8 for each row"),
            (of(vec![3], at(vec![7, 8])), "16 bytes of times for 1 rows, expected 8 for each row"),
            (of(vec![3], at(vec![])), "0 bytes of times for 1 rows, expected 8 for each row"),
            (of(vec![3], times(bytes_of(vec![0_u8; 7]))), "7 bytes of times for 1 rows"),
            (of(vec![0; MAX_DSTS + 1], at(vec![0])), "16385 rows in one request, expected at most 16384"),
            (of(vec![10], at(vec![0])), "partition 0 has no row 10, it has 10 rows"),
            (of(vec![3, 4, 3], at(vec![7, 7, 7])), "duplicate row 3 at time 7 in one request"),
            (of(vec![3, 3], None), "duplicate row 3 in one request"),
            (excluded, "an edge to leave out of row 1 of a request for 1 rows"),
            (both, "request only one of both"),
        ] {
            let status = client.sample(request).await.unwrap_err();
            assert!(status.message().contains(expected), "{status}");
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
        let both =
            ListRequest { lease, rows: bytes_of(vec![3_u32]), before: Some(1), times: true, relation: 0 };
        let status = client.list(both).await.unwrap_err();
        assert!(status.message().contains("request only one of both"), "{status}");
        let recent = SampleRequest { rule: "most-recent".to_owned(), ..of(vec![3], None) };
        let status = client.sample(recent).await.unwrap().get_mut().message().await.unwrap_err();
        assert!(status.message().contains("the seeds have no times"), "{status}");
        // Any time and any window are valid, and a row may be at several times.
        let window = Some(u64::MAX);
        let extreme = RowTimes { window, includes_equal: true, ..at(vec![i64::MIN, i64::MAX, 0]).unwrap() };
        let response = client.sample(of(vec![3, 3, 3], Some(extreme))).await.unwrap().into_inner();
        // A row takes 12 bytes, and an edge 8. Row 3 has two edges, with the times 6 and 7.
        assert_eq!(read(response).await, (4 + 3 * 12 + 2 * 8, true));
    });
}

/// Clients of every version report the status code as a refusal, with the message, and do not retry.
#[test]
fn clients_with_another_version_of_the_protocol_are_refused() {
    let token = Token::new("a-word-of-this-test").unwrap();
    let part = only_part(&kiln_data::synthetic::ring(10).unwrap());
    let server = Server::start(part, ServeConfig::new("127.0.0.1:0", token.clone())).unwrap();
    let address = format!("http://{}", server.address());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = GraphClient::with_interceptor(channel, token.clone());
        for protocol in [0, 4, PROTOCOL - 1, PROTOCOL + 1] {
            let request = OpenRequest { protocol, ..OpenRequest::default() };
            let status = client.open(request).await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unimplemented);
            let expected = format!(
                "protocol version {protocol}, expected {PROTOCOL}: use the same version of kiln for clients and servers"
            );
            assert_eq!(status.message(), expected);
        }
        let request = OpenRequest { protocol: PROTOCOL, ..OpenRequest::default() };
        let opened = client.open(request).await.unwrap().into_inner();
        assert_eq!((opened.node_types.len(), opened.relations.len()), (1, 1));
    });
    assert_eq!(server.n_clients(), 1);
}
