//! Generates the Rust code of each `.proto` file of the workspace. Run it after you have changed such a file:
//!
//! ```text
//! cargo run --manifest-path crates/comm/generate/Cargo.toml
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

/// The crates with a `proto/NAME.proto` of the package `kiln.NAME.v1`, each with `NAME` and the path of its code.
const PROTOS: &[(&str, &str, &str)] =
    &[("comm", "job", "src/process/proto/generated.rs"), ("remote", "graph", "src/wire/proto/generated.rs")];

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("expected a folder of a crate")?;
    PROTOS.iter().try_for_each(|(folder, name, code)| generate(&crates.join(folder), name, code))
}

fn generate(folder: &Path, name: &str, code_path: &str) -> Result<(), Box<dyn Error>> {
    let proto = folder.join("proto");
    let files = protox::compile([format!("{name}.proto")], [&proto])?;
    let out = std::env::temp_dir().join(format!("generate-{name}-proto-{}", std::process::id()));
    fs::create_dir_all(&out)?;
    let config = tonic_prost_build::configure().bytes(".kiln.graph").emit_rerun_if_changed(false).out_dir(&out);
    config.compile_fds(files)?;
    let code = fs::read_to_string(out.join(format!("kiln.{name}.v1.rs")))?;
    let digest = digest(&fs::read(proto.join(format!("{name}.proto")))?);
    let first_lines = format!(
        "// Longer than 600 lines because it is generated, of `proto/{name}.proto`, by `kiln-comm`'s `generate`: not to be \
         changed by hand.\n// The proto's digest: {digest:016x}.\n"
    );
    fs::write(folder.join(code_path), first_lines + &code)?;
    Ok(fs::remove_dir_all(out)?)
}

/// Returns the FNV-1a hash (Fowler, Noll and Vo) of a `.proto` file. Tests compare it with the result of
/// `kiln_comm::rpc::proto_digest`, which computes the same hash.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
