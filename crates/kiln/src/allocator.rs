//! The allocator of a program.

/// Makes [`HugePageAllocator`](kiln_mem::HugePageAllocator) the global allocator of a program, which must call this once,
/// outside of functions.
///
/// The system's allocator returns the memory of large buffers to the kernel, which maps and clears it again in the next step.
/// On Linux, training takes up to 1.5 times as long without this line; elsewhere, it changes nothing.
///
/// ```standalone_crate
/// kiln::use_allocator!();
///
/// fn main() {}
/// ```
#[macro_export]
macro_rules! use_allocator {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::mem::HugePageAllocator = $crate::mem::HugePageAllocator::new();
    };
}
