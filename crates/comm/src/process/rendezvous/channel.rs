use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::transport::server::Router;

use crate::JobError;
use crate::process::proto::{RendezvousClient, RendezvousServer};
use crate::process::rendezvous::server::Server;
use crate::rpc::{AuthInterceptor, RpcEndpoint, Token, log};

/// The largest message: an exchange's, of which each rank's part is bounded.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A call's way to the first process.
pub(crate) type Client = RendezvousClient<InterceptedService<Channel, Token>>;

/// What serves the processes that know the token.
pub(crate) fn serve(rpc_endpoint: &RpcEndpoint, server: Server) -> Result<Router, JobError> {
    let guard: AuthInterceptor =
        rpc_endpoint.auth_interceptor("another token: all processes of a job have the same");
    // Nor is a process with the token that is no rank of the job.
    let guard = guard.without_admission();
    let service = RendezvousServer::new(server)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Ok(rpc_endpoint.server()?.add_service(InterceptedService::new(service, guard)))
}

/// Tries to reach the first process until it answers or the time is up.
pub(crate) async fn connect(rpc_endpoint: &RpcEndpoint, within: Duration) -> Result<Client, JobError> {
    let waits =
        |seconds| log(&format!("waiting for rank 0 at {}: {seconds} s of {within:?}", rpc_endpoint.address));
    let channel = rpc_endpoint.connect(within, waits).await?;
    let client = RendezvousClient::with_interceptor(channel, rpc_endpoint.token.clone());
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES))
}
