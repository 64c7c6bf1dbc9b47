//! Servers that are lost, restarted, replaced by others, or reject a client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_comm::rpc::Token;
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;
use kiln_partition::Part;
use kiln_remote::{
    ConnectConfig, DistFeatureStore, DistGraph, DistNeighborSampler, Error, Health, RuleRegistry, Server,
    ServerError,
};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, SampledBlocks, Scratch, Seeds};

use crate::cluster::{
    Cluster, HANGS, LEASE, Link, addresses, by_name, config, connect_hastily, hubs, parts, serve, serve_at,
    serve_with_lease, token, wait_until,
};

use crate::same::gathered;

const FANOUTS: [Fanout; 2] = [Fanout::UpTo(5); 2];

fn halves() -> Vec<Arc<Part>> {
    parts(&hubs(), 2, |node| node as usize % 2, None)
}

fn step(sampler: &dyn FrontierSampler, step: u64) -> kiln_sample::Result<SampledBlocks> {
    let seeds = (0..20).map(|at| NodeId((step as u32 * 20 + at) % 500)).collect();
    sampler.sample_blocks(&Seeds::nodes(seeds), RngKey::new(step), &mut Scratch::default())
}

/// Requests a sample from the server of partition 1 only, because another one might exceed a short deadline.
fn ask_second(sampler: &dyn FrontierSampler) -> kiln_sample::Result<SampledBlocks> {
    sampler.sample_blocks(&Seeds::nodes(vec![NodeId(1)]), RngKey::new(0), &mut Scratch::default())
}

/// Returns the text of an error of a sampler or a feature store.
fn told(error: &dyn std::error::Error) -> String {
    error.to_string()
}

fn refused(config: ConnectConfig) -> Error {
    DistGraph::connect(config).unwrap_err()
}

#[test]
fn restarted_server_resumes_with_identical_responses() {
    kiln_testkit::recorded_log();
    let (parts, data) = (halves(), hubs());
    let whole = NeighborSampler::new(Arc::clone(data.csc().unwrap()), FANOUTS);
    let first = serve(&parts[0]);
    let mut second = Some(serve(&parts[1]));
    let address = second.as_ref().unwrap().address().to_string();
    let restarted = address.clone();
    let graph = DistGraph::connect(config(vec![first.address().to_string(), address.clone()])).unwrap();
    let (graph, parts_again) = (Arc::new(graph), parts.clone());
    let sampler = DistNeighborSampler::new(Arc::clone(&graph), FANOUTS);
    let features = DistFeatureStore::new(Arc::clone(&graph)).unwrap();
    let restarter = std::thread::spawn(move || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(150));
            drop(second.take());
            std::thread::sleep(Duration::from_millis(150));
            // The port becomes free when the old server's threads have ended. `serve_soon` waits for that.
            second = Some(serve_soon(&address, &parts_again[1]));
        }
        second
    });
    let mut n_steps = 0;
    while !restarter.is_finished() || n_steps < 20 {
        assert!(step(&sampler, n_steps).unwrap() == step(&whole, n_steps).unwrap(), "step {n_steps}");
        let ids: Vec<NodeId> = (0..200).map(|at| NodeId((n_steps as u32 + 3 * at) % 500)).collect();
        assert!(
            gathered(&features, &ids) == gathered(&**data.node_features().unwrap(), &ids),
            "step {n_steps}"
        );
        n_steps += 1;
    }
    let second = restarter.join().unwrap().unwrap();
    // On a loaded machine, the last restart may follow the last of these steps.
    step(&sampler, n_steps).unwrap();
    // Concurrent requests with an unknown lease take a single new lease.
    assert_eq!(second.n_clients(), 1);
    let log = kiln_testkit::recorded_log();
    for name in ["request-retried", "lease-replaced"] {
        let is_logged = log.iter().any(|event| event.name == name && event.text.contains(&restarted));
        assert!(is_logged, "{name}: {log:?}");
    }
}

#[test]
fn health_needs_a_token_but_no_lease() {
    let servers: Vec<Server> = halves().iter().map(serve).collect();
    let addresses = addresses(&servers);
    let ask = |token, within| Health::ask(&addresses[1], token, None, within);
    let Health { part, n_clients, uptime, oldest_request } = ask(token(), HANGS).unwrap();
    assert_eq!((part, n_clients, oldest_request), (1, 0, None));
    let graph = DistGraph::connect(config(addresses.clone())).unwrap();
    let later = ask(token(), HANGS).unwrap();
    assert_eq!(later.n_clients, 1);
    assert!(uptime <= later.uptime);
    drop(graph);
    let error = ask(Token::new("another-word-of-this-test").unwrap(), HANGS).unwrap_err();
    assert!(matches!(error, Error::Server(ServerError::Refused { .. })), "{error}");
    drop(servers);
    let error = ask(token(), Duration::from_secs(2)).unwrap_err();
    assert!(matches!(error, Error::Server(ServerError::PeerLost { .. })), "{error}");
}

fn serve_soon(address: &str, part: &Arc<Part>) -> Server {
    wait_until("the address should be free", || std::net::TcpListener::bind(address).is_ok());
    serve_at(address, part)
}

