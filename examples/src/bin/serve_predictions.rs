//! Answers requests for predictions over HTTP, with the model of a run and sampled neighbourhoods. Requests that arrive
//! while the model computes are answered together, as one batch.
//!
//! ```text
//! cargo run --release --bin node_classification
//! cargo run --release --features http --bin serve_predictions -- --run runs/debian-packages-001
//! curl -s 127.0.0.1:8000/predict -H 'content-type: application/json' -d '{"nodes": [7, 9]}'
//! {"predictions":[{"node":7,"class":11,"class_name":"games","probability":0.93},…
//! ```
//!
//! The class and the probability of a node are `null` if its outputs are not finite. `GET /health` returns the model and
//! the number of nodes. SIGTERM and SIGINT stop the server after the requests that it has received. It listens on the
//! loopback interface unless `--listen` names another one; there is no authentication.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use kiln::prelude::*;
use kiln::train::NodePredictor;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// The most nodes in a request, and the number of nodes from which a batch takes no further request.
const MAX_NODES: usize = 1024;
const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_WAITING_REQUESTS: usize = 1024;
const MAX_CONNECTIONS: usize = 1024;
/// The time in which a client must send a request, and in which it is answered.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a connection is closed, so that clients that do not read their answers do not hold it forever.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);

kiln::use_allocator!();

#[derive(Parser)]
struct Args {
    /// Folder of the run, with `model.json` and `best.safetensors`.
    #[arg(long)]
    run: PathBuf,
    /// Dataset with the nodes and their neighbours, as it is stored; it may have nodes that training did not have.
    #[arg(long, default_value = "debian-packages")]
    data: String,
    /// Address and port; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Seed of the sampled neighbours. Default: that of the run, with which the answers are those of `kiln predict` if the
    /// run was evaluated with sampled neighbours.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requested {
    nodes: Vec<u32>,
}

#[derive(Serialize)]
struct Answer {
    node: u32,
    class: Option<u32>,
    class_name: Option<String>,
    probability: Option<f32>,
}

/// The nodes of a request, and where the handler waits for the answers or the text of an error.
struct Job {
    nodes: Vec<NodeId>,
    reply: oneshot::Sender<std::result::Result<Vec<Answer>, String>>,
}

#[derive(Clone)]
struct App {
    jobs: mpsc::Sender<Job>,
    health: Arc<serde_json::Value>,
    n_nodes: usize,
}

fn main() -> Result<()> {
    kiln::print_log();
    let args = Args::parse();
    let model = SavedModel::open(&args.run)?;
    let predictor = model.on_nodes(&Dataset::open(&args.data)?)?;
    let fanouts = model.info().inputs.sampling.as_ref().map(|info| info.fanouts()).unwrap_or_default();
    let seed = args.seed.unwrap_or(model.info().evaluation.seed);
    let mode = PredictMode::Sampled { fanouts, seed };
    // The first prediction allocates the sampler's tables, and finds settings that do not fit the model.
    predictor.predict(&[NodeId(0)], &mode)?;
    let n_nodes = predictor.n_nodes();
    let health = serde_json::json!({ "status": "ok", "model": model.info().kind, "nodes": n_nodes });
    let (jobs, received) = mpsc::channel(MAX_WAITING_REQUESTS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let worker = tokio::task::spawn_blocking(move || answer_jobs(&predictor, &mode, received));
        let app = App { jobs, health: Arc::new(health), n_nodes };
        let listener = TcpListener::bind(args.listen).await?;
        let _ = writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?);
        // If the worker panics, nothing can be answered any more, and the program fails.
        let failed = async { worker.await.map_err(|error| Error::Other(Box::new(error))) };
        tokio::select! {
            served = serve(listener, app) => served,
            failed = failed => failed,
        }
    })
}

