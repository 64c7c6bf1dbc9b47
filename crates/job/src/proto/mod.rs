//! What the processes of a job say to the first one: the messages and the service of `proto/job.proto`.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod generated;

pub(crate) use generated::rendezvous_client::RendezvousClient;
pub(crate) use generated::rendezvous_server::{Rendezvous, RendezvousServer};
pub(crate) use generated::*;

#[cfg(test)]
mod tests {
    /// FNV-1a, as `proto/generate` has it.
    fn digest(bytes: &[u8]) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }

    #[test]
    fn the_code_is_of_this_proto() {
        let expected = format!("digest: {:016x}.", digest(include_bytes!("../../proto/job.proto")));
        let code = include_str!("generated.rs");
        assert!(
            code.contains(&expected),
            "run `cargo run --manifest-path crates/job/proto/generate/Cargo.toml`"
        );
    }
}
