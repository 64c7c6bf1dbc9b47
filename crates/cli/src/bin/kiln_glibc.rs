//! The program `kiln` with the allocator of the system, to measure what that of `kiln` gains (`benches/epochs.py`).

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    kiln_cli::main()
}
