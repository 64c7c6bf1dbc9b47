//! The program `kiln`.

#![forbid(unsafe_code)]

/// The allocator of the program, which reuses the pages of large buffers: each step allocates and frees activations,
/// gradients and batches.
#[global_allocator]
static ALLOCATOR: kiln::mem::HugePageAllocator = kiln::mem::HugePageAllocator::new();

fn main() -> std::process::ExitCode {
    kiln_cli::main()
}