#[test]
fn rejects_a_server_restarted_with_another_partitioning() {
    let parts = halves();
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let addresses = addresses(&servers);
    let graph = Arc::new(DistGraph::connect(config(addresses.clone())).unwrap());
    let sampler = DistNeighborSampler::new(graph, FANOUTS);
    step(&sampler, 0).unwrap();
    let [first, second] = servers;
    drop(second);
    let others = crate::cluster::parts(&hubs(), 2, |node| usize::from(node < 250), None);
    let _second = serve_soon(&addresses[1], &others[1]);
    let error = told(&step(&sampler, 1).unwrap_err());
    assert!(error.contains("refused the request") && error.contains("another partitioning"), "{error}");
    assert!(error.contains(&addresses[1]), "{error}");
    drop(first);
}

/// A server with another partition would respond with the rows of other nodes.
#[test]
fn rejects_a_server_restarted_with_another_partition() {
    let parts = halves();
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let addresses = addresses(&servers);
    let graph = Arc::new(DistGraph::connect(config(addresses.clone())).unwrap());
    let features = DistFeatureStore::new(graph).unwrap();
    let [_first, second] = servers;
    drop(second);
    let _second = serve_soon(&addresses[1], &parts[0]);
    let error = told(&features.gather(&[NodeId(1)], &mut FeatureBuffer::default()).unwrap_err());
    assert!(error.contains("it holds partition 0, expected partition 1: restart it with"), "{error}");
}

#[test]
fn lost_server_is_an_error_with_its_address_at_the_deadline() {
    let parts = halves();
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let addresses = addresses(&servers);
    let config = ConnectConfig { deadline: Duration::from_secs(1), ..config(addresses.clone()) };
    let graph = connect_hastily(&config);
    let (sampler, features) =
        (DistNeighborSampler::new(Arc::clone(&graph), FANOUTS), DistFeatureStore::new(graph).unwrap());
    let [first, second] = servers;
    drop(second);
    let started = Instant::now();
    let error = told(&ask_second(&sampler).unwrap_err());
    assert!(started.elapsed() < HANGS, "{:?}", started.elapsed());
    let expected = format!("graph server {} (partition 1) is lost: waited ", addresses[1]);
    assert!(error.contains(&expected) && error.contains("for a sample"), "{error}");
    let error = told(&features.gather(&[NodeId(1)], &mut FeatureBuffer::default()).unwrap_err());
    assert!(
        error.contains("(partition 1) is lost: waited ") && error.contains("for feature rows"),
        "{error}"
    );
    drop(first);
}

/// A cut link closes no connection, so both sides detect it by missing keep-alive responses.
#[test]
fn cut_link_is_detected_and_requests_resume_once_it_is_restored() {
    let (parts, whole) = (halves(), NeighborSampler::new(hubs().csc().unwrap().clone(), FANOUTS));
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let link = Link::to(servers[1].address());
    let addresses = vec![servers[0].address().to_string(), link.address.to_string()];
    let patient = DistGraph::connect(config(addresses.clone())).unwrap();
    let hasty = ConnectConfig { deadline: Duration::from_secs(6), ..config(addresses) };
    let hasty = DistNeighborSampler::new(connect_hastily(&hasty), FANOUTS);
    let patient = DistNeighborSampler::new(Arc::new(patient), FANOUTS);
    assert!(step(&patient, 0).unwrap() == step(&whole, 0).unwrap());
    link.cut();
    let waiter = std::thread::spawn(move || (step(&patient, 1), patient));
    let started = Instant::now();
    let error = told(&ask_second(&hasty).unwrap_err());
    println!("the cut link was detected after {:.1} s: {error}", started.elapsed().as_secs_f64());
    assert!(started.elapsed() < HANGS, "{:?}", started.elapsed());
    assert!(error.contains("(partition 1) is lost"), "{error}");
    link.mend();
    let (sampled, patient) = waiter.join().unwrap();
    assert!(
        sampled.unwrap() == step(&whole, 1).unwrap(),
        "a request should succeed if the link is restored before the deadline"
    );
    assert!(step(&patient, 2).unwrap() == step(&whole, 2).unwrap());
}

#[test]
fn rejects_wrong_tokens() {
    let parts = halves();
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let other = Token::new("another-word-of-this-test").unwrap();
    let error = refused(ConnectConfig { token: other, ..config(addresses(&servers)) });
    assert!(error.to_string().contains("refused the request: missing or wrong token"), "{error}");
    assert_eq!(servers[0].n_clients(), 0);
}

