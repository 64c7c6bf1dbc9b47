//! What clients and servers of a graph say to each other: the messages and the service of `proto/graph.proto`.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod generated;

pub(crate) use generated::graph_client::GraphClient;
pub(crate) use generated::graph_server::{Graph, GraphServer};
pub(crate) use generated::*;

#[cfg(test)]
mod tests {
    #[test]
    fn the_code_is_of_this_proto() {
        let digest = kiln_comm::rpc::proto_digest(include_bytes!("../../proto/graph.proto"));
        let code = include_str!("generated.rs");
        let text = "run `cargo run --manifest-path crates/comm/generate/Cargo.toml`";
        assert!(code.contains(&format!("digest: {digest:016x}.")), "{text}");
    }
}
