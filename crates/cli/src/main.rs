//! The program `kiln`.

#![forbid(unsafe_code)]

kiln::use_allocator!();

fn main() -> std::process::ExitCode {
    kiln_cli::main()
}
