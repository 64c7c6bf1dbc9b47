//! Servers that panic, never respond or break off at the same byte each time: every call ends within its deadline.

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
    LEASE, Link, by_name, config, data, features, hubs, parts, serve, token, write_only_part,
};

/// The deadline of the calls that must fail.
const DEADLINE: Duration = Duration::from_secs(2);

/// How much later than its deadline a call may end on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

/// Runs a call that must end within the deadline with an error, and returns its text. A call that hangs fails the test
/// instead of stopping it.
fn error_in_time<T>(call: impl FnOnce() -> Result<T, String> + Send + 'static) -> String {
    let (done, outcome) = mpsc::channel();
    let started = Instant::now();
    std::thread::spawn(move || {
        let _ = done.send(call().err());
    });
    let outcome = outcome.recv_timeout(DEADLINE + SLACK);
    let error = outcome.unwrap_or_else(|_| panic!("no outcome after {:?}", started.elapsed()));
    error.expect("the call should fail")
}

fn sample(sampler: &DistNeighborSampler, n_seeds: u32) -> Result<(), String> {
    let seeds = Seeds::nodes((0..n_seeds).map(NodeId).collect());
    let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default());
    sampled.map(|_| ()).map_err(|error| error.to_string())
}

/// Rules with a user's `mine`, which calls this for each destination and picks nothing.
fn rules(visit: impl Fn() + Send + Sync + 'static) -> RuleRegistry {
    let rule = move |_: Neighbors<'_>, _: NodeKey, _: u32, _: &mut Selection| visit();
    RuleRegistry::default().register("mine", rule).unwrap()
}

/// A server of all hubs with a rule `mine`, and a client of it.
fn serve_rule(visit: impl Fn() + Send + Sync + 'static) -> (Server, Arc<DistGraph>) {
    let part = parts(&hubs(), 1, |_| 0, None).remove(0);
    let serve = ServeConfig {
        rules: rules(visit),
        n_threads: 1,
        lease: LEASE,
        ..ServeConfig::new("127.0.0.1:0", token())
    };
    let server = Server::start(part, serve).unwrap();
    let connect = ConnectConfig {
        rules: rules(|| ()),
        deadline: DEADLINE,
        ..config(vec![server.address().to_string()])
    };
    let graph = Arc::new(DistGraph::connect(connect).unwrap());
    (server, graph)
}

#[test]
fn a_panicking_rule_is_an_error_that_names_the_server() {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_calls);
    let (server, graph) = serve_rule(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        panic!("the rule's own words");
    });
    let sampler = by_name(Arc::clone(&graph), [1], "mine").unwrap();
    let error = error_in_time(move || sample(&sampler, 20));
    let expected = format!("the graph server {} panicked while it computed a sample", server.address());
    assert!(error.contains(&expected) && error.contains("the rule's own words"), "{error}");
    assert_eq!(n_calls.load(Ordering::SeqCst), 1, "a panic is not retried");
    // Its only thread serves on.
    sample(&DistNeighborSampler::new(graph, [Fanout::UpTo(1)]), 20).unwrap();
}

