//! What the processes of a job say to the first one: the messages and the service of `proto/job.proto`.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod generated;

pub(crate) use generated::rendezvous_client::RendezvousClient;
pub(crate) use generated::rendezvous_server::{Rendezvous, RendezvousServer};
pub(crate) use generated::*;

#[cfg(test)]
mod tests {
    #[test]
    fn the_code_is_of_this_proto() {
        let expected =
            format!("digest: {:016x}.", crate::rpc::proto_digest(include_bytes!("../../../proto/job.proto")));
        let code = include_str!("generated.rs");
        assert!(code.contains(&expected), "run `cargo run --manifest-path crates/comm/generate/Cargo.toml`");
    }
}