/// Answers jobs until all senders are dropped. Jobs that arrived during a prediction form the next batch.
fn answer_jobs(predictor: &NodePredictor, mode: &PredictMode, mut received: mpsc::Receiver<Job>) {
    while let Some(first) = received.blocking_recv() {
        let mut batch = vec![first];
        while batch.iter().map(|job| job.nodes.len()).sum::<usize>() < MAX_NODES
            && let Ok(job) = received.try_recv()
        {
            batch.push(job);
        }
        // A client that has gone needs no answer.
        batch.retain(|job| !job.reply.is_closed());
        let nodes: Vec<NodeId> = batch.iter().flat_map(|job| &job.nodes).copied().collect();
        let mut rows = predict_nodes(predictor, mode, &nodes).ok().map(Vec::into_iter);
        for Job { nodes, reply } in batch {
            let own = match &mut rows {
                Some(rows) => Ok(rows.take(nodes.len()).collect()),
                // A node of one request cannot be predicted; the other requests get their answers.
                None => predict_nodes(predictor, mode, &nodes).map_err(|error| error.to_string()),
            };
            let _ = reply.send(own);
        }
    }
}

fn predict_nodes(
    predictor: &NodePredictor,
    mode: &PredictMode,
    nodes: &[NodeId],
) -> kiln::train::Result<Vec<Answer>> {
    let scores = predictor.predict(nodes, mode)?;
    let classes = scores.classes();
    let n_non_finite = classes.iter().filter(|class| class.is_none()).count();
    if n_non_finite != 0 {
        let _ = writeln!(std::io::stderr(), "nodes whose outputs are not finite: {n_non_finite}");
    }
    let answers = nodes.iter().zip(classes).zip(scores.confidences()).map(|((node, class), probability)| {
        let class_name = class.and_then(|class| predictor.model().class_name(class)).map(str::to_owned);
        Answer { node: node.0, class, class_name, probability }
    });
    Ok(answers.collect())
}

/// Accepts connections until SIGTERM or SIGINT, then answers the requests that were received.
async fn serve(listener: TcpListener, app: App) -> Result<()> {
    let router = Router::new()
        .route("/predict", post(predict))
        .route("/health", get(|State(app): State<App>| async move { Json((*app.health).clone()) }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(limit_time))
        .with_state(app);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        // With all connections in use, new clients wait in the system's queue.
        let accept = async {
            let permit = connections.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accept => accepted,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        let Ok((stream, _)) = accepted else {
            // The process has no free descriptor; one becomes free when a connection ends.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // The error of a connection, such as a client that has gone, concerns no other.
            let _ = timeout(CONNECTION_TIMEOUT, connection).await;
            drop(permit);
        });
    }
    drop(listener);
    let _ = timeout(REQUEST_TIMEOUT, graceful.shutdown()).await;
    Ok(())
}

/// Answers `POST /predict`.
async fn predict(
    State(app): State<App>,
    requested: std::result::Result<Json<Requested>, JsonRejection>,
) -> Response {
    let nodes = match requested {
        Ok(Json(Requested { nodes })) => nodes,
        Err(rejection) => return failure(rejection.status(), rejection.body_text()),
    };
    if nodes.is_empty() || MAX_NODES < nodes.len() {
        let text = format!("got {} nodes, expected 1 to {MAX_NODES}", nodes.len());
        return failure(StatusCode::BAD_REQUEST, text);
    }
    if let Some(node) = nodes.iter().find(|&&node| app.n_nodes <= node as usize) {
        let text = format!("node {node} does not exist: expected an id below {}", app.n_nodes);
        return failure(StatusCode::BAD_REQUEST, text);
    }
    let (reply, answers) = oneshot::channel();
    if app.jobs.try_send(Job { nodes: nodes.into_iter().map(NodeId).collect(), reply }).is_err() {
        return failure(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests are waiting: try again".to_owned(),
        );
    }
    match answers.await {
        Ok(Ok(answers)) => Json(serde_json::json!({ "predictions": answers })).into_response(),
        Ok(Err(text)) => failure(StatusCode::INTERNAL_SERVER_ERROR, text),
        Err(_) => failure(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping".to_owned()),
    }
}

/// Ends requests whose body does not arrive, or that are not answered, in time.
async fn limit_time(request: Request, next: Next) -> Response {
    let answered: std::result::Result<Response, _> = timeout(REQUEST_TIMEOUT, next.run(request)).await;
    answered.unwrap_or_else(|_| failure(StatusCode::REQUEST_TIMEOUT, "the request took too long".to_owned()))
}

fn failure(status: StatusCode, error: String) -> Response {
    (status, Json(serde_json::json!({ "error": error }))).into_response()
}
