//! The gRPC messages and service between clients and servers of a graph, generated from `proto/graph.proto`.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod generated;

pub(crate) use generated::graph_client::GraphClient;
pub(crate) use generated::graph_server::{Graph, GraphServer};
pub(crate) use generated::*;

#[cfg(test)]
mod tests {
    #[test]
    fn generated_code_matches_the_proto_file() {
        let digest = kiln_comm::rpc::proto_digest(include_bytes!("../../../proto/graph.proto"));
        let code = include_str!("generated.rs");
        let text = "run `cargo run --manifest-path crates/comm/generate/Cargo.toml`";
        assert!(code.contains(&format!("digest: {digest:016x}.")), "{text}");
    }
}
