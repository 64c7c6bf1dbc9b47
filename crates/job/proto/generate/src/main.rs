//! Makes `src/proto/generated.rs` of `proto/job.proto`, after a change of that:
//!
//! ```text
//! cargo run --manifest-path crates/job/proto/generate/Cargo.toml
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

const FIRST_LINES: &str = "\
// Longer than 400 lines because it is generated, of `proto/job.proto`, by `proto/generate`: not to be changed by hand.
";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this package should lie in a folder")?;
    let files = protox::compile(["job.proto"], [folder])?;
    let out = std::env::temp_dir().join(format!("generate-job-proto-{}", std::process::id()));
    fs::create_dir_all(&out)?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).out_dir(&out).compile_fds(files)?;
    let code = fs::read_to_string(out.join("kiln.job.v1.rs"))?;
    let digest = digest(&fs::read(folder.join("job.proto"))?);
    let text = format!("{FIRST_LINES}// The proto's digest: {digest:016x}.\n{code}");
    fs::write(folder.with_file_name("src").join("proto/generated.rs"), text)?;
    Ok(fs::remove_dir_all(out)?)
}

/// FNV-1a (Fowler, Noll and Vo), as the test has it that looks whether the code is of this proto.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
