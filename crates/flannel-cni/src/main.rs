//! One program, many names: what it does is chosen by the name it is called by and `CNI_COMMAND`.

use std::process::ExitCode;

use flannel_kernel::memory::Arena;

/// More than an attachment takes; what takes more goes on with the system's memory.
#[global_allocator]
static MEMORY: Arena<{ 256 * 1024 }> = Arena::unused();

fn main() -> ExitCode {
    flannel_cni::program::run()
}