#[test]
fn rejects_missing_duplicate_and_foreign_partitions() {
    let parts = halves();
    let others = crate::cluster::parts(&hubs(), 2, |node| usize::from(node < 250), None);
    let servers = [serve(&parts[0]), serve(&parts[0]), serve(&others[1])];
    let of =
        |which: &[usize]| config(which.iter().map(|server| servers[*server].address().to_string()).collect());
    let cases = [
        (of(&[0]), "no server holds partition 1 of 2"),
        (of(&[0, 1]), "both hold partition 0"),
        (of(&[0, 2]), "serve partitions of one partitioning"),
        (of(&[]), "neither a local partition nor a server"),
    ];
    for (config, expected) in cases {
        let error = refused(config).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let nowhere =
        ConnectConfig { join_within: Duration::from_millis(300), ..config(vec!["127.0.0.1:9".to_owned()]) };
    let error = refused(nowhere).to_string();
    assert!(error.contains("127.0.0.1:9 is lost: waited ") && error.contains("for a lease"), "{error}");
    let bad = refused(config(vec!["no address at all".to_owned()])).to_string();
    assert!(bad.contains("expected HOST:PORT"), "{bad}");
}

#[test]
fn clients_renew_their_leases() {
    let parts = halves();
    let servers = [serve(&parts[0]), serve(&parts[1])];
    assert_eq!((servers[0].n_clients(), servers[0].free_for()), (0, None));
    let _graph = DistGraph::connect(config(addresses(&servers))).unwrap();
    // The wait is longer than a lease, so the client has to renew it.
    std::thread::sleep(LEASE + LEASE / 3);
    assert_eq!((servers[0].n_clients(), servers[0].free_for()), (1, None));
}

/// Returns true if the client that `visit` creates and drops soon has no lease of the server of partition 1.
fn ends_its_lease(visit: impl Fn(&[Server])) -> bool {
    // A lease outlasts the test, so that only the client can end it.
    let serve = |part| serve_with_lease("127.0.0.1:0", part, Duration::from_secs(3600));
    let servers: Vec<Server> = halves().iter().map(serve).collect();
    visit(&servers);
    let dropped = Instant::now();
    while servers[1].free_for().is_none() {
        if Duration::from_secs(3) < dropped.elapsed() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    servers[1].n_clients() == 0
}

#[test]
fn clients_end_their_leases() {
    let connects = |servers: &[Server]| {
        let graph = DistGraph::connect(config(addresses(servers))).unwrap();
        assert_eq!((servers[1].n_clients(), servers[1].free_for()), (1, None));
        drop(graph);
    };
    // A client that fails to connect ends its lease, too.
    let fails = |servers: &[Server]| drop(refused(config(vec![addresses(servers)[1].clone()])));
    // A client stops retrying after half a second, in which a server on a loaded machine may not receive the call.
    assert!((0..10).any(|_| ends_its_lease(connects)), "the lease should end with the client");
    assert!((0..10).any(|_| ends_its_lease(fails)), "the lease should end if the client cannot connect");
}

/// All partitions are remote, the limit on in-flight bytes is minimal, and many threads send requests.
#[test]
fn small_in_flight_limit_and_many_threads_give_identical_results() {
    let (parts, data) = (halves(), hubs());
    let whole = NeighborSampler::new(Arc::clone(data.csc().unwrap()), FANOUTS);
    let cluster = Cluster::of(&parts, None, RuleRegistry::default());
    let config = ConnectConfig { in_flight_bytes: 1, n_channels: 1, ..config(addresses(&cluster.servers)) };
    let graph = Arc::new(DistGraph::connect(config).unwrap());
    let (sampler, features) =
        (DistNeighborSampler::new(Arc::clone(&graph), FANOUTS), DistFeatureStore::new(graph).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (sampler, features, whole, data) = (&sampler, &features, &whole, &data);
            scope.spawn(move || {
                for at in 0..10 {
                    let (got, expected) = (step(sampler, 10 * thread + at), step(whole, 10 * thread + at));
                    assert!(got.unwrap() == expected.unwrap());
                    let ids = [1, 2, 3 + thread as u32 * 10 + at as u32].map(NodeId);
                    assert!(gathered(features, &ids) == gathered(&**data.node_features().unwrap(), &ids));
                }
            });
        }
    });
}

#[test]
fn rejects_nodes_out_of_range() {
    let parts = halves();
    let cluster = Cluster::of(&parts, Some(0), RuleRegistry::default());
    let features = DistFeatureStore::new(Arc::clone(&cluster.graph)).unwrap();
    let error = features.gather(&[NodeId(500)], &mut FeatureBuffer::default()).unwrap_err();
    assert!(matches!(error, kiln_feature::Error::NodeOutOfRange { n_rows: 500, .. }), "{error}");
    let sampler = DistNeighborSampler::new(Arc::clone(&cluster.graph), FANOUTS);
    let seeds = Seeds::nodes(vec![NodeId(500)]);
    let error = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err();
    assert!(matches!(error, kiln_sample::Error::SeedOutOfRange { n_nodes: 500, .. }), "{error}");
}

/// The fanout is larger than a server accepts in one request.
#[test]
fn rejects_requests_that_would_take_too_much_memory() {
    let parts = parts(&hubs(), 1, |_| 0, None);
    let server = serve(&parts[0]);
    let graph = Arc::new(DistGraph::connect(config(addresses(std::slice::from_ref(&server)))).unwrap());
    let fanouts = [Fanout::UpTo(u32::MAX)];
    let greedy = by_name(graph, fanouts, "uniform-with-replacement").unwrap();
    let error = told(&step(&greedy, 0).unwrap_err());
    assert!(error.contains("draws in one request, expected at most"), "{error}");
}
