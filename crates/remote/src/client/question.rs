use kiln_comm::rpc::Token;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::wire::proto::{
    Chunk, FetchRequest, GatherEdgesRequest, GatherRequest, GraphClient, ListRequest, SampleRequest,
};

/// A connection to a graph server.
pub(crate) type Client = GraphClient<InterceptedService<Channel, Token>>;

/// A request whose response is a stream of chunks.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    Fetch(FetchRequest),
    Sample(SampleRequest),
    List(ListRequest),
    Gather(GatherRequest),
    GatherEdges(GatherEdgesRequest),
}

impl Question {
    /// Returns the kind of data that is requested, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fetch(_) => "an array",
            Self::Sample(_) => "a sample",
            Self::List(_) => "neighbour lists",
            Self::Gather(_) => "feature rows",
            Self::GatherEdges(_) => "feature rows of edges",
        }
    }

    /// Sends the request once.
    pub(crate) async fn ask(
        self,
        client: &mut Client,
        lease: u64,
    ) -> Result<Response<Streaming<Chunk>>, Status> {
        match self {
            Self::Fetch(request) => client.fetch(FetchRequest { lease, ..request }).await,
            Self::Sample(request) => client.sample(SampleRequest { lease, ..request }).await,
            Self::List(request) => client.list(ListRequest { lease, ..request }).await,
            Self::Gather(request) => client.gather(GatherRequest { lease, ..request }).await,
            Self::GatherEdges(request) => client.gather_edges(GatherEdgesRequest { lease, ..request }).await,
        }
    }
}
