//! Servers that panic, never respond or disconnect at the same byte each time: every call ends within its deadline.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;
use kiln_partition::Part;
use kiln_remote::{
    ConnectConfig, DistFeatureStore, DistGraph, DistNeighborSampler, Health, RuleRegistry, ServeConfig,
    Server,
};
use kiln_sample::{
    Fanout, FrontierSampler, Neighbors, NodeKey, RngKey, SamplerConfig, Scratch, Seeds, Selection,
};

use crate::cluster::{
    HANGS, LEASE, Link, by_name, config, connect_hastily, data, features, hubs, parts, serve, token,
    wait_until, write_only_part,
};

/// The deadline of the calls that must fail at it. Calls that must fail earlier have that of [`config`].
const DEADLINE: Duration = Duration::from_secs(2);

/// Runs a call that must fail, and returns the error's text. If the call hangs, the test fails instead of
/// hanging, too.
fn error_in_time<T>(call: impl FnOnce() -> Result<T, String> + Send + 'static) -> String {
    let (done, outcome) = mpsc::channel();
    let started = Instant::now();
    std::thread::spawn(move || {
        let _ = done.send(call().err());
    });
    let outcome = outcome.recv_timeout(2 * HANGS);
    let error = outcome.unwrap_or_else(|_| panic!("the call has not returned after {:?}", started.elapsed()));
    error.expect("the call should fail")
}

fn sample(sampler: &DistNeighborSampler, n_seeds: u32) -> Result<(), String> {
    let seeds = Seeds::nodes((0..n_seeds).map(NodeId).collect());
    let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default());
    sampled.map(|_| ()).map_err(|error| error.to_string())
}

/// A registry with a custom rule `mine`, which calls `visit` for each destination and selects nothing.
fn rules(visit: impl Fn() + Send + Sync + 'static) -> RuleRegistry {
    let rule = move |_: Neighbors<'_>, _: NodeKey, _: u32, _: &mut Selection| visit();
    RuleRegistry::default().register("mine", rule).unwrap()
}

/// Starts a server of the graph of hubs with a rule `mine`. Returns it with the configuration of a client.
fn serve_rule(visit: impl Fn() + Send + Sync + 'static) -> (Server, ConnectConfig) {
    let part = parts(&hubs(), 1, |_| 0, None).remove(0);
    let serve = ServeConfig {
        rules: rules(visit),
        n_threads: 1,
        lease: LEASE,
        ..ServeConfig::new("127.0.0.1:0", token())
    };
    let server = Server::start(part, serve).unwrap();
    let connect = ConnectConfig { rules: rules(|| ()), ..config(vec![server.address().to_string()]) };
    (server, connect)
}

#[test]
fn panicking_rule_is_an_error_with_the_server_and_the_message() {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_calls);
    let (server, connect) = serve_rule(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        panic!("message of the rule");
    });
    let graph = Arc::new(DistGraph::connect(connect).unwrap());
    let sampler = by_name(Arc::clone(&graph), [1], "mine").unwrap();
    let error = error_in_time(move || sample(&sampler, 20));
    let expected = format!("graph server {} panicked while computing a sample", server.address());
    assert!(error.contains(&expected) && error.contains("message of the rule"), "{error}");
    assert_eq!(n_calls.load(Ordering::SeqCst), 1, "a panic should not be retried");
    // The server's only thread is still usable.
    sample(&DistNeighborSampler::new(graph, [Fanout::UpTo(1)]), 20).unwrap();
}

