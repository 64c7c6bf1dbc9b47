//! The messages and the service of `proto/job.proto`, which the processes of a job use to communicate with rank 0.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod generated;

pub(crate) use generated::rendezvous_client::RendezvousClient;
pub(crate) use generated::rendezvous_server::{Rendezvous, RendezvousServer};
pub(crate) use generated::*;

#[cfg(test)]
mod tests {
    #[test]
    fn generated_code_matches_the_proto() {
        let expected =
            format!("digest: {:016x}.", crate::rpc::proto_digest(include_bytes!("../../../proto/job.proto")));
        let code = include_str!("generated.rs");
        assert!(code.contains(&expected), "run `cargo run --manifest-path crates/comm/generate/Cargo.toml`");
    }
}
