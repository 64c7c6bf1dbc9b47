use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::transport::server::Router;

use crate::JobError;
use crate::process::proto::{RendezvousClient, RendezvousServer};
use crate::process::rendezvous::server::Server;
use crate::rpc::{AuthInterceptor, RpcEndpoint, Token};

/// The maximum size of a message in bytes. The exchanges of the store engine stay below it.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The client of rank 0's service.
pub(crate) type Client = RendezvousClient<InterceptedService<Channel, Token>>;

/// Creates the router of rank 0's service, which rejects calls without the token.
pub(crate) fn serve(rpc_endpoint: &RpcEndpoint, server: Server) -> Result<Router, JobError> {
    let guard: AuthInterceptor = rpc_endpoint
        .auth_interceptor("missing or wrong token: use the same token for all processes of the job");
    // The token alone does not suffice: a connection is admitted when a rank has joined over it.
    let guard = guard.without_admission();
    let service = RendezvousServer::new(server)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Ok(rpc_endpoint.server()?.add_service(InterceptedService::new(service, guard)))
}

/// Connects to rank 0, and retries until `within` has passed. Logs every 10 s that this process waits.
pub(crate) async fn connect(rpc_endpoint: &RpcEndpoint, within: Duration) -> Result<Client, JobError> {
    let address = &rpc_endpoint.address;
    let waits = |seconds| {
        tracing::info!(
            name: "waiting-for-rank-zero", target: "kiln_comm::job", address, seconds,
            "waiting for rank 0 at {address}: {seconds} s of {within:?}"
        );
    };
    let channel = rpc_endpoint.connect(within, waits).await?;
    let client = RendezvousClient::with_interceptor(channel, rpc_endpoint.token.clone());
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES))
}