#[test]
fn rule_that_never_returns_fails_at_the_deadline() {
    let (has_begun, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, until) = (Arc::clone(&has_begun), Arc::clone(&is_over));
    let (server, connect) = serve_rule(move || {
        begun.store(true, Ordering::SeqCst);
        while !until.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let graph = connect_hastily(&ConnectConfig { deadline: DEADLINE, ..connect });
    let call = || {
        let sampler = by_name(Arc::clone(&graph), [1], "mine").unwrap();
        error_in_time(move || sample(&sampler, 20))
    };
    // On a loaded machine, the deadline may pass before the server has begun.
    let error = (0..20).map(|_| call()).find(|_| has_begun.load(Ordering::SeqCst));
    let error = error.expect("the server should begin to sample");
    let expected = format!("graph server {} (partition 0) is lost: waited ", server.address());
    assert!(error.contains(&expected) && error.contains("for a sample"), "{error}");
    // The client has disconnected, but its request still occupies the thread.
    wait_until("the request should grow old", || {
        let health = Health::ask(server.address().to_string(), token(), None, HANGS).unwrap();
        health.oldest_request.is_some_and(|age| DEADLINE / 2 < age)
    });
    is_over.store(true, Ordering::SeqCst);
}

/// A flipped bit in `indptr` makes one row's range of edges longer than the file, and the next row's range negative.
#[test]
fn damaged_partition_is_an_error_with_the_file() {
    let (data, folder) = (hubs(), tempfile::tempdir().unwrap());
    let part_dir = write_only_part(&data, folder.path());
    let path = part_dir.join("indptr.npy");
    // The header has 128 bytes. The flipped bit is in the upper half of the eleventh value.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[128 + 8 * 10 + 4] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let server = serve(&Arc::new(Part::open(part_dir).unwrap()));
    let graph = Arc::new(DistGraph::connect(config(vec![server.address().to_string()])).unwrap());
    let first = |_: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| picks.push(0);
    let samplers = [
        // The server samples for the first sampler; the second one samples neighbour lists on the client.
        DistNeighborSampler::new(Arc::clone(&graph), [Fanout::UpTo(1)]),
        DistNeighborSampler::with_config(graph, SamplerConfig::new([1]).with_rule(first)).unwrap(),
    ];
    for sampler in samplers {
        let error = error_in_time(move || sample(&sampler, 20));
        assert!(error.contains(&server.address().to_string()) && error.contains("indptr.npy"), "{error}");
    }
}

/// A response that fails at the same byte on every attempt makes no progress, regardless of the bytes before.
#[test]
fn responses_that_fail_at_the_same_byte_fail_at_the_deadline() {
    let wide = data(4000, features(4000, 128));
    let parts = parts(&wide, 1, |_| 0, None);
    let server = serve(&parts[0]);
    let link = Link::to(server.address());
    let connect = ConnectConfig { deadline: DEADLINE, ..config(vec![link.address.to_string()]) };
    let graph = connect_hastily(&connect);
    let first = |_: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| picks.push(0);
    let named = DistNeighborSampler::new(Arc::clone(&graph), [Fanout::All]);
    let by_lists =
        DistNeighborSampler::with_config(Arc::clone(&graph), SamplerConfig::new([1]).with_rule(first))
            .unwrap();
    let rows = DistFeatureStore::new(graph).unwrap();
    let is_lost = |what: &str, error: String| {
        assert!(error.contains("is lost") && error.contains(what), "{what}: {error}");
        assert!(error.contains(&link.address.to_string()), "{what}: {error}");
    };
    // The link closes within the first chunk of the sources, which has 64 KiB. In the response, the number of edges of
    // each row and the id of its first edge come before the sources.
    link.close_after(70_000);
    is_lost("a sample", error_in_time(move || sample(&named, 4000)));
    is_lost("neighbour lists", error_in_time(move || sample(&by_lists, 4000)));
    // The link closes within the second chunk of feature rows.
    link.close_after(100_000);
    let ids: Vec<NodeId> = (0..4000).map(NodeId).collect();
    let gathered =
        move || rows.gather(&ids, &mut FeatureBuffer::default()).map_err(|error| error.to_string());
    is_lost("feature rows", error_in_time(gathered));
    // The link closes within the first array that a client without a local partition fetches.
    link.close_after(10_000);
    let connected = move || DistGraph::connect(connect).map(drop).map_err(|error| error.to_string());
    is_lost("an array", error_in_time(connected));
    // The link closes within the response with the health, which is short.
    link.close_after(60);
    let address = link.address.to_string();
    let health = move || Health::ask(address, token(), None, DEADLINE).map_err(|error| error.to_string());
    is_lost("its health", error_in_time(health));
}

/// Waiting requests of disconnected clients are dropped, and the running one is stopped.
#[test]
fn requests_of_disconnected_clients_are_cancelled() {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_calls);
    let part = parts(&data(4000, features(4000, 1)), 1, |_| 0, None).remove(0);
    let visit = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(4));
    };
    let serve = ServeConfig { rules: rules(visit), n_threads: 1, ..ServeConfig::new("127.0.0.1:0", token()) };
    let server = Server::start(part, serve).unwrap();
    let connect = ConnectConfig {
        rules: rules(|| ()),
        deadline: Duration::from_millis(500),
        ..config(vec![server.address().to_string()])
    };
    let sampler = || by_name(connect_hastily(&connect), [1], "mine").unwrap();
    let samplers = [sampler(), sampler(), sampler()];
    // The server's only thread needs 16 s for each request.
    let requests = samplers.map(|sampler| std::thread::spawn(move || sample(&sampler, 4000).unwrap_err()));
    for request in requests {
        let error = request.join().unwrap();
        assert!(error.contains("is lost"), "{error}");
    }
    // The thread is free again when it has sampled the current group of destinations.
    wait_until("the thread should be free", || {
        let health = Health::ask(server.address().to_string(), token(), None, HANGS).unwrap();
        health.oldest_request.is_none()
    });
    let n_calls = n_calls.load(Ordering::SeqCst);
    assert!(n_calls < 4000, "{n_calls} of 12000 destinations were sampled for disconnected clients");
}
