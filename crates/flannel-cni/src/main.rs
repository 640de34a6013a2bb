//! One program, many names: what it does is chosen by the name it is called by and `CNI_COMMAND`.

use std::process::ExitCode;

fn main() -> ExitCode {
    flannel_cni::program::run()
}
