//! Joining a job: the request of a process, and the start of rank 0's server.

use std::error::Error as _;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::JobError;
use crate::process::proto::{Join, Said, Told, said};
use crate::process::rendezvous::channel::{Client, connect, serve};
use crate::process::rendezvous::seats::JobId;
use crate::process::rendezvous::server::Server;
use crate::process::watchdog::timing::Timing;
use crate::rpc::{RpcEndpoint, Token, is_tls_failure};

/// The number of connections that rank 0 accepts at once in addition to those of the ranks. A process that tries to
/// join a running job needs one of them to receive the refusal.
const N_STRANGERS: usize = 16;

/// The pause before a process retries to join, while another attempt at the job still runs.
const PAUSE: Duration = Duration::from_secs(1);

/// The client and the streams of a process that rank 0 has accepted.
pub(crate) struct Attended {
    pub(crate) client: Client,
    pub(crate) say: mpsc::Sender<Said>,
    pub(crate) told: Streaming<Told>,
}

/// Starts the rendezvous server, on rank 0.
pub(crate) fn serve_job(
    listener: std::net::TcpListener,
    rpc_endpoint: &RpcEndpoint,
    join: &Join,
    timing: Timing,
) -> Result<(), JobError> {
    let world_size = join.world_size as usize;
    let job = match join.job.as_str() {
        "" => JobId::Drawn(Token::random_text()?),
        id => JobId::Launcher(id.to_owned()),
    };
    let server = Server::new(world_size, job, timing);
    let router = serve(rpc_endpoint, server.clone())?;
    // Each rank keeps one connection until the job ends, so the limit includes one connection per rank.
    let incoming = rpc_endpoint.incoming(listener, world_size + N_STRANGERS);
    let incoming =
        incoming.map_err(|source| JobError::Listen { address: rpc_endpoint.address.clone(), source })?;
    tokio::spawn(server.watch());
    tokio::spawn(router.serve_with_incoming(incoming));
    Ok(())
}

/// Joins the job at rank 0. Retries while rank 0 of another attempt at the job answers, or exits before it answers.
pub(crate) async fn attend(
    rpc_endpoint: &RpcEndpoint,
    join: &Join,
    timing: Timing,
) -> Result<Attended, JobError> {
    let started = Instant::now();
    let mut is_logged = false;
    loop {
        let mut client = connect(rpc_endpoint, timing.join.saturating_sub(started.elapsed())).await?;
        let (say, said) = mpsc::channel(16);
        let hello = Said { what: Some(said::What::Join(join.clone())) };
        let lost =
            |reason: &str| JobError::Lost { reason: format!("rank 0 at {}: {reason}", rpc_endpoint.address) };
        say.send(hello).await.map_err(|_| lost("the connection has closed"))?;
        // If rank 0 accepts this process, its heartbeats follow twice a second, so a longer silence means that
        // rank 0 is lost.
        let silent = |_| lost(&format!("it has been silent for {:?}", timing.deadline));
        let attended = timeout(timing.deadline, client.attend(ReceiverStream::new(said))).await;
        let status = match attended.map_err(silent)? {
            Ok(told) => return Ok(Attended { client, say, told: told.into_inner() }),
            Err(status) => status,
        };
        if !is_of_another_attempt(&status) || timing.join < started.elapsed() {
            return Err(refusal(&status));
        }
        if !is_logged {
            let address = &rpc_endpoint.address;
            let reason = status.message();
            tracing::info!(
                name: "waiting-for-attempt", target: "kiln_comm::job", address, reason,
                "waiting for rank 0 of this job at {address}: {reason}"
            );
            is_logged = true;
        }
        sleep(PAUSE).await;
    }
}

/// Returns true if rank 0 of another attempt at the job answered, or if the connection failed before rank 0 answered,
/// except for TLS failures. Only the status of a failed connection has a source error.
fn is_of_another_attempt(status: &Status) -> bool {
    status.code() == Code::Aborted || status.source().is_some_and(|source| !is_tls_failure(source))
}

/// Converts the status of a refused process to an error.
fn refusal(status: &Status) -> JobError {
    let reason = status.message().to_owned();
    match status.code() {
        Code::AlreadyExists | Code::FailedPrecondition | Code::Unauthenticated | Code::InvalidArgument => {
            JobError::Refused { reason }
        }
        _ => JobError::Lost { reason },
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use crate::rpc::Token;

    use super::*;
    use crate::process::proto::{Entry, Fault, Nothing, fault};

    /// A process that has the token but has not joined must not affect the job.
    #[tokio::test]
    async fn calls_without_joining_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let rpc_endpoint =
            RpcEndpoint { address, token: Token::new("a-word-of-this-test").unwrap(), tls: None };
        let join = Join { world_size: 1, machine: "m".to_owned(), ..Join::default() };
        let timing = Timing { join: Duration::from_secs(60), deadline: Duration::from_secs(60) };
        serve_job(listener, &rpc_endpoint, &join, timing).unwrap();
        // A connection is closed soon after a refusal, so each call has its own.
        let stranger = || async { connect(&rpc_endpoint, timing.join).await.unwrap() };
        let fault = Fault { rank: 0, kind: fault::Kind::Failed.into(), what: "sabotage".to_owned() };
        let entry = Entry { key: "key".to_owned(), value: vec![1] };
        let statuses = [
            stranger().await.report(fault).await.unwrap_err(),
            stranger().await.put(entry).await.unwrap_err(),
            stranger().await.look(Nothing {}).await.unwrap_err(),
        ];
        for status in statuses {
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        }
        let mut rank = attend(&rpc_endpoint, &join, timing).await.unwrap();
        let told = rank.told.message().await.unwrap().and_then(|told| told.what);
        assert!(matches!(told, Some(crate::process::proto::told::What::Members(_))), "{told:?}");
    }
}