#[test]
fn a_rule_that_never_returns_ends_the_call_at_its_deadline() {
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let (server, graph) = serve_rule(move || {
        while !until.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let sampler = by_name(graph, [1], "mine").unwrap();
    let error = error_in_time(move || sample(&sampler, 20));
    let expected = format!("the graph server {} (part 0) is lost: a sample", server.address());
    assert!(error.contains(&expected), "{error}");
    let health = Health::ask(server.address().to_string(), token(), None, SLACK).unwrap();
    // The client is gone; the thread is not back yet.
    assert!(health.oldest_request.is_some_and(|age| DEADLINE / 2 < age), "{health:?}");
    is_over.store(true, Ordering::SeqCst);
}

/// One flipped bit makes the edges of two rows end before they start, or far behind the file's end.
#[test]
fn a_damaged_partition_is_an_error_that_names_its_file() {
    let (data, folder) = (hubs(), tempfile::tempdir().unwrap());
    let part_dir = write_only_part(&data, folder.path());
    let path = part_dir.join("indptr.npy");
    // The header has 128 bytes, and a bit of the upper half of the eleventh value is flipped.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[128 + 8 * 10 + 4] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let server = serve(&Arc::new(Part::open(part_dir).unwrap()));
    let connect = ConnectConfig { deadline: DEADLINE, ..config(vec![server.address().to_string()]) };
    let graph = Arc::new(DistGraph::connect(connect).unwrap());
    let first = |_: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| picks.push(0);
    let samplers = [
        // Sampled by the server, and sampled here of lists.
        DistNeighborSampler::new(Arc::clone(&graph), [Fanout::UpTo(1)]),
        DistNeighborSampler::with_config(graph, SamplerConfig::new([1]).with_rule(first)).unwrap(),
    ];
    for sampler in samplers {
        let error = error_in_time(move || sample(&sampler, 20));
        assert!(error.contains(&server.address().to_string()) && error.contains("indptr.npy"), "{error}");
    }
}

/// A response that breaks off at the same byte on every attempt makes no progress, whatever comes before.
#[test]
fn responses_that_break_off_at_the_same_byte_end_at_the_deadline() {
    let wide = data(4000, features(4000, 128));
    let parts = parts(&wide, 1, |_| 0, None);
    let server = serve(&parts[0]);
    let link = Link::to(server.address());
    let connect = ConnectConfig { deadline: DEADLINE, ..config(vec![link.address.to_string()]) };
    let graph = Arc::new(DistGraph::connect(connect.clone()).unwrap());
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
    // In the sources, of which the first chunk has 64 KiB; the numbers of edges and the ids of the first come before.
    link.close_after(70_000);
    is_lost("a sample", error_in_time(move || sample(&named, 4000)));
    is_lost("lists of neighbours", error_in_time(move || sample(&by_lists, 4000)));
    // In the second chunk of rows.
    link.close_after(100_000);
    let ids: Vec<NodeId> = (0..4000).map(NodeId).collect();
    let gathered =
        move || rows.gather(&ids, &mut FeatureBuffer::default()).map_err(|error| error.to_string());
    is_lost("rows of features", error_in_time(gathered));
    // In the first array that a client without a part fetches.
    link.close_after(10_000);
    let connected = move || DistGraph::connect(connect).map(drop).map_err(|error| error.to_string());
    is_lost("an array", error_in_time(connected));
    // Before the end of a short response.
    link.close_after(60);
    let address = link.address.to_string();
    let health = move || Health::ask(address, token(), None, DEADLINE).map_err(|error| error.to_string());
    is_lost("its health", error_in_time(health));
}

/// Requests of clients that have disconnected are neither begun nor finished.
#[test]
fn a_server_stops_working_for_disconnected_clients() {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_calls);
    let part = parts(&data(4000, features(4000, 1)), 1, |_| 0, None).remove(0);
    let visit = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
    };
    let serve = ServeConfig { rules: rules(visit), n_threads: 1, ..ServeConfig::new("127.0.0.1:0", token()) };
    let server = Server::start(part, serve).unwrap();
    let connect = ConnectConfig {
        rules: rules(|| ()),
        deadline: Duration::from_millis(500),
        ..config(vec![server.address().to_string()])
    };
    let sampler = || {
        let graph = Arc::new(DistGraph::connect(connect.clone()).unwrap());
        by_name(graph, [1], "mine").unwrap()
    };
    let samplers = [sampler(), sampler(), sampler()];
    // Each request is 8 s of work for the only thread.
    let requests = samplers.map(|sampler| std::thread::spawn(move || sample(&sampler, 4000).unwrap_err()));
    for request in requests {
        let error = request.join().unwrap();
        assert!(error.contains("is lost"), "{error}");
    }
    // The thread is free again once the group of destinations that it was at is done.
    let started = Instant::now();
    let address = server.address().to_string();
    while Health::ask(&*address, token(), None, SLACK).unwrap().oldest_request.is_some() {
        assert!(started.elapsed() < DEADLINE + SLACK, "{} destinations", n_calls.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(20));
    }
    let n_calls = n_calls.load(Ordering::SeqCst);
    assert!(n_calls < 4000, "{n_calls} destinations of 12000 were sampled for nobody");
}
