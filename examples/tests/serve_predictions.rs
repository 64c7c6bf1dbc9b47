//! Tests of `serve_predictions`: answers are the library's predictions, invalid requests get errors as JSON, and slow or
//! vanished clients do not disturb others.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kiln::data::{format, synthetic};
use kiln::feature::FeatureBuffer;
use kiln::prelude::*;
use serde_json::{Value, json};

fn trained(folder: &Path) -> (PathBuf, Dataset) {
    trained_on(folder, 10.0)
}

/// Trains for one epoch on a data set that is written to `folder/set`, and returns the run folder and the data.
fn trained_on(folder: &Path, avg_degree: f64) -> (PathBuf, Dataset) {
    let config = synthetic::FakeConfig { avg_num_nodes: 300, avg_degree, seed: 5, ..Default::default() };
    let raw = synthetic::fake(config).unwrap();
    format::write(&raw, folder.join("set")).unwrap();
    let data = raw.clone().standardize().unwrap();
    let loader = NeighborLoader::new(&data, [3, 3]).batch_size(64);
    let (model, out) = (SageConfig::for_data(&data).layers(2).hidden(8), folder.join("run"));
    Trainer::new(model, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(1).out(&out).quiet()).unwrap();
    (out, raw)
}

/// A running server, which is killed when it is dropped.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(folder: &Path, run: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_serve_predictions"));
        command.arg("--run").arg(run).arg("--data").arg(folder.join("set")).args(["--listen", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect(&line).parse().unwrap();
        Self { process, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// Sends a request on a connection of its own, and returns the status and the JSON of the response.
    fn request(&self, head: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = self.connect();
        let head =
            format!("{head}\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // The server may reject a long body before all of it is sent.
        let _ = stream.write_all(body);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8(response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect("the server should respond");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn predict(&self, body: &[u8]) -> (u16, Value) {
        self.request("POST /predict HTTP/1.1\r\nContent-Type: application/json", body)
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn answers_8_clients_with_the_predictions_of_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let (run, raw) = trained(folder.path());
    let server = Server::start(folder.path(), &run);
    let predictor = SavedModel::open(&run).unwrap().on_nodes(&raw).unwrap();
    let nodes: Vec<NodeId> = (0..raw.graph.n_nodes() as u32).map(NodeId).collect();
    let scores = predictor.predict(&nodes, &PredictMode::AsEvaluated).unwrap();
    let classes: Vec<u32> = scores.classes().into_iter().map(Option::unwrap).collect();
    let confidences: Vec<f32> = scores.confidences().into_iter().map(Option::unwrap).collect();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (server, classes, confidences) = (&server, &classes, &confidences);
            scope.spawn(move || {
                for first in 0..20 {
                    let nodes: Vec<usize> =
                        (0..3).map(|i| (first * 13 + client + i) % classes.len()).collect();
                    let (status, answer) = server.predict(json!({ "nodes": nodes }).to_string().as_bytes());
                    assert_eq!(status, 200, "{answer}");
                    for (position, &node) in nodes.iter().enumerate() {
                        let said = &answer["predictions"][position];
                        assert_eq!(said["node"], node);
                        assert_eq!(said["class"], classes[node]);
                        assert_eq!(said["class_name"], classes[node].to_string());
                        assert_eq!(said["probability"].as_f64().unwrap() as f32, confidences[node]);
                    }
                }
            });
        }
    });
    let (status, health) = server.request("GET /health HTTP/1.1", b"");
    assert_eq!((status, health), (200, json!({ "status": "ok", "model": "sage", "nodes": nodes.len() })));
}

/// The model has two layers: the outputs of the damaged node are not finite, and those of nodes that cannot reach it by two
/// edges are those of the undamaged set.
#[test]
fn nodes_without_finite_outputs_have_the_class_null() {
    let folder = tempfile::tempdir().unwrap();
    let (run, raw) = trained_on(folder.path(), 2.0);
    let (n_nodes, dim) = (raw.graph.n_nodes() as u32, raw.node_features().unwrap().dim());
    let neighbors = |node: u32| raw.csc().unwrap().in_neighbors(NodeId(node)).iter().map(|node| node.0);
    let reads_damaged = |node: u32| neighbors(node).any(|one| one == 7 || neighbors(one).any(|two| two == 7));
    let far = (0..n_nodes).find(|&node| node != 7 && !reads_damaged(node)).unwrap();
    let mut rows = FeatureBuffer::empty(raw.node_features().unwrap().dtype());
    raw.node_features().unwrap().gather(&(0..n_nodes).map(NodeId).collect::<Vec<_>>(), &mut rows).unwrap();
    let mut values = rows.into_f32();
    values[7 * dim..8 * dim].fill(f32::NAN);
    // A set with NaN is not written, so another program must have done so.
    let rows = kiln::store::npy::write(&values, &[n_nodes as usize, dim]);
    std::fs::write(folder.path().join("set/features.npy"), rows).unwrap();
    let server = Server::start(folder.path(), &run);
    let (status, answer) = server.predict(json!({ "nodes": [7, far] }).to_string().as_bytes());
    assert_eq!(status, 200, "{answer}");
    let expected = json!({ "node": 7, "class": null, "class_name": null, "probability": null });
    assert_eq!(answer["predictions"][0], expected);
    let predictor = SavedModel::open(&run).unwrap().on_nodes(&raw).unwrap();
    let scores = predictor.predict(&[NodeId(far)], &PredictMode::AsEvaluated).unwrap();
    assert_eq!(answer["predictions"][1]["class"], scores.classes()[0].unwrap());
}

#[test]
fn invalid_requests_get_errors_and_the_server_continues() {
    let folder = tempfile::tempdir().unwrap();
    let (run, raw) = trained(folder.path());
    let server = Server::start(folder.path(), &run);
    let n_nodes = raw.graph.n_nodes();
    let unknown = format!("{{\"nodes\":[{n_nodes}]}}");
    let many = json!({ "nodes": vec![0; 1025] }).to_string();
    let long = json!({ "nodes": vec![100_000; 20_000] }).to_string();
    for (body, expected, text) in [
        (&b"{\"nodes\":"[..], 400, "EOF"),
        (b"\xff\xfe", 400, "expected value"),
        (b"{\"nodes\":[-1]}", 422, "invalid value"),
        (b"{\"node\":[1]}", 422, "unknown field"),
        (b"{\"nodes\":[]}", 400, "got 0 nodes, expected 1 to 1024"),
        (many.as_bytes(), 400, "got 1025 nodes, expected 1 to 1024"),
        (unknown.as_bytes(), 400, "does not exist: expected an id below"),
        (long.as_bytes(), 413, "length limit exceeded"),
    ] {
        let (status, answer) = server.predict(body);
        assert_eq!(status, expected, "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(text)), "{answer}");
    }
    assert_eq!(server.request("POST /predict HTTP/1.1", b"{\"nodes\":[1]}").0, 415);
    assert_eq!(server.request("GET /predict HTTP/1.1", b"").0, 405);
    assert_eq!(server.request("GET /other HTTP/1.1", b"").0, 404);
    assert_eq!(server.predict(b"{\"nodes\":[1]}").0, 200);
}

#[test]
fn slow_and_vanished_clients_do_not_disturb_others_and_sigterm_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (run, _) = trained(folder.path());
    let mut server = Server::start(folder.path(), &run);
    let head = b"POST /predict HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n";
    // Half a head, a head without its body, and clients that vanish with a request.
    let mut slow: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    for (i, stream) in slow.iter_mut().enumerate() {
        stream.write_all(if i % 2 == 0 { &head[..30] } else { head }).unwrap();
    }
    for _ in 0..20 {
        let mut stream = server.connect();
        stream.write_all(&[&head[..], b"{\"nodes\":[1]}"].concat()).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    for _ in 0..5 {
        assert_eq!(server.predict(b"{\"nodes\":[1]}").0, 200);
    }
    drop(slow);
    server.signal("-TERM");
    assert!(server.process.wait().unwrap().success());
    assert!(TcpStream::connect(server.address).is_err());
}
