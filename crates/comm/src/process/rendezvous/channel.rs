use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::transport::server::Router;

use crate::JobError;
use crate::process::proto::{RendezvousClient, RendezvousServer};
use crate::process::rendezvous::server::Server;
use crate::rpc::{Door, Guard, Token, log};

/// The largest message: an exchange's, of which each rank's part is bounded.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A call's way to the first process.
pub(crate) type Client = RendezvousClient<InterceptedService<Channel, Token>>;

/// What serves the processes that know the token.
pub(crate) fn serve(door: &Door, server: Server) -> Result<Router, JobError> {
    let guard: Guard = door.guard("another token: all processes of a job have the same");
    // Nor is a process with the token that is no rank of the job.
    let guard = guard.without_admission();
    let service = RendezvousServer::new(server)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Ok(door.server()?.add_service(InterceptedService::new(service, guard)))
}

/// Tries to reach the first process until it answers or the time is up.
pub(crate) async fn connect(door: &Door, within: Duration) -> Result<Client, JobError> {
    let waits = |seconds| log(&format!("waiting for rank 0 at {}: {seconds} s of {within:?}", door.address));
    let channel = door.connect(within, waits).await?;
    let client = RendezvousClient::with_interceptor(channel, door.token.clone());
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES))
}
